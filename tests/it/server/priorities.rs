//! Tasks with a priority: queues of a family, which servers join.

use std::time::Duration;

use queue_admin::Reason;
use queue_core::RawTask;
use queue_core::keys::QueueKeys;
use queue_redis::{EnqueueError, Fault};
use queue_worker::{Handle, Job, Priorities, Router};

use crate::support::{Events, Fixture, QUEUE, eventually, job, with};

/// Tells the id of each task.
fn ids(events: &Events) -> Router {
    Router::new(()).route("job", with(events, async |events: Events, job: Job| events.tell(job.id())))
}

async fn serve(fixture: &Fixture, events: &Events, priorities: Priorities) -> Handle {
    fixture.server(ids(events)).concurrency(1).priorities(priorities).start().await.unwrap()
}

/// The queues that servers say they serve.
async fn served(fixture: &Fixture) -> Vec<String> {
    let servers = fixture.inspector().servers().await.unwrap();
    servers.into_iter().flat_map(|server| server.queues.into_keys()).collect()
}

fn urgent(id: &str, level: u8) -> RawTask {
    job(id).priority(level)
}

#[tokio::test]
async fn a_server_joins_a_priority_when_its_first_task_comes_and_leaves_it_when_it_is_removed() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let server = serve(&fixture, &events, Priorities::Weighted).await;
    fixture.enqueue([job("middle")]).await;
    assert_eq!(events.wait(1).await, ["middle"]);
    assert_eq!(served(&fixture).await, [QUEUE]);

    fixture.enqueue([urgent("high", 9)]).await;
    assert_eq!(events.wait(2).await, ["middle", "high"]);
    eventually("it says so", async || served(&fixture).await == [QUEUE, "q}p9"]).await;
    // What is due later is looked after as well.
    fixture.enqueue([urgent("later", 9).process_in(Duration::from_millis(10))]).await;
    assert_eq!(events.wait(3).await, ["middle", "high", "later"]);

    eventually("all have been reported", async || server.active() == 0).await;
    fixture.inspector().remove_queue("q}p9", true).await.unwrap();
    fixture.enqueue([urgent("other", 0)]).await;
    events.wait(4).await;
    eventually("it has left the queue", async || served(&fixture).await == [QUEUE, "q}p0"]).await;
    fixture.broker.publish_queue("q}p9").await.unwrap();
    fixture.enqueue([urgent("again", 9)]).await;
    assert_eq!(events.wait(5).await.last().unwrap(), "again");
    server.shutdown().await;
}

#[tokio::test]
async fn strict_priorities_run_in_their_order_and_each_queue_by_its_weight() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    for level in [0, 5, 9, 3] {
        fixture.enqueue((0..30).map(|n| urgent(&format!("{level}-{n}"), level))).await;
    }
    fixture.enqueue((0..30).map(|n| job(&format!("light-{n}")).queue("light").priority(9))).await;
    let server = fixture.server(ids(&events)).concurrency(1).queues([(QUEUE, 2), ("light", 1)]).strict_priority(true);
    let server = server.priorities(Priorities::Strict).start().await.unwrap();
    let order = ["9", "5", "3", "0", "light"];
    let order: Vec<String> = order.iter().flat_map(|name| (0..30).map(move |n| format!("{name}-{n}"))).collect();
    assert_eq!(events.wait(150).await, order);
    server.shutdown().await;
}

/// 512 to 32 to 1 while all three have tasks, so that the lowest gets about 37 of the first 20,000. By chance it never
/// gets none, and never a hundred.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weighted_priorities_let_the_lowest_wait_but_not_for_ever() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    for (level, tasks) in [(9, 20_000), (5, 2_000), (0, 200)] {
        fixture.enqueue((0..tasks).map(|_| RawTask::new("job").queue(QUEUE).priority(level))).await;
    }
    let tell = with(&events, async |events: Events, job: Job| events.tell(job.queue()));
    let router = Router::new(()).route("job", tell);
    let server = fixture.server(router).concurrency(20).priorities(Priorities::Weighted).start().await.unwrap();
    let order = events.wait(20_000).await;
    server.shutdown().await;
    let first = &order[..20_000];
    let count = |queue: &str| first.iter().filter(|name| *name == queue).count();
    assert!((1..100).contains(&count("q}p0")), "{}", count("q}p0"));
    assert!((900..1_500).contains(&count(QUEUE)), "{}", count(QUEUE));
}

#[tokio::test]
async fn a_server_without_priorities_leaves_them_and_explain_and_doctor_say_so() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let server = fixture.server(ids(&events)).start().await.unwrap();
    fixture.enqueue([urgent("high", 9), job("middle")]).await;
    assert_eq!(events.wait(1).await, ["middle"]);
    let explained = fixture.inspector().explain("q}p9", "high").await.unwrap();
    let [Reason::NoPriorities { servers }, ..] = &explained.reasons[..] else { panic!("{:?}", explained.reasons) };
    assert_eq!(servers.len(), 1);
    let mut examination = fixture.inspector().doctor().examine();
    let mut found = Vec::new();
    while let Some(findings) = examination.next().await.unwrap() {
        found.extend(findings);
    }
    assert!(found.iter().any(|found| found.fault == Fault::Unserved && found.subject == "q}p9"), "{found:?}");
    server.shutdown().await;
    assert_eq!(events.all(), ["middle"]);
}

#[tokio::test]
async fn a_unique_task_is_one_over_all_priorities_until_it_has_ended() {
    let fixture = Fixture::start().await;
    let unique = |id: &str, level| urgent(id, level).payload("x").unique(Duration::from_secs(600));
    fixture.enqueue([unique("high", 9)]).await;
    let inspector = fixture.inspector();
    let client = fixture.client();
    for level in [5, 0, 9] {
        let refused = client.enqueue(unique("twin", level)).await.unwrap_err();
        assert!(matches!(refused, EnqueueError::DuplicateTask { .. }), "{level}: {refused}");
    }
    // The lock lies below the base queue, and is not taken for one that was left there.
    let lock = QueueKeys::new(QUEUE).unique("job", Some(b"x"));
    assert_eq!(fixture.cmd::<String>(&["GET", &lock]).await, "high");
    let mut examination = inspector.doctor().examine();
    while let Some(findings) = examination.next().await.unwrap() {
        for found in findings.into_iter().filter(|found| found.queue.is_some()) {
            // The queue of a twin that was refused is listed all the same.
            assert!(matches!(found.fault, Fault::Unserved | Fault::EmptyQueue), "{found:?}");
        }
    }
    // Nor does the end of the base queue free it.
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    inspector.remove_queue(QUEUE, true).await.unwrap();
    assert_eq!(fixture.cmd::<String>(&["GET", &lock]).await, "high");

    let events = Events::default();
    let server = serve(&fixture, &events, Priorities::Strict).await;
    assert_eq!(events.wait(1).await, ["high"]);
    eventually("the lock is free", async || client.enqueue(unique("next", 0)).await.is_ok()).await;
    assert_eq!(events.wait(2).await, ["high", "next"]);
    server.shutdown().await;
}

#[tokio::test]
async fn limits_and_options_of_a_queue_are_those_of_its_priorities_together() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    let fixture = Fixture::start().await;
    let (running, most, done) = <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    for level in [0, 5, 9] {
        fixture.enqueue((0..20).map(|n| urgent(&format!("{level}-{n}"), level))).await;
    }
    let (counted, seen, ended) = (running.clone(), most.clone(), done.clone());
    let run = move |_: Job| {
        let (running, most, done) = (counted.clone(), seen.clone(), ended.clone());
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(2)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            done.fetch_add(1, Ordering::SeqCst);
        }
    };
    let server = fixture.server(Router::new(()).route("job", run)).concurrency(20).queue_concurrency(QUEUE, 3);
    let server = server.priorities(Priorities::Weighted).start().await.unwrap();
    eventually("all have run", async || done.load(Ordering::SeqCst) == 60).await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    server.shutdown().await;
}

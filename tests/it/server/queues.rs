//! Which tasks of which queues run, and in which order.

use std::collections::HashMap;
use std::time::Duration;

use queue_core::keys::QueueKeys;
use queue_worker::{Job, Router};

use crate::support::{Events, Fixture, eventually, job, with};

/// Tells the id of each task.
fn ids(events: &Events) -> Router {
    Router::new(()).route("job", with(events, async |events: Events, job: Job| events.tell(job.id())))
}

#[tokio::test]
async fn one_after_another_runs_in_the_order_of_enqueuing() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue((0..300).map(|n| job(&n.to_string()))).await;
    let server = fixture.server(ids(&events)).concurrency(1).start().await.unwrap();
    let expected: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    assert_eq!(events.wait(300).await, expected);
    server.shutdown().await;
}

#[tokio::test]
async fn a_paused_queue_waits_and_the_others_go_on() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue([job("a"), job("b").queue("other")]).await;
    let inspector = fixture.inspector();
    assert!(inspector.pause("q").await.unwrap());
    let server = fixture.server(ids(&events)).queues([("q", 1), ("other", 1)]).start().await.unwrap();
    assert_eq!(events.wait(1).await, ["b"]);
    fixture.enqueue([job("c").queue("other")]).await;
    assert_eq!(events.wait(2).await, ["b", "c"]);
    assert!(inspector.unpause("q").await.unwrap());
    assert_eq!(events.wait(3).await, ["b", "c", "a"]);
    server.shutdown().await;
}

#[tokio::test]
async fn strict_priority_empties_the_heavier_queue_first() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let tasks = |queue: &'static str| (0..40).map(move |n| job(&format!("{queue}-{n}")).queue(queue));
    fixture.enqueue(tasks("low").chain(tasks("high")).chain(tasks("middle"))).await;
    let queues = [("low", 1), ("high", 3), ("middle", 2)];
    let server =
        fixture.server(ids(&events)).queues(queues).strict_priority(true).concurrency(1).start().await.unwrap();
    let order: Vec<String> =
        ["high", "middle", "low"].iter().flat_map(|queue| (0..40).map(move |n| format!("{queue}-{n}"))).collect();
    assert_eq!(events.wait(120).await, order);
    server.shutdown().await;
}

/// 20,000 draws: a standard deviation is 0.35 % of them at the most, so that 2 % are never seen by chance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_share_out_the_slots_within_two_percent() {
    const TASKS: usize = 20_000;
    let fixture = Fixture::start().await;
    let events = Events::default();
    let weights = HashMap::from([("low", 0.1), ("middle", 0.3), ("high", 0.6)]);
    let tasks = weights.iter().flat_map(|(queue, share)| {
        let enough = (TASKS as f64 * (share + 0.03)) as usize;
        (0..enough).map(|_| queue_core::RawTask::new("job").queue(*queue))
    });
    fixture.enqueue(tasks.collect::<Vec<_>>()).await;
    let tell = with(&events, async |events: Events, job: Job| events.tell(job.queue()));
    let server = fixture.server(Router::new(()).route("job", tell)).queues([("low", 1), ("middle", 3), ("high", 6)]);
    let server = server.concurrency(20).start().await.unwrap();
    let order = events.wait(TASKS).await;
    server.shutdown().await;
    for (queue, share) in weights {
        let found = order[..TASKS].iter().filter(|name| *name == queue).count() as f64 / TASKS as f64;
        assert!((found - share).abs() < 0.02, "{queue} had {found} instead of {share}");
    }
}

#[tokio::test]
async fn a_queue_without_weight_is_not_served() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue([job("a").queue("off"), job("b")]).await;
    let server = fixture.server(ids(&events)).queues([("off", 0), ("q", 1)]).start().await.unwrap();
    events.wait(1).await;
    server.shutdown().await;
    assert_eq!(events.all(), ["b"]);
    assert_eq!(fixture.keyspace().await.get("{off}:pending"), Some("[a]"));
}

#[tokio::test]
async fn tasks_on_many_queues_all_run_and_every_queue_is_seen() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let queues: Vec<String> = (0..150).map(|n| format!("queue {n}")).collect();
    let server = fixture.server(ids(&events)).queues(queues.iter().map(|queue| (queue.clone(), 1))).concurrency(8);
    let server = server.start().await.unwrap();
    fixture.enqueue((0..1_500).map(|n| job(&n.to_string()).queue(queues[n % 150].clone()))).await;
    let mut seen = events.wait(1_500).await;
    seen.sort_by_key(|id| id.parse::<u32>().unwrap());
    assert_eq!(seen, (0..1_500).map(|n| n.to_string()).collect::<Vec<_>>());
    eventually("all have been reported", async || server.active() == 0).await;
    for queue in queues {
        let processed: u64 = fixture.cmd(&["GET", &QueueKeys::new(&queue).processed_total()]).await;
        assert_eq!(processed, 10, "{queue}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn scheduled_tasks_run_when_they_are_due_and_not_before() {
    let fixture = Fixture::start().await;
    let events = Events::<(String, i64)>::default();
    let tell = with(&events, async |events: Events<(String, i64)>, job: Job| {
        use queue_core::Clock as _;
        events.tell((job.id().to_owned(), queue_core::SystemClock.now_ns()));
    });
    let server = fixture.server(Router::new(()).route("job", tell)).start().await.unwrap();
    let client = fixture.client();
    client.enqueue(job("in an hour").process_in(Duration::from_secs(3_600))).await.unwrap();
    // Scheduled last, due first: the server has to notice that.
    for (n, (id, delay)) in [("sooner", 200), ("later", 1_200)].into_iter().enumerate() {
        let info = client.enqueue(job(id).process_in(Duration::from_millis(delay))).await.unwrap();
        let (ran, at) = events.wait(n + 1).await.swap_remove(n);
        assert_eq!(ran, id);
        assert!(at >= info.next_process_at.unwrap().timestamp_nanos_opt().unwrap(), "{id} ran too early");
    }
    server.shutdown().await;
}

/// asynq's servers look at an empty queue every second; ours are told.
#[tokio::test]
async fn an_idle_server_notices_tasks_without_polling() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let day = Duration::from_secs(24 * 60 * 60);
    let server =
        fixture.server(ids(&events)).queues([("q", 1), ("other", 1)]).poll_interval(day).start().await.unwrap();
    for n in 0..50 {
        let queue = if n % 2 == 0 { "q" } else { "other" };
        fixture.enqueue([job(&n.to_string()).queue(queue)]).await;
        events.wait(n + 1).await;
    }
    server.shutdown().await;
}

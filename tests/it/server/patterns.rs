//! Queues whose names begin as a pattern does, which a server joins and leaves while it runs.

use std::collections::BTreeMap;
use std::time::Duration;

use queue_admin::Reason;
use queue_core::RawTask;
use queue_core::limits::MAX_JOINED;
use queue_redis::Fault;
use queue_worker::{Job, Priorities, RetryPolicy, Router, Server, ServerError, WorkOptions};

use crate::support::{Events, Fixture, eventually, with};

/// Tells the queue and id of each task.
fn server(fixture: &Fixture, events: &Events) -> Server {
    let tell = |events: Events, job: Job| async move { events.tell(format!("{} {}", job.queue(), job.id())) };
    Server::new(fixture.redis(), Router::new(()).route("job", with(events, tell))).queue_pattern("tenant:*", 2)
}

fn task(queue: &str, id: &str) -> RawTask {
    RawTask::new("job").queue(queue).task_id(id)
}

/// The queues that the only server says it serves.
async fn served(fixture: &Fixture) -> BTreeMap<String, i32> {
    let servers = fixture.inspector().servers().await.unwrap();
    assert!(servers.len() < 2, "{servers:?}");
    servers.into_iter().flat_map(|server| server.queues).collect()
}

fn weights(of: &[(&str, i32)]) -> BTreeMap<String, i32> {
    of.iter().map(|(queue, weight)| ((*queue).to_owned(), *weight)).collect()
}

#[tokio::test]
async fn a_server_without_a_queue_serves_those_that_come_and_leaves_those_that_go() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let started = server(&fixture, &events).start().await.unwrap();
    assert_eq!(served(&fixture).await, weights(&[]), "not even the default queue");
    fixture.enqueue([task("tenant:a", "1"), task("other", "2")]).await;
    assert_eq!(events.wait(1).await, ["tenant:a 1"]);
    // What is due later is looked after as well.
    fixture.enqueue([task("tenant:b", "3").process_in(Duration::from_millis(10))]).await;
    assert_eq!(events.wait(2).await[1], "tenant:b 3");
    eventually("it says so", async || served(&fixture).await == weights(&[("tenant:a", 2), ("tenant:b", 2)])).await;
    let (mut examination, mut unserved) = (fixture.inspector().doctor().examine(), Vec::new());
    while let Some(findings) = examination.next().await.unwrap() {
        let findings = findings.into_iter().filter(|found| found.fault == Fault::Unserved);
        unserved.extend(findings.map(|found| found.subject));
    }
    assert_eq!(unserved, ["other"]);
    let explained = fixture.inspector().explain("other", "2").await.unwrap();
    assert!(matches!(explained.reasons[..], [Reason::NoServer]), "{:?}", explained.reasons);

    eventually("all have been reported", async || started.active() == 0).await;
    fixture.inspector().remove_queue("tenant:a", true).await.unwrap();
    fixture.enqueue([task("tenant:c", "4")]).await;
    assert_eq!(events.wait(3).await[2], "tenant:c 4");
    eventually("it has left one", async || served(&fixture).await == weights(&[("tenant:b", 2), ("tenant:c", 2)]))
        .await;
    // As a client of Go does that puts a task there for the first time.
    fixture.broker.publish_queue("tenant:a").await.unwrap();
    fixture.enqueue([task("tenant:a", "5")]).await;
    assert_eq!(events.wait(4).await[3], "tenant:a 5");
    started.shutdown().await;
}

#[tokio::test]
async fn tasks_that_waited_before_the_start_and_in_families_are_found() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue([task("tenant:a", "plain"), task("tenant:b", "high").priority(9)]).await;
    fixture.enqueue([task("tenant:c", "mine").only("web-1"), task("tenant:c", "else").only("web-2")]).await;
    let pattern = server(&fixture, &events).priorities(Priorities::Weighted).name("web-1");
    let started = pattern.start().await.unwrap();
    let mut told = events.wait(3).await;
    told.sort();
    assert_eq!(told, ["tenant:a plain", "tenant:b}p9 high", "tenant:c}@web-1 mine"]);
    started.shutdown().await;
}

#[tokio::test]
async fn options_and_limits_of_a_pattern_are_those_of_each_of_its_queues() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let route = with(&events, async |events: Events, job: Job| {
        events.tell(job.queue());
        Err::<(), _>("no")
    });
    let at_once = WorkOptions::new().retry_policy(RetryPolicy::Fixed(Duration::from_secs(77)));
    let server = |events: &Events| server(&fixture, events).queue_options("tenant:*", at_once.clone());
    let pattern = Server::new(fixture.redis(), Router::new(()).route("job", route));
    let pattern = pattern.queue_pattern("tenant:*", 1).queue_options("tenant:*", at_once.clone());
    let started = pattern.queue_concurrency("tenant:*", 1).start().await.unwrap();
    fixture.enqueue([task("tenant:a", "1")]).await;
    events.wait(1).await;
    let due = async || {
        let found = fixture.inspector().task("tenant:a", "1").await.unwrap();
        Some(found.next_process_at? - found.last_failed_at?)
    };
    eventually("it waits as long as was said", async || due().await.is_some_and(|wait| wait.num_seconds() == 77)).await;
    started.shutdown().await;

    let refused = server(&events).queue_concurrency("other", 1).start().await.unwrap_err();
    assert!(matches!(refused, ServerError::Option { option: "queue_concurrency", .. }), "{refused}");
    for (bad, weight) in [("tenant:", 1), ("ten*ant:*", 1), ("**", 1), ("*", 0)] {
        let refused = server(&events).queue_pattern(bad, weight).start().await.unwrap_err();
        assert!(matches!(refused, ServerError::Option { option: "queue_pattern", .. }), "{bad}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_joins_a_thousand_queues_and_no_more() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let queues: Vec<String> = (0..=MAX_JOINED).map(|n| format!("tenant:{n}")).collect();
    fixture.enqueue(queues.iter().map(|queue| task(queue, "t"))).await;
    let started = server(&fixture, &events).concurrency(10).start().await.unwrap();
    events.wait(MAX_JOINED).await;
    assert_eq!(served(&fixture).await.len(), MAX_JOINED);
    started.shutdown().await;
    assert_eq!(events.all().len(), MAX_JOINED);
}

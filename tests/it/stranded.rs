//! Tasks that were left behind, because something stood before them or nobody looked for them.

use std::sync::Arc;
use std::time::Duration;

use queue_core::{Clock as _, SystemClock, TaskState};
use queue_redis::{Redis, RedisOptions};
use queue_worker::{Handle, Job, RetryPolicy, Router};

use crate::support::{Events, Fixture, Proxy, QUEUE, eventually, job, with};

async fn serve(fixture: &Fixture, events: &Events) -> Handle {
    let tell = with(events, async |events: Events, job: Job| events.tell(job.id()));
    let server = fixture.server(Router::new(()).route("job", tell));
    server.retry_policy(RetryPolicy::Fixed(Duration::ZERO)).start().await.unwrap()
}

/// What is unreadable goes to the archive; here it cannot.
#[tokio::test]
async fn tasks_that_cannot_be_archived_do_not_hide_a_task_from_recovery() {
    let fixture = Fixture::start().await;
    fixture.run("SET asynq:{q}:archived stray").await;
    fixture.enqueue([job("lost")]).await;
    fixture.dequeue_at(1_000, 1).await;
    for n in 0..250 {
        fixture.run(&format!("HSET asynq:{{q}}:t:{n} msg x state active")).await;
        fixture.run(&format!("ZADD asynq:{{q}}:lease 1 {n}")).await;
    }
    let events = Events::default();
    let server = serve(&fixture, &events).await;
    assert_eq!(events.wait(1).await, ["lost"]);
    // Its own lease goes with its report, a moment later.
    let waiting = async || fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:lease"]).await == 250;
    eventually("only they are left, and wait until the key is mended", waiting).await;
    fixture.run("DEL asynq:{q}:archived").await;
    eventually("they are archived", async || fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:archived"]).await == 250).await;
    server.shutdown().await;
}

#[tokio::test]
async fn due_tasks_whose_group_cannot_be_joined_do_not_hide_those_behind_them() {
    let fixture = Fixture::start().await;
    fixture.enqueue((0..250).map(|n| job(&n.to_string()).group("g").process_in(Duration::from_millis(1)))).await;
    fixture.enqueue([job("behind").process_in(Duration::from_secs(2))]).await;
    fixture.run("SET asynq:{q}:g:g stray").await;
    let events = Events::default();
    let server = serve(&fixture, &events).await;
    assert_eq!(events.wait(1).await, ["behind"]);
    assert_eq!(fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:scheduled"]).await, 250);
    fixture.run("DEL asynq:{q}:g:g").await;
    eventually("they have joined it", async || fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:g:g"]).await == 250).await;
    server.shutdown().await;
}

/// It came back when its lease ended, having spent a retry.
#[tokio::test]
async fn shutdown_requeues_a_take_that_was_not_answered() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::start(fixture.socket()).await;
    let brief = Duration::from_millis(500);
    let options = RedisOptions { connect_timeout: brief, response_timeout: brief, ..RedisOptions::default() };
    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let server =
        queue_worker::Server::new(Redis::lazy(&proxy.url(), options).unwrap(), Router::new(()).route("job", tell))
            .queues([("q", 1)])
            .poll_interval(Duration::from_millis(100));
    let server = server.start().await.unwrap();
    fixture.enqueue([job("first")]).await;
    events.wait(1).await;
    fixture.gone("first").await;
    // Only a take names the list of active tasks.
    proxy.lose_answers_to(Some("asynq:{q}:active"));
    fixture.enqueue([job("a")]).await;
    fixture.in_state("a", TaskState::Active).await;
    proxy.lose_answers_to(None);
    server.shutdown().await;
    let info = fixture.in_state("a", TaskState::Pending).await;
    assert_eq!((info.retried, info.last_error), (0, None));
    let left = fixture.keyspace().await;
    assert!(left.get("{q}:active").is_none() && left.paths_with("lease").is_empty(), "{left}");
    assert_eq!(events.all(), ["first"]);
}

/// Redis may have been away until now: then nobody could say that he works on something.
#[tokio::test]
async fn a_server_that_has_just_started_leaves_a_lease_that_ended_a_moment_ago() {
    let fixture = Fixture::start().await;
    let now = SystemClock.now_secs();
    let recent: Arc<str> = "recent".into();
    fixture.client().enqueue(job("recent").queue("recent")).await.unwrap();
    fixture.broker.dequeue(&recent, 1, &"run".into(), now - 10).await.unwrap();
    fixture.enqueue([job("old")]).await;
    fixture.dequeue_at(now - 1_000, 1).await;
    let server = fixture.server(Router::new(()).route("job", async |_: Job| {}));
    // Queues are looked at in the order of their weights.
    let server = server.queues([("recent", 2), (QUEUE, 1)]).start().await.unwrap();
    fixture.gone("old").await;
    assert_eq!(fixture.inspector().task("recent", "recent").await.unwrap().state, TaskState::Active);
    server.shutdown().await;
}

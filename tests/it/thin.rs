//! Large tasks over a way to Redis that carries little: all of them are worked, and reports do not wait for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_core::{RawTask, RetryPolicy};
use queue_redis::{
    BatchState, Client, Parents, Redis, RedisOptions,
    broker::{Dequeued, MAX_TAKE_BYTES, Taken},
};
use queue_worker::{Failure, FromJob as _, Group, Job, Output, Router, Server, Unhandled};

use crate::support::{Events, Fixture, NOW, PATIENCE, Proxy, eventually, job, with};

fn large(id: &str, bytes: usize) -> RawTask {
    job(id).payload(vec![b'x'; bytes])
}

fn ids(taken: &[Taken]) -> Vec<&str> {
    let tasks = taken.iter().map(|taken| match taken {
        Taken::Task(delivery) => &*delivery.run.id,
        other => panic!("{other:?}"),
    });
    tasks.collect()
}

#[tokio::test]
async fn a_take_ends_with_the_task_that_fills_its_answer() {
    let fixture = Fixture::start().await;
    let half = MAX_TAKE_BYTES / 2;
    fixture.put([large("a", half), large("b", half), large("c", 10), large("d", 3 * MAX_TAKE_BYTES), job("e")]).await;
    let mut rest = vec![vec!["e"], vec!["c", "d"], vec!["a", "b"]];
    while let Some(expected) = rest.pop() {
        let pending: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
        assert_eq!(pending.len(), expected.len() + rest.iter().map(Vec::len).sum::<usize>());
        let Dequeued::Tasks(taken) = fixture.dequeue(25).await else { panic!("paused") };
        assert_eq!(ids(&taken), expected);
        assert_eq!(Taken::fill_an_answer(&taken), expected != ["e"]);
        for id in expected {
            let lease = fixture.cmd::<i64>(&["ZSCORE", "asynq:{q}:lease", id]).await;
            assert_eq!(lease, NOW + 30);
        }
    }
    let Dequeued::Tasks(taken) = fixture.dequeue(25).await else { panic!("paused") };
    assert!(taken.is_empty() && !Taken::fill_an_answer(&taken));
}

/// A server behind a way that carries so many bytes a second, and waits so long for an answer.
async fn serve(
    fixture: &Fixture,
    rate: u64,
    timeout: Duration,
    concurrency: usize,
    events: &Events,
) -> (Proxy, queue_worker::Handle, Arc<Mutex<BTreeMap<&'static str, usize>>>) {
    serve_with(fixture, rate, timeout, concurrency, events, |server| server).await
}

async fn serve_with(
    fixture: &Fixture,
    rate: u64,
    timeout: Duration,
    concurrency: usize,
    events: &Events,
    change: impl FnOnce(Server) -> Server,
) -> (Proxy, queue_worker::Handle, Arc<Mutex<BTreeMap<&'static str, usize>>>) {
    let proxy = Proxy::start(fixture.socket()).await;
    let options = RedisOptions { response_timeout: timeout, ..RedisOptions::default() };
    let redis = Redis::lazy(&proxy.url(), options).unwrap();
    let failed: Arc<Mutex<BTreeMap<&'static str, usize>>> = Arc::default();
    let count = failed.clone();
    redis.on_call(move |call| {
        if call.error.is_some() {
            *count.lock().unwrap().entry(call.operation).or_default() += 1;
        }
    });
    let work = with(events, async |events: Events, job: Job| events.tell(job.id()));
    let server = Server::new(redis, Router::new(()).route("job", work));
    let server = change(server.queues([("q", 1), ("other", 1)]).concurrency(concurrency)).start().await.unwrap();
    proxy.make_thin(rate);
    (proxy, server, failed)
}

/// They were taken one by one with the others, whatever their type; and then those that are too large not at all.
#[tokio::test]
async fn tasks_of_others_are_left_where_they_are_while_large_ones_are_taken_one_by_one() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let client = Client::new(fixture.redis());
    let mine: Vec<String> = (0..3).map(|n| format!("mine-{n}")).collect();
    let theirs: Vec<String> = (0..3).map(|n| format!("theirs-{n}")).collect();
    for (mine, theirs) in mine.iter().zip(&theirs) {
        // One of them takes a second.
        client.enqueue(large(mine, 1_000_000)).await.unwrap();
        client.enqueue(RawTask { task_type: "other".into(), ..job(theirs) }).await.unwrap();
    }
    let timeout = Duration::from_millis(500);
    let (_proxy, server, failed) =
        serve_with(&fixture, 1_000_000, timeout, 10, &events, |server| server.unhandled(Unhandled::Leave)).await;
    eventually("its own are worked", async || fixture.count("processed").await == 3).await;
    assert!(failed.lock().unwrap().contains_key("dequeue"), "a take came too late");
    server.shutdown().await;
    assert_each_once(&events, 3);
    let mut left = fixture.cmd::<Vec<String>>(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    left.reverse();
    assert_eq!(left, theirs);
}

/// Each id once, whatever their order.
fn assert_each_once(events: &Events, tasks: usize) {
    let mut ran = events.all();
    ran.sort();
    ran.dedup();
    assert_eq!((ran.len(), events.count()), (tasks, tasks), "{ran:?}");
}

/// As many as were asked for were taken, timed out and were put back, for ever.
#[tokio::test]
async fn tasks_that_do_not_fit_the_response_timeout_together_are_all_worked() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let client = Client::new(fixture.redis());
    // One of them takes a tenth of a second; all that fit in a take without a bound take two and a half.
    for n in 0..30 {
        client.enqueue(large(&n.to_string(), 300_000)).await.unwrap();
    }
    let (_proxy, server, failed) = serve(&fixture, 3_000_000, Duration::from_secs(2), 25, &events).await;
    eventually("all are worked", async || fixture.count("processed").await == 30).await;
    server.shutdown().await;
    assert_each_once(&events, 30);
    let failed = failed.lock().unwrap().clone();
    assert!(failed.is_empty(), "nothing came too late: {failed:?}");
}

#[tokio::test]
async fn a_task_that_is_larger_than_the_way_carries_within_the_response_timeout_is_worked_and_others_meanwhile() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let client = Client::new(fixture.redis());
    for concurrency in [1, 10] {
        // One of them takes a second and a half.
        for n in 0..3 {
            client.enqueue(large(&format!("{concurrency}-{n}"), 1_500_000)).await.unwrap();
        }
        let (proxy, server, failed) =
            serve(&fixture, 1_000_000, Duration::from_millis(500), concurrency, &events).await;
        let before = events.count();
        eventually("a take was too late", async || failed.lock().unwrap().contains_key("dequeue")).await;
        client.enqueue(job(&format!("{concurrency}-small")).queue("other")).await.unwrap();
        eventually("all are worked", async || events.count() == before + 4).await;
        eventually("and reported", async || fixture.cmd::<u8>(&["EXISTS", "asynq:{q}:active"]).await == 0).await;
        proxy.make_thin(0);
        server.shutdown().await;
    }
    assert_each_once(&events, 8);
    assert_eq!(fixture.count("processed").await, 6);
}

/// The last two of a queue were taken together, put back, and taken together again: in between, nothing was there that could be taken by itself.
#[tokio::test]
async fn the_last_tasks_of_a_queue_that_do_not_fit_the_response_timeout_together_are_worked_one_by_one() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let client = Client::new(fixture.redis());
    // One of them takes a third of a second.
    for id in ["a", "b"] {
        client.enqueue(large(id, 700_000)).await.unwrap();
    }
    let (_proxy, server, failed) = serve(&fixture, 2_000_000, Duration::from_millis(500), 4, &events).await;
    eventually("both are worked", async || fixture.count("processed").await == 2).await;
    server.shutdown().await;
    assert_each_once(&events, 2);
    assert!(failed.lock().unwrap().contains_key("dequeue"), "a take came too late");
}

/// Reading it was given up after one try, and the group given back, again and again.
#[tokio::test]
async fn a_group_whose_tasks_do_not_come_within_the_response_timeout_is_aggregated() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let proxy = Proxy::start(fixture.socket()).await;
    let options = RedisOptions { response_timeout: Duration::from_millis(500), ..RedisOptions::default() };
    let redis = Redis::lazy(&proxy.url(), options).unwrap();
    let join =
        async |_: Group, tasks: Vec<RawTask>| RawTask::new("job").task_id("sum").payload(tasks.len().to_string());
    let router = Router::new(()).aggregate(join);
    let router = router.route("job", with(&events, async |events: Events, job: Job| events.tell(job.id())));
    let server = Server::new(redis, router).queues([("q", 1)]).group_grace_period(Duration::from_secs(1));
    let server = server.start().await.unwrap();
    proxy.make_thin(1_000_000);
    // It takes a second and a half.
    fixture.enqueue([large("a", 1_500_000).group("g")]).await;
    assert_eq!(events.wait(1).await, ["sum"]);
    server.shutdown().await;
}

/// It was said that the task had not ended.
#[tokio::test]
async fn whoever_waits_for_a_result_that_does_not_come_in_time_is_told_so() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::start(fixture.socket()).await;
    let options = RedisOptions { response_timeout: Duration::from_millis(300), ..RedisOptions::default() };
    let client = Client::new(Redis::lazy(&proxy.url(), options).unwrap());
    let handle = client.enqueue_to_wait(job("a")).await.unwrap();
    proxy.make_thin(1_000_000);
    let router = Router::new(()).route("job", async |_: Job| Output("x".repeat(3_000_000)));
    let server = fixture.server(router).start().await.unwrap();
    let error = handle.wait(Duration::from_secs(4)).await.unwrap_err();
    assert!(error.to_string().contains("it has ended, and"), "{error}");
    server.shutdown().await;
}

/// It was archived, although its handler had never run.
#[tokio::test]
async fn results_of_parents_that_do_not_come_in_time_cost_no_retry() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let proxy = Proxy::start(fixture.socket()).await;
    let options = RedisOptions { response_timeout: Duration::from_millis(500), ..RedisOptions::default() };
    let redis = Redis::lazy(&proxy.url(), options).unwrap();
    let router = Router::new(()).route("make", async |_: Job| Output("x".repeat(3_000_000)));
    let read = async |events: Events, job: Job| {
        Parents::from_job(&job, &()).await?;
        events.tell("used");
        Ok::<_, Failure>(())
    };
    let router = router.route("use", with(&events, read));
    let server = Server::new(redis, router).queues([("q", 1)]).start().await.unwrap();
    proxy.make_thin(1_000_000);
    let task =
        |task_type| RawTask::new(task_type).queue("q").max_retry(0).backoff(RetryPolicy::Fixed(Duration::from_secs(1)));
    let flow = Client::new(fixture.redis()).workflow().task("a", task("make")).task("b", task("use")).after(["a"]);
    let flow = flow.start().await.unwrap();
    eventually("it has not been read", async || fixture.cmd::<i64>(&["ZCARD", "asynq:{q}:retry"]).await == 1).await;
    proxy.make_thin(0);
    assert_eq!(events.wait(1).await, ["used"]);
    assert_eq!(flow.wait(PATIENCE).await.unwrap().state, BatchState::Succeeded);
    server.shutdown().await;
}

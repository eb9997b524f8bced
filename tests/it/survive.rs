//! Redis forgets, hangs, dies and comes back; the work goes on, and every task runs once.

use std::collections::BTreeMap;
use std::time::Duration;

use queue_core::RawTask;
use queue_redis::embedded::RedisServer;
use queue_redis::{Client, Redis, RedisOptions};
use queue_worker::{Handle, Job, Router, Server};

use crate::support::{Events, Hanging, RedisProcess, eventually, plain_connection, with};

const TASKS: usize = 400;

/// A server that tells the ids of its tasks, each of which takes a few milliseconds.
async fn serve(redis: Redis, events: &Events) -> Handle {
    let work = with(events, async |events: Events, job: Job| {
        events.tell(job.id());
        tokio::time::sleep(Duration::from_millis(3)).await;
    });
    Server::new(redis, Router::new(()).route("job", work)).concurrency(5).start().await.unwrap()
}

fn numbered(numbers: std::ops::Range<usize>) -> impl Iterator<Item = RawTask> {
    numbers.map(|n| RawTask::new("job").task_id(n.to_string()))
}

async fn enqueue(client: &Client, tasks: impl Iterator<Item = RawTask>) {
    for outcome in client.enqueue_many(tasks).await {
        outcome.unwrap();
    }
}

/// Sends a command outside of all that is tested.
async fn command<T: redis::FromRedisValue>(url: &str, words: &str) -> T {
    let mut connection = plain_connection(url).await;
    let mut cmd = redis::Cmd::new();
    words.split(' ').for_each(|word| {
        cmd.arg(word);
    });
    cmd.query_async(&mut connection).await.unwrap()
}

/// Waits until all tasks have ended; each has run once, and nothing of them is left.
async fn assert_each_ran_once(url: &str, events: &Events, tasks: usize) {
    let done = async || command::<Option<usize>>(url, "GET asynq:{default}:processed").await.unwrap_or(0);
    eventually(format!("{tasks} tasks are done"), async || done().await >= tasks).await;
    let mut runs = BTreeMap::<String, usize>::new();
    for id in events.all() {
        *runs.entry(id).or_default() += 1;
    }
    let odd: Vec<_> = runs.iter().filter(|(_, count)| **count != 1).collect();
    assert!(odd.is_empty(), "tasks ran more than once: {odd:?}");
    assert_eq!(runs.len(), tasks);
    assert_eq!(done().await, tasks);
    let left: Vec<String> = command(url, "KEYS asynq:{default}:*").await;
    let left: Vec<_> = left.iter().filter(|key| !key.contains(":processed")).collect();
    assert!(left.is_empty(), "left in Redis: {left:?}");
}

#[tokio::test]
async fn each_task_runs_once_although_redis_forgets_its_scripts() {
    let redis = RedisServer::start().await.unwrap();
    let events = Events::default();
    let client = Client::new(redis.redis());
    let server = serve(redis.redis(), &events).await;
    for n in 0..TASKS / 10 {
        command::<()>(redis.url(), "SCRIPT FLUSH").await;
        enqueue(&client, numbered(10 * n..10 * n + 10)).await;
    }
    assert_each_ran_once(redis.url(), &events, TASKS).await;
    server.shutdown().await;
}

#[tokio::test]
async fn each_task_runs_once_although_connections_are_cut_again_and_again() {
    let redis = RedisServer::start().await.unwrap();
    let events = Events::default();
    let client = Client::new(redis.redis());
    let server = serve(redis.redis(), &events).await;
    for n in 0..TASKS / 20 {
        enqueue(&client, numbered(20 * n..20 * n + 20)).await;
        events.wait(10 * n).await;
        for kind in ["normal", "pubsub"] {
            command::<u64>(redis.url(), &format!("CLIENT KILL TYPE {kind} SKIPME yes")).await;
        }
    }
    assert_each_ran_once(redis.url(), &events, TASKS).await;
    // The ear is open again, too.
    enqueue(&client, [RawTask::new("job").task_id("last")].into_iter()).await;
    eventually("the last task has run", async || events.count() == TASKS + 1).await;
    server.shutdown().await;
}

#[tokio::test]
async fn each_task_runs_once_although_redis_crashes() {
    let mut redis = RedisProcess::start(&[]).await;
    let url = redis.url();
    let events = Events::default();
    let client = Client::connect(&url).await.unwrap();
    enqueue(&client, numbered(0..TASKS)).await;
    let server = serve(Redis::connect(&url).await.unwrap(), &events).await;
    for crash in 1..=3 {
        events.wait(crash * TASKS / 4).await;
        redis.kill();
        redis.start_again().await;
    }
    assert_each_ran_once(&url, &events, TASKS).await;
    enqueue(&client, numbered(TASKS..TASKS + 1)).await;
    assert_each_ran_once(&url, &events, TASKS + 1).await;
    server.shutdown().await;
}

#[tokio::test]
async fn each_task_runs_once_although_redis_hangs_for_longer_than_anybody_waits() {
    let redis = RedisServer::start().await.unwrap();
    let brief = Duration::from_millis(150);
    let options = RedisOptions { connect_timeout: brief, response_timeout: brief, ..RedisOptions::default() };
    let handle = Redis::lazy(redis.url(), options).unwrap();
    let (events, client) = (Events::default(), Client::new(handle.clone()));
    enqueue(&client, numbered(0..TASKS)).await;
    let server = serve(handle, &events).await;
    for hang in 1..=2 {
        events.wait(hang * TASKS / 3).await;
        let hanging = Hanging::begin(redis.url()).await;
        let refused = client.enqueue(RawTask::new("job").task_id("never-answered").queue("other")).await.unwrap_err();
        drop(hanging);
        let text = refused.to_string();
        assert!(text.contains("did not answer within 150ms") || text.contains("cannot reach Redis"), "{text}");
    }
    assert_each_ran_once(redis.url(), &events, TASKS).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_polls_where_redis_refuses_client_tracking() {
    let redis = RedisServer::start().await.unwrap();
    command::<()>(redis.url(), "ACL SETUSER default -client +client|list").await;
    let (events, client) = (Events::default(), Client::new(redis.redis()));
    let hang = with(&events, async |events: Events, job: Job| {
        events.tell(job.id());
        job.cancellation().cancelled().await;
        events.tell(format!("{:?}", job.cancel_reason()));
    });
    let server = Server::new(redis.redis(), Router::new(()).route("job", hang));
    let server = server.poll_interval(Duration::from_millis(50)).start().await.unwrap();
    enqueue(&client, numbered(0..1)).await;
    events.wait(1).await;
    assert_eq!(queue_redis::broker::Broker::new(redis.redis()).cancel("0").await.unwrap(), 1);
    assert_eq!(events.wait(2).await[1], "Some(Canceled)");
    server.shutdown().await;
}

/// asynq's servers ask again at once, as fast as the network allows (W11).
#[tokio::test]
async fn a_queue_that_redis_refuses_is_left_alone_and_the_others_are_served() {
    let redis = RedisServer::start().await.unwrap();
    let (url, events, client) = (redis.url(), Events::default(), Client::new(redis.redis()));
    for key in ["pending", "scheduled", "retry", "lease", "completed", "archived"] {
        command::<()>(url, &format!("SET asynq:{{broken}}:{key} stray")).await;
    }
    command::<()>(url, "CONFIG RESETSTAT").await;
    let work = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let server = Server::new(redis.redis(), Router::new(()).route("job", work)).queues([("broken", 9), ("default", 1)]);
    let server = server.start().await.unwrap();
    // A task of a worker that is gone, one that has expired, one that is due, and one to run now.
    enqueue(&client, [RawTask::new("job").task_id("due").process_in(Duration::from_secs(1))].into_iter()).await;
    enqueue(&client, numbered(0..1)).await;
    command::<()>(url, "HSET asynq:{default}:t:old msg m state completed").await;
    command::<()>(url, "ZADD asynq:{default}:completed 1 old").await;
    let mut ran = events.wait(2).await;
    ran.sort();
    assert_eq!(ran, ["0", "due"]);
    let expired = async || command::<u8>(url, "EXISTS asynq:{default}:t:old").await == 0;
    eventually("the expired task is deleted", expired).await;
    let stats: String = command(url, "INFO errorstats").await;
    let errors = stats.lines().find_map(|line| line.strip_prefix("errorstat_WRONGTYPE:count=")).unwrap();
    assert!(errors.parse::<u32>().unwrap() < 200, "the server asked {errors} times in vain");
    command::<()>(url, "DEL asynq:{broken}:pending asynq:{broken}:lease").await;
    enqueue(&client, [RawTask::new("job").task_id("healed").queue("broken")].into_iter()).await;
    assert_eq!(events.wait(3).await[2], "healed");
    server.shutdown().await;
}

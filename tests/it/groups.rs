//! Aggregation where several do it at the same time, where somebody dies, and where Redis is cut off: each task
//! is in exactly one aggregate.

use std::collections::BTreeMap;
use std::time::Duration;

use queue_core::{Clock as _, RawTask, SystemClock, TaskMessage};
use queue_redis::broker::{Aggregated, GroupRules};
use queue_worker::{Group, Handle, Job, Router, Server};

use crate::support::{Fixture, QUEUE, RULES, WorkerProcess, eventually, job};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const GROUPS: usize = 10;

/// A server with connections of its own, that joins payloads into tasks that are to wait.
async fn aggregator(fixture: &Fixture, max_size: usize) -> Handle {
    let join = async |_: Group, tasks: Vec<RawTask>| {
        let payloads: Vec<String> =
            tasks.iter().map(|task| String::from_utf8_lossy(task.payload.as_deref().unwrap()).into_owned()).collect();
        RawTask::new("ok").payload(payloads.join(",")).process_in(HOUR)
    };
    let router = Router::new(()).aggregate(join).fallback(async |_: Job| {});
    let server = Server::new(fixture.another_redis(), router).queues([(QUEUE, 1)]).group_grace_period(SECOND);
    server.group_max_size(max_size).start().await.unwrap()
}

/// Tasks whose ids are their payloads, spread over the groups.
fn tasks(numbers: std::ops::Range<usize>) -> impl Iterator<Item = RawTask> {
    numbers.map(|n| job(&n.to_string()).payload(n.to_string()).group(format!("g{}", n % GROUPS)))
}

/// Waits until nothing is left but aggregates.
async fn all_aggregated(fixture: &Fixture) {
    eventually("all tasks are aggregated", async || {
        let keys: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:*"]).await;
        let waiting: u64 = fixture.cmd(&["ZCARD", "asynq:{q}:scheduled"]).await;
        let hashes = keys.iter().filter(|key| key.contains("}:t:")).count();
        let groups = keys.iter().any(|key| key.contains("}:g:") || key.contains(":x:"));
        !groups && hashes as u64 == waiting
    })
    .await;
}

/// How often each payload is in an aggregate.
async fn counts(fixture: &Fixture) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    let scheduled: Vec<String> = fixture.cmd(&["ZRANGE", "asynq:{q}:scheduled", "0", "-1"]).await;
    for id in scheduled {
        // Not through the inspector: its connections may have been cut, too.
        let raw: Vec<u8> = fixture.cmd(&["HGET", &format!("asynq:{{q}}:t:{id}"), "msg"]).await;
        let message = TaskMessage::from_bytes(raw.into()).unwrap();
        for payload in std::str::from_utf8(&message.payload).unwrap().split(',') {
            *counts.entry(payload.parse().unwrap()).or_default() += 1;
        }
    }
    counts
}

async fn each_once(fixture: &Fixture, total: usize) {
    all_aggregated(fixture).await;
    assert_eq!(counts(fixture).await, (0..total).map(|n| (n, 1)).collect());
    let left = fixture.keyspace().await;
    assert!(!left.to_string().contains("aggregat"), "{left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_servers_aggregate_each_task_once() {
    let fixture = Fixture::start().await;
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(aggregator(&fixture, 7).await);
    }
    for from in [0, 200, 400, 600] {
        fixture.enqueue(tasks(from..from + 200)).await;
    }
    each_once(&fixture, 800).await;
    for server in servers {
        server.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregators_whose_connections_are_cut_aggregate_each_task_once() {
    let fixture = Fixture::start().await;
    fixture.enqueue(tasks(0..1_500)).await;
    let (first, second) = (aggregator(&fixture, 5).await, aggregator(&fixture, 5).await);
    let progress = async || fixture.cmd::<u64>(&["ZCARD", "asynq:{q}:scheduled"]).await;
    for cut in 1..=10 {
        eventually("they go on", async || progress().await > cut * 10).await;
        fixture.run("CLIENT KILL TYPE normal SKIPME yes").await;
        fixture.run("CLIENT KILL TYPE pubsub SKIPME yes").await;
    }
    each_once(&fixture, 1_500).await;
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregators_that_are_killed_lose_nothing_and_double_nothing() {
    let fixture = Fixture::start().await;
    fixture.enqueue(tasks(0..6_000)).await;
    for _ in 0..3 {
        // More than 100 in a set, so that a kill can also hit the deletion.
        let options = ["--group-grace-secs", "1", "--group-max-size", "120", "--aggregate-in-secs", "3600"];
        let mut worker = WorkerProcess::start_with(fixture.url(), 1, &options).await;
        worker.events.wait(5).await;
        worker.kill();
    }
    let left: usize = fixture.cmd(&["ZCARD", "asynq:{q}:scheduled"]).await;
    assert!(left < 50, "the workers were killed too late");
    lose_sets(&fixture).await;
    let server = aggregator(&fixture, 0).await;
    each_once(&fixture, 6_000).await;
    server.shutdown().await;
}

/// Lets all sets look as they do after their deadline.
async fn lose_sets(fixture: &Fixture) {
    let sets: Vec<String> = fixture.cmd(&["ZRANGE", "asynq:{q}:aggregation_sets", "0", "-1"]).await;
    let past = (SystemClock.now_secs() - 1).to_string();
    for set in sets {
        fixture.run(&format!("ZADD asynq:{{q}}:aggregation_sets XX {past} {set}")).await;
    }
}

/// Whoever staged the tasks, or also made the new one, died before it was stored.
#[tokio::test]
async fn another_server_aggregates_the_set_of_a_server_that_died() {
    let fixture = Fixture::start().await;
    fixture.enqueue(tasks(0..30)).await;
    let now = SystemClock.now_secs();
    for group in 0..GROUPS {
        let staged =
            fixture.broker.stage(&QUEUE.into(), &format!("g{group}"), &format!("s{group}"), RULES, now + 60, now).await;
        assert_eq!(staged.unwrap().unwrap().count, 3);
    }
    let server = aggregator(&fixture, 0).await;
    each_once(&fixture, 30).await;
    server.shutdown().await;
}

/// A part of a large set is back in the group, the rest is still listed.
#[tokio::test]
async fn reclaim_finishes_a_set_that_was_reclaimed_by_half() {
    let fixture = Fixture::start().await;
    fixture.enqueue((0..150).map(|n| job(&n.to_string()).payload(n.to_string()).group("g"))).await;
    let now = SystemClock.now_secs();
    let mut set = fixture.broker.stage(&QUEUE.into(), "g", "s1", RULES, now + 60, now).await.unwrap().unwrap();
    let all = fixture.broker.read_set(&mut set).await.unwrap().unwrap();
    for id in 0..100 {
        fixture.run(&format!("ZADD asynq:{{q}}:g:g {now} {id}")).await;
        fixture.run(&format!("ZREM asynq:{{q}}:g:g:s1 {id}")).await;
    }
    let digest = fixture.compose(RawTask::new("ok").queue(QUEUE));
    let late = fixture.broker.aggregate(&set, &all, Some(&digest), SystemClock.now_ns()).await.unwrap();
    assert_eq!(late, Aggregated::Lost);
    let server = aggregator(&fixture, 0).await;
    each_once(&fixture, 150).await;
    server.shutdown().await;
}

#[tokio::test]
async fn the_rest_of_a_large_set_is_deleted_by_another() {
    let fixture = Fixture::start().await;
    fixture.enqueue((0..150).map(|n| job(&n.to_string()).payload(n.to_string()).group("g"))).await;
    let now = SystemClock.now_secs();
    let rules = GroupRules { max_size: 150, ..RULES };
    let mut set = fixture.broker.stage(&QUEUE.into(), "g", "s1", rules, now, now + 120).await.unwrap().unwrap();
    let all = fixture.broker.read_set(&mut set).await.unwrap().unwrap();
    let payload = (0..150).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let digest = fixture.compose(RawTask::new("ok").queue(QUEUE).payload(payload).process_in(HOUR));
    let done = fixture.broker.aggregate(&set, &all, Some(&digest), SystemClock.now_ns()).await.unwrap();
    assert_eq!(done, Aggregated::Done);
    assert_eq!(fixture.cmd::<u64>(&["ZCARD", "asynq:{q}:x:aggregated:s1"]).await, 150);
    let server = fixture.server(Router::new(())).start().await.unwrap();
    each_once(&fixture, 150).await;
    server.shutdown().await;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use queue_core::RawTask;
use queue_core::keys::QueueKeys;
use queue_redis::{Client, RedisOptions};

use super::{Counts, connect, pour, queues, serve};
use crate::support::{Cluster, Hanging, eventually, wait_for};

/// Replication of Redis is not awaited by a write, so that a master that dies may take the last of them with it. With
/// `WAIT` between the load and its death nothing is lost by Redis, and nothing may be lost by us.
#[tokio::test]
async fn a_master_that_dies_under_load_loses_nothing_that_redis_kept() {
    queue_redis::log_to_stderr(false);
    let mut cluster = Cluster::start().await;
    let names = queues();
    let patience = Duration::from_secs(1);
    let client = Client::new(connect(&cluster, patience));
    // Enough to be under way when it happens.
    let waiting = (0..2_000).map(|n| RawTask::new("job").queue(names[0].as_str()).task_id(format!("waiting-{n}")));
    assert!(client.enqueue_many(waiting).await.iter().all(Result::is_ok));
    let replicated: i64 = cluster.nodes[0].cmd(&["WAIT", "1", "10000"]).await;
    assert_eq!(replicated, 1);

    // It knows who has the queue, and has never talked to that one.
    let stranger = Client::new(connect(&cluster, patience));
    stranger.enqueue(RawTask::new("job").queue(names[1].as_str()).task_id("of-a-stranger")).await.unwrap();

    let counts = Counts::default();
    let server = serve(connect(&cluster, patience), &counts, &names).await;
    let stop = Arc::new(AtomicBool::new(false));
    let pouring = tokio::spawn(pour(client.clone(), names[1..].to_vec(), stop.clone()));
    eventually("it works", async || counts.distinct() > 100).await;
    cluster.nodes[0].kill();
    // The other masters' queues go on meanwhile.
    let before = counts.distinct();
    eventually("the other queues go on", async || counts.distinct() > before + 50).await;
    let key = QueueKeys::new(&names[0]).pending();
    wait_for("its replica is promoted", async || (cluster.master_of(&key).await == 3).then_some(())).await;
    cluster.all_name(&key, 3).await;
    stranger.enqueue(RawTask::new("job").queue(names[0].as_str())).await.expect("it looks for the new master");
    client_is_served(&client, &names[0]).await;
    stop.store(true, Ordering::Relaxed);
    let poured = pouring.await.unwrap();
    eventually("all that was enqueued is worked", async || counts.distinct() > 2_000 + 2 + poured.len()).await;
    for id in &poured {
        assert_eq!(counts.of(id), 1, "{id}: its master was well all the time");
    }
    server.shutdown().await;

    // The old master comes back, as a replica.
    assert!(cluster.nodes[0].start_again().await);
    cluster.all_agree().await;
    client_is_served(&client, &names[0]).await;
}

async fn client_is_served(client: &Client, queue: &str) {
    eventually("the promoted master serves", async || client.enqueue(RawTask::new("job").queue(queue)).await.is_ok())
        .await;
}

/// It paused between looks at all queues, ever longer, because of the one that was away.
#[tokio::test]
async fn queues_of_other_masters_are_worked_at_once_while_one_is_gone_for_good() {
    queue_redis::log_to_stderr(false);
    let mut cluster = Cluster::start().await;
    for node in &cluster.nodes {
        node.cmd::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    let names = queues();
    let counts = Counts::default();
    let server = serve(connect(&cluster, Duration::from_secs(1)), &counts, &names).await;
    let client = Client::new(connect(&cluster, Duration::from_secs(1)));
    for name in &names[1..] {
        client.enqueue(RawTask::new("job").queue(name.as_str())).await.unwrap();
    }
    eventually("it works", async || counts.distinct() == 2).await;
    cluster.nodes[3].kill();
    cluster.nodes[0].kill();
    client.redis().ping().await.expect("any of the others can answer");
    client
        .enqueue(RawTask::new("job").queue(names[1].as_str()).task_id("due").process_in(Duration::from_secs(1)))
        .await
        .unwrap();
    eventually("what is due is worked", async || counts.of("due") > 0).await;
    // So many, one after the other, that a pause after each would use up the patience.
    let one_by_one = async {
        for n in 0..100 {
            let (id, queue) = (format!("after-{n}"), names[1 + n % 2].as_str());
            eventually("the task is accepted", async || {
                let task = RawTask::new("job").queue(queue).task_id(id.as_str());
                !matches!(client.enqueue(task).await, Err(queue_redis::EnqueueError::Redis(_)))
            })
            .await;
            eventually("the task is worked", async || counts.of(&id) > 0).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), one_by_one).await.expect("a hundred tasks are worked");
    server.shutdown().await;
}

/// That node tells the schedulers' time, and has the list of queues.
#[tokio::test]
async fn an_entry_of_another_master_ticks_and_can_be_changed_while_one_is_gone_for_good() {
    queue_redis::log_to_stderr(false);
    let mut cluster = Cluster::start().await;
    for node in &cluster.nodes {
        node.cmd::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    let [_, queue, _] = queues();
    let entry = |task_type: &str| {
        let task = RawTask::new(task_type).queue(queue.as_str());
        queue_scheduler::Entry::new("@every 1s", task).name("e")
    };
    let scheduler = queue_scheduler::Scheduler::new(connect(&cluster, Duration::from_secs(1)));
    scheduler.register(entry("before")).unwrap();
    scheduler.start().await.unwrap();
    let inspector = queue_admin::Inspector::new(connect(&cluster, Duration::from_secs(1)));
    let has = async |task_type: &str| {
        let tasks = inspector.tasks(&queue, queue_core::TaskState::Pending, queue_admin::Page::default()).await;
        tasks.is_ok_and(|tasks| tasks.iter().any(|task| task.task_type == task_type))
    };
    eventually("it ticks", async || has("before").await).await;
    cluster.nodes[3].kill();
    cluster.nodes[0].kill();
    scheduler.update(entry("after")).unwrap();
    eventually("it ticks as it is now", async || {
        let keys = QueueKeys::new(&queue);
        let ids: Vec<String> = cluster.nodes[1].cmd(&["LRANGE", &keys.pending(), "0", "0"]).await;
        let newest: Vec<u8> = cluster.nodes[1].cmd(&["HGET", &keys.task(&ids[0]), "msg"]).await;
        newest.windows(5).any(|part| part == b"after")
    })
    .await;
    scheduler.shutdown().await;
}

/// It does not refuse, it does not answer: the connections to it stay open.
#[tokio::test]
async fn a_master_that_hangs_is_left_for_its_replica() {
    queue_redis::log_to_stderr(false);
    let cluster = Cluster::start().await;
    let names = queues();
    let counts = Counts::default();
    let server = serve(connect(&cluster, Duration::from_secs(1)), &counts, &names).await;
    let client = Client::new(connect(&cluster, Duration::from_secs(1)));
    for name in &names {
        client.enqueue(RawTask::new("job").queue(name.as_str()).task_id(format!("before-{name}"))).await.unwrap();
    }
    eventually("it works", async || counts.distinct() == 3).await;
    let _hanging = Hanging::process(cluster.nodes[1].id());
    for name in &names {
        let id = format!("after-{name}");
        eventually("the task is accepted", async || {
            let task = RawTask::new("job").queue(name.as_str()).task_id(id.as_str());
            !matches!(client.enqueue(task).await, Err(queue_redis::EnqueueError::Redis(_)))
        })
        .await;
    }
    eventually("all queues are worked", async || names.iter().all(|name| counts.of(&format!("after-{name}")) > 0))
        .await;
    server.shutdown().await;
}

/// Nobody knew of a time in which it need not be tried: each call took as long as it takes to give up on a connection.
#[tokio::test]
async fn a_node_with_the_list_of_queues_that_hangs_holds_up_the_queues_of_others_only_now_and_then() {
    queue_redis::log_to_stderr(false);
    let mut cluster = Cluster::start().await;
    for node in &cluster.nodes {
        node.cmd::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    let with_list = cluster.master_of("asynq:queues").await;
    let queue = &queues()[(with_list + 1) % 3];
    let client = Client::new(connect(&cluster, RedisOptions::default().connect_timeout));
    client.enqueue(RawTask::new("job").queue(queue.as_str())).await.unwrap();
    cluster.nodes[with_list + 3].kill();
    cluster.nodes[with_list].cmd::<()>(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    let _hanging = Hanging::process(cluster.nodes[with_list].id());
    let mut look = redis::cmd("EXISTS");
    client.redis().query::<bool>("EXISTS", look.arg("asynq:queues")).await.unwrap_err();
    let tries = Arc::new(AtomicUsize::new(0));
    let seen = tries.clone();
    client.redis().on_call(move |call| {
        if call.operation == "SADD" {
            seen.fetch_add(1, Ordering::SeqCst);
        }
    });
    for _ in 0..3 {
        client.enqueue(RawTask::new("job").queue(queue.as_str())).await.unwrap();
    }
    let tries = tries.load(Ordering::SeqCst);
    assert!((1..3).contains(&tries), "{tries}");
}

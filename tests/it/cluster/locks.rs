//! Tasks that name a uniqueness lock of another queue, because somebody has brought them from there.

use std::time::Duration;

use queue_admin::Inspector;
use queue_core::TaskMessage;
use queue_redis::Redis;
use queue_worker::Server;

use super::Counts;
use crate::doctor::problems;
use crate::support::{Process, eventually, plain_connection};

/// In another slot than the queue `q`.
const LOCK: &str = "asynq:{old}:unique:job:abc";

/// Tasks of the queue `q`, of which the middle one has the lock.
async fn fill(node: &Process, tasks: usize, retention: i64) {
    let mut connection = plain_connection(format!("redis://127.0.0.1:{}", node.port)).await;
    let mut fill = redis::pipe();
    for n in 0..tasks {
        let unique_key = if n == tasks / 2 { LOCK.to_owned() } else { String::new() };
        let (id, task_type, queue) = (format!("{retention}-{n}"), "job".to_owned(), "q".to_owned());
        let message =
            TaskMessage { id: id.clone(), r#type: task_type, queue, unique_key, retention, ..Default::default() };
        let task = format!("asynq:{{q}}:t:{id}");
        fill.cmd("HSET").arg(&task).arg("msg").arg(&message.to_bytes()[..]).arg("state").arg("pending").ignore();
        if n == tasks / 2 {
            fill.cmd("HSET").arg(&task).arg("unique_key").arg(LOCK).ignore();
        }
        fill.cmd("LPUSH").arg("asynq:{q}:pending").arg(&id).ignore();
    }
    fill.query_async::<()>(&mut connection).await.unwrap();
    node.cmd::<()>(&["SET", LOCK, &format!("{retention}-{}", tasks / 2)]).await;
    node.cmd::<()>(&["SADD", "asynq:queues", "q"]).await;
}

/// Redis refused all reports that went with its own, again and again, and nothing more was taken from the queue.
#[tokio::test]
async fn a_task_with_a_lock_in_another_slot_is_worked_like_the_others() {
    queue_redis::log_to_stderr(false);
    let node = Process::cluster_of_one().await;
    let redis = Redis::connect(&format!("redis+cluster://127.0.0.1:{}", node.port)).await.unwrap();
    let inspector = Inspector::new(redis.clone());
    for (tasks, retention) in [(60, 0), (60, 600), (1, 0), (1, 600)] {
        fill(&node, tasks, retention).await;
        let told = format!("lock-elsewhere {retention}-{}", tasks / 2);
        let problems = problems(&inspector).await;
        assert!(problems.contains(&told), "{problems:?}");
        let counts = Counts::default();
        let server = Server::new(redis.clone(), counts.router()).queues([("q", 1)]).concurrency(30);
        let server = server.start().await.unwrap();
        let left = async || {
            let queue = inspector.queue("q").await.unwrap();
            queue.size() - queue.completed
        };
        eventually("all tasks are done", async || left().await == 0).await;
        server.shutdown().await;
        assert_eq!(counts.distinct(), tasks, "each has run");
        assert_eq!(node.cmd::<u8>(&["EXISTS", LOCK]).await, 1, "the lock is not this queue's to free");
        // A completed one is sound but for the lock.
        for id in node.cmd::<Vec<String>>(&["ZRANGE", "asynq:{q}:completed", "0", "-1"]).await {
            inspector.delete_task("q", &id).await.unwrap();
        }
    }
    tokio::time::timeout(Duration::from_secs(60), inspector.remove_queue("q", false)).await.unwrap().unwrap();
}

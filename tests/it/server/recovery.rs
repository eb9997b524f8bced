//! Many tasks whose worker went silent at once.

use std::time::Duration;

use queue_core::{Clock as _, SystemClock};
use queue_worker::{Job, Router};

use crate::support::{Fixture, eventually, job};

async fn hang(job: Job) {
    job.cancellation().cancelled().await;
}

/// Searched for one by one in the list of active tasks, 100,000 of them kept Redis busy for minutes.
#[tokio::test]
async fn thousands_of_expired_leases_are_recovered_behind_tasks_that_others_work_on() {
    const EXPIRED: usize = 1_500;
    let fixture = Fixture::start().await;
    let now = SystemClock.now_secs();
    let task = |n: usize| job(&n.to_string()).max_retry(0);
    fixture.enqueue((0..EXPIRED + 200).map(task)).await;
    // Those who were first in the list are at work.
    for (calls, expires) in [(2, now + 600), (EXPIRED / 100, now - 300)] {
        for _ in 0..calls {
            fixture.broker.dequeue(&"q".into(), 100, &"other:1:x:1".into(), expires).await.unwrap();
        }
    }
    let server = fixture.server(Router::new(()).route("job", hang)).start().await.unwrap();
    let archived = async || fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:archived"]).await == EXPIRED;
    eventually("all are in the archive", archived).await;
    let active: Vec<usize> = fixture.cmd(&["LRANGE", "asynq:{q}:active", "0", "-1"]).await;
    assert_eq!(active, (0..200).rev().collect::<Vec<_>>());
    assert_eq!(fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:lease"]).await, 200);
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (1_500, 1_500));
    server.shutdown().await;
}

/// Two servers at once: each task is recovered once, and none waits for the next round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_recover_the_same_tasks_get_in_nobodys_way() {
    let fixture = Fixture::start().await;
    fixture.enqueue((0..1_200).map(|n| job(&n.to_string()).max_retry(0))).await;
    let long_ago = SystemClock.now_secs() - 300;
    for _ in 0..12 {
        fixture.broker.dequeue(&"q".into(), 100, &"other:1:x:1".into(), long_ago).await.unwrap();
    }
    let mut servers = Vec::new();
    for _ in 0..3 {
        let server = queue_worker::Server::new(fixture.another_redis(), Router::new(()).route("job", hang));
        servers.push(server.queues([("q", 1)]).shutdown_timeout(Duration::ZERO).start());
    }
    let servers = futures_util::future::join_all(servers).await;
    eventually("all are in the archive", async || {
        fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:archived"]).await == 1_200
    })
    .await;
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (1_200, 1_200));
    assert_eq!(fixture.cmd::<usize>(&["EXISTS", "asynq:{q}:active", "asynq:{q}:lease"]).await, 0);
    for server in servers {
        server.unwrap().shutdown().await;
    }
}

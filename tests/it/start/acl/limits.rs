//! Limits by users who have the rights of `docs/deployment.md` for them and no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use queue_admin::Inspector;
use queue_core::limit::{LaneChange, Limit, LimitKey};
use queue_redis::{Redis, RedisOptions};
use queue_worker::{Failure, Job, Router, Server};

use super::{DOCUMENT, documented, refused, with_user};
use crate::support::{Fixture, QUEUE, eventually, job, with};

/// Gives a user the rights in the further line that has this one.
async fn with_more(fixture: &Fixture, user: &str, right: &str) {
    let begin = format!("ACL SETUSER {user} +");
    let mut lines = DOCUMENT.lines().filter(|line| line.starts_with(&begin) && line.contains(right));
    fixture.run(lines.next().expect("the document has the line")).await;
}

#[tokio::test]
async fn users_with_the_documented_rights_of_limits_are_refused_nothing() {
    let (fixture, redis) = with_user(&documented("inspector")).await;
    with_more(&fixture, "inspector", "+zlexcount").await;
    with_more(&fixture, "inspector", "+srandmember").await;
    let _: redis::Value = fixture.cmd(&documented("worker")).await;
    with_more(&fixture, "worker", "+zlexcount").await;
    let inspector = Inspector::new(redis);
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    let limit = Limit::new("tenant", LimitKey::header("tenant")).concurrency(1).rate(1_000, Duration::from_secs(1));
    inspector.set_limit(QUEUE, limit).await.unwrap();
    inspector.set_limit(QUEUE, Limit::new("all", LimitKey::Queue).concurrency(50)).await.unwrap();
    let was_busy = Arc::<AtomicBool>::default();
    let refuse_once = with(&was_busy, async |was_busy: Arc<AtomicBool>, job: Job| {
        let refuses = job.id() == "busy" && !was_busy.swap(true, Ordering::Relaxed);
        if refuses { Err(Failure::too_many("tenant", Duration::from_millis(20))) } else { Ok(()) }
    });
    let url = format!("{}?user=worker&pass=secret", fixture.url());
    let worker = Redis::lazy(&url, RedisOptions::default()).unwrap();
    let router = Router::new(()).fallback(refuse_once);
    let server = Server::new(worker, router).queues([(QUEUE, 1)]).reconcile_interval(Duration::ZERO);
    let server = server.start().await.unwrap();
    let tasks = (0..40).map(|n| job(&n.to_string()).header("tenant", "acme"));
    fixture.enqueue(tasks.chain([job("busy").header("tenant", "beta")])).await;
    eventually("all are done", async || fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}:t:*"]).await.is_empty()).await;
    server.shutdown().await;

    fixture.enqueue(["a", "b"].map(|id| job(id).header("tenant", "acme"))).await;
    let mut change = LaneChange::default();
    change.paused = true;
    inspector.change_lane(QUEUE, "tenant", "acme", Some(&change)).await.unwrap();
    fixture.dequeue(5).await;
    assert_eq!(inspector.limits(QUEUE).await.unwrap()[0].waiting, 2);
    inspector.explain(QUEUE, "a").await.unwrap();
    inspector.servers_unaware_of_limits().await.unwrap();
    inspector.delete_task(QUEUE, "a").await.unwrap();
    let mut examination = inspector.doctor().examine();
    while let Some(findings) = examination.next().await.unwrap() {
        for finding in findings {
            inspector.doctor().mend(&finding, &[]).await.unwrap();
        }
    }
    inspector.remove_limit(QUEUE, "all").await.unwrap();
    assert_eq!(inspector.remove_limits(QUEUE).await.unwrap(), 1);
    for user in ["worker", "inspector"] {
        let refused = refused(&fixture, user).await;
        let refused: Vec<_> =
            refused.iter().filter(|command| !["info", "client"].contains(&command.as_str())).collect();
        assert!(refused.is_empty(), "the documented {user} may not {refused:?}");
    }
}

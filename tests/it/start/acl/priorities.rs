//! A server with priorities, or a name, with the right of `docs/deployment.md` for it and without.

use std::sync::Arc;
use std::time::Duration;

use queue_core::clock::ManualClock;
use queue_core::{Clock as _, SystemClock};
use queue_redis::broker::Broker;
use queue_redis::leader::Leader;
use queue_worker::{Priorities, Router, Server, ServerError};

use super::{DOCUMENT, documented, refused, with_user};
use crate::support::{QUEUE, eventually, job};

#[tokio::test]
async fn a_worker_with_the_documented_right_serves_priorities_and_one_without_does_not_start() {
    let (fixture, redis) = with_user(&documented("worker")).await;
    let server = || {
        let router = Router::new(()).route("job", async |_: queue_worker::Job| ());
        Server::new(redis.clone(), router).queues([(QUEUE, 1)]).priorities(Priorities::Weighted)
    };
    let named = || {
        let router = Router::new(()).route("job", async |_: queue_worker::Job| ());
        Server::new(redis.clone(), router).queues([(QUEUE, 1)]).name("web-1")
    };
    for server in [server(), named()] {
        let refusal = server.start().await.unwrap_err();
        assert!(matches!(refusal, ServerError::Redis(_)) && refusal.to_string().contains("smembers"), "{refusal}");
    }

    let line = DOCUMENT.lines().find(|line| *line == "ACL SETUSER worker +smembers");
    fixture.run(line.expect("the document has the line")).await;
    let _: redis::Value = fixture.cmd(&["ACL", "LOG", "RESET"]).await;
    let server = server().start().await.unwrap();
    fixture.enqueue([job("a").priority(9)]).await;
    eventually("it has run", async || !fixture.cmd::<bool>(&["EXISTS", "asynq:{q}p9}:t:a"]).await).await;
    server.shutdown().await;
    let server = named().start().await.unwrap();
    fixture.enqueue([job("a").only("web-1")]).await;
    eventually("it has run", async || !fixture.cmd::<bool>(&["EXISTS", "asynq:{q}@web-1}:t:a"]).await).await;
    server.shutdown().await;

    // As the leader, it looks after tasks whose servers are gone, and removes their queue when it is empty.
    fixture.enqueue([job("b").only("gone").fallback(Duration::from_secs(60))]).await;
    let (broker, clock) = (Broker::new(redis.clone()), Arc::new(ManualClock::at_secs(SystemClock.now_secs())));
    let known = queue_redis::duties::standard(&broker, clock.clone());
    let mut leader = Leader::new(broker, clock.clone(), "leader", known.into());
    for _ in 0..80 {
        clock.advance(Duration::from_secs(50));
        leader.do_all().await.unwrap();
    }
    assert_eq!(fixture.inspector().task(QUEUE, "b").await.unwrap().queue, QUEUE);
    assert!(!fixture.cmd::<bool>(&["SISMEMBER", "asynq:queues", "q}@gone"]).await);
    // The check at the start goes on without `info`, as the document says.
    let refused: Vec<String> = refused(&fixture, "worker").await.into_iter().collect();
    assert!(refused.iter().all(|command| command == "info"), "{refused:?}");
}

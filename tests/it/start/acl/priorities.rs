//! A server with priorities, with the right of `docs/deployment.md` for it and without.

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
    let refusal = server().start().await.unwrap_err();
    assert!(matches!(refusal, ServerError::Redis(_)) && refusal.to_string().contains("smembers"), "{refusal}");

    let line = DOCUMENT.lines().find(|line| *line == "ACL SETUSER worker +smembers");
    fixture.run(line.expect("the document has the line")).await;
    let _: redis::Value = fixture.cmd(&["ACL", "LOG", "RESET"]).await;
    let server = server().start().await.unwrap();
    fixture.enqueue([job("a").priority(9)]).await;
    eventually("it has run", async || !fixture.cmd::<bool>(&["EXISTS", "asynq:{q}p9}:t:a"]).await).await;
    server.shutdown().await;
    // The check at the start goes on without `info`, as the document says.
    let refused: Vec<String> = refused(&fixture, "worker").await.into_iter().collect();
    assert!(refused.iter().all(|command| command == "info"), "{refused:?}");
}

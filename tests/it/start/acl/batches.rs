//! Batches by users who have the rights of `docs/deployment.md` for them and no others.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use queue_core::{Clock as _, RawTask, SystemClock};
use queue_redis::flow::Flows;
use queue_redis::{BatchState, Client, Redis, RedisOptions};
use queue_worker::{Failure, Router, Server};

use super::{DOCUMENT, documented, is_needed, refused, with_user};
use crate::support::{Fixture, PATIENCE, QUEUE, eventually, report, wait_for};

/// The line with a user's rights for batches.
fn line(user: &str) -> &'static str {
    let begin = format!("ACL SETUSER {user} +");
    let mut lines = DOCUMENT.lines().filter(|line| line.starts_with(&begin) && line.contains("+bitfield"));
    lines.next().expect("the document has the line")
}

/// Gives a user the rights for batches.
async fn with_batches(fixture: &Fixture, user: &str) {
    fixture.run(line(user)).await;
}

fn member(task_type: &str) -> RawTask {
    RawTask::new(task_type).queue(QUEUE).max_retry(0)
}

#[tokio::test]
async fn users_with_the_documented_rights_of_batches_are_refused_nothing() {
    let (fixture, redis) = with_user(&documented("producer")).await;
    with_batches(&fixture, "producer").await;
    let _: redis::Value = fixture.cmd(&documented("worker")).await;
    with_batches(&fixture, "worker").await;
    let url = format!("{}?user=worker&pass=secret", fixture.url());
    let worker = Redis::lazy(&url, RedisOptions::default()).unwrap();

    let client = Client::new(redis);
    let root = client.batch().on_success(member("ok")).on_settled(member("ok")).on_death(member("ok"));
    let root = root.open().await.unwrap().keyed("k");
    root.add_all([member("ok"), member("ok").unique(Duration::from_secs(60))]).await.unwrap();
    root.clone().keyed("k").add_all([member("ok"), member("ok").unique(Duration::from_secs(60))]).await.unwrap();
    // Added half-way, and one of them has run, which nobody has recorded.
    let run = fixture.take().await;
    fixture.broker.done(QUEUE, &[report(&run)], SystemClock.now_secs()).await.unwrap();
    let keys = format!("asynq:x:{{{}}}:0:keys", root.id());
    let _: i64 = fixture.cmd(&["HSET", &keys, "add:k#0.0", "0-1"]).await;
    root.clone().keyed("k").add_all([member("ok"), member("ok").unique(Duration::from_secs(60))]).await.unwrap();
    root.child().id("child").add_all([member("fail")]).await.unwrap();
    root.commit().await.unwrap();
    client.batch().add_all(Vec::<RawTask>::new()).await.unwrap();

    let router =
        Router::new(()).fallback(
            async |job: queue_worker::Job| {
                if job.task_type() == "fail" { Err(Failure::archive("dead")) } else { Ok(()) }
            },
        );
    let server = Server::new(worker.clone(), router).queues([(QUEUE, 1)]).reconcile_interval(Duration::ZERO);
    let server = server.start().await.unwrap();
    let over = async || Some(root.status().await.unwrap()).filter(|status| status.state == BatchState::Dead);
    let status = wait_for("the batch is over", over).await;
    assert_eq!((status.succeeded, status.dead), (2, 1));
    let chain = client.chain().then(member("ok")).then_all([member("ok")]).start().await.unwrap();
    let over = async || Some(chain.status().await.unwrap()).filter(|status| status.state == BatchState::Succeeded);
    wait_for("the chain is over", over).await;
    chain.rerun("step-1").await.unwrap();
    let over = async || Some(chain.status().await.unwrap()).filter(|status| status.is_over() && status.generation == 2);
    wait_for("it is over once more", over).await;
    let stored_before: i64 = fixture.cmd(&["ZCARD", "asynq:{q}:x:once"]).await;
    // What the leader does once in a while.
    let flows = Flows::new(queue_redis::broker::Broker::new(worker), std::sync::Arc::new(queue_core::SystemClock));
    let late = client.batch().add_all([member("ok").process_in(Duration::from_secs(3_600))]).await.unwrap();
    let flow = format!("asynq:x:{{{}}}:0:flow", late.id());
    let _: i64 = fixture.cmd(&["HSET", &flow, "touched", "1", "looked", "1", "adding", "0", "deadline", "1"]).await;
    for _ in 0..2 {
        flows.tend(late.id().root()).await.unwrap();
        flows.tend_queue(QUEUE).await.unwrap();
    }
    for root in [late.id().root(), chain.id().root()] {
        let _: i64 = fixture.cmd(&["HSET", &format!("asynq:x:{{{root}}}:0:flow"), "over", "1"]).await;
        assert_eq!(flows.tend(root).await.unwrap(), None);
    }
    // What follows a task is told as members tell.
    client.enqueue(member("fail").task_id("given-up").on_exhausted("ok")).await.unwrap();
    fixture.in_state("given-up", queue_core::TaskState::Archived).await;
    let followed = async || fixture.cmd::<i64>(&["ZCARD", "asynq:{q}:x:once"]).await > stored_before;
    eventually("it is followed", followed).await;
    server.shutdown().await;
    for user in ["producer", "worker"] {
        let mut refused = refused(&fixture, user).await;
        refused.remove("info");
        assert!(refused.is_empty(), "{user} may not {refused:?}");
    }
}

/// What an inspector does with batches and workflows.
async fn change(fixture: &Fixture, redis: Redis) {
    let client = Client::new(redis);
    let router =
        Router::new(()).fallback(
            async |job: queue_worker::Job| {
                if job.task_type() == "fail" { Err(Failure::archive("dead")) } else { Ok(()) }
            },
        );
    let server = fixture.server(router).start().await.unwrap();
    let flow = client.workflow().signal("go").task("a", member("ok")).after(["go"]).start().await.unwrap();
    assert!(flow.signal("go", &"on").await.unwrap());
    assert_eq!(flow.wait(PATIENCE).await.unwrap().state, BatchState::Succeeded);
    flow.rerun("a").await.unwrap();
    let again = async || Some(flow.status().await.unwrap()).filter(|status| status.is_over() && status.generation == 2);
    wait_for("it is over once more", again).await;
    let batch = client.batch().on_settled(member("ok"));
    let later = member("ok").process_in(Duration::from_secs(3_600));
    let batch = batch.add_all([member("fail"), later]).await.unwrap();
    let dead = async || Some(batch.status().await.unwrap()).filter(|status| status.dead == 1);
    wait_for("one is dead", dead).await;
    assert_eq!(batch.retry_dead().await.unwrap(), 1);
    assert!(batch.cancel().await.unwrap());
    assert!(batch.wait(PATIENCE).await.unwrap().cancelled >= 1);
    server.shutdown().await;
}

/// Whoever had the rights of an inspector alone cancelled by half, and made a batch that stayed open.
#[tokio::test]
async fn an_inspector_with_the_documented_rights_changes_batches_and_each_of_them_is_needed() {
    let (fixture, redis) = with_user(&documented("inspector")).await;
    with_batches(&fixture, "inspector").await;
    change(&fixture, redis).await;
    let mut refused = refused(&fixture, "inspector").await;
    refused.remove("info");
    assert!(refused.is_empty(), "it may not {refused:?}");
    for right in line("inspector").split(' ').filter_map(|word| word.strip_prefix('+')) {
        let (fixture, redis) = with_user(&documented("inspector")).await;
        with_batches(&fixture, "inspector").await;
        fixture.run(&format!("ACL SETUSER inspector -{right}")).await;
        // It fails, or waits for what does not come.
        let tried = AssertUnwindSafe(change(&fixture, redis)).catch_unwind();
        let _ = tokio::time::timeout(Duration::from_secs(10), tried).await;
        assert!(is_needed(&fixture, "inspector", right).await, "{right} is not needed");
    }
}

/// Each of the rights for broadcasts is needed, and no other.
#[tokio::test]
async fn a_user_with_the_documented_rights_sends_broadcasts() {
    let (fixture, redis) = with_user(&documented("producer")).await;
    with_batches(&fixture, "producer").await;
    let server = Server::new(fixture.redis(), Router::new(()).route("ok", async |_: queue_worker::Job| {}));
    let server = server.queues([(QUEUE, 1)]).name("web-1").start().await.unwrap();
    let client = Client::new(redis);
    let named = async || fixture.inspector().find_servers("web-1").await.ok();
    wait_for("the server is listed by its name", named).await;
    let send = async || client.broadcast(member("ok")).queue(QUEUE).send().await;
    send().await.unwrap_err();
    let mut lines = DOCUMENT.lines().skip_while(|line| !line.contains("(broadcast.md)"));
    let line = lines.find(|line| line.starts_with("ACL SETUSER")).expect("the document has the line");
    for right in line.split(' ').filter(|word| word.starts_with('+')) {
        fixture.run(line).await;
        fixture.run(&format!("ACL SETUSER producer {}", right.replacen('+', "-", 1))).await;
        let tried = match send().await {
            Ok(sent) => sent.status().await.map(drop),
            Err(error) => Err(error),
        };
        assert!(tried.is_err(), "{right} is not needed");
    }
    fixture.run(line).await;
    let status = send().await.unwrap().wait(Duration::from_secs(60)).await.unwrap();
    assert_eq!(status.succeeded(), 1);
    server.shutdown().await;
}

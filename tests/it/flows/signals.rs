//! Nodes that wait for somebody's word, or for time to pass.

use std::time::Duration;

use queue_core::flow::{MemberState, Otherwise};
use queue_redis::{Batch, BatchState, Parents};
use queue_worker::{Failure, Router, State, Task};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Ran, callback, client, count, flow_keys, member, over, router, server, tend, until};
use crate::support::Fixture;

const HOUR: Duration = Duration::from_secs(3_600);

/// Notes what was said with the signal "word".
#[derive(Serialize, Deserialize, Task)]
#[task(type = "hear", queue = "q", max_retry = 0)]
struct Hear;

async fn hear(_: Hear, parents: Parents, State(ran): State<Ran>) -> Result<(), Failure> {
    ran.tell(format!("heard {}", parents.get::<serde_json::Value>("word")?));
    Ok(())
}

fn hears(ran: &Ran) -> Router<Ran> {
    router(ran).task(hear)
}

/// First, a word of somebody's, and who hears it.
async fn asked(fixture: &Fixture, within: Option<(Duration, Otherwise)>) -> Batch {
    let flow = client(fixture).workflow().id("asked").task("first", member("first")).signal("word");
    let flow = within.into_iter().fold(flow, |flow, (duration, otherwise)| flow.within(duration, otherwise));
    let flow =
        flow.after(["first"]).task("hear", Hear).after(["word"]).task("no", member("no")).after_failure(["word"]);
    flow.task("end", member("end")).after_end(["word"]).on_settled(callback("settled")).start().await.unwrap()
}

async fn state_of(fixture: &Fixture, flow: &Batch, name: &str) -> MemberState {
    let nodes = client(fixture).flows().nodes(flow.id()).await.unwrap();
    nodes.into_iter().find(|node| node.name == name).unwrap().state
}

/// The time of the signal is over.
async fn time_passes(fixture: &Fixture, flow: &Batch) {
    let late = until_late(fixture).await;
    assert!(late > 0, "nobody looks for the end of its time");
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:{asked}:todo", "1", "late 0 0"]).await;
    tend(fixture, flow).await;
}

async fn until_late(fixture: &Fixture) -> i64 {
    let late: Option<i64> = fixture.cmd(&["ZSCORE", "asynq:x:{asked}:todo", "late 0 0"]).await;
    late.unwrap_or(0)
}

#[tokio::test]
async fn a_node_waits_for_its_signal_and_hands_on_what_was_said_once() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, hears(&ran)).start().await.unwrap();
    let flow = asked(&fixture, None).await;
    until(&flow, "its turn has come", |status| status.succeeded == 1 && status.sent == 1).await;
    assert_eq!(until_late(&fixture).await, 0);
    // Looked for, it is not taken for lost.
    let key = "asynq:x:{asked}:0:flow";
    let _: i64 = fixture.cmd(&["HSET", key, "touched", "1", "looked", "1", "adding", "0"]).await;
    tend(&fixture, &flow).await;
    assert_eq!(state_of(&fixture, &flow, "word").await, MemberState::Sent);
    let explained = client(&fixture).flows().explain(flow.id()).await.unwrap().unwrap();
    let waits: Vec<&str> = explained.nodes.iter().map(|node| node.name.as_str()).collect();
    assert!(waits.contains(&"word") && explained.members.is_empty(), "{explained:?}");

    assert!(flow.signal("word", &json!({ "by": "ada" })).await.unwrap());
    assert!(!flow.signal("word", &json!("once more")).await.unwrap());
    assert!(!flow.decline("word", &()).await.unwrap());
    let status = over(&flow).await;
    assert_eq!((status.state, status.succeeded, status.skipped), (BatchState::Succeeded, 4, 1));
    assert_eq!(count(&ran, "heard {\"by\":\"ada\"}"), 1, "{:?}", ran.all());
    assert!(!flow.signal("word", &()).await.unwrap());
    server.shutdown().await;
    let _: i64 = fixture.cmd(&["HSET", key, "over", "1"]).await;
    tend(&fixture, &flow).await;
    assert_eq!(flow_keys(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_signal_may_come_before_the_turn_of_its_node() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let flow = asked(&fixture, Some((HOUR, Otherwise::Fail))).await;
    assert!(flow.signal("word", &7).await.unwrap());
    let server = server(&fixture, hears(&ran)).start().await.unwrap();
    assert_eq!(over(&flow).await.state, BatchState::Succeeded);
    assert_eq!((count(&ran, "heard 7"), until_late(&fixture).await), (1, 0));
    server.shutdown().await;
}

#[tokio::test]
async fn what_waits_for_a_declined_signal_is_skipped_until_it_is_given_after_all() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, hears(&ran)).start().await.unwrap();
    let slow =
        client(&fixture).workflow().id("asked").signal("word").signal("other").task("hear", Hear).after(["word"]);
    let flow = slow.task("end", member("end")).after(["other"]).start().await.unwrap();
    assert!(flow.decline("word", &"no").await.unwrap());
    assert!(!flow.decline("word", &"no").await.unwrap());
    assert_eq!(state_of(&fixture, &flow, "hear").await, MemberState::Skipped);
    // A look at all nodes changes nothing.
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:{asked}:todo", "1", "nodes 0 0"]).await;
    tend(&fixture, &flow).await;
    assert_eq!(state_of(&fixture, &flow, "word").await, MemberState::Skipped);
    assert!(flow.signal("word", &"yes").await.unwrap());
    flow.signal("other", &()).await.unwrap();
    let status = over(&flow).await;
    assert_eq!((status.state, status.succeeded, status.skipped), (BatchState::Succeeded, 4, 0));
    assert_eq!(count(&ran, "heard \"yes\""), 1);
    server.shutdown().await;
}

#[tokio::test]
async fn a_signal_that_nobody_gives_in_time_ends_as_its_workflow_says() {
    for (otherwise, state, ends) in [
        (Otherwise::Succeed, BatchState::Succeeded, ["end", "first", "heard null"].as_slice()),
        (Otherwise::Skip, BatchState::Succeeded, &["end", "first"]),
        (Otherwise::Fail, BatchState::Dead, &["end", "first", "no"]),
    ] {
        let (fixture, ran) = (Fixture::start().await, Ran::default());
        let server = server(&fixture, hears(&ran)).start().await.unwrap();
        let flow = asked(&fixture, Some((HOUR, otherwise))).await;
        until(&flow, "its turn has come", |status| status.succeeded == 1 && status.sent == 1).await;
        crate::support::eventually("its time has begun", async || until_late(&fixture).await > 0).await;
        let now: (i64, i64) = fixture.cmd(&["TIME"]).await;
        assert!((3_590..=3_600).contains(&(until_late(&fixture).await - now.0)), "{}", until_late(&fixture).await);
        time_passes(&fixture, &flow).await;
        let status = over(&flow).await;
        assert_eq!(status.state, state, "{otherwise:?}");
        let mut all = ran.all();
        all.retain(|it| it != "settled");
        all.sort();
        assert_eq!(all, ends, "{otherwise:?}");
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_signal_after_its_time_lets_a_dead_node_recover() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, hears(&ran)).start().await.unwrap();
    let flow = asked(&fixture, Some((HOUR, Otherwise::Fail))).await;
    crate::support::eventually("its time has begun", async || until_late(&fixture).await > 0).await;
    time_passes(&fixture, &flow).await;
    assert_eq!(over(&flow).await.state, BatchState::Dead);
    assert_eq!(flow.retry_dead().await.unwrap(), 0);
    assert!(flow.signal("word", &"late").await.unwrap());
    until(&flow, "it has recovered", |status| status.state == BatchState::Succeeded).await;
    assert_eq!(count(&ran, "heard \"late\""), 1);
    server.shutdown().await;
}

#[tokio::test]
async fn a_timer_lets_its_time_pass_and_the_leader_finds_its_end() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let flow = client(&fixture).workflow().timer("pause", Duration::from_millis(800)).task("then", member("then"));
    let flow = flow.after(["pause"]).start().await.unwrap();
    assert_eq!(over(&flow).await.state, BatchState::Succeeded);
    assert_eq!(ran.all(), ["then"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_signal_that_is_waited_for_is_cancelled_with_its_workflow() {
    let fixture = Fixture::start().await;
    let sub = client(&fixture).workflow().signal("inner");
    let flow = client(&fixture).workflow().signal("word").within(HOUR, Otherwise::Skip).signal("then").after(["word"]);
    let flow = flow.workflow("sub", sub).start().await.unwrap();
    assert!(flow.cancel().await.unwrap());
    tend(&fixture, &flow).await;
    let status = flow.status().await.unwrap();
    assert_eq!((status.state, status.cancelled, status.live()), (BatchState::Cancelled, 3, 0));
    let error = flow.signal("word", &()).await.unwrap_err();
    assert!(error.to_string().contains("has ended, or was cancelled or abandoned"), "{error}");
}

#[tokio::test]
async fn a_signal_within_a_workflow_in_it_is_given_there() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, hears(&ran)).start().await.unwrap();
    let sub = client(&fixture).workflow().signal("word").task("hear", Hear).after(["word"]);
    let flow = client(&fixture).workflow().workflow("sub", sub).start().await.unwrap();
    flow.node("sub").await.unwrap().signal("word", &1).await.unwrap();
    assert_eq!(over(&flow).await.state, BatchState::Succeeded);
    assert_eq!(ran.all(), ["heard 1"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_signal_that_cannot_be_given_is_refused() {
    let fixture = Fixture::start().await;
    let flow = asked(&fixture, None).await;
    let refused = [
        (flow.signal("first", &()).await, "no node \"first\" that waits for a signal"),
        (flow.signal("nobody", &()).await, "no node \"nobody\" that waits for a signal"),
        (flow.signal("word", &"x".repeat(16 * 1024)).await, "says 16386 bytes, and 16384 is the most"),
        (flow.signal("word", &std::collections::HashMap::from([((1, 2), 3)])).await, "is no JSON"),
    ];
    for (result, text) in refused {
        let error = result.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    let misplaced = client(&fixture).workflow().task("a", member("ok")).within(HOUR, Otherwise::Skip);
    let error = misplaced.start().await.unwrap_err();
    assert!(error.to_string().contains("`within` comes behind a signal"), "{error}");
}

//! Nodes of workflows that are run again, with all that is behind them.

use queue_core::RawTask;
use queue_core::flow::MemberState;
use queue_redis::{Batch, BatchError, BatchState, Parents};
use queue_worker::{Failure, Output, State, Task};
use serde::{Deserialize, Serialize};

use super::model::script;
use super::{Ran, callback, client, count, flow_keys, member, over, router, server, tend, until};
use crate::support::{Fixture, wait_for};

/// A node that hands on what it got, and a thousand for each time that it has run before.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "sum", queue = "q", max_retry = 3)]
struct Sum(u64);

async fn sum(task: Sum, parents: Parents, State(ran): State<Ran>) -> Result<Output<u64>, Failure> {
    let me = format!("sum of {}", task.0);
    let mut sum = task.0 + 1_000 * count(&ran, &me) as u64;
    for name in parents.names() {
        sum += parents.all::<u64>(name)?.iter().sum::<u64>();
    }
    ran.tell(me);
    ran.tell(format!("= {sum}"));
    Ok(Output(sum))
}

/// The states of nodes, in the order of their names.
async fn states(fixture: &Fixture, batch: &Batch) -> Vec<MemberState> {
    let mut nodes = client(fixture).flows().nodes(batch.id()).await.unwrap();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes.into_iter().map(|node| node.state).collect()
}

async fn task_keys(fixture: &Fixture) -> Vec<String> {
    let keys: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:t:*"]).await;
    keys
}

async fn succeeded_in(batch: &Batch, generation: u32) {
    let is_so = |status: &queue_redis::BatchStatus| status.is_over() && status.generation == generation;
    let status = until(batch, "it is over once more", is_so).await;
    assert_eq!(status.state, BatchState::Succeeded, "{status:?}");
}

#[tokio::test]
async fn a_node_runs_again_with_all_behind_it_and_what_is_before_it_keeps_its_result() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran).task(sum)).start().await.unwrap();
    let flow = client(&fixture).workflow().id("w").task("a", Sum(1)).task("b", Sum(10)).after(["a"]);
    let flow = flow.batch("c", [Sum(20), Sum(30)]).after(["b"]).task("d", Sum(100)).after(["a", "b", "c"]);
    let flow = flow.task("beside", Sum(7)).on_death(callback("death")).on_complete(callback("complete"));
    let flow = flow.on_success(callback("success")).on_settled(callback("settled")).start().await.unwrap();
    assert_eq!(over(&flow).await.state, BatchState::Succeeded);
    assert_eq!(count(&ran, "= 184"), 1, "1, 11, and 31 and 41, and 100: {:?}", ran.all());

    let done = flow.rerun("b").await.unwrap();
    assert_eq!((done.generation, done.nodes), (2, 5));
    succeeded_in(&flow, 2).await;
    assert_eq!(count(&ran, "= 6184"), 1, "1, 1011, 2031 and 2041, and 1100: {:?}", ran.all());
    let counts = ["1", "7", "10", "20", "30", "100"].map(|it| count(&ran, &format!("sum of {it}")));
    assert_eq!(counts, [1, 1, 2, 2, 2, 2]);
    assert_eq!(["death", "complete", "success", "settled"].map(|it| count(&ran, it)), [0, 2, 2, 2]);

    // And again, from further on.
    flow.rerun("d").await.unwrap();
    succeeded_in(&flow, 3).await;
    let counts = ["sum of 1", "sum of 10", "sum of 20", "sum of 100", "success"].map(|it| count(&ran, it));
    assert_eq!(counts, [1, 2, 2, 3, 3]);
    server.shutdown().await;
    // Nothing of any run is left when it is forgotten.
    let _: i64 = fixture.cmd(&["HSET", "asynq:x:{w}:0:flow", "over", "1"]).await;
    tend(&fixture, &flow).await;
    assert_eq!((flow_keys(&fixture).await, task_keys(&fixture).await), (Vec::<String>::new(), Vec::new()));
}

#[tokio::test]
async fn a_node_is_not_run_again_before_all_behind_it_has_ended() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let flow = client(&fixture).workflow().task("a", member("a")).batch("b", [member("b")]).after(["a"]);
    let flow = flow.task("c", member("c")).after(["b"]).task("d", member("d"));
    let flow = flow.on_settled(callback("settled")).start().await.unwrap();
    let live = async |node: &str| match flow.rerun(node).await.unwrap_err() {
        BatchError::NotOver { live, .. } => live,
        error => panic!("{error}"),
    };
    assert_eq!((live("a").await, live("c").await), (vec!["a".to_owned()], vec!["c".to_owned()]));
    let error = flow.rerun("nobody").await.unwrap_err();
    assert!(error.to_string().contains("has no such node"), "{error}");
    let before = states(&fixture, &flow).await;
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    assert_eq!(over(&flow).await.state, BatchState::Succeeded);
    server.shutdown().await;
    assert_eq!(before, [MemberState::Sent, MemberState::Waiting, MemberState::Waiting, MemberState::Sent]);
    // What was asked for is under way, so that it cannot be asked for once more; what is beside it can.
    flow.rerun("b").await.unwrap();
    let child = client(&fixture).batch_of(&format!("{}:1", flow.id())).await.unwrap();
    assert_eq!(live("b").await, ["b"]);
    assert_eq!(live("a").await, ["b"]);
    assert!(matches!(child.rerun("0").await, Err(BatchError::NotOver { .. })));
    flow.rerun("d").await.unwrap();
    let server = super::server(&fixture, router(&ran)).start().await.unwrap();
    succeeded_in(&flow, 3).await;
    assert_eq!(["a", "b", "c", "d", "settled"].map(|it| count(&ran, it)), [1, 2, 2, 2, 2]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_task_of_a_batch_within_runs_again_with_what_is_behind_the_batch() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let inner = client(&fixture).workflow().task("x", member("x")).task("y", member("y")).after(["x"]);
    let inner = inner.task("z", member("z")).on_success(callback("complete"));
    let flow = client(&fixture).workflow().id("w").task("a", member("a")).workflow("in", inner).after(["a"]);
    let flow = flow.task("after", member("after")).after(["in"]).on_success(callback("success"));
    let flow = flow.on_settled(callback("settled")).start().await.unwrap();
    assert_eq!(over(&flow).await.state, BatchState::Succeeded);
    let inner = client(&fixture).batch_of("w:1").await.unwrap();
    let done = inner.rerun("x").await.unwrap();
    assert_eq!((done.generation, done.nodes), (2, 3));
    succeeded_in(&flow, 2).await;
    let counts = ["a", "x", "y", "z", "after", "complete", "success", "settled"].map(|it| count(&ran, it));
    assert_eq!(counts, [1, 2, 2, 1, 2, 2, 2, 2]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_dead_node_runs_again_with_what_was_skipped_because_of_it() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let flow = client(&fixture).workflow().task("a", member("die")).task("b", member("b")).after(["a"]);
    let flow = flow.task("undo", member("undo")).after_failure(["a"]).on_death(callback("death"));
    let flow = flow.on_settled(callback("settled")).start().await.unwrap();
    assert_eq!(over(&flow).await.state, BatchState::Dead);
    // What it waits for has not come, and is not what is to run again.
    let error = flow.rerun("b").await.unwrap_err();
    assert!(error.to_string().contains("would be skipped"), "{error}");
    ran.tell("heal");
    flow.rerun("a").await.unwrap();
    succeeded_in(&flow, 2).await;
    assert_eq!(states(&fixture, &flow).await, [MemberState::Succeeded, MemberState::Succeeded, MemberState::Skipped]);
    assert_eq!(["die", "b", "undo", "death", "settled"].map(|it| count(&ran, it)), [2, 1, 1, 1, 2]);
    // The first run lies in the archive. Run again, it changes nothing any more.
    let nodes = client(&fixture).flows().nodes(flow.id()).await.unwrap();
    let first = nodes.iter().find(|node| node.name == "a").unwrap().id.strip_suffix(".2").unwrap().to_owned();
    let state: String = fixture.cmd(&["HGET", &format!("asynq:{{q}}:t:{first}"), "state"]).await;
    assert_eq!(state, "archived");
    server.shutdown().await;
}

#[tokio::test]
async fn what_an_earlier_run_tells_late_changes_nothing() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let flow = client(&fixture).workflow().id("w").task("a", member("a")).task("b", member("b")).after(["a"]);
    let flow = flow.start().await.unwrap();
    over(&flow).await;
    server.shutdown().await;
    flow.rerun("a").await.unwrap();
    let nodes = client(&fixture).flows().nodes(flow.id()).await.unwrap();
    let late = nodes[0].id.strip_suffix(".2").expect("the id tells the run").to_owned();
    let list = "asynq:{q}:x:outcomes:late";
    let _: i64 = fixture.cmd(&["RPUSH", list, &format!("1700000000.1 ok {late}")]).await;
    let _: i64 = fixture.cmd(&["SADD", "asynq:{q}:x:outcome-lists", list]).await;
    tend(&fixture, &flow).await;
    let left: i64 = fixture.cmd(&["EXISTS", list]).await;
    assert_eq!(left, 0, "it was recorded");
    assert_eq!(states(&fixture, &flow).await, [MemberState::Sent, MemberState::Waiting]);
}

#[tokio::test]
async fn a_signal_is_waited_for_again() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let flow = client(&fixture).workflow().task("a", member("a")).signal("go").after(["a"]);
    let flow = flow.task("b", member("b")).after(["go"]).start().await.unwrap();
    flow.signal("go", &1).await.unwrap();
    over(&flow).await;
    flow.rerun("a").await.unwrap();
    let waits = async || Some(states(&fixture, &flow).await).filter(|it| it[2] == MemberState::Sent);
    let waiting = wait_for("its turn has come", waits).await;
    assert_eq!(waiting, [MemberState::Succeeded, MemberState::Waiting, MemberState::Sent]);
    assert!(flow.signal("go", &2).await.unwrap());
    succeeded_in(&flow, 2).await;
    server.shutdown().await;
}

#[tokio::test]
async fn whoever_claimed_the_end_of_a_wait_and_was_held_up_does_not_end_the_next_one() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let flow = client(&fixture)
        .workflow()
        .id("w")
        .task("a", member("a"))
        .timer("pause", std::time::Duration::from_secs(3_600))
        .after(["a"]);
    let flow = flow.task("b", member("b")).after(["pause"]).start().await.unwrap();
    let waits = async || Some(states(&fixture, &flow).await).filter(|it| it[2] == MemberState::Sent);
    let late = async || fixture.cmd::<Option<f64>>(&["ZSCORE", "asynq:x:{w}:todo", "late 0 0"]).await;
    wait_for("it waits", async || waits().await.and(late().await)).await;
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:{w}:todo", "0", "late 0 0"]).await;
    tend(&fixture, &flow).await;
    over(&flow).await;
    flow.rerun("pause").await.unwrap();
    wait_for("it waits again", async || waits().await.and(late().await)).await;
    server.shutdown().await;
    let end = ["EVAL", &script("flow_signal"), "1", "asynq:x:{w}:todo", "asynq:x:{w}:", "0", "0", "succeed", "null"];
    let answer: (String, redis::Value) = fixture.cmd(&end).await;
    assert_eq!(answer.0, "s");
    assert!(late().await.is_some(), "nobody looks for the end of its time");
    assert_eq!(states(&fixture, &flow).await[1..], [MemberState::Waiting, MemberState::Sent]);
}

#[tokio::test]
async fn members_whose_tasks_the_ledger_does_not_have_are_not_run_again_and_are_named() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let flow = client(&fixture).workflow().task("a", member("a")).signal("go").after(["a"]);
    let flow = flow.batch("filled", Vec::<RawTask>::new()).after(["go"]).start().await.unwrap();
    flow.node("filled").await.unwrap().add_all([member("added")]).await.unwrap();
    flow.signal("go", &()).await.unwrap();
    over(&flow).await;
    let error = flow.rerun("a").await.unwrap_err();
    assert!(error.to_string().ends_with(&format!("not kept: 0 in {}:1", flow.id())), "{error}");
    server.shutdown().await;
}

#[tokio::test]
async fn what_was_begun_by_somebody_who_died_goes_on_and_asked_for_again_is_not_done_again() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let flow = client(&fixture).workflow().id("w").task("a", member("a")).task("b", member("b")).after(["a"]);
    let flow = flow.on_success(callback("success")).start().await.unwrap();
    over(&flow).await;
    server.shutdown().await;
    let words = ["EVAL", &script("flow_rerun"), "1", "asynq:x:{w}:todo", "asynq:x:{w}:", "0", "a", "1", "100"];
    let answer = async || {
        let answer: redis::Value = fixture.cmd(&words).await;
        let redis::Value::Array(parts) = answer else { panic!("{answer:?}") };
        redis::from_redis_value::<String>(parts[0].clone()).unwrap()
    };
    assert_eq!(answer().await, "a");
    assert_eq!(answer().await, "s");
    assert_eq!(states(&fixture, &flow).await, [MemberState::Waiting; 2]);
    // As if the claim had ended.
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:{w}:todo", "0", "nodes 0 0"]).await;
    tend(&fixture, &flow).await;
    assert_eq!(states(&fixture, &flow).await, [MemberState::Sent, MemberState::Waiting]);
    let server = super::server(&fixture, router(&ran)).start().await.unwrap();
    succeeded_in(&flow, 2).await;
    assert_eq!(["a", "b", "success"].map(|it| count(&ran, it)), [2; 3]);
    server.shutdown().await;
}

#[tokio::test]
async fn no_node_runs_again_once_the_results_of_those_before_it_are_being_deleted() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran).task(sum)).start().await.unwrap();
    let flow = client(&fixture).workflow().id("w").task("a", Sum(1)).task("b", Sum(10)).after(["a"]);
    let flow = flow.start().await.unwrap();
    over(&flow).await;
    server.shutdown().await;
    let _: i64 = fixture.cmd(&["HSET", "asynq:x:{w}:0:flow", "over", "1"]).await;
    // The leader forgets it, and comes no further than the results.
    let _: String = fixture.cmd(&["RENAME", "asynq:{q}:completed", "asynq:{q}:aside"]).await;
    let _: String = fixture.cmd(&["SET", "asynq:{q}:completed", "something else"]).await;
    let flows = client(&fixture).flows();
    assert!(flows.tend("w").await.is_err());
    assert!(matches!(flow.rerun("b").await, Err(BatchError::Rerun { .. })));
    let _: String = fixture.cmd(&["RENAME", "asynq:{q}:aside", "asynq:{q}:completed"]).await;
    assert_eq!(flows.tend("w").await.unwrap(), None);
    assert_eq!((flow_keys(&fixture).await, task_keys(&fixture).await), (Vec::new(), Vec::new()));
}

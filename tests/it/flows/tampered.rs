//! What somebody has written behind the ledger's back, the doctor finds.

use queue_core::{Clock as _, SystemClock};
use queue_redis::flow::Flows;
use queue_redis::{Batch, BatchState, Fault, Finding};

use super::{Ran, callback, client, member, over, router, server, tend};
use crate::doctor::{examine, fix};
use crate::support::{Fixture, QUEUE};

const OF_BATCHES: [Fault; 8] = [
    Fault::UnlistedBatch,
    Fault::LostBatch,
    Fault::StrayLedger,
    Fault::BatchCount,
    Fault::MissingMember,
    Fault::UndoneBatch,
    Fault::BrokenWorkflow,
    Fault::WrongType,
];

/// What is found of batches, `fault subject: detail` each.
async fn found(fixture: &Fixture) -> Vec<String> {
    let all = examine(&fixture.inspector()).await.into_iter().filter(|found| OF_BATCHES.contains(&found.fault));
    let line = |found: Finding| format!("{} {}: {}", found.fault.as_str(), found.subject, found.detail);
    all.map(line).collect()
}

/// Mends what was found, after which nothing of batches is found any more.
async fn mended(fixture: &Fixture) -> Vec<Fault> {
    let (mended, _) = fix(&fixture.inspector()).await;
    assert_eq!(found(fixture).await, [""; 0], "mended");
    mended.into_iter().filter(|fault| OF_BATCHES.contains(fault)).collect()
}

/// A batch of three, before anything was done to it.
async fn three(fixture: &Fixture) -> (Batch, String) {
    let tasks = [member("ok"), member("ok"), member("ok")];
    let batch = client(fixture).batch().id("b").on_success(callback("success")).add_all(tasks).await.unwrap();
    assert_eq!(found(fixture).await, [""; 0], "before any damage");
    (batch, "asynq:x:{b}:0:flow".to_owned())
}

/// Works everything off.
async fn worked(fixture: &Fixture, batch: &Batch) -> queue_redis::BatchStatus {
    let ran = Ran::default();
    let server = server(fixture, router(&ran)).start().await.unwrap();
    let status = over(batch).await;
    server.shutdown().await;
    status
}

#[tokio::test]
async fn a_batch_that_nobody_looks_after_is_listed_again() {
    let fixture = Fixture::start().await;
    let (batch, _) = three(&fixture).await;
    for (set, entry) in [("asynq:x:flows", "b"), ("asynq:x:duties", "flow b")] {
        let removed: i64 = fixture.cmd(&["ZREM", set, entry]).await;
        assert_eq!((removed, found(&fixture).await), (1, vec!["unlisted-batch b: ".to_owned()]), "{set}");
        assert_eq!(mended(&fixture).await, [Fault::UnlistedBatch]);
        let score: Option<f64> = fixture.cmd(&["ZSCORE", set, entry]).await;
        assert!(score.is_some(), "{set}");
    }
    assert_eq!(worked(&fixture, &batch).await.state, BatchState::Succeeded);
}

#[tokio::test]
async fn a_ledger_that_is_gone_is_missed() {
    let fixture = Fixture::start().await;
    let (_, ledger) = three(&fixture).await;
    fixture.run(&format!("DEL {ledger}")).await;
    fixture.run("ZADD asynq:x:flows 1700000000 b").await;
    let mut lines = found(&fixture).await;
    lines.sort();
    let expected = ["lost-batch b: ", "stray-ledger asynq:x:{b}:0:about: ", "stray-ledger asynq:x:{b}:0:states: "];
    // The key of its additions, too.
    assert!(expected.iter().all(|line| lines.contains(&(*line).to_owned())), "{lines:?}");
    assert!(mended(&fixture).await.contains(&Fault::LostBatch));
    assert_eq!(super::flow_keys(&fixture).await, [""; 0]);
    let listed: i64 = fixture.cmd(&["ZCARD", "asynq:x:flows"]).await;
    assert_eq!(listed, 0);
}

#[tokio::test]
async fn a_child_whose_ledger_is_gone_is_counted_as_removed() {
    let fixture = Fixture::start().await;
    let client = client(&fixture);
    let batch = client.batch().id("b").on_settled(callback("settled")).open().await.unwrap();
    batch.child().add_all([member("ok")]).await.unwrap();
    batch.add_all([member("ok")]).await.unwrap();
    batch.commit().await.unwrap();
    fixture.run("DEL asynq:x:{b}:1:flow").await;
    assert_eq!(found(&fixture).await, ["lost-batch b: b:1, a child that it waits for"]);
    assert_eq!(mended(&fixture).await, [Fault::LostBatch]);
    let status = worked(&fixture, &batch).await;
    assert_eq!((status.state, status.removed, status.succeeded), (BatchState::Dead, 1, 1));
}

#[tokio::test]
async fn a_doomed_child_whose_ledger_is_gone_is_counted_as_removed() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().id("b").open().await.unwrap();
    batch.child().add_all([member("ok"), member("ok")]).await.unwrap();
    batch.commit().await.unwrap();
    let ids: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    fixture.inspector().archive_task(QUEUE, &ids[0]).await.unwrap();
    assert_eq!(batch.status().await.unwrap().state, BatchState::Doomed);
    fixture.run("DEL asynq:x:{b}:1:flow").await;
    assert_eq!(found(&fixture).await, ["lost-batch b: b:1, a child that it waits for"]);
    assert_eq!(mended(&fixture).await, [Fault::LostBatch]);
    let status = batch.status().await.unwrap();
    assert_eq!((status.state, status.removed), (BatchState::Dead, 1));
}

#[tokio::test]
async fn a_child_that_runs_again_and_whose_ledger_is_gone_is_counted_as_removed() {
    let fixture = Fixture::start().await;
    let inner = client(&fixture).workflow().task("x", member("ok"));
    let flow = client(&fixture).workflow().id("w").workflow("in", inner).start().await.unwrap();
    assert_eq!(worked(&fixture, &flow).await.state, BatchState::Succeeded);
    assert_eq!(flow.rerun("in").await.unwrap().nodes, 2);
    assert_eq!(found(&fixture).await, [""; 0], "a child that runs");
    fixture.run("DEL asynq:x:{w}:1:flow").await;
    assert_eq!(found(&fixture).await, ["lost-batch w: w:1, a child that it waits for"]);
    assert_eq!(mended(&fixture).await, [Fault::LostBatch]);
    let status = flow.status().await.unwrap();
    assert_eq!((status.state, status.removed), (BatchState::Dead, 1));
}

#[tokio::test]
async fn a_child_that_is_there_is_never_counted_as_removed() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().id("b").open().await.unwrap();
    for _ in 0..2 {
        batch.child().add_all([member("ok")]).await.unwrap();
    }
    batch.commit().await.unwrap();
    fixture.run("DEL asynq:x:{b}:2:flow").await;
    let long_ago = (SystemClock.now_secs() - 3_600).to_string();
    fixture.run(&format!("HSET asynq:x:{{b}}:0:flow touched {long_ago} looked {long_ago} adding 0")).await;
    tend(&fixture, &batch).await;
    let status = batch.status().await.unwrap();
    assert_eq!((status.sent, status.removed), (1, 1));
}

#[tokio::test]
async fn what_was_left_over_and_belongs_to_a_new_batch_by_now_stays() {
    let fixture = Fixture::start().await;
    fixture.run("HSET asynq:x:{b}:1:flow touched 1").await;
    let doctor = fixture.inspector().doctor();
    let findings: Vec<Finding> = examine(&fixture.inspector()).await;
    let finding = findings.iter().find(|it| it.fault == Fault::StrayLedger).unwrap();
    let batch = client(&fixture).batch().id("b").open().await.unwrap();
    batch.child().add_all([member("ok")]).await.unwrap();
    batch.commit().await.unwrap();
    let copies = doctor.copies(finding).await.unwrap();
    assert!(!doctor.mend(finding, &copies).await.unwrap());
    assert_eq!(worked(&fixture, &batch).await.state, BatchState::Succeeded);
}

#[tokio::test]
async fn a_key_of_another_type_is_named() {
    let fixture = Fixture::start().await;
    three(&fixture).await;
    fixture.run("DEL asynq:x:{b}:todo").await;
    fixture.run("SADD asynq:x:{b}:todo x").await;
    assert_eq!(found(&fixture).await, ["wrong-type asynq:x:{b}:todo: a set instead of a zset"]);
    assert_eq!(mended(&fixture).await, [Fault::WrongType]);
}

#[tokio::test]
async fn counters_that_are_not_what_the_states_say_are_counted_anew() {
    let fixture = Fixture::start().await;
    let (batch, ledger) = three(&fixture).await;
    // It would succeed before its last member has.
    fixture.run(&format!("HSET {ledger} c2 2 c4 1")).await;
    assert_eq!(found(&fixture).await, [r#"batch-count b: c2 is "2" and not 3, c4 is "1" and not 0"#]);
    assert_eq!(mended(&fixture).await, [Fault::BatchCount]);
    let status = batch.status().await.unwrap();
    assert_eq!((status.sent, status.succeeded), (3, 0));
    let status = worked(&fixture, &batch).await;
    assert_eq!((status.state, status.succeeded, status.total), (BatchState::Succeeded, 3, 3));
}

#[tokio::test]
async fn counters_that_have_changed_since_they_were_found_stay() {
    let fixture = Fixture::start().await;
    let (_, ledger) = three(&fixture).await;
    let script = super::model::script("flow_record");
    for (found_as, new, left) in [(["4", ""], 0, "3"), (["3", "1"], 0, "3"), (["3", ""], 1, "2")] {
        let head = ["EVAL", &script, "1", "asynq:x:{b}:todo", "asynq:x:{b}:", "", "9", "0", "counts", "6"];
        let counts = ["c2", found_as[0], "2", "c4", found_as[1], "1"];
        let done: Vec<Vec<redis::Value>> = fixture.cmd(&[&head[..], &counts[..]].concat()).await;
        assert_eq!(done[0][0], redis::Value::Int(new), "{found_as:?}");
        let count: String = fixture.cmd(&["HGET", &ledger, "c2"]).await;
        assert_eq!(count, left, "{found_as:?}");
    }
}

#[tokio::test]
async fn the_leader_counts_a_batch_anew_that_stands_still() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().on_success(callback("success")).add_all([member("ok")]).await.unwrap();
    let ran = Ran::default();
    let server = server(&fixture, router(&ran));
    let ledger = format!("asynq:x:{{{}}}:0:flow", batch.id());
    // One that is not there: nothing would end it.
    fixture.run(&format!("HSET {ledger} c2 2")).await;
    let server = server.start().await.unwrap();
    super::until(&batch, "its member", |status| status.succeeded == 1).await;
    assert_eq!(batch.status().await.unwrap().sent, 1);
    let long_ago = (SystemClock.now_secs() - 3_600).to_string();
    fixture.run(&format!("HSET {ledger} touched {long_ago} looked {long_ago} adding 0")).await;
    server.shutdown().await;
    tend(&fixture, &batch).await;
    let called: u64 = fixture.cmd(&["LLEN", "asynq:{callbacks}:pending"]).await;
    assert_eq!(called, 1, "what follows is carried out at once");
    assert_eq!(worked(&fixture, &batch).await.state, BatchState::Succeeded);
}

#[tokio::test]
async fn a_member_whose_task_is_gone_is_missed() {
    let fixture = Fixture::start().await;
    let (batch, ledger) = three(&fixture).await;
    let ids: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    fixture.run(&format!("DEL asynq:{{q}}:t:{}", ids[1])).await;
    fixture.run(&format!("LREM asynq:{{q}}:pending 1 {}", ids[1])).await;
    // It may still be on its way there.
    assert_eq!(found(&fixture).await, [""; 0]);
    fixture.run(&format!("HSET {ledger} adding 0")).await;
    assert_eq!(found(&fixture).await, [format!("missing-member b: {}", ids[1])]);
    assert_eq!(mended(&fixture).await, [Fault::MissingMember]);
    let status = worked(&fixture, &batch).await;
    assert_eq!((status.removed, status.succeeded), (1, 2));
}

#[tokio::test]
async fn what_nobody_carries_out_is_found_and_looked_at() {
    let fixture = Fixture::start().await;
    let (batch, _) = three(&fixture).await;
    let flows = Flows::new(fixture.broker.clone(), std::sync::Arc::new(SystemClock));
    let now = SystemClock.now_secs();
    let late = ((now + 600) * 1_000).to_string();
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:duties", "XX", &late, "flow b"]).await;
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:{b}:todo", "0", "rules 0"]).await;
    assert_eq!(found(&fixture).await, [r#"undone-batch b: "rules 0""#]);
    let mended: Vec<Fault> = fix(&fixture.inspector()).await.0;
    assert!(mended.contains(&Fault::UndoneBatch), "{mended:?}");
    let duty: f64 = fixture.cmd(&["ZSCORE", "asynq:x:duties", "flow b"]).await;
    assert!(duty < (SystemClock.now_secs() + 1) as f64 * 1_000.0, "{duty}");
    flows.tend("b").await.unwrap();
    assert_eq!(found(&fixture).await, [""; 0]);
    assert_eq!(worked(&fixture, &batch).await.state, BatchState::Succeeded);
    // Nobody leads, and the look is overdue: then there is nothing that the doctor could do.
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:{b}:todo", "0", "rules 0"]).await;
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:duties", &((now - 60) * 1_000).to_string(), "flow b"]).await;
    assert_eq!(found(&fixture).await, [r#"undone-batch b: "rules 0""#]);
    assert!(!fix(&fixture.inspector()).await.0.contains(&Fault::UndoneBatch));
}

#[tokio::test]
async fn what_is_carried_out_meanwhile_is_not_told_and_of_several_batches_the_others_are() {
    let fixture = Fixture::start().await;
    let late = ((SystemClock.now_secs() + 600) * 1_000).to_string();
    for root in ["a", "b", "c"] {
        client(&fixture).batch().id(root).add_all([member("ok")]).await.unwrap();
        let _: i64 = fixture.cmd(&["ZADD", "asynq:x:duties", "XX", &late, &format!("flow {root}")]).await;
        let _: i64 = fixture.cmd(&["ZADD", &format!("asynq:x:{{{root}}}:todo"), "0", "rules 0"]).await;
    }
    let somebody = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        fixture.cmd::<i64>(&["DEL", "asynq:x:{b}:todo"]).await
    };
    let (mut lines, _) = tokio::join!(found(&fixture), somebody);
    lines.sort();
    assert_eq!(lines, [r#"undone-batch a: "rules 0""#, r#"undone-batch c: "rules 0""#]);
}

#[tokio::test]
async fn what_is_not_wrong_or_does_not_matter_any_more_is_not_told() {
    let fixture = Fixture::start().await;
    // Whoever makes a batch lists it first.
    fixture.run(&format!("ZADD asynq:x:flows {} new", SystemClock.now_secs())).await;
    assert_eq!(found(&fixture).await, [""; 0], "it is being made");
    let workflow = client(&fixture).workflow().id("w").task("a", member("ok")).task("b", member("ok")).after(["a"]);
    workflow.start().await.unwrap();
    fixture.run("HDEL asynq:x:{w}:0:flow committed").await;
    fixture.run("HDEL asynq:x:{w}:0:names b").await;
    assert_eq!(found(&fixture).await, [""; 0], "its nodes are being described");
    let (_, ledger) = three(&fixture).await;
    let ids: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    let of_b: Vec<&String> = ids.iter().filter(|id| id.starts_with("flow:b~")).collect();
    fixture.run(&format!("HSET {ledger} adding 0")).await;
    super::left_alone::move_to(&fixture, of_b[0], "q}p9").await;
    assert_eq!(found(&fixture).await, [""; 0], "its task was moved");
    fixture.run(&format!("DEL asynq:{{q}}:t:{}", of_b[1])).await;
    fixture.run(&format!("LREM asynq:{{q}}:pending 1 {}", of_b[1])).await;
    let entry = format!("{}.1 ok {}", SystemClock.now_secs(), of_b[1]);
    let _: i64 = fixture.cmd(&["RPUSH", "asynq:{q}:x:outcomes:late", &entry]).await;
    let _: i64 = fixture.cmd(&["SADD", "asynq:{q}:x:outcome-lists", "asynq:{q}:x:outcomes:late"]).await;
    assert_eq!(found(&fixture).await, [""; 0], "its outcome is told");
    for field in ["forgotten", "over", "fired:success"] {
        fixture.run(&format!("HSET {ledger} c2 7 {field} 1")).await;
        assert_eq!(found(&fixture).await, [""; 0], "{field}");
        fixture.run(&format!("HDEL {ledger} {field}")).await;
    }
    assert_eq!(found(&fixture).await, [r#"batch-count b: c2 is "7" and not 3"#]);
}

#[tokio::test]
async fn what_is_there_at_the_second_look_was_on_its_way() {
    let fixture = Fixture::start().await;
    let (_, ledger) = three(&fixture).await;
    let ids: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    fixture.run(&format!("HSET {ledger} adding 0")).await;
    let (task, aside) = (format!("asynq:{{q}}:t:{}", ids[0]), "asynq:{q}:t:aside");
    fixture.run(&format!("RENAME {task} {aside}")).await;
    let somebody = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        fixture.run(&format!("RENAME {aside} {task}")).await;
    };
    let (lines, ()) = tokio::join!(found(&fixture), somebody);
    assert_eq!(lines, [""; 0]);
}

#[tokio::test]
async fn of_many_all_are_looked_at() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().id("b").open().await.unwrap();
    batch.child().add_all([member("ok")]).await.unwrap();
    batch.add_all((0..150).map(|_| member("ok"))).await.unwrap();
    batch.commit().await.unwrap();
    for number in 0..600 {
        fixture.run(&format!("ZADD asynq:x:flows 1700000000 lost-{number}")).await;
    }
    let ids: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    for id in ids.iter().filter(|id| id.contains(":0:")) {
        fixture.run(&format!("DEL asynq:{{q}}:t:{id}")).await;
    }
    fixture.run("DEL asynq:{q}:pending").await;
    fixture.run("HSET asynq:x:{b}:0:flow adding 0").await;
    fixture.run("HSET asynq:x:{b}:1:flow c2 5").await;
    let lines = found(&fixture).await;
    let (lost, mut others): (Vec<String>, Vec<String>) = lines.into_iter().partition(|it| it.starts_with("lost-batch"));
    others.sort();
    let first = ids.iter().find(|id| id.ends_with(":0:1")).unwrap();
    let missing = format!("missing-member b: 100 members or more, the first is {first}");
    assert_eq!((lost.len(), others), (600, vec![r#"batch-count b:1: c2 is "5" and not 1"#.to_owned(), missing]));
}

#[tokio::test]
async fn a_workflow_in_pieces_is_found() {
    let fixture = Fixture::start().await;
    let workflow = client(&fixture).workflow().id("w").task("a", member("ok")).task("b", member("ok")).after(["a"]);
    workflow.start().await.unwrap();
    assert_eq!(found(&fixture).await, [""; 0], "before any damage");
    fixture.run("HDEL asynq:x:{w}:0:names b").await;
    assert_eq!(found(&fixture).await, ["broken-workflow w: 1 of 2 nodes have no name"]);
    fixture.run("HDEL asynq:x:{w}:0:messages 1").await;
    assert_eq!(found(&fixture).await, ["broken-workflow w: 1 of 2 nodes have no task"]);
}

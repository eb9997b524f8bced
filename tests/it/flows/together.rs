//! What becomes of many batches at once is written by few calls, and one that cannot be written is not in the way of the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use queue_core::SystemClock;
use queue_core::flow::{MemberId, MemberOutcome};
use queue_redis::flow::Flows;
use queue_redis::{Batch, BatchState, Client};

use super::{callback, member};
use crate::support::{Fixture, QUEUE};

/// A member of a batch that has an id of its user's, as it stands in its queue.
async fn first_of(fixture: &Fixture, root: &str) -> MemberId {
    let pending: Vec<String> = fixture.cmd(&["LRANGE", &format!("asynq:{{{QUEUE}}}:pending"), "0", "-1"]).await;
    let id = pending.iter().find(|id| id.starts_with(&format!("flow:{root}~"))).unwrap();
    MemberId::of(id).unwrap()
}

fn flows(fixture: &Fixture) -> Flows {
    Flows::new(fixture.broker.clone(), Arc::new(SystemClock))
}

async fn states(batches: &[Batch]) -> Vec<BatchState> {
    let mut states = Vec::new();
    for batch in batches {
        states.push(batch.status().await.unwrap().state);
    }
    states
}

async fn called(fixture: &Fixture) -> usize {
    fixture.cmd(&["LLEN", "asynq:{callbacks}:pending"]).await
}

#[tokio::test]
async fn the_ends_of_many_batches_and_their_callbacks_take_few_calls() {
    const BATCHES: usize = 16;
    let fixture = Fixture::start().await;
    let (mut batches, mut ended) = (Vec::new(), Vec::new());
    for n in 0..BATCHES {
        let root = format!("b{n}");
        let builder = super::client(&fixture).batch().id(&root).on_success(callback("success"));
        batches.push(builder.add_all([member("ok")]).await.unwrap());
        ended.push((first_of(&fixture, &root).await, MemberOutcome::Ok));
    }
    let calls: Arc<Mutex<BTreeMap<&str, usize>>> = Arc::default();
    let counted = calls.clone();
    fixture.broker.redis().on_call(move |call| *counted.lock().unwrap().entry(call.operation).or_default() += 1);
    flows(&fixture).record(ended).await.unwrap();
    assert_eq!(called(&fixture).await, BATCHES);
    let calls = calls.lock().unwrap().clone();
    // Eight trees in a call, 25 tasks of a queue in one.
    for (call, count) in [("flow_record", 2), ("flow_carried", 2), ("store_once", 1), ("SADD", 1)] {
        assert_eq!(calls.get(call), Some(&count), "{call}: {calls:?}");
    }
    for batch in &batches {
        let status = batch.status().await.unwrap();
        assert_eq!(status.succeeded, 1, "{status:?}");
    }
}

#[tokio::test]
async fn a_batch_that_cannot_be_written_is_not_in_the_way_of_others() {
    let fixture = Fixture::start().await;
    let (mut batches, mut ended) = (Vec::new(), Vec::new());
    for root in ["a", "b", "c"] {
        let builder = super::client(&fixture).batch().id(root).on_success(callback("success"));
        batches.push(builder.add_all([member("ok")]).await.unwrap());
        ended.push((first_of(&fixture, root).await, MemberOutcome::Ok));
    }
    fixture.run("RENAME asynq:x:{b}:0:flow asynq:x:{b}:0:names").await;
    fixture.run("SET asynq:x:{b}:0:flow text").await;
    let error = flows(&fixture).record(ended.clone()).await.unwrap_err();
    assert!(error.is_wrong_type(), "{error}");
    // Of the first and the third, all was done.
    assert_eq!(called(&fixture).await, 2);
    fixture.run("RENAME asynq:x:{b}:0:names asynq:x:{b}:0:flow").await;
    flows(&fixture).record(ended).await.unwrap();
    assert_eq!(called(&fixture).await, 3);
    assert!(states(&batches).await.iter().all(|state| *state == BatchState::Running), "{:?}", states(&batches).await);
}

#[tokio::test]
async fn what_was_told_of_a_batch_that_cannot_be_written_waits_and_the_rest_is_recorded() {
    let fixture = Fixture::start().await;
    let list = "asynq:{q}:x:outcomes:gone";
    fixture.run(&format!("SADD asynq:{{q}}:x:outcome-lists {list}")).await;
    let mut told = Vec::new();
    for (n, root) in ["a", "b", "c"].into_iter().enumerate() {
        super::client(&fixture).batch().id(root).on_success(callback("success")).add_all([member("ok")]).await.unwrap();
        told.push(format!("1.{n} ok {}", first_of(&fixture, root).await));
        let _: i64 = fixture.cmd(&["RPUSH", list, &told[n]]).await;
    }
    fixture.run("RENAME asynq:x:{b}:0:flow asynq:x:{b}:0:names").await;
    fixture.run("SET asynq:x:{b}:0:flow text").await;
    let left = async || fixture.cmd::<Vec<String>>(&["LRANGE", list, "0", "-1"]).await;
    flows(&fixture).tend_queue(QUEUE).await.unwrap();
    assert_eq!((called(&fixture).await, left().await), (2, vec![told[1].clone()]));
    fixture.run("RENAME asynq:x:{b}:0:names asynq:x:{b}:0:flow").await;
    flows(&fixture).tend_queue(QUEUE).await.unwrap();
    assert_eq!((called(&fixture).await, left().await), (3, vec![]));
}

/// A queue whose list has another type, among others.
#[tokio::test]
async fn a_callback_that_cannot_be_stored_is_not_in_the_way_of_others() {
    let fixture = Fixture::start().await;
    let mut ended = Vec::new();
    for root in ["a", "b", "c"] {
        let queue = if root == "b" { "broken" } else { "callbacks" };
        let callback = callback("success").queue(queue);
        super::client(&fixture).batch().id(root).on_success(callback).add_all([member("ok")]).await.unwrap();
        ended.push((first_of(&fixture, root).await, MemberOutcome::Ok));
    }
    fixture.run("SADD asynq:{broken}:pending x").await;
    flows(&fixture).record(ended).await.unwrap_err();
    assert_eq!(called(&fixture).await, 2);
    let todo: Vec<usize> = {
        let mut left = Vec::new();
        for root in ["a", "b", "c"] {
            left.push(fixture.cmd(&["ZCARD", &format!("asynq:x:{{{root}}}:todo")]).await);
        }
        left
    };
    assert_eq!(todo, [0, 1, 0], "what is left to be done");
}

/// One call goes up so many levels in all trees together.
#[tokio::test]
async fn deep_trees_end_together() {
    const LEVELS: usize = 20;
    let fixture = Fixture::start().await;
    let client: Client = super::client(&fixture);
    let (mut roots, mut ended) = (Vec::new(), Vec::new());
    for n in 0..8 {
        let root = client.batch().id(format!("deep{n}")).on_success(callback("success")).open().await.unwrap();
        let mut levels = vec![root];
        for _ in 1..LEVELS {
            let child = levels[levels.len() - 1].child().open().await.unwrap();
            levels.push(child);
        }
        levels[LEVELS - 1].add_all([member("ok")]).await.unwrap();
        for level in &levels {
            level.commit().await.unwrap();
        }
        ended.push((first_of(&fixture, &format!("deep{n}")).await, MemberOutcome::Ok));
        roots.push(levels.swap_remove(0));
    }
    flows(&fixture).record(ended).await.unwrap();
    assert_eq!(called(&fixture).await, 8, "{:?}", states(&roots).await);
}

//! What becomes of a batch when somebody dies, or moves its tasks without telling it.

use std::time::Duration;

use queue_admin::{Actor, Admin, Filter, OperationSpec, Pace, Role, Work};
use queue_core::flow::MemberState;
use queue_core::options::compose;
use queue_core::{Clock as _, SystemClock, TaskState, keys};
use queue_redis::broker::{Bin, Seen, Undeleted};
use queue_redis::flow::{Flows, TendTree};
use queue_redis::leader::Duty as _;
use queue_redis::{BatchState, Redis};

use super::model::script;
use super::{Ran, callback, client, flow_keys, member, over, router, server, tend};
use crate::support::{Fixture, Go, Proxy, QUEUE, eventually, report};

/// Lets a flow stand still for so long that its members are looked for.
pub(super) async fn stands_still(fixture: &Fixture, root: &str) {
    let key = format!("asynq:x:{{{root}}}:0:flow");
    let long_ago = (SystemClock.now_secs() - 3_600).to_string();
    let _: i64 = fixture.cmd(&["HSET", &key, "touched", &long_ago, "looked", &long_ago, "adding", "0"]).await;
}

#[tokio::test]
async fn what_a_dead_process_has_told_the_leader_records() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().on_success(callback("success")).add_all([member("ok")]).await.unwrap();
    let delivery = fixture.take().await;
    // Nobody records: this broker has no recorder.
    let long_ago = SystemClock.now_secs() - 3_600;
    fixture.broker.done(QUEUE, &[report(&delivery)], long_ago).await.unwrap();
    assert_eq!(batch.status().await.unwrap().succeeded, 0);
    tend(&fixture, &batch).await;
    let status = batch.status().await.unwrap();
    assert_eq!((status.succeeded, status.live()), (1, 0));
    let waiting: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{callbacks}:pending", "0", "-1"]).await;
    assert_eq!(waiting, [format!("flow:{}:0:success", batch.id())]);
    assert_eq!(fixture.keyspace().await.paths_with("outcome"), Vec::<String>::new());
}

/// The next task, as Go does it: by the retention in the message, and without telling anybody.
async fn complete_as_go(fixture: &Fixture) {
    let delivery = fixture.take().await;
    let now = SystemClock.now_secs();
    let id = &delivery.message.id;
    fixture.run(&format!("LREM asynq:{{q}}:active 0 {id}")).await;
    fixture.run(&format!("ZREM asynq:{{q}}:lease {id}")).await;
    fixture.run(&format!("ZADD asynq:{{q}}:completed {} {id}", now + delivery.message.retention)).await;
    fixture.run(&format!("HSET asynq:{{q}}:t:{id} state completed")).await;
}

#[tokio::test]
async fn what_go_has_completed_is_collected() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().on_success(callback("success")).add_all([member("ok")]).await.unwrap();
    complete_as_go(&fixture).await;
    tend(&fixture, &batch).await;
    assert_eq!(batch.status().await.unwrap().succeeded, 1);
    let left: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:t:*"]).await;
    assert_eq!(left, Vec::<String>::new());
    let waiting: i64 = fixture.cmd(&["LLEN", "asynq:{callbacks}:pending"]).await;
    assert_eq!(waiting, 1);
}

/// It was deleted with those that wait, and counted as cancelled.
#[tokio::test]
async fn what_go_has_completed_when_its_batch_is_cancelled_has_succeeded() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().add_all([member("ok"), member("ok")]).await.unwrap();
    complete_as_go(&fixture).await;
    batch.cancel().await.unwrap();
    tend(&fixture, &batch).await;
    let status = batch.status().await.unwrap();
    assert_eq!((status.succeeded, status.cancelled, status.state), (1, 1, BatchState::Cancelled));
}

#[tokio::test]
async fn a_member_that_was_deleted_is_noticed_when_the_batch_stands_still() {
    let fixture = Fixture::start().await;
    let batch =
        client(&fixture).batch().on_death(callback("death")).add_all([member("ok"), member("ok")]).await.unwrap();
    let root = batch.id().root().to_owned();
    fixture.broker.delete_tasks(QUEUE, Seen::Anywhere, &[format!("flow:{root}:0:1")]).await.unwrap();
    tend(&fixture, &batch).await;
    assert_eq!(batch.status().await.unwrap().removed, 0, "it has not stood still for long");
    stands_still(&fixture, &root).await;
    tend(&fixture, &batch).await;
    let status = batch.status().await.unwrap();
    assert_eq!((status.removed, status.sent, status.state), (1, 1, BatchState::Doomed));
    let flows = Flows::new(fixture.broker.clone(), std::sync::Arc::new(queue_core::SystemClock));
    let (all, next) = flows.members(batch.id(), None, 0, 1).await.unwrap();
    assert_eq!((all[0].id.as_str(), all[0].state, next), (&*format!("flow:{root}:0:0"), MemberState::Sent, Some(1)));
    let (removed, next) = flows.members(batch.id(), Some(MemberState::Removed), 0, 1).await.unwrap();
    assert_eq!((removed[0].queue.as_str(), removed.len(), next), (QUEUE, 1, None));
}

#[tokio::test]
async fn a_batch_is_looked_at_again_soon_where_a_look_has_found_something_and_else_after_its_pause() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().add_all([member("ok"), member("ok")]).await.unwrap();
    let root = batch.id().root();
    let flows = Flows::new(fixture.broker.clone(), std::sync::Arc::new(SystemClock));
    stands_still(&fixture, root).await;
    assert_eq!(flows.tend(root).await.unwrap(), Some(Duration::from_secs(60)), "the second pause");
    fixture.broker.delete_tasks(QUEUE, Seen::Anywhere, &[format!("flow:{root}:0:1")]).await.unwrap();
    stands_still(&fixture, root).await;
    assert_eq!(flows.tend(root).await.unwrap(), Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn a_member_that_comes_back_from_the_bin_is_no_longer_removed() {
    let fixture = Fixture::start().await;
    let batch =
        client(&fixture).batch().on_death(callback("death")).add_all([member("ok"), member("ok")]).await.unwrap();
    let root = batch.id().root().to_owned();
    let (id, bin) = (format!("flow:{root}:0:1"), Bin::new("op", 0));
    let now_ms = SystemClock.now_secs() * 1_000;
    let changes = fixture.broker.bin_tasks(QUEUE, Seen::Anywhere, &[&id], bin, now_ms).await.unwrap().unwrap();
    assert!(changes[0].is_done());
    stands_still(&fixture, &root).await;
    tend(&fixture, &batch).await;
    assert_eq!(batch.status().await.unwrap().removed, 1);
    let back = fixture.broker.undelete_tasks(QUEUE, &[&id], bin, now_ms).await.unwrap();
    assert_eq!(back, [Undeleted::Restored]);
    // The leader looks into the list of a process that says nothing more.
    Flows::new(fixture.broker.clone(), std::sync::Arc::new(queue_core::SystemClock)).tend_queue(QUEUE).await.unwrap();
    tend(&fixture, &batch).await;
    let later = std::sync::Arc::new(queue_core::clock::ManualClock::at_secs(SystemClock.now_secs() + 3_600));
    Flows::new(fixture.broker.clone(), later).tend_queue(QUEUE).await.unwrap();
    let status = batch.status().await.unwrap();
    assert_eq!((status.removed, status.sent), (0, 2));
}

#[tokio::test]
async fn a_dead_member_that_comes_back_from_the_bin_has_not_run_again() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().on_settled(callback("settled")).add_all([member("ok")]).await.unwrap();
    let id = format!("flow:{}:0:0", batch.id().root());
    let inspector = fixture.inspector();
    inspector.archive_task(QUEUE, &id).await.unwrap();
    let before = batch.status().await.unwrap();
    assert_eq!((before.dead, before.removed), (1, 0));
    let (bin, now_ms) = (Bin::new("op", 0), SystemClock.now_secs() * 1_000);
    let changes = fixture.broker.bin_tasks(QUEUE, Seen::Anywhere, &[&id], bin, now_ms).await.unwrap().unwrap();
    assert!(changes[0].is_done());
    let back = fixture.broker.undelete_tasks(QUEUE, &[&id], bin, now_ms).await.unwrap();
    assert_eq!(back, [Undeleted::Restored]);
    let later = std::sync::Arc::new(queue_core::clock::ManualClock::at_secs(SystemClock.now_secs() + 3_600));
    Flows::new(fixture.broker.clone(), later).tend_queue(QUEUE).await.unwrap();
    let after = batch.status().await.unwrap();
    assert_eq!((after.dead, after.state, after.generation), (1, before.state, before.generation));
}

/// Puts a task that is pending into a queue of the same family.
pub(super) async fn move_to(fixture: &Fixture, id: &str, queue: &str) {
    fixture.broker.publish_queue(queue).await.unwrap();
    let _: String =
        fixture.cmd(&["RENAME", &format!("asynq:{{q}}:t:{id}"), &format!("asynq:{{{queue}}}:t:{id}")]).await;
    let _: i64 = fixture.cmd(&["LREM", "asynq:{q}:pending", "1", id]).await;
    let _: i64 = fixture.cmd(&["LPUSH", &format!("asynq:{{{queue}}}:pending"), id]).await;
}

#[tokio::test]
async fn a_member_that_was_moved_within_its_family_is_not_lost_and_is_cancelled_where_it_is() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().add_all([member("ok"), member("ok"), member("ok")]).await.unwrap();
    let root = batch.id().root().to_owned();
    move_to(&fixture, &format!("flow:{root}:0:0"), "q}p9").await;
    move_to(&fixture, &format!("flow:{root}:0:1"), "q}@web-1").await;
    // Another queue is none of the family, whatever it has.
    move_to(&fixture, &format!("flow:{root}:0:2"), "other").await;
    stands_still(&fixture, &root).await;
    tend(&fixture, &batch).await;
    let status = batch.status().await.unwrap();
    assert_eq!((status.sent, status.removed), (2, 1));
    // What became of one there is noticed.
    let _: i64 = fixture.cmd(&["HSET", &format!("asynq:{{q}}@web-1}}:t:flow:{root}:0:1"), "state", "completed"]).await;
    stands_still(&fixture, &root).await;
    tend(&fixture, &batch).await;
    assert_eq!(batch.status().await.unwrap().succeeded, 1);
    batch.cancel().await.unwrap();
    let status = batch.status().await.unwrap();
    assert_eq!((status.cancelled, status.sent), (1, 0));
    assert_eq!(fixture.cmd::<i64>(&["LLEN", "asynq:{q}p9}:pending"]).await, 0);
}

/// The clock of a host that is so many hours ahead.
#[derive(Debug)]
struct Ahead(i64);

impl queue_core::Clock for Ahead {
    fn now_ns(&self) -> i64 {
        SystemClock.now_ns() + self.0 * 3_600 * 1_000_000_000
    }
}

#[tokio::test]
async fn nobody_takes_members_for_lost_that_are_being_added_whatever_his_clock_says() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().open().await.unwrap();
    batch.add_all([member("ok")]).await.unwrap();
    let root = batch.id().root().to_owned();
    // Its task is not there yet, or no longer: who adds it has a minute.
    fixture.broker.delete_tasks(QUEUE, Seen::Anywhere, &[format!("flow:{root}:0:0")]).await.unwrap();
    let key = format!("asynq:x:{{{root}}}:0:flow");
    let _: i64 = fixture.cmd(&["HSET", &key, "touched", "1", "looked", "1", "committed", "1"]).await;
    let flows = Flows::new(fixture.broker.clone(), std::sync::Arc::new(Ahead(7)));
    let next = flows.tend(&root).await.unwrap().unwrap();
    assert!(next.as_secs() <= 60, "{next:?}");
    assert_eq!(batch.status().await.unwrap().removed, 0);
    let _: i64 = fixture.cmd(&["HSET", &key, "adding", "1"]).await;
    flows.tend(&root).await.unwrap();
    assert_eq!(batch.status().await.unwrap().removed, 1);
}

#[tokio::test]
async fn a_batch_is_looked_after_in_time_although_the_clock_of_its_maker_is_ahead() {
    let fixture = Fixture::start().await;
    let client = queue_redis::Client::with_clock(fixture.redis(), std::sync::Arc::new(Ahead(7)));
    let batch = client.batch().add_all([member("ok")]).await.unwrap();
    let look = |duty: String| {
        let fixture = &fixture;
        async move { fixture.cmd::<f64>(&["ZSCORE", "asynq:x:duties", &duty]).await / 1_000.0 }
    };
    let in_a_minute = (SystemClock.now_secs() + 60) as f64;
    assert!(look(format!("flow {}", batch.id().root())).await < in_a_minute);
    assert!(look(format!("members {QUEUE}")).await < in_a_minute);
}

#[tokio::test]
async fn a_batch_is_looked_after_although_the_leader_came_before_there_was_a_tree() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::start(fixture.socket()).await;
    let redis = Redis::connect(&proxy.url()).await.unwrap();
    let client = queue_redis::Client::with_clock(redis.clone(), std::sync::Arc::new(Ahead(-1)));
    // The tree is listed, and its maker does not learn it: he stands still, or the answer is on its way.
    proxy.hold_answers_to(keys::FLOWS, 2);
    let making = tokio::spawn(client.batch().id("slow").add_all([member("ok")]));
    eventually("the leader has looked", async || fixture.cmd::<i64>(&["ZREM", keys::DUTIES, "flow slow"]).await == 1)
        .await;
    let _: i64 = redis.query("EXISTS", redis::cmd("EXISTS").arg(keys::FLOWS)).await.unwrap();
    making.await.unwrap().unwrap();
    let due: Option<f64> = fixture.cmd(&["ZSCORE", keys::DUTIES, "flow slow"]).await;
    assert!(due.is_some());
}

#[tokio::test]
async fn an_outcome_that_nobody_has_recorded_wins_over_the_guess_that_the_task_is_lost() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().add_all([member("ok")]).await.unwrap();
    let delivery = fixture.take().await;
    // Told just now, so that the leader leaves it to whoever has told it.
    fixture.broker.done(QUEUE, &[report(&delivery)], SystemClock.now_secs()).await.unwrap();
    stands_still(&fixture, batch.id().root()).await;
    tend(&fixture, &batch).await;
    let status = batch.status().await.unwrap();
    assert_eq!((status.succeeded, status.removed), (1, 0));
}

#[tokio::test]
async fn a_callback_that_nobody_has_enqueued_the_leader_enqueues_once() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().on_success(callback("success")).open().await.unwrap();
    let root = batch.id().root().to_owned();
    // Whoever committed it was lost before it had carried anything out.
    let todo = format!("asynq:x:{{{root}}}:todo");
    batch.commit().await.unwrap();
    let _: i64 = fixture.cmd(&["DEL", "asynq:{callbacks}:pending"]).await;
    let _: i64 = fixture
        .cmd(&["DEL", &format!("asynq:{{callbacks}}:t:flow:{root}:0:success"), "asynq:{callbacks}:x:once"])
        .await;
    let _: i64 = fixture.cmd(&["ZADD", &todo, "1", "call 0 success 1"]).await;
    tend(&fixture, &batch).await;
    let waiting: i64 = fixture.cmd(&["LLEN", "asynq:{callbacks}:pending"]).await;
    assert_eq!(waiting, 1);
    // And again: the answer was lost, or another one does it too.
    let _: i64 = fixture.cmd(&["ZADD", &todo, "1", "call 0 success 1"]).await;
    let taken = fixture.take_from("callbacks").await;
    fixture.broker.done("callbacks", &[report(&taken)], SystemClock.now_secs()).await.unwrap();
    tend(&fixture, &batch).await;
    let waiting: i64 = fixture.cmd(&["LLEN", "asynq:{callbacks}:pending"]).await;
    assert_eq!(waiting, 0);
    let todo: i64 = fixture.cmd(&["EXISTS", &todo]).await;
    assert_eq!(todo, 0);
}

#[tokio::test]
async fn a_batch_past_its_deadline_is_cancelled() {
    let fixture = Fixture::start().await;
    let past = SystemClock.now() - std::time::Duration::from_secs(2);
    let batch = client(&fixture).batch().deadline(past).add_all([member("ok")]).await.unwrap();
    tend(&fixture, &batch).await;
    tend(&fixture, &batch).await;
    let status = batch.status().await.unwrap();
    assert_eq!((status.state, status.cancelled, status.is_over()), (BatchState::Cancelled, 1, true));
    let left: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:t:*"]).await;
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn a_batch_that_is_over_is_forgotten_whole() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().linger(std::time::Duration::from_secs(1)).open().await.unwrap();
    for _ in 0..60 {
        batch.child().add_all(Vec::<queue_core::RawTask>::new()).await.unwrap();
    }
    batch.commit().await.unwrap();
    assert!(batch.status().await.unwrap().is_over());
    let flow = format!("asynq:x:{{{}}}:0:flow", batch.id());
    let _: i64 = fixture.cmd(&["HSET", &flow, "over", "1"]).await;
    tend(&fixture, &batch).await;
    assert_eq!(flow_keys(&fixture).await, Vec::<String>::new());
    let listed: i64 = fixture.cmd(&["EXISTS", "asynq:x:flows"]).await;
    assert_eq!(listed, 0);
}

#[tokio::test]
async fn a_run_that_lost_its_task_tells_nothing() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().add_all([member("ok")]).await.unwrap();
    let delivery = fixture.take().await;
    fixture.run(&format!("ZADD asynq:{{q}}:lease 1 {}", delivery.message.id)).await;
    fixture.broker.done(QUEUE, &[report(&delivery)], 1).await.unwrap();
    tend(&fixture, &batch).await;
    assert_eq!(batch.status().await.unwrap().succeeded, 0);
}

/// Two servers record what they have told, and the one with the first failure was cut off meanwhile.
#[tokio::test]
async fn a_failure_that_is_told_late_brings_no_dead_member_to_life() {
    let fixture = Fixture::start().await;
    let builder = client(&fixture).batch().on_death(callback("death")).on_settled(callback("settled"));
    let batch = builder.add_all([member("ok")]).await.unwrap();
    let delivery = fixture.take().await;
    let long_ago = SystemClock.now_secs() - 3_600;
    fixture.broker.archive(&report(&delivery), &delivery.message.to_bytes(), long_ago).await.unwrap();
    tend(&fixture, &batch).await;
    assert_eq!(batch.status().await.unwrap().dead, 1);
    let (list, entry) = ("asynq:{q}:x:outcomes:late", format!("{long_ago}.1 failing {}", delivery.message.id));
    let _: i64 = fixture.cmd(&["RPUSH", list, &entry]).await;
    let _: i64 = fixture.cmd(&["SADD", "asynq:{q}:x:outcome-lists", list]).await;
    tend(&fixture, &batch).await;
    let status = batch.status().await.unwrap();
    assert_eq!((status.dead, status.failing, status.generation), (1, 0, 1));
    let waiting: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{callbacks}:pending", "0", "-1"]).await;
    assert_eq!(waiting, [format!("flow:{}:0:death", batch.id())]);
}

#[tokio::test]
async fn an_outcome_counts_that_was_told_by_a_clock_ahead_of_the_leaders() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().open().await.unwrap().keyed("rows");
    batch.add_all([member("ok")]).await.unwrap();
    let delivery = fixture.take().await;
    fixture.broker.done(QUEUE, &[report(&delivery)], SystemClock.now_secs() + 5).await.unwrap();
    // It has run: whoever adds the same again, and was not told that it had been added, adds nothing.
    let keys = format!("asynq:x:{{{}}}:0:keys", batch.id());
    let _: i64 = fixture.cmd(&["HSET", &keys, "add:rows#0.0", "0-0"]).await;
    batch.clone().keyed("rows").add_all([member("ok")]).await.unwrap();
    assert_eq!(fixture.cmd::<i64>(&["EXISTS", "asynq:{q}:pending"]).await, 0, "it runs a second time");
    stands_still(&fixture, batch.id().root()).await;
    tend(&fixture, &batch).await;
    let status = batch.status().await.unwrap();
    assert_eq!((status.succeeded, status.removed), (1, 0));
}

#[tokio::test]
async fn what_redis_refuses_to_enqueue_keeps_no_outcome_behind_it_from_being_recorded() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().add_all([member("ok")]).await.unwrap();
    let _: String = fixture.cmd(&["SET", "asynq:{closed}:pending", "something else"]).await;
    let task = queue_core::RawTask::new("pay").on_exhausted("alert").on_exhausted_queue("closed");
    let archived = compose(task, queue_core::TaskOptions::new(), 1_000_000_000).unwrap().message;
    let list = "asynq:{q}:x:outcomes:dead";
    for n in 0..150 {
        let entry = queue_core::exhausted::FollowUp::of(&archived, 1).unwrap().to_entry(&format!("1.{n}"));
        let _: i64 = fixture.cmd(&["RPUSH", list, &entry]).await;
    }
    let id = fixture.take().await.message.id;
    fixture.broker.delete_tasks(QUEUE, Seen::Anywhere, &[&id]).await.unwrap();
    let _: i64 = fixture.cmd(&["DEL", "asynq:{q}:active", "asynq:{q}:lease", &format!("asynq:{{q}}:t:{id}")]).await;
    let _: i64 = fixture.cmd(&["RPUSH", list, &format!("2.1 ok {id}")]).await;
    let _: i64 = fixture.cmd(&["SADD", "asynq:{q}:x:outcome-lists", list]).await;
    tend(&fixture, &batch).await;
    assert_eq!(batch.status().await.unwrap().succeeded, 1);
    assert_eq!(fixture.cmd::<i64>(&["LLEN", list]).await, 150, "they stay until Redis takes them");
    let _: i64 = fixture.cmd(&["DEL", "asynq:{closed}:pending"]).await;
    tend(&fixture, &batch).await;
    assert_eq!(fixture.cmd::<i64>(&["LLEN", "asynq:{closed}:pending"]).await, 150);
    assert_eq!(fixture.keyspace().await.paths_with("outcome"), Vec::<String>::new());
}

#[tokio::test]
async fn members_that_go_has_completed_and_that_are_kept_for_long_are_collected_once() {
    let fixture = Fixture::start().await;
    let kept = || member("ok").retention(std::time::Duration::from_secs(6 * 365 * 24 * 3_600));
    let batch = client(&fixture).batch().add_all((0..60).map(|_| kept())).await.unwrap();
    let now = SystemClock.now_secs();
    for _ in 0..60 {
        let message = fixture.take().await.message;
        fixture.run(&format!("ZADD asynq:{{q}}:completed {} {}", now + message.retention, message.id)).await;
        fixture.run(&format!("HSET asynq:{{q}}:t:{} state completed", message.id)).await;
    }
    let _: i64 = fixture.cmd(&["DEL", "asynq:{q}:active", "asynq:{q}:lease"]).await;
    tokio::time::timeout(crate::support::PATIENCE, tend(&fixture, &batch)).await.expect("the look comes to an end");
    assert_eq!(batch.status().await.unwrap().succeeded, 60);
    assert_eq!(fixture.cmd::<i64>(&["ZCARD", "asynq:{q}:completed"]).await, 60);
    let flows = Flows::new(fixture.broker.clone(), std::sync::Arc::new(queue_core::SystemClock));
    assert!(!flows.tend_queue(QUEUE).await.unwrap(), "there is nothing left to do");
}

#[tokio::test]
async fn a_callback_that_redis_refuses_keeps_no_other_entry_of_its_tree_from_being_done_with() {
    let fixture = Fixture::start().await;
    let root = client(&fixture).batch().open().await.unwrap();
    for queue in ["closed", "callbacks"] {
        let success = queue_core::RawTask::new("success").queue(queue);
        root.child().on_success(success).open().await.unwrap();
    }
    let _: String = fixture.cmd(&["SET", "asynq:{closed}:pending", "something else"]).await;
    let todo = format!("asynq:x:{{{}}}:todo", root.id());
    // Two children are committed by somebody who dies before he has carried anything out.
    for child in [1, 2] {
        let flow = format!("asynq:x:{{{}}}:{child}:flow", root.id());
        let _: i64 =
            fixture.cmd(&["HSET", &flow, "committed", "1", "fired:success", "1", "callback:success", "due"]).await;
        let _: i64 = fixture.cmd(&["ZADD", &todo, "0", &format!("call {child} success 1")]).await;
    }
    let flows = Flows::new(fixture.broker.clone(), std::sync::Arc::new(queue_core::SystemClock));
    assert!(flows.tend(root.id().root()).await.is_err());
    assert_eq!(fixture.cmd::<i64>(&["LLEN", "asynq:{callbacks}:pending"]).await, 1);
    assert_eq!(fixture.cmd::<Vec<String>>(&["ZRANGE", &todo, "0", "-1"]).await, ["call 1 success 1"]);
}

#[tokio::test]
async fn what_our_tools_do_to_members_their_batch_learns_at_once() {
    let fixture = Fixture::start().await;
    let members = (0..6).map(|_| member("ok"));
    let batch = client(&fixture).batch().on_death(callback("death")).add_all(members).await.unwrap();
    let id = |n: u32| format!("flow:{}:0:{n}", batch.id().root());
    let inspector = fixture.inspector();
    inspector.archive_task(QUEUE, &id(0)).await.unwrap();
    inspector.delete_task(QUEUE, &id(1)).await.unwrap();
    inspector.cancel_for_good(QUEUE, &id(2), "ann").await.unwrap();
    let status = batch.status().await.unwrap();
    assert_eq!((status.dead, status.removed, status.sent), (2, 1, 3));
    assert_eq!(fixture.cmd::<u64>(&["LLEN", "asynq:{callbacks}:pending"]).await, 1);
    inspector.run_task(QUEUE, &id(0)).await.unwrap();
    let status = batch.status().await.unwrap();
    assert_eq!((status.dead, status.sent), (1, 4));
    // Many at once; one that has completed, which nobody has collected, has succeeded all the same.
    fixture.run(&format!("LREM asynq:{{q}}:pending 0 {}", id(5))).await;
    fixture.run(&format!("ZADD asynq:{{q}}:completed {} {}", SystemClock.now_secs() + 1_000, id(5))).await;
    fixture.run(&format!("HSET asynq:{{q}}:t:{} state completed", id(5))).await;
    for state in [TaskState::Pending, TaskState::Completed] {
        inspector.delete_all(QUEUE, &Filter::new().state(state), |_| {}).await.unwrap();
    }
    let status = batch.status().await.unwrap();
    assert_eq!((status.dead, status.removed, status.succeeded, status.sent), (1, 4, 1, 0));
}

#[tokio::test]
async fn a_batch_learns_at_once_which_members_an_operation_deletes_by_their_ids() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().on_success(callback("success")).add_all([member("a"), member("b")]);
    let batch = batch.await.unwrap();
    let inspector = fixture.inspector();
    let ada =
        Admin::new(inspector.clone(), Actor { name: "ada".to_owned(), role: Role::Admin, via: "test", address: None });
    for (n, bin) in [(0, true), (1, false)] {
        let ids = vec![format!("flow:{}:0:{n}", batch.id().root())];
        let spec = OperationSpec { bin, ..OperationSpec::of_ids(Work::Delete, QUEUE, ids) };
        let operation = ada.start_operation(spec, None).await.unwrap();
        inspector.run_operation(&operation.id, Pace::Full, |_| {}).await.unwrap();
        assert_eq!(batch.status().await.unwrap().removed, n + 1, "{bin}");
    }
}

#[tokio::test]
async fn a_look_at_a_tree_that_takes_too_long_goes_on_where_it_was() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().open().await.unwrap();
    for n in 0..40 {
        batch.child().id(format!("c{n}")).add_all([member("ok")]).await.unwrap();
    }
    batch.commit().await.unwrap();
    let root = batch.id().root().to_owned();
    fixture.broker.delete_tasks(QUEUE, Seen::Anywhere, &[format!("flow:{root}:40:0")]).await.unwrap();
    let last = format!("asynq:x:{{{root}}}:40:flow");
    let _: i64 = fixture.cmd(&["HSET", &last, "touched", "1", "looked", "1", "adding", "1"]).await;
    let flows = Flows::new(fixture.broker.clone(), std::sync::Arc::new(SystemClock));
    let duty = TendTree::new(flows).at_a_time(Duration::ZERO);
    let removed = async || fixture.cmd::<Option<u32>>(&["HGET", &last, "c6"]).await.unwrap_or(0);
    // Sixteen at a time.
    for _ in 0..2 {
        assert_eq!((duty.look(&root).await.unwrap(), removed().await), (Some(Duration::ZERO), 0));
    }
    let next = duty.look(&root).await.unwrap().unwrap();
    assert!(next > Duration::ZERO, "{next:?}");
    assert_eq!(removed().await, 1);
    assert_eq!(duty.look(&root).await.unwrap(), Some(Duration::ZERO), "from the beginning");
}

#[tokio::test]
async fn a_batch_that_is_made_while_one_of_its_name_is_being_forgotten_is_looked_after() {
    let fixture = Fixture::start().await;
    // A leader has just looked: there is no such tree any more, and it is about to say that there is nothing to look at.
    let held = (SystemClock.now_secs() * 1_000 + 5_000).to_string();
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:duties", &held, "flow b"]).await;
    client(&fixture).batch().id("b").add_all([member("ok")]).await.unwrap();
    let said = ["EVAL", &script("put_off_duty"), "1", "asynq:x:duties", "flow b", &held, ""];
    assert_eq!(fixture.cmd::<i64>(&said).await, 0);
    assert!(fixture.cmd::<Option<f64>>(&["ZSCORE", "asynq:x:duties", "flow b"]).await.is_some());
}

#[tokio::test]
async fn a_look_for_members_that_takes_too_long_goes_on_where_it_was() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().add_all((0..250).map(|_| member("ok"))).await.unwrap();
    let ids: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    for ids in ids.chunks(25) {
        fixture.broker.delete_tasks(QUEUE, Seen::Anywhere, ids).await.unwrap();
    }
    stands_still(&fixture, batch.id().root()).await;
    let flows = Flows::new(fixture.broker.clone(), std::sync::Arc::new(SystemClock));
    let duty = TendTree::new(flows).at_a_time(Duration::ZERO);
    for gone in [100, 200] {
        assert_eq!(duty.look(batch.id().root()).await.unwrap(), Some(Duration::ZERO));
        assert_eq!(batch.status().await.unwrap().removed, gone);
    }
    assert!(duty.look(batch.id().root()).await.unwrap() > Some(Duration::ZERO));
    assert_eq!(batch.status().await.unwrap().removed, 250);
}

#[tokio::test]
async fn the_results_of_a_large_workflow_are_deleted_in_several_looks() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let names: Vec<String> = (0..150).map(|n| format!("n{n}")).collect();
    let mut flow = client(&fixture).workflow();
    for name in &names {
        flow = flow.task(name, member("ok"));
    }
    let flow = flow.task("last", member("ok")).after(&names).start().await.unwrap();
    over(&flow).await;
    server.shutdown().await;
    let root = flow.id().root().to_owned();
    let kept = async || fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:completed"]).await;
    assert_eq!(kept().await, 150);
    let _: i64 = fixture.cmd(&["HSET", &format!("asynq:x:{{{root}}}:0:flow"), "over", "1"]).await;
    let flows = Flows::new(fixture.broker.clone(), std::sync::Arc::new(SystemClock));
    let duty = TendTree::new(flows).at_a_time(Duration::ZERO);
    for left in [50, 0] {
        assert_eq!((duty.look(&root).await.unwrap(), kept().await), (Some(Duration::ZERO), left));
    }
    assert_eq!(duty.look(&root).await.unwrap(), None);
    assert_eq!(flow_keys(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn for_ever_is_not_at_once() {
    let fixture = Fixture::start().await;
    let far = std::time::UNIX_EPOCH + Duration::from_secs(1 << 60);
    let batch = client(&fixture).batch().linger(Duration::MAX).deadline(far).open().await.unwrap();
    tend(&fixture, &batch).await;
    assert_eq!(batch.status().await.unwrap().state, BatchState::Open);
    batch.commit().await.unwrap();
    tend(&fixture, &batch).await;
    tend(&fixture, &batch).await;
    assert_eq!(batch.status().await.unwrap().state, BatchState::Succeeded);
    let flow = client(&fixture).workflow().timer("pause", Duration::MAX).start().await.unwrap();
    tend(&fixture, &flow).await;
    let nodes = client(&fixture).flows().nodes(flow.id()).await.unwrap();
    assert_eq!(nodes.len(), 1);
    assert!(nodes[0].signal.as_ref().unwrap().until.is_some(), "{nodes:?}");
}

/// Both wait to be tried again. `on_complete` came a minute after the batch, and only once.
#[tokio::test]
async fn a_member_that_was_put_off_has_not_failed() {
    let fixture = Fixture::start().await;
    let members = [member("a"), member("b")];
    let batch = client(&fixture).batch().on_complete(callback("complete")).add_all(members).await.unwrap();
    let now = SystemClock.now_secs();
    let snoozed = fixture.take().await;
    let again = snoozed.message.to_bytes();
    fixture.broker.retry(&report(&snoozed), &again, now + 600, false, now).await.unwrap();
    Go(&fixture).retry(&fixture.take().await.message, "boom", now, now + 600).await;
    stands_still(&fixture, batch.id().root()).await;
    tend(&fixture, &batch).await;
    let status = batch.status().await.unwrap();
    assert_eq!((status.sent, status.failing), (1, 1));
    assert_eq!(fixture.cmd::<u64>(&["EXISTS", "asynq:{callbacks}:pending"]).await, 0);
}

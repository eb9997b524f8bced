//! Who may add to a batch, and batches within batches.

use std::time::Duration;

use futures_util::StreamExt as _;
use queue_core::{Clock as _, RawTask, SystemClock};
use queue_redis::{Batch, BatchError, BatchState};
use queue_worker::{Failure, Job, State, Task};
use serde::{Deserialize, Serialize};

use super::{Ran, callback, client, count, member, over, router, server, tend, until, with_callbacks};
use crate::support::{Fixture, QUEUE, report, with};

/// Adds members to its batch.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "load", queue = "q", max_retry = 5)]
struct Load;

/// Opens the next step.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "next", queue = "callbacks")]
struct Next;

#[tokio::test]
async fn nobody_adds_to_a_committed_batch_from_outside() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().add_all([member("ok")]).await.unwrap();
    assert!(matches!(batch.add_all([member("ok")]).await, Err(BatchError::Closed { .. })));
    assert!(matches!(batch.child().open().await, Err(BatchError::Closed { .. })));
    assert_eq!(batch.status().await.unwrap().total, 1);
}

#[tokio::test]
async fn a_handler_adds_once_however_often_it_is_tried() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let load = async |_: Load, job: Job, batch: Batch, State(ran): State<Ran>| {
        ran.tell("load");
        batch.add_all((0..40).map(|_| member("ok"))).await.map_err(|error| Failure::archive(error.to_string()))?;
        batch.add_all((0..2).map(|_| member("ok"))).await.map_err(|error| Failure::archive(error.to_string()))?;
        if job.attempt() < 3 { Err(Failure::retry_in(Duration::from_millis(1), "again")) } else { Ok(()) }
    };
    let server = server(&fixture, router(&ran).task(load)).start().await.unwrap();
    let batch = with_callbacks(&client(&fixture)).add_all([Load]).await.unwrap();
    let status = over(&batch).await;
    assert_eq!((status.state, status.total, status.succeeded), (BatchState::Succeeded, 43, 43));
    assert_eq!((count(&ran, "load"), count(&ran, "ok"), count(&ran, "success")), (3, 42, 1));
    server.shutdown().await;
}

#[tokio::test]
async fn a_parent_waits_for_its_child_and_the_childs_callback() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let slow = async |ran: Ran, _: Job| {
        tokio::time::sleep(Duration::from_millis(300)).await;
        ran.tell("child done");
    };
    let server = server(&fixture, router(&ran).route("slow", with(&ran, slow))).start().await.unwrap();
    let parent = with_callbacks(&client(&fixture)).open().await.unwrap();
    let child = parent.child().on_success(RawTask::new("slow").queue("callbacks"));
    let child = child.add_all([member("ok"), member("ok")]).await.unwrap();
    parent.add_all([member("ok")]).await.unwrap();
    parent.commit().await.unwrap();
    let status = over(&parent).await;
    assert_eq!((status.state, status.total), (BatchState::Succeeded, 2));
    assert_eq!(child.status().await.unwrap().parent, Some(parent.id().to_string()));
    let all = ran.all();
    let at = |what: &str| all.iter().position(|ran| ran == what).unwrap();
    assert!(at("child done") < at("success"), "{all:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_death_reaches_every_ancestor_at_once() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let root = client(&fixture).batch().on_death(callback("death")).open().await.unwrap();
    let mut batch = root.clone();
    for _ in 0..60 {
        batch = batch.child().open().await.unwrap();
    }
    batch.add_all([member("die")]).await.unwrap();
    crate::support::eventually("the root hears of it", async || count(&ran, "death") == 1).await;
    assert_eq!(root.status().await.unwrap().state, BatchState::Doomed);
    server.shutdown().await;
}

#[tokio::test]
async fn a_callback_opens_the_next_step_of_its_parent() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let next = async |_: Next, batch: Batch| {
        let whole = batch.parent().await?.ok_or("no parent")?;
        let step = whole.child().id("step-2").on_success(callback("success"));
        step.add_all([member("second")]).await?;
        Ok::<(), Failure>(())
    };
    let server = server(&fixture, router(&ran).task(next)).start().await.unwrap();
    let whole = client(&fixture).batch().on_settled(callback("settled")).open().await.unwrap();
    let first = whole.child().id("step-1").on_success(Next);
    first.add_all([member("first")]).await.unwrap();
    whole.commit().await.unwrap();
    assert_eq!(over(&whole).await.state, BatchState::Succeeded);
    assert_eq!(ran.all(), ["first", "second", "success", "settled"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_batch_made_twice_by_one_id_is_one_batch() {
    let fixture = Fixture::start().await;
    let first = client(&fixture).batch().id("import").add_all([member("ok")]).await.unwrap();
    let second = client(&fixture).batch().id("import").add_all([member("ok")]).await.unwrap();
    assert_eq!(first.id(), second.id());
    assert_eq!(first.status().await.unwrap().total, 1);
    let tasks: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    assert!(tasks.len() == 1 && tasks[0].starts_with("flow:import~"), "{tasks:?}");
}

#[tokio::test]
async fn a_batch_that_was_made_half_way_is_finished_by_making_it_again() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let make = || with_callbacks(&client(&fixture)).id("import").add_all((0..4).map(|n| member(&n.to_string())));
    // Another queue is refused, behind a member that was stored.
    fixture.run("SET asynq:{other}:pending no-list").await;
    let elsewhere = member("4").queue("other");
    let again = || {
        let members = (0..4).map(|n| member(&n.to_string())).chain([elsewhere.clone()]);
        with_callbacks(&client(&fixture)).id("half").add_all(members)
    };
    again().await.unwrap_err();
    let half = client(&fixture).batch_of("half").await.unwrap();
    assert_eq!(half.status().await.unwrap().state, BatchState::Open, "nobody has committed it");
    // Its members run meanwhile, and their outcomes are recorded.
    let server = fixture.server(router(&ran)).queues([(QUEUE, 1), ("callbacks", 1)]).start().await.unwrap();
    until(&half, "four members to end", |status| status.succeeded == 4).await;
    let _: i64 = fixture.cmd(&["DEL", "asynq:{other}:pending"]).await;
    let made = again().await.unwrap();
    let status = made.status().await.unwrap();
    assert_eq!((status.total, status.succeeded, status.sent), (5, 4, 1));
    server.shutdown().await;
    let server = fixture.server(router(&ran)).queues([("other", 1), ("callbacks", 1)]).start().await.unwrap();
    assert_eq!(over(&made).await.state, BatchState::Succeeded);
    server.shutdown().await;
    assert_eq!((count(&ran, "0"), count(&ran, "4"), count(&ran, "success")), (1, 1, 1));

    make().await.unwrap();
    make().await.unwrap();
    let more =
        with_callbacks(&client(&fixture)).id("import").add_all((0..5).map(|_| member("ok")).chain([elsewhere])).await;
    assert!(matches!(more, Err(BatchError::Closed { .. })), "{more:?}");
}

#[tokio::test]
async fn a_member_whose_end_nobody_has_recorded_is_not_enqueued_again() {
    let fixture = Fixture::start().await;
    let make = || client(&fixture).batch().id("half").add_all([member("ok"), member("ok")]);
    make().await.unwrap();
    // Whoever made it was lost before it knew that the first is there; the second was never stored.
    let _: i64 = fixture.cmd(&["HSET", "asynq:x:{half}:0:keys", "add:.made#0.0", "0-1"]).await;
    let tasks: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    fixture.broker.delete_tasks(QUEUE, queue_redis::broker::Seen::Anywhere, &tasks[..1]).await.unwrap();
    let delivery = fixture.take().await;
    fixture.broker.done(QUEUE, &[report(&delivery)], SystemClock.now_secs()).await.unwrap();
    let status = make().await.unwrap().status().await.unwrap();
    assert_eq!((status.total, status.succeeded, status.sent), (2, 1, 1));
    let waiting: i64 = fixture.cmd(&["LLEN", "asynq:{q}:pending"]).await;
    assert_eq!(waiting, 1);
}

#[tokio::test]
async fn an_addition_that_was_begun_is_not_completed_after_its_batch_was_cancelled() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().open().await.unwrap();
    // Whoever has begun it was lost before anything was stored.
    batch.clone().keyed("load").add_all([member("ok"), member("ok")]).await.unwrap();
    let keys = format!("asynq:x:{{{}}}:0:keys", batch.id());
    let _: i64 = fixture.cmd(&["HSET", &keys, "add:load#0.0", "0-1"]).await;
    let tasks: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    fixture.broker.delete_tasks(QUEUE, queue_redis::broker::Seen::Anywhere, &tasks).await.unwrap();
    batch.cancel().await.unwrap();
    let error = batch.clone().keyed("load").add_all([member("ok"), member("ok")]).await.unwrap_err();
    assert!(matches!(error, BatchError::Closed { .. }), "{error}");
    assert_eq!(fixture.cmd::<i64>(&["EXISTS", "asynq:{q}:pending"]).await, 0);
}

#[tokio::test]
async fn a_member_that_was_given_up_is_enqueued_when_its_handler_comes_again() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let batch = with_callbacks(&client(&fixture)).open().await.unwrap();
    let add = || async { batch.clone().keyed("load").add_all([member("ok"), member("late").queue("other")]).await };
    // The second one gets its number, and is refused.
    fixture.run("SET asynq:{other}:pending no-list").await;
    add().await.unwrap_err();
    let key = format!("asynq:x:{{{}}}:0:flow", batch.id().root());
    let ago = SystemClock.now_secs() - 600;
    fixture.run(&format!("HSET {key} adding {ago} touched {ago}")).await;
    tend(&fixture, &batch).await;
    assert_eq!(batch.status().await.unwrap().removed, 1, "nobody has stored it in time");
    fixture.run("DEL asynq:{other}:pending").await;
    let added = add().await.unwrap();
    let status = batch.status().await.unwrap();
    assert_eq!((added.members, status.total, status.sent, status.removed), (2, 2, 2, 0));
    batch.commit().await.unwrap();
    let queues = [(QUEUE, 1), ("other", 1), ("callbacks", 1)];
    let server = fixture.server(router(&ran)).queues(queues).start().await.unwrap();
    assert_eq!(over(&batch).await.state, BatchState::Succeeded);
    assert_eq!((count(&ran, "late"), count(&ran, "success"), count(&ran, "settled")), (1, 1, 1));
    server.shutdown().await;
}

#[tokio::test]
async fn duplicates_are_left_out_and_counted() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let unique = || member("ok").unique(Duration::from_secs(60));
    let batch = client(&fixture).batch().open().await.unwrap();
    let added = batch.add_all([unique(), unique(), member("ok")]).await.unwrap();
    assert_eq!((added.members, added.duplicates), (2, 1));
    batch.commit().await.unwrap();
    let server = fixture.server(router(&ran)).start().await.unwrap();
    let status = over(&batch).await;
    assert_eq!((status.state, status.total), (BatchState::Succeeded, 2));
    server.shutdown().await;
}

#[tokio::test]
async fn what_cannot_be_a_member_is_named_and_nothing_is_stored() {
    let fixture = Fixture::start().await;
    let client = client(&fixture);
    let cases = [
        (member("ok").task_id("mine"), "task 1 cannot belong to a batch: it has an id of its own"),
        (member("ok").group("g"), "task 1 cannot belong to a batch: it has a group"),
        (member("ok").queue("a}:b"), "task 1 of the batch was refused: the queue name"),
        (
            member("ok").payload(vec![b'x'; 17 * 1024 * 1024]),
            "task 1 of the batch was refused: the task has 17825792 bytes",
        ),
    ];
    for (task, text) in cases {
        let error = client.batch().add_all([member("ok"), task]).await.unwrap_err();
        assert!(error.to_string().starts_with(text), "{error}");
    }
    let error = client.batch().on_success(callback("success").group("g")).add_all([member("ok")]).await.unwrap_err();
    assert!(error.to_string().starts_with("task on_success cannot belong to a batch: it has a group"), "{error}");
    let error = client.batch().id("a b").add_all([member("ok")]).await.unwrap_err();
    assert!(error.to_string().starts_with("\"a b\" is not the id of a batch"), "{error}");
    let error = client.enqueue(member("ok").task_id("flow:a:0:1")).await.unwrap_err();
    assert!(error.to_string().contains("kept for members of batches"), "{error}");
    let error = client.batch_of("nobody").await.unwrap_err();
    assert!(error.to_string().starts_with("there is no batch nobody"), "{error}");
    assert_eq!(super::flow_keys(&fixture).await, Vec::<String>::new());
    let tasks: Vec<String> = fixture.cmd(&["KEYS", "asynq:{*"]).await;
    assert_eq!(tasks, Vec::<String>::new());
}

/// What comes in waits of its own: so many tasks at once, then nothing for a while.
fn in_waves(waves: &[usize]) -> impl futures_util::Stream<Item = RawTask> + Send + 'static {
    let mut names = 0..;
    let waves: Vec<Vec<usize>> = waves.iter().map(|wave| names.by_ref().take(*wave).collect()).collect();
    let waves = futures_util::stream::iter(waves).then(async |wave| {
        tokio::time::sleep(Duration::from_millis(20)).await;
        wave
    });
    waves.flat_map(|wave| futures_util::stream::iter(wave.into_iter().map(|name| member(&format!("ok {name}")))))
}

/// The payloads of all that is pending, sorted.
async fn waiting(fixture: &Fixture) -> Vec<String> {
    let mut waiting = Vec::new();
    while let Some(taken) =
        fixture.broker.dequeue(&QUEUE.into(), 1, &"t".into(), i64::MAX >> 20).await.unwrap().into_tasks().pop()
    {
        let queue_redis::broker::Taken::Task(delivery) = taken else { panic!("{taken:?}") };
        waiting.push(String::from_utf8_lossy(&delivery.message.payload).into_owned());
    }
    waiting.sort();
    waiting
}

#[tokio::test]
async fn a_stream_with_a_key_is_added_once_in_whichever_pieces_it_comes() {
    let fixture = Fixture::start().await;
    let all: Vec<String> = (0..8).map(|name| format!("ok {name}")).collect();
    let batch = client(&fixture).batch().open().await.unwrap();
    batch.clone().keyed("rows").add_stream(in_waves(&[3, 5])).await.unwrap();
    let added = batch.clone().keyed("rows").add_stream(in_waves(&[5, 3])).await.unwrap();
    assert_eq!((added.members, batch.status().await.unwrap().total), (8, 8));
    assert_eq!(waiting(&fixture).await, all);
}

#[tokio::test]
async fn a_batch_with_an_id_that_was_made_half_way_from_a_stream_is_completed() {
    let fixture = Fixture::start().await;
    let all: Vec<String> = (0..8).map(|name| format!("ok {name}")).collect();
    // Its maker dies when five of them were given to it.
    let made = client(&fixture)
        .batch()
        .id("rows")
        .add_stream(in_waves(&[3, 2, 3]).take(5).chain(futures_util::stream::pending()));
    assert!(tokio::time::timeout(Duration::from_millis(500), made).await.is_err());
    let batch = client(&fixture).batch().id("rows").add_stream(in_waves(&[4, 4])).await.unwrap();
    assert_eq!(batch.status().await.unwrap().total, 8);
    assert_eq!(waiting(&fixture).await, all);
}

//! How batches end: cancelled, at their deadline, and once more after their dead members were run again.

use std::time::{Duration, SystemTime};

use queue_core::{Clock as _, RawTask, SystemClock, TaskState};
use queue_redis::BatchState;
use queue_worker::{Failure, Job, Task};
use serde::{Deserialize, Serialize};

use super::{Ran, callback, client, count, member, over, router, server, tend, until, with_callbacks};
use crate::support::{Fixture, QUEUE, eventually, with};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "fill", queue = "q", max_retry = 3)]
struct Fill;

fn in_secs(secs: u64) -> SystemTime {
    SystemTime::from(SystemClock.now()) + Duration::from_secs(secs)
}

/// One after another from the oldest on, the cancelation never came up with the workers.
#[tokio::test]
async fn a_large_batch_that_is_cancelled_while_it_is_worked_ends_before_all_have_run() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let slow = async |ran: Ran, _: Job| {
        tokio::time::sleep(Duration::from_millis(5)).await;
        ran.tell("slow");
    };
    let tasks = (0..4_000).map(|_| RawTask::new("slow").queue(QUEUE));
    let batch = client(&fixture).batch().add_all(tasks).await.unwrap();
    let server = server(&fixture, router(&ran).route("slow", with(&ran, slow))).concurrency(4).start().await.unwrap();
    eventually("some have run", async || ran.all().len() >= 3).await;
    assert!(batch.cancel().await.unwrap());
    let status = over(&batch).await;
    assert!(status.cancelled > 2_000, "{} of 4,000 were cancelled", status.cancelled);
    assert_eq!(status.succeeded + status.cancelled, 4_000);
    server.shutdown().await;
}

/// Where no server runs, nothing went on with what somebody had begun to cancel and not finished.
#[tokio::test]
async fn a_second_cancelation_goes_on_with_the_first() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().add_all(["a", "b"].map(member)).await.unwrap();
    let ledger = format!("asynq:x:{{{}}}", batch.id());
    fixture.run(&format!("HSET {ledger}:0:flow cancelled 1")).await;
    fixture.cmd::<()>(&["ZADD", &format!("{ledger}:todo"), "0", "stop 0"]).await;
    assert!(batch.cancel().await.unwrap());
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}:t:*"]).await, [""; 0]);
    assert_eq!(batch.status().await.unwrap().cancelled, 2);
}

#[tokio::test]
async fn what_a_handler_has_added_to_a_node_that_is_skipped_is_cancelled_with_the_workflow() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let fill = async |_: Fill, flow: queue_redis::Batch| -> Result<(), Failure> {
        flow.node("filled").await?.add_all([member("late").process_in(Duration::from_secs(3600))]).await?;
        Err(Failure::archive("no"))
    };
    let server = server(&fixture, router(&ran).task(fill)).start().await.unwrap();
    let flow = client(&fixture).workflow().task("fill", Fill).batch("filled", Vec::<RawTask>::new()).after(["fill"]);
    let never = client(&fixture).workflow().on_settled(callback("settled")).task("never", member("never"));
    let flow = flow.workflow("begun", never).after(["fill"]).signal("word").start().await.unwrap();
    until(&flow, "the nodes are skipped", |status| status.skipped == 2).await;
    assert!(flow.cancel().await.unwrap());
    over(&flow).await;
    eventually("it is gone", async || fixture.cmd::<i64>(&["ZCARD", "asynq:{q}:scheduled"]).await == 0).await;
    tend(&fixture, &flow).await;
    let called: i64 = fixture.cmd(&["EXISTS", "asynq:{callbacks}:pending"]).await;
    assert_eq!((called, count(&ran, "settled")), (0, 0), "what has never begun has no callbacks");
    server.shutdown().await;
}

/// The tree was looked at for the first time 30 s after it was made.
#[tokio::test]
async fn a_deadline_that_is_near_is_the_first_look_at_a_batch() {
    let fixture = Fixture::start().await;
    let far = member("ok").process_in(Duration::from_secs(3600));
    let batch = client(&fixture).batch().deadline(in_secs(5)).add_all([far]).await.unwrap();
    let duty = format!("flow {}", batch.id().root());
    let at: f64 = fixture.cmd(&["ZSCORE", "asynq:x:duties", &duty]).await;
    let wait = at / 1_000.0 - SystemClock.now_secs() as f64;
    assert!(wait < 7.0, "{wait} s");
}

#[tokio::test]
async fn a_deadline_does_not_cancel_a_batch_that_has_succeeded() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let slow = async |ran: Ran, _: Job| {
        ran.tell("begun");
        eventually("the deadline is over", async || ran.all().contains(&"late".to_owned())).await;
    };
    let server = server(&fixture, router(&ran).route("slow", with(&ran, slow))).start().await.unwrap();
    let batch = client(&fixture).batch().on_success(RawTask::new("slow").queue("callbacks")).deadline(in_secs(3));
    let batch = batch.add_all([member("ok")]).await.unwrap();
    eventually("success is worked", async || count(&ran, "begun") == 1).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    tend(&fixture, &batch).await;
    ran.tell("late");
    assert_eq!(over(&batch).await.state, BatchState::Succeeded);
    server.shutdown().await;
}

/// It was cancelled at the next look, and the member deleted.
#[tokio::test]
async fn what_is_run_again_after_the_deadline_has_none() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let batch = with_callbacks(&client(&fixture)).deadline(in_secs(2)).add_all([member("die")]).await.unwrap();
    assert_eq!(over(&batch).await.state, BatchState::Dead);
    server.shutdown().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(batch.retry_dead().await.unwrap(), 1);
    tend(&fixture, &batch).await;
    assert_eq!(batch.status().await.unwrap().state, BatchState::Running);
    assert_eq!(fixture.cmd::<i64>(&["LLEN", "asynq:{q}:pending"]).await, 1);
}

/// The next look at a batch that is over is an hour away.
#[tokio::test]
async fn a_batch_whose_members_run_again_is_looked_at_soon_whoever_runs_them() {
    for by_inspector in [false, true] {
        let (fixture, ran) = (Fixture::start().await, Ran::default());
        let server = server(&fixture, router(&ran)).start().await.unwrap();
        let batch = with_callbacks(&client(&fixture)).add_all([member("die")]).await.unwrap();
        over(&batch).await;
        server.shutdown().await;
        let duty = format!("flow {}", batch.id().root());
        let later = ((SystemClock.now_secs() + 3600) * 1_000).to_string();
        let _: i64 = fixture.cmd(&["ZADD", "asynq:x:duties", &later, &duty]).await;
        if by_inspector {
            let id = format!("flow:{}:0:0", batch.id());
            fixture.inspector().run_task(QUEUE, &id).await.unwrap();
        } else {
            assert_eq!(batch.retry_dead().await.unwrap(), 1);
        }
        fixture.in_state(&format!("flow:{}:0:0", batch.id()), TaskState::Pending).await;
        let at: f64 = fixture.cmd(&["ZSCORE", "asynq:x:duties", &duty]).await;
        let wait = at / 1_000.0 - SystemClock.now_secs() as f64;
        assert!(wait < 61.0, "{wait} s");
    }
}

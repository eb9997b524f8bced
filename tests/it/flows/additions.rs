//! Additions that are made again, or by several at once: each adds what is missing, and nothing twice.

use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream;
use queue_core::{EncodeError, RawTask};
use queue_redis::{Batch, BatchError, Client, Outgoing, Redis};
use queue_worker::{Failure, Job, Task};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::{Ran, callback, client, count, flow_keys, member, over, router, server};
use crate::support::{Fixture, Proxy, QUEUE, eventually};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "fill", queue = "q", max_retry = 3)]
struct Fill;

/// Opens and fills the next step; whether it fails before the commit.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "step", queue = "q", max_retry = 3)]
struct Step(bool);

fn unique(does: &str) -> RawTask {
    member(does).unique(Duration::from_secs(3600))
}

/// The second and the third addition had the key of the first, and so were taken for it.
#[tokio::test]
async fn a_handler_that_asks_for_a_node_again_adds_each_time() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let fill = async |_: Fill, flow: Batch| -> Result<(), Failure> {
        for n in 0..3 {
            flow.node("filled").await?.add_all([member(&format!("part {n}"))]).await?;
        }
        Ok(())
    };
    let server = server(&fixture, router(&ran).task(fill)).start().await.unwrap();
    let flow = client(&fixture).workflow().task("fill", Fill).batch("filled", Vec::<RawTask>::new());
    over(&flow.after(["fill"]).start().await.unwrap()).await;
    assert_eq!([0, 1, 2].map(|n| count(&ran, &format!("part {n}"))), [1, 1, 1]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_handler_that_asks_for_the_parent_again_adds_each_time_and_once() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let fill = async |_: Fill, job: Job, batch: Batch| -> Result<(), Failure> {
        for n in 0..3 {
            batch.parent().await?.ok_or("no parent")?.add_all([member(&format!("part {n}"))]).await?;
        }
        if job.attempt() == 1 { Err(Failure::retry_in(Duration::ZERO, "again")) } else { Ok(()) }
    };
    let server = server(&fixture, router(&ran).task(fill)).start().await.unwrap();
    let whole = client(&fixture).batch().open().await.unwrap();
    whole.child().add_all([Fill]).await.unwrap();
    whole.commit().await.unwrap();
    over(&whole).await;
    assert_eq!([0, 1, 2].map(|n| count(&ran, &format!("part {n}"))), [1, 1, 1]);
    server.shutdown().await;
}

/// Before the commit the second attempt added all once more, and after it could never succeed.
#[tokio::test]
async fn a_child_that_a_handler_opens_by_name_and_fills_is_filled_once() {
    for fails_before_the_commit in [true, false] {
        let (fixture, ran) = (Fixture::start().await, Ran::default());
        let fill = async |Step(fails_before_the_commit): Step, job: Job, batch: Batch| -> Result<(), Failure> {
            let again = || Err(Failure::retry_in(Duration::ZERO, "again"));
            let child = batch.child().id("step").open().await?;
            child.add_all((0..10).map(|_| member("ok"))).await?;
            if fails_before_the_commit && job.attempt() == 1 {
                return again();
            }
            child.commit().await?;
            if job.attempt() == 1 { again() } else { Ok(()) }
        };
        let server = server(&fixture, router(&ran).task(fill)).start().await.unwrap();
        let status = over(&client(&fixture).batch().add_all([Step(fails_before_the_commit)]).await.unwrap()).await;
        assert_eq!((count(&ran, "ok"), status.dead), (10, 0));
        server.shutdown().await;
    }
}

#[tokio::test]
async fn nobody_adds_to_a_node_that_is_skipped() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let flow = client(&fixture).workflow().task("first", member("die")).batch("filled", Vec::<RawTask>::new());
    let flow = flow.after(["first"]).start().await.unwrap();
    over(&flow).await;
    let added = flow.node("filled").await.unwrap().add_all([member("late")]).await;
    assert!(matches!(added, Err(BatchError::Closed { .. })), "{added:?}");
    server.shutdown().await;
}

/// A lock that a member held itself made it count as left out, so that success did not wait for it.
#[tokio::test]
async fn two_that_make_the_same_batch_of_unique_members_at_once_make_it_whole() {
    let fixture = Fixture::start().await;
    for round in 0..10 {
        let make = || {
            let client = Client::new(fixture.another_redis());
            let rows: Vec<RawTask> = (0..500).map(|n| unique(&format!("{round} {n}"))).collect();
            async move { client.batch().id(format!("import-{round}")).add_all(rows).await.map(drop) }
        };
        let _ = tokio::join!(make(), make());
        let batch = client(&fixture).batch_of(&format!("import-{round}")).await.unwrap();
        assert_eq!(batch.status().await.unwrap().total, 500, "of round {round}");
    }
}

#[tokio::test]
async fn a_unique_member_whose_answer_was_lost_and_that_has_failed_since_is_a_member() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let proxy = Proxy::start(fixture.socket()).await;
    let maker = Client::new(Redis::connect(&proxy.url()).await.unwrap());
    let batch = maker.batch().on_success(callback("success")).on_death(callback("death")).open().await.unwrap();
    proxy.lose_answers_to(Some("fail for long"));
    let adding = tokio::spawn({
        let batch = batch.clone();
        async move { batch.add_all([unique("fail for long"), member("ok")]).await }
    });
    eventually("both are stored", async || fixture.cmd::<i64>(&["LLEN", "asynq:{q}:pending"]).await == 2).await;
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    eventually("one has failed", async || fixture.cmd::<i64>(&["ZCARD", "asynq:{q}:retry"]).await == 1).await;
    eventually("that is recorded", async || batch.status().await.is_ok_and(|status| status.failing == 1)).await;
    proxy.lose_answers_to(None);
    assert_eq!(adding.await.unwrap().unwrap().members, 2);
    batch.commit().await.unwrap();
    let status = batch.status().await.unwrap();
    assert_eq!((status.total, status.failing, count(&ran, "death")), (2, 1, 0));
    server.shutdown().await;
}

#[tokio::test]
async fn an_addition_that_is_made_again_with_less_keeps_the_members_that_are_there() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().open().await.unwrap();
    batch.clone().keyed("load").add_all(["a", "b", "c"].map(member)).await.unwrap();
    // Whoever has added them died before that was noted.
    let _: i64 = fixture.cmd(&["HSET", &format!("asynq:x:{{{}}}:0:keys", batch.id()), "add:load#0.0", "0-2"]).await;
    batch.clone().keyed("load").add_all(["a", "b"].map(member)).await.unwrap();
    let pending: u64 = fixture.cmd(&["LLEN", &format!("asynq:{{{QUEUE}}}:pending")]).await;
    assert_eq!((batch.status().await.unwrap().total, pending), (3, 3));
}

/// Those of the second addition counted as those of the first, and never ran.
#[tokio::test]
async fn members_that_are_added_when_redis_has_gone_back_run_beside_those_before() {
    for by_another in [false, true] {
        members_are_added_when_redis_has_gone_back(by_another).await;
    }
}

async fn members_are_added_when_redis_has_gone_back(by_another: bool) {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let batch = client(&fixture).batch().open().await.unwrap();
    let mut ledger: Vec<(String, Vec<u8>)> = Vec::new();
    for key in flow_keys(&fixture).await {
        ledger.push((key.clone(), fixture.cmd(&["DUMP", &key]).await));
    }
    batch.add_all(["a", "b"].map(member)).await.unwrap();
    // Their tasks reached the new master, and that numbers were given out did not.
    for key in flow_keys(&fixture).await {
        fixture.run(&format!("DEL {key}")).await;
    }
    for (key, dump) in &ledger {
        fixture.cmd::<()>(&[b"RESTORE", key.as_bytes(), b"0", &dump[..]]).await;
    }
    // Another process knows nothing of the numbers.
    let other = client(&fixture).batch_of(&batch.id().to_string()).await.unwrap();
    let adds = if by_another { &other } else { &batch };
    assert_eq!(adds.add_all(["c", "d", "e"].map(member)).await.unwrap().members, 3);
    batch.commit().await.unwrap();
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let status = over(&batch).await;
    assert_eq!((status.total, status.succeeded), (5, 5));
    assert_eq!(["a", "b", "c", "d", "e"].map(|member| count(&ran, member)), [1; 5]);
    server.shutdown().await;
}

/// Answers reach whoever asked in any order: what one was given is not what another had before.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn additions_of_one_batch_at_once_have_numbers_of_their_own() {
    const ADDITIONS: u64 = 400;
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().open().await.unwrap();
    let additions = (0..ADDITIONS).map(|_| {
        let batch = batch.clone();
        tokio::spawn(async move { batch.add_all(["a", "b", "c"].map(member)).await.unwrap().members })
    });
    for added in join_all(additions.collect::<Vec<_>>()).await {
        assert_eq!(added.unwrap(), 3);
    }
    // Numbers that are given out and not used are members of which nobody hears.
    assert_eq!(batch.status().await.unwrap().total, 3 * ADDITIONS);
}

/// The numbers of the members in a queue, in the order in which they run.
async fn numbers(fixture: &Fixture, queue: &str) -> Vec<usize> {
    let ids: Vec<String> = fixture.cmd(&["LRANGE", &format!("asynq:{{{queue}}}:pending"), "0", "-1"]).await;
    ids.iter().rev().map(|id| id.rsplit_once(':').unwrap().1.parse().unwrap()).collect()
}

#[tokio::test]
async fn members_of_a_long_addition_run_in_the_order_in_which_they_came() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().open().await.unwrap();
    let task = |n: usize| if n.is_multiple_of(3) { member("ok").queue("other") } else { member("ok") };
    assert_eq!(batch.add_all((0..9_500).map(task)).await.unwrap().members, 9_500);
    let (mut all, other) = (numbers(&fixture, QUEUE).await, numbers(&fixture, "other").await);
    assert_eq!((all.len(), other.len()), (6_333, 3_167));
    assert!(all.is_sorted() && other.is_sorted());
    all.extend(other);
    all.sort_unstable();
    assert!(all.into_iter().eq(0..9_500), "each number once");
}

#[tokio::test]
async fn a_duplicate_is_no_member_although_the_stream_behind_it_goes_on() {
    let fixture = Fixture::start().await;
    let batch = client(&fixture).batch().open().await.unwrap();
    let (sender, mut tasks) = mpsc::unbounded_channel();
    [unique("a"), unique("a")].into_iter().for_each(|task| sender.send(task).unwrap());
    let adding = tokio::spawn({
        let batch = batch.clone();
        async move { batch.add_stream(stream::poll_fn(|context| tasks.poll_recv(context))).await }
    });
    // Otherwise it would be missed, and be a member that was removed.
    let total = async || batch.status().await.unwrap().total;
    eventually("both were sent", async || !numbers(&fixture, QUEUE).await.is_empty()).await;
    eventually("one is no member", async || total().await == 1).await;
    sender.send(member("b")).unwrap();
    eventually("the next one is a member", async || total().await == 2).await;
    drop(sender);
    let added = adding.await.unwrap().unwrap();
    assert_eq!((added.members, added.duplicates), (2, 1));
}

#[tokio::test]
async fn nothing_more_is_added_behind_a_task_that_is_refused() {
    let fixture = Fixture::start().await;
    let refuse = |task: &mut Outgoing<'_>| {
        if task.payload() == b"bad" {
            task.refuse(EncodeError::new("payload", "it is bad"));
        }
    };
    let batch = client(&fixture).intercept(refuse).batch().open().await.unwrap();
    let task = |n| member(if n == 5_000 { "bad" } else { "ok" });
    let error = batch.add_all((0..20_000).map(task)).await.unwrap_err();
    assert!(matches!(error, BatchError::Refused { position: 5_000, .. }), "{error}");
    let stored = numbers(&fixture, QUEUE).await.len();
    assert!((5_000..16_000).contains(&stored), "{stored}");
    // Those that had numbers are members, and no others.
    assert_eq!(batch.status().await.unwrap().total, stored as u64);
}

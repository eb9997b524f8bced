//! Which callbacks are enqueued, and when.

use queue_core::flow::MemberState;
use queue_core::{RawTask, TaskState};
use queue_redis::BatchState;
use queue_redis::broker::Seen;
use queue_worker::Job;

use super::{Ran, callback, client, count, member, over, router, server, until, with_callbacks};
use crate::support::{Fixture, QUEUE, wait_for, with};

#[tokio::test]
async fn a_batch_that_succeeds_calls_complete_then_success_then_settled() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let batch = with_callbacks(&client(&fixture)).add_all((0..120).map(|_| member("ok"))).await.unwrap();
    let status = over(&batch).await;
    assert_eq!((status.state, status.total, status.succeeded), (BatchState::Succeeded, 120, 120));
    let all = ran.all();
    assert_eq!(count(&ran, "ok"), 120);
    assert_eq!(all[120..], ["complete", "success", "settled"]);
    server.shutdown().await;
    let left = fixture.keyspace().await;
    assert_eq!(left.paths_with("outcome"), Vec::<String>::new(), "all that was told is recorded");
    assert_eq!(left.paths_with("flow:"), Vec::<String>::new(), "no task is left");
}

#[tokio::test]
async fn an_empty_batch_succeeds_at_its_commit() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let batch = with_callbacks(&client(&fixture)).open().await.unwrap();
    assert_eq!(batch.status().await.unwrap().state, BatchState::Open);
    batch.commit().await.unwrap();
    assert_eq!(over(&batch).await.state, BatchState::Succeeded);
    assert_eq!(ran.all(), ["complete", "success", "settled"]);
    let whole = with_callbacks(&client(&fixture)).add_all(Vec::<queue_core::RawTask>::new()).await.unwrap();
    assert_eq!(over(&whole).await.state, BatchState::Succeeded);
    server.shutdown().await;
}

#[tokio::test]
async fn a_batch_without_callbacks_is_over_with_its_last_member() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let batch = client(&fixture).batch().add_all([member("ok"), member("fail once")]).await.unwrap();
    assert_eq!(over(&batch).await.state, BatchState::Succeeded);
    assert_eq!(count(&ran, "failed"), 1);
    server.shutdown().await;
}

#[tokio::test]
async fn a_member_that_dies_calls_death_and_no_success_until_it_is_run_again() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let batch = with_callbacks(&client(&fixture)).add_all([member("ok"), member("die"), member("ok")]).await.unwrap();
    let status = over(&batch).await;
    assert_eq!((status.state, status.succeeded, status.dead, status.generation), (BatchState::Dead, 2, 1, 1));
    assert_eq!(
        (count(&ran, "death"), count(&ran, "complete"), count(&ran, "settled"), count(&ran, "success")),
        (1, 1, 1, 0)
    );
    // Somebody mends what was wrong, and runs what died.
    ran.tell("heal");
    assert_eq!(batch.retry_dead().await.unwrap(), 1);
    let status = until(&batch, "it is over once more", |status| status.generation == 2 && status.is_over()).await;
    assert_eq!((status.state, status.succeeded, status.dead), (BatchState::Succeeded, 3, 0));
    assert_eq!(
        (count(&ran, "death"), count(&ran, "complete"), count(&ran, "settled"), count(&ran, "success")),
        (1, 1, 2, 1)
    );
    server.shutdown().await;
}

#[tokio::test]
async fn members_that_were_done_by_other_means_count_as_succeeded() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let batch = with_callbacks(&client(&fixture)).add_all(["ok", "die", "die"].map(member)).await.unwrap();
    assert_eq!(over(&batch).await.dead, 2);
    let flows = client(&fixture).flows();
    let dead = async || flows.members(batch.id(), Some(MemberState::Dead), 0, 10).await.unwrap().0;
    let ids: Vec<String> = dead().await.into_iter().map(|member| member.id).collect();
    assert_eq!(batch.resolve(Some(&["another".to_owned()])).await.unwrap(), 0);
    assert_eq!(batch.resolve(Some(&ids[..1])).await.unwrap(), 1);
    assert_eq!(dead().await.len(), 1);
    assert_eq!(over(&batch).await.state, BatchState::Dead);
    assert_eq!(batch.resolve(None).await.unwrap(), 1);
    let status = until(&batch, "it is over once more", |status| status.generation == 2 && status.is_over()).await;
    assert_eq!((status.state, status.succeeded, count(&ran, "success")), (BatchState::Succeeded, 3, 1));
    assert_eq!(count(&ran, "ok"), 1, "nothing ran again");
    server.shutdown().await;
}

#[tokio::test]
async fn complete_comes_while_members_that_failed_wait_for_another_attempt() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let batch = with_callbacks(&client(&fixture)).add_all([member("ok"), member("fail for long")]).await.unwrap();
    let (members, _) = client(&fixture).flows().members(batch.id(), None, 0, 10).await.unwrap();
    wait_for("it is complete", async || (count(&ran, "complete") == 1).then_some(())).await;
    assert_eq!(ran.all().len(), 3, "one ran, one failed, nothing else was called: {:?}", ran.all());
    let ids: Vec<&str> = members.iter().map(|member| &*member.id).collect();
    fixture.broker.run_tasks(QUEUE, Seen::In(TaskState::Retry), &ids, 0).await.unwrap();
    assert_eq!(over(&batch).await.state, BatchState::Succeeded);
    let all = ran.all();
    assert_eq!(all[3..], ["fail for long", "success", "settled"], "{all:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_revoked_member_is_removed_and_no_success() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let revoke = async |_: queue_worker::Job| Err::<(), _>(queue_worker::Failure::revoke("obsolete"));
    let server = server(&fixture, router(&ran).route("revoke", revoke)).start().await.unwrap();
    let revoked = queue_core::RawTask::new("revoke").queue(QUEUE);
    let batch = with_callbacks(&client(&fixture)).add_all([member("ok"), revoked]).await.unwrap();
    let status = over(&batch).await;
    assert_eq!((status.state, status.succeeded, status.removed), (BatchState::Dead, 1, 1));
    assert_eq!((count(&ran, "success"), count(&ran, "death")), (0, 1));
    server.shutdown().await;
}

#[tokio::test]
async fn a_callback_that_dies_dooms_the_batch_until_it_is_run_again() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let dies = queue_core::RawTask::new("member").payload("die").queue("callbacks");
    let batch = client(&fixture).batch().on_complete(dies).on_success(callback("success"));
    let batch = batch.add_all([member("ok")]).await.unwrap();
    let status = over(&batch).await;
    assert_eq!((status.state, count(&ran, "success")), (BatchState::Dead, 0));
    ran.tell("heal");
    let id = format!("flow:{}:0:complete", batch.id());
    let seen = Seen::In(TaskState::Archived);
    fixture.broker.run_tasks("callbacks", seen, &[&id], 0).await.unwrap();
    until(&batch, "it has succeeded", |status| status.state == BatchState::Succeeded && status.is_over()).await;
    assert_eq!(count(&ran, "success"), 1);
    server.shutdown().await;
}

#[tokio::test]
async fn a_member_that_runs_when_its_batch_is_cancelled_is_stopped_once_and_is_not_dead() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let batch = with_callbacks(&client(&fixture)).add_all([RawTask::new("endless").queue(QUEUE)]).await.unwrap();
    let endless = async |ran: Ran, _: Job| {
        ran.tell("started");
        std::future::pending::<()>().await;
    };
    let router = router(&ran).route("endless", with(&ran, endless));
    // Sooner than anybody would look again for it.
    let again = queue_core::RetryPolicy::Fixed(std::time::Duration::ZERO);
    let server = server(&fixture, router).retry_policy(again).start().await.unwrap();
    wait_for("it runs", async || (count(&ran, "started") == 1).then_some(())).await;
    assert!(batch.cancel().await.unwrap());
    let status = over(&batch).await;
    assert_eq!((status.state, status.cancelled, status.dead), (BatchState::Cancelled, 1, 0));
    assert_eq!(ran.all(), ["started", "settled"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_cancelled_batch_settles_and_never_succeeds() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let later = (0..30).map(|_| member("ok").process_in(std::time::Duration::from_secs(3600)));
    let batch = with_callbacks(&client(&fixture)).add_all(later).await.unwrap();
    assert!(batch.cancel().await.unwrap());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let status = until(&batch, "all members are cancelled", |status| status.live() == 0).await;
    assert_eq!((status.state, status.cancelled), (BatchState::Cancelled, 30));
    let status = over(&batch).await;
    assert!(status.fired.contains_key("settled") && !status.fired.contains_key("success"));
    assert_eq!(ran.all(), ["settled"]);
    assert!(!batch.cancel().await.unwrap() || batch.status().await.unwrap().state == BatchState::Cancelled);
    server.shutdown().await;
}

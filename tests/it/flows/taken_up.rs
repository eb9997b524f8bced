//! Batches that nobody commits, and that somebody goes on with later.

use queue_redis::BatchState;

use super::left_alone::stands_still;
use super::{Ran, callback, client, member, over, router, server, tend};
use crate::support::Fixture;

#[tokio::test]
async fn a_batch_that_nobody_commits_is_abandoned_and_settles() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let builder = client(&fixture).batch().on_success(callback("success")).on_settled(callback("settled"));
    let batch = builder.open().await.unwrap();
    batch.add_all([member("ok")]).await.unwrap();
    stands_still(&fixture, batch.id().root()).await;
    tend(&fixture, &batch).await;
    assert_eq!(batch.status().await.unwrap().state, BatchState::Abandoned);
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    over(&batch).await;
    assert_eq!(ran.all(), ["ok", "settled"]);
    server.shutdown().await;
}

/// Its maker was away for longer than half an hour.
#[tokio::test]
async fn a_batch_that_was_abandoned_is_gone_on_with_by_who_makes_it_again() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let builder =
        || client(&fixture).batch().id("import").on_success(callback("success")).on_settled(callback("settled"));
    let batch = builder().open().await.unwrap();
    // As far as it had come.
    batch.clone().keyed(".made").add_all(["a", "b"].map(member)).await.unwrap();
    stands_still(&fixture, "import").await;
    tend(&fixture, &batch).await;
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    assert_eq!(over(&batch).await.state, BatchState::Abandoned);
    let again = builder().add_all(["a", "b", "c"].map(member)).await.unwrap();
    assert!(again.existed());
    let end = over(&again).await;
    assert_eq!((end.state, end.succeeded, end.total), (BatchState::Succeeded, 3, 3));
    assert_eq!(ran.all(), ["a", "b", "settled", "c", "success", "settled"]);
    // One to which nothing was to be added any more.
    let batch = client(&fixture).batch().id("whole").open().await.unwrap();
    stands_still(&fixture, "whole").await;
    tend(&fixture, &batch).await;
    assert!(batch.status().await.unwrap().is_over());
    let again = client(&fixture).batch().id("whole").add_all([member("d")]).await.unwrap();
    assert_eq!(over(&again).await.state, BatchState::Succeeded);
    server.shutdown().await;
}

#[tokio::test]
async fn a_child_that_was_abandoned_is_gone_on_with_only_while_its_parent_may_grow() {
    let fixture = Fixture::start().await;
    let client = client(&fixture);
    let open = async || client.batch().id("whole").open().await.unwrap();
    let (whole, child) = (open().await, open().await.child().id("part").open().await.unwrap());
    for number in ["0", "1"] {
        let _: i64 = fixture.cmd(&["HSET", &format!("asynq:x:{{whole}}:{number}:flow"), "touched", "1"]).await;
    }
    tend(&fixture, &whole).await;
    let state = async |batch: &queue_redis::Batch| batch.status().await.unwrap().state;
    assert_eq!((state(&whole).await, state(&child).await), (BatchState::Abandoned, BatchState::Abandoned));
    let again = whole.child().id("part").open().await.unwrap();
    assert_eq!((state(&again).await, again.existed()), (BatchState::Abandoned, true));
    assert!(again.add_all([member("a")]).await.is_err());
    // Parts of it may be gone.
    fixture.run("HSET asynq:x:{whole}:0:flow forgotten 1").await;
    assert_eq!(state(&open().await).await, BatchState::Abandoned);
    fixture.run("HDEL asynq:x:{whole}:0:flow forgotten").await;
    let whole = open().await;
    let again = whole.child().id("part").add_all([member("a")]).await;
    assert_eq!(state(&again.unwrap()).await, BatchState::Running);
    whole.commit().await.unwrap();
    assert_eq!(whole.status().await.unwrap().live(), 1, "it waits for the child again");
    // What somebody has cancelled stays so.
    whole.cancel().await.unwrap();
    assert_eq!(state(&open().await).await, BatchState::Cancelled);
}

use queue_redis::broker::SHORT_BATCH;

use crate::support::{Fixture, NOW, QUEUE, is_wrong_type};

async fn completed(fixture: &Fixture, id: &str, expires: i64) {
    fixture.run(&format!("ZADD asynq:{{q}}:completed {expires} {id}")).await;
    fixture.run(&format!("HSET asynq:{{q}}:t:{id} msg m state completed result r")).await;
}

#[tokio::test]
async fn delete_expired_completed_deletes_what_has_expired_and_nothing_else() {
    let fixture = Fixture::start().await;
    completed(&fixture, "young", NOW + 1).await;
    let clean = fixture.keyspace().await;
    completed(&fixture, "old", NOW - 1).await;
    completed(&fixture, "now", NOW).await;
    fixture.run(&format!("ZADD asynq:{{q}}:completed {} ghost", NOW - 1)).await;
    assert_eq!(fixture.broker.delete_expired_completed(QUEUE, NOW).await.unwrap(), 3);
    fixture.keyspace().await.assert_unchanged_since(&clean);
    assert_eq!(fixture.broker.delete_expired_completed(QUEUE, NOW).await.unwrap(), 0);
    fixture.keyspace().await.assert_unchanged_since(&clean);
}

#[tokio::test]
async fn delete_expired_completed_deletes_a_batch_per_call() {
    let fixture = Fixture::start().await;
    for n in 0..=SHORT_BATCH {
        completed(&fixture, &n.to_string(), NOW).await;
    }
    assert_eq!(fixture.broker.delete_expired_completed(QUEUE, NOW).await.unwrap(), SHORT_BATCH);
    assert_eq!(fixture.broker.delete_expired_completed(QUEUE, NOW).await.unwrap(), 1);
    assert_eq!(fixture.cmd::<usize>(&["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn delete_expired_completed_fails_where_the_set_has_another_type() {
    let fixture = Fixture::start().await;
    let delete = async || fixture.broker.delete_expired_completed(QUEUE, NOW).await;
    let error = fixture.with_stray("asynq:{q}:completed", delete).await.unwrap_err();
    assert!(is_wrong_type(&error), "{error}");
}

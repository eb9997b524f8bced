use crate::support::{DEADLINE, Fixture, QUEUE, job};

#[tokio::test]
async fn extend_set_prolongs_an_aggregation_and_never_shortens_it() {
    let fixture = Fixture::start().await;
    let (set, _) = fixture.staged([job("a").group("g")]).await;
    let before = fixture.keyspace().await;
    assert!(fixture.broker.extend_set(&set, DEADLINE + 60).await.unwrap());
    assert!(fixture.broker.extend_set(&set, DEADLINE).await.unwrap());
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:aggregation_sets asynq:{q}:g:g:s1: score 4000000180
         + {q}:aggregation_sets asynq:{q}:g:g:s1: score 4000000240",
    );
    assert_eq!(fixture.broker.reclaim(QUEUE, "g", "s1", Some(DEADLINE + 59)).await.unwrap(), 0);
}

#[tokio::test]
async fn extend_set_of_a_set_that_was_reclaimed_changes_nothing() {
    let fixture = Fixture::start().await;
    let (set, _) = fixture.staged(["a", "b"].map(|id| job(id).group("g"))).await;
    fixture.run("ZREM asynq:{q}:g:g:s1 a").await;
    let before = fixture.keyspace().await;
    assert!(!fixture.broker.extend_set(&set, DEADLINE + 60).await.unwrap(), "a part is gone");
    fixture.keyspace().await.assert_unchanged_since(&before);
    fixture.broker.reclaim(QUEUE, "g", "s1", None).await.unwrap();
    let before = fixture.keyspace().await;
    assert!(!fixture.broker.extend_set(&set, DEADLINE + 60).await.unwrap());
    fixture.keyspace().await.assert_unchanged_since(&before);
}

use queue_redis::broker::Verdict::{self, Applied, Gone, Lost};
use queue_redis::{
    Error,
    broker::{Delivery, Run},
};

use crate::support::{Fixture, NOW, QUEUE, is_wrong_type, job};

async fn extend(fixture: &Fixture, deliveries: &[Delivery], expires: i64) -> Result<Vec<Verdict>, Error> {
    let runs: Vec<Run> = deliveries.iter().map(|delivery| delivery.run.clone()).collect();
    let mut connection = fixture.redis().pooled().await.unwrap();
    fixture.broker.extend_lease(&mut connection, QUEUE, &runs, expires).await
}

#[tokio::test]
async fn extend_lease_prolongs_the_callers_leases_and_names_the_others() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch(["a", "b", "c", "d", "e"].map(job)).await;
    fixture.run("HSET asynq:{q}:t:b owner other").await;
    fixture.run("DEL asynq:{q}:t:c").await;
    fixture.run("ZREM asynq:{q}:lease d").await;
    let before = fixture.keyspace().await;
    let verdicts = extend(&fixture, &tasks, NOW + 60).await.unwrap();
    assert_eq!(verdicts, [Applied, Lost, Gone, Lost, Applied]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:lease a: score 4000000030
         + {q}:lease a: score 4000000060
         - {q}:lease e: score 4000000030
         + {q}:lease e: score 4000000060",
    );
}

#[tokio::test]
async fn a_lease_is_never_shortened() {
    let fixture = Fixture::start().await;
    let tasks = [fixture.active(job("a")).await];
    let before = fixture.keyspace().await;
    assert_eq!(extend(&fixture, &tasks, NOW + 29).await.unwrap(), [Applied]);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn extend_lease_works_on_a_batch() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch((0..100).map(|n| job(&n.to_string()))).await;
    assert_eq!(extend(&fixture, &tasks, NOW + 60).await.unwrap(), [Applied; 100]);
    let prolonged: usize = fixture.cmd(&["ZCOUNT", "asynq:{q}:lease", "4000000060", "4000000060"]).await;
    assert_eq!(prolonged, 100);
}

#[tokio::test]
async fn keys_of_another_type_do_not_bring_a_lease() {
    let fixture = Fixture::start().await;
    let tasks = [fixture.active(job("a")).await];
    let before = fixture.keyspace().await;
    let error =
        fixture.with_stray("asynq:{q}:lease", async || extend(&fixture, &tasks, NOW + 60).await).await.unwrap_err();
    assert!(is_wrong_type(&error), "{error}");
    let verdicts = fixture.with_stray("asynq:{q}:t:a", async || extend(&fixture, &tasks, NOW + 60).await).await;
    assert_eq!(verdicts.unwrap(), [Lost]);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

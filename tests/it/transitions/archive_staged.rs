use std::time::Duration;

use queue_core::{TaskMessage, UniqueUntil};
use queue_redis::{
    Error,
    broker::{StagedSet, StagedTask},
};

use crate::support::{Fixture, QUEUE, READY, is_wrong_type, job};

async fn archive(fixture: &Fixture, set: &mut StagedSet, task: &StagedTask) -> Result<bool, Error> {
    let message = task.message.clone().map(|message| TaskMessage { error_msg: "torn".into(), ..message });
    fixture.broker.archive_staged(set, &[(task, message.as_ref())], READY).await
}

#[tokio::test]
async fn archive_staged_keeps_the_task_with_the_reason_and_counts_a_failure() {
    let fixture = Fixture::start().await;
    let (mut set, tasks) = fixture.staged(["a", "b"].map(|id| job(id).group("g"))).await;
    let before = fixture.keyspace().await;
    assert!(archive(&fixture, &mut set, &tasks[0]).await.unwrap());
    assert_eq!(set.count, 1);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:archived a: score 4000000060
         + {q}:failed: 1
         + {q}:failed:2096-10-02: 1
         + {q}:failed:2096-10-02 expires: at 4007776060
         - {q}:g:g:s1 a: score 4000000000
         + {q}:processed: 1
         + {q}:processed:2096-10-02: 1
         + {q}:processed:2096-10-02 expires: at 4007776060
         - {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800 group_key=g
         + {q}:t:a msg: type=job id=a queue=q retry=25 error_msg=torn timeout=1800 group_key=g
         - {q}:t:a state: aggregating
         + {q}:t:a state: archived",
    );
    assert!(archive(&fixture, &mut set, &tasks[1]).await.unwrap());
    let after = fixture.keyspace().await;
    assert_eq!((set.count, after.paths_with("s1")), (0, vec![]), "an empty set is not listed");
}

#[tokio::test]
async fn archive_staged_frees_a_lock_that_ends_with_the_task() {
    for (until, left) in [(UniqueUntil::Start, 0), (UniqueUntil::Finish, 0), (UniqueUntil::Success, 1)] {
        let fixture = Fixture::start().await;
        let task = job("a").group("g").unique(Duration::from_secs(600)).unique_until(until);
        let (mut set, tasks) = fixture.staged([task]).await;
        assert!(archive(&fixture, &mut set, &tasks[0]).await.unwrap());
        assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "*unique*"]).await.len(), left, "{until:?}");
    }
}

#[tokio::test]
async fn an_unreadable_message_of_a_set_is_archived_as_it_is() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").group("g")]).await;
    fixture.run("HSET asynq:{q}:t:a msg \u{1}").await;
    let (mut set, tasks) = fixture.staged([]).await;
    assert!(archive(&fixture, &mut set, &tasks[0]).await.unwrap());
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}:t:a msg"), Some("unreadable 0x01"));
    assert_eq!(after.get("{q}:archived a"), Some("score 4000000060"));
}

#[tokio::test]
async fn archive_staged_of_a_set_that_was_reclaimed_changes_nothing() {
    let fixture = Fixture::start().await;
    let (mut set, tasks) = fixture.staged(["a", "b"].map(|id| job(id).group("g"))).await;
    fixture.broker.reclaim(QUEUE, "g", "s1", None).await.unwrap();
    let before = fixture.keyspace().await;
    assert!(!archive(&fixture, &mut set, &tasks[0]).await.unwrap());
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn archive_staged_fails_where_the_archive_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let (mut set, tasks) = fixture.staged([job("a").group("g")]).await;
    let before = fixture.keyspace().await;
    let act = async || archive(&fixture, &mut set, &tasks[0]).await;
    assert!(is_wrong_type(&fixture.with_stray("asynq:{q}:archived", act).await.unwrap_err()));
    fixture.keyspace().await.assert_unchanged_since(&before);
}

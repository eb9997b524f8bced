use std::time::Duration;

use queue_admin::{Error, Inspector};
use queue_core::TaskState;

use crate::support::{Fixture, QUEUE, is_wrong_type, job, of_redis};

const OLD_LOCK: &str = "asynq:{q}:unique:job:149603e6c03516362a8da23f624db945";
const NEW_LOCK: &str = "asynq:{q}:unique:job:22af645d1859cb5ca6da0c484f1f37ea";

async fn update(fixture: &Fixture, id: &str) -> Result<(), Error> {
    Inspector::new(fixture.redis()).update_payload(QUEUE, id, "new").await
}

async fn listed() -> Fixture {
    let fixture = Fixture::start().await;
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    fixture
}

#[tokio::test]
async fn update_payload_changes_the_message_and_nothing_else_in_every_state_but_active_and_completed() {
    for state in
        [TaskState::Pending, TaskState::Scheduled, TaskState::Retry, TaskState::Archived, TaskState::Aggregating]
    {
        let fixture = listed().await;
        fixture.put_in(state, job("a").payload("old").header("k", "v")).await;
        let before = fixture.keyspace().await;
        update(&fixture, "a").await.unwrap();
        let (old, changes) = (before.get("{q}:t:a msg").unwrap(), fixture.keyspace().await.changes_since(&before));
        let new = old.replace("payload=old", "payload=new");
        assert_eq!(changes, format!("- {{q}}:t:a msg: {old}\n+ {{q}}:t:a msg: {new}\n"), "{state}");
    }
}

#[tokio::test]
async fn the_lock_follows_the_payload_with_the_time_it_has_left() {
    for state in [TaskState::Scheduled, TaskState::Retry, TaskState::Aggregating] {
        let fixture = listed().await;
        fixture.put_in(state, job("a").payload("old").unique(Duration::from_secs(600))).await;
        fixture.run(&format!("EXPIRE {OLD_LOCK} 100")).await;
        update(&fixture, "a").await.unwrap();
        let after = fixture.keyspace().await;
        let short = |lock: &str| lock.strip_prefix("asynq:").unwrap().to_owned();
        assert_eq!(after.get(&short(OLD_LOCK)), None, "{state}");
        assert_eq!(after.get(&short(NEW_LOCK)), Some("a"));
        assert_eq!(after.get(&format!("{} expires", short(NEW_LOCK))), Some("in about 100 s"));
        assert_eq!(after.get("{q}:t:a unique_key"), Some(NEW_LOCK));
        assert!(after.get("{q}:t:a msg").unwrap().contains(&format!("unique_key={NEW_LOCK}")));
        fixture.broker.delete_tasks(QUEUE, queue_redis::broker::Seen::Anywhere, &["a"]).await.unwrap();
        assert!(fixture.keyspace().await.paths_with("a").is_empty());
    }
}

#[tokio::test]
async fn a_lock_that_has_run_out_is_not_taken_anew() {
    let fixture = listed().await;
    fixture.put_in(TaskState::Scheduled, job("a").payload("old").unique(Duration::from_secs(600))).await;
    fixture.run(&format!("DEL {OLD_LOCK}")).await;
    update(&fixture, "a").await.unwrap();
    let locks: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:unique:*"]).await;
    assert!(locks.is_empty(), "{locks:?}");
    // Another task has it by now.
    fixture.run(&format!("SET {NEW_LOCK} b EX 600")).await;
    Inspector::new(fixture.redis()).update_payload(QUEUE, "a", "old").await.unwrap();
    let after = fixture.keyspace().await;
    assert_eq!(after.get(NEW_LOCK.strip_prefix("asynq:").unwrap()), Some("b"));
    assert_eq!(after.get(OLD_LOCK.strip_prefix("asynq:").unwrap()), None);
}

#[tokio::test]
async fn update_payload_is_refused_where_another_task_has_the_lock_and_names_it() {
    let fixture = listed().await;
    let lock = Duration::from_secs(600);
    fixture.put_in(TaskState::Scheduled, job("a").payload("old").unique(lock)).await;
    fixture.put_in(TaskState::Scheduled, job("b").payload("new").unique(lock)).await;
    let before = fixture.keyspace().await;
    let error = update(&fixture, "a").await.unwrap_err();
    assert!(matches!(&error, Error::PayloadLocked { holder, .. } if holder == "b"), "{error}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn update_payload_is_refused_for_tasks_that_are_active_completed_or_gone() {
    let fixture = listed().await;
    fixture.put_in(TaskState::Active, job("active")).await;
    fixture.put_in(TaskState::Completed, job("completed")).await;
    fixture.put_in(TaskState::Scheduled, job("torn")).await;
    fixture.run("HSET asynq:{q}:t:torn msg \u{1}").await;
    let before = fixture.keyspace().await;
    assert!(matches!(update(&fixture, "active").await, Err(Error::TaskActive { .. })));
    assert!(matches!(update(&fixture, "completed").await, Err(Error::TaskCompleted { .. })));
    assert!(matches!(update(&fixture, "nobody").await, Err(Error::TaskNotFound { .. })));
    assert!(matches!(update(&fixture, "torn").await, Err(Error::Unreadable { .. })));
    let inspector = Inspector::new(fixture.redis());
    let elsewhere = inspector.update_payload("none", "active", "new").await;
    assert!(matches!(elsewhere, Err(Error::QueueNotFound(_))));
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn update_payload_is_refused_for_a_task_that_is_being_aggregated() {
    let fixture = listed().await;
    fixture.staged([job("a").group("g").payload("old").unique(Duration::from_secs(600))]).await;
    let before = fixture.keyspace().await;
    let refused = update(&fixture, "a").await;
    let state = TaskState::Aggregating;
    assert!(matches!(refused, Err(Error::TaskMisplaced { state: named, .. }) if named == state), "{refused:?}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn of_many_updates_at_once_none_undoes_the_lock_of_another() {
    let fixture = listed().await;
    fixture.put_in(TaskState::Scheduled, job("a").payload("old").unique(Duration::from_secs(600))).await;
    let inspector = Inspector::new(fixture.redis());
    let updates: Vec<_> = (0..16)
        .map(|n| {
            let inspector = inspector.clone();
            tokio::spawn(async move { inspector.update_payload(QUEUE, "a", format!("p{n}")).await })
        })
        .collect();
    for update in updates {
        // Whoever is overtaken five times says so.
        assert!(matches!(update.await.unwrap(), Ok(()) | Err(Error::TaskChanged { .. })));
    }
    let locks: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:unique:*"]).await;
    let named: String = fixture.cmd(&["HGET", "asynq:{q}:t:a", "unique_key"]).await;
    assert_eq!(locks, [named]);
}

#[tokio::test]
async fn update_payload_fails_where_the_lock_has_another_type_and_changes_nothing() {
    let fixture = listed().await;
    fixture.put_in(TaskState::Scheduled, job("a").payload("old").unique(Duration::from_secs(600))).await;
    let before = fixture.keyspace().await;
    let error = fixture.with_stray(NEW_LOCK, async || update(&fixture, "a").await).await.unwrap_err();
    assert!(is_wrong_type(&of_redis(error.clone())), "{error}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

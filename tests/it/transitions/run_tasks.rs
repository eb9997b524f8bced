use std::time::Duration;

use queue_core::TaskState;
use queue_redis::broker::Change::{self, Active, AlreadyThere, Applied, Gone, Misplaced, MovedOn};
use queue_redis::{
    Error,
    broker::{MAX_BATCH, Seen},
};

use crate::support::{Fixture, GROUP, NOW_NS, QUEUE, by_path, is_wrong_type, job};

async fn run(fixture: &Fixture, seen: Seen<'_>, ids: &[&str]) -> Result<Vec<Change>, Error> {
    fixture.broker.run_tasks(QUEUE, seen, ids, NOW_NS + 5).await
}

#[tokio::test]
async fn run_tasks_makes_tasks_pending_behind_the_others_from_each_state() {
    for (state, leaves) in [
        (TaskState::Scheduled, "- {q}:scheduled a: score 4000003600"),
        (TaskState::Retry, "- {q}:retry a: score 4000003600"),
        (TaskState::Archived, "- {q}:archived a: score 4000000000"),
        (TaskState::Completed, "- {q}:completed a: score 4000003600"),
        (TaskState::Aggregating, "- {q}:g:g a: score 4000000000\n- {q}:groups g: member"),
    ] {
        let fixture = Fixture::start().await;
        fixture.put_in(state, job("a").unique(Duration::from_secs(600))).await;
        fixture.put([job("z")]).await;
        let before = fixture.keyspace().await;
        assert_eq!(run(&fixture, Seen::Anywhere, &["a"]).await.unwrap(), [Applied], "{state}");
        fixture.keyspace().await.assert_changes_since(
            &before,
            &by_path(&format!(
                "{leaves}
                 - {{q}}:pending: [z]
                 + {{q}}:pending: [a z]
                 + {{q}}:t:a pending_since: 4000000000000000005
                 - {{q}}:t:a state: {state}
                 + {{q}}:t:a state: pending"
            )),
        );
    }
}

#[tokio::test]
async fn run_tasks_keeps_the_order_given_and_the_rest_of_the_set() {
    let fixture = Fixture::start().await;
    for id in ["a", "b", "c", "d"] {
        fixture.put_in(TaskState::Scheduled, job(id)).await;
    }
    assert_eq!(run(&fixture, Seen::In(TaskState::Scheduled), &["c", "a", "d"]).await.unwrap(), [Applied; 3]);
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}:pending"), Some("[d a c]"), "c is next");
    assert_eq!(after.get("{q}:scheduled b"), Some("score 4000003600"));
    assert_eq!(after.get("{q}:scheduled a"), None);
}

#[tokio::test]
async fn a_group_that_still_has_tasks_stays_listed() {
    let fixture = Fixture::start().await;
    for id in ["a", "b"] {
        fixture.put_in(TaskState::Aggregating, job(id)).await;
    }
    assert_eq!(run(&fixture, Seen::InGroup(GROUP), &["a"]).await.unwrap(), [Applied]);
    assert_eq!(fixture.keyspace().await.get("{q}:groups g"), Some("member"));
    assert_eq!(run(&fixture, Seen::InGroup(GROUP), &["b"]).await.unwrap(), [Applied]);
    assert_eq!(fixture.keyspace().await.get("{q}:groups g"), None);
}

#[tokio::test]
async fn run_tasks_refuses_what_is_active_pending_gone_or_elsewhere_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Active, job("active")).await;
    fixture.put_in(TaskState::Scheduled, job("lost")).await;
    fixture.put_in(TaskState::Aggregating, job("staged")).await;
    fixture.put_in(TaskState::Scheduled, job("later")).await;
    fixture.run("ZREM asynq:{q}:scheduled lost").await;
    fixture.run("ZREM asynq:{q}:g:g staged").await;
    fixture.run("HSET asynq:{q}:t:odd msg m state nonsense").await;
    fixture.run("HSET asynq:{q}:t:stub state scheduled").await;
    fixture.run("ZADD asynq:{q}:scheduled 1 stub 1 ghost").await;
    fixture.put_in(TaskState::Pending, job("pending")).await;
    let before = fixture.keyspace().await;
    for (id, refusal) in [
        ("active", Active),
        ("pending", AlreadyThere),
        ("nobody", Gone),
        ("lost", Misplaced),
        ("staged", Misplaced),
        ("odd", Misplaced),
        ("stub", Gone),
        ("ghost", Gone),
    ] {
        assert_eq!(run(&fixture, Seen::Anywhere, &[id]).await.unwrap(), [refusal], "{id}");
    }
    for (id, refusal) in [("active", MovedOn), ("pending", MovedOn), ("later", MovedOn), ("ghost", Gone)] {
        assert_eq!(run(&fixture, Seen::In(TaskState::Retry), &[id]).await.unwrap(), [refusal], "{id}");
    }
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn run_tasks_judges_each_task_of_a_batch_by_itself() {
    let fixture = Fixture::start().await;
    let ids: Vec<String> = (0..MAX_BATCH).map(|n| format!("t{n}")).collect();
    for id in &ids {
        if id != "t7" {
            fixture.put_in(TaskState::Scheduled, job(id)).await;
        }
    }
    let words: Vec<&str> = ids.iter().map(String::as_str).collect();
    let changes = run(&fixture, Seen::In(TaskState::Scheduled), &words).await.unwrap();
    assert_eq!(changes.iter().filter(|change| **change == Applied).count(), MAX_BATCH - 1);
    assert_eq!(changes[7], Gone);
    assert_eq!(run(&fixture, Seen::In(TaskState::Scheduled), &words).await.unwrap()[0], MovedOn, "sent again");
}

#[tokio::test]
async fn run_tasks_fails_where_a_key_has_another_type_and_changes_nothing() {
    for (state, key) in
        [(TaskState::Scheduled, "pending"), (TaskState::Scheduled, "scheduled"), (TaskState::Aggregating, "g:g")]
    {
        let fixture = Fixture::start().await;
        fixture.put_in(state, job("a")).await;
        let before = fixture.keyspace().await;
        let act = async || run(&fixture, Seen::Anywhere, &["a"]).await;
        let error = fixture.with_stray(&format!("asynq:{{q}}:{key}"), act).await.unwrap_err();
        assert!(is_wrong_type(&error), "{key}: {error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn run_tasks_does_not_touch_a_task_of_another_type_and_bears_a_list_of_groups_of_another_type() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Aggregating, job("a")).await;
    let before = fixture.keyspace().await;
    let act = async || run(&fixture, Seen::Anywhere, &["a"]).await;
    assert_eq!(fixture.with_stray("asynq:{q}:t:a", act).await.unwrap(), [Gone]);
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert_eq!(fixture.with_stray("asynq:{q}:groups", act).await.unwrap(), [Applied]);
    assert_eq!(fixture.keyspace().await.get("{q}:pending"), Some("[a]"));
}

use std::time::Duration;

use queue_core::TaskState;
use queue_redis::broker::Change::{self, Active, AlreadyThere, Applied, Elsewhere, Gone, Misplaced, MovedOn};
use queue_redis::{
    Error,
    broker::{MAX_BATCH, Seen},
};

use crate::support::{Fixture, GROUP, NOW, QUEUE, by_path, is_wrong_type, job};

const AT: i64 = NOW + 7;
const MAX_AGE: i64 = 90 * 24 * 60 * 60;
/// asynq's nominal 10 000 are 9 999 in effect.
const MOST: usize = 9_999;

async fn archive(fixture: &Fixture, seen: Seen<'_>, ids: &[&str]) -> Result<(Vec<Change>, u64), Error> {
    fixture.broker.archive_tasks(QUEUE, seen, ids, AT).await
}

#[tokio::test]
async fn archive_tasks_keeps_message_and_lock_from_each_state_and_counts_nothing() {
    for (state, leaves) in [
        (TaskState::Scheduled, "- {q}:scheduled a: score 4000003600"),
        (TaskState::Retry, "- {q}:retry a: score 4000003600"),
        (TaskState::Completed, "- {q}:completed a: score 4000003600"),
        (TaskState::Aggregating, "- {q}:g:g a: score 4000000000\n- {q}:groups g: member"),
        (TaskState::Pending, "- {q}:pending: [a]\n- {q}:t:a pending_since: 4000000000000000000"),
    ] {
        let fixture = Fixture::start().await;
        fixture.put_in(state, job("a").unique(Duration::from_secs(600))).await;
        let before = fixture.keyspace().await;
        assert_eq!(archive(&fixture, Seen::Anywhere, &["a"]).await.unwrap(), (vec![Applied], 0), "{state}");
        fixture.keyspace().await.assert_changes_since(
            &before,
            &by_path(&format!(
                "{leaves}
                 + {{q}}:archived a: score 4000000007
                 - {{q}}:t:a state: {state}
                 + {{q}}:t:a state: archived"
            )),
        );
    }
}

#[tokio::test]
async fn archive_tasks_refuses_what_is_active_archived_gone_or_elsewhere_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Active, job("active")).await;
    fixture.put_in(TaskState::Archived, job("archived")).await;
    fixture.put_in(TaskState::Scheduled, job("lost")).await;
    fixture.put_in(TaskState::Pending, job("unlisted")).await;
    fixture.run("DEL asynq:{q}:pending").await;
    fixture.put_in(TaskState::Aggregating, job("staged")).await;
    fixture.put_in(TaskState::Scheduled, job("later")).await;
    fixture.run("ZREM asynq:{q}:scheduled lost").await;
    fixture.run("ZREM asynq:{q}:g:g staged").await;
    fixture.run("ZADD asynq:{q}:retry 1 ghost").await;
    let before = fixture.keyspace().await;
    for (id, refusal) in [
        ("active", Active),
        ("archived", AlreadyThere),
        ("nobody", Gone),
        ("lost", Misplaced),
        ("staged", Misplaced),
        ("unlisted", Misplaced),
        ("ghost", Gone),
    ] {
        assert_eq!(archive(&fixture, Seen::Anywhere, &[id]).await.unwrap(), (vec![refusal], 0), "{id}");
    }
    for (seen, refusal) in
        [(Seen::In(TaskState::Retry), MovedOn), (Seen::InGroup(GROUP), MovedOn), (Seen::PendingAt(0), MovedOn)]
    {
        assert_eq!(archive(&fixture, seen, &["later"]).await.unwrap(), (vec![refusal], 0), "{seen:?}");
    }
    assert_eq!(archive(&fixture, Seen::PendingAt(0), &["unlisted"]).await.unwrap(), (vec![Elsewhere], 0));
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn archive_tasks_takes_pending_tasks_out_of_the_middle_and_keeps_the_order_of_the_others() {
    let fixture = Fixture::start().await;
    fixture.put((0..500).map(|n| job(&format!("t{n}")))).await;
    let ids: Vec<String> = (200..300).rev().step_by(2).map(|n| format!("t{n}")).collect();
    let words: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (changes, _) = archive(&fixture, Seen::PendingAt(200), &words).await.unwrap();
    assert!(changes.iter().all(|change| *change == Applied), "{changes:?}");
    let left: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    let expected: Vec<String> = (0..500).rev().map(|n| format!("t{n}")).filter(|id| !ids.contains(id)).collect();
    assert_eq!(left, expected);
    assert_eq!(fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:archived"]).await, ids.len());
}

/// Fills the archive with tasks `<prefix>1` and so on, with scores that begin at `score` and grow by one.
async fn fill(fixture: &Fixture, prefix: &str, count: usize, score: i64) {
    let fill = "for n = 1, ARGV[2] do
        redis.call('ZADD', 'asynq:{q}:archived', ARGV[3] + n, ARGV[1] .. n)
        redis.call('HSET', 'asynq:{q}:t:' .. ARGV[1] .. n, 'msg', 'm', 'state', 'archived')
    end";
    let _: redis::Value = fixture.cmd(&["EVAL", fill, "0", prefix, &count.to_string(), &score.to_string()]).await;
}

/// asynq's Inspector leaves the hashes behind, so that the ids can never be used again (W17).
#[tokio::test]
async fn archive_tasks_deletes_those_that_fall_out_with_hash_and_lock() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Archived, job("old").unique(Duration::from_secs(600))).await;
    fixture.run("ZADD asynq:{q}:archived 1000 old").await;
    fill(&fixture, "t", MOST - 1, NOW - 20_000).await;
    fixture.put_in(TaskState::Scheduled, job("a")).await;
    assert_eq!(archive(&fixture, Seen::Anywhere, &["a"]).await.unwrap(), (vec![Applied], 1));
    assert!(fixture.keyspace().await.paths_with("old").is_empty());
    assert_eq!(fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:archived"]).await, MOST);
    assert_eq!(fixture.cmd::<usize>(&["DBSIZE"]).await, MOST + 1 + 4, "tasks, the set, four counters");
}

#[tokio::test]
async fn archive_tasks_trims_at_most_a_hundred_and_never_what_it_archives() {
    let fixture = Fixture::start().await;
    // All that is there seems younger: the clock of the caller is behind.
    fill(&fixture, "t", MOST, NOW + 1_000).await;
    let ids: Vec<String> = (0..MAX_BATCH).map(|n| format!("a{n}")).collect();
    for id in &ids {
        fixture.put_in(TaskState::Scheduled, job(id)).await;
    }
    let words: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (changes, trimmed) = archive(&fixture, Seen::In(TaskState::Scheduled), &words).await.unwrap();
    assert!(changes.iter().all(|change| *change == Applied), "{changes:?}");
    assert_eq!(trimmed, 0, "the hundred oldest are those just archived");
    for id in &ids {
        let state: Option<String> = fixture.cmd(&["HGET", &format!("asynq:{{q}}:t:{id}"), "state"]).await;
        assert_eq!(state.as_deref(), Some("archived"));
    }
    let fixture = Fixture::start().await;
    fill(&fixture, "old", 300, AT - MAX_AGE - 300).await;
    fixture.put_in(TaskState::Scheduled, job("a")).await;
    assert_eq!(archive(&fixture, Seen::Anywhere, &["a"]).await.unwrap(), (vec![Applied], 100));
}

#[tokio::test]
async fn archive_tasks_fails_where_a_key_has_another_type_and_changes_nothing() {
    for (state, key) in [
        (TaskState::Scheduled, "archived"),
        (TaskState::Pending, "archived"),
        (TaskState::Pending, "pending"),
        (TaskState::Scheduled, "scheduled"),
        (TaskState::Aggregating, "g:g"),
    ] {
        let fixture = Fixture::start().await;
        fixture.put_in(state, job("a")).await;
        let before = fixture.keyspace().await;
        for seen in [Seen::Anywhere, Seen::PendingAt(0)] {
            let act = async || archive(&fixture, seen, &["a"]).await;
            let answer = fixture.with_stray(&format!("asynq:{{q}}:{key}"), act).await;
            match (state, seen, answer) {
                (TaskState::Pending, _, Err(error)) | (_, Seen::Anywhere, Err(error)) => {
                    assert!(is_wrong_type(&error), "{key}: {error}");
                }
                (_, Seen::PendingAt(_), Ok((changes, 0))) => assert_eq!(changes, [MovedOn], "{key}"),
                (_, _, Err(error)) => assert!(is_wrong_type(&error) && key == "archived", "{key}: {error}"),
                (_, _, answer) => panic!("{key}: {answer:?}"),
            }
            fixture.keyspace().await.assert_unchanged_since(&before);
        }
    }
}

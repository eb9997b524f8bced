use std::time::Duration;

use queue_core::TaskState;
use queue_redis::broker::Change::{self, Active, Applied, Dropped, Elsewhere, Gone, Misplaced, MovedOn};
use queue_redis::{Error, broker::Seen};

use crate::support::{Fixture, GROUP, QUEUE, is_wrong_type, job};

async fn delete(fixture: &Fixture, seen: Seen<'_>, ids: &[&str]) -> Result<Vec<Change>, Error> {
    fixture.broker.delete_tasks(QUEUE, seen, ids).await
}

const STATES: [TaskState; 6] = [
    TaskState::Pending,
    TaskState::Scheduled,
    TaskState::Retry,
    TaskState::Archived,
    TaskState::Completed,
    TaskState::Aggregating,
];

#[tokio::test]
async fn delete_tasks_leaves_nothing_of_a_task_in_any_state_and_frees_its_lock() {
    for state in STATES {
        let fixture = Fixture::start().await;
        let before = fixture.keyspace().await;
        fixture.put_in(state, job("a").unique(Duration::from_secs(600))).await;
        fixture.forget_counters().await;
        assert_eq!(delete(&fixture, Seen::Anywhere, &["a"]).await.unwrap(), [Applied], "{state}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn delete_tasks_leaves_the_lock_of_another_task_and_the_neighbours_alone() {
    for state in STATES {
        let fixture = Fixture::start().await;
        for id in ["n1", "a", "n2"] {
            let payload = format!("payload of {id}");
            fixture.put_in(state, job(id).payload(payload).unique(Duration::from_secs(600))).await;
        }
        let lock: String = fixture.cmd(&["HGET", "asynq:{q}:t:a", "unique_key"]).await;
        fixture.run(&format!("SET {lock} n3 KEEPTTL")).await;
        let before = fixture.keyspace().await;
        assert_eq!(delete(&fixture, Seen::Anywhere, &["a"]).await.unwrap(), [Applied], "{state}");
        let after = fixture.keyspace().await;
        assert!(after.paths_with("a").is_empty(), "{after}");
        assert_eq!(after.about("n1").to_string(), before.about("n1").to_string().replace("[n2 a n1]", "[n2 n1]"));
        assert_eq!(after.about("n3").to_string(), before.about("n3").to_string());
    }
}

/// Go writes the lock of a task in a group into the message and not into the hash (W23).
#[tokio::test]
async fn delete_tasks_finds_a_lock_that_only_the_message_names() {
    for headers in [0, 40] {
        let fixture = Fixture::start().await;
        let before = fixture.keyspace().await;
        let mut task = job("a").payload("x".repeat(300)).unique(Duration::from_secs(600));
        for n in 0..headers {
            task = task.header(format!("name-{n}"), "value");
        }
        fixture.put_in(TaskState::Aggregating, task).await;
        fixture.run("HDEL asynq:{q}:t:a unique_key").await;
        assert_eq!(delete(&fixture, Seen::InGroup(GROUP), &["a"]).await.unwrap(), [Applied]);
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn delete_tasks_bears_a_message_that_cannot_be_read() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    for torn in ["\u{1}", "R\u{7f}", "R", "\u{7f}\u{7f}\u{7f}", "zzzzzzzz"] {
        fixture.put_in(TaskState::Aggregating, job("a")).await;
        let _: i64 = fixture.cmd(&["HSET", "asynq:{q}:t:a", "msg", torn]).await;
        assert_eq!(delete(&fixture, Seen::Anywhere, &["a"]).await.unwrap(), [Applied]);
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn delete_tasks_refuses_what_is_active_being_aggregated_or_gone_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Active, job("active")).await;
    fixture.put_in(TaskState::Aggregating, job("staged")).await;
    fixture.put_in(TaskState::Scheduled, job("later")).await;
    fixture.run("ZREM asynq:{q}:g:g staged").await;
    fixture.run("SREM asynq:{q}:groups g").await;
    fixture.run("ZADD asynq:{q}:g:g:set 4000000000 staged").await;
    fixture.run("ZADD asynq:{q}:aggregation_sets 4000000120 asynq:{q}:g:g:set").await;
    fixture.put_in(TaskState::Aggregating, job("done with")).await;
    let _: i64 = fixture.cmd(&["ZREM", "asynq:{q}:g:g", "done with"]).await;
    fixture.run("SREM asynq:{q}:groups g").await;
    let _: i64 = fixture.cmd(&["ZADD", "asynq:{q}:x:aggregated:set", "1", "done with"]).await;
    fixture.run("SADD asynq:{q}:x:aggregated asynq:{q}:x:aggregated:set").await;
    fixture.run("HSET asynq:{q}:t:zombie state active").await;
    fixture.run("LPUSH asynq:{q}:active zombie").await;
    let before = fixture.keyspace().await;
    for (id, refusal) in
        [("active", Active), ("staged", Misplaced), ("done with", Misplaced), ("nobody", Gone), ("zombie", Active)]
    {
        assert_eq!(delete(&fixture, Seen::Anywhere, &[id]).await.unwrap(), [refusal], "{id}");
    }
    assert_eq!(delete(&fixture, Seen::In(TaskState::Retry), &["later"]).await.unwrap(), [MovedOn]);
    assert_eq!(delete(&fixture, Seen::InGroup(GROUP), &["staged"]).await.unwrap(), [Misplaced]);
    assert_eq!(delete(&fixture, Seen::PendingAt(0), &["later"]).await.unwrap(), [MovedOn]);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

/// What asynq's own tools and older Redises leave behind: W12, W14, W17.
#[tokio::test]
async fn delete_tasks_removes_what_is_left_of_a_task() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    fixture.put_in(TaskState::Archived, job("trimmed").unique(Duration::from_secs(600))).await;
    fixture.run("ZREM asynq:{q}:archived trimmed").await;
    fixture.put_in(TaskState::Archived, job("half")).await;
    fixture.run("HSET asynq:{q}:t:half state active").await;
    fixture.put_in(TaskState::Pending, job("lost")).await;
    fixture.run("DEL asynq:{q}:pending").await;
    fixture.run("HSET asynq:{q}:t:late result r").await;
    fixture.run("HSET asynq:{q}:t:odd msg m state nonsense").await;
    fixture.run("HSET asynq:{q}:t:stub state retry").await;
    fixture.run("ZADD asynq:{q}:retry 1 stub").await;
    fixture.forget_counters().await;
    for (id, change) in [
        ("trimmed", Applied),
        ("half", Applied),
        ("lost", Applied),
        ("late", Dropped),
        ("odd", Applied),
        ("stub", Dropped),
    ] {
        assert_eq!(delete(&fixture, Seen::Anywhere, &[id]).await.unwrap(), [change], "{id}");
    }
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn delete_tasks_drops_ids_without_tasks_where_they_were_seen() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    fixture.run("ZADD asynq:{q}:retry 1 ghost").await;
    assert_eq!(delete(&fixture, Seen::In(TaskState::Retry), &["ghost"]).await.unwrap(), [Dropped]);
    fixture.run("LPUSH asynq:{q}:pending ghost").await;
    assert_eq!(delete(&fixture, Seen::PendingAt(0), &["ghost"]).await.unwrap(), [Dropped]);
    fixture.run("ZADD asynq:{q}:g:g 1 ghost").await;
    fixture.run("SADD asynq:{q}:groups g").await;
    assert_eq!(delete(&fixture, Seen::InGroup(GROUP), &["ghost"]).await.unwrap(), [Dropped]);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn delete_tasks_takes_pending_tasks_out_of_the_middle_and_keeps_the_order_of_the_others() {
    let fixture = Fixture::start().await;
    fixture.put((0..1_000).map(|n| job(&format!("t{n}")))).await;
    // The newest is at the head: t999 has place 0.
    for (place, ids) in [(0, ["t999", "t997", "t950"]), (500, ["t499", "t498", "t450"]), (997, ["t0", "t2", "t1"])] {
        assert_eq!(delete(&fixture, Seen::PendingAt(place), &ids).await.unwrap(), [Applied; 3], "{place}");
        for id in ids {
            assert!(fixture.keyspace().await.paths_with(id).is_empty());
        }
    }
    let left: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    let gone = [0, 1, 2, 450, 498, 499, 950, 997, 999];
    let expected: Vec<String> = (0..1_000).rev().filter(|n| !gone.contains(n)).map(|n| format!("t{n}")).collect();
    assert_eq!(left, expected);
}

#[tokio::test]
async fn pending_tasks_that_have_shifted_are_found_nearby_and_only_there() {
    let fixture = Fixture::start().await;
    fixture.put((0..1_000).map(|n| job(&format!("t{n}")))).await;
    let before = fixture.keyspace().await;
    // t899 is at 100: seen at 351, when less was in front of it; or at 0.
    assert_eq!(delete(&fixture, Seen::PendingAt(450), &["t899"]).await.unwrap(), [Elsewhere]);
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert_eq!(delete(&fixture, Seen::PendingAt(0), &["t899", "t0"]).await.unwrap(), [Applied, Elsewhere]);
    assert_eq!(delete(&fixture, Seen::PendingAt(150), &["t898"]).await.unwrap(), [Applied]);
}

#[tokio::test]
async fn delete_tasks_fails_where_a_key_has_another_type_and_changes_nothing() {
    for (state, key) in
        [(TaskState::Scheduled, "scheduled"), (TaskState::Pending, "pending"), (TaskState::Aggregating, "g:g")]
    {
        let fixture = Fixture::start().await;
        fixture.put_in(state, job("a")).await;
        let before = fixture.keyspace().await;
        let act = async || delete(&fixture, Seen::Anywhere, &["a"]).await;
        let error = fixture.with_stray(&format!("asynq:{{q}}:{key}"), act).await.unwrap_err();
        assert!(is_wrong_type(&error), "{key}: {error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn delete_tasks_does_not_touch_a_task_or_a_lock_of_another_type() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Scheduled, job("a").unique(Duration::from_secs(600))).await;
    let lock: String = fixture.cmd(&["HGET", "asynq:{q}:t:a", "unique_key"]).await;
    let before = fixture.keyspace().await;
    let act = async || delete(&fixture, Seen::Anywhere, &["a"]).await;
    assert_eq!(fixture.with_stray("asynq:{q}:t:a", act).await.unwrap(), [Gone]);
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert_eq!(fixture.with_stray(&lock, act).await.unwrap(), [Applied]);
    assert!(fixture.keyspace().await.get("{q}:t:a state").is_none());
}

#[tokio::test]
async fn delete_tasks_leaves_the_lock_of_another_queue() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Scheduled, job("a")).await;
    fixture.run("HSET asynq:{q}:t:a unique_key asynq:{other}:unique:job:").await;
    fixture.run("SET asynq:{other}:unique:job: a").await;
    assert_eq!(delete(&fixture, Seen::Anywhere, &["a"]).await.unwrap(), [Applied]);
    assert_eq!(fixture.cmd::<String>(&["GET", "asynq:{other}:unique:job:"]).await, "a");
}

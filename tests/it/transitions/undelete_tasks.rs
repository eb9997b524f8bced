use std::collections::BTreeMap;
use std::time::Duration;

use queue_core::TaskState;
use queue_core::limits::{ARCHIVE_MAX_AGE_SECS, BIN_PIECE};
use queue_redis::Error;
use queue_redis::broker::Change::{self, Active, AlreadyThere, Applied, Dropped, Gone};
use queue_redis::broker::{Bin, Seen, Undeleted};

use crate::support::{Fixture, GROUP, NOW, QUEUE, is_wrong_type, job};

const BIN: Bin<'_> = Bin { operation: "op", piece: 0, keep_secs: 86_400 };

const STATES: [TaskState; 6] = [
    TaskState::Pending,
    TaskState::Scheduled,
    TaskState::Retry,
    TaskState::Archived,
    TaskState::Completed,
    TaskState::Aggregating,
];

async fn bin(fixture: &Fixture, seen: Seen<'_>, ids: &[&str]) -> Result<Vec<Change>, Error> {
    Ok(fixture.broker.bin_tasks(QUEUE, seen, ids, BIN, NOW * 1_000).await?.expect("a piece with room"))
}

async fn undelete(fixture: &Fixture, ids: &[&str]) -> Result<Vec<Undeleted>, Error> {
    fixture.broker.undelete_tasks(QUEUE, ids, BIN, NOW * 1_000).await
}

fn locked(id: &str) -> queue_core::RawTask {
    job(id).payload(format!("payload of {id}")).unique(Duration::from_secs(600))
}

#[tokio::test]
async fn a_task_in_any_state_goes_into_the_bin_and_comes_back_as_it_was() {
    for state in STATES {
        let fixture = Fixture::start().await;
        for id in ["n1", "a", "n2"] {
            fixture.put_in(state, locked(id)).await;
        }
        let before = fixture.keyspace().await;
        let hash: BTreeMap<String, Vec<u8>> = fixture.cmd(&["HGETALL", "asynq:{q}:t:a"]).await;
        let lock = String::from_utf8(hash["unique_key"].clone()).unwrap();
        assert_eq!(bin(&fixture, Seen::Anywhere, &["a"]).await.unwrap(), [Applied], "{state}");
        // For everybody else it is deleted: its hash, its place and its lock are gone.
        for key in ["asynq:{q}:t:a", &lock] {
            assert_eq!(fixture.cmd::<i64>(&["EXISTS", key]).await, 0, "{state}: {key}");
        }
        let kept: BTreeMap<String, Vec<u8>> = fixture.cmd(&["HGETALL", "asynq:{q}:x:bin:op:t:a"]).await;
        assert!(hash.iter().all(|(name, value)| kept.get(name) == Some(value)), "{state}: {kept:?}");
        assert_eq!(fixture.cmd::<Vec<String>>(&["LRANGE", "asynq:{q}:x:bin:op:0", "0", "-1"]).await, ["a"]);
        let (of_task, of_list): (i64, i64) = (
            fixture.cmd(&["TTL", "asynq:{q}:x:bin:op:t:a"]).await,
            fixture.cmd(&["TTL", "asynq:{q}:x:bin:op:0"]).await,
        );
        assert!((86_390..=86_400).contains(&of_task) && of_list >= of_task + 3_590, "{of_task} {of_list}");

        assert_eq!(undelete(&fixture, &["a"]).await.unwrap(), [Undeleted::Restored], "{state}");
        if state == TaskState::Pending {
            // It is taken next.
            let pending: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
            assert_eq!(pending, ["n2", "n1", "a"]);
            fixture.run("DEL asynq:{q}:pending").await;
            fixture.run("RPUSH asynq:{q}:pending n2 a n1").await;
        }
        fixture.keyspace().await.assert_unchanged_since(&before);
        assert_eq!(undelete(&fixture, &["a"]).await.unwrap(), [Undeleted::Gone], "{state}: once only");
    }
}

#[tokio::test]
async fn tasks_of_a_whole_queue_come_back_in_their_order() {
    let fixture = Fixture::start().await;
    fixture.put((0..40).map(|n| job(&format!("t{n}")))).await;
    let before = fixture.keyspace().await;
    // The newest is at the head, and goes first.
    let ids: Vec<String> = (0..40).rev().map(|n| format!("t{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(bin(&fixture, Seen::PendingAt(0), &ids).await.unwrap(), [Applied; 40]);
    assert_eq!(undelete(&fixture, &ids).await.unwrap(), [Undeleted::Restored; 40]);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn a_group_is_listed_again_and_a_lock_that_only_the_message_names_comes_back() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Aggregating, locked("a")).await;
    fixture.run("HDEL asynq:{q}:t:a unique_key").await;
    let before = fixture.keyspace().await;
    assert_eq!(bin(&fixture, Seen::InGroup(GROUP), &["a"]).await.unwrap(), [Applied]);
    assert_eq!(fixture.cmd::<i64>(&["SCARD", "asynq:{q}:groups"]).await, 0);
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}:unique:*"]).await, Vec::<String>::new());
    assert_eq!(undelete(&fixture, &["a"]).await.unwrap(), [Undeleted::Restored]);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn a_task_whose_id_or_lock_is_taken_stays_in_the_bin() {
    let fixture = Fixture::start().await;
    fixture.put([locked("a"), locked("b")]).await;
    assert_eq!(bin(&fixture, Seen::PendingAt(0), &["b", "a"]).await.unwrap(), [Applied; 2]);
    // Another task of the id a, and another one with the lock of b.
    fixture.put([job("a"), job("c").payload("payload of b").unique(Duration::from_secs(60))]).await;
    let before = fixture.keyspace().await;
    assert_eq!(undelete(&fixture, &["a", "b"]).await.unwrap(), [Undeleted::IdTaken, Undeleted::Locked]);
    fixture.keyspace().await.assert_unchanged_since(&before);
    // When the lock would have ended by itself, nobody holds it any more.
    let later = (NOW + 601) * 1_000;
    assert_eq!(fixture.broker.undelete_tasks(QUEUE, &["b"], BIN, later).await.unwrap(), [Undeleted::Restored]);
    assert_eq!(fixture.cmd::<Vec<String>>(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await, ["c", "a", "b"]);
    let lock: String = fixture.cmd(&["HGET", "asynq:{q}:t:b", "unique_key"]).await;
    assert_eq!(fixture.cmd::<String>(&["GET", &lock]).await, "c");
}

/// The next task that dies would push them out, for their scores are old.
#[tokio::test]
async fn an_archived_task_for_which_the_archive_has_no_room_stays_in_the_bin() {
    let fixture = Fixture::start().await;
    for (id, state) in [("a", TaskState::Archived), ("b", TaskState::Archived), ("s", TaskState::Scheduled)] {
        fixture.put_in(state, job(id)).await;
    }
    assert_eq!(bin(&fixture, Seen::Anywhere, &["a", "b", "s"]).await.unwrap(), [Applied; 3]);
    fixture.fill_archive(9_998).await;
    let restored = undelete(&fixture, &["a", "b", "s"]).await.unwrap();
    assert_eq!(restored, [Undeleted::Restored, Undeleted::Full, Undeleted::Restored]);
    let before = fixture.keyspace().await;
    assert_eq!(undelete(&fixture, &["b"]).await.unwrap(), [Undeleted::Full]);
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert_eq!(fixture.cmd::<Vec<String>>(&["LRANGE", "asynq:{q}:x:bin:op:0", "0", "-1"]).await, ["b"]);
    fixture.run("ZREM asynq:{q}:archived old1").await;
    assert_eq!(undelete(&fixture, &["b"]).await.unwrap(), [Undeleted::Restored]);
}

/// The next task that dies would delete it.
#[tokio::test]
async fn an_archived_task_whose_time_is_over_when_it_comes_back_counts_as_archived_now() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Archived, job("a")).await;
    let archived_at: i64 = fixture.cmd(&["ZSCORE", "asynq:{q}:archived", "a"]).await;
    for (later, score) in [(0, 0), (1, 1)] {
        assert_eq!(bin(&fixture, Seen::Anywhere, &["a"]).await.unwrap(), [Applied]);
        let now = archived_at + (ARCHIVE_MAX_AGE_SECS - 1 + later);
        let restored = fixture.broker.undelete_tasks(QUEUE, &["a"], BIN, now * 1_000).await.unwrap();
        assert_eq!(restored, [Undeleted::Restored]);
        let expected = if score == 0 { archived_at } else { now };
        assert_eq!(fixture.cmd::<i64>(&["ZSCORE", "asynq:{q}:archived", "a"]).await, expected, "{later}");
    }
}

#[tokio::test]
async fn the_bin_refuses_what_a_worker_has_and_what_it_has_already() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Active, job("active")).await;
    fixture.put([job("a")]).await;
    assert_eq!(bin(&fixture, Seen::Anywhere, &["a"]).await.unwrap(), [Applied]);
    fixture.put([job("a").payload("another")]).await;
    let before = fixture.keyspace().await;
    for (id, refusal) in [("active", Active), ("nobody", Gone), ("a", AlreadyThere)] {
        assert_eq!(bin(&fixture, Seen::Anywhere, &[id]).await.unwrap(), [refusal], "{id}");
    }
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn a_piece_of_the_bin_takes_no_more_than_a_thousand() {
    let fixture = Fixture::start().await;
    let ids: Vec<String> = (0..BIN_PIECE + 1).map(|n| format!("t{n}")).collect();
    fixture.put(ids.iter().map(|id| job(id))).await;
    for ids in ids[..BIN_PIECE].chunks(50) {
        let seen = Seen::PendingAt(fixture.cmd::<usize>(&["LLEN", "asynq:{q}:pending"]).await - ids.len());
        let done = fixture.broker.bin_tasks(QUEUE, seen, ids, BIN, NOW * 1_000).await.unwrap().unwrap();
        assert!(done.iter().all(|change| *change == Applied), "{done:?}");
    }
    let before = fixture.keyspace().await;
    let one = &ids[BIN_PIECE..];
    assert_eq!(fixture.broker.bin_tasks(QUEUE, Seen::Anywhere, one, BIN, NOW * 1_000).await.unwrap(), None);
    fixture.keyspace().await.assert_unchanged_since(&before);
    let next = Bin { piece: 1, ..BIN };
    assert!(fixture.broker.bin_tasks(QUEUE, Seen::Anywhere, one, next, NOW * 1_000).await.unwrap().is_some());
}

/// What asynq's own tools leave behind: W12, W17.
#[tokio::test]
async fn what_was_in_no_place_comes_back_archived_and_mere_remains_do_not() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Retry, job("lost")).await;
    fixture.run("ZREM asynq:{q}:retry lost").await;
    fixture.put_in(TaskState::Archived, job("half")).await;
    fixture.run("HSET asynq:{q}:t:half state active").await;
    fixture.run("HSET asynq:{q}:t:stub state retry").await;
    fixture.run("ZADD asynq:{q}:retry 1 stub").await;
    for (id, change) in [("lost", Applied), ("half", Applied), ("stub", Dropped)] {
        assert_eq!(bin(&fixture, Seen::Anywhere, &[id]).await.unwrap(), [change], "{id}");
    }
    assert_eq!(
        undelete(&fixture, &["lost", "half", "stub"]).await.unwrap(),
        [Undeleted::Restored, Undeleted::Restored, Undeleted::Gone]
    );
    let archived: Vec<(String, i64)> = fixture.cmd(&["ZRANGE", "asynq:{q}:archived", "0", "-1", "WITHSCORES"]).await;
    assert_eq!(archived, [("half".to_owned(), NOW), ("lost".to_owned(), NOW)]);
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}:x:bin:*"]).await, Vec::<String>::new());
    for id in ["half", "lost"] {
        assert_eq!(fixture.cmd::<String>(&["HGET", &format!("asynq:{{q}}:t:{id}"), "state"]).await, "archived");
    }
}

#[tokio::test]
async fn a_key_of_another_type_stops_it_before_anything_was_written() {
    for (state, key) in [
        (TaskState::Scheduled, "scheduled"),
        (TaskState::Pending, "pending"),
        (TaskState::Aggregating, "g:g"),
        (TaskState::Aggregating, "groups"),
    ] {
        let fixture = Fixture::start().await;
        fixture.put_in(state, job("a")).await;
        let piece = "asynq:{q}:x:bin:op:0";
        let error = fixture.with_stray(piece, async || bin(&fixture, Seen::Anywhere, &["a"]).await).await.unwrap_err();
        assert!(is_wrong_type(&error), "{key}: {error}");
        assert_eq!(bin(&fixture, Seen::Anywhere, &["a"]).await.unwrap(), [Applied]);
        let before = fixture.keyspace().await;
        let act = async || undelete(&fixture, &["a"]).await;
        assert_eq!(
            fixture.with_stray(&format!("asynq:{{q}}:{key}"), act).await.unwrap(),
            [Undeleted::Misplaced],
            "{key}"
        );
        let error = fixture.with_stray(piece, act).await.unwrap_err();
        assert!(is_wrong_type(&error), "{key}: {error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
        assert_eq!(undelete(&fixture, &["a"]).await.unwrap(), [Undeleted::Restored]);
    }
}

#[tokio::test]
async fn a_member_of_a_batch_that_comes_back_tells_that_it_runs_again() {
    let fixture = Fixture::start().await;
    fixture.put([job("flow:root:0:7"), job("alone")]).await;
    assert_eq!(bin(&fixture, Seen::PendingAt(0), &["alone", "flow:root:0:7"]).await.unwrap(), [Applied; 2]);
    assert_eq!(undelete(&fixture, &["alone", "flow:root:0:7"]).await.unwrap(), [Undeleted::Restored; 2]);
    let lists: Vec<String> = fixture.cmd(&["SMEMBERS", "asynq:{q}:x:outcome-lists"]).await;
    let told: Vec<String> = fixture.cmd(&["LRANGE", &lists[0], "0", "-1"]).await;
    assert_eq!(told, [format!("{NOW}.0 again flow:root:0:7")]);
}

use bytes::Bytes;
use queue_core::TaskState;
use queue_redis::broker::RestoreVerdict::{ArchiveFull, Duplicate, IdTaken, Stored};
use queue_redis::broker::{RestoreVerdict, Restored, StoredCounter, StoredQueue, StoredTask};

use crate::support::{Fixture, NOW, QUEUE, is_wrong_type, job};

/// A task as it would come from another Redis.
fn stored(fixture: &Fixture, id: &str, state: TaskState, score: Option<i64>) -> StoredTask {
    let message = fixture.compose(job(id)).message;
    StoredTask {
        id: id.to_owned(),
        state,
        score,
        group: None,
        fields: [("msg".to_owned(), message.to_bytes())].into(),
        lock_expires_at_ms: None,
    }
}

async fn restore(fixture: &Fixture, from: u64, to: u64, tasks: &[StoredTask]) -> Restored {
    fixture.broker.restore(QUEUE, "e", (from, to), tasks, NOW * 1_000).await.unwrap()
}

fn done(verdicts: impl IntoIterator<Item = RestoreVerdict>) -> Restored {
    Restored::Done(verdicts.into_iter().collect())
}

#[tokio::test]
async fn restore_puts_tasks_of_each_state_where_they_were() {
    let fixture = Fixture::start().await;
    fixture.put([job("old")]).await;
    let before = fixture.keyspace().await;
    let mut tasks = vec![
        stored(&fixture, "p1", TaskState::Pending, None),
        stored(&fixture, "p2", TaskState::Pending, None),
        stored(&fixture, "s", TaskState::Scheduled, Some(NOW + 5)),
        stored(&fixture, "r", TaskState::Retry, Some(NOW + 6)),
        stored(&fixture, "x", TaskState::Archived, Some(NOW - 7)),
        stored(&fixture, "c", TaskState::Completed, Some(NOW + 8)),
        stored(&fixture, "g", TaskState::Aggregating, Some(NOW - 9)),
    ];
    tasks[0].fields.insert("pending_since".to_owned(), "5".into());
    tasks[5].fields.insert("result".to_owned(), Bytes::from_static(b"fine"));
    (tasks[2].group, tasks[6].group) = (Some("later".to_owned()), Some("team".to_owned()));
    // A pending task is on its way to no group, though it may have been in one.
    tasks[1].group = Some("former".to_owned());
    assert_eq!(restore(&fixture, 0, 9, &tasks).await, done(vec![Stored; 7]));
    let msg = |id: &str| format!("+ {{q}}:t:{id} msg: type=job id={id} queue=q retry=25 timeout=1800\n");
    let ids = ["c", "g", "p1", "p2", "r", "s", "x"].map(|id| {
        let state = tasks.iter().find(|task| task.id == id).unwrap().state;
        let more = match id {
            "c" => "+ {q}:t:c result: fine\n",
            "p1" => "+ {q}:t:p1 pending_since: 5\n",
            _ => "",
        };
        format!("{}{more}+ {{q}}:t:{id} state: {state}\n", msg(id))
    });
    let expected = format!(
        "+ {{q}}:archived x: score 3999999993
         + {{q}}:completed c: score 4000000008
         + {{q}}:g:team g: score 3999999991
         + {{q}}:groups team: member
         - {{q}}:pending: [old]
         + {{q}}:pending: [p2 p1 old]
         + {{q}}:retry r: score 4000000006
         + {{q}}:scheduled s: score 4000000005
         {}+ {{q}}:x:import:e line: 9
         + {{q}}:x:import:e stored: 7",
        ids.concat()
    );
    let after = fixture.keyspace().await;
    // When the note expires depends on the time of Redis.
    let changes = after.changes_since(&before);
    let (expires, changes): (Vec<&str>, Vec<&str>) = changes.lines().partition(|line| line.contains("expires"));
    assert_eq!(expires.len(), 1, "{expires:?}");
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    assert_eq!(changes, expected);
}

#[tokio::test]
async fn restore_takes_locks_for_the_rest_of_their_time() {
    let fixture = Fixture::start().await;
    let lock = "asynq:{q}:unique:job:";
    let task = |id: &str, left_ms: i64| {
        let mut task = stored(&fixture, id, TaskState::Pending, None);
        let mut message = task.message().unwrap();
        message.unique_key = format!("{lock}{id}");
        task.fields.insert("msg".to_owned(), message.to_bytes());
        task.lock_expires_at_ms = Some(NOW * 1_000 + left_ms);
        task
    };
    assert_eq!(restore(&fixture, 0, 1, &[task("a", 599_001), task("b", 0)]).await, done([Stored, Stored]));
    let ttl: i64 = fixture.cmd(&["TTL", &format!("{lock}a")]).await;
    assert!((500..=600).contains(&ttl), "{ttl}");
    assert_eq!(fixture.keyspace().await.get("{q}:unique:job:a"), Some("a"));
    assert_eq!(fixture.keyspace().await.get("{q}:unique:job:b"), None, "its time is over");
}

/// The next task that dies would push out as many as are too many.
#[tokio::test]
async fn restore_leaves_out_what_is_archived_when_the_archive_is_full() {
    let fixture = Fixture::start().await;
    fixture.fill_archive(9_998).await;
    let archived = |id: &str| stored(&fixture, id, TaskState::Archived, Some(NOW - 7));
    let tasks = [archived("a"), archived("b"), stored(&fixture, "p", TaskState::Pending, None)];
    assert_eq!(restore(&fixture, 0, 3, &tasks).await, done([Stored, ArchiveFull, Stored]));
    assert_eq!(fixture.cmd::<u64>(&["ZCARD", "asynq:{q}:archived"]).await, 9_999);
    assert_eq!(fixture.cmd::<i64>(&["EXISTS", "asynq:{q}:t:b"]).await, 0);
    assert_eq!(fixture.broker.restore_note(QUEUE, "e").await.unwrap().refused, 1);
}

#[tokio::test]
async fn restore_leaves_alone_what_belongs_to_others() {
    let fixture = Fixture::start().await;
    let lock = std::time::Duration::from_secs(600);
    fixture.put([job("taken").max_retry(3), job("holder").unique(lock)]).await;
    let before = fixture.keyspace().await;
    let mut locked = stored(&fixture, "locked", TaskState::Retry, Some(NOW));
    let mut message = locked.message().unwrap();
    message.unique_key = "asynq:{q}:unique:job:".to_owned();
    locked.fields.insert("msg".to_owned(), message.to_bytes());
    locked.lock_expires_at_ms = Some(NOW * 1_000 + 1);
    let mut taken = stored(&fixture, "taken", TaskState::Archived, Some(NOW));
    taken.lock_expires_at_ms = locked.lock_expires_at_ms;
    let Restored::Done(verdicts) = restore(&fixture, 0, 2, &[taken, locked.clone()]).await else { panic!() };
    let [IdTaken(message), Duplicate] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert_eq!(queue_core::TaskMessage::from_bytes(message.clone()).unwrap().retry, 3);
    let changes = fixture.keyspace().await.changes_since(&before);
    assert!(changes.lines().all(|line| line.starts_with("+ {q}:x:import:e ")), "{changes}");
    // Its own lock, left over from a task of this id, is none of another's.
    fixture.run("SET asynq:{q}:unique:job: locked").await;
    assert_eq!(restore(&fixture, 2, 3, &[locked]).await, done([Stored]));
}

#[tokio::test]
async fn restore_does_nothing_unless_the_import_stands_where_the_caller_believes() {
    let fixture = Fixture::start().await;
    let task = [stored(&fixture, "a", TaskState::Pending, None)];
    assert_eq!(fixture.broker.restore_note(QUEUE, "e").await.unwrap().line, 0);
    assert_eq!(restore(&fixture, 0, 5, &task).await, done([Stored]));
    assert_eq!(fixture.broker.restore_note(QUEUE, "e").await.unwrap().line, 5);
    fixture.run("DEL asynq:{q}:t:a asynq:{q}:pending").await;
    let before = fixture.keyspace().await;
    for (from, to) in [(0, 5), (4, 6), (6, 7)] {
        assert_eq!(restore(&fixture, from, to, &task).await, Restored::StandsAt(5));
    }
    fixture.keyspace().await.assert_unchanged_since(&before);
    fixture.broker.forget_restored(QUEUE, "e").await.unwrap();
    assert_eq!(restore(&fixture, 0, 5, &task).await, done([Stored]));
}

#[tokio::test]
async fn restore_fails_where_a_key_has_another_type_and_writes_nothing() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    let mut grouped = stored(&fixture, "g", TaskState::Aggregating, Some(NOW));
    grouped.group = Some("team".to_owned());
    let tasks =
        [stored(&fixture, "a", TaskState::Pending, None), stored(&fixture, "r", TaskState::Retry, Some(NOW)), grouped];
    for key in ["pending", "retry", "groups", "g:team", "x:import:e"] {
        let key = format!("asynq:{{q}}:{key}");
        let act = async || fixture.broker.restore(QUEUE, "e", (0, 3), &tasks, NOW * 1_000).await;
        let error = fixture.with_stray(&key, act).await.unwrap_err();
        assert!(is_wrong_type(&error), "{key}: {error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
    // What stands in the place of a task is not overwritten.
    let act = async || restore(&fixture, 0, 3, &tasks[..1]).await;
    assert_eq!(fixture.with_stray("asynq:{q}:t:a", act).await, done([IdTaken(Bytes::new())]));
}

#[tokio::test]
async fn restore_queue_adds_counters_once_and_pauses() {
    let fixture = Fixture::start().await;
    fixture.run("SET asynq:{q}:processed 5").await;
    let before = fixture.keyspace().await;
    let counter = |name: &str, value, expires_at| StoredCounter { name: name.to_owned(), value, expires_at };
    let queue = StoredQueue {
        queue: QUEUE.to_owned(),
        paused: Some("1700000000".to_owned()),
        counters: vec![
            counter("processed", 10, None),
            counter("failed", 2, None),
            counter("processed:2096-10-02", 7, Some(NOW + 90 * 86_400)),
            // None of these is a counter.
            counter("pending", 1, None),
            counter("processed:today", 1, None),
            counter("failed:2096-10-02", 0, None),
        ],
    };
    assert!(fixture.broker.restore_queue("e", &queue).await.unwrap());
    let after = fixture.keyspace().await;
    let changes = after.changes_since(&before);
    let without_note: Vec<&str> = changes.lines().filter(|line| !line.contains("x:import:e")).collect();
    assert_eq!(
        without_note,
        [
            "+ {q}:failed: 2",
            "+ {q}:paused: 1700000000",
            "- {q}:processed: 5",
            "+ {q}:processed: 15",
            "+ {q}:processed:2096-10-02: 7",
            "+ {q}:processed:2096-10-02 expires: at 4007776000",
        ]
    );
    assert!(!fixture.broker.restore_queue("e", &queue).await.unwrap());
    fixture.keyspace().await.assert_unchanged_since(&after);
    // A counter at its end, or of another type, stands in nobody's way.
    fixture.run("SET asynq:{q}:processed 9223372036854775807").await;
    let act = async || fixture.broker.restore_queue("other", &queue).await.unwrap();
    assert!(fixture.with_stray("asynq:{q}:failed", act).await);
    assert_eq!(fixture.keyspace().await.get("{q}:processed"), Some("9223372036854775807"));
}

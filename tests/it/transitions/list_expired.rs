use queue_core::TaskMessage;
use queue_redis::broker::Verdict::{self, Applied, Lost};
use queue_redis::broker::{ExpiredLease, MAX_BATCH, Recovery};

use crate::support::{Fixture, NOW, QUEUE, is_wrong_type, job, recovered, report};

async fn list(fixture: &Fixture, cutoff: i64) -> (Vec<ExpiredLease>, Vec<String>) {
    let found = fixture.broker.list_expired(QUEUE, cutoff, 0).await.unwrap();
    (found.leases, found.ghosts)
}

/// Lets the task wait for a minute, or archives it.
async fn recover(fixture: &Fixture, lease: &ExpiredLease, retry_at: Option<i64>) -> Verdict {
    let message = lease.message.clone().unwrap();
    let failed =
        TaskMessage { retried: message.retried + 1, error_msg: "silent".into(), last_failed_at: NOW, ..message };
    recovered(&fixture.broker, lease, failed, retry_at, NOW).await
}

#[tokio::test]
async fn list_expired_finds_the_leases_that_have_ended_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.active_batch(["a", "b", "c"].map(job)).await;
    fixture.run("ZADD asynq:{q}:lease 3999999970 b 3999999960 c").await;
    let before = fixture.keyspace().await;
    let (expired, ghosts) = list(&fixture, NOW - 30).await;
    let found: Vec<_> = expired.iter().map(|lease| (lease.id.as_str(), lease.expiry.as_str())).collect();
    assert_eq!(found, [("c", "3999999960"), ("b", "3999999970")]);
    assert_eq!(expired[0].message.as_ref().map(|message| message.id.as_str()), Some("c"));
    assert!(ghosts.is_empty());
    assert!(list(&fixture, NOW - 41).await.0.is_empty());
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn list_expired_lists_a_batch_per_call() {
    let fixture = Fixture::start().await;
    for from in [0, 100] {
        fixture.active_batch((from..from + 100).map(|n| job(&n.to_string()))).await;
    }
    assert_eq!(list(&fixture, NOW + 30).await.0.len(), MAX_BATCH);
}

/// asynq keeps them for ever (W12).
#[tokio::test]
async fn list_expired_drops_ids_without_tasks() {
    let fixture = Fixture::start().await;
    fixture.active(job("a")).await;
    let clean = fixture.keyspace().await;
    fixture.run("RPUSH asynq:{q}:active ghost stub ghost").await;
    fixture.run("HSET asynq:{q}:t:stub state active").await;
    fixture.run("ZADD asynq:{q}:lease 1 ghost 2 stub").await;
    let (expired, ghosts) = list(&fixture, NOW - 30).await;
    assert!(expired.is_empty());
    assert_eq!(ghosts, ["ghost", "stub"]);
    fixture.keyspace().await.assert_unchanged_since(&clean);
}

#[tokio::test]
async fn a_leased_key_of_another_type_is_let_go_and_left_alone() {
    let fixture = Fixture::start().await;
    let clean = fixture.keyspace().await;
    fixture.run("RPUSH asynq:{q}:active stray").await;
    fixture.run("ZADD asynq:{q}:lease 1 stray").await;
    let (expired, ghosts) = fixture.with_stray("asynq:{q}:t:stray", async || list(&fixture, NOW - 30).await).await;
    assert!(expired.is_empty());
    assert_eq!(ghosts, ["stray"]);
    fixture.keyspace().await.assert_unchanged_since(&clean);
}

/// In asynq one of these stops the recovery of all queues of a server (W13).
#[tokio::test]
async fn a_message_that_cannot_be_read_is_listed_without_it_and_hinders_nobody() {
    let fixture = Fixture::start().await;
    fixture.active_batch(["torn", "fine"].map(job)).await;
    fixture.run("HSET asynq:{q}:t:torn msg \u{1}").await;
    let (expired, _) = list(&fixture, NOW + 30).await;
    let readable: Vec<_> = expired.iter().map(|lease| (lease.id.as_str(), lease.message.is_some())).collect();
    assert_eq!(readable, [("fine", true), ("torn", false)]);
}

#[tokio::test]
async fn a_recovery_takes_the_task_from_its_silent_worker() {
    let fixture = Fixture::start().await;
    fixture.active(job("a")).await;
    let (expired, _) = list(&fixture, NOW + 30).await;
    let before = fixture.keyspace().await;
    assert_eq!(recover(&fixture, &expired[0], Some(NOW + 60)).await, Applied);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:active: [a]
         + {q}:failed: 1
         + {q}:failed:2096-10-02: 1
         + {q}:failed:2096-10-02 expires: at 4007776000
         - {q}:lease a: score 4000000030
         + {q}:processed: 1
         + {q}:processed:2096-10-02: 1
         + {q}:processed:2096-10-02 expires: at 4007776000
         + {q}:retry a: score 4000000060
         - {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800
         + {q}:t:a msg: type=job id=a queue=q retry=25 retried=1 error_msg=silent timeout=1800 last_failed_at=4000000000
         - {q}:t:a owner: run-1
         - {q}:t:a state: active
         + {q}:t:a state: retry",
    );
}

#[tokio::test]
async fn a_task_of_a_go_worker_is_recovered_too() {
    let fixture = Fixture::start().await;
    fixture.put([job("a")]).await;
    crate::support::Go(&fixture).dequeue(NOW + 30).await;
    let (expired, _) = list(&fixture, NOW + 30).await;
    assert_eq!(recover(&fixture, &expired[0], None).await, Applied);
    assert_eq!(fixture.keyspace().await.get("{q}:archived a"), Some("score 4000000000"));
}

/// asynq's recoverer does not look again before it writes (W33).
#[tokio::test]
async fn a_recovery_that_comes_late_changes_nothing() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let (expired, _) = list(&fixture, NOW + 30).await;
    let mut connection = fixture.redis().pooled().await.unwrap();
    let runs = [task.run.clone()];
    let prolonged = fixture.broker.extend_lease(&mut connection, QUEUE, &runs, NOW + 90).await.unwrap();
    assert_eq!(prolonged, [Applied], "the worker was only slow");
    let before = fixture.keyspace().await;
    assert_eq!(recover(&fixture, &expired[0], Some(NOW + 60)).await, Lost);
    assert_eq!(recover(&fixture, &expired[0], None).await, Lost);
    fixture.keyspace().await.assert_unchanged_since(&before);
    // Another run of the task.
    fixture.broker.requeue(&report(&task), NOW * 1_000_000_000).await.unwrap();
    fixture.take_at(NOW + 1).await;
    let before = fixture.keyspace().await;
    assert_eq!(recover(&fixture, &expired[0], Some(NOW + 60)).await, Lost);
    assert_eq!(recover(&fixture, &expired[0], None).await, Lost);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

/// Nobody should write such a score (rule R4), but a task that has one must not be stuck.
#[tokio::test]
async fn a_lease_with_a_fraction_of_a_second_is_recovered() {
    let fixture = Fixture::start().await;
    fixture.active(job("a")).await;
    fixture.run("ZADD asynq:{q}:lease 3999999000.5 a").await;
    let (expired, _) = list(&fixture, NOW - 30).await;
    assert_eq!(recover(&fixture, &expired[0], Some(NOW + 60)).await, Applied);
}

#[tokio::test]
async fn list_expired_fails_where_the_leases_have_another_type() {
    let fixture = Fixture::start().await;
    let list = async || fixture.broker.list_expired(QUEUE, NOW, 0).await;
    let error = fixture.with_stray("asynq:{q}:lease", list).await.unwrap_err();
    assert!(is_wrong_type(&error), "{error}");
}

/// Listed again and again without being dropped, such ids kept a recoverer busy for ever.
#[tokio::test]
async fn list_expired_drops_ids_whose_message_is_empty() {
    let fixture = Fixture::start().await;
    let clean = fixture.keyspace().await;
    fixture.run("RPUSH asynq:{q}:active hollow").await;
    fixture.run("ZADD asynq:{q}:lease 1 hollow").await;
    // The last word is empty.
    fixture.run("HSET asynq:{q}:t:hollow state active msg ").await;
    assert_eq!(list(&fixture, NOW - 30).await.1, ["hollow"]);
    assert!(list(&fixture, NOW - 30).await.1.is_empty());
    fixture.keyspace().await.assert_unchanged_since(&clean);
}

/// Those who came first and could not be helped hid those behind them.
#[tokio::test]
async fn list_expired_leaves_out_so_many_and_says_when_the_next_lease_ends() {
    let fixture = Fixture::start().await;
    fixture.active_batch(["a", "b", "c"].map(job)).await;
    fixture.run("ZADD asynq:{q}:lease 3999999960 b 3999999970 c").await;
    let found = fixture.broker.list_expired(QUEUE, NOW - 30, 1).await.unwrap();
    assert_eq!(found.leases.iter().map(|lease| lease.id.as_str()).collect::<Vec<_>>(), ["c"]);
    assert_eq!((found.seen, found.next), (1, Some(NOW + 30)));
    let all = fixture.broker.list_expired(QUEUE, NOW + 30, 2).await.unwrap();
    assert_eq!(all.leases.iter().map(|lease| lease.id.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!((all.seen, all.next), (1, None));
}

/// Its name became another one on the way, under which there is nothing to recover.
#[tokio::test]
async fn an_id_that_is_not_utf8_is_archived_under_its_own_name() {
    let fixture = Fixture::start().await;
    fixture.active(job("a")).await;
    let id: &[u8] = b"\xff\xfe";
    let key = [b"asynq:{q}:t:", id].concat();
    let _: () = fixture.cmd(&[b"RENAME".as_slice(), b"asynq:{q}:t:a", &key]).await;
    let _: i64 = fixture.cmd(&[b"LPUSH".as_slice(), b"asynq:{q}:active", id]).await;
    let _: i64 = fixture.cmd(&[b"ZADD".as_slice(), b"asynq:{q}:lease", b"1", id]).await;
    let found = fixture.broker.list_expired(QUEUE, NOW - 30, 0).await.unwrap();
    assert_eq!(found.leases[0].message, None, "the message is that of another task");
    let recovery = [Recovery::as_it_is(found.leases[0].clone())];
    assert_eq!(fixture.broker.recover(QUEUE, &recovery, 0, NOW).await.unwrap(), [Applied]);
    let archived: Vec<Vec<u8>> = fixture.cmd(&["ZRANGE", "asynq:{q}:archived", "0", "-1"]).await;
    assert_eq!(archived, [id]);
    assert_eq!(fixture.cmd::<String>(&[b"HGET".as_slice(), &key, b"state"]).await, "archived");
    assert_eq!(fixture.cmd::<Vec<String>>(&["LRANGE", "asynq:{q}:active", "0", "-1"]).await, ["a"]);
    assert!(fixture.broker.list_expired(QUEUE, NOW - 30, 0).await.unwrap().leases.is_empty());
}

/// The recoverer took such a task out of the place where it was.
#[tokio::test]
async fn a_lease_that_was_left_behind_is_dropped_and_its_task_left_where_it_is() {
    let fixture = Fixture::start().await;
    fixture.put([job("a")]).await;
    let clean = fixture.keyspace().await;
    fixture.run("ZADD asynq:{q}:lease 1 a").await;
    let found = fixture.broker.list_expired(QUEUE, NOW - 30, 0).await.unwrap();
    assert!(found.leases.is_empty() && found.ghosts.is_empty(), "{found:?}");
    fixture.keyspace().await.assert_unchanged_since(&clean);
}

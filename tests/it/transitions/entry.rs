//! `register_entry`, `release_entry` and `pause_entry`: what schedulers share about an entry.

use queue_admin::{Error, Inspector};
use queue_redis::broker::EntryStatus;

use crate::support::{self, Fixture, QUEUE};

/// Long past by the clock of Redis, which has a say here.
const T: i64 = 1_700_000_000;

async fn register(fixture: &Fixture, spec: &str, scheduler: &str, fresh: bool, known: i64, now: i64) -> EntryStatus {
    support::register(&fixture.broker, QUEUE, spec, scheduler, fresh, known, now).await.unwrap()
}

#[tokio::test]
async fn ticks_count_from_the_first_time_an_entry_is_registered() {
    let fixture = Fixture::start().await;
    let status = register(&fixture, "@daily", "a", true, 0, T).await;
    assert!(status.shown);
    assert_eq!((status.upto, status.waiting, status.paused, status.runs), (T, None, None, 0));
    let found = fixture.keyspace().await;
    for (field, value) in [
        ("spec", "@daily"),
        ("overlap", "allow"),
        ("policy", r#"{"spec":"@daily"}"#),
        ("unique", "0"),
        ("upto", "1700000000"),
        ("shown_by", "a"),
        ("shown_until", "1700000020"),
    ] {
        assert_eq!(found.get(&format!("{{q}}:x:cron:e {field}")), Some(value), "{field}");
    }
    let left: i64 = fixture.cmd(&["TTL", "asynq:{q}:x:cron:e"]).await;
    assert!(left > 365 * 86_400, "{left}");
    // Again, by whomever, an hour later: what was missed meanwhile is known.
    assert_eq!(register(&fixture, "@daily", "b", true, 0, T + 3_600).await.upto, T);
}

#[tokio::test]
async fn a_change_of_the_spec_counts_from_then_but_only_when_it_is_taken_up() {
    let fixture = Fixture::start().await;
    register(&fixture, "@daily", "a", true, 0, T).await;
    assert_eq!(register(&fixture, "@hourly", "b", true, 0, T + 3_600).await.upto, T + 3_599);
    // The heartbeat of a scheduler that still has the old spec moves nothing.
    let before = fixture.keyspace().await;
    assert_eq!(register(&fixture, "@daily", "a", false, T, T + 3_610).await.upto, T + 3_599);
    let changes = fixture.keyspace().await.changes_since(&before);
    assert!(!changes.contains("spec") && !changes.contains("upto"), "{changes}");
}

#[tokio::test]
async fn an_entry_that_was_removed_and_comes_back_has_missed_nothing() {
    let fixture = Fixture::start().await;
    register(&fixture, "@daily", "a", true, 0, T).await;
    fixture.broker.release_entry(QUEUE, "e", "a", Some(T + 10)).await.unwrap();
    let found = fixture.keyspace().await;
    assert_eq!(found.get("{q}:x:cron:e removed"), Some("1700000010"));
    assert_eq!(found.get("{q}:x:cron:e shown_by"), None);
    // What waited for the run before is of that time, too.
    fixture.run(&format!("HSET asynq:{{q}}:x:cron:e waiting {T}")).await;
    let status = register(&fixture, "@daily", "a", true, 0, T + 86_400).await;
    assert_eq!((status.upto, status.waiting), (T + 86_399, None));
    assert_eq!(fixture.keyspace().await.get("{q}:x:cron:e removed"), None);
}

/// The clock of Redis was years ahead for a while.
#[tokio::test]
async fn an_entry_that_knows_ticks_of_the_far_future_counts_from_now_when_it_is_changed_or_comes_back() {
    let fixture = Fixture::start().await;
    let far = "HSET asynq:{q}:x:cron:e upto 4102444800";
    register(&fixture, "@daily", "a", true, 0, T).await;
    fixture.run(far).await;
    assert_eq!(register(&fixture, "@daily", "a", true, 0, T + 10).await.upto, 4_102_444_800);
    assert_eq!(register(&fixture, "@hourly", "a", true, 0, T + 20).await.upto, T + 19);
    fixture.run(far).await;
    fixture.broker.release_entry(QUEUE, "e", "a", Some(T + 30)).await.unwrap();
    assert_eq!(register(&fixture, "@hourly", "a", true, 0, T + 40).await.upto, T + 39);
}

#[tokio::test]
async fn whoever_carries_an_entry_that_another_has_removed_goes_on_where_it_was() {
    let fixture = Fixture::start().await;
    register(&fixture, "@daily", "a", true, 0, T).await;
    register(&fixture, "@daily", "b", true, 0, T).await;
    fixture.broker.release_entry(QUEUE, "e", "a", Some(T + 10)).await.unwrap();
    fixture.run(&format!("HSET asynq:{{q}}:x:cron:e waiting {T}")).await;
    let status = register(&fixture, "@daily", "b", false, T, T + 100).await;
    assert_eq!((status.upto, status.waiting), (T, Some(T)));
    assert_eq!(fixture.keyspace().await.get("{q}:x:cron:e removed"), None);
}

#[tokio::test]
async fn an_entry_of_which_only_a_tick_tells_is_written_anew() {
    let fixture = Fixture::start().await;
    fixture.run(&format!("HSET asynq:{{q}}:x:cron:e upto {T}")).await;
    assert_eq!(register(&fixture, "@daily", "a", false, T, T + 10).await.upto, T);
    assert_eq!(fixture.keyspace().await.get("{q}:x:cron:e spec"), Some("@daily"));
    // Nor is what was missed forgotten because nobody knows the spec from before.
    fixture.run("HDEL asynq:{q}:x:cron:e spec").await;
    assert_eq!(register(&fixture, "@daily", "a", true, 0, T + 3_600).await.upto, T);
}

#[tokio::test]
async fn the_next_heartbeat_tells_again_what_a_failover_lost() {
    let fixture = Fixture::start().await;
    register(&fixture, "@daily", "a", true, 0, T).await;
    fixture.run("DEL asynq:{q}:x:cron:e").await;
    assert_eq!(register(&fixture, "@daily", "a", false, T + 60, T + 100).await.upto, T + 60);
    assert_eq!(fixture.keyspace().await.get("{q}:x:cron:e spec"), Some("@daily"));
}

#[tokio::test]
async fn one_scheduler_shows_an_entry_until_it_ends_or_is_silent() {
    let fixture = Fixture::start().await;
    assert!(register(&fixture, "@daily", "a", true, 0, T).await.shown);
    assert!(!register(&fixture, "@daily", "b", true, 0, T).await.shown);
    assert!(register(&fixture, "@daily", "a", false, 0, T + 10).await.shown);
    assert!(!register(&fixture, "@daily", "b", false, 0, T + 30).await.shown);
    assert!(register(&fixture, "@daily", "b", false, 0, T + 31).await.shown, "a is silent");
    assert!(!register(&fixture, "@daily", "a", false, 0, T + 32).await.shown);
    fixture.broker.release_entry(QUEUE, "e", "a", None).await.unwrap();
    assert!(!register(&fixture, "@daily", "a", false, 0, T + 32).await.shown, "it was not a that showed it");
    fixture.broker.release_entry(QUEUE, "e", "b", None).await.unwrap();
    assert!(register(&fixture, "@daily", "a", false, 0, T + 32).await.shown);
    assert_eq!(fixture.keyspace().await.get("{q}:x:cron:e removed"), None);
}

#[tokio::test]
async fn a_scheduler_whose_clock_is_ahead_changes_nothing() {
    let fixture = Fixture::start().await;
    let (now, _): (i64, i64) = fixture.cmd(&["TIME"]).await;
    let before = fixture.keyspace().await;
    assert_eq!(support::register(&fixture.broker, QUEUE, "@daily", "a", true, 0, now + 3_600).await, None);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn releasing_or_pausing_what_is_not_there_writes_nothing() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    fixture.broker.release_entry(QUEUE, "e", "a", Some(T)).await.unwrap();
    let inspector = Inspector::new(fixture.redis());
    assert!(matches!(inspector.pause_cron("e").await, Err(Error::EntryNotFound(_))));
    fixture.keyspace().await.assert_unchanged_since(&before);
    // Listed, but gone.
    for member in ["stale", "e q"] {
        let _: i64 = fixture.cmd(&["ZADD", "asynq:x:cron", "5", member]).await;
    }
    assert_eq!(inspector.cron_entries().await.unwrap(), []);
}

/// An inspector at this time.
fn at(fixture: &Fixture, now: i64) -> Inspector {
    Inspector::with_clock(fixture.redis(), std::sync::Arc::new(queue_core::clock::ManualClock::at_secs(now)))
}

#[tokio::test]
async fn ticks_of_a_pause_without_schedulers_do_not_count_as_missed() {
    let fixture = Fixture::start().await;
    register(&fixture, "@daily", "a", true, 0, T).await;
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:cron", "5", "e q"]).await;
    assert!(at(&fixture, T).pause_cron("e").await.unwrap());
    assert!(at(&fixture, T + 500_000).resume_cron("e").await.unwrap());
    assert_eq!(register(&fixture, "@daily", "a", true, 0, T + 500_000).await.upto, T + 499_999);
    // It was not paused, or the clock is far ahead: ticks to come stay as they are.
    assert!(!at(&fixture, T + 600_000).resume_cron("e").await.unwrap());
    assert_eq!(register(&fixture, "@daily", "a", true, 0, T).await.upto, T + 499_999);
    let (now, _): (i64, i64) = fixture.cmd(&["TIME"]).await;
    assert!(at(&fixture, T).pause_cron("e").await.unwrap());
    assert!(at(&fixture, now + 500_000).resume_cron("e").await.unwrap());
    assert!(register(&fixture, "@daily", "a", true, 0, T).await.upto < now + 60);
}

#[tokio::test]
async fn a_tick_that_waits_for_its_jitter_outlives_a_pause() {
    let fixture = Fixture::start().await;
    register(&fixture, "@daily", "a", true, 0, T).await;
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:cron", "5", "e q"]).await;
    assert!(at(&fixture, T + 1_000).pause_cron("e").await.unwrap());
    register(&fixture, "@daily", "a", false, 0, T + 1_005).await;
    assert!(at(&fixture, T + 1_010).resume_cron("e").await.unwrap());
    assert_eq!(register(&fixture, "@daily", "a", false, 0, T + 1_010).await.upto, T);
}

#[tokio::test]
async fn a_pause_is_for_all_queues_that_an_entry_is_carried_with() {
    let fixture = Fixture::start().await;
    register(&fixture, "@daily", "a", true, 0, T).await;
    support::register(&fixture.broker, "q2", "@daily", "b", true, 0, T).await.unwrap();
    for member in ["e q", "e q2"] {
        let _: i64 = fixture.cmd(&["ZADD", "asynq:x:cron", "5", member]).await;
    }
    let inspector = at(&fixture, T);
    let paused = async || {
        let entries = inspector.cron_entries().await.unwrap();
        entries.iter().map(|entry| entry.paused.is_some()).collect::<Vec<_>>()
    };
    assert!(inspector.pause_cron("e").await.unwrap());
    assert_eq!(paused().await, [true, true]);
    fixture.run("HDEL asynq:{q}:x:cron:e paused").await;
    assert!(inspector.resume_cron("e").await.unwrap(), "one of them was paused");
    assert_eq!(paused().await, [false, false]);
}

#[tokio::test]
async fn a_forgotten_entry_leaves_nothing() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    register(&fixture, "@daily", "a", true, 0, T).await;
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:cron", "5", "e q"]).await;
    let _: i64 = fixture.cmd(&["LPUSH", "asynq:{q}:x:cron-history:e", "x"]).await;
    fixture.broker.record_enqueue_event("e", "id", T * 1_000_000_000).await.unwrap();
    let inspector = at(&fixture, T);
    inspector.remove_cron("e").await.unwrap();
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert!(matches!(inspector.remove_cron("e").await, Err(Error::EntryNotFound(_))));
}

#[tokio::test]
async fn a_pause_is_told_once() {
    let fixture = Fixture::start().await;
    register(&fixture, "@daily", "a", true, 0, T).await;
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:cron", "5", "e q"]).await;
    let inspector = at(&fixture, T);
    let before = fixture.keyspace().await;
    assert!(inspector.pause_cron("e").await.unwrap());
    let paused = fixture.keyspace().await;
    assert!(!inspector.pause_cron("e").await.unwrap());
    fixture.keyspace().await.assert_unchanged_since(&paused);
    assert!(inspector.cron_entry("e").await.unwrap().paused.is_some());
    assert!(inspector.resume_cron("e").await.unwrap());
    assert!(!inspector.resume_cron("e").await.unwrap());
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert!(inspector.pause_cron("e").await.unwrap());
    assert!(register(&fixture, "@daily", "a", false, 0, T).await.paused.is_some());
}

//! What tools see.

use std::time::Duration;

use queue_admin::Page;
use queue_core::RawTask;
use queue_scheduler::{Entry, Missed, Overlap, Scheduler};

use super::{HOUR, MINUTE, START, Stage, entry};
use crate::support::eventually;

async fn listed(stage: &Stage) -> Vec<String> {
    // The list is by the clock of the test, which the inspector does not have.
    let keys: Vec<String> = stage.fixture.cmd(&["KEYS", "asynq:schedulers:*"]).await;
    let mut ids = Vec::new();
    for key in keys {
        let list: Vec<Vec<u8>> = stage.fixture.cmd(&["LRANGE", &key, "0", "-1"]).await;
        ids.extend(list.iter().map(|raw| queue_core::wire::SchedulerEntry::from_bytes(raw).unwrap().id));
    }
    ids.sort();
    ids
}

#[tokio::test]
async fn an_entry_of_three_schedulers_is_listed_once() {
    let stage = Stage::new().await;
    let entries = || [entry("a", "* * * * *"), entry("b", "@daily")];
    let mut fleet = [stage.start(entries()).await, stage.start(entries()).await, stage.start(entries()).await];
    assert_eq!(listed(&stage).await, ["a", "b"], "from the start on");
    // Whoever shows them ends; another one takes over. Killed ones are in the tests of faults.
    for _ in 0..2 {
        fleet[0].shutdown().await;
        fleet.rotate_left(1);
        eventually("another one lists them", async || listed(&stage).await == ["a", "b"]).await;
    }
    fleet[0].shutdown().await;
    assert_eq!(listed(&stage).await, Vec::<String>::new());
    let left: Vec<String> = stage.fixture.cmd(&["KEYS", "asynq:schedulers*"]).await;
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn a_list_expires_by_itself_in_whole_seconds() {
    let stage = Stage::new().await;
    let _scheduler = stage.start([entry("e", "@daily")]).await;
    let keys: Vec<String> = stage.fixture.cmd(&["KEYS", "asynq:schedulers:*"]).await;
    let ttl: i64 = stage.fixture.cmd(&["TTL", &keys[0]]).await;
    assert!((10..=20).contains(&ttl), "{ttl}");
    let score: i64 = stage.fixture.cmd(&["ZSCORE", "asynq:schedulers", &keys[0]]).await;
    assert_eq!(score, START + 20);
}

#[tokio::test]
async fn many_entries_are_listed_in_one_step() {
    let stage = Stage::new().await;
    let _scheduler = stage.start((0..250).map(|n| entry(&format!("e{n:03}"), "@daily"))).await;
    assert_eq!(listed(&stage).await.len(), 250);
    assert_eq!(stage.fixture.inspector().cron_entries().await.unwrap().len(), 250);
}

#[tokio::test]
async fn the_inspector_reads_entries_events_and_policies() {
    // In real time, by which the inspector judges who is alive.
    let stage = Stage::new().await;
    let task =
        RawTask::new("job").queue("q").payload("p").max_retry(3).timeout(Duration::from_secs(90)).header("k", "v");
    let scheduler = Scheduler::new(stage.fixture.redis());
    let hourly = Entry::new("@hourly", task).name("e").zone("Europe/Berlin");
    scheduler
        .register(hourly.missed(Missed::All(5)).overlap(Overlap::Skip).jitter(Duration::from_secs(30)).max_runs(9))
        .unwrap();
    scheduler.register(Entry::new("0 0 30 2 *", RawTask::new("never"))).unwrap();
    scheduler.start().await.unwrap();
    let inspector = stage.fixture.inspector();
    let id = inspector.run_cron("e", false).await.unwrap();
    let entries = inspector.scheduler_entries().await.unwrap();
    let (never, found) = (&entries[0], &entries[1]);
    assert_eq!((never.next, never.prev, never.queue().as_str(), never.id.len()), (None, None, "default", 64));
    assert_eq!((found.id.as_str(), found.spec.as_str()), ("e", "CRON_TZ=Europe/Berlin @hourly"));
    assert_eq!((found.task_type.as_str(), &*found.payload, found.queue().as_str()), ("job", &b"p"[..], "q"));
    assert_eq!(found.options, ["MaxRetry(3)", "Queue(\"q\")", "Timeout(1m30s)", "Header([\"k\",\"v\"])"]);
    assert!(found.next.is_some() && found.prev.is_none());
    let events = inspector.enqueue_events("e", Page::default()).await.unwrap();
    assert_eq!((events.len(), &events[0].task_id), (1, &id));
    assert_eq!(inspector.enqueue_events("nobody", Page::default()).await.unwrap(), []);

    let cron = inspector.cron_entry("e").await.unwrap();
    assert_eq!((cron.missed.as_str(), cron.overlap.as_str(), cron.jitter_secs), ("all:5", "skip", 30));
    assert_eq!((cron.zone.as_str(), cron.max_runs, cron.runs), ("Europe/Berlin", Some(9), 1));
    assert_eq!((cron.last_task.as_ref(), cron.queue.as_str(), cron.task_type.as_str()), (Some(&id), "q", "job"));
    assert!(cron.seen.is_some() && cron.last.is_some() && cron.paused.is_none());
    // It is known also while nobody carries it.
    scheduler.shutdown().await;
    assert_eq!(inspector.scheduler_entries().await.unwrap(), []);
    assert_eq!(inspector.cron_entry("e").await.unwrap(), cron);
}

/// The next tick of `e` in Go's lists.
async fn next(stage: &Stage) -> Option<queue_core::wire::Timestamp> {
    let keys: Vec<String> = stage.fixture.cmd(&["KEYS", "asynq:schedulers:*"]).await;
    let list: Vec<Vec<u8>> = stage.fixture.cmd(&["LRANGE", keys.first()?, "0", "-1"]).await;
    queue_core::wire::SchedulerEntry::from_bytes(list.first()?).unwrap().next_enqueue_time
}

#[tokio::test]
async fn an_entry_that_is_paused_exhausted_or_ended_shows_no_next_tick() {
    let no_more = Some(queue_core::wire::Timestamp::NO_MORE);
    let shows = async |stage: &Stage, at: i64| {
        let at = queue_core::wire::Timestamp { seconds: START + at, nanos: 0 };
        eventually("the next tick is shown", async || next(stage).await == Some(at)).await;
    };
    let shows_none = async |stage: &Stage| {
        eventually("no next tick is shown", async || next(stage).await == no_more).await;
    };

    let stage = Stage::new().await;
    let scheduler = stage.start([entry("e", "@hourly").max_runs(1)]).await;
    let inspector = queue_admin::Inspector::with_clock(stage.fixture.redis(), stage.clock.clone());
    shows(&stage, HOUR).await;
    inspector.pause_cron("e").await.unwrap();
    shows_none(&stage).await;
    inspector.resume_cron("e").await.unwrap();
    shows(&stage, HOUR).await;
    stage.tick("e", HOUR).await;
    shows_none(&stage).await;
    scheduler.shutdown().await;

    let stage = Stage::new().await;
    let end = std::time::UNIX_EPOCH + Duration::from_secs((START + HOUR + MINUTE) as u64);
    let scheduler = stage.start([entry("e", "@hourly").ends(end)]).await;
    shows(&stage, HOUR).await;
    stage.tick("e", HOUR).await;
    shows_none(&stage).await;
    scheduler.shutdown().await;
}

#[tokio::test]
async fn a_task_that_others_enqueued_is_shown_as_the_last_run() {
    let stage = Stage::new().await;
    let shows = stage.start([entry("e", "@hourly")]).await;
    let _other = stage.start([entry("e", "@hourly")]).await;
    for tick in 1..=5 {
        stage.tick("e", tick * HOUR).await;
    }
    stage.at(5 * HOUR + MINUTE);
    eventually("the list shows the last run and the next", async || {
        let keys: Vec<String> = stage.fixture.cmd(&["KEYS", "asynq:schedulers:*"]).await;
        let mut shown = Vec::new();
        for key in keys {
            let list: Vec<Vec<u8>> = stage.fixture.cmd(&["LRANGE", &key, "0", "-1"]).await;
            shown.extend(list.iter().map(|raw| queue_core::wire::SchedulerEntry::from_bytes(raw).unwrap()));
        }
        shown.len() == 1
            && shown[0].prev_enqueue_time.is_some_and(|prev| prev.seconds == START + 5 * HOUR)
            && shown[0].next_enqueue_time.is_some_and(|next| next.seconds == START + 6 * HOUR)
    })
    .await;
    shows.shutdown().await;
}

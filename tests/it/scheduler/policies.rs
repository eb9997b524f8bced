//! What was missed, what overlaps, and when ticks are delayed.

use std::time::Duration;

use queue_admin::Inspector;
use queue_scheduler::{Entry, Missed, Overlap};

use super::{HOUR, MINUTE, Stage, entry};
use crate::support::eventually;

/// The tasks after all schedulers were down from the first tick on, for three hours and a half.
async fn after_downtime(missed: Missed) -> (Vec<String>, Vec<String>) {
    let stage = Stage::new().await;
    let hourly = || entry("e", "@hourly").missed(missed);
    let scheduler = stage.start([hourly()]).await;
    stage.tick("e", HOUR).await;
    scheduler.shutdown().await;
    stage.at(4 * HOUR + 1_800);
    let scheduler = stage.start([hourly()]).await;
    stage.upto("e", 4 * HOUR).await;
    stage.tick("e", 5 * HOUR).await;
    scheduler.shutdown().await;
    (stage.pending().await, stage.told.all())
}

#[tokio::test]
async fn missed_ticks_are_let_go_or_made_up_for() {
    let (pending, told) = after_downtime(Missed::Skip).await;
    assert_eq!(pending, ["e+3600", "e+18000"]);
    assert_eq!(told, ["e+3600: Enqueued", "e+14400: LetGo", "e+18000: Enqueued"]);
    assert_eq!(after_downtime(Missed::Last).await.0, ["e+3600", "e+14400", "e+18000"]);
    assert_eq!(after_downtime(Missed::All(2)).await.0, ["e+3600", "e+10800", "e+14400", "e+18000"]);
    assert_eq!(after_downtime(Missed::All(50)).await.0, ["e+3600", "e+7200", "e+10800", "e+14400", "e+18000"]);
}

#[tokio::test]
async fn two_schedulers_that_come_back_together_make_up_once() {
    let stage = Stage::new().await;
    let hourly = || [entry("e", "@hourly").missed(Missed::All(10))];
    stage.start(hourly()).await.shutdown().await;
    stage.at(6 * HOUR + 1_800);
    let (_a, _b) = tokio::join!(stage.start(hourly()), stage.start(hourly()));
    stage.upto("e", 6 * HOUR).await;
    assert_eq!(stage.pending().await, (1..=6).map(|n| format!("e+{}", n * HOUR)).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_time_before_an_entry_was_first_seen_holds_no_ticks() {
    let stage = Stage::new().await;
    stage.at(6 * HOUR + 1);
    let _scheduler = stage.start([entry("e", "@hourly").missed(Missed::All(10))]).await;
    stage.tick("e", 7 * HOUR).await;
    assert_eq!(stage.pending().await, ["e+25200"]);
}

#[tokio::test]
async fn a_restart_of_a_few_seconds_misses_nothing() {
    let stage = Stage::new().await;
    stage.start([entry("e", "@hourly")]).await.shutdown().await;
    stage.at(HOUR + 40);
    let _scheduler = stage.start([entry("e", "@hourly")]).await;
    stage.upto("e", HOUR).await;
    assert_eq!(stage.pending().await, ["e+3600"]);
}

async fn finish_all(stage: &Stage) {
    let ids: Vec<String> = stage.fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    for id in ids {
        stage.fixture.run(&format!("DEL asynq:{{q}}:t:{id}")).await;
    }
    stage.fixture.run("DEL asynq:{q}:pending").await;
}

#[tokio::test]
async fn a_tick_is_left_out_while_the_run_before_is_unfinished() {
    let stage = Stage::new().await;
    let _scheduler = stage.start([entry("e", "* * * * *").overlap(Overlap::Skip)]).await;
    for tick in 1..=3 {
        stage.tick("e", tick * MINUTE).await;
    }
    assert_eq!(stage.pending().await, ["e+60"]);
    finish_all(&stage).await;
    stage.tick("e", 4 * MINUTE).await;
    assert_eq!(stage.pending().await, ["e+240"]);
    let told = stage.told.wait(4).await;
    assert_eq!(told, ["e+60: Enqueued", "e+120: Unfinished", "e+180: Unfinished", "e+240: Enqueued"]);
}

#[tokio::test]
async fn a_tick_waits_for_the_run_before_also_when_its_scheduler_ends() {
    let stage = Stage::new().await;
    let waits = || [entry("e", "* * * * *").overlap(Overlap::Queue)];
    let scheduler = stage.start(waits()).await;
    for tick in 1..=3 {
        stage.tick("e", tick * MINUTE).await;
    }
    scheduler.shutdown().await;
    let (_a, _b) = (stage.start(waits()).await, stage.start(waits()).await);
    assert_eq!(stage.pending().await, ["e+60"]);
    finish_all(&stage).await;
    // No tick comes; whoever looks again enqueues the one that waited.
    eventually("the tick that waited is enqueued", async || stage.pending().await == ["e+180"]).await;
    finish_all(&stage).await;
    stage.tick("e", 4 * MINUTE).await;
    assert_eq!(stage.pending().await, ["e+240"]);
}

#[tokio::test]
async fn jitter_delays_a_tick_alike_on_all_schedulers() {
    let stage = Stage::new().await;
    let jittery = || [entry("e", "@hourly").jitter(Duration::from_secs(3_600)).missed(Missed::All(10))];
    let (_a, _b) = (stage.start(jittery()).await, stage.start(jittery()).await);
    let mut delays = Vec::new();
    // Half a minute at a time; the tick has to come within the hour, and keeps its own time in its id.
    for step in 1..=240 {
        stage.at(HOUR + step * 30);
        tokio::time::sleep(Duration::from_millis(8)).await;
        delays.resize(stage.told.count(), step * 30);
    }
    stage.upto("e", 2 * HOUR).await;
    let pending = stage.pending().await;
    assert_eq!(pending[..2], ["e+3600", "e+7200"]);
    assert!(delays[0] > 30 && delays[0] < HOUR, "{delays:?}");
}

#[tokio::test]
async fn an_entry_that_has_had_its_runs_stops() {
    let stage = Stage::new().await;
    let _scheduler = stage.start([entry("e", "* * * * *").max_runs(2)]).await;
    for tick in 1..=4 {
        stage.tick("e", tick * MINUTE).await;
    }
    assert_eq!(stage.pending().await, ["e+60", "e+120"]);
    assert_eq!(stage.told.wait(4).await[2..], ["e+180: Exhausted", "e+240: Exhausted"]);
}

#[tokio::test]
async fn an_entry_runs_by_hand_and_a_paused_one_does_not_run() {
    let stage = Stage::new().await;
    let inspector = Inspector::with_clock(stage.fixture.redis(), stage.clock.clone());
    let with_payload = Entry::new("* * * * *", queue_core::RawTask::new("job").queue("q").payload("p").max_retry(7));
    let _scheduler = stage.start([with_payload.name("e").overlap(Overlap::Skip)]).await;
    assert!(inspector.pause_cron("e").await.unwrap());
    stage.tick("e", MINUTE).await;
    assert_eq!(stage.pending().await, Vec::<String>::new());
    let id = inspector.run_cron("e", false).await.unwrap();
    assert!(id.starts_with("e:"), "{id}");
    let task = inspector.task("q", &id).await.unwrap();
    assert_eq!((&*task.payload, task.max_retry, task.task_type.as_str()), (&b"p"[..], 7, "job"));
    let refused = inspector.run_cron("e", false).await.unwrap_err();
    assert!(refused.to_string().contains("is unfinished"), "{refused}");
    let forced = inspector.run_cron("e", true).await.unwrap();
    assert_ne!(forced, id);
    assert!(inspector.resume_cron("e").await.unwrap());
    for id in [&id, &forced] {
        stage.fixture.run(&format!("DEL asynq:{{q}}:t:{id}")).await;
    }
    stage.fixture.run("DEL asynq:{q}:pending").await;
    stage.tick("e", 2 * MINUTE).await;
    assert_eq!(stage.pending().await, ["e+120"], "the tick while it was paused does not count as missed");
    let history = inspector.cron_history("e", queue_admin::Page::default()).await.unwrap();
    let history: Vec<(&str, &str)> = history.iter().map(|event| (&*event.outcome, &*event.why)).collect();
    let expected = [("enqueued", "tick"), ("enqueued", "forced"), ("unfinished", "manual"), ("enqueued", "manual")];
    assert_eq!(history, expected);
    let events = inspector.enqueue_events("e", queue_admin::Page::default()).await.unwrap();
    assert_eq!(events.len(), 3, "{events:?}");
}

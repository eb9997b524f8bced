//! Changes of the clock: of the zone's, and of the machine's.

use queue_admin::Page;
use queue_core::RawTask;
use queue_scheduler::{Entry, Missed, Zone};

use super::{HOUR, MINUTE, START, Stage, entry};
use crate::support::QUEUE;

/// Lets a day pass in steps of five minutes, and returns the ticks of the entry as seconds since `from`.
async fn day_in_new_york(spec: &str, from: i64) -> Vec<i64> {
    let stage = Stage::new().await;
    stage.clock.set_secs(from);
    let scheduler = stage.builder().zone(Zone::named("America/New_York").unwrap()).build();
    scheduler.register(Entry::new(spec, RawTask::new("job").queue(QUEUE)).name("e").missed(Missed::All(10))).unwrap();
    let often = entry("often", "@every 5m");
    scheduler.register(often).unwrap();
    scheduler.start().await.unwrap();
    for step in 1..=24 * 12 {
        stage.tick("often", from - START + step * 5 * MINUTE).await;
    }
    scheduler.shutdown().await;
    let pending = stage.pending().await;
    let ticks = pending.iter().filter_map(|id| id.strip_prefix("e+"));
    ticks.map(|tick| tick.parse::<i64>().unwrap() + START - from).collect()
}

/// 2024-03-10 00:00 in New York, the day on which 02:00 to 03:00 is left out.
const SPRING: i64 = 1_710_046_800;
/// 2024-11-03 00:00 in New York, the day on which 01:00 to 02:00 comes twice.
const AUTUMN: i64 = 1_730_606_400;

#[tokio::test]
async fn a_time_that_is_left_out_has_no_tick() {
    assert_eq!(day_in_new_york("30 2 * * *", SPRING).await, [0_i64; 0]);
    assert_eq!(day_in_new_york("30 3 * * *", SPRING).await, [2 * HOUR + 30 * MINUTE]);
}

#[tokio::test]
async fn a_time_that_comes_twice_has_two_ticks() {
    assert_eq!(day_in_new_york("30 1 * * *", AUTUMN).await, [90 * MINUTE, 150 * MINUTE]);
    assert_eq!(day_in_new_york("CRON_TZ=UTC 30 5 * * *", AUTUMN).await, [90 * MINUTE], "its own zone wins");
}

#[tokio::test]
async fn a_clock_that_is_set_back_repeats_nothing() {
    let stage = Stage::new().await;
    let _scheduler = stage.start([entry("e", "* * * * *").missed(Missed::All(10))]).await;
    for tick in 1..=3 {
        stage.tick("e", tick * MINUTE).await;
    }
    stage.at(MINUTE);
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    stage.at(3 * MINUTE + 30);
    stage.tick("e", 4 * MINUTE).await;
    assert_eq!(stage.pending().await, ["e+60", "e+120", "e+180", "e+240"]);
}

#[tokio::test]
async fn a_clock_that_leaps_is_a_time_without_schedulers() {
    let stage = Stage::new().await;
    let _scheduler = stage.start([entry("e", "* * * * *")]).await;
    stage.tick("e", MINUTE).await;
    stage.tick("e", 3 * HOUR).await;
    assert_eq!(stage.pending().await, ["e+60", "e+10800"]);
    let history = stage.fixture.inspector().cron_history("e", Page::default()).await.unwrap();
    assert_eq!(history[1].outcome, "missed");
    assert_eq!(history[1].from.unwrap().timestamp(), START + 2 * MINUTE);
    assert_eq!(history[1].tick.unwrap().timestamp(), START + 3 * HOUR - MINUTE);
}

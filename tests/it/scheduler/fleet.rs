//! Several schedulers carry the same entries.

use std::collections::BTreeSet;

use super::{MINUTE, Stage, enqueued, entry};

#[tokio::test]
async fn three_schedulers_enqueue_each_tick_once() {
    let stage = Stage::new().await;
    let entries = || [entry("minute", "* * * * *"), entry("often", "@every 20s"), entry("hour", "30 * * * *")];
    let (a, b, c) = (stage.start(entries()).await, stage.start(entries()).await, stage.start(entries()).await);
    for step in 1..=60 {
        stage.at(step * 20);
        stage.upto("often", step * 20).await;
        stage.upto("minute", step / 3 * 60).await;
    }
    let mut expected: BTreeSet<String> = (1..=20).map(|n| format!("minute+{}", n * MINUTE)).collect();
    expected.extend((1..=60).map(|n| format!("often+{}", n * 20)));
    let pending = stage.pending().await;
    assert_eq!(pending.len(), 80, "{pending:?}");
    assert_eq!(BTreeSet::from_iter(pending), expected);
    let told = stage.told.wait(80).await;
    let expected: BTreeSet<String> = expected.iter().map(|id| format!("{id}: Enqueued")).collect();
    assert_eq!((told.len(), BTreeSet::from_iter(told)), (80, expected), "one of the three tells of each");
    for scheduler in [a, b, c] {
        scheduler.shutdown().await;
    }
}

#[tokio::test]
async fn all_else_in_redis_is_as_documented() {
    let stage = Stage::new().await;
    let before = stage.fixture.keyspace().await;
    let scheduler = stage.start([entry("e", "* * * * *")]).await;
    stage.tick("e", MINUTE).await;
    stage.told.wait(1).await;
    scheduler.shutdown().await;
    let after = stage.fixture.keyspace().await;
    let changes = after.changes_since(&before);
    let paths: BTreeSet<&str> = changes.lines().map(|line| line[2..].split_once(": ").unwrap().0).collect();
    // Binary members and seconds of expiry are in the way of comparing the texts.
    let event = paths.iter().find(|path| path.starts_with("scheduler_history:e 0x")).unwrap();
    let mut expected = BTreeSet::from([
        *event,
        "queues q",
        "scheduler_history:e expires",
        "x:cron e q",
        "{q}:pending",
        "{q}:t:e:1699999260 msg",
        "{q}:t:e:1699999260 pending_since",
        "{q}:t:e:1699999260 state",
        "{q}:x:cron-history:e",
        "{q}:x:cron-history:e expires",
        "{q}:x:cron:e expires",
    ]);
    let fields = "ends last_id last_ns last_tick overlap policy registered runs spec task unique upto";
    let fields: Vec<String> = fields.split(' ').map(|field| format!("{{q}}:x:cron:e {field}")).collect();
    expected.extend(fields.iter().map(String::as_str));
    assert_eq!(paths, expected);
    assert_eq!(after.get("x:cron e q"), Some("score 1699999260"));
    assert_eq!(after.get(event), Some("score 1699999260"));
    assert_eq!(after.get("{q}:x:cron:e spec"), Some("CRON_TZ=UTC * * * * *"));
}

#[tokio::test]
async fn schedulers_may_carry_different_entries() {
    let stage = Stage::new().await;
    let (_a, _b) = (
        stage.start([entry("both", "* * * * *"), entry("a", "* * * * *")]).await,
        stage.start([entry("both", "* * * * *"), entry("b", "* * * * *")]).await,
    );
    stage.at(MINUTE);
    let told = BTreeSet::from_iter(stage.told.wait(3).await);
    assert_eq!(told, BTreeSet::from(["a", "b", "both"].map(|name| enqueued(name, MINUTE))));
}

#[tokio::test]
async fn a_scheduler_that_comes_later_or_starts_again_repeats_nothing() {
    let stage = Stage::new().await;
    let first = stage.start([entry("e", "* * * * *")]).await;
    stage.tick("e", MINUTE).await;
    let second = stage.start([entry("e", "* * * * *")]).await;
    first.shutdown().await;
    stage.tick("e", 2 * MINUTE).await;
    second.shutdown().await;
    let third = stage.start([entry("e", "* * * * *")]).await;
    stage.tick("e", 3 * MINUTE).await;
    assert_eq!(stage.pending().await, ["e+60", "e+120", "e+180"]);
    third.shutdown().await;
}

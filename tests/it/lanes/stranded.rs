//! Whoever changes what holds for lanes may be killed between two steps: then nothing is forgotten for long.

use std::time::Duration;

use queue_core::limit::{Breaker, LaneChange, Limit, LimitKey, Limits};
use queue_redis::broker::{Bin, Dequeued, Freed, Seen, Undeleted};

use super::{of, one_of_each_tenant};
use crate::support::{Fixture, NOW, QUEUE};

const HOUR: Duration = Duration::from_secs(3_600);
/// So long nobody looks at a lane at the most, in milliseconds.
const FARTHEST_MS: u64 = 5 * 60 * 1_000;

fn tenant() -> Limit {
    Limit::new("tenant", LimitKey::header("tenant"))
}

fn paused() -> LaneChange {
    let mut change = LaneChange::default();
    change.paused = true;
    change
}

impl Fixture {
    async fn now_ms(&self) -> u64 {
        let time: Vec<u64> = self.cmd(&["TIME"]).await;
        time[0] * 1_000 + time[1] / 1_000
    }

    /// Limits as somebody has written them who is killed before the lanes are looked at, and their changes are gone.
    async fn write_limits(&self, rules: impl IntoIterator<Item = Limit>) {
        let mut limits = Limits::default();
        rules.into_iter().for_each(|rule| limits.set(rule).unwrap());
        self.cmd::<()>(&["SET", "asynq:{q}:x:rules", &limits.text()]).await;
    }
}

/// Lanes are told in pages that something has changed; those of the pages that are not told find out by themselves.
#[tokio::test]
async fn a_lane_is_looked_at_within_five_minutes_whatever_shuts_it() {
    for (limit, what) in [
        (tenant().concurrency(9), "pause"),
        (tenant().rate(1, HOUR), "rate"),
        (tenant().breaker(Breaker::failures(1).of(1).within(HOUR).rest(HOUR, HOUR)), "breaker"),
        (tenant().concurrency(9), "too many"),
        (Limit::new("tenant", LimitKey::Queue).rate(1, HOUR), "gate"),
    ] {
        let fixture = Fixture::start().await;
        fixture.limit(limit).await;
        if what == "pause" {
            fixture.inspector().change_lane(QUEUE, "tenant", "acme", Some(&paused())).await.unwrap();
        }
        fixture.put([of("acme", "a1")]).await;
        let taken = fixture.take_some(1).await.0;
        if what == "breaker" || what == "too many" {
            fixture.end_in_silence(&taken).await;
            let too_many = (what == "too many").then(|| ("tenant".to_owned(), HOUR));
            let freed = [Freed { run: taken[0].run.clone(), too_many, went_well: Some(what != "breaker") }];
            fixture.broker.free_slots(QUEUE, &freed).await.unwrap();
        }
        fixture.put([of("acme", "a2")]).await;
        assert!(fixture.take_ids(10).await.is_empty(), "{what}");
        let dues: Vec<(String, f64)> = fixture.cmd(&["ZRANGE", "asynq:{q}:x:due", "0", "-1", "WITHSCORES"]).await;
        // A look is due at a whole millisecond.
        let farthest = fixture.now_ms().await + FARTHEST_MS + 1;
        let is_soon = |(_, at): &(String, f64)| *at > 1e12 && *at <= farthest as f64;
        assert!(dues.len() == 1 && dues.iter().all(is_soon), "{what}: {dues:?} after {farthest}");
    }
}

#[tokio::test]
async fn what_was_different_for_a_key_is_not_where_its_limit_is_gone() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    let mut change = LaneChange::default();
    change.concurrency = Some(1);
    fixture.inspector().change_lane(QUEUE, "tenant", "acme", Some(&change)).await.unwrap();
    fixture.put(["a1", "a2", "a3"].map(|id| of("acme", id))).await;
    assert_eq!(fixture.take_ids(10).await, ["a1"]);
    fixture.write_limits([]).await;
    fixture.look_again().await;
    assert_eq!(fixture.take_ids(10).await, ["a2", "a3"], "nothing holds them up any more");
    while let Dequeued::Limited { tasks, .. } = fixture.dequeue(1).await {
        assert!(tasks.is_empty());
    }
    let keys: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:x:lanes"]).await;
    assert_eq!(keys, [""; 0], "it goes with the last limit");
}

#[tokio::test]
async fn a_new_limit_begins_with_nothing_that_one_of_its_name_has_left() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.limit(Limit::new("other", LimitKey::Type).concurrency(9)).await;
    for limit in ["tenant", "other"] {
        fixture.inspector().change_lane(QUEUE, limit, "acme", Some(&paused())).await.unwrap();
    }
    fixture.limit(one_of_each_tenant().concurrency(2)).await;
    fixture.put([of("acme", "a1")]).await;
    assert!(fixture.take_ids(10).await.is_empty(), "another number leaves what holds for a key as it is");
    fixture.write_limits([Limit::new("other", LimitKey::Type).concurrency(9)]).await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.look_again().await;
    assert_eq!(fixture.take_ids(10).await, ["a1"]);
    let changed: Vec<String> = fixture.cmd(&["HKEYS", "asynq:{q}:x:lanes"]).await;
    assert_eq!(changed, ["other:acme"]);
}

/// Its lane has dropped its entry by then.
#[tokio::test]
async fn a_parked_task_that_comes_back_from_the_bin_has_its_place_again() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put([of("acme", "a1"), of("acme", "a2"), of("acme", "a3")]).await;
    let first = fixture.take_some(10).await.0;
    let (bin, now_ms) = (Bin { operation: "op", piece: 0, keep_secs: 60 }, NOW * 1_000);
    fixture.broker.bin_tasks(QUEUE, Seen::Anywhere, &["a2"], bin, now_ms).await.unwrap().unwrap();
    fixture.end(&first).await;
    let third = fixture.take_some(10).await.0;
    assert_eq!(third[0].message.id, "a3");
    assert_eq!(fixture.broker.undelete_tasks(QUEUE, &["a2"], bin, now_ms).await.unwrap(), [Undeleted::Restored]);
    assert_eq!(fixture.take_ids(10).await, [""; 0]);
    assert_eq!(fixture.state("a2").await, "scheduled", "it waits in its lane");
    fixture.end(&third).await;
    assert_eq!(fixture.take_ids(10).await, ["a2"]);
}

//! Adaptive rates: halved for a key where a handler says that it is too much, and given back bit by bit.

use std::time::Duration;

use queue_core::limit::{Limit, LimitKey};
use queue_core::{Clock as _, SystemClock};
use queue_redis::broker::{Delivery, Freed};

use super::of;
use crate::support::{Fixture, QUEUE};

const PACE: &str = "asynq:{q}:x:pace:tenant:a";
const NEXT: &str = "asynq:{q}:x:tat:tenant:a";

/// A start in ten seconds, and in forty at the least.
fn limit() -> Limit {
    Limit::new("tenant", LimitKey::header("tenant")).rate(10, Duration::from_secs(100)).adaptive(4)
}

fn now_ms() -> i64 {
    SystemClock.now_ns() / 1_000_000
}

async fn too_much(fixture: &Fixture, delivery: &Delivery, pause: Duration) {
    let too_many = Some(("tenant".to_owned(), pause));
    let freed = [Freed { run: delivery.run.clone(), too_many, went_well: None }];
    fixture.broker.free_slots(QUEUE, &freed).await.unwrap();
}

async fn pace(fixture: &Fixture) -> Option<(f64, i64, i64)> {
    let text: Option<String> = fixture.cmd(&["GET", PACE]).await;
    let words: Vec<f64> = text?.split(' ').map(|word| word.parse().unwrap()).collect();
    Some((words[0], words[1] as i64, words[2] as i64))
}

/// As if the pause had ended so long ago.
async fn since(fixture: &Fixture, ago: Duration) {
    let (share, ..) = pace(fixture).await.unwrap();
    let from = now_ms() - i64::try_from(ago.as_millis()).unwrap();
    let _: String = fixture.cmd(&["SET", PACE, &format!("{share:.4} {from} {}", from + 1_000_000)]).await;
}

/// Starts the next task, and says how long its key is shut after it, in seconds.
async fn start(fixture: &Fixture) -> (Delivery, f64) {
    let _: i64 = fixture.cmd(&["DEL", NEXT]).await;
    fixture.look_again().await;
    start_of(fixture, NEXT).await
}

async fn start_of(fixture: &Fixture, next: &str) -> (Delivery, f64) {
    let before = now_ms();
    let (mut taken, _) = fixture.take_some(2).await;
    assert_eq!(taken.len(), 1);
    let next: String = fixture.cmd(&["GET", next]).await;
    let next: f64 = next.trim_start_matches('+').parse().unwrap();
    (taken.remove(0), (next - before as f64) / 1_000.0)
}

fn is_about(secs: f64, expected: f64) {
    assert!((expected..expected + 3.0).contains(&secs), "{secs} s instead of {expected}");
}

#[tokio::test]
async fn a_rate_is_halved_for_a_key_where_it_is_too_much_and_given_back_by_tenths() {
    let fixture = Fixture::start().await;
    fixture.limit(limit()).await;
    fixture.put((0..9).map(|n| of("a", &format!("a{n}")))).await;
    let (first, secs) = start(&fixture).await;
    is_about(secs, 10.0);
    assert_eq!(pace(&fixture).await, None);
    let (second, _) = start(&fixture).await;

    let before = now_ms();
    too_much(&fixture, &first, Duration::from_secs(5)).await;
    let known = pace(&fixture).await.unwrap();
    assert_eq!((known.0, known.2 - known.1), (0.5, 5 * 100_000));
    assert!((before + 5_000..before + 8_000).contains(&known.1), "{known:?}");
    let left: i64 = fixture.cmd(&["PTTL", PACE]).await;
    assert!((500_000..=505_001).contains(&left), "{left}");
    // It ran beside the first.
    too_much(&fixture, &second, Duration::from_secs(5)).await;
    assert_eq!(pace(&fixture).await, Some(known));

    let (lanes, _) = fixture.inspector().lanes(QUEUE, "tenant", None, 10).await.unwrap();
    let slowed = lanes[0].slowed.as_ref().unwrap();
    assert_eq!((slowed.percent, slowed.until.timestamp_millis()), (50, known.2));
    let told = fixture.inspector().explain(QUEUE, "a5").await.unwrap().reasons[0].to_string();
    assert!(told.contains("too much, and the rate was cut to 50 percent; it is whole again at "), "{told}");

    for (least, expected) in [(0.5, 20.0), (0.25, 40.0), (0.25, 40.0)] {
        since(&fixture, Duration::ZERO).await;
        let (delivery, secs) = start(&fixture).await;
        is_about(secs, expected);
        assert_eq!(pace(&fixture).await.unwrap().0, least);
        too_much(&fixture, &delivery, Duration::ZERO).await;
    }
    for (ago, expected) in [(99, 40.0), (250, 100.0 / 4.5), (1_000, 10.0)] {
        since(&fixture, Duration::from_secs(ago)).await;
        let (_, secs) = start(&fixture).await;
        is_about(secs, expected);
    }
}

#[tokio::test]
async fn other_keys_keep_their_rate_and_an_operator_gives_it_back() {
    let fixture = Fixture::start().await;
    fixture.limit(limit()).await;
    fixture.put([of("a", "a0"), of("a", "a1"), of("a", "a2")]).await;
    let (first, _) = start(&fixture).await;
    too_much(&fixture, &first, Duration::ZERO).await;
    assert_eq!(pace(&fixture).await.unwrap().0, 0.5);
    fixture.put([of("b", "b0")]).await;
    let (other, secs) = start_of(&fixture, "asynq:{q}:x:tat:tenant:b").await;
    assert_eq!(other.run.id, "b0");
    is_about(secs, 10.0);
    fixture.inspector().change_lane(QUEUE, "tenant", "a", None).await.unwrap();
    assert_eq!(pace(&fixture).await, None);
    // What nobody can read slows nobody down.
    let _: String = fixture.cmd(&["SET", PACE, "slow 1 2"]).await;
    let (_, secs) = start(&fixture).await;
    is_about(secs, 10.0);
}

#[test]
fn an_adaptive_rate_needs_a_rate_and_a_share() {
    let rate = || Limit::new("tenant", LimitKey::Type).rate(10, Duration::from_secs(1));
    assert_eq!(rate().adaptive(2).check(), Ok(()));
    for (limit, reason) in [
        (Limit::new("tenant", LimitKey::Type).concurrency(1).adaptive(2), "it has no rate"),
        (rate().adaptive(1), "it goes down to a half at the least"),
        (rate().adaptive(1_001), "it goes down to a thousandth at the most"),
    ] {
        let text = limit.check().unwrap_err().to_string();
        assert_eq!(text, format!("limit \"tenant\" cannot have an adaptive rate: {reason}"));
    }
}

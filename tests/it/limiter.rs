//! A rate that belongs to no queue.

use std::time::Duration;

use queue_redis::Limiter;
use tokio::task::JoinSet;

use crate::support::{Fixture, is_wrong_type};

const HOUR: Duration = Duration::from_secs(3_600);

async fn starts(limiter: &Limiter, tries: usize) -> usize {
    let mut through = 0;
    for _ in 0..tries {
        through += usize::from(limiter.start().await.unwrap().is_ok());
    }
    through
}

#[tokio::test]
async fn as_many_are_let_through_as_a_burst_has_and_then_one_in_each_interval() {
    let fixture = Fixture::start().await;
    let limiter = Limiter::named(fixture.redis(), "stripe", 2, HOUR).burst(3);
    assert_eq!(starts(&limiter, 10).await, 3);
    let wait = limiter.start().await.unwrap().unwrap_err();
    assert!(wait <= HOUR / 2 && wait > HOUR / 3, "{wait:?}");
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "*"]).await, ["asynq:x:limit:stripe"]);
    let left: u64 = fixture.cmd(&["PTTL", "asynq:x:limit:stripe"]).await;
    assert!(Duration::from_millis(left) <= 3 * HOUR / 2 + Duration::from_millis(2), "{left}");
    // An interval later there is room for one.
    let tat: f64 = fixture.cmd(&["GET", "asynq:x:limit:stripe"]).await;
    let _: String = fixture.cmd(&["SET", "asynq:x:limit:stripe", &(tat - 1_800_000.0).to_string()]).await;
    assert_eq!(starts(&limiter, 10).await, 1);
    assert_eq!(starts(&Limiter::named(fixture.redis(), "other", 2, HOUR), 10).await, 1);
}

#[tokio::test]
async fn many_who_ask_at_once_share_one_rate_and_who_waits_has_its_turn() {
    let fixture = Fixture::start().await;
    let limiter = Limiter::named(fixture.redis(), "stripe", 100, HOUR).burst(10);
    let mut asking = JoinSet::new();
    for _ in 0..50 {
        let limiter = limiter.clone();
        asking.spawn(async move { limiter.start_within(Duration::from_secs(1)).await.unwrap() });
    }
    assert_eq!(asking.join_all().await.into_iter().filter(|through| *through).count(), 10);
    let quick = Limiter::named(fixture.redis(), "quick", 100, Duration::from_secs(1));
    for _ in 0..5 {
        assert!(quick.start_within(HOUR).await.unwrap());
    }
}

#[tokio::test]
async fn whoever_hears_that_it_is_too_much_holds_up_all() {
    let fixture = Fixture::start().await;
    let limiter = Limiter::named(fixture.redis(), "stripe", 1_000, Duration::from_secs(1)).burst(5);
    limiter.hold(HOUR).await.unwrap();
    assert_eq!(starts(&limiter, 5).await, 0);
    let wait = limiter.start().await.unwrap().unwrap_err();
    assert!(wait <= HOUR && wait > HOUR / 2, "{wait:?}");
    limiter.hold(Duration::from_secs(1)).await.unwrap();
    assert!(limiter.start().await.unwrap().unwrap_err() > HOUR / 2, "a shorter one does not shorten it");
}

#[tokio::test]
async fn what_makes_no_sense_panics_and_a_key_of_another_type_is_an_error() {
    let fixture = Fixture::start().await;
    let named = |name: &str, rate, per, burst| {
        let (redis, name) = (fixture.redis(), name.to_owned());
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Limiter::named(redis, name, rate, per).burst(burst)))
    };
    assert!(named("a", 1, HOUR, 1).is_ok());
    let nothing =
        [named(" ", 1, HOUR, 1), named("a", 0, HOUR, 1), named("a", 1, Duration::ZERO, 1), named("a", 1, HOUR, 0)];
    assert!(nothing.iter().all(Result::is_err));
    let _: i64 = fixture.cmd(&["LPUSH", "asynq:x:limit:a", "x"]).await;
    assert!(is_wrong_type(&named("a", 1, HOUR, 1).unwrap().start().await.unwrap_err()));
}

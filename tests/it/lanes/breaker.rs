//! Breakers: nothing of a key starts for a while, because what has started has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use queue_core::limit::{Breaker, Limit, LimitKey};
use queue_core::{RawTask, TaskState};
use queue_redis::broker::{Delivery, Freed};
use queue_worker::{Job, RetryPolicy, Router, Server, Unhandled};

use super::{ids, of};
use crate::support::{Events, Fixture, QUEUE, eventually, with};

const MINUTE: Duration = Duration::from_secs(60);
const HEALTH: &str = "asynq:{q}:x:health:tenant:a";

/// Half of four, within an hour; rests of one minute to a minute and a half.
fn breaker() -> Breaker {
    Breaker::failures(50).of(4).within(60 * MINUTE).rest(MINUTE, MINUTE * 3 / 2)
}

fn by_tenant() -> Limit {
    Limit::new("tenant", LimitKey::header("tenant")).breaker(breaker())
}

/// They end, the first so many badly.
async fn end(fixture: &Fixture, runs: &[Delivery], badly: usize) {
    fixture.end_in_silence(runs).await;
    say(fixture, runs, badly).await;
}

async fn say(fixture: &Fixture, runs: &[Delivery], badly: usize) {
    let went = |(at, delivery): (usize, &Delivery)| Freed {
        run: delivery.run.clone(),
        too_many: None,
        went_well: Some(at >= badly),
    };
    let freed: Vec<Freed> = runs.iter().enumerate().map(went).collect();
    fixture.broker.free_slots(QUEUE, &freed).await.unwrap();
}

async fn health(fixture: &Fixture) -> Vec<u64> {
    let health: Option<String> = fixture.cmd(&["GET", HEALTH]).await;
    health.unwrap_or_default().split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// As if a rest were over.
async fn rest(fixture: &Fixture) {
    let mut known = health(fixture).await;
    known[3] = 1;
    let text: Vec<String> = known.iter().map(u64::to_string).collect();
    let _: String = fixture.cmd(&["SET", HEALTH, &text.join(" ")]).await;
    fixture.look_again().await;
}

#[tokio::test]
async fn when_enough_has_failed_nothing_of_the_key_starts_and_then_one_finds_out() {
    let fixture = Fixture::start().await;
    fixture.limit(by_tenant()).await;
    fixture.put((0..9).map(|n| of("a", &format!("a{n}")))).await;
    let (taken, _) = fixture.take_some(5).await;
    end(&fixture, &taken[..3], 3).await;
    let left: i64 = fixture.cmd(&["PTTL", HEALTH]).await;
    // The beginning is written down in whole milliseconds.
    assert!((1..=3_600_001).contains(&left), "three are too few: {left}");
    end(&fixture, &taken[3..4], 0).await;
    let known = health(&fixture).await;
    assert_eq!((known[0], known[1], known[4]), (4, 3, 60_000), "{known:?}");
    // One that had begun before says nothing.
    end(&fixture, &taken[4..], 0).await;
    assert_eq!(health(&fixture).await, known);
    fixture.put([of("b", "b0")]).await;
    assert_eq!(fixture.take_ids(10).await, ["b0"], "another key goes on");
    let (lanes, _) = fixture.inspector().lanes(QUEUE, "tenant", None, 10).await.unwrap();
    let until = lanes[0].rests_until.unwrap();
    assert_eq!((until.timestamp_millis() as u64, lanes[1].rests_until), (known[3], None));
    let explained = fixture.inspector().explain(QUEUE, "a5").await.unwrap();
    assert!(
        explained.reasons[0].to_string().contains("; too much has failed there, so that nothing starts until "),
        "{explained:?}"
    );

    for longer in [90_000, 90_000] {
        rest(&fixture).await;
        let (probe, _) = fixture.take_some(10).await;
        assert_eq!((probe.len(), fixture.take_ids(10).await.len()), (1, 0));
        end(&fixture, &probe, 1).await;
        assert_eq!(health(&fixture).await[4], longer, "twice as long, up to the longest");
        assert_eq!(fixture.take_ids(10).await.len(), 0);
    }
    let limits = fixture.inspector().limits(QUEUE).await.unwrap();
    assert_eq!(limits[0].opened, 3);
    let text = queue_metrics::text(&queue_metrics::QueueMetrics::new(fixture.inspector()).gather().await);
    assert!(text.contains("asynq_lane_opened_total{limit=\"tenant\",queue=\"q\"} 3\n"), "{text}");
    rest(&fixture).await;
    let (probe, _) = fixture.take_some(10).await;
    end(&fixture, &probe, 0).await;
    assert_eq!(fixture.cmd::<i64>(&["EXISTS", HEALTH]).await, 0);
    assert_eq!(fixture.take_ids(10).await.len(), 1, "all that are left");
}

#[tokio::test]
async fn an_operator_ends_a_rest() {
    let fixture = Fixture::start().await;
    fixture.limit(by_tenant()).await;
    fixture.put((0..7).map(|n| of("a", &format!("a{n}")))).await;
    let (taken, _) = fixture.take_some(4).await;
    end(&fixture, &taken, 4).await;
    assert_eq!(fixture.take_ids(10).await.len(), 0);
    fixture.inspector().change_lane(QUEUE, "tenant", "a", None).await.unwrap();
    assert_eq!(fixture.take_ids(10).await.len(), 3);
}

#[tokio::test]
async fn a_probe_that_dies_with_its_worker_is_followed_by_another() {
    let fixture = Fixture::start().await;
    fixture.limit(by_tenant()).await;
    fixture.put((0..7).map(|n| of("a", &format!("a{n}")))).await;
    let (taken, _) = fixture.take_some(5).await;
    end(&fixture, &taken[..4], 4).await;
    rest(&fixture).await;
    assert_eq!(fixture.take_ids(10).await.len(), 0, "one that began before is still at it");
    fixture.end_in_silence(&taken[4..]).await;
    fixture.look_again().await;
    let (probe, _) = fixture.take_some(10).await;
    fixture.end_in_silence(&probe).await;
    fixture.look_again().await;
    assert_eq!((ids(&probe).len(), fixture.take_ids(10).await.len()), (1, 1));
}

#[tokio::test]
async fn failures_of_long_ago_do_not_count_and_a_cap_of_the_limit_holds_as_well() {
    let fixture = Fixture::start().await;
    fixture.limit(by_tenant().concurrency(3)).await;
    fixture.put((0..9).map(|n| of("a", &format!("a{n}")))).await;
    let (taken, _) = fixture.take_some(10).await;
    assert_eq!(taken.len(), 3);
    end(&fixture, &taken, 3).await;
    let _: String = fixture.cmd(&["SET", HEALTH, "3 3 1 0 0"]).await;
    let (taken, _) = fixture.take_some(10).await;
    end(&fixture, &taken, 1).await;
    let known = health(&fixture).await;
    assert_eq!((known[0], known[1], known[3]), (3, 1, 0), "{known:?}");
    assert_eq!(fixture.take_ids(10).await.len(), 3);
}

#[tokio::test]
async fn a_limit_for_all_of_the_queue_rests_as_well() {
    let fixture = Fixture::start().await;
    fixture.limit(Limit::new("all", LimitKey::Queue).breaker(breaker())).await;
    fixture.put((0..9).map(|n| of("a", &format!("a{n}")))).await;
    let (taken, _) = fixture.take_some(4).await;
    end(&fixture, &taken, 2).await;
    assert_eq!(fixture.take_ids(10).await.len(), 0);
    let (lanes, _) = fixture.inspector().lanes(QUEUE, "all", None, 10).await.unwrap();
    assert!(lanes[0].rests_until.is_some());
    let _: String = fixture.cmd(&["SET", "asynq:{q}:x:health:all:", "4 2 1 1 60000"]).await;
    let (probe, _) = fixture.take_some(10).await;
    assert_eq!((probe.len(), fixture.take_ids(10).await.len()), (1, 0));
    end(&fixture, &probe, 0).await;
    assert_eq!(fixture.take_ids(10).await.len(), 4);
}

/// Of the service they say nothing.
#[tokio::test]
async fn attempts_that_never_began_or_were_cancelled_open_no_breaker() {
    let fixture = Fixture::start().await;
    let breaker = Breaker::failures(1).of(1).within(MINUTE).rest(MINUTE, MINUTE);
    fixture.limit(Limit::new("tenant", LimitKey::header("tenant")).breaker(breaker)).await;
    let (began, went) = (Events::default(), Events::default());
    let work = with(&(began.clone(), went.clone()), async |(began, went): (Events, Events), job: Job| {
        began.tell(job.id());
        if job.id() == "slow" {
            job.cancellation().cancelled().await;
            return Err("it was told to end");
        }
        went.tell(job.id());
        Ok(())
    });
    let server = Server::new(fixture.redis(), Router::new(()).route("job", work)).queues([(QUEUE, 1)]);
    let server = server.unhandled(Unhandled::Archive).concurrency(1).start().await.unwrap();
    let over = std::time::UNIX_EPOCH + MINUTE;
    let others = RawTask::new("nobody").queue(QUEUE).header("tenant", "a");
    fixture.enqueue([of("a", "late").deadline(over), others, of("a", "slow")]).await;
    began.wait(1).await;
    assert_eq!(fixture.broker.cancel("slow").await.unwrap(), 1);
    fixture.in_state("slow", TaskState::Retry).await;
    fixture.enqueue([of("a", "fine")]).await;
    assert_eq!(went.wait(1).await, ["fine"]);
    assert_eq!(fixture.inspector().limits(QUEUE).await.unwrap()[0].opened, 0);
    server.shutdown().await;
}

/// What a server reports is what the breaker goes by: failures, and nothing that only waits.
#[tokio::test]
async fn a_server_whose_handlers_fail_leaves_the_key_alone_until_one_succeeds() {
    let fixture = Fixture::start().await;
    let soon = Duration::from_millis(50);
    let breaker = Breaker::failures(100).of(3).within(MINUTE).rest(soon, soon);
    fixture.limit(Limit::new("tenant", LimitKey::header("tenant")).breaker(breaker)).await;
    let is_down = Arc::new(AtomicBool::new(true));
    let work = with(
        &is_down,
        async |is_down: Arc<AtomicBool>, _: Job| {
            if is_down.load(Ordering::SeqCst) { Err("the service is down") } else { Ok(()) }
        },
    );
    let server = Server::new(fixture.redis(), Router::new(()).route("job", work)).queues([(QUEUE, 1)]);
    let at_once = RetryPolicy::Fixed(Duration::from_millis(1));
    let server = server.concurrency(1).retry_policy(at_once).start().await.unwrap();
    fixture.enqueue((0..20).map(|n| of("a", &format!("a{n}")))).await;
    let opened = async || fixture.inspector().limits(QUEUE).await.unwrap()[0].opened;
    eventually("one after another fails that finds out", async || opened().await >= 3).await;
    let failed = fixture.count("failed").await;
    assert!(failed <= 3 + opened().await, "{failed}: nothing but probes has run");
    is_down.store(false, Ordering::SeqCst);
    eventually("all have run", async || fixture.inspector().queue(QUEUE).await.is_ok_and(|queue| queue.size() == 0))
        .await;
    server.shutdown().await;
}

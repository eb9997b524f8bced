//! Each loop alone, on a real Redis, without a scheduler that was started.

use queue_admin::Inspector;
use queue_core::RawTask;
use queue_core::clock::ManualClock;
use queue_redis::embedded::RedisServer;
use queue_redis::service::Service as _;
use queue_redis::service::stress::start_and_stop;

use super::*;
use crate::provider::ConfigProvider;

const START: i64 = 1_700_000_000;

async fn scheduler(
    build: impl FnOnce(SchedulerBuilder) -> SchedulerBuilder,
) -> (RedisServer, Arc<ManualClock>, Scheduler) {
    let server = RedisServer::start().await.unwrap();
    let clock = Arc::new(ManualClock::at_secs(START));
    let builder = Scheduler::builder(server.redis()).clock(clock.clone());
    let scheduler = build(builder).build();
    (server, clock, scheduler)
}

fn entry(name: &str) -> Entry {
    Entry::new("* * * * *", RawTask::new("job").queue("q")).name(name)
}

#[tokio::test]
async fn the_ticker_enqueues_what_is_due_once() {
    let (server, clock, scheduler) = scheduler(|builder| builder).await;
    scheduler.register(entry("e")).unwrap();
    let mut ticker = scheduler.inner.ticker.clone();
    scheduler.inner.heartbeater.beat().await.unwrap();
    assert!(!ticker.run_once().await.unwrap().is_zero(), "there is nothing to do yet");
    clock.advance(Duration::from_secs(60));
    for _ in 0..2 {
        ticker.run_once().await.unwrap();
        let info = Inspector::new(server.redis()).queue("q").await.unwrap();
        assert_eq!(info.pending, 1);
    }
}

#[tokio::test]
async fn the_heartbeater_tells_redis_what_is_carried_and_what_is_not_any_more() {
    let (server, _, scheduler) = scheduler(|builder| builder).await;
    let inspector = Inspector::new(server.redis());
    let mut heartbeater = scheduler.inner.heartbeater.clone();
    scheduler.register(entry("e")).unwrap();
    assert_eq!(heartbeater.run_once().await.unwrap(), Duration::from_secs(10));
    assert_eq!(inspector.cron_entries().await.unwrap().len(), 1);
    scheduler.unregister("e").unwrap();
    heartbeater.run_once().await.unwrap();
    assert!(inspector.cron_entries().await.unwrap().is_empty());
}

#[tokio::test]
async fn the_syncer_carries_what_its_provider_has_and_asks_again_after_an_error() {
    fn provider() -> impl ConfigProvider {
        let asked = std::sync::atomic::AtomicUsize::new(0);
        move || {
            let asked = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async move {
                match asked {
                    1 => Err::<_, BoxError>("no answer".into()),
                    0 => Ok(vec![entry("a"), entry("b")]),
                    _ => Ok(vec![entry("b"), entry("c")]),
                }
            }
        }
    }
    let interval = Duration::from_secs(9);
    let (_server, _, scheduler) = scheduler(|builder| builder.provider(provider(), interval)).await;
    let mut syncer = scheduler.inner.syncer.clone().unwrap();
    for expected in [["a", "b"], ["a", "b"], ["b", "c"]] {
        assert_eq!(syncer.run_once().await.unwrap(), interval);
        assert_eq!(scheduler.entries(), expected);
    }
}

#[tokio::test]
async fn every_loop_can_be_started_twice_and_stopped_at_any_time() {
    let provider = || async { Ok::<_, BoxError>(vec![entry("a")]) };
    let (_server, _, scheduler) = scheduler(|builder| builder.provider(provider, Duration::from_millis(1))).await;
    let Inner { ticker, heartbeater, syncer, .. } = &*scheduler.inner;
    start_and_stop(ticker.clone()).await;
    start_and_stop(heartbeater.clone()).await;
    start_and_stop(syncer.clone().unwrap()).await;
}

//! Schedulers, alone and as a fleet, on a clock that the test moves.

mod changes;
mod display;
mod faults;
mod fleet;
mod policies;
mod zones;

use std::sync::Arc;
use std::time::Duration;

use queue_core::RawTask;
use queue_core::clock::ManualClock;
use queue_redis::{Redis, broker::TickVerdict};
use queue_scheduler::{Entry, Scheduler, SchedulerBuilder};

use crate::support::{Events, Fixture, QUEUE, eventually};

/// 2023-11-14 22:00:00 UTC. The clock of Redis, which has a say, is past it.
const START: i64 = 1_699_999_200;
const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;

/// A Redis, a clock at [`START`], and what schedulers tell of ticks.
struct Stage {
    fixture: Fixture,
    clock: Arc<ManualClock>,
    told: Events<String>,
}

impl Stage {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::at_secs(START));
        Self { fixture: Fixture::start().await, clock, told: Events::default() }
    }

    /// A scheduler that tells `<entry>:<tick>: <what became of it>`.
    fn builder(&self) -> SchedulerBuilder {
        self.builder_on(self.fixture.redis())
    }

    fn builder_on(&self, redis: Redis) -> SchedulerBuilder {
        let told = self.told.clone();
        Scheduler::builder(redis)
            .clock(self.clock.clone())
            .poll_interval(Duration::from_millis(2))
            .heartbeat_interval(Duration::from_millis(20))
            .on_tick(move |tick| {
                let word = match &tick.outcome {
                    Ok(verdict) => format!("{verdict:?}"),
                    Err(_) => "failed".to_owned(),
                };
                told.tell(format!("{}+{}: {word}", tick.entry, tick.tick.timestamp() - START));
            })
    }

    /// A scheduler on connections of its own, as in another process.
    async fn start(&self, entries: impl IntoIterator<Item = Entry>) -> Scheduler {
        let scheduler = self.builder_on(self.fixture.another_redis()).build();
        for entry in entries {
            scheduler.register(entry).unwrap();
        }
        scheduler.start().await.unwrap();
        scheduler
    }

    /// Moves the clock to so many seconds after [`START`].
    fn at(&self, secs: i64) {
        self.clock.set_secs(START + secs);
    }

    /// Waits until all ticks of an entry up to so many seconds after [`START`] are dealt with.
    #[track_caller]
    fn upto(&self, entry: &str, secs: i64) -> impl Future<Output = ()> {
        let key = format!("asynq:{{q}}:x:cron:{entry}");
        let expected = Some(START + secs);
        eventually(format!("{entry} is dealt with up to +{secs}"), move || {
            let key = key.clone();
            async move { self.fixture.cmd::<Option<i64>>(&["HGET", &key, "upto"]).await >= expected }
        })
    }

    /// Moves the clock and waits until the tick at that time is dealt with.
    async fn tick(&self, entry: &str, secs: i64) {
        self.at(secs);
        self.upto(entry, secs).await;
    }

    /// The ids of the pending tasks, oldest first, as `<entry>+<seconds after START>`.
    async fn pending(&self) -> Vec<String> {
        let mut ids: Vec<String> = self.fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
        ids.reverse();
        ids.iter().map(|id| since_start(id)).collect()
    }
}

/// `e:1699999260` as `e+60`.
fn since_start(id: &str) -> String {
    let (entry, tick) = id.rsplit_once(':').unwrap();
    format!("{entry}+{}", tick.parse::<i64>().unwrap() - START)
}

fn entry(name: &str, spec: &str) -> Entry {
    Entry::new(spec, RawTask::new("job").queue(QUEUE)).name(name)
}

/// What the hook tells of a tick whose task was enqueued.
fn enqueued(entry: &str, secs: i64) -> String {
    format!("{entry}+{secs}: {:?}", TickVerdict::Enqueued)
}

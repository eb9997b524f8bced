use std::sync::Arc;
use std::time::Duration;

use queue_core::clock::ManualClock;
use queue_core::{RawTask, TaskOptions};
use queue_redis::{
    Redis,
    broker::{Broker, Overlap, Tick, Why},
};
use queue_scheduler::{Entry, Scheduler};

use crate::support::{Fixture, NOW_NS, QUEUE, eventually, register};

/// Long past by the clock of Redis, which has a say here.
const T: i64 = 1_700_000_000;

pub(super) async fn play(fixture: &Fixture, redis: &Redis) {
    let broker = Broker::new(redis.clone());
    redis.ping().await.unwrap();
    register(&broker, QUEUE, "@daily", "me", true, 0, T).await.unwrap();
    register(&broker, QUEUE, "@hourly", "me", true, 0, T + 60).await.unwrap();
    ticks(fixture, &broker).await;
    let mut connection = redis.pooled().await.unwrap();
    let shown = queue_core::wire::SchedulerEntry { id: "e".into(), ..Default::default() };
    let key = "asynq:schedulers:{me}";
    broker.write_scheduler_entries(&mut connection, key, &[shown], &[("e", QUEUE)], T).await.unwrap();
    broker.record_enqueue_event("e", "task", NOW_NS).await.unwrap();
    broker.clear_scheduler_entries(&mut connection, key).await.unwrap();
    broker.unlist_entry(QUEUE, "e").await.unwrap();
    broker.release_entry(QUEUE, "e", "me", Some(T)).await.unwrap();
    drop(connection);
    runs(fixture, redis).await;
}

/// Into each place that a task can go to, with a lock, and while the run before is unfinished.
async fn ticks(fixture: &Fixture, broker: &Broker) {
    let minute = Duration::from_secs(60);
    let task = || RawTask::new("job").queue(QUEUE);
    let kinds = [task().unique(minute), task().process_in(minute), task().group("g"), task().unique(minute)];
    for (kind, at) in kinds.into_iter().zip((T..).step_by(60)) {
        let task = fixture.compose(kind.with(TaskOptions::new().task_id(format!("e:{at}"))));
        for overlap in [Overlap::Skip, Overlap::Queue, Overlap::Allow] {
            let tick = Tick { entry: "e", why: Why::Tick, at, task: &task, overlap, max_runs: 0 };
            broker.enqueue_tick(tick, NOW_NS).await.unwrap();
        }
        let why = Why::LetGo { from: at };
        let tick = Tick { entry: "e", why, at, task: &task, overlap: Overlap::Queue, max_runs: 0 };
        broker.enqueue_tick(tick, NOW_NS).await.unwrap();
    }
}

async fn runs(fixture: &Fixture, redis: &Redis) {
    let clock = Arc::new(ManualClock::at_secs(T));
    let scheduler = Scheduler::builder(redis.clone()).clock(clock.clone()).build();
    let task = RawTask::new("job").queue("other");
    scheduler.register(Entry::new("@every 1m", task).name("minutely")).unwrap();
    scheduler.start().await.unwrap();
    clock.set_secs(T + 90);
    eventually("a tick has come", async || fixture.cmd::<usize>(&["LLEN", "asynq:{other}:pending"]).await > 0).await;
    scheduler.shutdown().await;
}

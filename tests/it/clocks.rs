//! Hosts whose clocks are wrong, or are set while a server runs. `queue-chaos` runs fleets of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use queue_admin::Inspector;
use queue_core::clock::ManualClock;
use queue_core::limit::{Limit, LimitKey};
use queue_core::{Clock, RawTask, SystemClock, TaskState};
use queue_metrics::QueueMetrics;
use queue_redis::Client;
use queue_scheduler::{Entry, Scheduler};
use queue_testing::Store;
use queue_worker::{Job, Router};

use crate::support::{Events, Fixture, eventually, job, with};

/// A clock that is so many seconds fast.
#[derive(Debug)]
struct Fast(i64);

impl Clock for Fast {
    fn now_ns(&self) -> i64 {
        SystemClock.now_ns() + self.0 * 1_000_000_000
    }
}

/// All others took the tasks of such a host for abandoned, or such a host theirs.
#[tokio::test]
async fn a_server_whose_clock_is_a_minute_off_goes_by_that_of_redis() {
    for wrong_by in [60, -60] {
        let fixture = Fixture::start().await;
        let hang = async |job: Job| job.cancellation().cancelled().await;
        let server = fixture.server(Router::new(()).route("job", hang)).clock(Arc::new(Fast(wrong_by)));
        let server = server.correct_clock(true).shutdown_timeout(std::time::Duration::ZERO).start().await.unwrap();
        fixture.enqueue([job("a")]).await;
        fixture.in_state("a", TaskState::Active).await;
        let lease: i64 = fixture.cmd(&["ZSCORE", "asynq:{q}:lease", "a"]).await;
        let lasts = lease - SystemClock.now_secs();
        assert!((0..=30).contains(&lasts), "the lease ends in {lasts} s, of a clock wrong by {wrong_by} s");
        server.shutdown().await;
    }
}

/// Less than what a server takes for a difference, but each wait for a rate was longer by as much.
#[tokio::test]
async fn a_rate_is_kept_by_a_server_whose_clock_is_slow_by_less_than_a_second() {
    let fixture = Fixture::start().await;
    let slow = Arc::new(Stepped::default());
    slow.0.store(-900, Ordering::SeqCst);
    fixture.broker.publish_queue("q").await.unwrap();
    let limit = Limit::new("rate", LimitKey::Type).rate(100, Duration::from_secs(1));
    fixture.inspector().set_limit("q", limit).await.unwrap();
    fixture.enqueue((0..300).map(|n| job(&n.to_string()))).await;
    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let server = fixture.server(Router::new(()).route("job", tell)).clock(slow).correct_clock(true);
    let server = server.start().await.unwrap();
    eventually("all have run, within three seconds and not 270", async || events.all().len() == 300).await;
    server.shutdown().await;
}

/// A clock that somebody sets, to so many milliseconds from what it was.
#[derive(Debug, Default)]
struct Stepped(AtomicI64);

impl Clock for Stepped {
    fn now_ns(&self) -> i64 {
        SystemClock.now_ns() + self.0.load(Ordering::SeqCst) * 1_000_000
    }
}

impl Stepped {
    fn step(&self, secs: i64) {
        self.0.fetch_add(secs * 1_000, Ordering::SeqCst);
    }
}

/// It did all of that for up to 30 s, until it compared its clock again.
#[tokio::test]
async fn a_server_whose_clock_is_set_forward_takes_nothing_deletes_nothing_and_starts_nothing_early() {
    let fixture = Fixture::start().await;
    let now = SystemClock.now_secs();
    // Somebody else works on one task, and went silent over another.
    for (id, expires) in [("healthy", now + 60), ("silent", now - 300)] {
        fixture.enqueue([job(id)]).await;
        fixture.broker.dequeue(&"q".into(), 1, &"other:1:x:1".into(), expires).await.unwrap();
    }
    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| {
        events.tell(job.id());
        if job.id() == "own" {
            job.cancellation().cancelled().await;
        }
        Bytes::from_static(b"result")
    });
    let clock = Arc::new(Stepped::default());
    let server = fixture.server(Router::new(()).route("job", tell)).clock(clock.clone()).correct_clock(true);
    let server = server.shutdown_timeout(Duration::ZERO).start().await.unwrap();
    fixture.enqueue([job("kept").retention(Duration::from_secs(1800))]).await;
    fixture.in_state("kept", TaskState::Completed).await;

    clock.step(3600);
    // What comes now makes each part of the server look: it takes, forwards, deletes and recovers.
    fixture
        .enqueue([
            job("own"),
            job("later").process_in(Duration::from_secs(1800)),
            job("soon").process_in(Duration::from_secs(1)).retention(Duration::from_secs(1)),
        ])
        .await;
    fixture.in_state("own", TaskState::Active).await;
    let lease: i64 = fixture.cmd(&["ZSCORE", "asynq:{q}:lease", "own"]).await;
    let lasts = lease - SystemClock.now_secs();
    assert!((0..=30).contains(&lasts), "the lease ends in {lasts} s");
    eventually("the silent worker's task is worked", async || events.all().contains(&"silent".to_owned())).await;
    eventually("what was due has run", async || events.all().contains(&"soon".to_owned())).await;
    fixture.gone("soon").await;
    fixture.in_state("healthy", TaskState::Active).await;
    let owner: String = fixture.cmd(&["HGET", "asynq:{q}:t:healthy", "owner"]).await;
    assert_eq!(owner, "other:1:x:1");
    fixture.in_state("kept", TaskState::Completed).await;
    fixture.in_state("later", TaskState::Scheduled).await;
    server.shutdown().await;
}

/// Its leases had ended an hour ago, and others took its tasks while it worked on them.
#[tokio::test]
async fn a_server_whose_clock_is_set_back_writes_leases_that_last() {
    let fixture = Fixture::start().await;
    let hang = async |job: Job| job.cancellation().cancelled().await;
    let clock = Arc::new(Stepped::default());
    let server = fixture.server(Router::new(()).route("job", hang)).clock(clock.clone()).correct_clock(true);
    let server = server.lease(Duration::from_secs(6)).shutdown_timeout(Duration::ZERO).start().await.unwrap();
    clock.step(-3600);
    fixture.enqueue([job("a")]).await;
    fixture.in_state("a", TaskState::Active).await;
    let lease: i64 = fixture.cmd(&["ZSCORE", "asynq:{q}:lease", "a"]).await;
    let lasts = lease - SystemClock.now_secs();
    assert!((4..=6).contains(&lasts), "the lease ends in {lasts} s");
    eventually("the lease is renewed", async || {
        fixture.cmd::<i64>(&["ZSCORE", "asynq:{q}:lease", "a"]).await >= lease + 2
    })
    .await;
    server.shutdown().await;
}

/// As after a failover to a node whose clock is another. All leases seem to have ended an hour ago then.
#[tokio::test]
async fn when_the_clock_of_redis_leaps_its_servers_renew_their_leases_before_anybody_judges_them() {
    let time = Arc::new(ManualClock::at_secs(SystemClock.now_secs()));
    let fixture = Fixture::in_process(Store::with_clock(time.clone())).await;
    let starts = Events::default();
    let hang = with(&starts, async |starts: Events, job: Job| {
        starts.tell(job.id());
        job.cancellation().cancelled().await;
    });
    let mut servers = Vec::new();
    for _ in 0..3 {
        let server = fixture.server(Router::new(()).route("job", hang.clone()));
        servers.push(server.shutdown_timeout(Duration::ZERO).start().await.unwrap());
    }
    fixture.enqueue(["a", "b", "c"].map(job)).await;
    starts.wait(3).await;
    time.set_secs(SystemClock.now_secs() + 3600);
    for id in ["a", "b", "c"] {
        eventually("the lease is renewed by the new time", async || {
            fixture.cmd::<i64>(&["ZSCORE", "asynq:{q}:lease", id]).await > SystemClock.now_secs() + 3600
        })
        .await;
    }
    // Those who recover tasks have looked by then.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(starts.count(), 3, "{:?}", starts.all());
    for server in servers {
        server.shutdown().await;
    }
}

/// A machine whose clock is right and that is never awake: what carries its time on stands still.
#[derive(Debug)]
struct Asleep(Arc<ManualClock>);

impl Clock for Asleep {
    fn now_ns(&self) -> i64 {
        self.0.now_ns()
    }

    fn steady_ns(&self) -> i64 {
        0
    }
}

/// A lease by the time of before would have ended already, and others would take the task at once.
#[tokio::test]
async fn a_machine_that_was_suspended_asks_for_the_time_before_it_takes_a_task() {
    let time = Arc::new(ManualClock::at_secs(SystemClock.now_secs()));
    let fixture = Fixture::in_process(Store::with_clock(time.clone())).await;
    let hang = async |job: Job| job.cancellation().cancelled().await;
    let server = fixture.server(Router::new(()).route("job", hang)).clock(Arc::new(Asleep(time.clone())));
    let server = server.correct_clock(true).shutdown_timeout(Duration::ZERO).start().await.unwrap();
    time.advance(Duration::from_secs(600));
    fixture.enqueue([job("a")]).await;
    fixture.in_state("a", TaskState::Active).await;
    let lease: i64 = fixture.cmd(&["ZSCORE", "asynq:{q}:lease", "a"]).await;
    assert_eq!(lease - time.now_secs(), 30);
    server.shutdown().await;
}

/// The wait of a new task seemed to be an hour, and that of one that was long due nothing.
#[tokio::test]
async fn an_inspector_and_an_exporter_of_a_machine_with_another_clock_judge_by_that_of_redis() {
    let time = Arc::new(ManualClock::at_secs(SystemClock.now_secs() - 3600));
    let fixture = Fixture::in_process(Store::with_clock(time.clone())).await;
    let client = Client::with_clock(fixture.redis(), time.clone());
    for task in [job("new"), job("later").process_in(Duration::from_secs(60))] {
        client.enqueue(task).await.unwrap();
    }
    fixture.run("SADD asynq:{q}:x:outcome-lists asynq:{q}:x:outcomes:w").await;
    fixture.run(&format!("RPUSH asynq:{{q}}:x:outcomes:w {}.0", time.now_secs())).await;
    time.advance(Duration::from_secs(90));
    let inspector = || Inspector::new(fixture.redis());
    let waited = |latency: Duration| assert!((89..100).contains(&latency.as_secs()), "{latency:?}");
    waited(inspector().queue("q").await.unwrap().latency);
    let today = inspector().history("q", 1).await.unwrap()[0].date;
    assert_eq!(today, time.now().date_naive());
    assert_eq!(
        inspector().task("q", "new").await.unwrap().next_process_at.unwrap().timestamp() / 10,
        time.now_secs() / 10
    );
    let text = QueueMetrics::new(inspector()).text().await;
    let figure = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}{{queue=\"q\"}} "))).unwrap();
        Duration::from_secs_f64(line.parse().unwrap())
    };
    waited(figure("asynq_queue_latency_seconds"));
    waited(figure("asynq_flow_oldest_outcome_seconds"));
    assert!((29..40).contains(&figure("asynq_queue_overdue_seconds").as_secs()), "{text}");
}

/// Set back, it was silent until its clock had caught up; set forward, its ticks were refused.
#[tokio::test]
async fn a_scheduler_whose_clock_is_set_goes_on_ticking() {
    let fixture = Fixture::start().await;
    let clock = Arc::new(Stepped::default());
    let scheduler = Scheduler::builder(fixture.redis()).corrected_clock(clock.clone()).build();
    scheduler.register(Entry::new("@every 1s", RawTask::new("job").queue("q")).name("e")).unwrap();
    scheduler.start().await.unwrap();
    let ticks = async |more: u64| {
        let before: u64 = fixture.cmd(&["LLEN", "asynq:{q}:pending"]).await;
        eventually("it ticks", async || fixture.cmd::<u64>(&["LLEN", "asynq:{q}:pending"]).await >= before + more)
            .await;
        let upto: i64 = fixture.cmd(&["HGET", "asynq:{q}:x:cron:e", "upto"]).await;
        assert!((-3..=1).contains(&(upto - SystemClock.now_secs())), "{upto}");
    };
    ticks(1).await;
    clock.step(-3600);
    ticks(3).await;
    clock.step(7200);
    ticks(3).await;
    scheduler.shutdown().await;
}

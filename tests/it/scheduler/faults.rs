//! What goes wrong: Redis, its scripts, processes, hooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use queue_admin::Page;
use queue_core::clock::ManualClock;
use queue_core::{Clock, RawTask, TaskState};
use queue_redis::{Redis, RedisOptions};
use queue_scheduler::{Entry, Missed, Scheduler};

use super::{HOUR, MINUTE, START, Stage, enqueued, entry};
use crate::support::{Events, Fixture, Hanging, Lines, Proxy, QUEUE, RedisProcess, eventually};

#[tokio::test]
async fn scripts_that_redis_forgets_are_loaded_again() {
    let stage = Stage::new().await;
    let (_a, _b) = (stage.start([entry("e", "* * * * *")]).await, stage.start([entry("e", "* * * * *")]).await);
    for tick in 1..=5 {
        stage.fixture.run("SCRIPT FLUSH").await;
        stage.tick("e", tick * MINUTE).await;
    }
    assert_eq!(stage.pending().await.len(), 5);
}

#[tokio::test]
async fn a_redis_that_hangs_for_some_seconds_loses_no_tick() {
    let stage = Stage::new().await;
    let _scheduler = stage.start([entry("e", "* * * * *")]).await;
    let hanging = Hanging::begin(stage.fixture.url()).await;
    stage.at(MINUTE);
    tokio::time::sleep(Duration::from_millis(500)).await;
    stage.at(MINUTE + 40);
    drop(hanging);
    stage.upto("e", MINUTE).await;
    assert_eq!(stage.pending().await, ["e+60"]);
}

/// The answer is lost, the deed is done: it is told once, by the one who did it.
#[tokio::test]
async fn a_tick_whose_answer_was_lost_is_not_enqueued_twice_and_is_in_the_history() {
    let stage = Stage::new().await;
    let proxy = Proxy::start(stage.fixture.socket()).await;
    let options = RedisOptions { response_timeout: Duration::from_millis(150), ..RedisOptions::default() };
    let redis = Redis::lazy(&proxy.url(), options).unwrap();
    let scheduler = stage.builder_on(redis).heartbeat_interval(Duration::from_secs(60)).build();
    scheduler.register(entry("e", "* * * * *")).unwrap();
    scheduler.start().await.unwrap();
    // After the first, the claim of a tick is all that is asked.
    stage.tick("e", MINUTE).await;
    stage.told.wait(1).await;
    proxy.lose_answers();
    stage.tick("e", 2 * MINUTE).await;
    let told = stage.told.wait(3).await;
    assert_eq!(told, [enqueued("e", MINUTE), "e+120: failed".to_owned(), enqueued("e", 2 * MINUTE)]);
    assert_eq!(stage.pending().await, ["e+60", "e+120"]);
    let inspector = stage.fixture.inspector();
    assert_eq!(inspector.enqueue_events("e", Page::default()).await.unwrap().len(), 2);
    stage.tick("e", 3 * MINUTE).await;
    assert_eq!(stage.told.wait(4).await[3], enqueued("e", 3 * MINUTE));
}

/// Both said that they had enqueued it.
#[tokio::test]
async fn a_tick_of_another_scheduler_is_not_told_of_by_one_whose_answer_was_lost() {
    let stage = Stage::new().await;
    let proxy = Proxy::start(stage.fixture.socket()).await;
    let options = RedisOptions { response_timeout: Duration::from_millis(150), ..RedisOptions::default() };
    let redis = Redis::lazy(&proxy.url(), options).unwrap();
    let clock = Arc::new(ManualClock::at_secs(START));
    let own = stage.builder_on(redis).heartbeat_interval(Duration::from_secs(HOUR as u64)).build();
    let other = stage.builder_on(stage.fixture.another_redis()).clock(clock.clone()).build();
    for scheduler in [&own, &other] {
        scheduler.register(entry("e", "* * * * *")).unwrap();
        scheduler.start().await.unwrap();
    }
    clock.set_secs(START + MINUTE + 1);
    stage.told.wait(1).await;
    proxy.lose_answers();
    stage.at(MINUTE);
    stage.told.wait(2).await;
    stage.at(2 * MINUTE);
    let told = stage.told.wait(3).await;
    assert_eq!(told, [enqueued("e", MINUTE), "e+60: failed".to_owned(), enqueued("e", 2 * MINUTE)]);
}

#[tokio::test]
async fn an_entry_that_redis_refuses_leaves_the_others_alone() {
    let stage = Stage::new().await;
    let other = Entry::new("* * * * *", RawTask::new("job").queue("other")).name("bad");
    stage.fixture.run("SET asynq:{other}:pending text").await;
    let _scheduler = stage.start([other, entry("e", "* * * * *")]).await;
    stage.tick("e", MINUTE).await;
    stage.tick("e", 2 * MINUTE).await;
    assert_eq!(stage.pending().await, ["e+60", "e+120"]);
    eventually("the failure is told, once", async || {
        stage.told.all().iter().filter(|told| *told == "bad+60: failed").count() == 1
    })
    .await;
    stage.fixture.run("DEL asynq:{other}:pending").await;
    eventually("it works again", async || stage.told.all().contains(&"bad+120: Enqueued".to_owned())).await;
}

#[tokio::test]
async fn a_hook_that_panics_does_not_stop_the_scheduler() {
    let stage = Stage::new().await;
    let scheduler = stage.builder().on_tick(|_| panic!("in the hook of a test")).build();
    scheduler.register(entry("e", "* * * * *")).unwrap();
    scheduler.start().await.unwrap();
    stage.tick("e", MINUTE).await;
    stage.tick("e", 2 * MINUTE).await;
    assert_eq!(stage.pending().await, ["e+60", "e+120"]);
    tokio::time::timeout(Duration::from_secs(20), scheduler.shutdown()).await.unwrap();
}

#[tokio::test]
async fn a_claim_lost_in_a_failover_is_not_repeated_by_those_who_know_of_it() {
    let stage = Stage::new().await;
    let (_a, _b) = (stage.start([entry("e", "* * * * *")]).await, stage.start([entry("e", "* * * * *")]).await);
    stage.tick("e", MINUTE).await;
    stage.told.wait(1).await;
    // Let the other one ask too, and be refused.
    tokio::time::sleep(Duration::from_millis(200)).await;
    // The replica that took over has never heard of it: neither of the claim nor of the task.
    stage.fixture.run("FLUSHALL").await;
    stage.upto("e", MINUTE).await;
    stage.tick("e", 2 * MINUTE).await;
    assert_eq!(stage.pending().await, ["e+120"]);
}

/// Nobody was told.
#[tokio::test]
async fn ticks_that_redis_has_lost_are_told_of_once() {
    let stage = Stage::new().await;
    let (lines, _guard) = Lines::collect();
    let _scheduler = stage.start([entry("e", "* * * * *")]).await;
    for count in 1..=3 {
        stage.tick("e", count as i64 * MINUTE).await;
        stage.told.wait(count).await;
    }
    stage.fixture.run(&format!("HSET asynq:{{q}}:x:cron:e upto {}", START + MINUTE)).await;
    let told = || lines.all().into_iter().filter(|line| line.contains("Redis has lost ticks")).collect::<Vec<_>>();
    eventually("it is told", async || !told().is_empty()).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(told().len(), 1, "{:?}", told());
    assert!(told()[0].contains("22:01:00") && told()[0].contains("22:03:00"), "{:?}", told());
    for minute in 4..=5 {
        stage.tick("e", minute * MINUTE).await;
        stage.told.wait(minute as usize).await;
    }
    stage.fixture.run("DEL asynq:{q}:x:cron:e").await;
    let forgotten = || lines.all().into_iter().filter(|line| line.contains("Redis has forgotten")).collect::<Vec<_>>();
    eventually("that all is lost is told", async || !forgotten().is_empty()).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(forgotten().len() == 1 && forgotten()[0].contains("22:05:00"), "{:?}", forgotten());
}

/// Whoever was first to ask for a tick hid from the next heartbeat that some were lost.
#[tokio::test]
async fn ticks_that_redis_has_lost_are_told_of_when_the_next_tick_comes_before_a_heartbeat() {
    let stage = Stage::new().await;
    let (lines, _guard) = Lines::collect();
    let scheduler = stage.builder().heartbeat_interval(Duration::from_secs(HOUR as u64)).build();
    scheduler.register(entry("e", "* * * * *")).unwrap();
    scheduler.start().await.unwrap();
    stage.tick("e", 3 * MINUTE).await;
    stage.told.wait(1).await;
    stage.fixture.run(&format!("HSET asynq:{{q}}:x:cron:e upto {}", START + MINUTE)).await;
    for minute in 4..=5 {
        stage.tick("e", minute * MINUTE).await;
        stage.told.wait(minute as usize - 2).await;
    }
    stage.fixture.run("DEL asynq:{q}:x:cron:e").await;
    stage.tick("e", 6 * MINUTE).await;
    stage.told.wait(4).await;
    let told = |text| lines.all().into_iter().filter(|line| line.contains(text)).collect::<Vec<_>>();
    let (lost, forgotten) = (told("Redis has lost ticks"), told("Redis has forgotten"));
    assert!(lost.len() == 1 && lost[0].contains("22:01:00") && lost[0].contains("22:03:00"), "{lost:?}");
    assert!(forgotten.len() == 1 && forgotten[0].contains("22:05:00"), "{forgotten:?}");
    scheduler.shutdown().await;
}

/// Redis went on with the old spec, and `cron run` with the old task, as long as the scheduler ran.
#[tokio::test]
async fn a_change_of_an_entry_that_a_failover_loses_is_told_again() {
    let stage = Stage::new().await;
    let with = |payload: &str, spec: &str| {
        Entry::new(spec, RawTask::new("job").queue(QUEUE).payload(payload.to_owned())).name("e")
    };
    let key = "asynq:{q}:x:cron:e";
    let spec = async || stage.fixture.cmd::<String>(&["HGET", key, "spec"]).await;
    let (before, after) = ("CRON_TZ=UTC @hourly", "CRON_TZ=UTC * * * * *");
    let a = stage.start([with("old", "@hourly")]).await;
    let b = stage.start([with("old", "@hourly")]).await;
    let old: Vec<u8> = stage.fixture.cmd(&["DUMP", key]).await;
    stage.at(10 * MINUTE);
    a.update(with("new", "* * * * *")).unwrap();
    eventually("Redis knows the new spec", async || spec().await == after).await;
    // The replica that took over has not heard of it. One scheduler has the new file, the other one the old one still.
    let restore = [b"RESTORE", key.as_bytes(), b"0", &old, b"REPLACE"];
    stage.fixture.cmd::<()>(&restore).await;
    eventually("it is told again", async || spec().await == after).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(spec().await, after, "the other one does not bring back what was before");
    stage.fixture.inspector().run_cron("e", false).await.unwrap();
    let tasks = stage.fixture.inspector().tasks(QUEUE, TaskState::Pending, Page::default()).await.unwrap();
    assert!(!tasks.is_empty() && tasks.iter().all(|task| task.payload == "new"), "{tasks:?}");
    // Who comes later finds no ticks of the new spec in the time before it.
    a.shutdown().await;
    b.shutdown().await;
    let known: i64 = stage.fixture.cmd(&["HGET", key, "upto"]).await;
    assert!(known >= START + 10 * MINUTE - 1, "{}", known - START);
    let _late = stage.start([with("new", "@hourly")]).await;
    assert_eq!(spec().await, before, "whoever takes it up later still changes it");
}

#[tokio::test]
async fn a_scheduler_without_redis_says_so_and_ends_when_told() {
    let fixture = Fixture::start().await;
    let url = fixture.url().to_owned();
    let scheduler = Scheduler::new(fixture.redis());
    scheduler.register(entry("e", "@every 1s")).unwrap();
    scheduler.start().await.unwrap();
    drop(fixture);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    tokio::time::timeout(Duration::from_secs(25), scheduler.shutdown()).await.unwrap();
    let lazy = Redis::lazy(&url, RedisOptions::default()).unwrap();
    assert!(Scheduler::new(lazy).start().await.is_err());
}

/// The ticks of `e` that are pending, as Unix seconds.
async fn ticks(url: &str) -> Vec<i64> {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut range = redis::cmd("LRANGE");
    range.arg("asynq:{q}:pending").arg(0).arg(-1);
    let mut ids: Vec<String> = range.query_async(&mut connection).await.unwrap();
    ids.reverse();
    ids.iter().map(|id| id.strip_prefix("e:").unwrap().parse().unwrap()).collect()
}

#[tokio::test]
async fn ticks_go_on_without_gap_or_double_when_redis_is_killed_and_comes_back() {
    let mut process = RedisProcess::start(&[]).await;
    let mut fleet = Vec::new();
    for _ in 0..3 {
        let scheduler = Scheduler::new(Redis::connect(&process.url()).await.unwrap());
        scheduler.register(entry("e", "@every 1s").missed(Missed::All(100))).unwrap();
        scheduler.start().await.unwrap();
        fleet.push(scheduler);
    }
    let url = process.url();
    eventually("ticks come", async || ticks(&url).await.len() >= 2).await;
    process.kill();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    process.start_again().await;
    let before = ticks(&url).await.len();
    eventually("ticks come again", async || ticks(&url).await.len() >= before + 4).await;
    for scheduler in &fleet {
        scheduler.shutdown().await;
    }
    let ticks = ticks(&url).await;
    assert!(ticks.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ticks:?}");
}

#[tokio::test]
async fn ticks_go_on_without_gap_or_double_when_a_scheduler_is_killed() {
    let fixture = Fixture::start().await;
    let mut processes: Vec<_> = (0..3).map(|_| peer(fixture.url())).collect();
    eventually("ticks come", async || ticks(fixture.url()).await.len() >= 2).await;
    for process in processes.iter_mut().take(2) {
        process.kill().unwrap();
        process.wait().unwrap();
        let before = ticks(fixture.url()).await.len();
        eventually("ticks come", async || ticks(fixture.url()).await.len() >= before + 2).await;
    }
    let last = &mut processes[2];
    assert!(std::process::Command::new("kill").args(["-TERM", &last.id().to_string()]).status().unwrap().success());
    assert!(last.wait().unwrap().success());
    let ticks = ticks(fixture.url()).await;
    assert!(ticks.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ticks:?}");
    let lists: Vec<String> = fixture.cmd(&["KEYS", "asynq:schedulers:*"]).await;
    assert!(lists.len() <= 2, "what the killed ones have listed expires, what the last one has is gone: {lists:?}");
}

/// A scheduler in a process of its own; killed with the test.
struct Peer(std::process::Child);

impl std::ops::Deref for Peer {
    type Target = std::process::Child;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl std::ops::DerefMut for Peer {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn peer(url: &str) -> Peer {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_interop-peer"));
    command.args(["scheduler", "--redis", url, "--entry", "e=@every 1s=job=q"]);
    Peer(command.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap())
}

/// The entries were never asked for again.
#[tokio::test]
async fn a_provider_that_panics_is_asked_again() {
    let stage = Stage::new().await;
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let provider = move || {
        let asked = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            assert_ne!(asked, 1, "in the provider of a test");
            let names = if asked == 0 { &["a"][..] } else { &["a", "b"] };
            Ok::<_, queue_scheduler::BoxError>(names.iter().map(|name| entry(name, "* * * * *")).collect())
        }
    };
    let problems = <Events>::default();
    let told = problems.clone();
    let scheduler = stage.builder().provider(provider, Duration::from_millis(20));
    let scheduler = scheduler.on_problem(move |problem| told.tell(problem.to_string())).build();
    scheduler.start().await.unwrap();
    assert!(problems.wait(1).await[0].contains("in the provider of a test"));
    eventually("the entry that came later is there", async || {
        stage.fixture.inspector().cron_entries().await.unwrap().len() == 2
    })
    .await;
    scheduler.shutdown().await;
}

/// A clock that panics while it is told to.
#[derive(Debug)]
struct BrokenAtTimes {
    clock: Arc<ManualClock>,
    is_broken: AtomicBool,
    panics: AtomicUsize,
}

impl Clock for BrokenAtTimes {
    fn now_ns(&self) -> i64 {
        if self.is_broken.load(Ordering::SeqCst) {
            self.panics.fetch_add(1, Ordering::SeqCst);
            panic!("in the clock of a test");
        }
        self.clock.now_ns()
    }
}

/// The ticker ended with its first panic, and the heartbeat went on as if all were well.
#[tokio::test]
async fn ticks_come_again_after_a_panic_of_the_ticker() {
    let stage = Stage::new().await;
    let clock = Arc::new(BrokenAtTimes {
        clock: stage.clock.clone(),
        is_broken: AtomicBool::new(false),
        panics: AtomicUsize::new(0),
    });
    // The heartbeat does not look at the clock while it is broken.
    let scheduler = stage.builder().clock(clock.clone()).heartbeat_interval(Duration::from_secs(60)).build();
    scheduler.register(entry("e", "* * * * *")).unwrap();
    scheduler.start().await.unwrap();
    stage.tick("e", MINUTE).await;
    clock.is_broken.store(true, Ordering::SeqCst);
    eventually("the ticker panics", async || clock.panics.load(Ordering::SeqCst) > 0).await;
    clock.is_broken.store(false, Ordering::SeqCst);
    stage.tick("e", 2 * MINUTE).await;
    assert_eq!(stage.pending().await, ["e+60", "e+120"]);
    tokio::time::timeout(Duration::from_secs(20), scheduler.shutdown()).await.unwrap();
}

/// Neither needs to wait for the other, and nothing is left on the list.
#[tokio::test]
async fn a_scheduler_may_be_stopped_first_at_once_and_twice() {
    let stage = Stage::new().await;
    let never = stage.builder().build();
    never.shutdown().await;
    assert!(never.start().await.is_err(), "it was stopped");
    let scheduler = stage.builder().build();
    scheduler.register(entry("e", "* * * * *")).unwrap();
    scheduler.start().await.unwrap();
    assert!(scheduler.start().await.is_err(), "it was started");
    tokio::join!(scheduler.shutdown(), scheduler.shutdown());
    scheduler.shutdown().await;
    let lists: Vec<String> = stage.fixture.cmd(&["KEYS", "asynq:schedulers:*"]).await;
    assert!(lists.is_empty(), "{lists:?}");
}

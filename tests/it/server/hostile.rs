//! Users' code that panics where nobody expects it: it costs its own task an attempt at the most.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use queue_core::{Clock, RawTask, RetryPolicy, SystemClock, TaskState};
use queue_worker::{Event, Failure, Group, Job, Router};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, SubscriberExt as _};

use crate::support::{Events, Fixture, GROUP, Lines, QUEUE, eventually, job, with};

fn of(task_type: &str) -> RawTask {
    RawTask { task_type: task_type.to_owned(), ..job(task_type) }
}

/// Panics the first times.
fn panic_at_first(times: usize) -> impl Fn() + Send + Sync + Clone + 'static {
    let called = Arc::new(AtomicUsize::new(0));
    move || assert!(called.fetch_add(1, Ordering::Relaxed) >= times, "one bad label")
}

/// All reports that were under way were lost with the observer, and their tasks stayed active for the life of the server.
#[tokio::test]
async fn an_observer_that_panics_costs_no_report_and_no_slot() {
    let fixture = Fixture::start().await;
    fixture.enqueue((0..300).map(|n| job(&n.to_string()))).await;
    let router = Router::new(()).route("job", async |_: Job| tokio::task::yield_now().await);
    let (reported, all) = (panic_at_first(4), panic_at_first(usize::MAX));
    let server = fixture.server(router).concurrency(20);
    let server = server.observe(move |event| {
        if matches!(event, Event::Reported { .. }) {
            reported()
        }
    });
    let server = server.observe(move |_| all()).start().await.unwrap();
    eventually("all tasks are done", async || fixture.count("processed").await == 300).await;
    eventually("none is in hand", async || server.active() == 0).await;
    server.shutdown().await;
    let left = fixture.keyspace().await;
    assert!(left.get("{q}:active").is_none() && left.paths_with("lease").is_empty(), "{left}");
}

#[tokio::test]
async fn an_observer_of_calls_that_panics_hinders_no_call() {
    let fixture = Fixture::start().await;
    let panics = panic_at_first(usize::MAX);
    fixture.redis().on_call(move |_| panics());
    fixture.enqueue([job("a"), job("b")]).await;
    let server = fixture.server(Router::new(()).route("job", async |_: Job| {})).start().await.unwrap();
    eventually("both tasks are done", async || fixture.count("processed").await == 2).await;
    server.shutdown().await;
    assert!(fixture.keyspace().await.get("{q}:active").is_none());
}

#[derive(Debug)]
struct Panicking(AtomicUsize);

impl Clock for Panicking {
    fn now_ns(&self) -> i64 {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) % 3 != 1, "the clock is broken");
        SystemClock.now_ns()
    }
}

#[tokio::test]
async fn a_clock_a_span_maker_a_policy_and_hooks_that_panic_hinder_no_task() {
    let fixture = Fixture::start().await;
    fixture.enqueue((0..20).map(|n| job(&n.to_string()))).await;
    fixture.enqueue([of("fails")]).await;
    let router = Router::new(())
        .route("job", async |_: Job| {})
        .route("fails", async |_: Job| Err::<(), Failure>("boom".into()));
    let server = fixture
        .server(router)
        .clock(Arc::new(Panicking(AtomicUsize::new(0))))
        .span(|_| panic!("no span"))
        .retry_policy(RetryPolicy::custom(|_, _| panic!("no policy")))
        .on_error(|_, _| panic!("no hook"))
        .health_check(Duration::from_millis(5), |_| panic!("no health"));
    let server = server.start().await.unwrap();
    let failed = fixture.in_state("fails", TaskState::Retry).await;
    assert_eq!((failed.retried, failed.last_error.as_deref()), (1, Some("boom")));
    eventually("all tasks are done", async || fixture.count("processed").await == 21).await;
    eventually("none is in hand", async || server.active() == 0).await;
    server.shutdown().await;
}

/// An error that panics when it is looked at, or when it is dropped.
#[derive(Debug)]
struct Unspeakable {
    mute: bool,
}

impl fmt::Display for Unspeakable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        assert!(!self.mute, "no words");
        f.write_str("boom")
    }
}

impl std::error::Error for Unspeakable {}

impl Drop for Unspeakable {
    fn drop(&mut self) {
        assert!(self.mute, "no end");
    }
}

#[tokio::test]
async fn an_error_that_panics_is_a_failure_with_the_text_of_the_panic() {
    let fixture = Fixture::start().await;
    fixture.enqueue(["mute", "endless"].map(of)).await;
    let router = Router::new(())
        .route("mute", async |_: Job| Err::<(), _>(Unspeakable { mute: true }))
        .route("endless", async |_: Job| Err::<(), _>(Unspeakable { mute: false }));
    let server = fixture.server(router).start().await.unwrap();
    for (id, text) in [("mute", "no words"), ("endless", "no end")] {
        let error = fixture.in_state(id, TaskState::Retry).await.last_error.unwrap();
        assert!(error.starts_with("panic [") && error.ends_with(text), "{error}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn an_error_of_an_aggregator_that_panics_puts_the_tasks_back() {
    // Its text is asked for only where somebody collects log lines.
    let (_lines, _collecting) = Lines::collect();
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a").group(GROUP)]).await;
    let tried = <Events>::default();
    let told = tried.clone();
    let aggregator = move |_: Group, _: Vec<RawTask>| {
        told.tell("tried");
        async { Err::<RawTask, _>(Unspeakable { mute: true }) }
    };
    let server = fixture.server(Router::new(()).aggregate(aggregator)).group_max_size(1).start().await.unwrap();
    tried.wait(1).await;
    fixture.in_state("a", TaskState::Aggregating).await;
    eventually("nothing is staged", async || fixture.broker.aggregation_sets(QUEUE).await.unwrap().is_empty()).await;
    server.shutdown().await;
}

/// Rust asks the environment once, so each case runs in a process of its own: the test starts itself again.
#[tokio::test]
async fn backtraces_are_kept_of_panics_where_the_process_asks_for_them_and_of_errors_that_have_one() {
    const CASE: &str = "BACKTRACE_TEST_CASE";
    let Ok(case) = std::env::var(CASE) else {
        let name = std::thread::current().name().unwrap().to_owned();
        for case in ["0", "1"] {
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", &name]).env(CASE, case).env("RUST_LIB_BACKTRACE", case);
            let output = again.output().unwrap();
            assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stdout));
        }
        return;
    };
    #[inline(never)]
    fn where_it_panics() {
        panic!("no end");
    }
    let fixture = Fixture::start().await;
    fixture.enqueue(["panics", "traced"].map(of)).await;
    let router = Router::new(())
        .route("panics", async |_: Job| where_it_panics())
        .route("traced", async |_: Job| Err::<(), _>(Failure::from("refused").traced("0: dial\n1: main")));
    let server = fixture.server(router).start().await.unwrap();
    let backtrace = async |id: &str, error: &str| {
        assert!(fixture.in_state(id, TaskState::Retry).await.last_error.unwrap().ends_with(error));
        fixture.inspector().attempts(QUEUE, id).await.unwrap().1.pop().unwrap().backtrace
    };
    assert_eq!(backtrace("traced", "refused").await.as_deref(), Some("0: dial\n1: main"));
    match backtrace("panics", "no end").await {
        Some(backtrace) => {
            let first: Vec<_> = backtrace.lines().take(6).collect();
            assert!(first[0].contains("rust_begin_unwind"), "{first:?}");
            assert!(first.iter().any(|line| line.contains("where_it_panics")), "{first:?}");
            assert!(case == "1" && (1_000..=4_096).contains(&backtrace.len()), "{case}: {}", backtrace.len());
        }
        None => assert_eq!(case, "0"),
    }
    server.shutdown().await;
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "in drop");
    }
}

/// Nobody reported on the task, and its next attempt counted as after a crash.
#[tokio::test]
async fn a_panic_in_the_drop_of_a_handler_that_is_stopped_is_its_failure() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let hang = with(&events, async |events: Events, job: Job| {
        let _bomb = Bomb;
        events.tell(job.id());
        std::future::pending::<()>().await;
    });
    let router = Router::new(()).route("late", hang.clone()).route("canceled", hang.clone()).route("aborted", hang);
    fixture.enqueue([of("late").timeout(Duration::from_secs(1)), of("canceled"), of("aborted")]).await;
    let server = fixture.server(router).shutdown_timeout(Duration::ZERO).start().await.unwrap();
    events.wait(3).await;
    fixture.broker.cancel("canceled").await.unwrap();
    for id in ["late", "canceled"] {
        let failed = fixture.in_state(id, TaskState::Retry).await;
        let error = failed.last_error.unwrap();
        assert!(error.starts_with("panic [") && error.ends_with("in drop"), "{error}");
        assert_eq!(failed.retried, 1);
    }
    server.shutdown().await;
    let aborted = fixture.inspector().task(QUEUE, "aborted").await.unwrap();
    assert_eq!((aborted.state, aborted.retried), (TaskState::Pending, 0));
}

/// A subscriber that panics at this line, over and over while `armed`.
struct PanicsAt {
    line: &'static str,
    panicked: Events,
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for PanicsAt {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        struct Message(String);
        impl Visit for Message {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        if message.0.contains(self.line) {
            self.panicked.tell("panicked");
            panic!("the subscriber is broken");
        }
    }
}

/// Whatever panics while a report is under way, the report is sent again.
#[tokio::test]
async fn a_report_outlives_a_panic_of_the_loop_that_writes_it() {
    let fixture = Fixture::start().await;
    let panicked = Events::default();
    let layer = PanicsAt { line: "outcomes of the queue's tasks are refused", panicked: panicked.clone() };
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    fixture.run("SET asynq:{q}:retry stray").await;
    fixture.enqueue(["fails", "fails2"].map(of)).await;
    let fail = async |_: Job| Err::<(), Failure>("boom".into());
    let server = fixture.server(Router::new(()).route("fails", fail)).concurrency(1).start().await.unwrap();
    panicked.wait(2).await;
    fixture.run("DEL asynq:{q}:retry").await;
    for id in ["fails", "fails2"] {
        assert_eq!(fixture.in_state(id, TaskState::Retry).await.retried, 1);
    }
    eventually("none is in hand", async || server.active() == 0).await;
    server.shutdown().await;
}

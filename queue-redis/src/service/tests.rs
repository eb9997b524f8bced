use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Counts its runs, and what is dropped half-way; panics and fails as it is told.
#[derive(Clone, Default)]
struct Probe {
    built: Arc<AtomicUsize>,
    runs: Arc<AtomicUsize>,
    panics_at: usize,
    fails_at: usize,
}

impl Service for Probe {
    const NAME: &'static str = "probe";
    const WORK: &'static str = "probing";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        assert_ne!(run, self.panics_at, "in the loop of a test");
        if run == self.fails_at {
            return Err(Error::QueueNotFound("q".to_owned()));
        }
        tokio::task::yield_now().await;
        Ok(Duration::from_millis(1))
    }
}

fn start(services: &Services, stop: &CancellationToken, probe: &Probe) {
    let probe = probe.clone();
    services.start(stop, move || {
        probe.built.fetch_add(1, Ordering::SeqCst);
        probe.clone()
    });
}

async fn after(runs: usize, probe: &Probe) {
    while probe.runs.load(Ordering::SeqCst) < runs {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn services() -> Services {
    Services::new(Outage::new(|_| {}))
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_panics_is_built_again_and_one_that_fails_goes_on() {
    crate::log_to_stderr(false);
    let (services, stop) = (services(), CancellationToken::new());
    let probe = Probe { panics_at: 2, fails_at: 4, ..Probe::default() };
    start(&services, &stop, &probe);
    after(6, &probe).await;
    assert_eq!(probe.built.load(Ordering::SeqCst), 2);
    stop.cancel();
    services.ended().await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_is_started_twice_runs_once() {
    let (services, stop) = (services(), CancellationToken::new());
    let probe = Probe::default();
    start(&services, &stop, &probe);
    start(&services, &stop, &probe);
    after(3, &probe).await;
    assert_eq!(probe.built.load(Ordering::SeqCst), 1);
    stop.cancel();
    services.ended().await;
    services.ended().await;
}

/// Waits for a signal in the middle of its run.
struct Slow<const FINISHES: bool> {
    begun: Arc<tokio::sync::Notify>,
    go_on: Arc<tokio::sync::Notify>,
    finished: Arc<AtomicUsize>,
}

impl<const FINISHES: bool> Service for Slow<FINISHES> {
    const NAME: &'static str = "slow";
    const WORK: &'static str = "taking its time";
    const FINISHES: bool = FINISHES;

    async fn run_once(&mut self) -> Result<Duration, Error> {
        self.begun.notify_one();
        self.go_on.notified().await;
        self.finished.fetch_add(1, Ordering::SeqCst);
        Ok(Duration::ZERO)
    }
}

async fn finished_when_stopped_in_the_middle<const FINISHES: bool>() -> usize {
    let (services, stop) = (services(), CancellationToken::new());
    let (begun, go_on, finished) = <(Arc<tokio::sync::Notify>, Arc<tokio::sync::Notify>, Arc<AtomicUsize>)>::default();
    let parts = (begun.clone(), go_on.clone(), finished.clone());
    services.start(&stop, move || {
        let (begun, go_on, finished) = parts.clone();
        Slow::<FINISHES> { begun, go_on, finished }
    });
    begun.notified().await;
    stop.cancel();
    tokio::task::yield_now().await;
    go_on.notify_one();
    services.ended().await;
    finished.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_run_is_dropped_by_a_stop_unless_the_loop_finishes_its_runs() {
    assert_eq!(finished_when_stopped_in_the_middle::<false>().await, 0);
    assert_eq!(finished_when_stopped_in_the_middle::<true>().await, 1);
}

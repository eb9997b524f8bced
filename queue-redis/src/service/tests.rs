use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Counts its runs, and what is dropped half-way; panics and fails as it is told.
#[derive(Clone, Default)]
struct Probe {
    /// Runs of this clone.
    own_runs: usize,
    runs: Arc<AtomicUsize>,
    /// The most runs of one clone.
    most: Arc<AtomicUsize>,
    panics_at: usize,
    fails_at: usize,
}

impl Service for Probe {
    const NAME: &'static str = "probe";
    const WORK: &'static str = "probing";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        self.own_runs += 1;
        self.most.fetch_max(self.own_runs, Ordering::SeqCst);
        assert_ne!(run, self.panics_at, "in the loop of a test");
        if run == self.fails_at {
            return Err(Error::InvalidUrl { reason: "q".to_owned() });
        }
        tokio::task::yield_now().await;
        Ok(Duration::from_millis(1))
    }
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
async fn a_loop_that_panics_begins_anew_and_one_that_fails_goes_on() {
    crate::log_to_stderr(false);
    let (services, stop) = (services(), CancellationToken::new());
    let probe = Probe { panics_at: 2, fails_at: 4, ..Probe::default() };
    services.start(&stop, probe.clone());
    after(6, &probe).await;
    stop.cancel();
    services.ended().await;
    let (runs, most) = (probe.runs.load(Ordering::SeqCst), probe.most.load(Ordering::SeqCst));
    assert_eq!(most, runs - 2, "after the panic it began anew, after the error it did not");
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_is_started_twice_runs_once() {
    let (services, stop) = (services(), CancellationToken::new());
    let probe = Probe::default();
    services.start(&stop, probe.clone());
    services.start(&stop, probe.clone());
    after(3, &probe).await;
    stop.cancel();
    services.ended().await;
    services.ended().await;
    assert_eq!(probe.runs.load(Ordering::SeqCst), probe.most.load(Ordering::SeqCst));
}

/// Waits for a signal in the middle of its run.
#[derive(Clone, Default)]
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
    let slow = Slow::<FINISHES>::default();
    services.start(&stop, slow.clone());
    slow.begun.notified().await;
    stop.cancel();
    tokio::task::yield_now().await;
    slow.go_on.notify_one();
    services.ended().await;
    slow.finished.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_run_is_dropped_by_a_stop_unless_the_loop_finishes_its_runs() {
    assert_eq!(finished_when_stopped_in_the_middle::<false>().await, 0);
    assert_eq!(finished_when_stopped_in_the_middle::<true>().await, 1);
}

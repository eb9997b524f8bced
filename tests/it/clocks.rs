//! Hosts whose clocks are wrong. `queue-chaos` runs fleets of them.

use std::sync::Arc;

use queue_core::{Clock, State, SystemClock};
use queue_worker::{Job, Router};

use crate::support::{Fixture, job};

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
        fixture.in_state("a", State::Active).await;
        let lease: i64 = fixture.cmd(&["ZSCORE", "asynq:{q}:lease", "a"]).await;
        let lasts = lease - SystemClock.now_secs();
        assert!((0..=30).contains(&lasts), "the lease ends in {lasts} s, of a clock wrong by {wrong_by} s");
        server.shutdown().await;
    }
}

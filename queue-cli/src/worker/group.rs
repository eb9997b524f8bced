//! The process group of a running program.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpgid};
use tokio::process::Child;
use tokio::time::Instant;
use tracing::warn;

use super::watchdog::Watchdog;

/// How often a group that was told to end is looked at. The number of a process group can only be given to
/// somebody else after it has vanished and all other numbers (32,768 at the least) were used: not within
/// this time, so what is seen alive is what was told to end.
const LOOK: Duration = Duration::from_millis(5);

/// How long killed processes may take to vanish. Processes stuck in the kernel take longer; they are not
/// waited for.
const VANISHING: Duration = Duration::from_secs(5);

/// The processes of one task: a program and everything it started that did not move to a group of its own.
///
/// Dropping it kills what is left: that is the net below [`end`](Self::end) for a handler that panics or
/// whose future is dropped. The [`Watchdog`] is the net below that.
#[derive(Debug)]
pub(super) struct Group {
    id: Pid,
    ended: bool,
    watchdog: Arc<Watchdog>,
}

impl Group {
    /// The group of a program that was started with a group of its own.
    pub(super) fn of(child: &Child, watchdog: Arc<Watchdog>) -> Option<Self> {
        let id = i32::try_from(child.id()?).ok().and_then(Pid::from_raw)?;
        watchdog.add(id);
        Some(Self { id, ended: false, watchdog })
    }

    /// Ends all processes of the group, the program included: TERM, and KILL for what is left after the
    /// grace time. Returns when they are gone.
    pub(super) async fn end(&mut self, child: &mut Child, grace: Duration) {
        if self.is_gone(child) {
            self.ended = true;
            return;
        }
        let _ = kill_process_group(self.id, Signal::TERM);
        // A stopped process would notice TERM only when somebody continues it.
        let _ = kill_process_group(self.id, Signal::CONT);
        if !self.vanishes_within(grace, child).await {
            let _ = kill_process_group(self.id, Signal::KILL);
            if !self.vanishes_within(VANISHING, child).await {
                warn!(process_group = %self.id, "some processes of a task did not end although they were killed");
            }
        }
        self.ended = true;
    }

    async fn vanishes_within(&self, time: Duration, child: &mut Child) -> bool {
        let end = Instant::now() + time;
        loop {
            if self.is_gone(child) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn is_gone(&self, child: &mut Child) -> bool {
        // A process that has ended counts until its parent has taken notice. For the program that is us; for
        // its orphans it is process 1, which in a container may be us as well.
        let _ = child.try_wait();
        if std::process::id() == 1 {
            while let Ok(Some(_)) = waitpgid(self.id, WaitOptions::NOHANG) {}
        }
        test_kill_process_group(self.id) == Err(Errno::SRCH)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.ended {
            let _ = kill_process_group(self.id, Signal::KILL);
        }
        self.watchdog.remove(self.id);
    }
}

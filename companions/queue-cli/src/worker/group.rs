//! The process group of a running program.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpgid};
use tokio::process::Child;
use tokio::time::Instant;
use tracing::warn;

use super::watchdog::Watchdog;

/// How soon a group that was told to end is looked at, and then after twice as long each time. The number of a process
/// group can only be given to somebody else after it has vanished and all other numbers (32,768 at the least) were used:
/// not within this time, so what is seen alive is what was told to end.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LONGEST_LOOK: Duration = Duration::from_millis(80);

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
    /// A process of it that was alive when it was last looked at.
    alive: Option<u32>,
    watchdog: Arc<Watchdog>,
}

impl Group {
    /// The group of a program that was started with a group of its own.
    pub(super) fn of(child: &Child, watchdog: Arc<Watchdog>) -> Option<Self> {
        let id = i32::try_from(child.id()?).ok().and_then(Pid::from_raw)?;
        watchdog.add(id);
        Some(Self { id, ended: false, alive: None, watchdog })
    }

    /// Ends all processes of the group, the program included: TERM, and KILL for what is left after the
    /// grace time. Returns when they are gone.
    pub(super) async fn end(&mut self, child: &mut Child, grace: Duration) {
        if self.is_gone(child).await {
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

    async fn vanishes_within(&mut self, time: Duration, child: &mut Child) -> bool {
        let end = Instant::now() + time;
        let mut pause = FIRST_LOOK;
        loop {
            if self.is_gone(child).await {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            tokio::time::sleep_until(end.min(Instant::now() + pause)).await;
            pause = LONGEST_LOOK.min(2 * pause);
        }
    }

    /// Whether nothing of it runs any more.
    async fn is_gone(&mut self, child: &mut Child) -> bool {
        // A process that has ended counts until its parent has taken notice. For the program that is us; for
        // its orphans it is process 1, which in a container may be us as well: then not before the program, whose status
        // would be lost.
        let has_ended = matches!(child.try_wait(), Ok(Some(_)));
        if has_ended && std::process::id() == 1 {
            while let Ok(Some(_)) = waitpgid(self.id, WaitOptions::NOHANG) {}
        }
        if test_kill_process_group(self.id) == Err(Errno::SRCH) {
            return true;
        }
        // Or it is a program that never takes notice of its orphans. Then what is left has to be looked at, one by one.
        if self.alive.is_some_and(|process| runs_in(process, self.id)) {
            return false;
        }
        let group = self.id;
        let looked = tokio::task::spawn_blocking(move || alive_in(group)).await;
        let Ok(Ok(alive)) = looked else { return false };
        self.alive = alive;
        if alive.is_none() {
            // One that was started while we looked may have been overlooked.
            let _ = kill_process_group(self.id, Signal::KILL);
        }
        alive.is_none()
    }
}

/// A process of the group that does not merely wait for its parent to notice that it has ended; an error where the
/// system does not tell, as Linux does.
fn alive_in(group: Pid) -> io::Result<Option<u32>> {
    let processes = std::fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut looked = false;
    for process in processes {
        looked = true;
        if runs_in(process, group) {
            return Ok(Some(process));
        }
    }
    // Our own stands there at the least, if any does.
    if looked { Ok(None) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// Whether the process is one of the group, and runs.
fn runs_in(process: u32, group: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program stands in parentheses and may contain anything; state, parent and group follow.
    let mut fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ')).into_iter().flatten();
    let (state, _parent, of) = (fields.next(), fields.next(), fields.next());
    of.is_some_and(|of| of.parse() == Ok(group.as_raw_nonzero().get())) && !matches!(state, Some("Z" | "X"))
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.ended {
            let _ = kill_process_group(self.id, Signal::KILL);
        }
        self.watchdog.remove(self.id);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Stdio;

    use rustix::process::{getpid, set_child_subreaper};
    use tokio::io::AsyncReadExt as _;
    use tokio::process::Command;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// The slot was blocked for the grace time and five seconds more.
    #[tokio::test]
    async fn a_group_is_gone_when_only_unreaped_processes_are_left_of_it() {
        // Its orphans come to us, and we take no notice of their end, as a process 1 that never does.
        set_child_subreaper(Some(getpid())).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 3600 & echo started; wait"]).process_group(0).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut group = Group::of(&child, Arc::new(Watchdog::start(HOUR).unwrap())).unwrap();
        child.stdout.as_mut().unwrap().read_u8().await.unwrap();
        assert!(!group.is_gone(&mut child).await);
        tokio::time::timeout(Duration::from_secs(60), group.end(&mut child, HOUR)).await.unwrap();
        assert_eq!(test_kill_process_group(group.id), Ok(()), "nobody has reaped the orphan");
    }
}

//! Ends the programs of a worker that could not do it itself.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use queue_core::clock::secs_ceil;
use rustix::process::Pid;
use tracing::warn;

/// A shell that is told which process groups run, and ends them when nobody is left to tell it more: when
/// this process was killed, or ran out of memory. Its tasks come back when their leases end, and must not
/// find their first attempts still at work.
///
/// (Linux could tie a child to its parent's life, but only by unsafe code between fork and exec, and only
/// the child itself, not what it has started.)
#[derive(Debug)]
pub(super) struct Watchdog {
    shell: Child,
    // A std mutex: held for the write of a short line into a pipe. The lines are shorter than what a pipe
    // takes in one piece, and the shell does nothing but read them.
    orders: Mutex<Option<ChildStdin>>,
}

/// `+ 42` adds a group, `- 42` removes it. The list has a blank on both sides of each number.
const SCRIPT: &str = r#"
groups=' '
while read -r verb group; do
    case $verb in
        +) groups="$groups$group " ;;
        -) groups="${groups%% "$group" *} ${groups#* "$group" }" ;;
    esac
done
[ "$groups" != ' ' ] || exit 0
for group in $groups; do kill -s TERM -- "-$group"; kill -s CONT -- "-$group"; done
sleep "$1"
for group in $groups; do kill -s KILL -- "-$group"; done"#;

impl Watchdog {
    /// Starts the shell; `grace` is the time between TERM and KILL.
    pub(super) fn start(grace: Duration) -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "queuectl-watchdog"])
            .arg(secs_ceil(grace).to_string())
            .stdin(Stdio::piped())
            // Whoever waits for the end of our output must not wait for it.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C in the terminal is for us alone.
            .process_group(0)
            .spawn()?;
        let orders = Mutex::new(shell.stdin.take());
        Ok(Self { shell, orders })
    }

    /// A group has started.
    pub(super) fn add(&self, group: Pid) {
        self.tell('+', group);
    }

    /// A group has ended. Also to be said of one that has killed itself: its number may be given to others.
    pub(super) fn remove(&self, group: Pid) {
        self.tell('-', group);
    }

    fn tell(&self, verb: char, group: Pid) {
        let line = format!("{verb} {}\n", group.as_raw_nonzero());
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shell) = orders.as_mut()
            && let Err(error) = shell.write_all(line.as_bytes())
        {
            warn!(%error, "the watchdog is gone; if this worker is killed, its programs will be left running");
            *orders = None;
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // The end of its input: it ends what is left, which is nothing unless something went wrong.
        self.orders.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.shell.wait();
    }
}

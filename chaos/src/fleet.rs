//! The processes of a run, each with its own way to Redis and its own ledger.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::Failure;
use crate::ledger::now_ns;
use crate::proxy::Proxy;

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Producer { rate: u32 },
    Worker { lease_secs: u64, skew_secs: i64 },
    GoWorker,
}

/// One that is running, or was.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) number: u16,
    pub(crate) role: Role,
    pub(crate) ledger: PathBuf,
}

/// A place in the fleet: when its process ends, another one takes the place.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) role: Role,
    pub(crate) proxy: Arc<Proxy>,
    child: Option<Child>,
    pub(crate) process: u16,
    /// Unix nanoseconds until which something else is being done to it.
    pub(crate) busy_until: u64,
}

pub(crate) struct Fleet {
    directory: PathBuf,
    go: Option<PathBuf>,
    seed: u64,
    /// How many tasks each producer enqueues at the most.
    tasks: u32,
    pub(crate) slots: Vec<Slot>,
    /// All there ever were.
    pub(crate) processes: Vec<Process>,
}

const CONCURRENCY: &str = "10";

impl Fleet {
    pub(crate) async fn new(
        directory: &Path,
        go: Option<PathBuf>,
        seed: u64,
        tasks: u32,
        upstream: &Arc<AtomicU16>,
        roles: &[Role],
    ) -> Result<Self, Failure> {
        let mut slots = Vec::new();
        for role in roles {
            let proxy = Arc::new(Proxy::start(upstream.clone()).await?);
            slots.push(Slot { role: *role, proxy, child: None, process: 0, busy_until: 0 });
        }
        let mut fleet = Self { directory: directory.to_owned(), go, seed, tasks, slots, processes: Vec::new() };
        for slot in 0..fleet.slots.len() {
            fleet.start(slot)?;
        }
        Ok(fleet)
    }

    /// Starts the next process of a slot after this one, unless somebody else has done so.
    pub(crate) fn replace(&mut self, slot: usize, process: u16) -> Result<(), Failure> {
        if self.slots[slot].process == process { self.start(slot) } else { Ok(()) }
    }

    /// Starts the next process of a slot.
    fn start(&mut self, slot: usize) -> Result<(), Failure> {
        let number = u16::try_from(self.processes.len())?;
        let ledger = self.directory.join(format!("{number}.ledger"));
        let place = &mut self.slots[slot];
        let address = format!("127.0.0.1:{}", place.proxy.port);
        let url = format!("redis://{address}");
        let mut command = match (place.role, &self.go) {
            (Role::GoWorker, Some(program)) => {
                let mut command = Command::new(program);
                command.args(["--redis", &address, "--concurrency", CONCURRENCY]);
                command
            }
            (Role::GoWorker, None) => return Err("there is no Go worker".into()),
            (Role::Producer { rate }, _) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["produce", "--redis", &url, "--rate", &rate.to_string()]);
                command.args(["--seed", &self.seed.to_string(), "--tasks", &self.tasks.to_string()]);
                command
            }
            (Role::Worker { lease_secs, skew_secs }, _) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["work", "--redis", &url, "--concurrency", CONCURRENCY]);
                command.args(["--lease-secs", &lease_secs.to_string(), "--skew-secs", &skew_secs.to_string()]);
                command
            }
        };
        let log = std::fs::File::create(self.directory.join(format!("{number}.log")))?;
        command.arg("--ledger").arg(&ledger).args(["--process", &number.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).process_group(0).kill_on_drop(true);
        place.child = Some(command.spawn()?);
        place.process = number;
        self.processes.push(Process { number, role: place.role, ledger });
        Ok(())
    }

    /// The slots of workers, or of producers.
    pub(crate) fn of(&self, producers: bool) -> Vec<usize> {
        let fits = |slot: &Slot| matches!(slot.role, Role::Producer { .. }) == producers;
        (0..self.slots.len()).filter(|slot| fits(&self.slots[*slot])).collect()
    }

    /// One of these that nothing else is being done to.
    pub(crate) fn pick(&self, slots: &[usize], target: usize) -> Option<usize> {
        let now = now_ns();
        let count = slots.len();
        (0..count).map(|n| slots[(target + n) % count]).find(|slot| self.slots[*slot].busy_until <= now)
    }

    pub(crate) fn busy(&mut self, slot: usize, lasts: Duration) {
        self.slots[slot].busy_until = now_ns() + u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX / 2);
    }

    pub(crate) async fn kill(&mut self, slot: usize) -> Result<(), Failure> {
        if let Some(mut child) = self.slots[slot].child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Sends a signal to the process of a slot, if it still is this one.
    pub(crate) fn signal(&self, slot: usize, process: u16, signal: Signal) {
        let place = &self.slots[slot];
        if place.process == process
            && let Some(pid) = place.child.as_ref().and_then(Child::id).and_then(|pid| i32::try_from(pid).ok())
        {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Tells a process to end, and waits for that.
    pub(crate) async fn end(&mut self, slot: usize, patience: Duration) -> Result<bool, Failure> {
        self.signal(slot, self.slots[slot].process, Signal::SIGTERM);
        let Some(child) = &mut self.slots[slot].child else { return Ok(true) };
        let in_time = tokio::time::timeout(patience, child.wait()).await.is_ok();
        self.kill(slot).await?;
        Ok(in_time)
    }

    /// Whether the process of a slot has ended by itself.
    pub(crate) fn has_ended(&mut self, slot: usize) -> bool {
        let child = self.slots[slot].child.as_mut();
        child.is_none_or(|child| matches!(child.try_wait(), Ok(Some(_))))
    }

    /// The names of the processes that ended although nobody had told them to.
    pub(crate) fn fallen(&mut self) -> Vec<u16> {
        let ended = |slot: &mut Slot| {
            let child = slot.child.as_mut()?;
            matches!(child.try_wait(), Ok(Some(_))).then_some(slot.process)
        };
        self.slots.iter_mut().filter_map(ended).collect()
    }
}

//! The processes of a run, each with its own way to Redis and its own ledger.

use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin, Command};

use crate::Failure;
use crate::broadcast::server_name;
use crate::ledger::{Book, now_ns};
use crate::log::Log;
use crate::net::Link;
use crate::proxy::Proxy;

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Producer {
        rate: u32,
    },
    /// Makes batches, so many trees of them per minute.
    Batcher {
        rate: u32,
    },
    /// Sends broadcasts, so many per minute.
    Broadcaster {
        rate: u32,
    },
    Worker {
        lease_secs: u64,
        skew_secs: i64,
    },
    GoWorker,
    /// This process itself, which enqueues the poison.
    Conductor,
}

/// One that is running, or was.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) number: u16,
    /// Its place in the fleet, if it has one.
    pub(crate) slot: Option<usize>,
    pub(crate) role: Role,
    pub(crate) ledger: PathBuf,
    pub(crate) pid: u32,
}

/// A place in the fleet: when its process ends, another one takes the place.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) role: Role,
    pub(crate) proxy: Arc<Proxy>,
    /// The way to the proxy, if the process has a network of its own.
    pub(crate) link: Option<Arc<Link>>,
    child: Option<Child>,
    /// When this is closed, the process ends at once: waiting for a child closes what it still holds itself.
    parent: Option<ChildStdin>,
    /// What copies the log of the process.
    pub(crate) log: Log,
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
    max_crashes: u32,
    pub(crate) slots: Vec<Slot>,
    /// All there ever were.
    pub(crate) processes: Vec<Process>,
}

/// What a fleet is made of.
pub(crate) struct Orders {
    pub(crate) go: Option<PathBuf>,
    pub(crate) seed: u64,
    /// How many tasks each producer enqueues at the most.
    pub(crate) tasks: u32,
    pub(crate) max_crashes: u32,
    /// Whether each process has a network of its own.
    pub(crate) namespaces: bool,
    pub(crate) roles: Vec<Role>,
}

const CONCURRENCY: &str = "10";

/// The file that says by how much the clock of a worker is stepped.
pub(crate) fn clock_file(ledger: &Path) -> PathBuf {
    ledger.with_extension("clock")
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

impl Fleet {
    pub(crate) async fn new(directory: &Path, orders: Orders, upstream: &Arc<AtomicU16>) -> Result<Self, Failure> {
        let Orders { go, seed, tasks, max_crashes, namespaces, roles } = orders;
        let mut slots = Vec::new();
        for (number, role) in roles.into_iter().enumerate() {
            let link = if namespaces { Some(Arc::new(Link::make(u8::try_from(number)?).await?)) } else { None };
            let host = link.as_ref().map_or(Ipv4Addr::LOCALHOST, |link| link.host);
            let proxy = Arc::new(Proxy::start(host, upstream.clone()).await?);
            slots.push(Slot {
                role,
                proxy,
                link,
                child: None,
                parent: None,
                log: Log::default(),
                process: 0,
                busy_until: 0,
            });
        }
        let directory = directory.to_owned();
        let mut fleet = Self { directory, go, seed, tasks, max_crashes, slots, processes: Vec::new() };
        for slot in 0..fleet.slots.len() {
            fleet.start(slot)?;
        }
        Ok(fleet)
    }

    /// Takes part itself, and gets the ledger for it.
    pub(crate) fn take_part(&mut self) -> Result<(u16, Book), Failure> {
        let number = u16::try_from(self.processes.len())?;
        let ledger = self.directory.join(format!("{number}.ledger"));
        let book = Book::open(&ledger)?;
        self.processes.push(Process { number, slot: None, role: Role::Conductor, ledger, pid: std::process::id() });
        Ok((number, book))
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
        let address = place.proxy.address.to_string();
        let url = format!("redis://{address}");
        let own = std::env::current_exe()?;
        let (program, arguments) = match (place.role, &self.go) {
            (Role::GoWorker, Some(program)) => {
                (program, words(&format!("--redis {address} --concurrency {CONCURRENCY}")))
            }
            (Role::Producer { rate }, _) => {
                let (seed, tasks) = (self.seed, self.tasks);
                (&own, words(&format!("produce --redis {url} --rate {rate} --seed {seed} --tasks {tasks}")))
            }
            (Role::Batcher { rate }, _) => {
                (&own, words(&format!("batch --redis {url} --rate {rate} --seed {}", self.seed)))
            }
            (Role::Broadcaster { rate }, _) => (&own, words(&format!("broadcast --redis {url} --rate {rate}"))),
            (Role::Worker { lease_secs, skew_secs }, _) => {
                let crashes = self.max_crashes;
                let about = format!("--lease-secs {lease_secs} --skew-secs {skew_secs} --max-crashes {crashes}");
                let name = server_name(slot);
                (&own, words(&format!("work --redis {url} --name {name} --concurrency {CONCURRENCY} {about}")))
            }
            (role, _) => return Err(format!("{role:?} is not a process to be started").into()),
        };
        let mut command = match &place.link {
            Some(link) => {
                let [nsenter, rest @ ..] = link.prefix();
                let mut command = Command::new(nsenter);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(arguments);
        command.arg("--ledger").arg(&ledger).args(["--process", &number.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn()?;
        place.log = Log::copy(child.stderr.take(), &self.directory.join(format!("{number}.log")))?;
        let pid = child.id().unwrap_or(0);
        place.parent = child.stdin.take();
        place.child = Some(child);
        place.process = number;
        self.processes.push(Process { number, slot: Some(slot), role: place.role, ledger, pid });
        Ok(())
    }

    /// The slots of workers, or of producers.
    pub(crate) fn of(&self, producers: bool) -> Vec<usize> {
        let is_producer =
            |role| matches!(role, Role::Producer { .. } | Role::Batcher { .. } | Role::Broadcaster { .. });
        let fits = |slot: &Slot| is_producer(slot.role) == producers;
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

    /// Sets the clock of a worker wrong by so many seconds more than it is anyway.
    pub(crate) fn step_clock(&self, process: u16, seconds: i64) -> Result<(), Failure> {
        let Some(process) = self.processes.get(usize::from(process)) else { return Ok(()) };
        Ok(std::fs::write(clock_file(&process.ledger), seconds.to_string())?)
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

    /// The workers that were killed by nobody of us, and have no successor yet: by slot and process. Once asked, they
    /// are gone.
    pub(crate) fn poisoned(&mut self) -> Vec<(usize, u16)> {
        let mut poisoned = Vec::new();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if let Some(child) = &mut slot.child
                && let Ok(Some(status)) = child.try_wait()
                && status.signal() == Some(Signal::SIGKILL as i32)
            {
                slot.child = None;
                poisoned.push((number, slot.process));
            }
        }
        poisoned
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

//! What becomes of tasks while this worker is short of files, processes or memory to start their programs.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::Instant;
use tracing::{info, warn};

/// For how long a task keeps its place before others may try their luck with it.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before the second attempt to start a program; each is twice as long as the one before.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often it is said at the most.
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// Open files of one program: the ends of its pipes, ours and, while it is started, its own; and its number.
const FILES_EACH: u64 = 12;
/// Those of everything else: connections, the runtime, the log.
const FILES_BESIDE: u64 = 256;

/// Lets this process open as many files as so many programs at once need, as far as it may.
///
/// Not all that it may: programs inherit the limit, for to set it between fork and exec takes unsafe code. Some go through all
/// descriptors up to it, which containers often set to a thousand million, and those that use select() rely on 1,024. So it stays
/// as it was where it suffices.
pub(super) fn raise_files(programs: usize) {
    let wanted = (programs as u64).saturating_mul(FILES_EACH).saturating_add(FILES_BESIDE);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` is without a limit.
    let Some(soft) = current.filter(|soft| *soft < wanted) else { return };
    let raised = maximum.map_or(wanted, |hard| wanted.min(hard));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
        Ok(()) if raised > soft => {
            info!(from = soft, to = raised, "the limit of open files is raised for so many tasks at once")
        }
        Ok(()) => {}
        Err(error) => warn!(%error, limit = soft, "the limit of open files cannot be raised"),
    }
}

/// What a program cannot be started for want of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scarce {
    OwnFiles,
    AllFiles,
    Processes,
    Memory,
}

impl Scarce {
    pub(super) fn of(error: &io::Error) -> Option<Self> {
        match Errno::from_io_error(error)? {
            Errno::MFILE => Some(Self::OwnFiles),
            Errno::NFILE => Some(Self::AllFiles),
            Errno::AGAIN => Some(Self::Processes),
            Errno::NOMEM => Some(Self::Memory),
            _ => None,
        }
    }

    /// What is to be done, in words for whoever runs the worker.
    fn advice(self) -> &'static str {
        match self {
            Self::OwnFiles => {
                "raise the limit of open files (`ulimit -n`, LimitNOFILE= of systemd), or lower --concurrency"
            }
            Self::AllFiles => "the whole machine is out of open files: raise fs.file-max",
            Self::Processes => {
                "raise the limit of processes (`ulimit -u`, TasksMax= of systemd, the pids limit of the container), or lower --concurrency"
            }
            Self::Memory => {
                "give it more memory (`ulimit -v`, MemoryMax= of systemd, the limit of the container), or lower --concurrency"
            }
        }
    }
}

/// The line of tasks that wait until their programs can be started, the first of which tries it. Without it, one that has just
/// been taken would get what another has waited for.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    pub(super) line: tokio::sync::Mutex<()>,
    /// Whether the last attempt failed. Only then do others stand in the line: they would be started one by one for ever.
    lasts: AtomicBool,
    /// The error that the last one met.
    last: AtomicI32,
    // A std mutex: held for a moment.
    told: Mutex<Option<Instant>>,
}

impl Shortage {
    /// Somebody has met it.
    pub(super) fn met(&self, scarce: Scarce, error: &io::Error) {
        self.lasts.store(true, Ordering::Relaxed);
        self.last.store(error.raw_os_error().unwrap_or(0), Ordering::Relaxed);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
            *told = Some(Instant::now());
            let advice = scarce.advice();
            warn!(%error, advice, "programs cannot be started; their tasks wait for it, and no more are taken than there is room for");
        }
    }

    /// A program was started.
    pub(super) fn is_over(&self) {
        self.lasts.store(false, Ordering::Relaxed);
    }

    pub(super) fn lasts(&self) -> bool {
        self.lasts.load(Ordering::Relaxed)
    }

    /// The error of those before, for one that has waited in the line for nothing.
    pub(super) fn last(&self) -> io::Error {
        io::Error::from_raw_os_error(self.last.load(Ordering::Relaxed))
    }
}

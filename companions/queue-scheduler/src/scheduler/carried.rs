//! The entries a scheduler carries, and what it knows about each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use queue_core::clock::UnixSecond;
use queue_redis::broker::{EntryStatus, Occasion};
use queue_redis::log::warn;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::problem::{EntryError, EntryProblem};
use crate::schedule::Schedule;

/// An entry that a scheduler carries.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) schedule: Arc<Schedule>,
    /// Tells this version of the entry from those before and after it.
    pub(super) version: u64,
    /// Whether Redis has not been told about this version yet. Until then it has no ticks.
    pub(super) fresh: bool,
    /// The number that its registration had.
    registered: u64,
    /// All ticks up to this Unix second are dealt with.
    pub(super) upto: i64,
    /// When there is something to do next, in Unix seconds.
    next_due: Option<i64>,
    /// A tick that waits for the run before.
    pub(super) waiting: Option<i64>,
    /// Whether Redis knows fewer ticks to be dealt with than this scheduler.
    went_back: bool,
    /// When the task was enqueued last, in Unix nanoseconds; 0 for never.
    pub(super) last_ns: i64,
    pub(super) shown: bool,
    /// Whether its ticks enqueue nothing: it is paused, or has had its runs.
    pub(super) rests: bool,
    /// A tick of which it is not known whether this scheduler has enqueued it, because the answer was lost, and the nanosecond at which it
    /// was to do so: another scheduler's has another one.
    pub(super) unsure: Option<(i64, i64)>,
    /// Not to be dealt with before this, because something failed or waits.
    pub(super) rest_until: Option<Instant>,
    pub(super) failures: u32,
}

impl Carried {
    /// What there is to tell Redis about it.
    pub(super) fn occasion(&self) -> Occasion {
        if self.fresh { Occasion::Register } else { Occasion::Beat(self.registered) }
    }

    /// Takes over what Redis says, of which the older may arrive later.
    pub(super) fn learn(&mut self, upto: i64, last_ns: i64) {
        self.last_ns = self.last_ns.max(last_ns);
        if upto > self.upto || self.fresh {
            self.upto = upto;
            self.next_due = self.schedule.next_due(upto);
        }
    }

    /// Tells if Redis has gone back since it was heard last: it says that ticks are dealt with up to `upto`, and has said `known`; 0 where it
    /// does not know the entry.
    pub(super) fn look_back(&mut self, upto: i64, known: i64) {
        let was_back = std::mem::replace(&mut self.went_back, upto < known);
        if !self.went_back || was_back {
            return;
        }
        if upto == 0 {
            warn!(
                entry = self.schedule.name, to = %UnixSecond(known),
                "Redis has forgotten the entry, as in a failover: the tasks of its ticks up to this one are lost, unless they were worked \
                 before; it is no longer paused, and its runs count from 0"
            );
        } else {
            warn!(
                entry = self.schedule.name, from = %UnixSecond(upto), to = %UnixSecond(known),
                "Redis has lost ticks between these that were dealt with, as in a failover; their tasks are lost, unless they \
                 were worked before"
            );
        }
    }

    /// How long there is nothing to do; zero if there is.
    fn rest(&self, now_ns: i64, instant: Instant) -> Duration {
        self.until_due(now_ns).max(self.rest_until.map_or(Duration::ZERO, |until| until - instant))
    }

    /// The same, whether it rests or not.
    fn until_due(&self, now_ns: i64) -> Duration {
        if self.fresh {
            return Duration::MAX;
        }
        match self.next_due {
            _ if self.waiting.is_some() || self.unsure.is_some() => Duration::ZERO,
            None => Duration::MAX,
            Some(due) => {
                let ns = due.saturating_mul(1_000_000_000).saturating_sub(now_ns);
                Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
            }
        }
    }
}

/// What the loops of a scheduler share: its entries, and who waits for a change of them.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// A std mutex: it is held for a look or a change, never across an await.
    entries: Mutex<Entries>,
    /// Wakes the ticker when an entry has come or is known better.
    pub(super) changed: Notify,
    /// Wakes the heartbeater when Redis has to be told about an entry.
    pub(super) untold: Notify,
}

impl Shared {
    pub(super) fn entries(&self) -> MutexGuard<'_, Entries> {
        // What panics while it is held (a clock) changes nothing.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All entries by name.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) carried: BTreeMap<String, Carried>,
    /// Queue and name of entries that were taken out of service, which Redis has to be told.
    pub(super) removed: Vec<(String, String)>,
    versions: u64,
}

impl Entries {
    /// Adds an entry; with `replace` one of its name has to be there, without it there must be none.
    pub(super) fn put(&mut self, schedule: Schedule, replace: bool) -> Result<(), EntryProblem> {
        let before = self.carried.get(&schedule.name);
        match (before, replace) {
            (Some(_), false) => return Err(EntryProblem::Duplicate),
            (None, true) => return Err(EntryProblem::Unknown),
            (Some(before), true) if *before.schedule == schedule => return Ok(()),
            _ => {}
        }
        let name = schedule.name.clone();
        if let Some(before) = self.carried.remove(&name)
            && before.schedule.queue != schedule.queue
        {
            self.removed.push((before.schedule.queue.clone(), name.clone()));
        }
        self.removed.retain(|removed| *removed != (schedule.queue.clone(), name.clone()));
        self.versions += 1;
        let carried = Carried {
            schedule: Arc::new(schedule),
            version: self.versions,
            fresh: true,
            registered: 0,
            upto: 0,
            next_due: None,
            waiting: None,
            went_back: false,
            last_ns: 0,
            shown: false,
            rests: false,
            unsure: None,
            rest_until: None,
            failures: 0,
        };
        self.carried.insert(name, carried);
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) -> bool {
        let Some(carried) = self.carried.remove(name) else { return false };
        self.removed.push((carried.schedule.queue.clone(), name.to_owned()));
        true
    }

    /// This version of an entry, unless it is gone or was replaced.
    pub(super) fn version(&mut self, name: &str, version: u64) -> Option<&mut Carried> {
        self.carried.get_mut(name).filter(|carried| carried.version == version)
    }

    /// What Redis said about this version of an entry, which was known to be dealt with up to `known`.
    pub(super) fn registered(&mut self, name: &str, version: u64, known: i64, status: &EntryStatus) {
        let Some(carried) = self.version(name, version) else { return };
        carried.look_back(status.before, known);
        carried.learn(status.upto, status.last_ns);
        if std::mem::take(&mut carried.fresh) {
            carried.registered = status.registered;
        }
        carried.waiting = status.waiting;
        carried.shown = status.shown;
        let max_runs = carried.schedule.max_runs;
        carried.rests = status.paused.is_some() || max_runs > 0 && status.runs >= max_runs;
    }

    /// Whether Redis has to be told about an entry.
    pub(super) fn has_untold(&self) -> bool {
        !self.removed.is_empty() || self.carried.values().any(|carried| carried.fresh)
    }

    /// The entries with something to do now, also those that rest because something failed or waits.
    pub(super) fn due_or_resting(&self, now_ns: i64) -> Vec<(Arc<Schedule>, u64)> {
        let due = self.carried.values().filter(|carried| carried.until_due(now_ns).is_zero());
        due.map(|carried| (carried.schedule.clone(), carried.version)).collect()
    }

    /// The Unix second at which the next entry has something to do.
    pub(super) fn next_after(&self, now_ns: i64) -> Option<i64> {
        let due = self.carried.values().filter_map(|carried| carried.next_due);
        due.filter(|due| due.saturating_mul(1_000_000_000) > now_ns).min()
    }

    /// The entries with something to do now; if there are none, how long that stays so.
    pub(super) fn due(&self, now_ns: i64, instant: Instant) -> (Vec<(Arc<Schedule>, u64)>, Duration) {
        let (mut due, mut rest) = (Vec::new(), Duration::MAX);
        for carried in self.carried.values() {
            match carried.rest(now_ns, instant) {
                Duration::ZERO => due.push((carried.schedule.clone(), carried.version)),
                longer => rest = rest.min(longer),
            }
        }
        (due, rest)
    }
}

/// The name of an entry that is not there.
pub(super) fn unknown(name: &str) -> EntryError {
    EntryError { entry: name.to_owned(), origin: None, problem: EntryProblem::Unknown }
}

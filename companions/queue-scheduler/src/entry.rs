//! What a user says about a periodic task.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use queue_core::clock::UnixSecond;
use queue_core::clock::{secs_ceil, unix_secs_ceil};
use queue_core::options::compose;
use queue_core::wire::ENCRYPTED;
use queue_core::{IntoTask, RawTask, TaskOptions, option_text};
use queue_redis::broker::Overlap;
use sha2::{Digest as _, Sha256};

use crate::problem::{EntryError, EntryProblem};
use crate::schedule::{MAX_MISSED, Missed, Schedule};
use crate::spec::{Spec, Zone};

/// A periodic task: a cron spec, the task to enqueue at each tick, and what to do in special cases.
///
/// ```
/// use std::time::Duration;
/// use queue_core::RawTask;
/// use queue_scheduler::{Entry, Missed, Overlap};
///
/// let report = RawTask::new("report:build").payload(r#"{"kind":"nightly"}"#).queue("reports");
/// let entry = Entry::new("30 2 * * *", report)
///     .name("nightly-report")
///     .zone("Europe/Berlin")
///     .missed(Missed::Last)
///     .overlap(Overlap::Skip)
///     .jitter(Duration::from_secs(60));
/// ```
#[derive(Debug, Clone)]
#[must_use = "an entry does nothing until it is registered"]
pub struct Entry {
    name: Option<String>,
    spec: String,
    zone: Option<String>,
    task: Result<RawTask, String>,
    origin: Option<String>,
    missed: Missed,
    overlap: Overlap,
    jitter: Duration,
    starts: Option<SystemTime>,
    ends: Option<SystemTime>,
    max_runs: Option<u64>,
}

/// What an entry comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntrySummary {
    /// Its name, given or made.
    pub name: String,
    /// The queue of its tasks.
    pub queue: String,
    /// Its spec as it was given.
    pub spec: String,
    /// The time zone of the spec.
    pub zone: String,
    /// Task type.
    pub task_type: String,
}

impl Entry {
    /// A task for each tick of a spec.
    pub fn new(spec: impl Into<String>, task: impl IntoTask) -> Self {
        Self::with(spec.into(), task.into_task().map_err(|error| error.to_string()))
    }

    /// Stands for an entry that could not be read. Whoever registers it gets this problem, and what runs under
    /// its name goes on.
    pub fn broken(name: impl Into<String>, problem: impl Into<String>) -> Self {
        let mut entry = Self::with(String::new(), Err(problem.into()));
        entry.name = Some(name.into());
        entry
    }

    fn with(spec: String, task: Result<RawTask, String>) -> Self {
        Self {
            name: None,
            spec,
            zone: None,
            task,
            origin: None,
            missed: Missed::default(),
            overlap: Overlap::default(),
            jitter: Duration::ZERO,
            starts: None,
            ends: None,
            max_runs: None,
        }
    }

    /// The name by which all schedulers know it: 1 to 200 of `A-Z a-z 0-9 . _ : @ + -`. Task ids begin with it. One name
    /// on one Redis is one entry, in one queue.
    /// Defaults to a digest of spec, type, payload and options, as Go's periodic task manager makes it; then a
    /// change of any of them makes another entry.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The time zone of the spec, by its name in the time zone database. Defaults to the scheduler's.
    pub fn zone(mut self, name: impl Into<String>) -> Self {
        self.zone = Some(name.into());
        self
    }

    /// Where it comes from, for messages: a file and line, for example.
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// What happens to ticks that came while no scheduler was at work. Defaults to letting them go.
    pub fn missed(mut self, policy: Missed) -> Self {
        self.missed = policy;
        self
    }

    /// What happens to a tick while the task of the run before is unfinished. Defaults to enqueuing it.
    pub fn overlap(mut self, policy: Overlap) -> Self {
        self.overlap = policy;
        self
    }

    /// Each tick is delayed by a part of this, the same one on every scheduler, and never beyond the next
    /// tick. Whole seconds, rounded up. Defaults to none.
    pub fn jitter(mut self, longest: Duration) -> Self {
        self.jitter = longest;
        self
    }

    /// There are no ticks before this instant; those of `@every` are counted from it. Defaults to none.
    pub fn starts(mut self, instant: impl Into<SystemTime>) -> Self {
        self.starts = Some(instant.into());
        self
    }

    /// There are no ticks after this instant. Defaults to none.
    pub fn ends(mut self, instant: impl Into<SystemTime>) -> Self {
        self.ends = Some(instant.into());
        self
    }

    /// How many runs there are at the most, over the whole fleet, those somebody asked for included. Defaults
    /// to any number.
    pub fn max_runs(mut self, runs: u64) -> Self {
        self.max_runs = Some(runs);
        self
    }

    /// The first ticks after this one, jitter left out; `zone` counts where the entry names none.
    ///
    /// # Errors
    /// When the entry cannot be used.
    pub fn ticks(&self, zone: &Zone, after: UnixSecond, count: usize) -> Result<Vec<UnixSecond>, EntryError> {
        let schedule = self.check(zone)?;
        Ok(std::iter::successors(schedule.next_tick(after.0), |tick| schedule.next_tick(*tick))
            .take(count)
            .map(UnixSecond)
            .collect())
    }

    /// What it comes to, with what it leaves out filled in; `zone` counts where it names none.
    ///
    /// # Errors
    /// When the entry cannot be used.
    pub fn summary(&self, zone: &Zone) -> Result<EntrySummary, EntryError> {
        let Schedule { name, queue, spec, task, .. } = self.check(zone)?;
        let zone = spec.zone().name().to_owned();
        Ok(EntrySummary { name, queue, spec: self.spec.clone(), zone, task_type: task.task_type })
    }

    /// Whether its name does not follow from what it is.
    pub(crate) fn has_name(&self) -> bool {
        self.name.as_ref().is_some_and(|name| !name.is_empty())
    }

    /// How messages call it.
    pub(crate) fn known_as(&self) -> String {
        match (&self.name, &self.task) {
            (Some(name), _) => name.clone(),
            (None, Ok(task)) => format!("{} {}", self.spec, task.task_type),
            (None, Err(_)) => self.spec.clone(),
        }
    }

    /// A complaint about it, for somebody who finds a problem of his own.
    pub fn error(&self, problem: EntryProblem) -> EntryError {
        EntryError { entry: self.known_as(), origin: self.origin.clone(), problem }
    }

    pub(crate) fn check(&self, zone: &Zone) -> Result<Schedule, EntryError> {
        self.schedule(zone).map_err(|problem| self.error(problem))
    }

    fn schedule(&self, zone: &Zone) -> Result<Schedule, EntryProblem> {
        let task = self.task.clone().map_err(EntryProblem::Unreadable)?;
        if task.options.task_id.is_some() {
            return Err(EntryProblem::TaskId);
        }
        let has_zone = self.spec.starts_with("TZ=") || self.spec.starts_with("CRON_TZ=");
        let (zone, text) = match &self.zone {
            Some(_) if has_zone => return Err(EntryProblem::TwoZones(self.spec.clone())),
            Some(name) => (Zone::named(name).map_err(EntryProblem::Zone)?, format!("CRON_TZ={name} {}", self.spec)),
            None => (zone.clone(), self.spec.clone()),
        };
        let spec =
            Spec::parse(&self.spec, &zone).map_err(|source| EntryProblem::Spec { spec: self.spec.clone(), source })?;
        let policy = |ok: bool, option, value: String, rule| {
            if ok { Ok(()) } else { Err(EntryProblem::Policy { option, value, rule }) }
        };
        if let Missed::All(most) = self.missed {
            policy((1..=MAX_MISSED).contains(&most), "missed", self.missed.to_string(), "it must be from 1 to 1000")?;
        }
        policy(self.max_runs != Some(0), "max_runs", "0".to_owned(), "it must be at least 1")?;
        let day = Duration::from_secs(24 * 60 * 60);
        policy(self.jitter <= day, "jitter", format!("{:?}", self.jitter), "it must be at most 24h")?;
        let starts = self.starts.map_or(0, unix_secs_ceil);
        let ends = self.ends.map(unix_secs_ceil);
        let rule = "it must be after the start";
        policy(ends.is_none_or(|ends| ends > starts), "ends", format!("{}", ends.unwrap_or(0)), rule)?;
        let composed = compose(task.clone(), TaskOptions::new().task_id("x"), 0)?;
        if task.options.front {
            return Err(queue_core::OptionError::NotInFront { what: "a periodic task" }.into());
        }
        let options = option_text::format(&task.options);
        let name = match &self.name {
            Some(name) => name.clone(),
            None if task.options.headers.contains_key(ENCRYPTED) => return Err(EntryProblem::Unnamed),
            None => digest(&text, &task, &options),
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._:@+-".contains(c);
        if name.is_empty() || name.len() > 200 || !name.chars().all(allowed) {
            return Err(EntryProblem::Name(name));
        }
        Ok(Schedule {
            name,
            queue: composed.message.queue,
            text,
            spec,
            task,
            options,
            missed: self.missed,
            overlap: self.overlap,
            jitter: secs_ceil(self.jitter),
            starts,
            ends: ends.unwrap_or(i64::MAX),
            max_runs: self.max_runs.unwrap_or(0),
        })
    }
}

/// The identity that Go's periodic task manager gives an entry.
fn digest(spec: &str, task: &RawTask, options: &[String]) -> String {
    let mut options = options.to_vec();
    options.sort();
    let mut hash = Sha256::new();
    hash.update(spec);
    hash.update(&task.task_type);
    hash.update(task.payload.as_deref().unwrap_or_default());
    options.iter().for_each(|option| hash.update(option));
    hash.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

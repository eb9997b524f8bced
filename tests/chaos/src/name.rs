//! The tasks of a run: everything about one follows from its name, so that a ledger of names is enough.

use std::fmt;
use std::time::Duration;

use queue_core::RawTask;
use queue_core::limit::{Limit, LimitKey};

/// Most tasks are in the first four.
pub(crate) const QUEUES: [&str; 24] = [
    "chaos-0", "chaos-1", "chaos-2", "chaos-3", "chaos-4", "chaos-5", "chaos-6", "chaos-7", "chaos-8", "chaos-9",
    "chaos-10", "chaos-11", "chaos-12", "chaos-13", "chaos-14", "chaos-15", "chaos-16", "chaos-17", "chaos-18",
    "chaos-19", "chaos-20", "chaos-21", "chaos-22", "chaos-23",
];

/// The groups of each queue.
pub(crate) const GROUPS: [&str; 3] = ["g0", "g1", "g2"];

/// The header that carries the name of a task.
pub(crate) const HEADER: &str = "chaos";

/// The header by which tasks are limited.
pub(crate) const KEY_HEADER: &str = "chaos-key";
const KEYS: [&str; 2] = ["a", "b"];
/// How many tasks of one key run at once in the first queue.
const AT_ONCE: u32 = 2;

/// The type of the tasks that groups become.
pub(crate) const DIGEST: &str = "chaos:digest";

const HOUR: Duration = Duration::from_secs(3_600);

/// Payloads of unique tasks, so few that some meet.
const UNIQUE_PAYLOADS: u32 = 400;

/// Retries of a task that kills its workers. Ours spend none; Go spends one on each crash it finds.
pub(crate) const POISON_RETRIES: u32 = 3;

/// What a task is meant to go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Plan {
    /// Succeeds at once.
    Plain,
    /// Takes up to two seconds, so that faults meet it half-way.
    Slow,
    /// Succeeds, and has a payload of 64 KiB to 1 MiB.
    Large,
    /// Succeeds and is kept with its result.
    Kept,
    /// Holds a uniqueness lock.
    Unique,
    /// Starts some seconds later.
    Scheduled,
    /// Fails once to three times, then succeeds.
    Flaky,
    /// Its handler archives it.
    Doomed,
    /// Fails until its only retry is used up.
    Exhausted,
    /// Becomes a digest together with others.
    Grouped,
    /// Its producer cancels it for good, up to a second and a half later.
    Unwanted,
    /// Its handler stores a checkpoint again and again, and goes on from the last one.
    Careful,
    /// Has a key, of which only so many run at once, or one after another in their order.
    Limited,
    /// Its handler kills the process that it runs in. Not drawn: it is a fault.
    Poison,
    /// A member of a batch whose handler adds members to it. This and the callbacks of batches are not drawn either.
    Adder,
    /// A broadcast: each of several servers runs it.
    Everywhere,
    /// Its callback, when nothing is left to be done.
    AfterEverywhere,
    /// The callback of a batch whose members have all succeeded.
    AfterSuccess,
    /// The one when all were attempted.
    AfterComplete,
    /// The one when a member has died.
    AfterDeath,
    /// The one when nothing is left to be done.
    AfterAll,
}

/// Where a task is in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Gone,
    Completed,
    Archived,
}

impl Plan {
    pub(crate) const ALL: [Plan; 21] = [
        Plan::Plain,
        Plan::Slow,
        Plan::Large,
        Plan::Kept,
        Plan::Unique,
        Plan::Scheduled,
        Plan::Flaky,
        Plan::Doomed,
        Plan::Exhausted,
        Plan::Grouped,
        Plan::Unwanted,
        Plan::Careful,
        Plan::Limited,
        Plan::Poison,
        Plan::Adder,
        Plan::Everywhere,
        Plan::AfterEverywhere,
        Plan::AfterSuccess,
        Plan::AfterComplete,
        Plan::AfterDeath,
        Plan::AfterAll,
    ];

    /// The callbacks of a batch.
    pub(crate) const CALLBACKS: [Plan; 4] = [Plan::AfterSuccess, Plan::AfterComplete, Plan::AfterDeath, Plan::AfterAll];

    /// How many of a thousand tasks. Few are archived, for an archive keeps 9,999 per queue.
    fn share(self) -> u32 {
        match self {
            Plan::Plain => 482,
            Plan::Large => 2,
            Plan::Slow => 20,
            Plan::Kept => 40,
            Plan::Unique => 100,
            Plan::Scheduled => 100,
            Plan::Flaky => 90,
            Plan::Doomed => 8,
            Plan::Exhausted => 8,
            Plan::Grouped => 94,
            Plan::Unwanted => 10,
            Plan::Careful => 6,
            Plan::Limited => 40,
            Plan::Poison | Plan::Adder | Plan::Everywhere | Plan::AfterEverywhere => 0,
            Plan::AfterSuccess | Plan::AfterComplete | Plan::AfterDeath | Plan::AfterAll => 0,
        }
    }

    fn letter(self) -> char {
        match self {
            Plan::Plain => 'p',
            Plan::Slow => 's',
            Plan::Large => 'l',
            Plan::Kept => 'k',
            Plan::Unique => 'u',
            Plan::Scheduled => 't',
            Plan::Flaky => 'f',
            Plan::Doomed => 'd',
            Plan::Exhausted => 'x',
            Plan::Grouped => 'g',
            Plan::Unwanted => 'n',
            Plan::Careful => 'v',
            Plan::Limited => 'r',
            Plan::Poison => 'c',
            Plan::Adder => 'a',
            Plan::Everywhere => 'b',
            Plan::AfterEverywhere => 'h',
            Plan::AfterSuccess => 'w',
            Plan::AfterComplete => 'm',
            Plan::AfterDeath => 'e',
            Plan::AfterAll => 'z',
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Plan::Plain => "plain",
            Plan::Slow => "slow",
            Plan::Large => "with a payload of 64 KiB to 1 MiB",
            Plan::Kept => "kept with a result",
            Plan::Unique => "unique",
            Plan::Scheduled => "scheduled",
            Plan::Flaky => "failing, then succeeding",
            Plan::Doomed => "archived by the handler",
            Plan::Exhausted => "archived without retries",
            Plan::Grouped => "grouped",
            Plan::Unwanted => "cancelled for good by their producer",
            Plan::Careful => "going on from checkpoints",
            Plan::Limited => "under a limit",
            Plan::Poison => "killing their worker",
            Plan::Adder => "adding members to their batch",
            Plan::Everywhere => "broadcasts",
            Plan::AfterEverywhere => "callbacks of broadcasts that settled",
            Plan::AfterSuccess => "callbacks of batches that succeeded",
            Plan::AfterComplete => "callbacks of batches that were attempted",
            Plan::AfterDeath => "callbacks of batches with a death",
            Plan::AfterAll => "callbacks of batches that settled",
        }
    }

    pub(crate) fn ends(self) -> Place {
        match self {
            Plan::Kept => Place::Completed,
            Plan::Doomed | Plan::Exhausted | Plan::Poison => Place::Archived,
            _ => Place::Gone,
        }
    }
}

/// The name of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) plan: Plan,
    pub(crate) queue: u8,
    /// Number of the process that enqueues it.
    pub(crate) producer: u16,
    pub(crate) number: u32,
}

impl Name {
    /// The task of this number; its plan and queue are drawn from the seed.
    pub(crate) fn draw(seed: u64, producer: u16, number: u32) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ (u64::from(producer) << 32) ^ u64::from(number));
        let mut left = random.u32(0..1_000);
        let plan = Plan::ALL.into_iter().find(|plan| {
            let share = plan.share();
            let hit = left < share;
            left = left.saturating_sub(share);
            hit
        });
        let plan = plan.unwrap_or(Plan::Plain);
        let queue = match random.u8(0..4) {
            _ if plan == Plan::Limited => random.u8(0..limits().len() as u8),
            0 => random.u8(0..QUEUES.len() as u8),
            _ => random.u8(0..4),
        };
        Self { plan, queue, producer, number }
    }

    /// The same as a number.
    pub(crate) fn key(self) -> u64 {
        let plan = Plan::ALL.iter().position(|plan| *plan == self.plan).unwrap_or(0) as u64;
        plan << 56 | u64::from(self.queue) << 48 | u64::from(self.producer) << 32 | u64::from(self.number)
    }

    pub(crate) fn of_key(key: u64) -> Self {
        let byte = |shift: u32| (key >> shift & 0xff) as u8;
        Self {
            plan: Plan::ALL[usize::from(byte(56)) % Plan::ALL.len()],
            queue: byte(48),
            producer: (key >> 32 & 0xffff) as u16,
            number: (key & 0xffff_ffff) as u32,
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut letters = text.chars();
        let letter = letters.next()?;
        let plan = Plan::ALL.into_iter().find(|plan| plan.letter() == letter)?;
        let mut numbers = letters.as_str().split('-');
        let name = Self {
            plan,
            queue: numbers.next()?.parse().ok()?,
            producer: numbers.next()?.parse().ok()?,
            number: numbers.next()?.parse().ok()?,
        };
        (numbers.next().is_none() && usize::from(name.queue) < QUEUES.len()).then_some(name)
    }

    pub(crate) fn queue_name(self) -> &'static str {
        QUEUES[usize::from(self.queue) % QUEUES.len()]
    }

    /// How often its handler is meant to fail.
    pub(crate) fn failures(self) -> u32 {
        match self.plan {
            Plan::Flaky => 1 + self.number % 3,
            Plan::Limited => u32::from(self.number.is_multiple_of(7)),
            Plan::Exhausted => 2,
            Plan::Doomed => 1,
            _ => 0,
        }
    }

    /// How long it waits before it starts.
    pub(crate) fn delay(self) -> Duration {
        match self.plan {
            Plan::Scheduled => Duration::from_secs(1 + u64::from(self.number % 7)),
            Plan::Unwanted if self.number.is_multiple_of(3) => Duration::from_secs(1),
            _ => Duration::ZERO,
        }
    }

    /// How long its handler takes.
    pub(crate) fn work(self) -> Duration {
        match self.plan {
            Plan::Unwanted => Duration::from_millis(u64::from(self.number * 41 % 1_200)),
            Plan::Limited => Duration::from_millis(20 + u64::from(self.number * 29 % 140)),
            Plan::Slow => Duration::from_millis(200 + u64::from(self.number * 37 % 1_800)),
            _ if self.number.is_multiple_of(10) => Duration::from_millis(u64::from(self.number / 10 % 20)),
            _ => Duration::ZERO,
        }
    }

    /// The key of a task under a limit.
    pub(crate) fn limit_key(self) -> &'static str {
        KEYS[self.number as usize % KEYS.len()]
    }

    /// How long after it was enqueued its producer cancels it.
    pub(crate) fn unwanted_after(self) -> Duration {
        Duration::from_millis(u64::from(self.number * 53 % 1_500))
    }

    /// The payload of a large task.
    pub(crate) fn large_payload(self) -> Vec<u8> {
        let length = 64 * 1_024 + self.number as usize * 7_919 % (960 * 1_024);
        self.to_string().bytes().cycle().take(length).collect()
    }

    /// Whether the library makes its id, as most users let it.
    pub(crate) fn has_generated_id(self) -> bool {
        self.number.is_multiple_of(2)
    }

    pub(crate) fn task(self) -> RawTask {
        let task = self.task_of_batch();
        if self.has_generated_id() { task } else { task.task_id(self.to_string()) }
    }

    /// The same without an id of its own.
    pub(crate) fn task_of_batch(self) -> RawTask {
        let kind = format!("chaos:{}", self.plan.letter());
        let task = RawTask::new(kind).queue(self.queue_name()).header(HEADER, self.to_string());
        match self.plan {
            Plan::Kept => task.retention(6 * HOUR),
            Plan::Unique => task.unique(HOUR).payload((self.number % UNIQUE_PAYLOADS).to_string()),
            Plan::Scheduled | Plan::Unwanted => task.process_in(self.delay()),
            Plan::Exhausted => task.max_retry(1),
            Plan::Grouped => task.group(GROUPS[self.number as usize % GROUPS.len()]),
            Plan::Large => task.payload(self.large_payload()),
            Plan::Limited => task.header(KEY_HEADER, self.limit_key()),
            Plan::Poison => task.unique(HOUR).payload(self.to_string()).max_retry(POISON_RETRIES),
            _ => task,
        }
    }
}

/// The limits of the first queues.
pub(crate) fn limits() -> [Limit; 3] {
    let limit = || Limit::new("key", LimitKey::header(KEY_HEADER));
    let rate = limit().concurrency(1).rate(40, Duration::from_secs(1)).burst(10);
    [limit().concurrency(AT_ONCE), rate, limit().strict_order()]
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}-{}-{}", self.plan.letter(), self.queue, self.producer, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_being_written_and_numbered() {
        for number in 0..2_000 {
            let name = Name::draw(7, 3, number);
            assert_eq!(Name::parse(&name.to_string()), Some(name));
            assert_eq!(Name::of_key(name.key()), name);
        }
        let poison = Name { plan: Plan::Poison, queue: 3, producer: 9, number: 7 };
        assert_eq!((Name::parse("c3-9-7"), Name::of_key(poison.key())), (Some(poison), poison));
        for nonsense in ["", "q0-1-2", "p24-1-2", "p0-1", "p0-1-2-3", "p0-x-2"] {
            assert_eq!(Name::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn every_plan_is_drawn_and_the_shares_add_up() {
        assert_eq!(Plan::ALL.iter().map(|plan| plan.share()).sum::<u32>(), 1_000);
        let drawn: std::collections::BTreeSet<Plan> = (0..10_000).map(|n| Name::draw(1, 0, n).plan).collect();
        assert_eq!(drawn.len(), Plan::ALL.len() - 8, "all but poison, and what batches and broadcasts are made of");
    }
}

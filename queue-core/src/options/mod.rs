//! The options of a task, and the rules that compose them into a message.

mod compose;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

pub(crate) use self::compose::check_task_type;
pub use self::compose::{
    Composed, MAX_NAME_LEN, OptionError, Placement, check_existing_queue_name, check_limited_queue, check_queue_name,
    compose, compose_for,
};
use crate::keys::DEFAULT_QUEUE;
use crate::queue_name::{Family, QueueName};
use crate::retry::RetryPolicy;
use crate::unique::UniqueUntil;

/// Retries of a task when none are given.
pub const DEFAULT_MAX_RETRY: u32 = 25;
/// Time one attempt may take when neither timeout nor deadline is given.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// When a task should start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessTime {
    /// After this long.
    In(Duration),
    /// At this instant.
    At(SystemTime),
}

/// Options of a task, all of asynq's. An option that was not set keeps its default.
///
/// Options come from the task type, from the task and from the call, in this order; the last value of
/// each kind wins, and headers add up, the last value of each key winning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskOptions {
    /// See [`queue`](Self::queue).
    pub queue: Option<String>,
    /// See [`max_retry`](Self::max_retry).
    pub max_retry: Option<u32>,
    /// See [`timeout`](Self::timeout).
    pub timeout: Option<Duration>,
    /// See [`deadline`](Self::deadline).
    pub deadline: Option<SystemTime>,
    /// See [`process_in`](Self::process_in) and [`process_at`](Self::process_at).
    pub process: Option<ProcessTime>,
    /// See [`task_id`](Self::task_id).
    pub task_id: Option<String>,
    /// See [`unique`](Self::unique).
    pub unique: Option<Duration>,
    /// See [`unique_until`](Self::unique_until).
    pub unique_until: Option<UniqueUntil>,
    /// See [`unique_key`](Self::unique_key).
    pub unique_key: Option<String>,
    /// See [`retention`](Self::retention).
    pub retention: Option<Duration>,
    /// See [`group`](Self::group).
    pub group: Option<String>,
    /// See [`max_crashes`](Self::max_crashes).
    pub max_crashes: Option<u32>,
    /// See [`max_snoozes`](Self::max_snoozes).
    pub max_snoozes: Option<u32>,
    /// See [`give_up_after`](Self::give_up_after).
    pub give_up_after: Option<Duration>,
    /// See [`backoff`](Self::backoff).
    pub backoff: Option<RetryPolicy>,
    /// See [`on_exhausted`](Self::on_exhausted).
    pub on_exhausted: Option<String>,
    /// See [`on_exhausted_queue`](Self::on_exhausted_queue).
    pub on_exhausted_queue: Option<String>,
    /// Which queue of the family of `queue` it goes to; see [`priority`](Self::priority).
    pub family: Option<Family>,
    /// See [`fallback`](Self::fallback).
    pub fallback: Option<Duration>,
    /// See [`front`](Self::front).
    pub front: bool,
    /// See [`header`](Self::header).
    pub headers: BTreeMap<String, String>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($value:ident: $type:ty) => $field:ident = $expr:expr;)*) => {
        impl TaskOptions {
            $($(#[$doc])* #[must_use]
            pub fn $name(mut self, $value: $type) -> Self {
                self.$field = Some($expr);
                self
            })*
        }
        /// The same setters as on [`TaskOptions`].
        impl RawTask {
            $($(#[$doc])* #[must_use]
            pub fn $name(mut self, $value: $type) -> Self {
                self.options = self.options.$name($value);
                self
            })*
        }
    };
}

setters! {
    /// The queue to put the task in. Any text that is not blank, of at most 1,024 bytes ([`MAX_NAME_LEN`]) and without
    /// control characters and `}:`; used as it is. Defaults to `default`.
    queue(name: impl Into<String>) => queue = name.into();
    /// How often a failed task is tried again. 0: the first failure archives it. Defaults to 25.
    max_retry(count: u32) => max_retry = count;
    /// How long one attempt may take; with a deadline too, the earlier of both counts. A fraction of a
    /// second is rounded up (asynq cuts it off, which turns 500 ms into "no timeout").
    /// Defaults to 30 minutes when there is no deadline either.
    timeout(duration: Duration) => timeout = duration;
    /// The instant after which the task is not worth running. Defaults to none.
    deadline(instant: impl Into<SystemTime>) => deadline = instant.into();
    /// Start after this long. Replaces [`process_at`](Self::process_at). Defaults to now.
    process_in(delay: Duration) => process = ProcessTime::In(delay);
    /// Start at this instant, rounded up to the second; one that is past means now.
    /// Replaces [`process_in`](Self::process_in).
    process_at(instant: impl Into<SystemTime>) => process = ProcessTime::At(instant.into());
    /// The id of the task, of at most 1,024 bytes and without control characters. An id that is taken in this queue, in any state, is refused.
    /// Defaults to a random UUID.
    task_id(id: impl Into<String>) => task_id = id.into();
    /// Refuse another task of the same type and payload in this queue until this one succeeds, is
    /// deleted, or this long has passed (from the time it starts, if it is scheduled). At least one
    /// second. Defaults to none.
    unique(ttl: Duration) => unique = ttl;
    /// Until when the lock of [`unique`](Self::unique) is held, if its time does not run out before. Go's servers know only
    /// [`Success`](UniqueUntil::Success), the default. Needs `unique`.
    unique_until(until: UniqueUntil) => unique_until = until;
    /// What the lock of [`unique`](Self::unique) is named after, instead of the payload: tasks of this type, in this queue and with this key
    /// exclude each other, whatever their payloads. Go's clients name locks after payloads, so tasks of a type that both
    /// enqueue should not have one. Needs `unique`.
    unique_key(key: impl Into<String>) => unique_key = key.into();
    /// Keep the task, with its result, this long after success. Rounded up to the second.
    /// Defaults to zero: it is deleted at once.
    retention(duration: Duration) => retention = duration;
    /// Collect the task in this group, to be aggregated with others. Any text that is not blank, of at most
    /// 1,024 bytes and without control characters.
    /// Defaults to none.
    group(name: impl Into<String>) => group = name.into();
    /// How often its workers may go silent over the task; the next time archives it. Go's servers spend a retry each time.
    /// Defaults to what the server says (5).
    max_crashes(count: u32) => max_crashes = count;
    /// How often the task may be snoozed, by its handler, by a 429, or because a server has no handler for its type; the next
    /// time archives it. Defaults to no limit.
    max_snoozes(count: u32) => max_snoozes = count;
    /// How long the task is tried again after it has failed first: a failure or a crash after that archives it, however many
    /// retries are left. At least one second. Defaults to no limit.
    give_up_after(duration: Duration) => give_up_after = duration;
    /// How long the task waits for its next attempt after a failure. A [function](RetryPolicy::Custom) is refused: it cannot
    /// travel. Defaults to the policy of the server.
    backoff(policy: RetryPolicy) => backoff = policy;
    /// The type of a task that is enqueued when a server of ours archives this one, once each time, whoever dies meanwhile. Its
    /// payload is an [`Exhausted`](crate::exhausted::Exhausted), as JSON. What Go's servers and operators archive has no such
    /// task. Defaults to none.
    on_exhausted(task_type: impl Into<String>) => on_exhausted = task_type.into();
    /// The queue of the task that [`on_exhausted`](Self::on_exhausted) names. Defaults to the queue of this one, without its
    /// priority, server or labels.
    on_exhausted_queue(name: impl Into<String>) => on_exhausted_queue = name.into();
    /// How urgent the task is, from 0 to 9. Each priority but 5 is a queue of its own (`mail}p9`), served by servers with
    /// priorities, and by Go's that name it. Defaults to 5, the queue itself.
    priority(level: u8) => family = Family::Level(level);
    /// Only a server of this [name](crate::registry) may run the task: it waits in the mailbox of the name, a queue of its own
    /// (`mail}@web-1`), which Go's servers can name, too. Of `priority`, `only` and `label` the last one counts. Defaults to any
    /// server of the queue.
    only(server: impl Into<String>) => family = Family::Mailbox(server.into());
    /// When no server that may run the task has been alive for this long, any server of the queue may: the task moves to the plain
    /// queue. At least one second; the leader of the fleet looks every 15 s to 60 s. Needs `only` or `label`. Defaults to
    /// never.
    fallback(duration: Duration) => fallback = duration;
}

impl TaskOptions {
    /// No option set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a header, metadata that travels with the task. Defaults to none.
    #[must_use]
    pub fn header(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(key.into(), value.into());
        self
    }

    /// The task is pending in front of all others of its queue, so that it is taken next, by Go's servers too. Of several, the one that
    /// was enqueued last is taken first, so that a steady stream of them lets the others wait for ever: a
    /// [`priority`](Self::priority) does not. A task with a time or a group is refused, and so is one that is published, periodic or a member
    /// of a batch. Where a limit lets it wait, it waits in its lane as any other; a retry goes behind the others.
    #[must_use]
    pub fn front(mut self) -> Self {
        self.front = true;
        self
    }

    /// Only servers with this label may run the task; given more than once, only servers with all of them. It waits in a
    /// queue of its own (`mail}#gpu`). Of `priority`, `only` and `label` the last one counts. Defaults to any server of
    /// the queue.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        let mut labels = match self.family {
            Some(Family::Labels(labels)) => labels,
            _ => BTreeSet::new(),
        };
        labels.insert(label.into());
        self.family = Some(Family::Labels(labels));
        self
    }

    /// The name of the queue that a task with these options goes to.
    pub fn queue_name(&self) -> String {
        let base = self.queue.as_deref().unwrap_or(DEFAULT_QUEUE);
        self.family.clone().map_or_else(|| base.to_owned(), |family| QueueName::new(base, family).to_string())
    }

    /// These options, with those of `later` winning where both have a value.
    #[must_use]
    pub fn overlaid_with(mut self, later: TaskOptions) -> Self {
        self.headers.extend(later.headers);
        Self {
            queue: later.queue.or(self.queue),
            max_retry: later.max_retry.or(self.max_retry),
            timeout: later.timeout.or(self.timeout),
            deadline: later.deadline.or(self.deadline),
            process: later.process.or(self.process),
            task_id: later.task_id.or(self.task_id),
            unique: later.unique.or(self.unique),
            unique_until: later.unique_until.or(self.unique_until),
            unique_key: later.unique_key.or(self.unique_key),
            retention: later.retention.or(self.retention),
            group: later.group.or(self.group),
            max_crashes: later.max_crashes.or(self.max_crashes),
            max_snoozes: later.max_snoozes.or(self.max_snoozes),
            give_up_after: later.give_up_after.or(self.give_up_after),
            backoff: later.backoff.or(self.backoff),
            on_exhausted: later.on_exhausted.or(self.on_exhausted),
            on_exhausted_queue: later.on_exhausted_queue.or(self.on_exhausted_queue),
            family: later.family.or(self.family),
            fallback: later.fallback.or(self.fallback),
            front: later.front || self.front,
            headers: self.headers,
        }
    }
}

/// A task without a Rust type: a type name, payload bytes and options.
///
/// ```
/// use std::time::Duration;
/// use queue_core::RawTask;
///
/// let task = RawTask::new("email:welcome")
///     .payload(r#"{"user":7}"#)
///     .queue("mail")
///     .process_in(Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawTask {
    /// The task type.
    pub task_type: String,
    /// The payload; `None` and empty bytes lock differently when the task is unique, see
    /// [`QueueKeys::unique`](crate::keys::QueueKeys::unique).
    pub payload: Option<Bytes>,
    /// The options of the task.
    pub options: TaskOptions,
}

impl RawTask {
    /// A task of this type without a payload.
    pub fn new(task_type: impl Into<String>) -> Self {
        Self { task_type: task_type.into(), payload: None, options: TaskOptions::default() }
    }

    /// Sets the payload.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    /// As [`TaskOptions::front`].
    #[must_use]
    pub fn front(mut self) -> Self {
        self.options.front = true;
        self
    }

    /// As [`TaskOptions::label`].
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.options = self.options.label(label);
        self
    }

    /// Adds options; those given here win over those already set.
    #[must_use]
    pub fn with(mut self, options: TaskOptions) -> Self {
        self.options = self.options.overlaid_with(options);
        self
    }

    /// Adds a header, metadata that travels with the task.
    #[must_use]
    pub fn header(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options = self.options.header(key, value);
        self
    }
}

//! The rules that compose a task and its options into a message, or refuse them by name.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::{DEFAULT_MAX_RETRY, DEFAULT_TIMEOUT, ProcessTime, RawTask, TaskOptions};
use crate::budget::{Budget, BudgetError, ON_EXHAUSTED, ON_EXHAUSTED_QUEUE};
use crate::clock::{secs_ceil, unix_ns, unix_secs_ceil};
use crate::duration;
use crate::keys::{DEFAULT_QUEUE, QueueKeys};
use crate::limits::LAST_SECOND;
use crate::queue_name::{Family, FamilyError, QueueName, base_of};
use crate::target::FALLBACK;
use crate::unique::{UNIQUE_UNTIL, UniqueUntil};
use crate::wire::TaskMessage;

/// An option that cannot be honoured. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The task type is empty or only white space.
    #[error("the task type is blank; give it a name like email:welcome")]
    BlankType,
    /// The queue name is empty or only white space.
    #[error("the queue name is blank")]
    BlankQueue,
    /// The task id is empty or only white space.
    #[error("the task id is blank; leave it out to have one made")]
    BlankTaskId,
    /// The id is one of those by which tasks belong to batches.
    #[error("the task id begins with \"flow:\", which is kept for members of batches; choose another")]
    ReservedTaskId,
    /// A task is to be published and has no key.
    #[error("a task is published under a key; give it one")]
    NoKey,
    /// A key that is kept for the tasks that follow those of another key.
    #[error("the key ends with \"~\", which is kept for tasks that follow others; choose another")]
    ReservedKey,
    /// A task is to be published and has an option that does not go with a key.
    #[error("a task that is published under a key cannot have {option}; {instead}")]
    NotWithKey {
        /// The option in question.
        option: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
    /// A time of a publish that is none.
    #[error("{option} is 0s, which is no time; leave it out, or give a longer one")]
    NoTime {
        /// The option in question.
        option: &'static str,
    },
    /// A longest wait for a task that nothing puts off.
    #[error(
        "max_wait says how long a task is put off at the most, and nothing puts it off; debounce, or reschedule, too"
    )]
    NeedsReschedule,
    /// A longest wait that is over before the quiet time.
    #[error("max_wait is {max_wait:?}, which is shorter than the debounce of {quiet:?}; give a longer one")]
    MaxWaitTooShort {
        /// The longest wait.
        max_wait: Duration,
        /// The quiet time.
        quiet: Duration,
    },
    /// A task that is to be taken next, and cannot be.
    #[error("front has a task taken next, and {what} cannot be; leave front out")]
    NotInFront {
        /// What it is: `a task with a time`, say.
        what: &'static str,
    },
    /// The group name is empty or only white space.
    #[error("the group name is blank")]
    BlankGroup,
    /// The uniqueness lock would live less than a second.
    #[error("unique is {0:?}; it must be at least 1s")]
    UniqueTooShort(Duration),
    /// An option that says something about a lock which the task does not have.
    #[error("{option} says something about the uniqueness lock, and the task has none; give it unique, too")]
    NeedsUnique {
        /// The option in question.
        option: &'static str,
    },
    /// The number of retries does not fit the message.
    #[error("max_retry is {0}; the largest is {max}", max = i32::MAX)]
    MaxRetryTooLarge(u32),
    /// A fallback that is none.
    #[error("fallback is {0:?}; it must be at least 1s")]
    FallbackTooShort(Duration),
    /// A fallback of a task that any server may run.
    #[error("fallback says what becomes of a task whose servers are gone; give it only or label, too")]
    NeedsTarget,
    /// A priority, a server or a label that there cannot be.
    #[error(transparent)]
    Family(#[from] FamilyError),
    /// The name of a queue that belongs to another one.
    #[error("the queue name {0:?} is that of a part of the queue {base:?}; name {base:?}, and give the priority, the server or the labels", base = base_of(.0))]
    QueueOfFamily(String),
    /// A budget that is none.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// A queue name that would break Redis Cluster.
    #[error("the queue name {0:?} begins with a closing brace, which spreads its keys over the slots of a cluster")]
    QueueBreaksHashTag(String),
    /// A queue name whose keys would be keys of another queue.
    #[error(
        "the queue name {0:?} contains \"}}:\", which makes its keys those of another queue; leave out the brace or the colon"
    )]
    QueueOverlapsAnother(String),
    /// A name with a control character, which would garble every list it is shown in.
    #[error("the {what} {text:?} contains a control character; leave it out")]
    ControlCharacter {
        /// Which name: `queue name`, `task type`, `task id` or `group name`.
        what: &'static str,
        /// The name, shortened.
        text: String,
    },
    /// A name that is too long to be one.
    #[error("the {what} is {bytes} bytes long, and {max} are the most; put data into the payload", max = MAX_NAME_LEN)]
    NameTooLong {
        /// Which name: `queue name`, `task type`, `task id` or `group name`.
        what: &'static str,
        /// Its length in bytes.
        bytes: usize,
    },
    /// A time that a whole number of seconds cannot hold or that Redis would print with an exponent.
    #[error("{option} lies beyond the year 9999")]
    TimeTooFar {
        /// The option in question.
        option: &'static str,
    },
}

/// The longest name of a queue, task type, task or group that a client of ours sends, in bytes. It becomes a
/// part of many keys, log lines and lists. Longer ones that Go has written are read and worked all the same.
pub const MAX_NAME_LEN: usize = 1_024;

/// Where a new task goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Ready for a worker.
    Pending,
    /// Ready for a worker, in front of all others.
    Front,
    /// To be started at this Unix second.
    Scheduled {
        /// Unix seconds.
        at: i64,
    },
    /// Into the group named in the message.
    Aggregating,
}

impl Placement {
    /// The Unix second at which it is to be started; `None` for now, or when its group is.
    pub fn due(&self) -> Option<i64> {
        if let Self::Scheduled { at } = self { Some(*at) } else { None }
    }
}

/// A task that is ready to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composed {
    /// The message, complete.
    pub message: TaskMessage,
    /// Where it goes.
    pub placement: Placement,
    /// Seconds the uniqueness lock named in the message lives; 0 for none, below 0 for a [window](UniqueUntil::Window) of so many.
    pub unique_ttl: i64,
    /// Whether the id was made here: if it is taken, then by this very task.
    pub generated_id: bool,
    /// Whether the lock is named after a key that the user has chosen.
    pub has_own_lock: bool,
}

/// Composes a task and the options of the call into what is stored, by asynq's rules.
///
/// A time in the future wins over a group; the group then stays in the message, and the task joins it
/// when its time comes (asynq forgets the group in that case).
///
/// # Errors
/// When an option cannot be honoured; see [`OptionError`].
pub fn compose(task: RawTask, call: TaskOptions, now_ns: i64) -> Result<Composed, OptionError> {
    compose_checked(task, call, now_ns, check_queue_name)
}

/// The same for this queue, which exists, whatever Go has called it. A priority or target of the task does not count.
///
/// # Errors
/// When an option cannot be honoured; see [`OptionError`].
pub fn compose_for(queue: &str, mut task: RawTask, now_ns: i64) -> Result<Composed, OptionError> {
    if task.options.front {
        return Err(OptionError::NotInFront { what: "what tasks are aggregated into" });
    }
    (task.options.family, task.options.fallback) = (None, None);
    compose_checked(task, TaskOptions::new().queue(queue), now_ns, check_existing_queue_name)
}

fn compose_checked(
    task: RawTask,
    call: TaskOptions,
    now_ns: i64,
    check_queue: fn(&str) -> Result<(), OptionError>,
) -> Result<Composed, OptionError> {
    let RawTask { task_type, payload, options } = task;
    let options = options.overlaid_with(call);
    check_task_type(&task_type)?;
    let mut queue = options.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned());
    check_queue(&queue)?;
    if let Some(fallback) = options.fallback {
        if fallback < Duration::from_secs(1) {
            return Err(OptionError::FallbackTooShort(fallback));
        }
        if !options.family.as_ref().is_some_and(Family::is_target) {
            return Err(OptionError::NeedsTarget);
        }
    }
    if let Some(family) = options.family {
        family.check()?;
        queue = QueueName::new(&queue, family).to_string();
        check_name("queue name", &queue)?;
    }
    if options.task_id.as_deref().is_some_and(|id| id.trim().is_empty()) {
        return Err(OptionError::BlankTaskId);
    }
    if options.group.as_deref().is_some_and(|group| group.trim().is_empty()) {
        return Err(OptionError::BlankGroup);
    }
    for (what, name) in [("task id", &options.task_id), ("group name", &options.group)] {
        name.as_deref().map_or(Ok(()), |name| check_name(what, name))?;
    }
    if let Some(ttl) = options.unique
        && ttl < Duration::from_secs(1)
    {
        return Err(OptionError::UniqueTooShort(ttl));
    }
    let max_retry = options.max_retry.unwrap_or(DEFAULT_MAX_RETRY);
    let retry = i32::try_from(max_retry).map_err(|_| OptionError::MaxRetryTooLarge(max_retry))?;

    // A zero timeout counts as "given" in asynq and then means none; so do we keep it, unless there is
    // no deadline either: then a message would have neither, which Go logs as an internal error (R10).
    let deadline = options.deadline.map_or(0, unix_secs_ceil);
    let timeout = match options.timeout {
        Some(timeout) if timeout > Duration::ZERO => secs_ceil(timeout),
        Some(_) | None if deadline != 0 => 0,
        Some(_) | None => secs_ceil(DEFAULT_TIMEOUT),
    };
    let retention = options.retention.map_or(0, secs_ceil);

    let in_front_is_no = |what| if options.front { Err(OptionError::NotInFront { what }) } else { Ok(()) };
    // Of a time that is still to come: the option, and the second.
    let start = match options.process {
        None => None,
        Some(ProcessTime::In(delay)) => {
            let nanos = i128::from(now_ns) + i128::try_from(delay.as_nanos()).unwrap_or(i128::MAX / 2);
            let second = nanos.div_euclid(1_000_000_000) + i128::from(nanos.rem_euclid(1_000_000_000) > 0);
            (!delay.is_zero()).then(|| ("process_in", i64::try_from(second).unwrap_or(i64::MAX)))
        }
        Some(ProcessTime::At(instant)) => (unix_ns(instant) > now_ns).then(|| ("process_at", unix_secs_ceil(instant))),
    };
    let placement = if let Some((_, at)) = start {
        in_front_is_no("a task with a time")?;
        Placement::Scheduled { at }
    } else if options.group.is_some() {
        in_front_is_no("a task in a group")?;
        Placement::Aggregating
    } else if options.front {
        Placement::Front
    } else {
        Placement::Pending
    };
    let times = [("deadline", deadline), ("timeout", timeout), ("retention", retention)];
    for (option, value) in times.into_iter().chain(start) {
        if value > LAST_SECOND {
            return Err(OptionError::TimeTooFar { option });
        }
    }

    let has_own_lock = options.unique_key.is_some();
    for (option, is_given) in [("unique_until", options.unique_until.is_some()), ("unique_key", has_own_lock)] {
        if is_given && options.unique.is_none() {
            return Err(OptionError::NeedsUnique { option });
        }
    }
    let mut headers = options.headers;
    if let Some(until) = options.unique_until.filter(|until| *until != UniqueUntil::Success) {
        headers.insert(UNIQUE_UNTIL.to_owned(), until.as_str().to_owned());
    }
    let budget = Budget {
        max_crashes: options.max_crashes,
        max_snoozes: options.max_snoozes,
        give_up_after: options.give_up_after,
        backoff: options.backoff,
        on_exhausted: options.on_exhausted,
        on_exhausted_queue: options.on_exhausted_queue,
    };
    budget.write(&mut headers)?;
    check_follow_up(&headers)?;
    if let Some(fallback) = options.fallback {
        headers.insert(FALLBACK.to_owned(), duration::format(Duration::from_secs(fallback.as_secs())));
    }
    let (unique_key, unique_ttl) = match options.unique {
        None => (String::new(), 0),
        Some(ttl) => {
            let waiting = match placement {
                Placement::Scheduled { at } => at.saturating_sub(now_ns.div_euclid(1_000_000_000)).max(0),
                _ => 0,
            };
            let ttl = secs_ceil(ttl).saturating_add(waiting);
            if ttl > LAST_SECOND {
                return Err(OptionError::TimeTooFar { option: "unique" });
            }
            let of = options.unique_key.as_ref().map_or(payload.as_deref(), |key| Some(key.as_bytes()));
            (QueueKeys::new(&queue).unique(&task_type, of), options.unique_until.unwrap_or_default().ttl(ttl))
        }
    };
    let generated_id = options.task_id.is_none();
    let message = TaskMessage {
        r#type: task_type,
        payload: payload.unwrap_or_else(Bytes::new),
        id: options.task_id.unwrap_or_else(|| Uuid::new_v4().to_string()),
        queue,
        retry,
        timeout,
        deadline,
        unique_key,
        retention,
        group_key: options.group.unwrap_or_default(),
        headers,
        ..TaskMessage::default()
    };
    Ok(Composed { message, placement, unique_ttl, generated_id, has_own_lock })
}

/// Whether a name can be shown, and used as a part of keys.
fn check_name(what: &'static str, name: &str) -> Result<(), OptionError> {
    if name.len() > MAX_NAME_LEN {
        return Err(OptionError::NameTooLong { what, bytes: name.len() });
    }
    if name.contains(char::is_control) {
        return Err(OptionError::ControlCharacter { what, text: name.chars().take(80).collect() });
    }
    Ok(())
}

/// Checks the names of what follows the task, however they came into its headers.
fn check_follow_up(headers: &BTreeMap<String, String>) -> Result<(), BudgetError> {
    let check = |header, check: fn(&str) -> Result<(), OptionError>| match headers.get(header).map(|name| check(name)) {
        Some(Err(error)) => Err(BudgetError { header, reason: error.to_string() }),
        _ => Ok(()),
    };
    check(ON_EXHAUSTED, check_task_type)?;
    check(ON_EXHAUSTED_QUEUE, check_queue_name)
}

/// Checks the type of a new task.
pub(crate) fn check_task_type(task_type: &str) -> Result<(), OptionError> {
    if task_type.trim().is_empty() {
        return Err(OptionError::BlankType);
    }
    check_name("task type", task_type)
}

/// Checks the name of a queue that is to get tasks.
///
/// # Errors
/// As [`check_existing_queue_name`]; and when it is too long, has control characters, contains `}:`, so that its
/// keys would be those of another queue, or is that of a queue of a [family](crate::queue_name).
pub fn check_queue_name(queue: &str) -> Result<(), OptionError> {
    check_existing_queue_name(queue)?;
    check_name("queue name", queue)?;
    if queue.contains("}:") {
        return Err(OptionError::QueueOverlapsAnother(queue.to_owned()));
    }
    if base_of(queue) != queue {
        return Err(OptionError::QueueOfFamily(queue.to_owned()));
    }
    Ok(())
}

/// Checks the name of a queue that is served or restored; Go puts tasks into queues of nearly any name.
///
/// # Errors
/// When it is blank, or begins with `}` and would break the hash tag that keeps a queue in one slot.
pub fn check_existing_queue_name(queue: &str) -> Result<(), OptionError> {
    if queue.trim().is_empty() {
        return Err(OptionError::BlankQueue);
    }
    if queue.starts_with('}') {
        return Err(OptionError::QueueBreaksHashTag(queue.to_owned()));
    }
    Ok(())
}

/// Checks the name of a queue that is to have limits. It need not exist yet, and may be part of another one: a priority, a server,
/// labels.
///
/// # Errors
/// As [`check_queue_name`] for the queue that it is a part of.
pub fn check_limited_queue(queue: &str) -> Result<(), OptionError> {
    check_existing_queue_name(queue)?;
    check_queue_name(base_of(queue))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const NOW: i64 = 1_700_000_000_500_000_000;

    fn composed(task: RawTask) -> Composed {
        compose(task, TaskOptions::new(), NOW).unwrap()
    }

    #[test]
    fn defaults_are_asynqs() {
        let task = composed(RawTask::new("t"));
        assert_eq!(task.message.queue, "default");
        assert_eq!((task.message.retry, task.message.timeout, task.message.deadline), (25, 1800, 0));
        assert_eq!(task.placement, Placement::Pending);
        assert_eq!(task.message.id.len(), 36);
    }

    #[test]
    fn the_call_wins_over_the_task_and_headers_add_up() {
        let task = RawTask::new("t").queue("a").header("k", "1").header("x", "1");
        let call = TaskOptions::new().queue("b").header("k", "2");
        let message = compose(task, call, NOW).unwrap().message;
        assert_eq!(message.queue, "b");
        assert_eq!(message.headers, BTreeMap::from([("k".into(), "2".into()), ("x".into(), "1".into())]));
    }

    #[test]
    fn a_priority_is_a_queue_beside_the_one_that_was_named() {
        for (level, queue) in [(9, "mail}p9"), (0, "mail}p0"), (5, "mail")] {
            let task = composed(RawTask::new("t").queue("mail").priority(level).unique(Duration::from_secs(60)));
            assert_eq!(task.message.queue, queue);
            assert_eq!(task.message.unique_key, "asynq:{mail}:unique:t:", "one lock for all priorities");
        }
        let refused = |task| compose(task, TaskOptions::new(), NOW).unwrap_err();
        assert_eq!(refused(RawTask::new("t").priority(10)), OptionError::Family(FamilyError::PriorityTooHigh(10)));
        let by_name = refused(RawTask::new("t").queue("mail}p9"));
        assert_eq!(by_name, OptionError::QueueOfFamily("mail}p9".into()));
        assert!(by_name.to_string().contains("name \"mail\", and give the priority"), "{by_name}");
        let into = compose_for("mail}p9", RawTask::new("t").priority(2), NOW).unwrap();
        assert_eq!(into.message.queue, "mail}p9", "where its group was");
    }

    #[test]
    fn a_target_is_a_queue_beside_the_one_that_was_named() {
        let mail = || RawTask::new("t").queue("mail");
        let queue = |task| composed(task).message.queue;
        assert_eq!(queue(mail().only("web-1")), "mail}@web-1");
        assert_eq!(queue(mail().label("gpu").label("eu").label("gpu")), "mail}#eu+gpu");
        assert_eq!(queue(RawTask::new("t").label("gpu")), "default}#gpu");
        assert_eq!(queue(mail().label("gpu").only("web-1").priority(9)), "mail}p9", "the last one counts");
        assert_eq!(queue(mail().only("web-1").with(TaskOptions::new().label("gpu"))), "mail}#gpu");
        let unique = composed(mail().only("web-1").unique(Duration::from_secs(60)));
        assert_eq!(unique.message.unique_key, "asynq:{mail}:unique:t:", "one lock for the whole family");
        let falls_back = mail().only("web-1").fallback(Duration::from_secs(600));
        assert_eq!(composed(falls_back).message.headers[FALLBACK], "10m0s");
        let refused = |task| compose(task, TaskOptions::new(), NOW).unwrap_err();
        assert_eq!(refused(mail().fallback(Duration::from_secs(600))), OptionError::NeedsTarget);
        let short = Duration::from_millis(999);
        assert_eq!(refused(mail().label("gpu").fallback(short)), OptionError::FallbackTooShort(short));
        for bad in ["", "a b", "web:1"] {
            for task in [mail().only(bad), mail().label("gpu").label(bad)] {
                let refused = compose(task, TaskOptions::new(), NOW).unwrap_err();
                assert!(matches!(refused, OptionError::Family(FamilyError::NoName { .. })), "{bad:?}: {refused}");
            }
        }
    }

    #[test]
    fn a_deadline_alone_leaves_the_timeout_out() {
        let at = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let message = composed(RawTask::new("t").deadline(at)).message;
        assert_eq!((message.timeout, message.deadline), (0, 1_800_000_000));
    }

    #[test]
    fn fractions_of_seconds_round_up() {
        let half = Duration::from_millis(500);
        let message = composed(RawTask::new("t").timeout(half).retention(half)).message;
        assert_eq!((message.timeout, message.retention), (1, 1));
        let task = composed(RawTask::new("t").process_in(Duration::from_millis(100)));
        assert_eq!(task.placement, Placement::Scheduled { at: 1_700_000_001 });
    }

    #[test]
    fn a_message_never_lacks_both_timeout_and_deadline() {
        assert_eq!(composed(RawTask::new("t").timeout(Duration::ZERO)).message.timeout, 1800);
    }

    #[test]
    fn a_time_that_is_past_means_now() {
        assert_eq!(composed(RawTask::new("t").process_at(UNIX_EPOCH)).placement, Placement::Pending);
    }

    #[test]
    fn the_lock_of_a_scheduled_task_outlives_its_waiting() {
        let task = RawTask::new("t").unique(Duration::from_secs(10)).process_in(Duration::from_secs(60));
        let task = composed(task);
        assert_eq!(task.unique_ttl, 71, "60 s, rounded up to the second, and 10 s");
        assert_eq!(task.message.unique_key, "asynq:{default}:unique:t:");
    }

    #[test]
    fn a_future_time_wins_over_a_group_and_keeps_it() {
        let task = composed(RawTask::new("t").group("g").process_in(Duration::from_secs(1)));
        assert!(matches!(task.placement, Placement::Scheduled { .. }));
        assert_eq!(task.message.group_key, "g");
        assert_eq!(composed(RawTask::new("t").group("g")).placement, Placement::Aggregating);
    }

    #[test]
    fn what_is_not_pending_at_once_cannot_be_in_front() {
        let front = || RawTask::new("t").front();
        assert_eq!(composed(front()).placement, Placement::Front);
        assert_eq!(composed(RawTask::new("t").with(TaskOptions::new().front())).placement, Placement::Front);
        assert_eq!(composed(front().process_at(UNIX_EPOCH)).placement, Placement::Front);
        for (task, what) in [
            (front().process_in(Duration::from_secs(1)), "a task with a time"),
            (front().group("g"), "a task in a group"),
        ] {
            assert_eq!(compose(task, TaskOptions::new(), NOW).unwrap_err(), OptionError::NotInFront { what });
        }
        assert!(matches!(compose_for("q", front(), NOW), Err(OptionError::NotInFront { .. })));
    }

    #[test]
    fn options_that_cannot_be_honoured_are_refused() {
        let refused = |task| compose(task, TaskOptions::new(), NOW).unwrap_err();
        assert_eq!(refused(RawTask::new(" ")), OptionError::BlankType);
        assert_eq!(refused(RawTask::new("t").queue("\t")), OptionError::BlankQueue);
        assert_eq!(refused(RawTask::new("t").queue("}x")), OptionError::QueueBreaksHashTag("}x".into()));
        assert_eq!(refused(RawTask::new("t").task_id("")), OptionError::BlankTaskId);
        assert_eq!(refused(RawTask::new("t").group(" ")), OptionError::BlankGroup);
        assert_eq!(refused(RawTask::new("t").queue("a}:t:b")), OptionError::QueueOverlapsAnother("a}:t:b".into()));
        for task in [
            RawTask::new("a\u{1b}[2J"),
            RawTask::new("t").queue("a\nb"),
            RawTask::new("t").task_id("\0"),
            RawTask::new("t").group("a\u{9b}"),
        ] {
            assert!(matches!(refused(task), OptionError::ControlCharacter { .. }));
        }
        let long = "ä".repeat(5_000);
        for task in [
            RawTask::new(&long),
            RawTask::new("t").queue(&long),
            RawTask::new("t").task_id(&long),
            RawTask::new("t").group(&long),
        ] {
            assert!(matches!(refused(task), OptionError::NameTooLong { bytes: 10_000, .. }));
        }
        let short = Duration::from_millis(999);
        assert_eq!(refused(RawTask::new("t").unique(short)), OptionError::UniqueTooShort(short));
        assert_eq!(refused(RawTask::new("t").max_retry(u32::MAX)), OptionError::MaxRetryTooLarge(u32::MAX));
        assert!(matches!(
            refused(RawTask::new("t").process_in(Duration::MAX)),
            OptionError::TimeTooFar { option: "process_in" }
        ));
        let second =
            |second: i64| RawTask::new("t").process_at(UNIX_EPOCH + Duration::from_secs(second.unsigned_abs()));
        assert!(matches!(refused(second(LAST_SECOND + 1)), OptionError::TimeTooFar { option: "process_at" }));
        assert_eq!(composed(second(LAST_SECOND)).placement, Placement::Scheduled { at: LAST_SECOND });
        assert!(matches!(
            refused(RawTask::new("t").retention(Duration::MAX)),
            OptionError::TimeTooFar { option: "retention" }
        ));
    }
}

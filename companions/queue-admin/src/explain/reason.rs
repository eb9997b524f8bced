//! Why a task is not running, in data and in words.

use std::fmt;
use std::time::Duration;

use queue_core::attempt::Attempt;
use queue_core::budget::Account;
use queue_core::clock::UnixSecond;
use queue_core::doctor::Fault;
use queue_core::duration;

use crate::error::WhyUnreadable;

/// One reason, or something that one should know with it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The queue is paused.
    Paused {
        /// Since when, if the pause says so.
        since: Option<UnixSecond>,
    },
    /// The queue is being removed.
    Removing,
    /// The queue is not on the list of queues.
    Unlisted,
    /// It waits for its time.
    Scheduled {
        /// When it is due.
        at: UnixSecond,
    },
    /// It waits for room under a limit of its queue.
    Lane {
        /// The limit and the key, as in `tenant:acme`.
        lane: String,
        /// Since when.
        since: UnixSecond,
        /// How many wait there before it.
        ahead: u64,
        /// How many run there under a cap; some of them may have ended without anybody having looked.
        running: u64,
        /// The first of them, by their ids.
        holders: Vec<String>,
        /// Of a lane in strict order, the state of the one whom the others wait for: the first of the holders, which need
        /// not run. `None` where nobody is at turn, and in a lane that is not in order.
        turn: Option<String>,
        /// When somebody looks at the lane next.
        next_look: Option<UnixSecond>,
        /// Until when the breaker of the limit lets nothing start there, because too much has failed; if that is past, one task at a
        /// time finds out whether it goes well again.
        rests_until: Option<UnixSecond>,
        /// To how many percent an adaptive rate was slowed down the last time, because a handler said that it was too much, and when
        /// it is whole again.
        slowed: Option<(u32, UnixSecond)>,
        /// Whether somebody has paused the key.
        paused: bool,
        /// When it becomes pending for servers that know nothing of limits.
        fallback: UnixSecond,
    },
    /// The limits of its queue cannot be read, so that servers of ours take nothing from it.
    LimitsUnreadable {
        /// What is wrong with them.
        why: WhyUnreadable,
    },
    /// Its queue has limits, and some of its servers take tasks without asking for them.
    UnawareServers {
        /// Which: `<host>:<pid>:<uuid>`.
        servers: Vec<String>,
    },
    /// It was published while a worker had another task of its key, and starts after that one.
    Follows {
        /// Id of the other.
        first: String,
        /// When it starts although nobody has said that the other has ended.
        fallback: UnixSecond,
    },
    /// It failed and waits for its next attempt.
    Retry {
        /// When that is due.
        at: UnixSecond,
        /// How often it was retried.
        retried: i32,
        /// How often it may be.
        max_retry: i32,
        /// The last error.
        error: String,
    },
    /// The worker that took it last has no handler for its type.
    NoHandler {
        /// Task type.
        task_type: String,
    },
    /// It is due, and no server has made it pending.
    Overdue {
        /// Since when.
        since: UnixSecond,
    },
    /// No server that is alive serves the queue.
    NoServer,
    /// It has a priority, and those that serve the queue without it do not serve priorities.
    NoPriorities {
        /// `<host>:<pid>` of each.
        servers: Vec<String>,
    },
    /// Only certain servers may run it, and none of them is alive.
    NoFittingServer {
        /// Which: `servers named web-1`.
        only: String,
        /// Those that serve the queue of its family, and what they are: `<host>:<pid> (web-2 #eu)`.
        others: Vec<String>,
        /// How long none of them may have been alive before all servers of the queue may run it.
        fallback: Option<Duration>,
    },
    /// Those that serve it take no more tasks.
    ServersEnding,
    /// It is pending, and others are before it.
    Behind {
        /// How many are to be taken first.
        ahead: u64,
    },
    /// The servers of the queue have no free place.
    Busy {
        /// Tasks in the hands of the servers of the queue.
        running: usize,
        /// How many those can run at once.
        slots: i64,
    },
    /// It is pending, the first, and a server has places free.
    Next,
    /// It has been pending for a while although a server has places free: none has a handler for its type.
    PassedOver {
        /// Since when.
        since: UnixSecond,
    },
    /// It has been pending for a while although a server that may have a handler for its type has places free.
    HeldBack {
        /// Since when.
        since: UnixSecond,
        /// The limits for all tasks of the queue together.
        limits: Vec<String>,
    },
    /// It waits in a group.
    InGroup {
        /// Group name.
        group: String,
        /// Tasks in it.
        size: u64,
        /// When the oldest of them joined.
        oldest: UnixSecond,
        /// When the youngest joined.
        youngest: UnixSecond,
    },
    /// It was taken out of its group and is being aggregated.
    Aggregating {
        /// Group name.
        group: String,
        /// When the aggregation counts as lost.
        deadline: UnixSecond,
    },
    /// It was aggregated, and is about to be deleted.
    Aggregated,
    /// A worker has it.
    Running {
        /// Which: `host:pid` and what else is known of it; empty when nothing is.
        worker: String,
        /// Since when.
        since: Option<UnixSecond>,
        /// Until when it has it, unless it renews that.
        lease_until: UnixSecond,
    },
    /// A worker had it and is silent.
    Silent {
        /// Which; empty when nothing is known of it.
        worker: String,
        /// When its lease ended.
        lease_ended: UnixSecond,
        /// When any server takes the task over.
        recovered_at: UnixSecond,
    },
    /// It has budgets of its own.
    Budgets {
        /// Which, and what is spent of them.
        account: Account,
    },
    /// Workers went silent over it.
    Crashes {
        /// How often.
        count: u32,
        /// The last of them: when the lease ended, and whose it was.
        holders: Vec<(UnixSecond, String)>,
    },
    /// Somebody wants it to end.
    CancelRequested {
        /// Who.
        by: String,
        /// Since when.
        at: UnixSecond,
        /// How many seconds ago that was.
        ago_secs: u64,
        /// Who has it, and has not said that it has ended.
        server: Option<String>,
    },
    /// It was published under its key; those publishes count that changed something.
    Published {
        /// How often.
        count: u64,
        /// The first time.
        first: UnixSecond,
        /// The last time.
        last: UnixSecond,
    },
    /// Attempts at it failed.
    FailedBefore {
        /// How many, at servers of ours.
        count: u64,
        /// The last one.
        last: Attempt,
    },
    /// It was given up.
    Archived {
        /// When.
        at: UnixSecond,
        /// The last error.
        error: String,
    },
    /// It succeeded.
    Completed {
        /// When; `None` when it does not say.
        at: Option<UnixSecond>,
        /// Until when it is kept.
        until: UnixSecond,
    },
    /// Its uniqueness lock belongs to another task.
    LockedByTwin {
        /// Id of that task.
        twin: String,
    },
    /// There is no such task.
    NotFound,
    /// There is no such task, and a lock names it, so that twins are refused.
    LockLeft {
        /// Name of the lock.
        lock: String,
        /// Seconds until it ends; `None` for never.
        ends_in: Option<i64>,
    },
    /// Something is wrong with it.
    Damaged {
        /// What.
        fault: Fault,
    },
}

impl Reason {
    /// In words joined by hyphens, as JSON has it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Paused { .. } => "paused",
            Self::Removing => "removing",
            Self::Unlisted => "unlisted",
            Self::Scheduled { .. } => "scheduled",
            Self::Lane { .. } => "lane",
            Self::LimitsUnreadable { .. } => "limits-unreadable",
            Self::UnawareServers { .. } => "unaware-servers",
            Self::Follows { .. } => "follows",
            Self::Retry { .. } => "retry",
            Self::NoHandler { .. } => "no-handler",
            Self::Overdue { .. } => "overdue",
            Self::NoServer => "no-server",
            Self::NoPriorities { .. } => "no-priorities",
            Self::NoFittingServer { .. } => "no-fitting-server",
            Self::ServersEnding => "servers-ending",
            Self::Behind { .. } => "behind",
            Self::Busy { .. } => "busy",
            Self::Next => "next",
            Self::PassedOver { .. } => "passed-over",
            Self::HeldBack { .. } => "held-back",
            Self::InGroup { .. } => "in-group",
            Self::Aggregating { .. } => "aggregating",
            Self::Aggregated => "aggregated",
            Self::Running { .. } => "running",
            Self::Silent { .. } => "silent",
            Self::Budgets { .. } => "budgets",
            Self::Crashes { .. } => "crashes",
            Self::CancelRequested { .. } => "cancel-requested",
            Self::Published { .. } => "published",
            Self::FailedBefore { .. } => "failed-before",
            Self::Archived { .. } => "archived",
            Self::Completed { .. } => "completed",
            Self::LockedByTwin { .. } => "locked-by-twin",
            Self::NotFound => "not-found",
            Self::LockLeft { .. } => "lock-left",
            Self::Damaged { .. } => "damaged",
        }
    }

    /// The instant that matters, if there is one.
    pub fn at(&self) -> Option<UnixSecond> {
        match self {
            Self::Scheduled { at } | Self::Retry { at, .. } | Self::Archived { at, .. } => Some(*at),
            Self::Lane { next_look, fallback, .. } => Some(next_look.unwrap_or(*fallback)),
            Self::Follows { fallback, .. } => Some(*fallback),
            Self::Overdue { since } | Self::PassedOver { since } | Self::HeldBack { since, .. } => Some(*since),
            Self::Paused { since } => *since,
            Self::Aggregating { deadline, .. } => Some(*deadline),
            Self::Running { lease_until, .. } => Some(*lease_until),
            Self::Silent { recovered_at, .. } => Some(*recovered_at),
            Self::Completed { until, .. } => Some(*until),
            Self::Budgets { account } => account.gives_up_at(),
            _ => None,
        }
    }
}

/// A sentence, with what to do where something can be done.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused { since } => {
                f.write_str("its queue is paused")?;
                since.iter().try_for_each(|since| write!(f, " since {since}"))?;
                f.write_str("; `queuectl queue resume` lets its tasks run")
            }
            Self::Removing => f.write_str(
                "its queue is being removed; if nobody does that any more, remove it again, or `queuectl queue resume` \
                 keeps what is left",
            ),
            Self::Unlisted => f.write_str("its queue is not listed, so that no tool shows it; `queuectl doctor` helps"),
            Self::Scheduled { at } => write!(f, "it waits for its time, {at}"),
            Self::Lane { lane, since, ahead, running, holders, turn, next_look, rests_until, slowed, paused, fallback } => {
                // Who is at turn stands first of all.
                match since.0 {
                    0 => write!(f, "it is at turn in lane {lane:?}, and waits for room")?,
                    _ => write!(f, "it waits in lane {lane:?} since {since}, {ahead} before it")?,
                }
                match (turn, holders.first()) {
                    (Some(state), Some(first)) if since.0 > 0 => {
                        write!(
                            f,
                            "; tasks of this lane run in order, and task {first:?} is at turn, which is {state}"
                        )?;
                    }
                    _ if *running > 0 && since.0 > 0 => write!(f, "; {running} run there ({})", holders.join(", "))?,
                    _ => {}
                }
                if *paused {
                    f.write_str("; this key is paused, and `queuectl limit key NAME KEY --resume` lets it go on")?;
                }
                rests_until.iter().try_for_each(|at| {
                    write!(f, "; too much has failed there, so that nothing starts until {at}, and then one at a time until one succeeds")
                })?;
                slowed.iter().try_for_each(|(percent, until)| {
                    write!(f, "; a handler said that it was too much, and the rate was cut to {percent} percent; it is whole again at {until}")
                })?;
                next_look.iter().try_for_each(|at| write!(f, "; the lane is looked at again at {at}"))?;
                write!(f, "; asynq's tools show it as scheduled until {fallback}")
            }
            Self::LimitsUnreadable { why } => {
                write!(f, "the limits of its queue cannot be read, so that nothing is taken from it: {why}")
            }
            Self::UnawareServers { servers } => {
                write!(
                    f,
                    "its queue has limits that do not hold for servers which know nothing of them: {}",
                    servers.join(", ")
                )
            }
            Self::Follows { first, fallback } => write!(
                f,
                "it follows task {first:?} of the same key, which a worker has: it starts when that has ended, or at {fallback} if nobody \
                 says so"
            ),
            Self::Retry { at, retried, max_retry, error } => {
                write!(f, "it was retried {retried} of {max_retry} times, and is tried again at {at}")?;
                if error.is_empty() { Ok(()) } else { write!(f, "; the last error: {error}") }
            }
            Self::NoHandler { task_type } => write!(
                f,
                "the worker that took it last has no handler for its type, {task_type:?}; it goes round until a worker of its \
                 queue has one: start one"
            ),
            Self::Overdue { since } => {
                write!(f, "it is due since {since}, and no server has taken notice of it")
            }
            Self::NoServer => f.write_str("no server that is alive serves its queue; start one"),
            Self::NoPriorities { servers } => write!(
                f,
                "it has a priority, and no server that is alive serves its queue with priorities, only without them: {}; \
                 start one with --priorities, or name the queue in Go",
                servers.join(", ")
            ),
            Self::NoFittingServer { only, others, fallback } => {
                write!(f, "only {only} may run it, and none that is alive serves its queue")?;
                if !others.is_empty() {
                    write!(f, "; there are {}", others.join(", "))?;
                }
                match fallback.map(duration::format) {
                    Some(fallback) => {
                        write!(f, "; when none has been alive for {fallback}, all servers of its queue may run it")
                    }
                    None => f.write_str("; start one, or let others run it with `queuectl task move`"),
                }
            }
            Self::ServersEnding => f.write_str(
                "the servers of its queue are quiet or ending and take no more tasks; start one, or let one that was told to be quiet go on: \
                 `queuectl server resume NAME`",
            ),
            Self::Behind { ahead: 1 } => f.write_str("it is pending, and one task is before it"),
            Self::Behind { ahead } => write!(f, "it is pending, and {ahead} tasks are before it"),
            Self::Busy { running, slots } => {
                write!(f, "all {slots} slots of the servers on its queue are busy, with {running} tasks")
            }
            Self::Next => f.write_str(
                "it is pending and next to be taken; if it stays so, the servers have no handler for its type, or \
                 serve other queues first",
            ),
            Self::PassedOver { since } => write!(
                f,
                "it is pending since {since}, and servers of its queue have places free: none of them has a handler for its \
                 type, and they leave such tasks where they are; start one that has"
            ),
            Self::HeldBack { since, limits } if limits.is_empty() => write!(
                f,
                "it is pending since {since}, and servers of its queue have places free: they may run no more of this queue \
                 (`Server::queue_concurrency`), or serve other queues first"
            ),
            Self::HeldBack { since, limits } => write!(
                f,
                "it is pending since {since}, and servers of its queue have places free: it waits for room under a limit for all \
                 tasks of its queue ({}); `queuectl limit lanes QUEUE` shows them",
                limits.join(", ")
            ),
            Self::InGroup { group, size, oldest, youngest } => write!(
                f,
                "it waits in group {group:?}, which has {size} tasks, the oldest since {oldest} and the youngest since {youngest}; a \
                 server with an aggregator takes them when none has joined for its grace period (1 minute by default), \
                 when the oldest has waited for its largest delay, or when the group is full"
            ),
            Self::Aggregating { group, deadline } => write!(
                f,
                "a server aggregates group {group:?}, to which it belongs; if that is not over by {deadline}, it goes back"
            ),
            Self::Aggregated => f.write_str("it was made part of another task, and is about to be deleted"),
            Self::Running { worker, since, lease_until } => {
                f.write_str("a worker has it")?;
                if !worker.is_empty() {
                    write!(f, ", {worker}")?;
                }
                since.iter().try_for_each(|since| write!(f, ", since {since}"))?;
                write!(f, "; its lease ends at {lease_until} unless it is renewed")
            }
            Self::Silent { worker, lease_ended, recovered_at } => {
                f.write_str("the worker that has it")?;
                if !worker.is_empty() {
                    write!(f, " ({worker})")?;
                }
                write!(
                    f,
                    " is silent: its lease ended at {lease_ended}; from {recovered_at} on, any server of the queue takes the task over"
                )
            }
            Self::Budgets { account } => write!(f, "it has budgets of its own: {account}"),
            Self::Crashes { count, holders } => {
                write!(f, "its workers went silent {count} times")?;
                holders.iter().try_for_each(|(until, holder)| write!(f, ", {holder} at {until}"))
            }
            Self::CancelRequested { by, at, ago_secs, server } => {
                write!(f, "cancel requested by {by} {ago_secs} s ago, at {at}; ")?;
                match server {
                    Some(server) => write!(f, "{server} has not confirmed yet"),
                    None => {
                        f.write_str("a server of ours that takes it does not start it, and the server that leads, if there is one, archives it within two seconds once nobody works on it")
                    }
                }
            }
            Self::Published { count: 1, last, .. } => write!(f, "it was published under its key at {last}"),
            Self::Published { count, first, last } => {
                write!(f, "it was published under its key {count} times since {first}, last at {last}")
            }
            Self::FailedBefore { count, last } => {
                let (at, end) = (last.ended.second(), last.end.as_str());
                write!(
                    f,
                    "{count} attempts at it failed; the last was {end} at {at} on {}: {}",
                    last.server, last.error
                )
            }
            Self::Archived { at, error } => {
                write!(f, "it was given up at {at}")?;
                if !error.is_empty() {
                    write!(f, ": {error}")?;
                }
                f.write_str("; `queuectl task run` gives it another try")
            }
            Self::Completed { at, until } => {
                f.write_str("it succeeded")?;
                at.iter().try_for_each(|at| write!(f, " at {at}"))?;
                write!(f, ", and is kept until {until}")
            }
            Self::LockedByTwin { twin } => {
                write!(f, "its uniqueness lock belongs to task {twin:?} by now; that does not keep it from running")
            }
            Self::NotFound => f.write_str(
                "there is no such task: it was never enqueued, or it is done and had no retention, or it was deleted",
            ),
            Self::LockLeft { lock, ends_in } => {
                write!(f, "the uniqueness lock {lock:?} still names it, so that twins are refused")?;
                match ends_in {
                    Some(secs) => write!(f, " for another {secs} s")?,
                    None => f.write_str(" for ever")?,
                }
                f.write_str("; `queuectl doctor --fix --dump FILE` removes it")
            }
            Self::Damaged { fault } => write!(f, "{}; `queuectl doctor` tells more", fault.meaning()),
        }
    }
}

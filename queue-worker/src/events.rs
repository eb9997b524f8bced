//! What happens inside a server, told to whoever wants to count it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use queue_core::outcome::{Failure, Step};

use crate::job::Job;
use crate::panic::Guard;

/// Something that happened inside a server; see [`Server::observe`](crate::Server::observe).
///
/// More kinds and fields may be added.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The server runs, with so many slots.
    ServerStarted {
        /// UUID of the server.
        server: &'a str,
        /// Tasks it runs at once.
        concurrency: usize,
        /// The task types that it has a handler for by name; patterns are left out.
        types: &'a [String],
    },
    /// The server runs more tasks at once from now on, or fewer: an operator has said so, or it adapts.
    ServerResized {
        /// UUID of the server.
        server: &'a str,
        /// Tasks it ran at once until now.
        before: usize,
        /// Tasks it runs at once from now on.
        concurrency: usize,
    },
    /// The server has ended.
    ServerStopped {
        /// UUID of the server.
        server: &'a str,
        /// Tasks it ran at once.
        concurrency: usize,
    },
    /// One call to Redis gave tasks.
    Taken {
        /// Queue name.
        queue: &'a str,
        /// How many; at least one.
        tasks: usize,
    },
    /// An attempt starts.
    Started {
        /// The attempt.
        job: &'a Job,
        /// How long the task was pending, by the clocks of whoever made it so and ours; `None` when that is
        /// not known. The time that a task is scheduled for, or waits for a retry, is not part of it.
        waited: Option<Duration>,
        /// How much of that was between the answer of Redis and now: what the runtime took to get to it.
        delay: Duration,
    },
    /// An attempt has ended. Its outcome is not written yet.
    Ended {
        /// The attempt; [`Job::cancel_reason`] says why it was interrupted, if it was.
        job: &'a Job,
        /// How.
        end: End,
        /// How long it ran.
        took: Duration,
    },
    /// One call to Redis has reported on attempts.
    Reported {
        /// Queue name.
        queue: &'a str,
        /// How many; at least one.
        tasks: usize,
        /// How many of them were refused, because the task was deleted or recovered by somebody else meanwhile.
        refused: usize,
    },
    /// This server has taken a task from one that went silent.
    Recovered {
        /// Queue name.
        queue: &'a str,
        /// Task type; `None` when the task cannot be read.
        task_type: Option<&'a str>,
        /// What became of it: [`End::Retried`], though a crash spends no retry, or [`End::Archived`].
        end: End,
    },
    /// Tasks that were scheduled, or waiting for a retry, became pending.
    Forwarded {
        /// Queue name.
        queue: &'a str,
        /// How many; at least one.
        tasks: u64,
    },
    /// Tasks of a group have become one task, or were dropped or archived because their aggregator said so.
    Aggregated {
        /// Queue name.
        queue: &'a str,
        /// Group name.
        group: &'a str,
        /// How many the aggregator got.
        tasks: usize,
        /// How long it ran.
        took: Duration,
    },
    /// The tasks of a group were not aggregated, and go back into it.
    AggregationFailed {
        /// Queue name.
        queue: &'a str,
        /// Group name.
        group: &'a str,
        /// Why.
        failure: &'a Failure,
    },
    /// Something was not in order, and this server has put it right.
    Reconciled {
        /// Queue name; `None` for what all queues share.
        queue: Option<&'a str>,
        /// What was wrong, as [`Fault::as_str`](queue_redis::Fault::as_str) has it.
        fault: &'static str,
    },
    /// Redis is away, or refuses what the server asks: something of the server cannot do its work, and tries
    /// again. Told once, until all of it works again.
    RedisAway {
        /// UUID of the server.
        server: &'a str,
        /// Why, of the first that failed.
        error: &'a queue_redis::Error,
    },
    /// All that failed since [`RedisAway`](Self::RedisAway) works again, or has ended.
    RedisBack {
        /// UUID of the server.
        server: &'a str,
    },
    /// The server no longer serves a queue that it had joined, because the queue is gone. It joins it again when it
    /// is back, and what it had taken from it ends meanwhile.
    QueueLeft {
        /// Queue name.
        queue: &'a str,
    },
    /// A task was taken that nobody can read; it goes to the archive.
    Unreadable {
        /// Queue name.
        queue: &'a str,
    },
}

queue_core::words! {
    /// How an attempt ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum End with ALL {
        /// The task is done.
        Succeeded: "succeeded",
        /// It failed and is tried again; a retry is spent.
        Retried: "retried",
        /// It was given up on.
        Archived: "archived",
        /// It is tried again, and no retry is spent.
        Snoozed: "put_back",
        /// Its handler dropped it.
        Revoked: "revoked",
        /// The server shuts down and requeues it in front of its queue.
        Aborted: "aborted",
        /// The task was no longer ours, and nothing is reported.
        LeaseLost: "lease_lost",
    }
}

impl End {
    /// What an outcome comes to by this step.
    pub(crate) fn of(step: &Step) -> Self {
        match step {
            Step::Done | Step::Complete { .. } => Self::Succeeded,
            Step::Revoke => Self::Revoked,
            Step::Retry { is_failure: true, .. } => Self::Retried,
            Step::Retry { is_failure: false, .. } => Self::Snoozed,
            Step::Archive { .. } => Self::Archived,
            Step::Requeue => Self::Aborted,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

type Observer = dyn Fn(&Event<'_>) + Send + Sync;

/// Who wants to be told. A clone tells the same.
#[derive(Clone, Default)]
pub(crate) struct Observers(Vec<Arc<(Box<Observer>, Guard)>>);

impl Observers {
    pub(crate) fn add(&mut self, observer: Box<Observer>) {
        self.0.push(Arc::new((observer, Guard::default())));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells all. Without anybody to tell, the event is not even made.
    pub(crate) fn tell<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if !self.0.is_empty() {
            let event = event();
            for observer in &self.0 {
                observer.1.call("an observer", || observer.0(&event));
            }
        }
    }
}

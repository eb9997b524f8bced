//! What the leader does for flows: it looks after trees, and after queues that have members.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use queue_core::queue_name::{Family, QueueName};

use super::Flows;
use super::keep::{Walk, lock};
use crate::broker::duties::{MEMBERS, TREE};
use crate::error::Error;
use crate::leader::Duty;

/// How often a queue with members is looked at; and a mailbox, or when nothing was found for ten minutes.
const OFTEN: Duration = Duration::from_millis(500);
const SELDOM: Duration = Duration::from_secs(5);
const QUIET: Duration = Duration::from_secs(10 * 60);
/// A queue in which nothing was found for a day, or for ten minutes if it is a mailbox, is no longer looked at; what comes later, a look at its
/// tree finds.
const FORGOTTEN: Duration = Duration::from_secs(24 * 60 * 60);

/// How long one look at a tree takes, about: less than a leader gives it. A tree may have more flows than that is enough for, and the
/// next look goes on.
const AT_A_TIME: Duration = Duration::from_secs(2);

/// Looks after trees: deadlines, what nobody has carried out, members that nobody hears of; forgets those that are over.
#[derive(Debug)]
pub struct TendTree {
    flows: Flows,
    /// Where looks are that have not come to their ends. A std mutex: held to read or write it.
    walks: Mutex<HashMap<String, Arc<Mutex<Walk>>>>,
    at_a_time: Duration,
}

impl TendTree {
    /// Looks by these means.
    pub fn new(flows: Flows) -> Self {
        Self { flows, walks: Mutex::default(), at_a_time: AT_A_TIME }
    }

    /// Breaks a look off after so long, and goes on with the next one; 2 s by default. A leader gives a look five.
    #[must_use]
    pub fn at_a_time(mut self, time: Duration) -> Self {
        self.at_a_time = time;
        self
    }
}

impl Duty for TendTree {
    fn name(&self) -> &'static str {
        TREE
    }

    fn look<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Option<Duration>, Error>> {
        async move {
            let walk = lock(&self.walks).entry(subject.to_owned()).or_default().clone();
            let next = self.flows.tend_for(subject, &walk, self.at_a_time).await?;
            if next != Some(Duration::ZERO) {
                lock(&self.walks).remove(subject);
            }
            Ok(next)
        }
        .boxed()
    }
}

/// Looks after queues with members: records what processes have told that are gone, and collects what Go has completed.
#[derive(Debug)]
pub struct TendQueue {
    flows: Flows,
    /// When something was found last. A std mutex: held to read or write it.
    found: Mutex<HashMap<String, Instant>>,
}

impl TendQueue {
    /// Looks by these means.
    pub fn new(flows: Flows) -> Self {
        Self { flows, found: Mutex::default() }
    }
}

impl Duty for TendQueue {
    fn name(&self) -> &'static str {
        MEMBERS
    }

    fn look<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Option<Duration>, Error>> {
        async move {
            let found = self.flows.tend_queue(subject).await?;
            let mut known = lock(&self.found);
            let last = known.entry(subject.to_owned()).or_insert_with(Instant::now);
            if found {
                *last = Instant::now();
            }
            // There may be many mailboxes, and Go's servers hardly ever work one.
            let is_mailbox = matches!(QueueName::parse(subject).family, Some(Family::Mailbox(_)));
            let next = match last.elapsed() {
                since if since > if is_mailbox { QUIET } else { FORGOTTEN } => None,
                since if since > QUIET || is_mailbox => Some(SELDOM),
                _ => Some(OFTEN),
            };
            if next.is_none() {
                known.remove(subject);
            }
            Ok(next)
        }
        .boxed()
    }
}

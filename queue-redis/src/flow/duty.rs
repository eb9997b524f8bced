//! What the leader does for flows: it looks after trees, and after queues that have members.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use queue_core::queue_name::{Family, QueueName};

use super::Flows;
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

/// Looks after trees: deadlines, what nobody has carried out, members that nobody hears of; forgets those that are over.
#[derive(Debug, Clone)]
pub struct TendTree(pub Flows);

impl Duty for TendTree {
    fn name(&self) -> &'static str {
        TREE
    }

    fn look<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Option<Duration>, Error>> {
        self.0.tend(subject).boxed()
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
            let mut known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
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

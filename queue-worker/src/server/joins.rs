//! Which queues a server joins while it runs.

use std::collections::{BTreeMap, BTreeSet};

use queue_core::limits::{HIGHEST_PRIORITY, MIDDLE_PRIORITY};
use queue_core::options::check_existing_queue_name;
use queue_core::queue_name::{Family, QueueName};

use crate::work::of_pattern;

/// How the priorities of a queue's tasks count ([`Server::priorities`](super::Server::priorities)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priorities {
    /// Each is tried first twice as often as the one below it, so that none waits for ever.
    Weighted,
    /// A task is taken only while nothing of a higher priority waits.
    Strict,
}

/// Which queues a server joins while it runs: those of families of its own, and those whose names begin as a pattern does.
#[derive(Debug, Clone, Default)]
pub(super) struct Joins {
    /// Whether it serves priorities, and how.
    pub(super) priorities: Option<Priorities>,
    /// Whose mailboxes it serves.
    pub(super) name: Option<String>,
    /// It serves the queues whose labels are among these.
    pub(super) labels: BTreeSet<String>,
    /// The weights of the queues that fit a pattern, `tenant:*`.
    pub(super) patterns: BTreeMap<String, u32>,
}

/// What a queue that is to be served is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member<'a> {
    /// The queue by whose weight it is served; the queue itself, where it belongs to no family.
    pub(super) base: &'a str,
    pub(super) priority: u8,
}

impl Joins {
    pub(super) fn any(&self) -> bool {
        self.priorities.is_some() || self.name.is_some() || !self.labels.is_empty() || !self.patterns.is_empty()
    }

    /// What a queue of this name is to the server; `None` where it is left to others, or cannot be served.
    pub(super) fn member<'a>(&self, name: &'a str) -> Option<Member<'a>> {
        let QueueName { base, family } = QueueName::parse(name);
        let priority = family.map_or(Some(MIDDLE_PRIORITY), |family| self.priority_of(&family))?;
        check_existing_queue_name(base).is_ok().then_some(Member { base, priority })
    }

    /// The weight of a queue that fits a pattern.
    pub(super) fn weight_of(&self, name: &str) -> Option<u32> {
        of_pattern(&self.patterns, name).map(|(_, weight)| *weight)
    }

    /// How a member of a family counts beside the others; `None` where it is left to other servers.
    fn priority_of(&self, family: &Family) -> Option<u8> {
        match family {
            Family::Level(level) => self.priorities.map(|_| *level),
            // What only some may run comes before what all may run, and yet does not keep it waiting for ever.
            target => target.admits(self.name.as_deref(), &self.labels).then_some(HIGHEST_PRIORITY),
        }
    }
}

//! Which queues a server joins while it runs.

use std::collections::{BTreeMap, BTreeSet};

use queue_core::limits::{HIGHEST_PRIORITY, MIDDLE_PRIORITY};
use queue_core::options::check_existing_queue_name;
use queue_core::queue_name::{Family, QueueName};

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

/// Of what is said for patterns that a name fits, what is said for the longest.
pub(crate) fn of_pattern<'a, T>(patterns: &'a BTreeMap<String, T>, name: &str) -> Option<(&'a str, &'a T)> {
    let fits = |pattern: &str| pattern.strip_suffix('*').is_some_and(|beginning| name.starts_with(beginning));
    let fitting = patterns.iter().filter(|(pattern, _)| fits(pattern));
    fitting.max_by_key(|(pattern, _)| pattern.len()).map(|(pattern, said)| (pattern.as_str(), said))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_patterns_the_longest_counts() {
        let weights = [("*", 1), ("tenant:*", 2), ("tenant:a*", 3), ("b", 4)];
        let patterns = weights.map(|(pattern, weight)| (pattern.to_owned(), weight)).into();
        for (name, weight) in [("mail", 1), ("tenant", 1), ("tenant:", 2), ("tenant:b", 2), ("tenant:ab", 3), ("b", 1)]
        {
            assert_eq!(of_pattern(&patterns, name).map(|(_, weight)| *weight), Some(weight), "{name}");
        }
        assert_eq!(of_pattern(&BTreeMap::from([("b".to_owned(), 1)]), "b"), None, "it is no pattern");
    }
}

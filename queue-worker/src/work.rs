//! How tasks are worked, where that is said for a type, for a queue or for all.

use std::collections::BTreeMap;
use std::time::Duration;

use queue_core::RetryPolicy;
use queue_core::outcome::Failure;

/// What happens to a task whose payload the handler's type cannot be decoded from.
///
/// It is about payloads. A task whose whole message cannot be read goes to the archive as it is: how often it
/// was retried cannot be read either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Undecodable {
    /// Archive it: another attempt would meet the same bytes. The default.
    #[default]
    Archive,
    /// Let it fail: it spends a retry, and waits as the retry policy says. For payloads that a newer version of
    /// the program can read.
    Fail,
    /// Snooze it: it is taken again, perhaps by another server, after this long, without spending a retry. For
    /// a fleet in which some servers have the newer version already.
    Snooze(Duration),
}

impl Undecodable {
    pub(crate) fn failure(self, error: queue_core::DecodeError) -> Failure {
        match self {
            Self::Archive => Failure::archive(error),
            Self::Fail => Failure::from(error),
            Self::Snooze(delay) => Failure::snooze(delay, error),
        }
    }
}

/// How tasks are worked: those of a type ([`Router::options`](crate::Router::options)), of a queue
/// ([`Server::queue_options`](crate::Server::queue_options)), or all of a server
/// ([`Server::work_options`](crate::Server::work_options)).
///
/// Each option is looked for in this order, and the first one that was set counts. The type comes first because
/// whoever writes a handler knows most about it.
///
/// ```
/// use std::time::Duration;
/// use queue_worker::{Job, RetryPolicy, Router, Undecodable, WorkOptions};
///
/// let patient = WorkOptions::new()
///     .retry_policy(RetryPolicy::Fixed(Duration::from_secs(600)))
///     .timeout(Duration::from_secs(2 * 60 * 60))
///     .undecodable(Undecodable::Snooze(Duration::from_secs(60)));
/// let router = Router::new(()).route("video:", async |_: Job| {}).options("video:", patient);
/// ```
#[derive(Debug, Clone, Default)]
pub struct WorkOptions {
    pub(crate) retry_policy: Option<RetryPolicy>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) undecodable: Option<Undecodable>,
}

impl WorkOptions {
    /// No option set.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a failed task waits for its next attempt. Defaults to asynq's formula.
    #[must_use]
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.retry_policy = Some(policy);
        self
    }

    /// How long one attempt may take at a task that was enqueued without a timeout. Clients, Go's and ours, write
    /// 30 minutes where none was chosen, so a task with exactly 30 minutes counts as one without; any other
    /// timeout of a task wins over this one, and a deadline still ends the attempt. Defaults to 30 minutes.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// What happens to a task whose payload cannot be decoded. Defaults to archiving it.
    #[must_use]
    pub fn undecodable(mut self, choice: Undecodable) -> Self {
        self.undecodable = Some(choice);
        self
    }

    /// Whether nobody can have meant it.
    pub(crate) fn has_no_time(&self) -> bool {
        self.timeout.is_some_and(|timeout| timeout.is_zero())
    }
}

/// What a server says about all its tasks, and about those of some queues.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) all: WorkOptions,
    pub(crate) queues: BTreeMap<String, WorkOptions>,
    /// Those that it names by a pattern, `tenant:*`.
    pub(crate) patterns: BTreeMap<String, WorkOptions>,
}

/// Of what is said for patterns that a name fits, what is said for the longest.
pub(crate) fn of_pattern<'a, T>(patterns: &'a BTreeMap<String, T>, name: &str) -> Option<(&'a str, &'a T)> {
    let fits = |pattern: &str| pattern.strip_suffix('*').is_some_and(|beginning| name.starts_with(beginning));
    let fitting = patterns.iter().filter(|(pattern, _)| fits(pattern));
    fitting.max_by_key(|(pattern, _)| pattern.len()).map(|(pattern, said)| (pattern.as_str(), said))
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

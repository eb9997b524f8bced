//! The handler of a task, found by its type, and the aggregator of a group.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use queue_core::options::DEFAULT_TIMEOUT;
use queue_core::outcome::Failure;
use queue_core::queue_name::base_of;
use queue_core::{RetryPolicy, TaskMessage};
use tower::util::BoxCloneSyncService;

use crate::aggregate::Aggregate;
use crate::job::Job;
use crate::work::{Undecodable, Work, WorkOptions, of_pattern};

/// A handler with its middleware: what a layer wraps.
pub type Route = BoxCloneSyncService<Job, Option<Bytes>, Failure>;

/// A handler, and how its tasks are worked.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) route: Route,
    pub(crate) options: Option<WorkOptions>,
    /// Whether its type is that of a Rust type, which clients enqueue under this name.
    pub(crate) typed: bool,
}

/// The aggregators of a router.
#[derive(Debug, Clone, Default)]
pub(crate) struct Aggregators {
    pub(crate) all: Option<Aggregate>,
    /// By queue, and by what the names of the groups begin with.
    pub(crate) queues: BTreeMap<String, BTreeMap<String, Aggregate>>,
}

/// What is said about a queue, or else about the base of its family.
fn of_family<'a, T>(queues: &'a BTreeMap<String, T>, queue: &str) -> Option<&'a T> {
    if queues.is_empty() { None } else { queues.get(queue).or_else(|| queues.get(base_of(queue))) }
}

impl Aggregators {
    /// The one for a group.
    pub(crate) fn find(&self, queue: &str, group: &str) -> Option<&Aggregate> {
        let of_queue = of_family(&self.queues, queue).and_then(|prefixes| {
            let mut fitting = prefixes.iter().filter(|(prefix, _)| group.starts_with(prefix.as_str()));
            // Of the texts that a name begins with, the longest sorts last.
            fitting.next_back().map(|(_, aggregate)| aggregate)
        });
        of_queue.or(self.all.as_ref())
    }

    /// Whether there is one for some groups of a queue.
    pub(crate) fn serve(&self, queue: &str) -> bool {
        self.all.is_some() || of_family(&self.queues, queue).is_some()
    }
}

/// The routes of a router that has its state.
#[derive(Debug)]
pub(crate) struct Routes {
    exact: BTreeMap<String, Entry>,
    prefixes: BTreeMap<String, Entry>,
    aggregators: Aggregators,
    has_options: bool,
    /// What is said about queues, and about all tasks.
    work: Work,
}

impl Routes {
    pub(crate) fn new(
        exact: BTreeMap<String, Entry>,
        prefixes: BTreeMap<String, Entry>,
        aggregators: Aggregators,
    ) -> Self {
        let has_options = exact.values().chain(prefixes.values()).any(|entry| entry.options.is_some());
        Self { exact, prefixes, aggregators, has_options, work: Work::default() }
    }

    pub(crate) fn with_work(self, work: Work) -> Self {
        Self { work, ..self }
    }

    /// Of the options for the type, the queue and all tasks the first that was set.
    fn option<'a, T>(&'a self, message: &TaskMessage, get: impl Fn(&'a WorkOptions) -> Option<T>) -> Option<T> {
        let of_type = self.options(&message.r#type).and_then(&get);
        let of_queue = || {
            let of_pattern = || of_pattern(&self.work.patterns, base_of(&message.queue)).map(|(_, options)| options);
            of_family(&self.work.queues, &message.queue).or_else(of_pattern)
        };
        of_type.or_else(|| of_queue().and_then(&get)).or_else(|| get(&self.work.all))
    }

    pub(crate) fn retry_policy(&self, message: &TaskMessage) -> &RetryPolicy {
        self.option(message, |options| options.retry_policy.as_ref()).unwrap_or(&RetryPolicy::Asynq)
    }

    pub(crate) fn timeout(&self, message: &TaskMessage) -> Duration {
        self.option(message, |options| options.timeout).unwrap_or(DEFAULT_TIMEOUT)
    }

    pub(crate) fn undecodable(&self, message: &TaskMessage) -> Undecodable {
        self.option(message, |options| options.undecodable).unwrap_or_default()
    }

    pub(crate) fn aggregators(&self) -> &Aggregators {
        &self.aggregators
    }

    /// The handler for a task type.
    pub(crate) fn find(&self, task_type: &str) -> Option<Route> {
        self.entry(task_type).map(|entry| entry.route.clone())
    }

    /// How tasks of a type are worked, where that was said.
    pub(crate) fn options(&self, task_type: &str) -> Option<&WorkOptions> {
        if self.has_options { self.entry(task_type)?.options.as_ref() } else { None }
    }

    /// All that was said about types, with the type or what types begin with.
    pub(crate) fn all_options(&self) -> impl Iterator<Item = (&str, &WorkOptions)> {
        let entries = self.exact.iter().chain(&self.prefixes);
        entries.filter_map(|(pattern, entry)| Some((pattern.as_str(), entry.options.as_ref()?)))
    }

    fn entry(&self, task_type: &str) -> Option<&Entry> {
        self.exact.get(task_type).or_else(|| Some(self.longest_prefix(task_type)?.1))
    }

    fn longest_prefix(&self, task_type: &str) -> Option<(&str, &Entry)> {
        // Every pattern that `task_type` begins with sorts before it, the longest last. In between may stand
        // others, which share only a part of it; they tell how much is still worth looking at.
        let mut end = task_type.to_owned();
        while let Some((pattern, entry)) = self.prefixes.range(..=end.clone()).next_back() {
            if task_type.starts_with(pattern.as_str()) {
                return Some((pattern, entry));
            }
            let common = common_prefix(task_type, pattern);
            if common == 0 {
                return self.prefixes.get_key_value("").map(|(pattern, entry)| (pattern.as_str(), entry));
            }
            end.truncate(common);
        }
        None
    }

    pub(crate) fn types(&self) -> Vec<String> {
        self.exact.keys().cloned().collect()
    }

    pub(crate) fn prefixes(&self) -> Vec<String> {
        self.prefixes.keys().cloned().collect()
    }
}

/// How many bytes two texts have in common at their beginning, cut to a whole character.
fn common_prefix(a: &str, b: &str) -> usize {
    let common = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    a.floor_char_boundary(common)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use queue_core::{RawTask, Task};

    use super::*;
    use crate::aggregate::Group;
    use crate::job::Job;
    use crate::router::Router;

    fn router(patterns: &'static [&'static str]) -> Routes {
        let mut router = Router::new(());
        for pattern in patterns {
            router = router.route(*pattern, async move |_: Job| Bytes::from_static(pattern.as_bytes()));
        }
        router.into_routes()
    }

    #[test]
    fn the_longest_prefix_wins_and_nothing_matches_by_accident() {
        let routes = router(&["email:", "email:send", "email:zebra", "image:resize", "im"]);
        let winner = |task_type| routes.longest_prefix(task_type).map(|(pattern, _)| pattern);
        assert_eq!(winner("email:send:now"), Some("email:send"));
        assert_eq!(winner("email:send"), Some("email:send"));
        assert_eq!(winner("email:sena"), Some("email:"));
        assert_eq!(winner("image:crop"), Some("im"));
        assert_eq!(winner("image:resizes"), Some("image:resize"));
        for task_type in ["e", "video", "", "iä"] {
            assert_eq!(winner(task_type), None, "{task_type}");
        }
    }

    #[test]
    fn a_typed_handler_serves_its_type_alone() {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct Send;
        impl Task for Send {
            const TYPE: &'static str = "email:send";
            type Codec = queue_core::Json;
        }
        let routes = Router::new(()).task(async |_: Send| {}).into_routes();
        assert!(routes.find("email:send").is_some());
        assert!(routes.find("email:send:now").is_none());
    }

    #[test]
    fn an_exact_route_serves_no_longer_type_and_the_fallback_all_others() {
        let answer = async |_: Job| {};
        let routes = Router::new(()).route_exact("email:send", answer).route("image:", answer);
        let without = routes.clone().into_routes();
        assert!(without.find("email:send").is_some() && without.find("email:send:now").is_none());
        let routes = routes.fallback(answer).into_routes();
        for task_type in ["email:send:now", "image:crop", "imag", "a", "z", "\u{e4}"] {
            assert!(routes.find(task_type).is_some(), "{task_type}");
        }
        assert_eq!(routes.longest_prefix("image:crop").map(|(pattern, _)| pattern), Some("image:"));
        assert_eq!(routes.longest_prefix("email:send:now").map(|(pattern, _)| pattern), Some(""));
    }

    #[test]
    fn a_group_goes_to_the_aggregator_of_its_queue_with_the_longest_prefix() {
        let state = |name: &'static str| move |_: Group, _: Vec<RawTask>| async move { RawTask::new(name) };
        let aggregator = |queue: &str, group: &str, routes: &Routes| {
            let aggregation = crate::aggregate::Aggregation {
                queue: queue.into(),
                group: group.to_owned(),
                token: tokio_util::sync::CancellationToken::new(),
            };
            let aggregate = routes.aggregators().find(queue, group)?;
            let work = aggregate.prepare(aggregation, &[]).work;
            Some(futures_util::FutureExt::now_or_never(work).unwrap().unwrap().task_type)
        };
        let router = Router::new(())
            .aggregate_in("mail", "user:", state("users"))
            .aggregate_in("mail", "user:vip:", state("important"))
            .aggregate_in("push", "", state("push"));
        let some = router.clone().into_routes();
        for (queue, group, expected) in [
            ("mail", "user:7", Some("users")),
            ("mail", "user:vip:1", Some("important")),
            ("mail", "team:7", None),
            ("push", "anything", Some("push")),
            ("other", "user:7", None),
        ] {
            assert_eq!(aggregator(queue, group, &some).as_deref(), expected, "{queue} {group}");
        }
        assert!(some.aggregators().serve("mail") && !some.aggregators().serve("other"));
        let all = router.aggregate(state("all")).into_routes();
        assert_eq!(aggregator("mail", "team:7", &all).as_deref(), Some("all"));
        assert_eq!(aggregator("mail", "user:7", &all).as_deref(), Some("users"));
    }
}

//! Which handler works which tasks.

use std::collections::BTreeMap;
use std::future::Future;

use bytes::Bytes;
use queue_core::outcome::Failure;
use queue_core::{FromMessage, Task};
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, service_fn};

use crate::aggregate::{Aggregate, Aggregator};
use crate::handler::{BlockingHandler, Handler, IntoOutcome};
use crate::job::Job;

/// A handler with its middleware: what a layer wraps.
pub type Route = BoxCloneSyncService<Job, Option<Bytes>, Failure>;

/// Handlers by task type.
///
/// A typed handler ([`task`](Self::task)) serves exactly its type. A [`route`](Self::route) follows the
/// rules of asynq's `ServeMux`: the whole type first, then the longest registered text that the type
/// begins with.
#[derive(Debug, Clone)]
pub struct Router<S = ()> {
    exact: BTreeMap<String, Route>,
    prefixes: BTreeMap<String, Route>,
    aggregate: Option<Aggregate>,
    state: S,
}

impl<S: Clone + Send + Sync + 'static> Router<S> {
    /// A router whose handlers share this state.
    pub fn new(state: S) -> Self {
        Self { exact: BTreeMap::new(), prefixes: BTreeMap::new(), aggregate: None, state }
    }

    /// Adds a handler for the type of its first argument. A payload that cannot be decoded archives the
    /// task without calling the handler.
    ///
    /// # Panics
    /// When the type has a handler already.
    #[must_use]
    pub fn task<P: Task, M: 'static, H: Handler<P, M, S>>(self, handler: H) -> Self {
        let state = self.state.clone();
        self.insert_exact(P::KIND, service_fn(move |job| handler.clone().call(job, state.clone())))
    }

    /// Adds a blocking handler, run on a thread of its own.
    ///
    /// A thread cannot be stopped from outside: a function that may run long should look at
    /// [`Job::cancellation`] now and then. After a timeout the task is retried as usual, but the slot
    /// stays taken until the function has returned.
    ///
    /// # Panics
    /// When the type has a handler already.
    #[must_use]
    pub fn blocking<P: Task, M: 'static, H: BlockingHandler<P, M, S>>(self, handler: H) -> Self {
        let state = self.state.clone();
        self.insert_exact(P::KIND, service_fn(move |job| handler.clone().call(job, state.clone())))
    }

    /// Adds a handler for every type that begins with `pattern`, unless a longer pattern or a typed
    /// handler fits better. The handler gets the [`Job`], payload bytes and all.
    ///
    /// ```
    /// # use queue_worker::{Job, Router};
    /// let router = Router::new(()).route("image:", async |job: Job| {
    ///     println!("{} of {} bytes", job.kind(), job.payload().len());
    /// });
    /// ```
    ///
    /// # Panics
    /// When the pattern is blank, or has a handler already.
    #[must_use]
    pub fn route<F, Fut>(mut self, pattern: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Job) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let pattern = pattern.into();
        assert!(!pattern.trim().is_empty(), "the pattern of a route is blank");
        let taken = self.prefixes.insert(pattern.clone(), Route::new(untyped(handler)));
        assert!(taken.is_none(), "two handlers for the pattern {pattern:?}");
        self
    }

    /// Adds a handler for exactly this type, without a Rust type for its payload. The handler gets the
    /// [`Job`], payload bytes and all.
    ///
    /// # Panics
    /// When the type is blank, or has a handler already.
    #[must_use]
    pub fn route_exact<F, Fut>(self, kind: impl AsRef<str>, handler: F) -> Self
    where
        F: Fn(Job) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let kind = kind.as_ref();
        assert!(!kind.trim().is_empty(), "the type of a route is blank");
        self.insert_exact(kind, untyped(handler))
    }

    /// Adds a handler for every type that no other handler serves.
    ///
    /// # Panics
    /// When there is one already.
    #[must_use]
    pub fn fallback<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Job) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        // Every type begins with the empty text.
        let taken = self.prefixes.insert(String::new(), Route::new(untyped(handler)));
        assert!(taken.is_none(), "two handlers for all other types");
        self
    }

    /// Sets the function that makes one task of the tasks of a group, in all queues of the server. Layers do
    /// not apply to it.
    ///
    /// Its first two arguments are the [`Group`](crate::Group) and its tasks: as
    /// [`RawTask`](queue_core::RawTask)s, or as values of a task type. A task that is of another type, or
    /// whose payload cannot be decoded, goes to the archive and does not hold up the others. What the function
    /// returns decides what happens then, see [`IntoAggregate`](crate::aggregate::IntoAggregate).
    ///
    /// ```
    /// use queue_core::RawTask;
    /// use queue_worker::{Failure, Group, Router};
    ///
    /// let router = Router::new(()).aggregate(async |Group(name): Group, tasks: Vec<RawTask>| {
    ///     let digest = format!("{} messages for {name}", tasks.len());
    ///     Ok::<_, Failure>(RawTask::new("email:digest").payload(digest))
    /// });
    /// ```
    ///
    /// # Panics
    /// When there is one already.
    #[must_use]
    pub fn aggregate<P: FromMessage, M: 'static, A: Aggregator<P, M, S>>(mut self, aggregator: A) -> Self {
        assert!(self.aggregate.is_none(), "two aggregators");
        self.aggregate = Some(Aggregate::new(aggregator, self.state.clone()));
        self
    }

    /// Wraps all handlers added so far in a tower layer; the last layer added is the outermost.
    ///
    /// A layer that changes the error type, such as tower's own timeout, needs a `map_err` to
    /// [`Failure`].
    #[must_use]
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<Route>,
        L::Service: Service<Job, Response = Option<Bytes>, Error = Failure> + Clone + Send + Sync + 'static,
        <L::Service as Service<Job>>::Future: Send + 'static,
    {
        for routes in [&mut self.exact, &mut self.prefixes] {
            *routes = std::mem::take(routes)
                .into_iter()
                .map(|(pattern, route)| (pattern, Route::new(layer.layer(route))))
                .collect();
        }
        self
    }

    fn insert_exact<T>(mut self, kind: &str, service: T) -> Self
    where
        T: Service<Job, Response = Option<Bytes>, Error = Failure> + Clone + Send + Sync + 'static,
        T::Future: Send + 'static,
    {
        let taken = self.exact.insert(kind.to_owned(), Route::new(service));
        assert!(taken.is_none(), "two handlers for tasks of type {kind:?}");
        self
    }

    pub(crate) fn into_routes(self) -> Routes {
        Routes { exact: self.exact, prefixes: self.prefixes, aggregate: self.aggregate }
    }
}

/// A handler that takes the whole job, as a service.
fn untyped<F, Fut>(
    handler: F,
) -> impl Service<Job, Response = Option<Bytes>, Error = Failure, Future: Send> + Clone + Send + Sync + 'static
where
    F: Fn(Job) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    service_fn(move |job| {
        let work = handler(job);
        async move { work.await.into_outcome() }
    })
}

/// The routes of a router that has its state.
#[derive(Debug)]
pub(crate) struct Routes {
    exact: BTreeMap<String, Route>,
    prefixes: BTreeMap<String, Route>,
    aggregate: Option<Aggregate>,
}

impl Routes {
    pub(crate) fn aggregate(&self) -> Option<&Aggregate> {
        self.aggregate.as_ref()
    }

    /// The handler for a task type.
    pub(crate) fn find(&self, kind: &str) -> Option<Route> {
        self.exact.get(kind).or_else(|| Some(self.longest_prefix(kind)?.1)).cloned()
    }

    fn longest_prefix(&self, kind: &str) -> Option<(&str, &Route)> {
        // Every pattern that `kind` begins with sorts before it, the longest last. In between may stand
        // others, which share only a part of it; they tell how much is still worth looking at.
        let mut end = kind.to_owned();
        while let Some((pattern, route)) = self.prefixes.range(..=end.clone()).next_back() {
            if kind.starts_with(pattern.as_str()) {
                return Some((pattern, route));
            }
            let common = common_prefix(kind, pattern);
            if common == 0 {
                return self.prefixes.get_key_value("").map(|(pattern, route)| (pattern.as_str(), route));
            }
            end.truncate(common);
        }
        None
    }

    pub(crate) fn kinds(&self) -> Vec<String> {
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
    use super::*;

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
        let winner = |kind| routes.longest_prefix(kind).map(|(pattern, _)| pattern);
        assert_eq!(winner("email:send:now"), Some("email:send"));
        assert_eq!(winner("email:send"), Some("email:send"));
        assert_eq!(winner("email:sena"), Some("email:"));
        assert_eq!(winner("image:crop"), Some("im"));
        assert_eq!(winner("image:resizes"), Some("image:resize"));
        for kind in ["e", "video", "", "iä"] {
            assert_eq!(winner(kind), None, "{kind}");
        }
    }

    #[test]
    fn a_typed_handler_serves_its_type_alone() {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct Send;
        impl Task for Send {
            const KIND: &'static str = "email:send";
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
        for kind in ["email:send:now", "image:crop", "imag", "a", "z", "\u{e4}"] {
            assert!(routes.find(kind).is_some(), "{kind}");
        }
        assert_eq!(routes.longest_prefix("image:crop").map(|(pattern, _)| pattern), Some("image:"));
        assert_eq!(routes.longest_prefix("email:send:now").map(|(pattern, _)| pattern), Some(""));
    }

    #[test]
    #[should_panic(expected = "two handlers")]
    fn a_pattern_has_one_handler() {
        let _ = router(&["a", "a"]);
    }
}

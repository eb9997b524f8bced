//! Which handler works which tasks.

use std::collections::BTreeMap;
use std::future::Future;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::lazy;
use queue_core::outcome::Failure;
use queue_core::{FromMessage, Task};
use tower::{Layer, Service, service_fn};

use crate::aggregate::{Aggregate, Aggregator};
use crate::handler::{Answer, BlockingHandler, Handler, IntoOutcome};
use crate::job::Job;
use crate::panic::Catch;
use crate::routes::{Aggregators, Entry, Route, Routes};
use crate::work::WorkOptions;

/// Handlers by task type.
///
/// A typed handler ([`task`](Self::task)) serves exactly its type. A [`route`](Self::route) follows the
/// rules of asynq's `ServeMux`: the whole type first, then the longest registered text that the type
/// begins with.
#[derive(Debug, Clone)]
pub struct Router<S = ()> {
    exact: BTreeMap<String, Entry>,
    prefixes: BTreeMap<String, Entry>,
    aggregators: Aggregators,
    state: S,
}

impl<S: Clone + Send + Sync + 'static> Router<S> {
    /// A router whose handlers share this state.
    pub fn new(state: S) -> Self {
        Self { exact: BTreeMap::new(), prefixes: BTreeMap::new(), aggregators: Aggregators::default(), state }
    }

    /// Adds a handler for the type of its first argument. It is not called for a task whose payload cannot be
    /// decoded: that one is archived, unless [`Undecodable`](crate::Undecodable) says otherwise.
    ///
    /// # Panics
    /// When the type has a handler already.
    #[must_use]
    pub fn task<P: Task, M: 'static, H: Handler<P, M, S>>(self, handler: H) -> Self {
        let state = self.state.clone();
        self.insert_exact(P::TYPE, true, route(move |job| handler.clone().call(job, state.clone())))
    }

    /// Adds a blocking handler, run on a thread of its own.
    ///
    /// A thread cannot be stopped from outside: a function that may run long should look at
    /// [`Job::cancellation`] now and then. After a timeout the task is retried as usual, beside a function that has not
    /// returned, as with Go's servers; so it is requeued when the time for a shutdown is over. The slot
    /// stays taken until the function has returned, and the process ends only then.
    ///
    /// # Panics
    /// When the type has a handler already.
    #[must_use]
    pub fn blocking<P: Task, M: 'static, H: BlockingHandler<P, M, S>>(self, handler: H) -> Self {
        let state = self.state.clone();
        self.insert_exact(P::TYPE, true, route(move |job| handler.clone().call(job, state.clone())))
    }

    /// Adds a handler for every type that begins with `pattern`, unless a longer pattern or a typed
    /// handler fits better. The handler gets the [`Job`], payload bytes and all.
    ///
    /// ```
    /// # use queue_worker::{Job, Router};
    /// let router = Router::new(()).route("image:", async |job: Job| {
    ///     println!("{} of {} bytes", job.task_type(), job.payload().len());
    /// });
    /// ```
    ///
    /// # Panics
    /// When the pattern is blank, or has a handler already.
    #[must_use]
    pub fn route<F, Fut>(self, pattern: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Job) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let pattern = pattern.into();
        assert!(!pattern.trim().is_empty(), "the pattern of a route is blank");
        self.insert_prefix(pattern, untyped(handler))
    }

    /// Adds a handler for exactly this type, without a Rust type for its payload. The handler gets the
    /// [`Job`], payload bytes and all.
    ///
    /// # Panics
    /// When the type is blank, or has a handler already.
    #[must_use]
    pub fn route_exact<F, Fut>(self, task_type: impl AsRef<str>, handler: F) -> Self
    where
        F: Fn(Job) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let task_type = task_type.as_ref();
        assert!(!task_type.trim().is_empty(), "the type of a route is blank");
        self.insert_exact(task_type, false, untyped(handler))
    }

    /// Adds a handler for every type that no other handler serves.
    ///
    /// # Panics
    /// When there is one already.
    #[must_use]
    pub fn fallback<F, Fut>(self, handler: F) -> Self
    where
        F: Fn(Job) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        // Every type begins with the empty text.
        self.insert_prefix(String::new(), untyped(handler))
    }

    /// Says how the tasks of a handler are worked: `pattern` is the type or the pattern that it was added with, the
    /// empty text for the [`fallback`](Self::fallback). A later call for the same handler replaces an earlier one.
    ///
    /// There is no limit of tasks at once for a type: a server would have to take its tasks to find out that there
    /// is no room for them. A type that needs one gets a queue of its own, and that queue a limit
    /// ([`Server::queue_concurrency`](crate::Server::queue_concurrency)).
    ///
    /// # Panics
    /// When there is no such handler, so that a misspelt type does not go unnoticed.
    #[must_use]
    pub fn options(mut self, pattern: impl AsRef<str>, options: WorkOptions) -> Self {
        let pattern = pattern.as_ref();
        let mut entries = [self.exact.get_mut(pattern), self.prefixes.get_mut(pattern)];
        let entries = entries.iter_mut().flatten();
        let count = entries.map(|entry| entry.options = Some(options.clone())).count();
        assert!(count > 0, "options for {pattern:?}, and no handler was added for it; add the handler first");
        self
    }

    /// Adds all handlers and aggregators of another router, with its layers, options and state.
    ///
    /// ```
    /// # use queue_worker::{Job, Router};
    /// # mod mail { pub fn router() -> queue_worker::Router<&'static str> { queue_worker::Router::new("smtp") } }
    /// let router = Router::new(()).route("image:", async |_: Job| {}).merge(mail::router());
    /// ```
    ///
    /// # Panics
    /// When both have a handler for the same type or pattern, or an aggregator for the same groups.
    #[must_use]
    pub fn merge<T>(self, other: Router<T>) -> Self {
        self.merge_renamed(other, |pattern, _| pattern)
    }

    /// Adds all handlers of another router for types that begin with this prefix: its pattern `resize` becomes
    /// `video:resize`, and its [`fallback`](Self::fallback) serves all other types that begin with `video:`.
    ///
    /// A typed handler ([`task`](Self::task), [`blocking`](Self::blocking)) keeps its type, because clients enqueue it
    /// under that name; it has to begin with the prefix. Aggregators go by queue and group, and stay as they are.
    ///
    /// ```
    /// # use queue_worker::{Job, Router};
    /// let video = Router::new(()).route_exact("resize", async |_: Job| {}).fallback(async |_: Job| {});
    /// let router = Router::new(()).nest("video:", video); // video:resize, and video: followed by anything else
    /// ```
    ///
    /// # Panics
    /// When the prefix is blank, when a typed handler's type does not begin with it, and as [`merge`](Self::merge).
    #[must_use]
    pub fn nest<T>(self, prefix: impl AsRef<str>, other: Router<T>) -> Self {
        let prefix = prefix.as_ref();
        assert!(!prefix.trim().is_empty(), "the prefix of a nested router is blank");
        self.merge_renamed(other, |pattern, typed| {
            if !typed {
                return format!("{prefix}{pattern}");
            }
            assert!(
                pattern.starts_with(prefix),
                "the handler for tasks of type {pattern:?} is nested under {prefix:?}, and clients enqueue them as \
                 {pattern:?}; name the type {:?}, or merge the router",
                format!("{prefix}{pattern}"),
            );
            pattern
        })
    }

    fn merge_renamed<T>(mut self, other: Router<T>, name: impl Fn(String, bool) -> String) -> Self {
        for (task_type, entry) in other.exact {
            let task_type = name(task_type, entry.typed);
            self.add_exact(&task_type, entry);
        }
        for (pattern, entry) in other.prefixes {
            self.add_prefix(name(pattern, false), entry);
        }
        if let Some(all) = other.aggregators.all {
            self.add_aggregator(None, all);
        }
        for (queue, prefixes) in other.aggregators.queues {
            for (prefix, aggregate) in prefixes {
                self.add_aggregator(Some((&queue, &prefix)), aggregate);
            }
        }
        self
    }

    /// Sets the function that makes one task of the tasks of a group, in all queues of the server, but for groups that
    /// [`aggregate_in`](Self::aggregate_in) has another for. Layers do not apply to it.
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
        let aggregate = Aggregate::new(aggregator, self.state.clone());
        self.add_aggregator(None, aggregate);
        self
    }

    /// The same for the groups of one queue whose names begin with `prefix`; the empty text for all of them. Of
    /// several that fit a group the longest prefix counts, and [`aggregate`](Self::aggregate) is for all other groups.
    /// A group that has none stays as it is, for other servers.
    ///
    /// # Panics
    /// When there is one already.
    #[must_use]
    pub fn aggregate_in<P: FromMessage, M: 'static, A: Aggregator<P, M, S>>(
        mut self,
        queue: impl AsRef<str>,
        prefix: impl AsRef<str>,
        aggregator: A,
    ) -> Self {
        let aggregate = Aggregate::new(aggregator, self.state.clone());
        self.add_aggregator(Some((queue.as_ref(), prefix.as_ref())), aggregate);
        self
    }

    /// Wraps all handlers added so far in a tower layer; the last layer added is the outermost.
    /// [`from_fn`](crate::from_fn) makes one of a function.
    ///
    /// A panic of a handler comes out of it as a failure like any other, with the error [`Panicked`](crate::Panicked). A
    /// layer that changes the error type, such as tower's own timeout, needs a `map_err` to
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
                .map(|(pattern, entry)| {
                    let route = Route::new(layer.layer(entry.route));
                    (pattern, Entry { route, ..entry })
                })
                .collect();
        }
        self
    }

    fn insert_exact(mut self, task_type: &str, typed: bool, route: Route) -> Self {
        self.add_exact(task_type, Entry { route, options: None, typed });
        self
    }

    fn insert_prefix(mut self, pattern: String, route: Route) -> Self {
        self.add_prefix(pattern, Entry { route, options: None, typed: false });
        self
    }

    fn add_exact(&mut self, task_type: &str, entry: Entry) {
        let taken = self.exact.insert(task_type.to_owned(), entry);
        assert!(taken.is_none(), "two handlers for tasks of type {task_type:?}");
    }

    fn add_prefix(&mut self, pattern: String, entry: Entry) {
        let taken = self.prefixes.insert(pattern.clone(), entry);
        assert!(taken.is_none(), "two handlers for the pattern {pattern:?} (the empty one is the fallback)");
    }

    fn add_aggregator(&mut self, place: Option<(&str, &str)>, aggregate: Aggregate) {
        let taken = match place {
            None => self.aggregators.all.replace(aggregate),
            Some((queue, prefix)) => {
                let prefixes = self.aggregators.queues.entry(queue.to_owned()).or_default();
                prefixes.insert(prefix.to_owned(), aggregate)
            }
        };
        assert!(
            taken.is_none(),
            "two aggregators for {}; Router::aggregate_in takes one for each queue and prefix",
            place.map_or("all groups".to_owned(), |(queue, prefix)| format!("groups {prefix:?}… of queue {queue:?}")),
        );
    }

    pub(crate) fn into_routes(self) -> Routes {
        Routes::new(self.exact, self.prefixes, self.aggregators)
    }
}

/// A handler as a service. A panic in it is a failure, which layers see like any other.
///
/// Combinators instead of `async`: a block keeps what it was given beside what it makes of it, and the future would have
/// twice the size.
fn route<W, Fut>(work: W) -> Route
where
    W: Fn(Job) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    Route::new(service_fn(move |job| {
        let work = work.clone();
        let answer = Catch::new(lazy(move |_| work(job)).flatten());
        answer.map(|caught| caught.unwrap_or_else(|panicked| Err(Failure::Retry(panicked.into()))))
    }))
}

/// A handler that takes the whole job, as a service.
fn untyped<F, Fut>(handler: F) -> Route
where
    F: Fn(Job) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    route(move |job| {
        let work = handler(job);
        async move { work.await.into_outcome() }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Send;
    impl Task for Send {
        const TYPE: &'static str = "email:send";
        type Codec = queue_core::Json;
    }

    async fn nothing(_: Job) {}

    fn serves(routes: &Routes, types: [&str; 4]) -> [bool; 4] {
        types.map(|task_type| routes.find(task_type).is_some())
    }

    #[test]
    #[should_panic(expected = "two handlers for the pattern \"a\"")]
    fn a_pattern_has_one_handler() {
        let _ = Router::new(()).route("a", nothing).route("a", nothing);
    }

    #[test]
    fn a_merged_router_brings_its_handlers_options_and_aggregators() {
        let options = WorkOptions::new().timeout(Duration::from_secs(7));
        let aggregator = async |_: crate::Group, _: Vec<queue_core::RawTask>| queue_core::RawTask::new("digest");
        let other = Router::new("its own state")
            .task(async |_: Send, _: crate::State<&'static str>| {})
            .route("image:", nothing)
            .options("image:", options)
            .aggregate_in("mail", "user:", aggregator);
        let routes = Router::new(()).route_exact("a", nothing).merge(other).into_routes();
        assert_eq!(serves(&routes, ["a", "email:send", "image:crop", "b"]), [true, true, true, false]);
        assert_eq!(routes.options("image:crop").unwrap().timeout, Some(Duration::from_secs(7)));
        assert!(routes.options("a").is_none());
        assert!(routes.aggregators().find("mail", "user:7").is_some());
    }

    #[test]
    #[should_panic(expected = "two handlers for tasks of type \"email:send\"")]
    fn merged_routers_do_not_share_a_type() {
        let _ = Router::new(()).route_exact("email:send", nothing).merge(Router::new(()).task(async |_: Send| {}));
    }

    #[test]
    fn a_nested_router_serves_its_patterns_below_the_prefix() {
        let video = Router::new(()).route_exact("resize", nothing).route("cut:", nothing);
        let routes = Router::new(()).nest("video:", video.clone()).into_routes();
        assert_eq!(serves(&routes, ["video:resize", "video:cut:a", "resize", "video:"]), [true, true, false, false]);
        let routes = Router::new(()).nest("a:", Router::new(()).nest("video:", video.fallback(nothing))).into_routes();
        assert_eq!(serves(&routes, ["a:video:x", "a:video:resize", "a:x", "video:x"]), [true, true, false, false]);
    }

    #[test]
    fn a_nested_typed_handler_keeps_the_type_that_clients_enqueue() {
        let routes = Router::new(()).nest("email:", Router::new(()).task(async |_: Send| {})).into_routes();
        assert!(routes.find("email:send").is_some() && routes.find("email:email:send").is_none());
    }

    #[test]
    #[should_panic(expected = "clients enqueue them as \"email:send\"; name the type \"video:email:send\"")]
    fn a_typed_handler_does_not_nest_below_a_prefix_that_its_type_lacks() {
        let _ = Router::new(()).nest("video:", Router::new(()).task(async |_: Send| {}));
    }

    #[test]
    #[should_panic(expected = "options for \"imege:\"")]
    fn options_for_a_handler_that_is_not_there_are_refused() {
        let _ = Router::new(()).route("image:", nothing).options("imege:", WorkOptions::new());
    }
}

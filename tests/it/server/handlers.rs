//! What handlers are given, and what surrounds them.

use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use queue_core::{RawTask, TaskState};
use queue_worker::{
    Answer, CancelReason, CancellationToken, Extension, Failure, FromJob, FromRef, Headers, Job, Next, Panicked, Route,
    Router, State, from_fn,
};
use serde::{Deserialize, Serialize};
use tower::{Layer, Service};

use crate::support::{Events, Fixture, job, with};

#[derive(Debug, Serialize, Deserialize, queue_worker::Task)]
#[task(type = "typed", queue = "q", max_retry = 5)]
struct Typed {
    number: u8,
}

/// What is right compiles with the attribute, and works as without.
#[queue_worker::debug_handler(state = App)]
async fn checked(
    task: Typed,
    State(events): State<Events>,
    Tenant(tenant): Tenant,
    job: Option<Job>,
) -> Result<queue_worker::Output<u8>, std::io::Error> {
    events.tell(format!("{} for {tenant}, {}", task.number, job.is_some()));
    Ok(queue_worker::Output(task.number))
}

#[queue_worker::debug_handler(blocking)]
fn checked_blocking(task: Typed, State(app): State<App>) {
    app.events.tell(format!("blocking {}", task.number));
}

/// Names that the attribute used too, so that it took them for its own.
mod named_alike {
    use queue_worker::State;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Serialize, Deserialize, queue_worker::Task)]
    #[task(type = "alike")]
    pub(super) struct Task;

    #[derive(Debug)]
    pub(super) enum HandlerError {}

    impl std::error::Error for HandlerError {}

    impl std::fmt::Display for HandlerError {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            match *self {}
        }
    }

    #[derive(Clone)]
    pub(super) struct FromJob;

    pub(super) type IntoOutcome = ();

    #[queue_worker::debug_handler]
    pub(super) async fn future(_: Task, _: State<FromJob>) -> Result<IntoOutcome, HandlerError> {
        Ok(())
    }

    #[queue_worker::debug_handler(state = FromJob)]
    pub(super) async fn any(_: Task) -> IntoOutcome {}

    #[queue_worker::debug_handler(state = FromJob)]
    pub(super) async fn sent_between_threads(_: Task) {}
}

#[test]
fn types_and_handlers_may_be_named_as_what_the_macros_use() {
    use named_alike::{FromJob, any, future, sent_between_threads};
    let router = || Router::new(FromJob);
    drop((router().task(future), router().task(any), router().task(sent_between_threads)));
}

#[derive(Clone)]
struct App {
    events: Events,
    answer: u32,
}

impl FromRef<App> for Events {
    fn from_ref(app: &App) -> Self {
        app.events.clone()
    }
}

/// A header that a handler may require.
struct Tenant(String);

impl<S: Sync> FromJob<S> for Tenant {
    type Rejection = Failure;

    async fn from_job(job: &Job, _: &S) -> Result<Self, Failure> {
        let tenant = job.headers().get("tenant").ok_or_else(|| Failure::archive("no tenant"))?;
        Ok(Self(tenant.clone()))
    }
}

#[tokio::test]
async fn extractors_give_state_its_parts_headers_job_and_token() {
    let fixture = Fixture::start().await;
    let events = <Events>::default();
    let app = App { events: events.clone(), answer: 42 };
    let handler = async |task: Typed,
                         State(app): State<App>,
                         State(events): State<Events>,
                         Headers(headers): Headers,
                         job: Job,
                         token: CancellationToken| {
        events.tell(format!("{} {} {} {}", task.number, app.answer, headers["k"], job.max_retry()));
        assert!(!token.is_cancelled() && job.cancel_reason().is_none());
    };
    let server = fixture.server(Router::new(app).task(handler)).start().await.unwrap();
    let client = fixture.client();
    client.enqueue_with(Typed { number: 7 }, queue_core::TaskOptions::new().header("k", "v")).await.unwrap();
    assert_eq!(events.wait(1).await, ["7 42 v 5"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_handler_with_debug_handler_works_as_without() {
    let fixture = Fixture::start().await;
    let app = App { events: <Events>::default(), answer: 42 };
    let typed =
        |id: &str| RawTask { task_type: "typed".into(), ..job(id).payload(r#"{"number":1}"#).header("tenant", "t1") };
    let server = fixture.server(Router::new(app.clone()).task(checked)).start().await.unwrap();
    fixture.enqueue([typed("a")]).await;
    assert_eq!(app.events.wait(1).await, ["1 for t1, true"]);
    server.shutdown().await;
    let server = fixture.server(Router::new(app.clone()).blocking(checked_blocking)).start().await.unwrap();
    fixture.enqueue([typed("b")]).await;
    assert_eq!(app.events.wait(2).await[1], "blocking 1");
    server.shutdown().await;
}

#[tokio::test]
async fn an_extractor_that_refuses_decides_what_happens_unless_it_is_optional() {
    let fixture = Fixture::start().await;
    let events = <Events>::default();
    let required = async |_: Typed, Tenant(tenant): Tenant, State(events): State<Events>| events.tell(tenant);
    let server = fixture.server(Router::new(events.clone()).task(required)).start().await.unwrap();
    let typed = |id: &str| RawTask { task_type: "typed".into(), ..job(id).payload(r#"{"number":1}"#) };
    fixture.enqueue([typed("without"), typed("with").header("tenant", "t1")]).await;
    let info = fixture.in_state("without", TaskState::Archived).await;
    assert_eq!(info.last_error.as_deref(), Some("no tenant"));
    assert_eq!(events.wait(1).await, ["t1"]);
    server.shutdown().await;

    let optional =
        async |_: Typed, one: Option<Tenant>, other: Result<Tenant, Failure>, State(events): State<Events>| {
            events.tell(format!("{} {}", one.is_some(), other.is_ok()));
        };
    let server = fixture.server(Router::new(events.clone()).task(optional)).concurrency(1).start().await.unwrap();
    fixture.enqueue([typed("without2"), typed("with2").header("tenant", "t1")]).await;
    assert_eq!(events.wait(3).await[1..], ["false false", "true true"]);
    server.shutdown().await;
}

/// A door that a blocking handler waits at.
#[derive(Clone, Default)]
struct Door(Arc<(Mutex<bool>, Condvar)>);

impl Door {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let closed = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(closed, |open| !*open).unwrap());
    }
}

#[tokio::test]
async fn a_blocking_handler_works_and_its_panic_is_a_failure() {
    let fixture = Fixture::start().await;
    let work = |task: Typed| assert!(task.number > 0, "nothing at line {}", line!());
    let server = fixture.server(Router::new(()).blocking(work)).start().await.unwrap();
    let typed = |id: &str, number: u8| RawTask {
        task_type: "typed".into(),
        ..job(id).payload(format!(r#"{{"number":{number}}}"#))
    };
    fixture.enqueue([typed("good", 1), typed("bad", 0)]).await;
    fixture.gone("good").await;
    let error = fixture.in_state("bad", TaskState::Retry).await.last_error.unwrap();
    let line = error.rsplit(' ').next().unwrap();
    assert_eq!(error, format!("panic [{}:{line}]: nothing at line {line}", file!()));
    server.shutdown().await;
}

/// A thread cannot be stopped; were its slot given away, more would run than allowed.
#[tokio::test]
async fn a_blocking_handler_holds_its_slot_until_it_has_ended() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), Door::default());
    let router = Router::new((events.clone(), door.clone()))
        .blocking(block_until_opened())
        .route("job", with(&events, async |events: Events, job: Job| events.tell(job.id())));
    let server = fixture.server(router).concurrency(1).start().await.unwrap();
    let typed = RawTask { task_type: "typed".into(), ..job("blocks").payload(r#"{"number":1}"#) };
    fixture.enqueue([typed.timeout(Duration::from_secs(1)), job("next")]).await;
    let info = fixture.in_state("blocks", TaskState::Retry).await;
    assert_eq!(info.last_error.as_deref(), Some("context deadline exceeded"));
    // Were the slot free, the server would take the next task at once.
    assert_eq!(events.all(), ["blocks", "Some(Deadline)"]);
    assert_eq!(fixture.keyspace().await.get("{q}:pending"), Some("[next]"));
    door.open();
    assert_eq!(events.wait(4).await, ["blocks", "Some(Deadline)", "ended", "next"]);
    server.shutdown().await;
}

/// Work whose attempt has timed out while it waited for a thread was done all the same, besides the next attempt.
#[test]
fn blocking_work_that_waited_too_long_for_a_thread_is_not_begun() {
    let one_thread = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_all().build();
    one_thread.unwrap().block_on(async {
        let fixture = Fixture::start().await;
        let (events, door) = (Events::default(), Door::default());
        let router = Router::new((events.clone(), door.clone())).blocking(
            |_: Typed, job: Job, State((events, door)): State<(Events, Door)>| {
                events.tell(job.id());
                door.pass();
            },
        );
        let server = fixture.server(router).concurrency(2).start().await.unwrap();
        let typed = |id: &str| RawTask { task_type: "typed".into(), ..job(id).payload(r#"{"number":1}"#) };
        fixture.enqueue([typed("blocks")]).await;
        events.wait(1).await;
        fixture.enqueue([typed("late").timeout(Duration::from_secs(1))]).await;
        let info = fixture.in_state("late", TaskState::Retry).await;
        assert_eq!(info.last_error.as_deref(), Some("context deadline exceeded"));
        door.open();
        fixture.gone("blocks").await;
        // The thread has nothing else to do: what comes after it in the queue shows that it was passed over.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert_eq!(events.all(), ["blocks"]);
        server.shutdown().await;
    });
}

/// A handler that says when it notices its timeout and goes on until the door opens.
fn block_until_opened() -> impl Fn(Typed, Job, State<(Events, Door)>) + Clone + Send + Sync {
    |_: Typed, job: Job, State((events, door)): State<(Events, Door)>| {
        events.tell(job.id());
        while !job.cancellation().is_cancelled() {
            std::thread::sleep(Duration::from_millis(5));
        }
        events.tell(format!("{:?}", job.cancel_reason()));
        assert_eq!(job.cancel_reason(), Some(CancelReason::Deadline));
        door.pass();
        events.tell("ended");
    }
}

/// A layer that tells when it is passed.
#[derive(Clone)]
struct Told(&'static str, Events);

#[derive(Clone)]
struct ToldService(Told, Route);

impl Layer<Route> for Told {
    type Service = ToldService;

    fn layer(&self, inner: Route) -> ToldService {
        ToldService(self.clone(), inner)
    }
}

impl Service<Job> for ToldService {
    type Response = <Route as Service<Job>>::Response;
    type Error = Failure;
    type Future = <Route as Service<Job>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.1.poll_ready(context)
    }

    fn call(&mut self, job: Job) -> Self::Future {
        let Told(name, events) = self.0.clone();
        events.tell(format!("into {name}"));
        let inner = self.1.call(job);
        Box::pin(async move {
            let answer = inner.await;
            events.tell(format!("out of {name}: {}", answer.is_ok()));
            answer
        })
    }
}

#[tokio::test]
async fn layers_wrap_what_was_added_before_and_the_last_is_the_outermost() {
    let fixture = Fixture::start().await;
    let events = <Events>::default();
    let work = with(&events, async |events: Events, job: Job| {
        events.tell(job.task_type());
        if job.task_type() == "fails" { Err::<(), Failure>("boom".into()) } else { Ok(()) }
    });
    let router = Router::new(())
        .route("fails", work.clone())
        .layer(Told("inner", events.clone()))
        .layer(Told("outer", events.clone()))
        .route("bare", work);
    let server = fixture.server(router).concurrency(1).start().await.unwrap();
    let of = |task_type: &str| RawTask { task_type: task_type.to_owned(), ..job(task_type) };
    fixture.enqueue(["fails", "bare"].map(of)).await;
    let expected = ["into outer", "into inner", "fails", "out of inner: false", "out of outer: false", "bare"];
    assert_eq!(events.wait(6).await, expected);
    server.shutdown().await;
}

/// What a layer finds out about who a task is for.
#[derive(Clone)]
struct Customer(String);

#[tokio::test]
async fn a_function_as_layer_hands_extensions_to_handlers_and_sees_what_they_answer() {
    let fixture = Fixture::start().await;
    let events = <Events>::default();
    let seen = events.clone();
    let watch = from_fn(move |job: Job, next: Next| {
        let seen = seen.clone();
        async move {
            let id = job.id().to_owned();
            let customer = job.headers().get("customer").cloned().ok_or_else(|| Failure::archive("no customer"))?;
            let answer: Answer =
                next.run(job.with_extension(Customer("?".into())).with_extension(Customer(customer))).await;
            seen.tell(match &answer {
                Ok(result) => format!("{id}: {result:?}"),
                Err(failure) if failure.error().is::<Panicked>() => format!("{id} panicked"),
                Err(failure) => format!("{id} failed: {failure}"),
            });
            answer
        }
    });
    let work = async |_: Typed, Extension(Customer(customer)): Extension<Customer>, job: Job| {
        assert_ne!(customer, "nobody");
        assert!(job.extension::<u32>().is_none());
        bytes::Bytes::from(customer)
    };
    let bare = async |_: Job| {};
    let router = Router::new(()).task(work).route("panics", async |job: Job| assert!(job.id().is_empty())).layer(watch);
    let server = fixture.server(router.route("bare", bare)).concurrency(1).start().await.unwrap();
    let of = |task_type: &str, id: &str| RawTask { task_type: task_type.into(), ..job(id).payload(r#"{"number":1}"#) };
    let tasks = [
        of("typed", "a").header("customer", "ada"),
        of("typed", "b").header("customer", "nobody"),
        of("panics", "c").header("customer", "ada"),
        of("typed", "d"),
        of("bare", "e"),
    ];
    fixture.enqueue(tasks).await;
    assert_eq!(events.wait(3).await, ["a: Some(b\"ada\")", "b panicked", "c panicked"]);
    let info = fixture.in_state("d", TaskState::Archived).await;
    assert_eq!(info.last_error.as_deref(), Some("no customer"));
    fixture.gone("e").await;
    let panicked = fixture.in_state("b", TaskState::Retry).await.last_error.unwrap();
    assert!(panicked.starts_with(&format!("panic [{}:", file!())), "{panicked}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_handler_whose_extension_no_layer_adds_fails_and_says_so() {
    let fixture = Fixture::start().await;
    let router = Router::new(()).task(async |_: Typed, Extension(Customer(_)): Extension<Customer>| {});
    let server = fixture.server(router).start().await.unwrap();
    fixture.enqueue([RawTask { task_type: "typed".into(), ..job("a").payload(r#"{"number":1}"#) }]).await;
    let error = fixture.in_state("a", TaskState::Retry).await.last_error.unwrap();
    assert!(error.starts_with("no layer has added the extension ") && error.contains("::Customer "), "{error}");
    server.shutdown().await;
}

#[tokio::test]
async fn the_error_hook_sees_every_failure_and_its_own_panic_harms_nobody() {
    let fixture = Fixture::start().await;
    let events = <Events>::default();
    let seen = events.clone();
    let router = Router::new(())
        .route("fails", async |job: Job| if job.id() == "ok" { Ok(()) } else { Err::<(), Failure>("boom".into()) })
        .route("revokes", async |_: Job| Err::<(), _>(Failure::revoke("obsolete")))
        .route("panics", async |job: Job| {
            if job.id() == "c" {
                panic!("broken")
            }
        });
    let hook = move |job: &Job, failure: &Failure| {
        seen.tell(format!("{}: {failure}", job.id()));
        panic!("the hook is broken too");
    };
    let server = fixture.server(router).concurrency(1).on_error(hook).start().await.unwrap();
    let of = |task_type: &str, id: &str| RawTask { task_type: task_type.to_owned(), ..job(id) };
    fixture.enqueue([of("fails", "a"), of("fails", "ok"), of("revokes", "b"), of("panics", "c")]).await;
    let told = events.wait(3).await;
    assert_eq!(told[..2], ["a: boom", "b: obsolete"]);
    assert!(told[2].starts_with("c: panic [") && told[2].ends_with("]: broken"), "{told:?}");
    fixture.in_state("a", TaskState::Retry).await;
    fixture.in_state("c", TaskState::Retry).await;
    fixture.gone("b").await;
    server.shutdown().await;
    assert_eq!(events.count(), 3);
}

#[tokio::test]
async fn the_health_hook_tells_when_redis_goes_and_comes() {
    let mut redis = crate::support::RedisProcess::start(&[]).await;
    let events = <Events>::default();
    let seen = events.clone();
    let handle = queue_redis::Redis::connect(&redis.url()).await.unwrap();
    let hook = move |health: Result<(), &queue_redis::Error>| seen.tell(if health.is_ok() { "up" } else { "down" });
    let server = queue_worker::Server::new(handle, Router::new(())).health_check(Duration::from_millis(20), hook);
    let server = server.start().await.unwrap();
    let last = async |expected: &'static str| {
        crate::support::eventually(format!("Redis is {expected}"), async || {
            events.all().last().is_some_and(|last| last == expected)
        })
        .await;
    };
    last("up").await;
    redis.kill();
    last("down").await;
    redis.start_again().await;
    last("up").await;
    server.shutdown().await;
}

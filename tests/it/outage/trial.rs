//! What every outage is put to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_admin::Inspector;
use queue_core::RawTask;
use queue_metrics::{Endpoint, WorkerMetrics};
use queue_redis::{Client, EnqueueError, Error, Redis, RedisOptions};
use queue_worker::{CancellationToken, Handle, Job, Router, Server};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::support::{Events, Lines, QUEUE, eventually, get, job, wait_for, with};

/// Far longer than any outage here.
const LONG: Duration = Duration::from_secs(120);

/// So many calls to Redis may fail during an outage that lasts for a heartbeat: a dozen parts, with pauses up to 5 s.
/// One part without pauses makes some thousand.
const MOST_CALLS: usize = 200;

/// Calls give up after so short a time that a test need not wait for them.
fn impatient_options() -> RedisOptions {
    let brief = Duration::from_millis(500);
    RedisOptions { connect_timeout: brief, response_timeout: brief, ..RedisOptions::default() }
}

fn impatient(url: &str) -> Redis {
    Redis::lazy(url, impatient_options()).unwrap()
}

/// A server at work, and all that can be seen of it from outside.
pub(super) struct Trial {
    url: String,
    pub(super) events: Events,
    door: Arc<Semaphore>,
    lines: Lines,
    _guard: tracing::subscriber::DefaultGuard,
    /// What the health hook was told last.
    health: Arc<Mutex<Option<Result<(), Error>>>>,
    /// Calls of the server that failed, by their names.
    failed: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    server: Handle,
    address: SocketAddr,
    served: CancellationToken,
    said_before: usize,
    patient: Option<JoinHandle<Result<queue_core::TaskInfo, EnqueueError>>>,
    /// Answers that the patient client has not got.
    lost: Arc<AtomicU32>,
}

impl Trial {
    /// Starts the server, and lets it have done one task and begun another.
    pub(super) async fn start(url: &str) -> Self {
        let (lines, guard) = Lines::collect();
        let (events, door) = (Events::default(), Arc::new(Semaphore::new(0)));
        let work = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Semaphore>), job: Job| {
            events.tell(job.id());
            if job.task_type() == "held" {
                door.acquire().await.unwrap().forget();
            }
        });
        let health: Arc<Mutex<Option<Result<(), Error>>>> = Arc::default();
        let failed: Arc<Mutex<BTreeMap<&'static str, usize>>> = Arc::default();
        let (redis, metrics, seen, count) = (impatient(url), WorkerMetrics::new(), health.clone(), failed.clone());
        redis.on_call(move |call| {
            // The health check has no pauses but its own.
            if call.error.is_some() && call.operation != "PING" {
                *count.lock().unwrap().entry(call.operation).or_default() += 1;
            }
        });
        let endpoint = Endpoint::new(impatient(url)).worker(metrics.clone()).bind("127.0.0.1:0").await.unwrap();
        let (address, served) = (endpoint.local_addr().unwrap(), CancellationToken::new());
        tokio::spawn(endpoint.serve(served.clone().cancelled_owned()));
        let server = Server::new(redis, Router::new(()).route("job", work.clone()).route("held", work))
            .queues([(QUEUE, 1)])
            .concurrency(2)
            .observe(metrics.observer())
            .health_check(Duration::from_millis(100), move |health| {
                *seen.lock().unwrap() = Some(health.map_err(Error::clone));
            });
        let server = server.start().await.unwrap();
        let trial = Self {
            url: url.to_owned(),
            events,
            door,
            lines,
            _guard: guard,
            health,
            failed,
            server,
            address,
            served,
            said_before: 0,
            patient: None,
            lost: Arc::default(),
        };
        trial.enqueue(job("before")).await;
        trial.is_worked("before").await;
        trial.enqueue(RawTask { task_type: "held".into(), ..job("held") }).await;
        eventually("the second task has begun", async || trial.has_begun("held")).await;
        trial.is_green().await;
        trial
    }

    pub(super) fn client(&self) -> Client {
        Client::new(impatient(&self.url))
    }

    async fn enqueue(&self, task: RawTask) {
        self.client().enqueue(task).await.unwrap();
    }

    fn has_begun(&self, id: &str) -> bool {
        self.events.all().iter().any(|begun| begun == id)
    }

    async fn is_worked(&self, id: &str) {
        let inspector = Inspector::new(impatient(&self.url));
        eventually(format!("the task {id} is done"), async || {
            self.has_begun(id)
                && matches!(inspector.task(QUEUE, id).await, Err(queue_admin::Error::TaskNotFound { .. }))
        })
        .await;
    }

    pub(super) async fn is_green(&self) {
        eventually("the health hook is green", async || matches!(*self.health.lock().unwrap(), Some(Ok(())))).await;
        eventually("/healthz is green", async || get(self.address, "/healthz").await.0.starts_with("HTTP/1.1 200"))
            .await;
    }

    fn failed(&self, operation: &str) -> usize {
        self.failed.lock().unwrap().get(operation).copied().unwrap_or(0)
    }

    /// Call this right before the outage.
    pub(super) fn expect(&mut self) {
        self.said_before = self.lines.count();
    }

    /// What is to be seen during the outage. Errors have these words.
    pub(super) async fn during(&mut self, words: &str) {
        let error = self.enqueue_fails().await;
        assert!(error.is_outage(), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        // An enqueue that is sent again may run twice, as docs/limits.md says: the answer is waited for.
        let options = RedisOptions { response_timeout: LONG, ..impatient_options() };
        let (redis, lost) = (Redis::lazy(&self.url, options).unwrap(), self.lost.clone());
        redis.on_call(move |call| {
            lost.fetch_add(u32::from(call.error.is_some_and(Error::is_ambiguous)), Ordering::Relaxed);
        });
        let client = Client::new(redis).wait_for_redis(LONG);
        self.patient = Some(tokio::spawn(async move { client.enqueue(job("patient")).await }));
        // Its outcome cannot be written.
        self.door.add_permits(1);
        eventually("the server has missed a heartbeat", async || {
            self.failed("list_server") + self.failed("connecting") > 0
        })
        .await;
        eventually("the health hook is red, and says why", async || {
            let error = self.health.lock().unwrap().clone().and_then(Result::err);
            error.is_some_and(|error| error.to_string().contains(words))
        })
        .await;
        eventually("/healthz is red, and says why", async || {
            let (head, body) = get(self.address, "/healthz").await;
            head.starts_with("HTTP/1.1 503") && body.contains(words)
        })
        .await;
        assert!(!self.patient.as_ref().unwrap().is_finished(), "it waits");
        let calls = self.failed.lock().unwrap().clone();
        assert!(calls.values().sum::<usize>() < MOST_CALLS, "{calls:?}");
        let said = self.said();
        assert!(said.len() == 1 && said[0].contains("trying again until it does"), "{said:#?}");
        // What ended the connections may be the first that is met.
        let why = [words, "lost the connection", "cannot reach Redis"];
        assert!(said[0].starts_with("ERROR") && why.iter().any(|why| said[0].contains(why)), "{said:#?}");
    }

    /// A caller without patience is told soon. A Redis that is about to refuse may still take some tasks.
    async fn enqueue_fails(&self) -> Error {
        let client = self.client();
        wait_for("an enqueue fails", async || match client.enqueue(RawTask::new("job").queue(QUEUE)).await {
            Ok(_) => None,
            Err(EnqueueError::Redis(error)) => Some(error),
            Err(other) => panic!("{other}"),
        })
        .await
    }

    /// What was logged since the outage began. A loop may have met a Redis that was just being started, and subscribed to one that still
    /// reads its data: that was another outage, which is over.
    pub(super) fn said(&self) -> Vec<String> {
        let mut said = self.lines.all().split_off(self.said_before);
        let is_start = said.len() > 2 && said[0].contains("cannot reach Redis") && said[1].contains("asked again");
        if is_start { said.split_off(2) } else { said }
    }

    /// The same, when it is so many lines. Another loop than the one that works may have been held up, and say so a moment later.
    pub(super) async fn has_said(&self, lines: usize) -> Vec<String> {
        wait_for("all is logged", async || Some(self.said()).filter(|said| said.len() >= lines)).await
    }

    /// What is to be seen afterwards.
    pub(super) async fn after(self) {
        self.works_again().await;
        let said = self.has_said(2).await;
        assert!(said.len() == 2 && said[1].contains("does what it is asked again"), "{said:#?}");
        self.end(&["held", "patient", "after"]).await;
    }

    /// All goes on by itself.
    pub(super) async fn works_again(&self) {
        self.is_worked("patient").await;
        self.enqueue(job("after")).await;
        self.is_worked("after").await;
        self.is_worked("held").await;
        self.is_green().await;
        // The line comes with the last of what failed, and then the health check is green.
    }

    /// The same where what was in hand is lost.
    pub(super) async fn works_again_empty(&self) {
        self.is_worked("patient").await;
        self.enqueue(job("after")).await;
        self.is_worked("after").await;
        self.is_green().await;
    }

    /// New tasks are worked after the data were lost, and the old one is in nobody's way.
    pub(super) async fn serves_after_loss(self) {
        self.enqueue(job("after")).await;
        self.is_worked("after").await;
        self.door.add_permits(1);
        self.server.shutdown().await;
        self.served.cancel();
        assert_eq!(self.events.all(), ["before", "held", "after"]);
    }

    /// Each of these tasks has run, none of all twice, and nothing is left of them.
    pub(super) async fn end(mut self, tasks: &[&str]) {
        self.patient.take().unwrap().await.unwrap().unwrap();
        let inspector = Inspector::new(impatient(&self.url));
        let left = async || inspector.queue(QUEUE).await.unwrap();
        eventually("all tasks are done", async || left().await.size() == 0).await;
        self.server.shutdown().await;
        self.served.cancel();
        let mut begun = self.events.all();
        begun.sort();
        let mut once = begun.clone();
        once.dedup();
        assert_eq!(begun, once, "answers lost: {:?}", self.lost);
        for task in tasks {
            assert!(begun.iter().any(|id| id == task), "{task} in {begun:?}");
        }
        let servers = inspector.servers().await.unwrap();
        assert!(servers.is_empty(), "{servers:?}");
    }
}

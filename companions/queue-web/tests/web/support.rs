//! A Redis, a dashboard of it, and requests to that.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use queue_admin::{Actor, Admin, Inspector, Role, Verb};
use queue_core::limit::{Limit, LimitKey};
use queue_core::{Clock as _, RawTask, SystemClock, TaskState};
use queue_redis::broker::Broker;
use queue_redis::embedded::RedisServer;
use queue_redis::{Client, Redis};
use queue_web::{Identity, Web};
use queue_worker::{Failure, Handle, Job, Router, Server};
use serde_json::Value;
use tower::ServiceExt as _;

/// The queue of the tests.
pub(crate) const QUEUE: &str = "mail";

pub(crate) struct Place {
    pub(crate) server: RedisServer,
    pub(crate) redis: Redis,
    pub(crate) client: Client,
    pub(crate) inspector: Inspector,
}

impl Place {
    pub(crate) async fn start() -> Self {
        let server = RedisServer::start().await.unwrap();
        let redis = server.redis();
        Self { client: Client::new(redis.clone()), inspector: Inspector::new(redis.clone()), redis, server }
    }

    pub(crate) async fn put(&self, tasks: impl IntoIterator<Item = RawTask>) {
        for answer in self.client.enqueue_many(tasks).await {
            answer.unwrap();
        }
    }

    /// A task `<state>` in each state but active and completed.
    pub(crate) async fn furnish(&self) {
        let hour = Duration::from_secs(3_600);
        self.put([
            task("pending"),
            task("archived"),
            task("scheduled").process_in(hour),
            task("aggregating").group("g"),
        ])
        .await;
        self.inspector.change_task(Verb::Archive, QUEUE, "archived", "ann").await.unwrap();
    }

    /// A workflow `release` of which the first node has been worked: a signal `approve` is waited for, and what comes after that. In it, a
    /// batch `test` of three members, one of which has died.
    pub(crate) async fn release(&self) {
        let all = ["fine", "die", "fine"].map(member);
        let flow = self.client.workflow().id("release").description("release 42").task("build", member("fine"));
        let flow = flow.batch("test", all).after(["build"]).signal("approve").after(["build"]);
        let flow = flow.task("ship", member("fine")).after(["test", "approve"]);
        let flow = flow.task("roll-back", member("fine")).after_failure(["test"]);
        flow.on_settled(member("fine")).start().await.unwrap();
        let server = self.work().await;
        let id = "release".parse().unwrap();
        wait_for("the batch in it has died", async || {
            let nodes = self.inspector.flows().nodes(&id).await.unwrap();
            let state = |name: &str| nodes.iter().find(|node| node.name == name).unwrap().state.as_str();
            (state("test") == "dead" && state("roll-back") == "succeeded" && state("approve") == "sent").then_some(())
        })
        .await;
        server.shutdown().await;
    }

    /// A limit `tenant` by a header, and under it, a task of `acme` that runs and two that wait, and one of `globex` that runs.
    pub(crate) async fn limit(&self) {
        let limit =
            Limit::new("tenant", LimitKey::header("tenant")).concurrency(1).rate(2, Duration::from_secs(60)).burst(9);
        self.inspector.set_limit(QUEUE, limit).await.unwrap();
        let of = |id: &str, tenant: &str| task(id).header("tenant", tenant);
        self.put([of("a1", "acme"), of("a2", "acme"), of("a3", "acme"), of("g1", "globex")]).await;
        let broker = Broker::new(self.redis.clone());
        for run in ["run-1", "run-2"] {
            broker.dequeue(&QUEUE.into(), 10, &run.into(), SystemClock.now_secs() + 3_600).await.unwrap();
        }
    }

    /// A server of ours. What has `die` in its payload is archived, what has `fail` is tried again in an hour.
    pub(crate) async fn work(&self) -> Handle {
        let work = async |job: Job| {
            let does = String::from_utf8_lossy(job.payload()).into_owned();
            match () {
                () if does.contains("die") => Err(Failure::archive("it was to die")),
                () if does.contains("fail") => Err(Failure::retry_in(Duration::from_secs(3_600), "it was to fail")),
                () => Ok(()),
            }
        };
        let server = Server::new(self.redis.clone(), Router::new(()).route("email:", work));
        server.queues([(QUEUE, 1)]).concurrency(2).start().await.unwrap()
    }

    /// Without login.
    pub(crate) fn open(&self) -> Site {
        Site(Web::builder(self.redis.clone()).build())
    }

    /// Logged in as somebody.
    pub(crate) fn of(&self, who: Identity) -> Site {
        Site(Web::builder(self.redis.clone()).identify(move |_| Some(who.clone())).build())
    }

    pub(crate) async fn command<T: redis::FromRedisValue>(&self, words: &str) -> T {
        let client = redis::Client::open(self.server.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut command = redis::Cmd::new();
        words.split(' ').for_each(|word| {
            command.arg(word);
        });
        command.query_async(&mut connection).await.unwrap()
    }

    pub(crate) async fn state(&self, id: &str) -> Option<TaskState> {
        self.inspector.task(QUEUE, id).await.ok().map(|task| task.state)
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin::new(self.inspector.clone(), Actor { name: "ada".into(), role: Role::Admin, via: "cli", address: None })
    }
}

pub(crate) fn task(id: &str) -> RawTask {
    RawTask::new("email:send").queue(QUEUE).task_id(id).payload(r#"{"to":"ada"}"#)
}

/// What a member of a batch does is its payload.
pub(crate) fn member(does: &str) -> RawTask {
    RawTask::new("email:send").queue(QUEUE).max_retry(3).payload(format!(r#"{{"does":"{does}","to":"s3cr3t-8457"}}"#))
}

/// A dashboard.
pub(crate) struct Site(pub(crate) Web);

/// What it answers.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Told {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Site {
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Told {
        let mut request = Request::builder().method(method).uri(path);
        if headers.iter().all(|(name, _)| *name != "host") {
            request = request.header("host", "localhost");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.0.router().oneshot(request.body(body.into()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, 64 << 20).await.unwrap();
        Told { status: parts.status, headers: parts.headers, text: String::from_utf8_lossy(&bytes).into_owned() }
    }

    /// A path below `/api/v1`.
    pub(crate) async fn get(&self, path: &str) -> Told {
        self.ask("GET", &format!("/api/v1{path}"), &[], "").await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> Told {
        self.ask(method, &format!("/api/v1{path}"), &[], body.to_owned()).await
    }

    /// Method and path of all routes but those that answer without an end.
    pub(crate) async fn routes(&self) -> Vec<(String, String, String)> {
        let document = self.get("/openapi.json").await.json();
        let mut routes = Vec::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                if operation["responses"]["200"]["content"].get("text/event-stream").is_some() {
                    continue;
                }
                let permission = operation["x-permission"].as_str().unwrap().to_owned();
                routes.push((method.to_uppercase(), path.clone(), permission));
            }
        }
        assert!(routes.len() > 30);
        routes
    }
}

/// A dashboard that is listened to, and the address of it.
pub(crate) struct Served {
    pub(crate) address: String,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Served {
    pub(crate) async fn start(web: &Web) -> Self {
        let listening = web.bind(&"127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listening.address();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(listening.serve(async {
            let _ = stopped.await;
        }));
        Self { address, stop: Some(stop), task: Some(task) }
    }

    pub(crate) async fn end(mut self) {
        self.stop.take();
        self.task.take().unwrap().await.unwrap();
    }
}

/// Waits for something, at most 20 s.
pub(crate) async fn wait_for<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < limit, "waited for this in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A Redis that is killed and comes back at the same address with its data.
pub(crate) struct Mortal {
    directory: tempfile::TempDir,
    child: Option<std::process::Child>,
}

impl Mortal {
    pub(crate) async fn start() -> Self {
        let mut redis = Self { directory: tempfile::tempdir().unwrap(), child: None };
        redis.rise().await;
        redis
    }

    pub(crate) fn redis(&self) -> Redis {
        let url = format!("redis+unix://{}", self.directory.path().join("redis.sock").display());
        Redis::lazy(&url, queue_redis::RedisOptions::default()).unwrap()
    }

    pub(crate) async fn rise(&mut self) {
        let mut command = std::process::Command::new(queue_redis::embedded::find_program().unwrap());
        command.args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--unixsocket"]);
        command.arg(self.directory.path().join("redis.sock")).arg("--dir").arg(self.directory.path());
        let nothing = std::process::Stdio::null;
        self.child = Some(command.stdin(nothing()).stdout(nothing()).stderr(nothing()).spawn().unwrap());
        let redis = self.redis();
        wait_for("the Redis answers", async || redis.ping().await.ok()).await;
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        self.kill();
    }
}

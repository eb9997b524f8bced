//! Spans of a client and a server, as an exporter gets them.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use opentelemetry::trace::{SpanKind, Status, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use queue_core::RawTask;
use queue_otel::Tracing;
use queue_redis::embedded::RedisServer;
use queue_redis::{Client, Outgoing};
use queue_worker::{Failure, Job, Router, Server};
use tracing::Instrument as _;
use tracing_subscriber::layer::SubscriberExt as _;

/// All spans of this process go here; tests tell theirs apart by the task's id.
fn exporter() -> &'static InMemorySpanExporter {
    static EXPORTER: OnceLock<InMemorySpanExporter> = OnceLock::new();
    EXPORTER.get_or_init(|| {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).unwrap();
        exporter
    })
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    span.attributes.iter().find(|one| one.key.as_str() == name).map(|one| one.value.to_string())
}

/// Waits until so many spans about a task have ended; in the order in which they did.
async fn spans(id: &str, count: usize) -> Vec<SpanData> {
    for _ in 0..3_000 {
        let all = exporter().get_finished_spans().unwrap();
        let about: Vec<SpanData> =
            all.into_iter().filter(|span| attribute(span, "messaging.message.id").as_deref() == Some(id)).collect();
        if about.len() >= count {
            return about;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("there are no {count} spans about {id}");
}

fn task(id: &str) -> RawTask {
    RawTask::new("email:send").task_id(id).payload("12345").queue("mail")
}

fn server(redis: &RedisServer, router: Router) -> Server {
    Tracing::new().server(Server::new(redis.redis(), router).queues([("mail", 1)]))
}

#[tokio::test]
async fn a_handler_continues_the_trace_of_its_caller() {
    exporter();
    let redis = RedisServer::start().await.unwrap();
    let client = Tracing::new().client(Client::new(redis.redis()));
    let caller = tracing::info_span!("request", messaging.message.id = "a");
    client.enqueue(task("a")).instrument(caller).await.unwrap();
    let router = Router::new(()).route("email:", async |job: Job| {
        tracing::info_span!("query", messaging.message.id = "a").in_scope(|| tracing::info!("inside"));
        assert!(job.headers().contains_key("traceparent"));
    });
    let server = server(&redis, router).start().await.unwrap();
    let found = spans("a", 4).await;
    server.shutdown().await;
    let by_name: BTreeMap<&str, &SpanData> = found.iter().map(|span| (&*span.name, span)).collect();
    let [request, enqueue, process, query] =
        ["request", "enqueue mail", "process mail", "query"].map(|name| by_name[name]);
    for span in [enqueue, process, query] {
        assert_eq!(span.span_context.trace_id(), request.span_context.trace_id(), "{}", span.name);
    }
    assert_eq!(enqueue.parent_span_id, request.span_context.span_id());
    assert_eq!(process.parent_span_id, enqueue.span_context.span_id());
    assert!(process.parent_span_is_remote);
    assert_eq!(query.parent_span_id, process.span_context.span_id());
    assert_eq!((&enqueue.span_kind, &process.span_kind), (&SpanKind::Producer, &SpanKind::Consumer));
    for (span, operation, kind) in [(enqueue, "enqueue", "send"), (process, "process", "process")] {
        for (name, value) in [
            ("messaging.system", "asynq"),
            ("messaging.operation.name", operation),
            ("messaging.operation.type", kind),
            ("messaging.destination.name", "mail"),
            ("messaging.message.id", "a"),
            ("messaging.message.body.size", "5"),
        ] {
            assert_eq!(attribute(span, name).as_deref(), Some(value), "{name} of {}", span.name);
        }
    }
    assert_eq!(attribute(process, "outcome").as_deref(), Some("succeeded"));
    assert_eq!(process.status, Status::Unset);
}

#[tokio::test]
async fn failures_are_errors_of_their_spans() {
    exporter();
    let redis = RedisServer::start().await.unwrap();
    let client = Tracing::new().client(Client::new(redis.redis()));
    client.enqueue(task("b")).await.unwrap();
    client.enqueue(task("b")).await.unwrap_err();
    let router =
        Router::new(()).route("email:", async |_: Job| Err::<(), Failure>("redis://u:secret@h is away".into()));
    let server = server(&redis, router).start().await.unwrap();
    let found = spans("b", 3).await;
    server.shutdown().await;
    let refused = found.iter().filter(|span| span.name == "enqueue mail").nth(1).unwrap();
    assert!(
        matches!(&refused.status, Status::Error { description } if description.contains("conflicts")),
        "{refused:?}"
    );
    let process = found.iter().find(|span| span.name == "process mail").unwrap();
    let masked = "redis://u:***@h is away";
    assert!(matches!(&process.status, Status::Error { description } if description == masked), "{process:?}");
    assert_eq!(attribute(process, "outcome").as_deref(), Some("retried"));
}

#[tokio::test]
async fn every_task_of_a_batch_has_a_span_and_a_context_it_brings_stays() {
    exporter();
    let redis = RedisServer::start().await.unwrap();
    let plain = Client::new(redis.redis()).intercept(|task: &mut Outgoing<'_>| task.set_header("tenant", "acme"));
    let client = Tracing::new().client(plain);
    let own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let tasks = [task("c1"), task("c2"), task("c3").header("traceparent", own)];
    for outcome in client.enqueue_many(tasks).await {
        outcome.unwrap();
    }
    let router = Router::new(()).route("email:", async |job: Job| {
        let tenant = job.headers().get("tenant").cloned().unwrap_or_default();
        tracing::info_span!("seen", messaging.message.id = job.id(), tenant).in_scope(|| ());
    });
    // An older server, one of Go's, or one without tracing may come between; the headers are the task's.
    let server = server(&redis, router).start().await.unwrap();
    for id in ["c1", "c2"] {
        let found = spans(id, 3).await;
        let named = |name: &str| found.iter().find(|span| span.name == name).unwrap();
        assert_eq!(named("process mail").parent_span_id, named("enqueue mail").span_context.span_id());
        assert_eq!(attribute(named("seen"), "tenant").as_deref(), Some("acme"));
    }
    let found = spans("c3", 3).await;
    let process = found.iter().find(|span| span.name == "process mail").unwrap();
    assert_eq!(process.span_context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(process.parent_span_id.to_string(), "b7ad6b7169203331");
    server.shutdown().await;
}

#[tokio::test]
async fn a_context_that_makes_no_sense_begins_a_new_trace() {
    exporter();
    let redis = RedisServer::start().await.unwrap();
    let client = Client::new(redis.redis());
    client.enqueue(task("d").header("traceparent", "00-rubbish-\u{e4}-01").header("tracestate", ",,=")).await.unwrap();
    let server = server(&redis, Router::new(()).route("email:", async |_: Job| {})).start().await.unwrap();
    let found = spans("d", 1).await;
    server.shutdown().await;
    assert_eq!(found[0].parent_span_id, opentelemetry::trace::SpanId::INVALID);
    assert!(found[0].span_context.is_valid());
}

//! A trace that goes from a caller over the queue into a handler and a task that this enqueues.
//!
//! `cargo run -p queue-examples --example opentelemetry`
//!
//! The spans are kept in memory and printed; a program sends them somewhere by another exporter, such as that
//! of `opentelemetry-otlp`, and is otherwise the same.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use queue::otel::Tracing;
use queue::{Client, EnqueueError, Failure, Job, RawTask, Router, Server, State, Task, TaskState};
use queue_examples::{Error, client, wait_for};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tracing::Instrument as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[derive(Serialize, Deserialize, Task)]
#[task(type = "order:place", retention = "1h")]
struct PlaceOrder {
    items: u32,
}

/// The client was given to the router, and its calls here are children of this attempt.
async fn place_order(order: PlaceOrder, State(client): State<Client>, job: Job) -> Result<(), Failure> {
    async { tokio::time::sleep(Duration::from_millis(5)).await }.instrument(tracing::info_span!("charge card")).await;
    // It is kept for longer than the order may be retried, so that a second attempt finds it, and enqueues no other one.
    let kept = Duration::from_secs(30 * 24 * 60 * 60);
    let mail = RawTask::new("email:receipt").task_id(format!("{}-receipt", job.id())).retention(kept);
    match client.enqueue(mail.payload(order.items.to_string())).await {
        Ok(_) | Err(EnqueueError::TaskIdConflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    tracing_subscriber::registry()
        .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("shop")))
        .with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr))
        .init();

    let (client, _redis) = client().await?;
    let tracing = Tracing::new();
    let client = tracing.client(client);
    let router = Router::new(client.clone()).task(place_order).route("email:", async |_: Job| {});
    let server = tracing.server(Server::new(client.redis().clone(), router)).start().await?;

    let request = tracing::info_span!("POST /orders");
    let order = client.enqueue(PlaceOrder { items: 3 }).instrument(request).await?;
    wait_for(&client, &order, TaskState::Completed).await?;
    let mut mail = order.clone();
    mail.id.push_str("-receipt");
    wait_for(&client, &mail, TaskState::Completed).await?;
    server.shutdown().await;

    let spans = exporter.get_finished_spans()?;
    let root = spans.iter().find(|span| span.name == "POST /orders").ok_or("the caller's span is missing")?;
    print(&spans, root, 0);
    let trace = root.span_context.trace_id();
    assert!(spans.iter().all(|span| span.span_context.trace_id() == trace), "another trace than the caller's");
    assert_eq!(spans.len(), 6, "the caller's, two of enqueue, two of process, and the card's");
    Ok(())
}

/// Prints a span and those below it.
fn print(spans: &[SpanData], span: &SpanData, depth: usize) {
    let indent = "  ".repeat(depth);
    println!("{indent}{} ({:?}, {})", span.name, span.span_kind, span.span_context.span_id());
    let below = spans.iter().filter(|other| other.parent_span_id == span.span_context.span_id());
    below.for_each(|child| print(spans, child, depth + 1));
}

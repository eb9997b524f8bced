//! A handler that enqueues tasks: headers that go on to them, a trace that goes on by itself, and a layer that tells
//! handlers who the task is for.
//!
//! `cargo run -p queue-examples --example follow_up`

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use queue::otel::Tracing;
use queue::{
    Answer, Client, EnqueueError, Extension, Failure, Job, Next, Router, Server, State, Task, TaskOptions, TaskState,
    from_fn,
};
use queue_examples::{Error, client, wait_for};
use serde::{Deserialize, Serialize};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[derive(Serialize, Deserialize, Task)]
#[task(type = "order:place", retention = "1m")]
struct PlaceOrder {
    order: u64,
}

#[derive(Serialize, Deserialize, Task)]
// It is kept for longer than the order may be retried: when it is gone, its id is free, and another attempt would enqueue it again.
#[task(type = "order:receipt", retention = "720h")]
struct SendReceipt {
    order: u64,
}

/// Who a task is for.
#[derive(Clone)]
struct Tenant(String);

/// Finds out who a task is for. Without that no handler runs.
async fn authenticate(job: Job, next: Next) -> Answer {
    let tenant = job.headers().get("tenant").cloned().ok_or_else(|| Failure::archive("the task has no tenant"))?;
    next.run(job.with_extension(Tenant(tenant))).await
}

/// The headers that go on to tasks which a task enqueues; others are about the task itself.
fn inherited(job: &Job) -> TaskOptions {
    let headers = job.headers().iter().filter(|(name, _)| *name == "tenant");
    headers.fold(TaskOptions::new(), |options, (name, value)| options.header(name, value))
}

async fn place_order(task: PlaceOrder, State(client): State<Client>, job: Job) -> Result<(), Failure> {
    // The id is made of this task's, so that a second attempt does not enqueue a second receipt.
    let options = inherited(&job).task_id(format!("{}-receipt", job.id()));
    match client.enqueue_with(SendReceipt { order: task.order }, options).await {
        Ok(_) | Err(EnqueueError::TaskIdConflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn send_receipt(task: SendReceipt, Extension(Tenant(tenant)): Extension<Tenant>) {
    println!("a receipt for order {} of {tenant}", task.order);
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    tracing_subscriber::registry().with(tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"))).init();

    let (client, _redis) = client().await?;
    let tracing = Tracing::new();
    let client = tracing.client(client);
    let router = Router::new(client.clone()).task(place_order).task(send_receipt).layer(from_fn(authenticate));
    let server = tracing.server(Server::new(client.redis().clone(), router)).start().await?;

    let order = client.enqueue_with(PlaceOrder { order: 7 }, TaskOptions::new().header("tenant", "acme")).await?;
    wait_for(&client, &order, TaskState::Completed).await?;
    let mut receipt = order.clone();
    receipt.id.push_str("-receipt");
    let receipt = wait_for(&client, &receipt, TaskState::Completed).await?;
    server.shutdown().await;

    assert_eq!(receipt.headers["tenant"], "acme");
    let spans = exporter.get_finished_spans()?;
    let traces: std::collections::HashSet<_> = spans.iter().map(|span| span.span_context.trace_id()).collect();
    assert_eq!((spans.len(), traces.len()), (4, 1), "two tasks, each enqueued and worked, in one trace");
    Ok(())
}

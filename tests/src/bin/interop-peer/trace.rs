//! `interop-peer trace-enqueue` and `trace-work`: a trace that begins here or goes on here.

use std::sync::Arc;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use queue_core::RawTask;
use queue_otel::Tracing;
use queue_redis::{Client, Redis};
use queue_worker::{Job, Router, Server};
use serde_json::json;
use tokio::sync::Notify;
use tracing::Instrument as _;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::Outcome;

#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    #[arg(long)]
    redis: String,
    #[arg(long)]
    queue: String,
    /// Id of the task to enqueue or to work.
    #[arg(long)]
    task_id: String,
}

/// Collects spans.
fn collect() -> Result<InMemorySpanExporter, tracing::dispatcher::SetGlobalDefaultError> {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("interop-peer"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    Ok(exporter)
}

/// Prints the span of this name.
fn print(exporter: &InMemorySpanExporter, name: &str) -> Outcome {
    let spans = exporter.get_finished_spans()?;
    let span: &SpanData = spans.iter().find(|span| span.name == name).ok_or("there is no such span")?;
    let line = json!({
        "trace_id": span.span_context.trace_id().to_string(),
        "span_id": span.span_context.span_id().to_string(),
        "parent_id": span.parent_span_id.to_string(),
        "trace_state": span.span_context.trace_state().header(),
    });
    println!("{line}");
    Ok(())
}

pub(crate) async fn enqueue(settings: Settings) -> Outcome {
    let exporter = collect()?;
    let client = Tracing::new().client(Client::connect(&settings.redis).await?);
    let task = RawTask::new("traced").queue(&settings.queue).task_id(&settings.task_id);
    client.enqueue(task).instrument(tracing::info_span!("request")).await?;
    print(&exporter, &format!("enqueue {}", settings.queue))
}

pub(crate) async fn work(settings: Settings) -> Outcome {
    let exporter = collect()?;
    let worked = Arc::new(Notify::new());
    let tell = worked.clone();
    let router = Router::new(()).route("traced", move |_: Job| {
        let tell = tell.clone();
        async move { tell.notify_one() }
    });
    let server = Server::new(Redis::connect(&settings.redis).await?, router).queues([(settings.queue.clone(), 1)]);
    let server = Tracing::new().server(server).start().await?;
    worked.notified().await;
    server.shutdown().await;
    print(&exporter, &format!("process {}", settings.queue))
}

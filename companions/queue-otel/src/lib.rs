#![doc = include_str!("../README.md")]
//!
//! Both spans carry the attributes of OpenTelemetry's conventions for messaging. See `docs/observability.md`, and the example
//! `opentelemetry`.

use std::collections::BTreeMap;
use std::sync::Arc;

use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use queue_redis::{Client, Interceptor, Outgoing};
use queue_worker::{Job, Server};
use tracing::field::Empty;
use tracing::{Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Puts traces into tasks and takes them out again; cheap to clone.
#[derive(Debug, Clone)]
pub struct Tracing {
    propagator: Arc<dyn TextMapPropagator + Send + Sync>,
}

impl Default for Tracing {
    fn default() -> Self {
        Self::new()
    }
}

impl Tracing {
    /// Traces in the form of W3C Trace Context.
    pub fn new() -> Self {
        Self::with_propagator(TraceContextPropagator::new())
    }

    /// Traces in another form; whoever works the tasks has to know it.
    pub fn with_propagator(propagator: impl TextMapPropagator + Send + Sync + 'static) -> Self {
        Self { propagator: Arc::new(propagator) }
    }

    /// A client whose calls are spans `enqueue <queue>` of the kind producer, below the span that is current,
    /// and whose tasks carry their context. A task that has a context already keeps it.
    pub fn client(&self, client: Client) -> Client {
        client.intercept(Producer(self.clone()))
    }

    /// A server whose attempts are spans `process <queue>` of the kind consumer, below the span that their
    /// task carries. Retries are children of the same span.
    pub fn server(&self, server: Server) -> Server {
        let tracing = self.clone();
        server.span(move |job| tracing.attempt(job))
    }

    /// The context that a task carries, for a link or a span of one's own.
    pub fn context(&self, headers: &BTreeMap<String, String>) -> Context {
        self.propagator.extract_with_context(&Context::new(), &Headers(headers))
    }

    fn attempt(&self, job: &Job) -> Span {
        let span = info_span!(
            "process",
            otel.name = format!("process {}", job.queue()),
            otel.kind = "consumer",
            otel.status_code = Empty,
            otel.status_description = Empty,
            messaging.system = "asynq",
            messaging.operation.name = "process",
            "messaging.operation.type" = "process",
            messaging.destination.name = job.queue(),
            messaging.message.id = job.id(),
            messaging.message.body.size = job.payload().len(),
            task = job.id(),
            task_type = job.task_type(),
            queue = job.queue(),
            attempt = job.attempt(),
            outcome = Empty,
        );
        let context = self.context(job.headers());
        if context.span().span_context().is_valid() {
            // Fails where nobody collects this span, which is the program's choice.
            let _ = span.set_parent(context);
        }
        span
    }
}

/// What a client does with each task.
struct Producer(Tracing);

impl Interceptor for Producer {
    fn span(&self, task: &Outgoing<'_>) -> Span {
        info_span!(
            "enqueue",
            otel.name = format!("enqueue {}", task.queue()),
            otel.kind = "producer",
            otel.status_code = Empty,
            otel.status_description = Empty,
            messaging.system = "asynq",
            messaging.operation.name = "enqueue",
            "messaging.operation.type" = "send",
            messaging.destination.name = task.queue(),
            messaging.message.id = task.id(),
            messaging.message.body.size = task.payload().len(),
            task = task.id(),
            task_type = task.task_type(),
            queue = task.queue(),
        )
    }

    fn intercept(&self, task: &mut Outgoing<'_>) {
        let Tracing { propagator } = &self.0;
        if propagator.fields().any(|field| task.headers().contains_key(field)) {
            return;
        }
        let current = Span::current().context();
        // A program that uses OpenTelemetry without `tracing` has its context elsewhere.
        let context = if current.span().span_context().is_valid() { current } else { Context::current() };
        propagator.inject_context(&context, &mut Added(task));
    }
}

struct Headers<'a>(&'a BTreeMap<String, String>);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

struct Added<'a, 'b>(&'a mut Outgoing<'b>);

impl Injector for Added<'_, '_> {
    fn set(&mut self, key: &str, value: String) {
        // An empty `tracestate` says nothing.
        if !value.is_empty() {
            self.0.set_header(key, value);
        }
    }
}

#![doc = include_str!("../README.md")]
//!
//! # What is here
//!
//! * [`QueueMetrics`]: what is in the queues, asked from Redis at each scrape; with the names, types and
//!   labels of Go asynq's exporter, and some more. One exporter for all queues is enough.
//! * [`WorkerMetrics`]: what the servers of this process do: outcomes, run times, waiting times, batches.
//! * [`Endpoint`]: both over HTTP, with a health check (feature `http`).
//!
//! `docs/observability.md` lists all metrics.

mod calls;
#[cfg(all(test, feature = "queues"))]
mod documented;
mod families;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "queues")]
mod memory;
#[cfg(feature = "queues")]
mod queues;
#[cfg(feature = "queues")]
mod rates;
mod series;
#[cfg(feature = "queues")]
mod shown;
mod worker;

#[cfg(feature = "http")]
pub use http::{BindError, Endpoint, Listening};
/// The library that metrics are made with, for those of a program's own.
pub use prometheus;
pub use prometheus::Registry;
#[cfg(feature = "queues")]
pub use queues::QueueMetrics;
pub use worker::WorkerMetrics;

/// The media type of the text, for an HTTP answer: Prometheus' text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a registry holds, in Prometheus' text format.
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    if let Err(error) = prometheus::TextEncoder::new().encode_utf8(&registry.gather(), &mut text) {
        tracing::error!(%error, "the metrics cannot be written");
    }
    text
}

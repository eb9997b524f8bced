//! `queuectl exporter`: what is in the queues, for Prometheus.

use std::time::Duration;

use clap::Args;
use queue_metrics::{Endpoint, Listening, QueueMetrics};
use tracing::info;

use crate::command::{Command, Running};
use crate::error::CliError;
use crate::interrupt;
use crate::logging::LogFormat;
use crate::output::Output;
use crate::session::Session;
use crate::when;

/// Where to serve metrics.
#[derive(Debug, Args)]
#[command(after_help = "\
/metrics has the queues of this Redis under the names of asynq's own exporter,
so that dashboards made for it work, and some more; docs/observability.md lists
them. One exporter is enough for a Redis. /healthz answers 200 while Redis
does, else 503.")]
#[group(skip)]
pub(crate) struct ExporterArgs {
    /// Address to listen on; port 0 takes any free one, and the log says which
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9876")]
    addr: String,

    /// How often to estimate the memory of each queue, which costs Redis some work; 0s for never
    #[arg(long, value_name = "D", value_parser = when::duration, default_value = "1m")]
    memory_interval: Duration,
}

impl Command for ExporterArgs {
    fn log(&self, json: bool) -> (&'static str, LogFormat) {
        ("info", LogFormat::of(json))
    }

    fn handles_signals(&self) -> bool {
        true
    }

    fn run<'a>(self: Box<Self>, session: &'a Session, _: &'a Output) -> Running<'a> {
        Box::pin(run(*self, session))
    }
}

async fn run(args: ExporterArgs, session: &Session) -> Result<(), CliError> {
    let interval = Some(args.memory_interval).filter(|interval| !interval.is_zero());
    let queues = QueueMetrics::with_memory(session.inspector(), interval);
    let endpoint = Endpoint::new(session.redis().clone()).queues(queues);
    let listening = listen(endpoint, "--addr", &args.addr).await?;
    let signaled = async {
        interrupt::signal().await;
        info!("the exporter ends");
    };
    listening
        .serve(signaled)
        .await
        .map_err(|error| CliError::failed(format!("metrics cannot be served any more: {error}")))
}

/// Takes the address that a flag names, and says so.
pub(crate) async fn listen(endpoint: Endpoint, flag: &str, address: &str) -> Result<Listening, CliError> {
    let listening = endpoint.bind(address).await.map_err(|error| CliError::failed(format!("{flag}: {error}")))?;
    let address = listening.local_addr().map_or_else(|_| address.to_owned(), |address| address.to_string());
    info!(address, "metrics are served at /metrics, health at /healthz");
    Ok(listening)
}

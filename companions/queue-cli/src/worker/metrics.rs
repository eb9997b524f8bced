//! The worker's metrics over HTTP.

use queue_metrics::{Endpoint, WorkerMetrics};
use queue_worker::{CancellationToken, Server};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::error::CliError;
use crate::exporter::listen;
use crate::session::Session;

/// An endpoint that answers until it is ended.
pub(super) struct Served {
    stop: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Served {
    /// Has the server counted, and serves the counts at this address.
    pub(super) async fn start(server: Server, address: &str, session: &Session) -> Result<(Server, Self), CliError> {
        let metrics = WorkerMetrics::new();
        metrics.watch_calls(session.redis());
        let endpoint = Endpoint::new(session.redis().clone()).worker(metrics.clone());
        let listening = listen(endpoint, "--metrics-addr", address).await?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(listening.serve(stop.clone().cancelled_owned()));
        Ok((server.observe(metrics.observer()), Self { stop, task }))
    }

    /// Stops answering.
    pub(super) async fn end(self) {
        self.stop.cancel();
        match self.task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "metrics could not be served to the end"),
            Err(error) => warn!(%error, "metrics could not be served to the end"),
        }
    }
}

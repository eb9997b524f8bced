//! `queuectl batch wait`.

use std::time::Duration;

use queue_redis::{BatchError, BatchState};

use super::{WaitArgs, summary};
use crate::error::{CliError, exit};
use crate::output::Output;
use crate::session::Session;

pub(crate) async fn run(args: WaitArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let id = args.id.to_string();
    let batch = session.client().batch_of(&id).await?;
    let forgotten = |error| match error {
        BatchError::Unknown { .. } => {
            let text = format!(
                "batch {id:?} is gone: it was over and was forgotten before we saw how it ended, or Redis has lost it"
            );
            CliError::Coded(exit::GONE, text)
        }
        error => error.into(),
    };
    let status = match batch.wait(args.timeout.unwrap_or(Duration::MAX)).await {
        Err(BatchError::TimedOut { .. }) => batch.status().await,
        waited => waited,
    };
    let status = status.map_err(forgotten)?;
    if out.json {
        out.value(&status)?;
    }
    let failed = |code, how| Err(CliError::Coded(code, format!("batch {id:?} {how}; {}", summary(&status))));
    match status.state {
        _ if !status.is_over() => failed(exit::TIMEOUT, "is not over in time"),
        BatchState::Succeeded if out.json => Ok(()),
        BatchState::Succeeded => out.line(&summary(&status)),
        _ => failed(exit::ARCHIVED, "is over without success"),
    }
}

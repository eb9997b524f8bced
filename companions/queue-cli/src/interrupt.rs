//! Ends a command when the process is told to, so that what it started is ended too.

use std::future::Future;

use tokio::signal::unix::SignalKind;

use crate::error::CliError;

/// Runs a command until it ends or a signal comes. An embedded Redis then still gets its end, and its
/// directory is removed.
pub(crate) async fn guard(command: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    tokio::select! {
        outcome = command => outcome,
        number = signal() => Err(CliError::Interrupted(number)),
    }
}

/// Waits until the process is told to end; returns the number of the signal.
pub(crate) async fn signal() -> i32 {
    tokio::select! {
        number = first(SignalKind::interrupt()) => number,
        number = first(SignalKind::terminate()) => number,
        number = first(SignalKind::hangup()) => number,
    }
}

/// Waits for the signal; for ever, if it cannot be listened to: then it ends the process the hard way.
async fn first(kind: SignalKind) -> i32 {
    match tokio::signal::unix::signal(kind) {
        Ok(mut signals) => {
            signals.recv().await;
            kind.as_raw_value()
        }
        Err(_) => std::future::pending().await,
    }
}

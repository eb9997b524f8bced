//! How the program fails: one line on standard error, and an exit code. Only of a file that cannot be read it shows more lines,
//! with the place.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::ErrorKind;
use queue_admin::Error;
use queue_admin::payload::{harmless, one_line};
use queue_core::OptionError;
use queue_core::broadcast::AudienceError;
use queue_redis::embedded::StartError;
use queue_redis::{BatchError, EnqueueError, broker::TickVerdict};
use queue_worker::ServerError;

/// Exit codes that scripts rely on; `docs/cli.md` lists them all.
pub(crate) mod exit {
    /// `doctor`: it could not be checked.
    pub(crate) const UNCHECKED: u8 = 2;
    /// There is no such queue, task, batch or group.
    pub(crate) const NOT_FOUND: u8 = 3;
    /// A state, a policy, a lock or another task stands in the way.
    pub(crate) const REFUSED: u8 = 4;
    /// `task wait`: the task was archived. `batch wait`: the batch ended without success; `broadcast run`: it cannot succeed.
    pub(crate) const ARCHIVED: u8 = 5;
    /// `task wait`: the task is gone, and left no trace of how it ended; `batch wait` likewise.
    pub(crate) const GONE: u8 = 6;
    /// `server`: it takes no orders, because it is Go's, or an older one.
    pub(crate) const TAKES_NO_ORDERS: u8 = 7;
    /// `task wait`, `batch wait`, `broadcast run`: the time is over, likewise `server` without an answer; what `timeout(1)` gives.
    pub(crate) const TIMEOUT: u8 = 124;
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum CliError {
    /// Something went wrong; the text says what, and what to do.
    Failed(String),
    /// The same, with an exit code of its own, see [`exit`].
    Coded(u8, String),
    /// A file is not what it should be; the lines after the first show where.
    Misread(String),
    /// Redis failed in a way that may pass by itself.
    Transient(String),
    /// Something went wrong with a part of what is to be shown; this is the rest.
    Partly { shown: String, missing: String },
    /// The command line makes no sense in a way that clap cannot see.
    Usage(String),
    /// Whoever read our standard output has gone, as in `queuectl … | head`. Not our failure: they have
    /// what they wanted.
    ReaderGone,
    /// A signal ended the command.
    Interrupted(i32),
}

impl CliError {
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// Something was looked at and is not in order.
    pub(crate) fn failed_check(message: impl Into<String>) -> Self {
        Self::Coded(1, message.into())
    }

    /// Says what went wrong and gives the exit code: 1 for failures, 2 for usage, 128 + n for signals.
    pub(crate) fn report(self, whole: fn() -> clap::Command) -> ExitCode {
        match self {
            Self::Failed(message) | Self::Transient(message) | Self::Partly { missing: message, .. } => {
                Self::Coded(1, message).report(whole)
            }
            Self::Misread(message) => {
                say(&format!("queuectl: error: {}\n", harmless(message.trim_end())));
                ExitCode::from(1)
            }
            Self::Coded(code, message) => {
                complain(&format!("error: {message}"));
                ExitCode::from(code)
            }
            Self::Usage(message) => {
                // Clap's own form, so that both kinds of usage errors look the same.
                let error = whole().error(ErrorKind::ArgumentConflict, message);
                let _ = error.print();
                ExitCode::from(2)
            }
            Self::ReaderGone => ExitCode::SUCCESS,
            Self::Interrupted(signal) => ExitCode::from(128 + u8::try_from(signal).unwrap_or(2)),
        }
    }
}

/// Writes one line on standard error.
pub(crate) fn complain(message: &str) {
    say(&format!("queuectl: {}\n", one_line(&message.replace('\n', " "))));
}

/// Unlike `eprint!`, it does not panic when nobody reads it.
fn say(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Only for writing to standard output; everything else has something to tell about.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::ReaderGone;
        }
        Self::Failed(format!("cannot write to standard output: {error}"))
    }
}

const TLS_FLAGS: &str = "; --tls-ca, --tls-cert and --tls-key name the files";
const PASSWORD: &str = "; --redis or REDIS_URL gives the URL, and --password a password alone";

impl From<queue_redis::Error> for CliError {
    fn from(error: queue_redis::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        let hint = match &error {
            Error::QueueNotFound(_) => "; `queuectl queue ls` shows those there are",
            Error::TaskNotFound { .. } => {
                "; it may have succeeded without a retention, or be in another queue (`queuectl queue ls`)"
            }
            Error::BinNotFound(_) => "; `queuectl bin ls` shows what can be restored",
            Error::EntryNotFound(_) => {
                "; `queuectl cron ls` shows those there are; those of Go's schedulers can only be looked at"
            }
            Error::Redis(queue_redis::Error::Tls { hint, .. }) if hint.contains("TlsOptions") => TLS_FLAGS,
            Error::Redis(queue_redis::Error::Option { option, .. }) if option.starts_with("tls") => TLS_FLAGS,
            Error::Redis(queue_redis::Error::Refused { code, .. }) if ["NOAUTH", "WRONGPASS"].contains(&&**code) => {
                PASSWORD
            }
            Error::RunRefused { verdict: TickVerdict::Unfinished, .. } => "; --force runs it nevertheless",
            _ => "",
        };
        let message = format!("{error}{hint}");
        match error {
            Error::QueueNotFound(_) | Error::TaskNotFound { .. } => Self::Coded(exit::NOT_FOUND, message),
            Error::TakesNoOrders { .. } => Self::Coded(exit::TAKES_NO_ORDERS, message),
            Error::EntryNotFound(_)
            | Error::BatchNotFound(_)
            | Error::LimitNotFound { .. }
            | Error::OperationNotFound(_)
            | Error::BinNotFound(_)
            | Error::ServerNotFound(_) => Self::Coded(exit::NOT_FOUND, message),
            Error::RunRefused { .. } | Error::LimitsContended(_) => Self::Coded(exit::REFUSED, message),
            Error::QueueNotEmpty { .. }
            | Error::SignalRefused(_)
            | Error::RerunRefused(_)
            | Error::OperationOver { .. }
            | Error::OperationLive(_)
            | Error::QueueActive { .. }
            | Error::TaskActive { .. }
            | Error::AlreadyPending { .. }
            | Error::AlreadyArchived { .. }
            | Error::TaskMisplaced { .. }
            | Error::TaskCompleted { .. }
            | Error::PayloadLocked { .. }
            | Error::AlreadyInQueue { .. }
            | Error::IdTaken { .. }
            | Error::MemberStays { .. }
            | Error::CancelAsked { .. }
            | Error::TaskChanged { .. }
            | Error::ArchiveFull { .. } => Self::Coded(exit::REFUSED, message),
            Error::BadName(_) => Self::Usage(message),
            error if error.is_transient() => Self::Transient(message),
            _ => Self::Failed(message),
        }
    }
}

/// Whether another task is in the way, by its id or its lock: no reason to try again.
pub(crate) fn is_taken(error: &EnqueueError) -> bool {
    matches!(error, EnqueueError::DuplicateTask { .. } | EnqueueError::TaskIdConflict { .. })
}

impl From<EnqueueError> for CliError {
    fn from(error: EnqueueError) -> Self {
        let message = error.to_string();
        match error {
            EnqueueError::Option(_) => Self::Usage(message),
            error if is_taken(&error) => Self::Coded(exit::REFUSED, message),
            _ => Self::Failed(message),
        }
    }
}

impl From<BatchError> for CliError {
    fn from(error: BatchError) -> Self {
        let message = error.to_string();
        match error {
            BatchError::Unknown { .. }
            | BatchError::NoBroadcast { .. }
            | BatchError::Audience(AudienceError::Unknown { .. }) => Self::Coded(exit::NOT_FOUND, message),
            BatchError::Audience(AudienceError::Zero(_)) => Self::Usage(message),
            BatchError::Audience(_) => Self::Coded(exit::REFUSED, message),
            BatchError::Closed { .. } => Self::Coded(exit::REFUSED, message),
            BatchError::TimedOut { .. } => Self::Coded(exit::TIMEOUT, message),
            BatchError::Redis(error) => error.into(),
            _ => Self::Failed(message),
        }
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::InUse { directory, url } if !url.is_empty() => Self::Failed(format!(
                "a Redis is running on {} already; use that one with --redis {url}",
                directory.display()
            )),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<ServerError> for CliError {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Redis(error) => error.into(),
            ServerError::Queue(_) | ServerError::Option { .. } => Self::Usage(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<OptionError> for CliError {
    fn from(error: OptionError) -> Self {
        Self::Usage(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_about_certificates_names_the_flags() {
        let told = |hint| {
            let source = std::sync::Arc::new(io::Error::other("refused"));
            let error = queue_redis::Error::Tls { target: "redis:6379".to_owned(), source, hint };
            match CliError::from(error) {
                CliError::Failed(text) => text,
                other => panic!("{other:?}"),
            }
        };
        assert!(
            told("give another (TlsOptions::client)").ends_with("; --tls-ca, --tls-cert and --tls-key name the files")
        );
        assert!(!told("it has expired").contains("--tls"));
    }
}

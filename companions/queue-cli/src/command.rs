//! What the program has to know of a command. The table of all commands is in `cli`.

use std::pin::Pin;

use crate::error::CliError;
use crate::global::Global;
use crate::logging::LogFormat;
use crate::output::Output;
use crate::session::Session;

/// A command at work.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Result<(), CliError>> + 'a>>;

/// The definition of the whole command line, for those who write about it.
pub(crate) type Alone = fn() -> clap::Command;

/// Where a command finds its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the Redis that flags and environment name.
    Redis,
    /// In a private one, if they name none.
    OwnRedis,
    /// In this process.
    Memory,
    /// It is about none that are in Redis.
    Nowhere,
}

/// A command with its arguments.
pub(crate) trait Command {
    /// What is wrong with the arguments is said before anything is started.
    fn check(&self, _global: &Global) -> Result<(), CliError> {
        Ok(())
    }

    /// Which log lines there are, unless QUEUECTL_LOG says otherwise, and their form. Most commands speak up only when
    /// something is wrong.
    fn log(&self, _json: bool) -> (&'static str, LogFormat) {
        ("warn", LogFormat::Text)
    }

    /// What it does without any Redis; `None` where it needs one.
    fn alone(&self, _whole: Alone, _out: &Output) -> Option<Result<(), CliError>> {
        None
    }

    fn place(&self) -> Place {
        Place::Redis
    }

    /// Whether a private Redis is left running at the end.
    fn keeps_redis(&self) -> bool {
        false
    }

    /// How it fails where there is no Redis.
    fn unopened(&self, error: CliError) -> CliError {
        error
    }

    /// Whether it handles signals itself, because it has a server to shut down.
    fn handles_signals(&self) -> bool {
        false
    }

    /// What it does; not called for what is done [`alone`](Self::alone).
    fn run<'a>(self: Box<Self>, _session: &'a Session, _out: &'a Output) -> Running<'a> {
        Box::pin(async { Ok(()) })
    }
}

/// A command that has nothing to add to its function `run`.
macro_rules! simple {
    ($args:ty) => {
        impl crate::command::Command for $args {
            fn run<'a>(
                self: Box<Self>,
                session: &'a crate::session::Session,
                out: &'a crate::output::Output,
            ) -> crate::command::Running<'a> {
                Box::pin(run(*self, session, out))
            }
        }
    };
}
pub(crate) use simple;

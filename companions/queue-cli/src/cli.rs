//! What stands on the command line. The comments here are the help texts.

use std::ffi::OsString;
use std::path::Path;

use clap::{Args, Parser, Subcommand};

#[cfg(feature = "full")]
use crate::bench::BenchCommand;
use crate::connection::ConnectionArgs;
#[cfg(feature = "full")]
use crate::dash::DashArgs;
use crate::demo::DemoArgs;
use crate::doctor::DoctorArgs;
use crate::enqueue::EnqueueArgs;
use crate::error::CliError;
use crate::explain::ExplainArgs;
#[cfg(feature = "full")]
use crate::exporter::ExporterArgs;
use crate::look::cron::CronCommand;
use crate::look::group::GroupCommand;
use crate::look::queue::QueueCommand;
use crate::look::server::ServerCommand;
use crate::look::stats::StatsArgs;
use crate::look::task::TaskCommand;
#[cfg(feature = "full")]
use crate::manual::{CompletionsArgs, ManArgs};
#[cfg(feature = "full")]
use crate::scheduler::SchedulerArgs;
#[cfg(feature = "full")]
use crate::transfer::export::ExportArgs;
#[cfg(feature = "full")]
use crate::transfer::import::ImportArgs;
#[cfg(feature = "full")]
use crate::worker::WorkerArgs;

/// Enqueue, work and look at tasks in the format of Go's asynq.
///
/// Try `queuectl demo` first: it needs nothing but an installed redis-server.
#[derive(Debug, Parser)]
#[command(name = "queuectl", version, arg_required_else_help = true, after_help = NOTES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const NOTES: &str = "\
Durations are written 90s, 10m, 1h30m or 7d. Log lines go to standard error;
QUEUECTL_LOG (error, warn, info, debug, or a tracing filter) says how many.
Exit codes: 0 done, 1 failed, 2 wrong usage or a missing --yes, 3 no such queue
or task, 4 refused because of a state, 128 + n for signal n; `task wait` has more.";

/// Flags of every command; they may stand before or after it.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Redis to use: redis://user:password@host:port/db, rediss://…, or redis+unix:///path/to.sock
    ///
    /// A cluster: redis+cluster://host:port,host:port. A master that Sentinel names:
    /// redis-sentinel://:password@host:port,host:port/db?master=name&password=…
    ///
    /// Without it, the environment variable REDIS_URL counts, and without that redis://127.0.0.1:6379. A
    /// password is better kept in REDIS_URL: everybody on the machine can see command lines.
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    redis: Option<String>,

    /// Start a private redis-server and stop it at the end; with DIR, it keeps its data there
    ///
    /// It listens on a Unix socket only. With DIR it writes an append-only file there, and the tasks are there
    /// again the next time. DIR follows `=`, or a space when it begins with `/`, `./` or `../`.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        help_heading = "Global options"
    )]
    embedded: Option<OsString>,

    /// Write JSON instead of tables; a worker, JSON instead of plain log lines
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Which Redis a command works on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// One that runs already.
    Url(String),
    /// A private one, which keeps its data in this directory if there is one.
    Embedded(Option<&'a Path>),
}

impl Global {
    /// Clap cannot do this: it sees a value from the environment as one given by hand, and it does not see
    /// two global flags that stand on different sides of the subcommand.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        if self.redis.is_some() && self.embedded.is_some() {
            return Err(CliError::Usage("--embedded and --redis exclude each other; give one of them".to_owned()));
        }
        if self.redis.is_some() && self.connection.uri().is_some() {
            return Err(CliError::Usage("--uri and --redis exclude each other; give one of them".to_owned()));
        }
        if self.embedded.is_some() && self.connection.any() {
            return Err(CliError::Usage("connection flags and --embedded exclude each other".to_owned()));
        }
        Ok(())
    }

    /// Somebody's Redis stays without being asked to; a flag that does nothing is refused.
    pub(crate) fn check_keep(&self, keep: bool) -> Result<(), CliError> {
        if keep && (self.redis.is_some() || self.connection.any()) {
            return Err(CliError::Usage(
                "--keep is for the embedded Redis; the one given by --redis stays anyway".to_owned(),
            ));
        }
        Ok(())
    }

    /// A store inside this process excludes a Redis.
    pub(crate) fn check_memory(&self, memory: bool) -> Result<(), CliError> {
        if memory && (self.redis.is_some() || self.embedded.is_some() || self.connection.any()) {
            return Err(CliError::Usage("--memory is for a demo without Redis; give no Redis beside it".to_owned()));
        }
        Ok(())
    }

    /// The Redis to use; `environment` is the value of REDIS_URL.
    pub(crate) fn source(&self, environment: Option<String>, embedded_by_default: bool) -> Source<'_> {
        if let Some(directory) = &self.embedded {
            return Source::Embedded(Some(Path::new(directory)).filter(|directory| *directory != Path::new("")));
        }
        if let Some(url) = self.redis.clone().or_else(|| self.connection.uri()) {
            return Source::Url(url);
        }
        if embedded_by_default {
            return Source::Embedded(None);
        }
        let environment = environment.filter(|url| !url.trim().is_empty());
        Source::Url(environment.unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned()))
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See a realistic mix of tasks live and die, on a Redis of its own
    Demo(DemoArgs),
    /// Put a task, or a file of tasks, into a queue
    Enqueue(Box<EnqueueArgs>),
    #[cfg(feature = "full")]
    /// Work tasks by running programs or sending HTTP requests
    Worker(WorkerArgs),
    #[cfg(feature = "full")]
    /// Serve what is in the queues over HTTP, for Prometheus
    Exporter(ExporterArgs),
    #[cfg(feature = "full")]
    /// Enqueue tasks periodically, as a file says
    Scheduler(SchedulerArgs),
    #[cfg(feature = "full")]
    /// Measure how fast tasks are enqueued, worked and picked up here
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Look at queues, pause, resume and remove them
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Look at tasks, run, archive, delete and cancel them, wait for them
    #[command(subcommand)]
    Task(TaskCommand),
    /// Look at periodic entries, pause, resume and run them
    #[command(subcommand)]
    Cron(CronCommand),
    /// Look at the groups of a queue
    #[command(subcommand)]
    Group(GroupCommand),
    /// Look at the servers that work tasks
    #[command(subcommand)]
    Server(ServerCommand),
    /// Show tasks by state and queue, with today's and all-time counts
    Stats(StatsArgs),
    /// Check that all queues are in order, and repair them
    Doctor(DoctorArgs),
    /// Say why a task is not running
    Explain(ExplainArgs),
    #[cfg(feature = "full")]
    /// Watch queues, tasks, servers and periodic entries in the terminal, and act on them
    Dash(DashArgs),
    #[cfg(feature = "full")]
    /// Write queues to standard output, to be imported elsewhere
    Export(ExportArgs),
    #[cfg(feature = "full")]
    /// Store the queues of an export
    Import(ImportArgs),
    #[cfg(feature = "full")]
    /// Write what a shell needs to complete commands and flags
    Completions(CompletionsArgs),
    #[cfg(feature = "full")]
    /// Write the manual
    Man(ManArgs),
    /// Show the version
    #[command(hide = true)]
    Version,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn global(line: &str) -> Global {
        Cli::try_parse_from(line.split(' ')).unwrap().global
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_flags_stand_before_or_after_the_subcommand() {
        for line in ["queuectl --redis redis://h --json stats", "queuectl stats --redis redis://h --json"] {
            let global = global(line);
            assert!(global.json);
            assert_eq!(global.source(None, false), Source::Url("redis://h".to_owned()));
        }
        for line in [
            "queuectl --embedded=d task ls --queue q --state retry",
            "queuectl task ls --queue q --state retry --embedded=d",
        ] {
            assert_eq!(global(line).source(None, false), Source::Embedded(Some(Path::new("d"))));
        }
        assert_eq!(global("queuectl --embedded stats").source(None, false), Source::Embedded(None));
    }

    #[test]
    fn the_environment_yields_to_flags_and_to_the_demo() {
        let environment = || Some("redis://env".to_owned());
        assert_eq!(global("queuectl stats").source(environment(), false), Source::Url("redis://env".to_owned()));
        assert_eq!(global("queuectl stats --embedded").source(environment(), false), Source::Embedded(None));
        assert_eq!(global("queuectl demo").source(environment(), true), Source::Embedded(None));
        assert_eq!(
            global("queuectl stats").source(Some(String::new()), false),
            Source::Url("redis://127.0.0.1:6379".to_owned())
        );
    }

    #[test]
    fn embedded_and_redis_exclude_each_other_on_both_sides_of_the_subcommand() {
        assert!(global("queuectl --embedded --redis redis://h stats").check().is_err());
        assert!(global("queuectl --redis redis://h stats --embedded").check().is_err());
    }
}

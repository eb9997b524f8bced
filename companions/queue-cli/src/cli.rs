//! What stands on the command line. The comments here are the help texts.

use clap::{Parser, Subcommand};

use crate::command::Command;
use crate::global::Global;

/// Enqueue, work and look at tasks in the format of Go's asynq.
///
/// Try `queuectl demo` first: it needs nothing but an installed redis-server.
#[derive(Debug, Parser)]
#[command(name = "queuectl", version, arg_required_else_help = true, after_help = NOTES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Commands,
}

const NOTES: &str = "\
Durations are written 90s, 10m, 1h30m or 7d. Log lines go to standard error;
QUEUECTL_LOG (error, warn, info, debug, or crates as in info,queue_redis=debug) says how many.
Exit codes: 0 done, 1 failed, 2 wrong usage or a missing --yes, 3 no such queue,
task or batch, 4 refused because of a state, 128 + n for signal n; `task wait`,
`enqueue --wait` and `batch wait` have more.";

/// The table of all commands: a new one is a line here, and a file with its arguments and its [`Command`]. Without the
/// feature `full` there is the demo alone.
macro_rules! commands {
    ($(#[$about:meta] $(#[command($($how:tt)*)])? $(@ $feature:literal)? $name:ident: $($module:ident)::+,)*) => {
        /// What to do.
        #[derive(Debug, Subcommand)]
        pub(crate) enum Commands {
            $(
                #[$about]
                $(#[command($($how)*)])?
                $(#[cfg(feature = $feature)])?
                $name(Box<crate::$($module)::+>),
            )*
        }

        impl Commands {
            pub(crate) fn command(self) -> Box<dyn Command> {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$name(command) => command,)*
                }
            }
        }
    };
}

commands! {
    /// See a realistic mix of tasks live and die, on a Redis of its own
    Demo: demo::DemoArgs,
    /// Put a task, or a file of tasks, into a queue
    @"full" Enqueue: enqueue::EnqueueArgs,
    /// Work tasks by running programs or sending HTTP requests
    @"full" Worker: worker::WorkerArgs,
    /// Serve what is in the queues over HTTP, for Prometheus
    @"full" Exporter: exporter::ExporterArgs,
    /// Do for a fleet of Go's workers what belongs to no queue alone: batches, canceling for good
    @"full" Tend: tend::TendArgs,
    /// Enqueue tasks periodically, as a file says
    @"full" Scheduler: scheduler::SchedulerArgs,
    /// Take tasks that SQL transactions have written from a table of PostgreSQL to Redis
    #[command(subcommand)]
    @"full" Outbox: outbox::OutboxCommand,
    /// Measure how fast tasks are enqueued, worked and picked up here
    #[command(subcommand)]
    @"full" Bench: bench::BenchCommand,
    /// Look at queues, pause, resume and remove them
    #[command(subcommand)]
    @"full" Queue: manage::queue::QueueCommand,
    /// Look at tasks, run, archive, delete and cancel them, wait for them
    #[command(subcommand)]
    @"full" Task: manage::task::TaskCommand,
    /// Make batches of tasks, look at them, wait for them, cancel them
    #[command(subcommand)]
    @"full" Batch: manage::batch::BatchCommand,
    /// Make workflows of tasks and batches that wait for each other, look at them
    #[command(subcommand)]
    @"full" Workflow: manage::workflow::WorkflowCommand,
    /// Have several servers run one task, and see what each has made of it
    #[command(subcommand)]
    @"full" Broadcast: manage::broadcast::BroadcastCommand,
    /// Limit how many tasks of a queue run at once or start in a time, by type, header or payload
    #[command(subcommand)]
    @"full" Limit: manage::limit::LimitCommand,
    /// Look at changes of many tasks that outlive their process, pause, resume and cancel them
    #[command(subcommand)]
    @"full" Operation: manage::operation::OperationCommand,
    /// Look at what was deleted into the bin, restore it, delete it for good
    #[command(subcommand)]
    @"full" Bin: manage::bin::BinCommand,
    /// Look at periodic entries, pause, resume and run them
    #[command(subcommand)]
    @"full" Cron: manage::cron::CronCommand,
    /// Look at the groups of a queue
    #[command(subcommand)]
    @"full" Group: manage::group::GroupCommand,
    /// Look at the servers that work tasks, and give them orders
    #[command(subcommand)]
    @"full" Server: manage::server::ServerCommand,
    /// Show tasks by state and queue, with today's and all-time counts
    @"full" Stats: manage::stats::StatsArgs,
    /// Show what fails, grouped by its cause
    @"full" Failures: manage::failures::FailuresArgs,
    /// Show what happens to tasks and servers, as it happens, until Ctrl-C
    @"full" Events: events::EventsArgs,
    /// Show who did what with queuectl and its dashboards
    @"full" Audit: manage::audit::AuditArgs,
    /// Check that all queues are in order, and repair them
    @"full" Doctor: doctor::DoctorArgs,
    /// Say why a task is not running
    @"full" Explain: explain::ExplainArgs,
    /// Watch queues, tasks, servers and periodic entries in the terminal, and act on them
    @"full" Dash: dash::DashArgs,
    /// Serve a dashboard for browsers, and a REST API
    @"full" Web: web::WebArgs,
    /// Write queues to standard output, to be imported elsewhere
    @"full" Export: transfer::export::ExportArgs,
    /// Store the queues of an export
    @"full" Import: transfer::import::ImportArgs,
    /// Write what a shell needs to complete commands and flags
    @"full" Completions: manual::CompletionsArgs,
    /// Write the manual
    @"full" Man: manual::ManArgs,
    /// Show the version
    #[command(hide = true)]
    Version: version::VersionArgs,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory as _;

    use super::*;
    use crate::global::Source;

    fn global(line: &str) -> Global {
        Cli::try_parse_from(line.split(' ')).unwrap().global
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    /// clap keeps the values of both under one name then, and panics when it reads one as the other: `limit set --key` did.
    #[test]
    fn no_argument_has_the_id_of_one_that_all_commands_have() {
        fn check(command: &clap::Command, of_all: &[&str]) {
            for other in command.get_subcommands() {
                let mut own = other.get_arguments().filter(|arg| !arg.is_global_set()).map(|arg| arg.get_id().as_str());
                let twin = own.find(|id| of_all.contains(id));
                assert_eq!(twin, None, "{} has an argument of a global one's id", other.get_name());
                check(other, of_all);
            }
        }
        let command = Cli::command();
        let of_all: Vec<&str> =
            command.get_arguments().filter(|arg| arg.is_global_set()).map(|arg| arg.get_id().as_str()).collect();
        assert!(of_all.len() > 5, "{of_all:?}");
        check(&command, &of_all);
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

//! `queuectl scheduler`: periodic tasks from a file.

mod check;
mod file;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use queue_scheduler::{Scheduler, SchedulerError, SyncProblem};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};

use self::file::{EntryFile, LOOK_EVERY, Unread};
use crate::command::{Alone, Command, Running};
use crate::error::CliError;
use crate::logging::LogFormat;
use crate::output::Output;
use crate::session::Session;

/// How often it is read anyway, as in asynq.
const SYNC_EVERY: Duration = Duration::from_secs(3 * 60);

/// Which entries to schedule.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct SchedulerArgs {
    /// File of entries, in TOML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Check the file, show the next ticks of each entry, and start nothing
    #[arg(long)]
    check: bool,

    /// Ticks to show with --check, 1 to 1,000
    #[arg(long, value_name = "N", default_value_t = 5, requires = "check",
        value_parser = clap::value_parser!(u16).range(1..=1_000))]
    ticks: u16,

    /// Start also on a Redis that cannot hold queues, and only say so in the log
    #[arg(long)]
    no_start_check: bool,

    /// Form of the log lines on standard error [default: text, or json with --json]
    #[arg(long, value_enum, value_name = "FORM")]
    log_format: Option<LogFormat>,
}

const NOTES: &str = "\
Any number of schedulers may run with the same file, on any machines: each tick
is enqueued once. The file is read again when it has changed and then stayed the
same for a second, and on HUP; an entry that cannot be used is reported with its
line, and the others run. Entries go with a file that lacks them, but not with one
that has none: cron = [] says that there are to be none.

  [[cron]]
  name = \"nightly-report\"
  spec = \"30 2 * * *\"            # or @daily, @every 90s, CRON_TZ=Asia/Tokyo 0 9 * * *
  timezone = \"Europe/Berlin\"
  type = \"report:build\"
  payload = { kind = \"nightly\" } # as JSON; a text stays as it is
  queue = \"reports\"              # and max_retry, timeout, retention, unique, headers,
                                 # process_in, group
  missed = \"last\"                # skip, last or all:N
  overlap = \"skip\"               # allow, skip or queue
  jitter = \"1m\"                  # and starts, ends, max_runs

scheduler.example.toml, beside the source of this program, explains all of it.
`queuectl cron` shows, pauses and runs entries.";

impl Command for SchedulerArgs {
    fn log(&self, json: bool) -> (&'static str, LogFormat) {
        ("info", self.log_format.unwrap_or(LogFormat::of(json)))
    }

    /// Shows what stands in the file.
    fn alone(&self, _: Alone, out: &Output) -> Option<Result<(), CliError>> {
        self.check.then(|| check::run(&EntryFile::new(&self.config), usize::from(self.ticks), out))
    }

    fn handles_signals(&self) -> bool {
        true
    }

    fn run<'a>(self: Box<Self>, session: &'a Session, _: &'a Output) -> Running<'a> {
        Box::pin(run(*self, session))
    }
}

fn report(problem: &SyncProblem) {
    match problem {
        SyncProblem::Entry(problem) => error!("{problem}; the other entries run"),
        problem => error!("{problem}; the entries stay as they are"),
    }
}

async fn run(args: SchedulerArgs, session: &Session) -> Result<(), CliError> {
    let listen = |kind| signal(kind).map_err(|error| CliError::failed(format!("cannot listen for signals: {error}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let mut hangup = listen(SignalKind::hangup())?;
    let file = EntryFile::new(&args.config);
    let mut stamp = file.stamp();
    let builder = Scheduler::builder(session.redis().clone()).start_check(!args.no_start_check);
    let scheduler = builder.provider(file.clone(), SYNC_EVERY).on_problem(report).build();
    scheduler.start().await.map_err(|error| match error {
        SchedulerError::Redis(error) => CliError::from(error),
        SchedulerError::Provider(error) => match error.downcast::<Unread>() {
            Ok(unread) => (*unread).into(),
            Err(error) => CliError::failed(error.to_string()),
        },
        error => CliError::failed(error.to_string()),
    })?;
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => info!("the file is read again, on HUP"),
            () = tokio::time::sleep(LOOK_EVERY) => {
                if stamp == file.stamp() {
                    continue;
                }
                info!("the file has changed and is read again");
            }
        }
        stamp = file.stamp();
        // It waits while the file is being written.
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            synced = scheduler.sync() => {
                if let Err(SchedulerError::Provider(problem)) = synced {
                    report(&SyncProblem::Provider(problem));
                }
            }
        }
    }
    scheduler.shutdown().await;
    Ok(())
}

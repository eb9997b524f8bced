//! `queuectl outbox`: tasks that were written inside SQL transactions.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use queue_admin::payload::{harmless, shorten};
use queue_core::{Clock as _, SystemClock};
use queue_outbox::{Database, DatabaseError, Passed, Relay, RelayError, SCHEMA};
use queue_redis::TlsOptions;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::command::{Command, Place, Running};
use crate::confirm::ConfirmArgs;
use crate::error::{CliError, exit};
use crate::interrupt;
use crate::logging::LogFormat;
use crate::output::Output;
use crate::progress::thousands;
use crate::session::Session;
use crate::table::Rows;
use crate::when;

/// What to do with an outbox.
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// Make the table queue_outbox, where it is not there
    #[command(after_help = WRITING)]
    Init(InitArgs),
    /// Take committed rows to Redis, each once, until told to end
    #[command(
        after_help = "Any number of relays may run beside each other. Rows stay while Redis or PostgreSQL\nis away, and a relay that ends half-way loses and doubles nothing."
    )]
    Relay(RelayArgs),
    /// Show how much waits, and which rows were refused
    #[command(visible_alias = "list")]
    Ls(LsArgs),
    /// Try refused rows again, after they or what stood in their way have been mended
    Retry(RetryArgs),
    /// Delete refused rows
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

const WRITING: &str = "\
Every program that speaks SQL may write a row, inside its own transaction. It is a line
of `queuectl enqueue --batch`, whose --help lists the fields:

  INSERT INTO queue_outbox (task) VALUES
    ('{\"type\":\"email:welcome\",\"queue\":\"mail\",\"payload\":{\"user\":7}}');

With `tasks` or `nodes` instead of a `type` it is a batch or a workflow, as a file of
`queuectl workflow create`.";

/// Where the outbox is.
#[derive(Debug, Args)]
#[group(skip)]
struct DatabaseArgs {
    /// PostgreSQL to use: postgres://user:password@host:5432/database
    ///
    /// Or words: "host=/run/postgresql dbname=shop". Connections to other machines are encrypted where the server can; sslmode=require
    /// wants it, #insecure at the end of a URL believes any certificate. A password is better kept in DATABASE_URL: everybody on the
    /// machine can see command lines.
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database: Option<String>,
    /// Certificates (PEM) of who has signed that of PostgreSQL, instead of the system's
    #[arg(long, value_name = "FILE")]
    database_ca: Option<PathBuf>,
}

impl DatabaseArgs {
    fn open(&self) -> Result<Database, CliError> {
        let Some(address) = &self.database else {
            return Err(CliError::Usage("name the database with --database or DATABASE_URL".to_owned()));
        };
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| CliError::failed(format!("--database-ca {}: {error}", path.display())))
        };
        let ca = self.database_ca.as_ref().map(read).transpose()?;
        Ok(Database::with_tls(address, &TlsOptions { ca, client: None })?)
    }
}

/// Where to make it.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Show the statements, for a tool that migrates databases, and change nothing
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// How to relay.
#[derive(Debug, Args)]
pub(crate) struct RelayArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// How long to wait before looking again when nothing waited
    #[arg(long, value_name = "D", default_value = "100ms", value_parser = when::duration)]
    poll: Duration,
    /// Relay what waits by now, and end; with exit code 4 if rows are left because Redis refuses their queue
    #[arg(long)]
    once: bool,
    /// Form of the log lines on standard error [default: text, or json with --json]
    #[arg(long, value_enum, value_name = "FORM")]
    log_format: Option<LogFormat>,
}

/// What to show.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Most refused rows to show
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    size: u32,
}

/// Which rows.
#[derive(Debug, Args)]
#[group(skip)]
struct Which {
    /// Numbers of refused rows, as `outbox ls` shows them
    #[arg(value_name = "ROW", required_unless_present = "all", conflicts_with = "all")]
    rows: Vec<i64>,
    /// All that were refused
    #[arg(long)]
    all: bool,
}

impl Which {
    fn chosen(&self) -> Option<&[i64]> {
        (!self.all).then_some(&self.rows[..])
    }

    /// What became of so many of them.
    fn told(&self, what: &str, count: u64, out: &Output) -> Result<(), CliError> {
        let lacking = (self.rows.len() as u64).saturating_sub(count);
        if lacking > 0 {
            let text = format!(
                "{} rows {what}; {lacking} of those named are no refused rows: `queuectl outbox ls` shows which are",
                thousands(count)
            );
            return Err(CliError::Coded(exit::NOT_FOUND, text));
        }
        out.told(&serde_json::json!({ "rows": count }), &format!("{} rows {what}", thousands(count)))
    }
}

/// Which rows to try again.
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// Which rows to delete.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

impl From<DatabaseError> for CliError {
    fn from(error: DatabaseError) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<RelayError> for CliError {
    fn from(error: RelayError) -> Self {
        match error {
            RelayError::Redis(error) => error.into(),
            error => Self::failed(error.to_string()),
        }
    }
}

impl Command for OutboxCommand {
    fn log(&self, json: bool) -> (&'static str, LogFormat) {
        match self {
            Self::Relay(args) => ("info", args.log_format.unwrap_or(LogFormat::of(json))),
            _ => ("warn", LogFormat::Text),
        }
    }

    fn place(&self) -> Place {
        match self {
            Self::Relay(_) => Place::Redis,
            _ => Place::Nowhere,
        }
    }

    fn handles_signals(&self) -> bool {
        matches!(self, Self::Relay(_))
    }

    fn run<'a>(self: Box<Self>, session: &'a Session, out: &'a Output) -> Running<'a> {
        Box::pin(async move {
            match *self {
                Self::Init(args) => init(args, out).await,
                Self::Relay(args) => relay(args, session, out).await,
                Self::Ls(args) => list(args, out).await,
                Self::Retry(RetryArgs { which, database }) => {
                    let count = database.open()?.retry(which.chosen()).await?;
                    which.told("are tried again", count, out)
                }
                Self::Delete(DeleteArgs { which, database, confirm }) => {
                    let many = if which.all { "all".to_owned() } else { thousands(which.rows.len() as u64) };
                    confirm.ask(&format!("delete {many} refused rows of the outbox")).await?;
                    which.told("are deleted", database.open()?.delete(which.chosen()).await?, out)
                }
            }
        })
    }
}

async fn init(args: InitArgs, out: &Output) -> Result<(), CliError> {
    if args.print {
        return out.text(SCHEMA);
    }
    let database = args.database.open()?;
    database.init().await?;
    let target = database.target();
    out.told(&serde_json::json!({ "database": target }), &format!("the table queue_outbox is in {}", harmless(target)))
}

async fn relay(args: RelayArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let database = args.database.open()?;
    let target = database.target().to_owned();
    let relay = Relay::new(database, session.client()).poll(args.poll);
    if args.once {
        let Passed { relayed, duplicates, refused, left, .. } = tokio::select! {
            passed = relay.run_once() => passed?,
            number = interrupt::signal() => return Err(CliError::Interrupted(number)),
        };
        let text = format!(
            "{relayed} rows relayed, {duplicates} dropped as duplicates, {refused} refused, {left} left because Redis refuses their queue"
        );
        out.told(
            &serde_json::json!({ "relayed": relayed, "duplicates": duplicates, "refused": refused, "left": left }),
            &text,
        )?;
        let some_are_left = "rows are left: Redis refuses to change their queue, and the log says why";
        return if left > 0 { Err(CliError::Coded(exit::REFUSED, some_are_left.to_owned())) } else { Ok(()) };
    }
    let quiet = CancellationToken::new();
    info!(database = target, redis = session.redis().target(), "relaying what is committed");
    let running = relay.run(&quiet);
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => return Ok(ended?),
        _ = interrupt::signal() => quiet.cancel(),
    }
    running.await?;
    info!("the relay ends");
    Ok(())
}

async fn list(args: LsArgs, out: &Output) -> Result<(), CliError> {
    let database = args.database.open()?;
    let waiting = database.waiting().await?;
    let rows = if waiting.refused > 0 { database.refused(args.size).await? } else { Vec::new() };
    if out.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                serde_json::json!({ "row": row.seq, "type": row.task_type, "reason": row.refusal, "created_at": row.created_at, "refused_at": row.refused_at })
            })
            .collect();
        return out.value(&serde_json::json!({ "waiting": waiting.waiting, "oldest": waiting.oldest, "refused": waiting.refused, "rows": rows }));
    }
    let now = SystemClock.now();
    let oldest = waiting.oldest.map(|oldest| format!(", the oldest written {}", when::ago(Some(oldest), now)));
    out.line(&format!("{} rows wait{}", thousands(waiting.waiting), oldest.unwrap_or_default()))?;
    if rows.is_empty() {
        return Ok(());
    }
    out.line(&format!("{} were refused", thousands(waiting.refused)))?;
    let mut table = Rows::new(out, &["ROW", "TYPE", "WRITTEN", "REFUSED", "REASON"]);
    for row in rows {
        let (written, refused) = (when::ago(Some(row.created_at), now), when::ago(Some(row.refused_at), now));
        table.add([
            row.seq.to_string(),
            if row.task_type.is_empty() { "(batch)".to_owned() } else { shorten(&row.task_type, 60) },
            written,
            refused,
            row.refusal,
        ]);
    }
    out.text(&table.render())
}

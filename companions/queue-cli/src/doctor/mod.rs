//! `queuectl doctor`.

mod dump;
mod report;

use std::path::PathBuf;

use clap::Args;
use queue_redis::{Doctor, Finding, Severity};

use self::dump::Dump;
use self::report::{Outcome, Report};
use crate::command::{Command, Running};
use crate::error::{CliError, complain, exit};
use crate::output::Output;
use crate::session::Session;

/// What to look at, and what to do about it.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub(crate) struct DoctorArgs {
    /// Queue name; may be given many times; all without it
    #[arg(short, long = "queue", value_name = "Q")]
    queues: Vec<String>,
    /// Repair what can be; without it, nothing is changed
    #[arg(long, conflicts_with = "restore")]
    fix: bool,
    /// Write what a repair deletes to this file first
    ///
    /// Repairs that delete something are only made with it. If the file is there, lines are added to it.
    #[arg(long, value_name = "FILE", requires = "fix")]
    dump: Option<PathBuf>,
    /// Put back what is in such a file, where its place is free
    #[arg(long, value_name = "FILE")]
    restore: Option<PathBuf>,
}

const DOCTOR_HELP: &str = "\
It reads in short steps and may be used on a fleet at work. Exit codes: 0 all
is in order (or was repaired), 1 something is not, 2 it could not be checked.
The dump file has payloads in it: keep it as safe as the Redis.";

impl Command for DoctorArgs {
    fn unopened(&self, error: CliError) -> CliError {
        unchecked(error)
    }

    fn run<'a>(self: Box<Self>, session: &'a Session, out: &'a Output) -> Running<'a> {
        Box::pin(run(*self, session, out))
    }
}

async fn run(args: DoctorArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let doctor = Doctor::new(session.redis().clone());
    let outcome = match &args.restore {
        Some(file) => dump::restore(file, &doctor, out).await,
        None => examine(&args, session, &doctor, out).await,
    };
    outcome.map_err(unchecked)
}

/// A failure that a script must be able to tell from findings.
fn unchecked(error: CliError) -> CliError {
    match error {
        CliError::Failed(text) | CliError::Transient(text) => CliError::Coded(exit::UNCHECKED, text),
        error => error,
    }
}

async fn examine(args: &DoctorArgs, session: &Session, doctor: &Doctor, out: &Output) -> Result<(), CliError> {
    let mut dump = args.dump.as_deref().map(Dump::open).transpose()?;
    let mut examination = doctor.examine();
    if !args.queues.is_empty() {
        let known = session.inspector().queues().await.unwrap_or_default();
        for queue in args.queues.iter().filter(|queue| !known.contains(queue)) {
            complain(&format!("warning: queue {queue:?} is not listed; what there is of it is looked at"));
        }
        examination = examination.queues(args.queues.clone());
    }
    let mut report = Report::new(out);
    while let Some(findings) = examination.next().await? {
        let outcomes = mend(args.fix, doctor, &findings, &mut dump).await?;
        for (finding, outcome) in findings.iter().zip(outcomes) {
            report.add(finding, outcome)?;
        }
    }
    report.end(examination.tasks())
}

/// Repairs some findings: first the copies of what will be deleted are on disk.
async fn mend(
    fix: bool,
    doctor: &Doctor,
    findings: &[Finding],
    dump: &mut Option<Dump>,
) -> Result<Vec<Outcome>, CliError> {
    let mut outcomes = Vec::new();
    for findings in findings.chunks(100) {
        let mut copies = Vec::new();
        for finding in findings {
            let wanted = fix && finding.deletes() && dump.is_some();
            copies.push(if wanted { doctor.copies(finding).await? } else { Vec::new() });
        }
        if let Some(dump) = dump {
            dump.write(findings.iter().zip(&copies))?;
        }
        for (finding, copies) in findings.iter().zip(&copies) {
            outcomes.push(match () {
                () if !finding.is_mendable() => Outcome::ByHand,
                () if !fix => Outcome::Left,
                () if finding.deletes() && dump.is_none() => Outcome::NeedsDump,
                () => match doctor.mend(finding, copies).await {
                    Ok(true) => Outcome::Mended,
                    Ok(false) => Outcome::Moved,
                    Err(error) if error.is_transient() => return Err(error.into()),
                    Err(error) => Outcome::Refused(error.to_string()),
                },
            });
        }
    }
    Ok(outcomes)
}

/// Whether it makes the state unsound.
fn counts(finding: &Finding) -> bool {
    finding.severity > Severity::Note
}

//! How findings are shown.

use std::collections::BTreeMap;

use queue_admin::payload::harmless;
use queue_admin::view;
use queue_redis::Finding;
use serde::Serialize;

use super::counts;
use crate::error::CliError;
use crate::output::Output;
use crate::progress::thousands;

/// Findings of one kind that are shown to people; a thousand lines that say the same help nobody.
const SHOWN: u64 = 20;

/// What became of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There is no repair.
    ByHand,
    /// There is one, and nobody has asked for it.
    Left,
    /// The repair deletes something, and there is no file for it.
    NeedsDump,
    /// It is repaired.
    Mended,
    /// It is not as it was found any more, and was left alone.
    Moved,
    /// Redis has refused the repair.
    Refused(String),
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Self::ByHand => "by-hand",
            Self::Left => "left",
            Self::NeedsDump => "needs-dump",
            Self::Mended => "mended",
            Self::Moved => "moved",
            Self::Refused(_) => "refused",
        }
    }
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    finding: view::Finding,
    outcome: &'static str,
    error: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Summary {
    healthy: bool,
    tasks: u64,
    findings: u64,
    notes: u64,
    mended: u64,
}

/// Shows findings as they come, and counts them.
pub(super) struct Report<'a> {
    out: &'a Output,
    of_kind: BTreeMap<&'static str, u64>,
    findings: u64,
    notes: u64,
    mended: u64,
    mendable: u64,
    need_dump: u64,
}

impl<'a> Report<'a> {
    pub(super) fn new(out: &'a Output) -> Self {
        Self { out, of_kind: BTreeMap::new(), findings: 0, notes: 0, mended: 0, mendable: 0, need_dump: 0 }
    }

    pub(super) fn add(&mut self, finding: &Finding, outcome: Outcome) -> Result<(), CliError> {
        let fault = finding.fault;
        if counts(finding) {
            self.findings += 1;
            self.mended += u64::from(outcome == Outcome::Mended);
            self.mendable += u64::from(finding.is_mendable());
            self.need_dump += u64::from(outcome == Outcome::NeedsDump);
        } else {
            self.notes += 1;
        }
        let so_far = self.of_kind.entry(fault.as_str()).or_default();
        *so_far += 1;
        if self.out.json {
            let line = Line {
                finding: view::Finding::from(finding),
                outcome: outcome.word(),
                error: if let Outcome::Refused(error) = &outcome { Some(error) } else { None },
            };
            return self.out.value(&line);
        }
        if *so_far > SHOWN {
            return Ok(());
        }
        let place = match &finding.queue {
            Some(queue) if *queue != finding.subject => format!("queue {:?}, {:?}", queue, finding.subject),
            Some(queue) => format!("queue {queue:?}"),
            None => finding.subject.clone(),
        };
        let detail = if finding.detail.is_empty() { String::new() } else { format!(" ({})", finding.detail) };
        let then = match outcome {
            Outcome::Mended => "mended".to_owned(),
            Outcome::Moved => "it has changed meanwhile and was left alone".to_owned(),
            Outcome::NeedsDump => format!("{}; give --dump FILE for it", fault.advice()),
            Outcome::Refused(error) => error,
            Outcome::ByHand | Outcome::Left => fault.advice().to_owned(),
        };
        let severity = finding.severity.as_str();
        self.out.line(&harmless(&format!("{severity}: {place}: {}{detail}", fault.meaning())))?;
        self.out.line(&format!("  {}", harmless(&then)))
    }

    /// The summary; an error with exit code 1 when something is left that is not in order.
    pub(super) fn end(self, tasks: u64) -> Result<(), CliError> {
        let Self { out, findings, notes, mended, mendable, need_dump, of_kind } = self;
        let left = findings - mended;
        if out.json {
            out.value(&Summary { healthy: left == 0, tasks, findings, notes, mended })?;
        } else {
            for (kind, count) in of_kind.into_iter().filter(|(_, count)| *count > SHOWN) {
                out.line(&format!("… and {} more of {kind}", thousands(count - SHOWN)))?;
            }
            let looked = format!("looked at {} tasks", thousands(tasks));
            let notes = if notes > 0 { format!(", {notes} notes") } else { String::new() };
            match (findings, mended) {
                (0, _) => out.line(&format!("{looked}: all is in order{notes}"))?,
                (_, 0) => out.line(&format!("{looked}: {} findings{notes}", thousands(findings)))?,
                _ => {
                    let (findings, mended) = (thousands(findings), thousands(mended));
                    out.line(&format!("{looked}: {findings} findings, {mended} of them mended{notes}"))?;
                }
            }
        }
        if left == 0 {
            return Ok(());
        }
        let hint = match (need_dump, mendable - mended) {
            (1.., _) => "; repairs that delete something need --dump FILE",
            (0, 1..) if mended == 0 => "; --fix --dump FILE repairs what can be",
            _ => "",
        };
        Err(CliError::failed_check(format!("{} findings are left{hint}", thousands(left))))
    }
}

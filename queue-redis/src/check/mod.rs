//! Whether a Redis can hold queues: asked once, at the start of a program, so that what would go wrong later
//! is named now.
//!
//! What Redis tells is gathered here; what it means is decided in `queue_core::doctor`, without I/O.

mod gather;
mod rights;

use queue_core::doctor::judge_start;
pub use queue_core::doctor::{Fault, Finding, Role, Severity};

use crate::connection::Redis;
use crate::error::Error;

/// What a [check](Redis::check) found; nothing, where all is well.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// What the server calls itself, such as `redis 7.0.15`, where it tells.
    pub server: Option<String>,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
}

impl Checked {
    /// Those of one severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.severity == severity)
    }
}

impl Redis {
    /// Looks whether this Redis can hold queues, and whether this user may do what the role needs: its version,
    /// whether it is a replica, a Sentinel, part of a cluster or still loading, whether it deletes keys when
    /// its memory is used up, and the rights. Changes nothing in Redis. Takes a few round trips; in a cluster, to each
    /// master.
    ///
    /// What the user may not ask (`INFO`) is a [note](Severity::Note).
    ///
    /// # Errors
    /// When Redis cannot be reached, or does not answer. What it answers is no error, but a finding.
    pub async fn check(&self, role: Role) -> Result<Checked, Error> {
        if self.is_in_process() {
            self.ping().await?;
            return Ok(Checked { server: None, findings: Vec::new() });
        }
        let (mut server, mut findings) = (None, Vec::new());
        for master in self.masters().await? {
            let facts = gather::gather(&master, self.cluster().is_some(), role).await?;
            server = server.or(facts.server());
            for finding in judge_start(&facts, role) {
                // Most masters of a cluster are alike.
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
        }
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Ok(Checked { server, findings })
    }

    /// [`check`](Self::check) for a program that starts: writes a log line for each warning, and fails where
    /// there is an [error](Severity::Error). This is what servers and schedulers do when they start.
    ///
    /// # Errors
    /// [`Error::Unusable`] with all problems; and when Redis cannot be reached, or does not answer.
    pub async fn require(&self, role: Role) -> Result<(), Error> {
        let problems: Vec<Finding> = self.report(role, Severity::Warning).await?.of(Severity::Error).cloned().collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::Unusable { target: self.target().to_owned(), problems })
    }

    /// [`require`](Self::require) for a program that starts all the same: problems are log lines too.
    ///
    /// # Errors
    /// When Redis cannot be reached, or does not answer.
    pub async fn warn(&self, role: Role) -> Result<(), Error> {
        self.report(role, Severity::Error).await.map(drop)
    }

    /// Asks for a sign of life. A server that refuses even that is looked at: what is wrong with it says more than
    /// the first command that it did not like.
    ///
    /// # Errors
    /// When there is none.
    pub async fn answers(&self) -> Result<(), Error> {
        let Err(error) = self.ping().await else { return Ok(()) };
        let Error::Refused { .. } = &error else { return Err(error) };
        let Ok(checked) = self.check(Role::Inspector).await else { return Err(error) };
        let problems: Vec<Finding> =
            checked.of(Severity::Error).filter(|problem| problem.fault != Fault::Rights).cloned().collect();
        if problems.is_empty() {
            Err(error)
        } else {
            Err(Error::Unusable { target: self.target().to_owned(), problems })
        }
    }

    /// Writes what was found to the log, up to this severity.
    async fn report(&self, role: Role, most: Severity) -> Result<Checked, Error> {
        let (checked, redis) = (self.check(role).await?, self.target());
        for finding in checked.findings.iter().filter(|finding| finding.severity <= most) {
            match finding.severity {
                Severity::Note => tracing::info!(redis, "{finding}"),
                Severity::Warning => crate::log::warn!(redis, "{finding}"),
                Severity::Error => crate::log::error!(redis, "{finding}"),
            }
        }
        Ok(checked)
    }
}

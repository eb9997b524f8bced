//! Whether a Redis can hold queues: asked once, at the start of a program, so that what would go wrong later
//! is named now.
//!
//! What Redis tells is gathered here; what it means is decided in `judge`, without I/O.

mod gather;
mod judge;
mod rights;

use std::fmt;

use crate::connection::Redis;
use crate::error::Error;

/// What a program does with Redis; decides which rights it needs. `docs/deployment.md` has the line of an
/// ACL user for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Enqueues tasks.
    Producer,
    /// Works tasks.
    Worker,
    /// Enqueues tasks periodically.
    Scheduler,
    /// Looks at queues and changes what is in them.
    Inspector,
}

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Something could not be looked at.
    Unknown,
    /// It works, until something happens.
    Warning,
    /// Work would fail, or tasks would be lost.
    Problem,
}

/// Which thing a [`Finding`] is about, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// The version of the server.
    Version,
    /// A master, a replica, or a Sentinel.
    Role,
    /// One Redis, or a Redis Cluster.
    Cluster,
    /// What happens when the memory is used up.
    Eviction,
    /// The memory is used up.
    Memory,
    /// What the ACL user may do.
    Rights,
    /// It reads its data from the disk.
    Loading,
}

/// One thing that a [check](Redis::check) found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// What it is, and what to do about it.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

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
    /// What the user may not ask (`INFO`) is an [unknown](Severity::Unknown) finding.
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
            for finding in judge::judge(&facts, role) {
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
    /// there is a [problem](Severity::Problem). This is what servers and schedulers do when they start.
    ///
    /// # Errors
    /// [`Error::Unusable`] with all problems; and when Redis cannot be reached, or does not answer.
    pub async fn require(&self, role: Role) -> Result<(), Error> {
        let problems: Vec<Finding> =
            self.report(role, Severity::Warning).await?.of(Severity::Problem).cloned().collect();
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
        self.report(role, Severity::Problem).await.map(drop)
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
            checked.of(Severity::Problem).filter(|problem| problem.subject != Subject::Rights).cloned().collect();
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
                Severity::Unknown => tracing::info!(redis, "{finding}"),
                Severity::Warning => crate::log::warn!(redis, "{finding}"),
                Severity::Problem => crate::log::error!(redis, "{finding}"),
            }
        }
        Ok(checked)
    }
}

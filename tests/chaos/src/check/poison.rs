//! Judges tasks that kill their workers: they end in the archive after as many crashes as they may have and one
//! more, with the names of those that had them, and with no retry spent.

use std::collections::BTreeSet;

use super::runs::takes_tasks_away;
use super::{Evidence, LEASE_EXPIRED, Tally};
use crate::findings::{Findings, Invariant};
use crate::fleet::{Process, Role};
use crate::happened::Happened;
use crate::history::Story;
use crate::name::{POISON_RETRIES, Plan};
use crate::plan::Kind;
use crate::snapshot::Stored;

/// What the error of a task that was given up says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GivenUp {
    crashes: u32,
    /// The process ids of those that had it; none where the holder was a worker of Go.
    holders: Vec<Option<u32>>,
}

impl GivenUp {
    /// Nothing for the error that Go writes.
    pub(super) fn read(error: &str) -> Option<Self> {
        let rest = error.strip_prefix(LEASE_EXPIRED)?.strip_prefix("; given up after ")?;
        let (crashes, holders) = rest.split_once(" crashes, it was held by ")?;
        let pid = |holder: &str| holder.split(" until ").next()?.rsplit(':').nth(1)?.parse().ok();
        Some(Self { crashes: crashes.parse().ok()?, holders: holders.split(", ").map(pid).collect() })
    }

    /// Whether it was given up as soon as its budget was spent.
    pub(super) fn is_in_time(&self, evidence: &Evidence<'_>) -> bool {
        self.crashes == evidence.max_crashes + 1
    }

    /// Whether each that held it is a worker that lost its tasks. A worker of Go is unknown, or hides behind the last
    /// of ours.
    pub(super) fn is_excused(&self, evidence: &Evidence<'_>) -> bool {
        self.holders.iter().all(|holder| match holder {
            Some(pid) if evidence.mixed => process_of(evidence, *pid).is_some(),
            Some(pid) => lost_its_tasks(evidence, *pid),
            None => evidence.mixed,
        })
    }
}

/// Of any other task that is in the archive because its lease has ended; `cut_short` says whether a run of it may have been.
pub(super) fn judge_given_up(
    evidence: &Evidence<'_>,
    what: &str,
    error: &str,
    cut_short: bool,
    findings: &mut Findings,
) {
    match GivenUp::read(error) {
        Some(given_up) if !given_up.is_in_time(evidence) => {
            findings.add(Invariant::Budget, format!("{what} was given up too early or too late: {error:?}"));
        }
        Some(given_up) if !given_up.is_excused(evidence) => {
            let text = format!("{what} was given up, and a worker that had it lost nothing: {error:?}");
            findings.add(Invariant::WrongEnd, text);
        }
        None if !cut_short => {
            findings.add(Invariant::WrongEnd, format!("{what} was given up, and no run of it was cut short"));
        }
        _ => {}
    }
}

/// Of a task that is in the archive.
pub(super) fn judge(evidence: &Evidence<'_>, story: &Story, task: &Stored, findings: &mut Findings, tally: &mut Tally) {
    let Some(message) = &task.message else { return };
    let retried = u32::try_from(message.retried).unwrap_or(u32::MAX);
    let runs = u32::try_from(story.attempts.len()).unwrap_or(u32::MAX);
    let mut wrong = |invariant, what: &str| {
        findings.add(invariant, format!("{} {what}: {:?} {story:?}", story.name, message.error_msg));
    };
    if retried > 0 && !evidence.mixed {
        wrong(Invariant::RetrySpent, "has spent a retry on a crash");
    }
    let Some(given_up) = GivenUp::read(&message.error_msg) else {
        tally.poison_by_go += 1;
        // Go's recoverers know of retries only, and archive when there are none left.
        if !evidence.mixed || message.error_msg != LEASE_EXPIRED || retried != POISON_RETRIES {
            wrong(Invariant::Budget, "is archived, and not because of its crashes");
        } else if runs > retried + 1 + evidence.max_crashes {
            wrong(Invariant::Budget, "ran more often than its budgets allow");
        }
        return;
    };
    tally.poison_given_up += 1;
    if !given_up.is_in_time(evidence) {
        wrong(Invariant::Budget, "was given up too early or too late");
    }
    if runs > given_up.crashes + retried {
        wrong(Invariant::Budget, "ran more often than its budgets allow");
    }
    let mut unnamed = given_up.holders;
    if evidence.mixed {
        // A worker of Go is unknown, or hides behind the last of ours.
        unnamed.retain(|holder| holder.is_some_and(|pid| process_of(evidence, pid).is_none()));
        if !unnamed.is_empty() {
            wrong(Invariant::Budget, "names somebody who is none of the workers");
        }
        return;
    }
    for attempt in &story.attempts {
        let pid = evidence.processes.iter().find(|process| process.number == attempt.process).map(|p| p.pid);
        match unnamed.iter().position(|holder| holder.is_some() && *holder == pid) {
            Some(position) => drop(unnamed.remove(position)),
            None => wrong(Invariant::Budget, &format!("does not name process {} that it has killed", attempt.process)),
        }
    }
    // Somebody can have had it, and not begun: but only if something else had happened to that worker.
    for holder in unnamed {
        if !holder.is_some_and(|pid| lost_its_tasks(evidence, pid)) {
            wrong(Invariant::Budget, "names somebody who had no reason to crash");
        }
    }
}

fn process_of<'a>(evidence: &Evidence<'a>, pid: u32) -> Option<&'a Process> {
    evidence.processes.iter().find(|process| process.pid == pid && matches!(process.role, Role::Worker { .. }))
}

fn lost_its_tasks(evidence: &Evidence<'_>, pid: u32) -> bool {
    let Some(process) = process_of(evidence, pid) else { return false };
    evidence.happened.iter().any(|fault| fault.process == Some(process.number) && takes_tasks_away(fault.kind))
}

/// Whoever died of poison has to have had some.
pub(super) fn judge_deaths(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut had_it = BTreeSet::new();
    for story in evidence.history.stories().filter(|story| story.name.plan == Plan::Poison) {
        had_it.extend(story.attempts.iter().map(|attempt| attempt.process));
    }
    let by_poison = |fault: &&Happened| fault.kind == Kind::Poison;
    for process in evidence.happened.iter().filter(by_poison).filter_map(|fault| fault.process) {
        if !had_it.contains(&process) {
            findings.add(Invariant::Fallen, format!("process {process} was killed by nobody of us, and had no poison"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_task_that_was_given_up_names_its_holders() {
        let error = "asynq: task lease expired; given up after 3 crashes, it was held by a-host:17:5f0c until \
                     2026-11-14T22:13:20Z, unknown until 2026-11-14T22:13:21Z, h:9:u until 2026-11-14T22:13:22Z";
        let expected = GivenUp { crashes: 3, holders: vec![Some(17), None, Some(9)] };
        assert_eq!(GivenUp::read(error), Some(expected));
        assert_eq!(GivenUp::read(LEASE_EXPIRED), None);
    }
}

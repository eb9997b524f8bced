//! Judges the runs of a task: which of them may follow another one.

use super::{Evidence, Tally, met_producer};
use crate::findings::{Findings, Invariant};
use crate::fleet::Role;
use crate::happened::Happened;
use crate::history::{Attempt, Story};
use crate::ledger::Step;
use crate::name::Plan;
use crate::plan::Kind;
use crate::snapshot::Stored;

pub(super) fn judge(
    evidence: &Evidence<'_>,
    story: &Story,
    here: &[&Stored],
    findings: &mut Findings,
    tally: &mut Tally,
) {
    tally.starts += story.attempts.len() as u64;
    for (earlier, later) in story.attempts.iter().zip(story.attempts.iter().skip(1)) {
        if is_planned(earlier, later) {
            continue;
        }
        tally.done_again += u64::from(matches!(earlier.end, Some((at, Step::Success)) if at <= later.at));
        match excuse(evidence, story, earlier, later) {
            Some(excuse) => *tally.again.entry(excuse).or_default() += 1,
            None => findings.add(Invariant::NeedlessRun, format!("{}: {earlier:?}, then {later:?}", story.name)),
        }
    }
    measure_takeover(evidence, story, tally);
    judge_retries(evidence, story, findings);
    judge_result(evidence, story, here, findings);
    judge_cancel(story, findings);
    judge_checkpoints(story, findings);
    if let Some(first) = story.attempts.first()
        && story.name.plan == Plan::Scheduled
        && u128::from(first.at) < u128::from(story.intent) + story.name.delay().as_nanos()
    {
        let early = story.name.delay().as_secs_f64() - (first.at - story.intent) as f64 / 1e9;
        findings.add(Invariant::Early, format!("{} started {early:.3} s too early", story.name));
    }
}

/// A failure, and the retry that was spent on it.
fn is_planned(earlier: &Attempt, later: &Attempt) -> bool {
    matches!(earlier.end, Some((at, Step::Failure)) if at <= later.at) && later.retried == earlier.retried + 1
}

/// What allows a task to run again.
fn excuse(evidence: &Evidence<'_>, story: &Story, earlier: &Attempt, later: &Attempt) -> Option<&'static str> {
    if evidence.history.is_go(earlier.process) && story.asked {
        return Some("cancelled, and Go let it be tried again before the leader archived it");
    }
    if let Some(fault) = taken_away(evidence, earlier, later).or_else(|| stood_still(evidence, earlier, later)) {
        return Some(fault.kind.text());
    }
    // It has to be done, and deleted, before it can be stored once more, and that before the producer is answered. One of a
    // group is deleted when its digest is made, which may wait for long.
    let done = earlier.end.filter(|(at, step)| *step == Step::Success && *at <= later.at).map(|(at, _)| at)?;
    let answered = story.answer.map_or(u64::MAX, |(at, _)| at);
    let lost = met_producer(evidence, story)?;
    // A kernel may still send it when nobody waits for the answer any more.
    (done <= answered || story.name.plan == Plan::Grouped || lost.needs_namespaces())
        .then_some("enqueued again after a lost answer")
}

/// So long after a fault Go may begin a task under a lease from before it, in nanoseconds.
const GO_WORKS_OUT_A_LEASE: u64 = 1_000_000_000;

/// What took the task from the first worker before the second one began it.
fn taken_away<'a>(evidence: &Evidence<'a>, earlier: &Attempt, later: &Attempt) -> Option<&'a Happened> {
    let is_go = evidence.history.is_go(earlier.process);
    // Go works out the end of a lease, and may stand still before it takes the task with it.
    let late = if is_go { GO_WORKS_OUT_A_LEASE } else { 0 };
    let during = |fault: &&Happened| fault.from <= later.at && fault.to + late >= earlier.at;
    let met = |fault: &&Happened| match fault.process {
        Some(process) => process == earlier.process && (is_go || takes_tasks_away(fault.kind)),
        // Go drops a report that Redis does not take at once.
        None => is_go,
    };
    evidence.happened.iter().filter(during).find(met)
}

/// What stopped the second worker between its last look at the lease and the handler: it had taken the task before the
/// first one, and begins what that one has done since.
fn stood_still<'a>(evidence: &Evidence<'a>, earlier: &Attempt, later: &Attempt) -> Option<&'a Happened> {
    let met = |fault: &&Happened| fault.kind == Kind::Zombie && fault.process == Some(later.process);
    evidence.happened.iter().find(|fault| met(fault) && fault.from <= earlier.at && fault.to >= earlier.at)
}

/// Whether a healthy worker of ours may lose its task by this.
pub(super) fn takes_tasks_away(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::KillWorker
            | Kind::TermWorker
            | Kind::Poison
            | Kind::Zombie
            | Kind::Partition
            | Kind::LosePackets
            | Kind::LosePacketsOneWay
            | Kind::LinkDown
            | Kind::LoseAnswers
            | Kind::ThinLink
            | Kind::Delay
    )
}

/// How long tasks of killed workers took to start elsewhere.
fn measure_takeover(evidence: &Evidence<'_>, story: &Story, tally: &mut Tally) {
    for (earlier, later) in story.attempts.iter().zip(story.attempts.iter().skip(1)) {
        let killed = evidence.happened.iter().find(|fault| {
            fault.kind == Kind::KillWorker && fault.process == Some(earlier.process) && earlier.at <= fault.from
        });
        let Some(killed) = killed else { continue };
        if earlier.end.is_none() && later.at > killed.from {
            let lease = match evidence.history.roles.get(usize::from(earlier.process)) {
                Some(Some(Role::Worker { lease_secs, .. })) => format!("Rust, lease of {lease_secs} s"),
                _ => "Go, lease of 30 s".to_owned(),
            };
            tally.takeover.entry(lease).or_default().push((later.at - killed.from) as f64 / 1e9);
        }
    }
}

/// Only a failure spends a retry; Go's recoverers spend one on a crash too.
fn judge_retries(evidence: &Evidence<'_>, story: &Story, findings: &mut Findings) {
    if evidence.mixed || story.name.plan == Plan::Grouped {
        return;
    }
    for attempt in &story.attempts {
        if usize::from(attempt.retried) > story.failures_before(attempt.at) {
            let text = format!("{} has spent {} retries: {story:?}", story.name, attempt.retried);
            findings.add(Invariant::RetrySpent, text);
            return;
        }
    }
}

/// Who was told that it is archived relies on that.
fn judge_cancel(story: &Story, findings: &mut Findings) {
    let Some(cancelled) = story.cancelled else { return };
    if let Some(late) = story.attempts.iter().find(|attempt| attempt.at > cancelled) {
        let text = format!("{} was cancelled at {cancelled}, and then began: {late:?} of {story:?}", story.name);
        findings.add(Invariant::NotCancelled, text);
    }
}

/// A run goes on from the last checkpoint that a run before it was told is stored, or from a later one.
fn judge_checkpoints(story: &Story, findings: &mut Findings) {
    let mut stored = 0;
    for (at, step) in &story.checkpoints {
        match step {
            Step::Kept(piece) => stored = stored.max(*piece),
            // After a success it is deleted, and may be enqueued again after a lost answer.
            Step::From(piece) if *piece < stored && !story.succeeded_before(*at) => {
                let text = format!("{} had done {stored}, and went on from {piece}: {story:?}", story.name);
                findings.add(Invariant::Checkpoint, text);
                return;
            }
            _ => {}
        }
    }
}

/// The result that is kept is that of the run that took the task last: all others had lost it by then. Where a run may
/// have taken it before the one in front of it or after that one, either may be the last.
fn judge_result(evidence: &Evidence<'_>, story: &Story, here: &[&Stored], findings: &mut Findings) {
    let Some(result) = here.first().and_then(|task| task.result.as_ref()) else { return };
    let Some(first) = story.attempts.first() else { return };
    let mut last = vec![first];
    for next in &story.attempts[1..] {
        let earlier = last[last.len() - 1];
        let stood_still = stood_still(evidence, earlier, next).is_some();
        if !stood_still {
            last.clear();
        }
        if !stood_still || taken_away(evidence, earlier, next).is_some() {
            last.push(next);
        }
    }
    let by_go = story.attempts.iter().any(|attempt| evidence.history.is_go(attempt.process));
    let process = result.split(' ').next().and_then(|process| process.parse::<u16>().ok());
    if !by_go && !last.iter().any(|attempt| process == Some(attempt.process)) {
        findings.add(Invariant::NotFenced, format!("{} has the result {result:?}: {story:?}", story.name));
    }
}

//! Judges a run: the ledgers, what is left in Redis, and what was broken.

mod broadcasts;
mod counters;
mod flows;
mod keys;
mod limits;
mod news;
mod poison;
mod runs;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

use queue_core::TaskMessage;

use crate::broadcast;
use crate::findings::{Findings, Invariant};
use crate::fleet::Process;
use crate::happened::Happened;
use crate::history::{History, Story};
use crate::ledger::Step;
use crate::listen::Heard;
use crate::name::{Place, Plan};
use crate::plan::Kind;
use crate::snapshot::{Snapshot, Stored};

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Tasks that exist, or existed.
    pub(crate) tasks: BTreeMap<Plan, u64>,
    pub(crate) acknowledged: u64,
    /// Tasks whose enqueueing was not answered, and how many of them were stored all the same.
    pub(crate) unknown: u64,
    pub(crate) unknown_stored: u64,
    pub(crate) duplicates: u64,
    pub(crate) refused: u64,
    pub(crate) starts: u64,
    /// Runs of a task that had been started already, by what allows them.
    pub(crate) again: BTreeMap<&'static str, u64>,
    /// Of these, how many follow a run that had succeeded.
    pub(crate) done_again: u64,
    /// Tasks that were archived because their workers died again and again.
    pub(crate) given_up: u64,
    /// Members that could not add to their batch, as often as they might try.
    pub(crate) spent: u64,
    /// Tasks that were archived because their producer had cancelled them; of these, how many while nobody worked on them.
    pub(crate) cancelled: u64,
    pub(crate) cancelled_at_once: u64,
    /// Tasks that kill their workers: given up by ours, and by Go.
    pub(crate) poison_given_up: u64,
    pub(crate) poison_by_go: u64,
    /// The servers that have run broadcasts, each counted for each.
    pub(crate) parts: u64,
    pub(crate) batches: u64,
    /// Of these, in how many something had died.
    pub(crate) batches_dead: u64,
    /// Seconds from the kill of a worker to the start of its task elsewhere, by the worker's lease.
    pub(crate) takeover: BTreeMap<String, Vec<f64>>,
}

/// All that is judged.
pub(crate) struct Evidence<'a> {
    pub(crate) history: &'a History,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) happened: &'a [Happened],
    /// Whether Go took part, which does not fence and spends retries on crashes.
    pub(crate) mixed: bool,
    /// How many crashes a task may survive.
    pub(crate) max_crashes: u32,
    pub(crate) processes: &'a [Process],
    /// What a listener was told.
    pub(crate) heard: &'a Heard,
    /// What exports had twice: names, with more text behind a colon.
    pub(crate) exported_twice: &'a [String],
}

/// asynq's text for a task whose lease has ended.
const LEASE_EXPIRED: &str = "asynq: task lease expired";

pub(crate) fn judge(evidence: &Evidence<'_>) -> (Findings, Tally) {
    let (mut findings, mut tally) = (Findings::default(), Tally::default());
    let mut stored: HashMap<u64, Vec<&Stored>> = HashMap::new();
    for task in evidence.snapshot.tasks.values() {
        if let Some(name) = task.name() {
            stored.entry(name.key()).or_default().push(task);
        }
    }
    let in_archived_digests = keys::members_of_archived_digests(evidence.snapshot);
    let mut least = counters::Least::default();
    let mut batches = flows::Batches::default();
    let mut lanes = limits::Lanes::default();
    let mut roots = HashSet::new();
    let mut twice: HashMap<&str, &String> = HashMap::new();
    twice.extend(evidence.exported_twice.iter().map(|text| (text.split(':').next().unwrap_or(text), text)));
    for story in evidence.history.stories() {
        let here = stored.remove(&story.name.key()).unwrap_or_default();
        if flows::is_of_batch(evidence, &story) {
            batches.add(&story, &here);
        }
        news::judge(evidence.heard, &story, &mut findings);
        if story.name.plan == Plan::Everywhere {
            roots.insert(broadcast::id(story.name));
            broadcasts::judge(evidence, &story, &here, &mut findings, &mut tally);
            continue;
        }
        // A member of a group that was enqueued twice after a lost answer is in two digests.
        if story.name.plan == Plan::Grouped && !twice.is_empty() && met_producer(evidence, &story).is_some() {
            twice.remove(&*story.name.to_string());
        }
        let in_archive = in_archived_digests.contains(&story.name);
        if judge_story(evidence, &story, &here, in_archive, &mut findings, &mut tally) {
            *tally.tasks.entry(story.name.plan).or_default() += 1;
            least.add(&story);
            runs::judge(evidence, &story, &here, &mut findings, &mut tally);
            lanes.add(&story);
        }
    }
    for task in stored.into_values().flatten() {
        findings.add(Invariant::OrphanKey, format!("a task that nobody enqueued: {task:?}"));
    }
    for text in twice.into_values() {
        findings.add(Invariant::ExportedTwice, text);
    }
    (tally.batches, tally.batches_dead) = batches.judge(evidence, &roots, &mut findings);
    lanes.judge(evidence, &mut findings);
    poison::judge_deaths(evidence, &mut findings);
    keys::judge(evidence, &mut findings, &mut tally);
    counters::judge(evidence, &least, &tally, &mut findings);
    (findings, tally)
}

/// Judges whether a task is where it should be; returns whether there ever was one. A member of a group may be in the
/// archive inside its digest, which is judged by itself.
fn judge_story(
    evidence: &Evidence<'_>,
    story: &Story,
    here: &[&Stored],
    in_archived_digest: bool,
    findings: &mut Findings,
    tally: &mut Tally,
) -> bool {
    let exists = !here.is_empty() || !story.attempts.is_empty();
    match story.answer {
        Some((_, Step::Stored)) => tally.acknowledged += 1,
        Some((_, Step::Refused)) => tally.refused += 1,
        Some((_, Step::Duplicate)) => tally.duplicates += 1,
        _ => {
            tally.unknown += 1;
            tally.unknown_stored += u64::from(exists);
        }
    }
    // An answer that was lost can make a task stand in its own way, when it is sent again.
    let sent_again = matches!(story.answer, Some((_, Step::Duplicate))) && met_producer(evidence, story).is_some();
    match story.answer {
        Some((_, step @ (Step::Refused | Step::Duplicate))) if exists && !sent_again => {
            findings.add(Invariant::Phantom, format!("{}: the producer was told {step:?}: {story:?}", story.name));
        }
        Some((_, Step::Stored)) => {}
        _ if !exists => return false,
        _ => {}
    }
    if here.len() > 1 {
        findings.add(Invariant::Misplaced, format!("{}: stored more than once: {here:?}", story.name));
    }
    let wanted = story.name.plan.ends();
    let Some(task) = here.first() else {
        let is_over = wanted == Place::Gone && story.cancelled.is_none() && (story.succeeded() || in_archived_digest);
        if !is_over {
            findings.add(Invariant::Lost, format!("{} should be {wanted:?}, and is gone: {story:?}", story.name));
        }
        return true;
    };
    let message = task.message.as_ref();
    let crashed = message.is_some_and(|message| message.error_msg.starts_with(LEASE_EXPIRED));
    let found = match task.state.as_str() {
        "completed" => Place::Completed,
        "archived" => Place::Archived,
        // The keys are judged by themselves.
        _ => return true,
    };
    if found == Place::Archived && story.name.plan == Plan::Poison {
        poison::judge(evidence, story, task, findings, tally);
    } else if found == Place::Archived && story.asked {
        // As its canceller wanted, whatever its last error is.
        tally.cancelled += 1;
        tally.cancelled_at_once += u64::from(story.cancelled.is_some());
    } else if found == Place::Archived && crashed {
        // Its workers died again and again, with it or before they had begun it.
        tally.given_up += 1;
        let error = message.map_or("", |message| message.error_msg.as_str());
        // Go spends retries on it, and does not say who had it.
        let cut_short = wanted == Place::Archived || story.attempts.iter().any(|attempt| attempt.end.is_none());
        poison::judge_given_up(evidence, &story.name.to_string(), error, cut_short, findings);
    } else if found == Place::Archived && has_spent_its_retries(story, message) {
        tally.spent += 1;
    } else if found != wanted {
        findings.add(Invariant::WrongEnd, format!("{} should be {wanted:?}: {task:?} {story:?}", story.name));
    } else if wanted == Place::Completed && task.result.is_none() {
        findings.add(Invariant::WrongEnd, format!("{} has no result", story.name));
    }
    true
}

/// A member whose handler adds to its batch fails each time that Redis refuses it: for half a minute, when it is out of memory.
fn has_spent_its_retries(story: &Story, message: Option<&TaskMessage>) -> bool {
    let failed = story.attempts.iter().filter(|attempt| matches!(attempt.end, Some((_, Step::Failure)))).count();
    let spent = |message: &TaskMessage| {
        message.retried >= message.retry
            && usize::try_from(message.retry).is_ok_and(|retries| failed > retries)
            && message.error_msg.starts_with("Redis refused")
    };
    story.name.plan == Plan::Adder && !story.succeeded() && message.is_some_and(spent)
}

/// A fault that can have cost the producer an answer to the call that enqueued this task.
fn met_producer(evidence: &Evidence<'_>, story: &Story) -> Option<Kind> {
    let until = story.answer.map_or(u64::MAX, |(at, _)| at);
    let meets = |fault: &&Happened| {
        let fits = match fault.process {
            // What a member adds to its batch, the worker of that member enqueues.
            Some(process) => process == story.name.producer || flows::is_added_to_batch(evidence, story),
            // Those that close all connections.
            None => matches!(
                fault.kind,
                Kind::ClientKill | Kind::CrashRedis | Kind::FailOver | Kind::MaxClients | Kind::Password
            ),
        };
        fits && fault.from <= until && fault.to >= story.intent
    };
    evidence.happened.iter().find(meets).map(|fault| fault.kind)
}

//! Judges the counters of the queues against the ledgers.
//!
//! Without faults they are equal. A fault can take away a report after its handler has ended, or add a
//! recovery that nobody has told of, at the most one each.

use super::{Evidence, Tally};
use crate::findings::{Findings, Invariant};
use crate::history::Story;
use crate::ledger::Step;
use crate::name::Plan;

/// What must have been counted.
#[derive(Debug, Default)]
pub(super) struct Least {
    processed: u64,
    failed: u64,
}

impl Least {
    pub(super) fn add(&mut self, story: &Story) {
        // Of groups, the digests are counted.
        if story.name.plan == Plan::Grouped {
            return;
        }
        // Each run ends in a crash, which is counted by whoever finds it.
        if story.name.plan == Plan::Poison {
            self.processed += story.attempts.len() as u64;
            self.failed += story.attempts.len() as u64;
            return;
        }
        // It may have been archived where nobody worked on it, which counts nothing.
        if story.name.plan == Plan::Unwanted {
            let spent = story.attempts.iter().map(|attempt| u64::from(attempt.retried)).max().unwrap_or(0);
            self.processed += spent;
            self.failed += spent;
            return;
        }
        // A run that begins with so many retries spent follows as many failures that were counted; then comes
        // the end.
        let spent = story.attempts.iter().map(|attempt| u64::from(attempt.retried)).max().unwrap_or(0);
        let ended = u64::from(!story.attempts.is_empty());
        let failed = u64::from(matches!(story.name.plan, Plan::Doomed | Plan::Exhausted)) * ended;
        self.processed += spent + ended;
        self.failed += spent + failed;
    }
}

pub(super) fn judge(evidence: &Evidence<'_>, least: &Least, tally: &Tally, findings: &mut Findings) {
    let (history, told) = (evidence.history, evidence.history.told);
    let of_groups = |story: &Story| story.name.plan == Plan::Grouped;
    let (mut grouped, mut cut_short, mut not_begun) = (0, 0, 0);
    for story in history.stories() {
        if of_groups(&story) {
            grouped += story.attempts.iter().filter(|attempt| attempt.end.is_some()).count() as u64;
        }
        // A server that takes a task which is to be cancelled archives it, and starts no handler.
        not_begun += u64::from(story.asked && story.cancelled.is_none());
        cut_short += story.attempts.iter().filter(|attempt| attempt.end.is_none()).count() as u64;
    }
    let failures = history.count(|step| matches!(step, Step::Failure | Step::Archive));
    let ends = history.count(|step| step == Step::Success) + failures - grouped + told.digests;
    // Go does not tell what it recovers.
    let by_go = if evidence.mixed { cut_short + tally.again.values().sum::<u64>() } else { 0 };
    let recovered = told.recovered + by_go + not_begun + evidence.happened.len() as u64;
    let again: u64 = tally.again.values().sum();
    let digests = told.digests.saturating_sub(again);

    let counters = &evidence.snapshot.counters;
    let processed: u64 = counters.iter().map(|queue| queue.processed).sum();
    let failed: u64 = counters.iter().map(|queue| queue.failed).sum();
    let mut within = |what: &str, found: u64, least: u64, most: u64| {
        if found < least || found > most {
            findings.add(Invariant::Counter, format!("{what} is {found}, and should be {least} to {most}"));
        }
    };
    within("processed", processed, least.processed + digests, ends + recovered);
    within("failed", failed, least.failed, failures + recovered);
    for (queue, counters) in crate::name::QUEUES.iter().zip(counters) {
        let (processed, failed) = (counters.processed, counters.failed);
        within(&format!("processed by day in {queue}"), counters.processed_days, processed, processed);
        within(&format!("failed by day in {queue}"), counters.failed_days, failed, failed);
    }
}

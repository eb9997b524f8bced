//! Judges limits: how many tasks of a key ran at once, and in which order they began.

use std::collections::BTreeMap;
use std::time::Duration;

use queue_core::limit::LaneOrder;

use super::Evidence;
use super::runs::takes_tasks_away;
use crate::findings::{Findings, Invariant};
use crate::history::{Attempt, Story};
use crate::ledger::Step;
use crate::name::{Name, Plan, limits};

/// So long after a fault a handler may begin a task that its server has lost by that.
const LATE: Duration = Duration::from_secs(2);

/// The tasks of each queue and key.
#[derive(Debug, Default)]
pub(super) struct Lanes(BTreeMap<(u8, &'static str), Vec<Story>>);

impl Lanes {
    pub(super) fn add(&mut self, story: &Story) {
        if story.name.plan == Plan::Limited {
            self.0.entry((story.name.queue, story.name.limit_key())).or_default().push(story.clone());
        }
    }

    /// Servers of Go go by no limits, and where they take part nothing is judged.
    pub(super) fn judge(&self, evidence: &Evidence<'_>, findings: &mut Findings) {
        if evidence.mixed {
            return;
        }
        let limits = limits();
        for ((queue, key), stories) in &self.0 {
            let limit = &limits[usize::from(*queue)];
            judge_cap(evidence, &format!("key {key} of queue {queue}"), limit.concurrency, stories, findings);
            if limit.order == LaneOrder::Strict {
                judge_order(stories, findings);
            }
        }
    }
}

fn judge_cap(evidence: &Evidence<'_>, lane: &str, cap: Option<u32>, stories: &[Story], findings: &mut Findings) {
    let held = |story: &Story| {
        let nexts = story.attempts.iter().skip(1).map(|next| Some(next.at)).chain([None]);
        let held = story.attempts.iter().zip(nexts).filter_map(|(attempt, next)| held(evidence, attempt, next));
        held.map(|(from, to)| (from, to, story.name)).collect::<Vec<_>>()
    };
    let mut starts: Vec<(u64, u64, Name)> = stories.iter().flat_map(held).collect();
    starts.sort_unstable();
    let mut running: Vec<(u64, Name)> = Vec::new();
    for (from, to, name) in starts {
        running.retain(|(end, _)| *end > from);
        running.push((to, name));
        if cap.is_some_and(|cap| running.len() > cap as usize) {
            findings.add(Invariant::OverLimit, format!("{lane} at {from}: {running:?}"));
        }
    }
}

/// From when to when it is certain that an attempt has its slot: until it ends, or its server may have lost the task.
fn held(evidence: &Evidence<'_>, attempt: &Attempt, next: Option<u64>) -> Option<(u64, u64)> {
    let late = LATE.as_nanos() as u64;
    let end = attempt.end.map(|(at, _)| at).or(next).unwrap_or(attempt.at);
    let met = evidence.happened.iter().filter(|fault| {
        fault.process == Some(attempt.process)
            && takes_tasks_away(fault.kind)
            && fault.from <= end
            && fault.to + late >= attempt.at
    });
    let lost = met.map(|fault| fault.from).min().unwrap_or(u64::MAX);
    (lost > attempt.at).then_some((attempt.at, end.min(lost)))
}

/// Each begins after the success of those that had been stored when it was about to be enqueued.
fn judge_order(stories: &[Story], findings: &mut Findings) {
    let stored = |story: &Story| match story.answer {
        Some((at, Step::Stored)) => Some((at, story.first_success()?, story.name)),
        _ => None,
    };
    let mut before: Vec<_> = stories.iter().filter_map(stored).collect();
    before.sort_unstable();
    let mut stories: Vec<&Story> = stories.iter().collect();
    stories.sort_unstable_by_key(|story| story.intent);
    let (mut before, mut last) = (before.into_iter().peekable(), None);
    for story in stories {
        while let Some((_, success, name)) = before.next_if(|(at, ..)| *at < story.intent) {
            last = last.max(Some((success, name)));
        }
        if let (Some(first), Some((success, name))) = (story.attempts.first(), last)
            && first.at < success
        {
            let text = format!("{} began at {}, and {name} succeeded at {success}", story.name, first.at);
            findings.add(Invariant::OutOfOrder, text);
        }
    }
}

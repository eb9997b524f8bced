//! Judges broadcasts: each server that one is for has run it, and nobody else.

use std::collections::BTreeMap;

use super::{Evidence, Tally, runs};
use crate::broadcast::id;
use crate::findings::{Findings, Invariant};
use crate::history::{Attempt, Story};
use crate::ledger::Step;
use crate::snapshot::Stored;

pub(super) fn judge(
    evidence: &Evidence<'_>,
    story: &Story,
    here: &[&Stored],
    findings: &mut Findings,
    tally: &mut Tally,
) {
    let slot_of = |attempt: &Attempt| evidence.processes.iter().find(|p| p.number == attempt.process)?.slot;
    let mut by_slot: BTreeMap<Option<usize>, Vec<Attempt>> = BTreeMap::new();
    for attempt in &story.attempts {
        by_slot.entry(slot_of(attempt)).or_default().push(*attempt);
    }
    *tally.tasks.entry(story.name.plan).or_default() += u64::from(!story.attempts.is_empty());
    let has_succeeded = |attempts: &Vec<Attempt>| attempts.iter().any(|a| matches!(a.end, Some((_, Step::Success))));
    for (slot, attempts) in &by_slot {
        // The runs of one server are those of a task of its own.
        let part = Story { attempts: attempts.clone(), ..story.clone() };
        runs::judge(evidence, &part, &[], findings, tally);
        tally.parts += u64::from(has_succeeded(attempts));
        let is_chosen = |slots: u16| slot.is_some_and(|slot| slots & 1 << slot != 0);
        if story.chosen.is_some_and(|slots| !is_chosen(slots)) {
            findings.add(Invariant::Phantom, format!("slot {slot:?} ran broadcast {}: {story:?}", id(story.name)));
        }
    }
    // A part that was given up with its workers is in the archive.
    let mut given_up = here.iter().filter(|task| task.state == "archived").count();
    for slot in (0..16).filter(|slot| story.chosen.is_some_and(|slots| slots & 1 << slot != 0)) {
        if by_slot.get(&Some(slot)).is_some_and(has_succeeded) {
            continue;
        }
        if given_up == 0 {
            findings.add(Invariant::Lost, format!("slot {slot} never ran broadcast {}: {story:?}", id(story.name)));
        }
        given_up = given_up.saturating_sub(1);
    }
}

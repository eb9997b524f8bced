//! Judges what is left in Redis by itself: each key belongs to something, and each task is in one place.

use super::{Evidence, Tally};
use crate::findings::{Findings, Invariant};
use crate::name::{DIGEST, QUEUES};
use crate::snapshot::Stored;

pub(super) fn judge(evidence: &Evidence<'_>, findings: &mut Findings, tally: &mut Tally) {
    let snapshot = evidence.snapshot;
    for key in &snapshot.strays {
        findings.add(Invariant::OrphanKey, key.clone());
    }
    for ((queue, id), task) in &snapshot.tasks {
        let name = task.name().map_or_else(|| format!("id {id} in {}", QUEUES[*queue]), |name| name.to_string());
        let is_digest = task.message.as_ref().is_some_and(|message| message.r#type == DIGEST);
        if task.state.is_empty() || task.places.is_empty() {
            findings.add(Invariant::OrphanKey, format!("{name}: state {:?}, places {:?}", task.state, task.places));
        } else if !fits(task) {
            findings.add(Invariant::Misplaced, format!("{name}: state {:?}, places {:?}", task.state, task.places));
        } else if !matches!(task.state.as_str(), "completed" | "archived") {
            let error = task.message.as_ref().map_or("", |message| message.error_msg.as_str());
            findings.add(Invariant::Stuck, format!("{name} is {}, last error {error:?}", task.state));
        } else if is_digest {
            tally.given_up += 1;
        } else if task.name().is_none() {
            findings.add(Invariant::OrphanKey, format!("{name}: it has no name"));
        }
    }
    for (lock, (queue, holder)) in &snapshot.locks {
        let owner = snapshot.tasks.get(&(*queue, holder.clone())).and_then(|task| task.message.as_ref());
        if owner.is_none_or(|message| message.unique_key != *lock) {
            findings.add(Invariant::LeakedLock, format!("{lock} names {holder}"));
        }
    }
}

fn fits(task: &Stored) -> bool {
    let mut places = task.places.clone();
    places.sort();
    match task.state.as_str() {
        "active" => places == ["active", "lease"],
        "aggregating" => places.len() == 1 && places[0].starts_with("g:"),
        state => places == [state],
    }
}

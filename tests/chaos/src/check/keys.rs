//! Judges what is left in Redis by itself: each key belongs to something, and each task is in one place.

use std::collections::HashSet;

use queue_core::TaskMessage;

use super::{Evidence, LEASE_EXPIRED, Tally, poison};
use crate::findings::{Findings, Invariant};
use crate::name::{DIGEST, Name, Plan, QUEUES};
use crate::snapshot::{Snapshot, Stored};

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
            let error = task.message.as_ref().map_or("", |message| message.error_msg.as_str());
            if error.starts_with(LEASE_EXPIRED) {
                // Without the names of those that had it, Go has archived it.
                poison::judge_given_up(evidence, &name, error, evidence.mixed, findings);
            } else {
                findings.add(Invariant::WrongEnd, format!("{name}, a digest, is {}: {error:?}", task.state));
            }
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

/// Who became part of a digest that is in the archive because its workers died again and again: such a digest is never
/// worked, and its members are in it.
pub(super) fn members_of_archived_digests(snapshot: &Snapshot) -> HashSet<Name> {
    let members = snapshot.tasks.iter().flat_map(|((queue, _), task)| {
        let is_one = |message: &&TaskMessage| {
            task.state == "archived" && message.r#type == DIGEST && message.error_msg.starts_with(LEASE_EXPIRED)
        };
        let digest = task.message.as_ref().filter(is_one);
        let payload = digest.map_or_else(String::new, |digest| String::from_utf8_lossy(&digest.payload).into_owned());
        let names: Vec<Name> = payload.split(' ').filter_map(Name::parse).collect();
        let own = move |name: &Name| name.plan == Plan::Grouped && usize::from(name.queue) == *queue;
        names.into_iter().filter(own)
    });
    members.collect()
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

//! What is wrong with a task, and where it belongs. No I/O: from what Redis holds to what is to be done.

use bytes::Bytes;

use super::{Entry, Fault, Remedy, Target, Whereabouts};
use crate::keys::QueueKeys;
// A repaired task is leased as by a take: long enough for a worker that still has it to renew.
use crate::limits::{LAST_SECOND, LEASE_SECS};
use crate::{TaskMessage, TaskState};

/// The largest score that is a time, in the year 9999.
#[expect(clippy::cast_precision_loss, reason = "it has 38 bits")]
const FARTHEST: f64 = LAST_SECOND as f64;

/// A place in which ids stand.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// The list or set of a state.
    State(TaskState),
    /// A group.
    Group(Bytes),
    /// A set of this group that is being aggregated.
    Staged(Bytes),
}

impl Place {
    fn of(entry: &Entry, keys: &QueueKeys) -> Option<Self> {
        if let Some(name) = entry.key.strip_prefix(keys.group_prefix().as_bytes()) {
            let name = Bytes::copy_from_slice(name);
            if !entry.is_staged {
                return Some(Self::Group(name));
            }
            let end = name.iter().rposition(|byte| *byte == b':')?;
            return Some(Self::Staged(name.slice(..end)));
        }
        let state: TaskState =
            std::str::from_utf8(entry.key.strip_prefix(keys.prefix().as_bytes())?).ok()?.parse().ok()?;
        Some(Self::State(state))
    }

    fn state(&self) -> TaskState {
        if let Self::State(state) = self { *state } else { TaskState::Aggregating }
    }

    /// Which of several places wins when the state names none of them: the one nearest to a worker, because a
    /// task that runs once too early is less of a harm than one that never runs.
    fn rank(&self, has_lease: bool) -> u8 {
        match self {
            Self::State(TaskState::Active) if has_lease => 0,
            Self::State(TaskState::Pending) => 1,
            Self::Staged(_) => 2,
            Self::Group(_) => 3,
            Self::State(TaskState::Retry) => 4,
            Self::State(TaskState::Scheduled) => 5,
            Self::State(TaskState::Active) => 6,
            Self::State(TaskState::Archived) => 7,
            Self::State(TaskState::Completed | TaskState::Aggregating) => 8,
        }
    }
}

/// What is wrong with a task, and what helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What is wrong.
    pub fault: Fault,
    /// What helps, where anything does.
    pub remedy: Option<Remedy>,
}

/// Looks at one task at `now` (Unix seconds); `None` when it is sound.
pub fn judge(queue: &str, id: &[u8], seen: &Whereabouts, now: i64) -> Option<Judgement> {
    let keys = QueueKeys::new(queue);
    if seen.key_type != "hash" && seen.key_type != "none" {
        return None; // That the key has another type is a finding of its own, and comes first.
    }
    if seen.message.is_empty() {
        let delete = Some(Remedy::Delete { copy: Bytes::new() });
        return match () {
            () if seen.key_type == "hash" => Some(Judgement { fault: Fault::NoMessage, remedy: delete }),
            () if seen.entries.is_empty() && seen.lease.is_empty() => None,
            () => Some(Judgement { fault: Fault::NoTask, remedy: delete }),
        };
    }
    if seen.is_remains && seen.entries.is_empty() {
        return None;
    }
    let places: Vec<(Place, &Entry)> =
        seen.entries.iter().filter_map(|entry| Some((Place::of(entry, &keys)?, entry))).collect();
    let message = TaskMessage::from_bytes(seen.message.clone()).ok();
    let Some(message) = message.filter(|message| message.id.as_bytes() == id && message.queue == queue) else {
        return unreadable(&keys, seen, &places, now);
    };
    let state: Option<TaskState> = seen.state.parse().ok();
    let group = if seen.group.is_empty() { Bytes::from(message.group_key.clone()) } else { seen.group.clone() };
    let is_named = |place: &Place| match place {
        Place::State(of) => Some(*of) == state,
        Place::Group(name) | Place::Staged(name) => state == Some(TaskState::Aggregating) && *name == group,
    };
    let has_lease = !seen.lease.is_empty();
    let mut ranked: Vec<&(Place, &Entry)> = places.iter().collect();
    ranked.sort_by_key(|(place, _)| (!is_named(place), place.rank(has_lease)));
    let Some((place, entry)) = ranked.first() else {
        return Some(lost(&keys, seen, state, &message, &group, now));
    };
    let is_set = !entry.score.is_empty();
    let score = if is_set { whole(&entry.score, now) } else { String::new() };
    let lease = match (place.state(), seen.lease.is_empty()) {
        (TaskState::Active, false) => whole(&seen.lease, now),
        (TaskState::Active, true) => (now + LEASE_SECS).to_string(),
        _ => String::new(),
    };
    let fault = if places.len() > 1 {
        Fault::ManyPlaces
    } else if !is_named(place) && place.state() != TaskState::Aggregating {
        Fault::WrongState
    } else if !is_named(place) || (place.state() == TaskState::Aggregating && seen.group.is_empty()) {
        Fault::WrongGroup
    } else if lease.is_empty() && has_lease {
        Fault::StrayLease
    } else if !lease.is_empty() && !has_lease {
        Fault::NoLease
    } else if score != entry.score || (has_lease && lease != seen.lease) {
        Fault::OddScore
    } else if seen.expires {
        Fault::Expires
    } else if !message.unique_key.is_empty() && !keys.may_own(&message.unique_key) {
        return Some(Judgement { fault: Fault::LockElsewhere, remedy: None });
    } else {
        return None;
    };
    let group = match place {
        Place::Group(name) | Place::Staged(name) => name.clone(),
        Place::State(_) => Bytes::new(),
    };
    let target = Target { key: entry.key.clone(), score, state: place.state(), group, lease };
    Some(Judgement { fault, remedy: Some(Remedy::Place(target)) })
}

/// A task that no worker could read: it is kept in the archive, where it is in nobody's way.
fn unreadable(keys: &QueueKeys, seen: &Whereabouts, places: &[(Place, &Entry)], now: i64) -> Option<Judgement> {
    let in_archive = seen.entries.iter().find(|entry| entry.key == keys.archived().as_bytes());
    let is_kept = places.len() == 1 && in_archive.is_some() && seen.state == "archived";
    if is_kept && seen.lease.is_empty() && !seen.expires {
        return Some(Judgement { fault: Fault::UnreadableArchived, remedy: None });
    }
    let score = in_archive.map_or_else(|| now.to_string(), |entry| whole(&entry.score, now));
    let target = Target {
        key: keys.archived().into(),
        score,
        state: TaskState::Archived,
        group: Bytes::new(),
        lease: String::new(),
    };
    Some(Judgement { fault: Fault::Unreadable, remedy: Some(Remedy::Place(target)) })
}

/// A task that is in no list: back into the one that its state names. When it was due is not known any more.
fn lost(
    keys: &QueueKeys,
    seen: &Whereabouts,
    state: Option<TaskState>,
    message: &TaskMessage,
    group: &Bytes,
    now: i64,
) -> Judgement {
    // Without a state nobody can say whether it is to run; in the archive somebody can look at it.
    let state = match state {
        Some(TaskState::Aggregating) if group.is_empty() => TaskState::Archived,
        state => state.unwrap_or(TaskState::Archived),
    };
    let known = |at: i64| if at > 0 { at } else { now };
    let score = match state {
        TaskState::Pending | TaskState::Active => None,
        TaskState::Scheduled | TaskState::Retry | TaskState::Aggregating => Some(now),
        TaskState::Archived => Some(known(message.last_failed_at)),
        TaskState::Completed => Some(known(message.completed_at).saturating_add(message.retention)),
    };
    let lease = match state {
        TaskState::Active if seen.lease.is_empty() => (now + LEASE_SECS).to_string(),
        TaskState::Active => whole(&seen.lease, now),
        _ => String::new(),
    };
    let key = keys.container(state).map(Bytes::from);
    let key = key.unwrap_or_else(|| [keys.group_prefix().as_bytes(), group].concat().into());
    let group = if state == TaskState::Aggregating { group.clone() } else { Bytes::new() };
    let score = score.map(|score| score.to_string()).unwrap_or_default();
    Judgement { fault: Fault::NoPlace, remedy: Some(Remedy::Place(Target { key, score, state, group, lease })) }
}

/// A score as a whole Unix second. One beyond the year 9999 was meant in a smaller unit.
fn whole(score: &str, now: i64) -> String {
    let is_plain = score.strip_prefix('-').unwrap_or(score).bytes().all(|byte| byte.is_ascii_digit());
    let Ok(mut number) = score.parse::<f64>() else { return now.to_string() };
    if is_plain && number <= FARTHEST {
        return score.to_owned();
    }
    if !number.is_finite() {
        return now.to_string();
    }
    while number > FARTHEST {
        number /= 1_000.0;
    }
    (number.ceil() as i64).to_string()
}

#[cfg(test)]
mod tests;

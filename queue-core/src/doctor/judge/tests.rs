//! The rules, one by one.

use super::*;

const NOW: i64 = 4_000_000_000;

fn entry(place: &str, score: &str) -> Entry {
    Entry { key: format!("asynq:{{q}}:{place}").into(), score: score.to_owned(), is_staged: false }
}

fn message() -> TaskMessage {
    TaskMessage { id: "a".into(), queue: "q".into(), ..Default::default() }
}

/// A task in this state, standing there.
fn seen(state: &str, entries: impl IntoIterator<Item = Entry>) -> Whereabouts {
    Whereabouts {
        key_type: "hash".into(),
        message: message().to_bytes(),
        state: state.into(),
        entries: entries.into_iter().collect(),
        ..Default::default()
    }
}

fn told(seen: &Whereabouts) -> String {
    let Some(Judgement { fault, remedy }) = judge("q", b"a", seen, NOW) else { return "sound".into() };
    match remedy {
        None => fault.as_str().into(),
        Some(Remedy::Delete { .. }) => format!("{}: delete", fault.as_str()),
        Some(Remedy::Place(Target { key, score, state, group, lease })) => {
            let key = String::from_utf8_lossy(key.strip_prefix(b"asynq:{q}:").unwrap()).into_owned();
            let group = String::from_utf8_lossy(&group).into_owned();
            format!("{}: {state} in {key} [{score}] group [{group}] lease [{lease}]", fault.as_str())
        }
    }
}

#[test]
fn a_task_where_its_state_says_is_sound() {
    assert_eq!(told(&seen("pending", [entry("pending", "")])), "sound");
    for state in ["scheduled", "retry", "archived", "completed"] {
        assert_eq!(told(&seen(state, [entry(state, "5")])), "sound");
    }
    let active = Whereabouts { lease: "7".into(), ..seen("active", [entry("active", "")]) };
    assert_eq!(told(&active), "sound");
    let aggregating = Whereabouts { group: "g".into(), ..seen("aggregating", [entry("g:g", "5")]) };
    assert_eq!(told(&aggregating), "sound");
    let staged = Entry { is_staged: true, ..entry("g:g:uuid", "5") };
    assert_eq!(told(&Whereabouts { group: "g".into(), ..seen("aggregating", [staged]) }), "sound");
    assert_eq!(told(&Whereabouts { is_remains: true, ..seen("aggregating", []) }), "sound");
}

#[test]
fn of_several_places_the_one_that_the_state_names_wins() {
    let both = [entry("pending", ""), entry("retry", "5")];
    assert_eq!(told(&seen("retry", both.clone())), "many-places: retry in retry [5] group [] lease []");
    assert_eq!(told(&seen("pending", both.clone())), "many-places: pending in pending [] group [] lease []");
    assert_eq!(told(&seen("archived", both)), "many-places: pending in pending [] group [] lease []");
    let twice = seen("pending", [entry("pending", ""), entry("pending", "")]);
    assert_eq!(told(&twice), "many-places: pending in pending [] group [] lease []");
    let leased = seen("completed", [entry("pending", ""), entry("active", "")]);
    let leased = Whereabouts { lease: "9".into(), ..leased };
    assert_eq!(told(&leased), "many-places: active in active [] group [] lease [9]");
}

#[test]
fn a_lost_task_goes_back_where_its_state_says() {
    let until = NOW + LEASE_SECS;
    for (state, expected) in [
        ("pending", "pending in pending [] group [] lease []".to_owned()),
        ("active", format!("active in active [] group [] lease [{until}]")),
        ("scheduled", format!("scheduled in scheduled [{NOW}] group [] lease []")),
        ("retry", format!("retry in retry [{NOW}] group [] lease []")),
        ("archived", format!("archived in archived [{NOW}] group [] lease []")),
        ("completed", format!("completed in completed [{NOW}] group [] lease []")),
        ("", format!("archived in archived [{NOW}] group [] lease []")),
        ("nonsense", format!("archived in archived [{NOW}] group [] lease []")),
        ("aggregating", format!("archived in archived [{NOW}] group [] lease []")),
    ] {
        assert_eq!(told(&seen(state, [])), format!("no-place: {expected}"), "{state:?}");
    }
    let grouped = Whereabouts { group: "g".into(), ..seen("aggregating", []) };
    assert_eq!(told(&grouped), format!("no-place: aggregating in g:g [{NOW}] group [g] lease []"));
    let leased = Whereabouts { lease: "9".into(), ..seen("active", []) };
    assert_eq!(told(&leased), "no-place: active in active [] group [] lease [9]");
    let message = TaskMessage { completed_at: 100, retention: 20, last_failed_at: 7, ..message() };
    let dated = |state| Whereabouts { message: message.to_bytes(), ..seen(state, []) };
    assert_eq!(told(&dated("completed")), "no-place: completed in completed [120] group [] lease []");
    assert_eq!(told(&dated("archived")), "no-place: archived in archived [7] group [] lease []");
}

#[test]
fn fields_that_disagree_with_the_place_are_written_anew() {
    let active = seen("active", [entry("active", "")]);
    assert_eq!(told(&active), format!("no-lease: active in active [] group [] lease [{}]", NOW + LEASE_SECS));
    let stray = Whereabouts { lease: "9".into(), ..seen("pending", [entry("pending", "")]) };
    assert_eq!(told(&stray), "stray-lease: pending in pending [] group [] lease []");
    assert_eq!(told(&seen("", [entry("retry", "5")])), "wrong-state: retry in retry [5] group [] lease []");
    assert_eq!(told(&seen("active", [entry("pending", "")])), "wrong-state: pending in pending [] group [] lease []");
    let other = Whereabouts { group: "h".into(), ..seen("aggregating", [entry("g:g", "5")]) };
    assert_eq!(told(&other), "wrong-group: aggregating in g:g [5] group [g] lease []");
    assert_eq!(
        told(&seen("aggregating", [entry("g:g", "5")])),
        "wrong-group: aggregating in g:g [5] group [g] lease []"
    );
    let expires = Whereabouts { expires: true, ..seen("retry", [entry("retry", "5")]) };
    assert_eq!(told(&expires), "expires: retry in retry [5] group [] lease []");
}

#[test]
fn odd_scores_become_whole_seconds() {
    for (odd, whole) in [
        ("5.5", "6"),
        ("1.7e+18", "1700000000"),
        ("1700000000000", "1700000000"),
        ("inf", "4000000000"),
        ("-inf", "4000000000"),
        ("-1.5", "-1"),
    ] {
        let expected = format!("odd-score: retry in retry [{whole}] group [] lease []");
        assert_eq!(told(&seen("retry", [entry("retry", odd)])), expected, "{odd}");
    }
}

#[test]
fn a_lock_of_another_queue_is_told_where_nothing_else_is_wrong() {
    let locked = |lock: &str| TaskMessage { unique_key: lock.into(), ..message() }.to_bytes();
    let waiting = |lock: &str| Whereabouts { message: locked(lock), ..seen("pending", [entry("pending", "")]) };
    for (lock, expected) in [
        ("asynq:{q}:unique:job:abc", "sound"),
        ("asynq:{old}:unique:job:abc", "lock-elsewhere"),
        ("asynq:{q}2:unique:job:abc", "lock-elsewhere"),
        ("any", "lock-elsewhere"),
    ] {
        assert_eq!(told(&waiting(lock)), expected, "{lock}");
    }
    let lost = Whereabouts { entries: vec![], ..waiting("any") };
    assert!(told(&lost).starts_with("no-place"), "that comes first");
}

#[test]
fn an_id_without_a_task_is_deleted_and_an_unreadable_task_archived() {
    let none = |entries: Vec<Entry>, lease: &str| Whereabouts {
        key_type: "none".into(),
        lease: lease.into(),
        entries,
        ..Default::default()
    };
    assert_eq!(told(&none(vec![entry("retry", "5")], "")), "no-task: delete");
    assert_eq!(told(&none(vec![], "5")), "no-task: delete");
    assert_eq!(told(&none(vec![], "")), "sound");
    assert_eq!(told(&Whereabouts { message: Bytes::new(), ..seen("active", []) }), "no-message: delete");
    for raw in [b"spoiled".to_vec(), TaskMessage { id: "b".into(), ..message() }.to_bytes().to_vec()] {
        let spoiled = |state, entries| Whereabouts { message: raw.clone().into(), ..seen(state, entries) };
        let told_of = told(&spoiled("pending", vec![entry("pending", "")]));
        assert_eq!(told_of, format!("unreadable: archived in archived [{NOW}] group [] lease []"));
        assert_eq!(told(&spoiled("archived", vec![entry("archived", "5")])), "unreadable-archived");
    }
    assert_eq!(told(&Whereabouts { key_type: "list".into(), ..seen("", [entry("retry", "5")]) }), "sound");
}

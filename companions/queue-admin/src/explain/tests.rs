//! From facts to reasons.

use super::*;
use queue_core::clock::UnixSecond;
use queue_core::doctor::Entry;
use queue_core::registry::ServerEntry;

const NOW: i64 = 4_000_000_000;

/// A task in this state, standing there with this score.
fn facts(state: &str, place: &str, score: &str) -> Facts {
    let message =
        TaskMessage { id: "a".into(), r#type: "t".into(), queue: "q".into(), retry: 25, ..Default::default() };
    let entry = Entry { key: format!("asynq:{{q}}:{place}").into(), score: score.into(), is_staged: false };
    Facts {
        seen: Whereabouts {
            key_type: "hash".into(),
            message: message.to_bytes(),
            state: state.into(),
            entries: vec![entry],
            ..Default::default()
        },
        message: Some(message),
        is_listed: true,
        servers: vec![server(10)],
        ..Default::default()
    }
}

fn server(concurrency: i32) -> ServerInfo {
    ServerInfo { queues: [("q".to_owned(), 1)].into(), status: "active".into(), concurrency, ..Default::default() }
}

fn told(facts: &Facts) -> Vec<&'static str> {
    reasons("q", "a", facts, NOW).iter().map(Reason::as_str).collect()
}

#[test]
fn a_pending_task_is_held_back_by_its_queue_its_servers_or_others() {
    let pending = |ahead| Facts { ahead: Some(ahead), ..facts("pending", "pending", "") };
    assert_eq!(told(&pending(0)), ["next"]);
    assert_eq!(told(&pending(3)), ["behind"]);
    assert_eq!(told(&Facts { paused: Some("5".into()), ..pending(3) }), ["paused", "behind"]);
    assert_eq!(told(&Facts { servers: Vec::new(), ..pending(0) }), ["no-server"]);
    let mut of_base = Facts { servers: vec![server(10)], ..pending(0) };
    for (queue, expected) in [
        ("q}p9", "no-priorities"),
        ("other}p9", "no-server"),
        ("q}@web-1", "no-fitting-server"),
        ("other}#gpu", "no-fitting-server"),
    ] {
        of_base.seen.entries[0].key = format!("asynq:{{{queue}}}:pending").into();
        let message = of_base.message.as_mut().unwrap();
        message.queue = queue.to_owned();
        of_base.seen.message = message.to_bytes();
        assert_eq!(reasons(queue, "a", &of_base, NOW).iter().map(Reason::as_str).collect::<Vec<_>>(), [expected]);
    }
    let mut named = server(10);
    named.host = "h".into();
    named.entry = queue_core::registry::ServerEntry::parse(br#"{"name": "web-2", "labels": ["eu"]}"#);
    assert_eq!(
        unserved("q}#eu+gpu", &[named, server(10)], None).to_string(),
        "only servers labelled eu and gpu may run it, and none that is alive serves its queue; there are h:0 (web-2 #eu), \
         :0 (no name); start one, or let others run it with `queuectl task move`"
    );
    let falls_back = unserved("q}@web-1", &[], Some(Duration::from_secs(600))).to_string();
    assert!(
        falls_back.ends_with("; when none has been alive for 10m0s, all servers of its queue may run it"),
        "{falls_back}"
    );
    assert_eq!(told(&Facts { servers: vec![server(0)], ..pending(0) }), ["busy"]);
    let ending = ServerInfo { status: "stopped".into(), ..server(10) };
    assert_eq!(told(&Facts { servers: vec![ending.clone()], ..pending(0) }), ["servers-ending"]);
    assert_eq!(told(&Facts { servers: vec![ending, server(10)], ..pending(0) }), ["next"]);
    let removing = Facts { is_removing: true, paused: Some("1".to_owned()), is_listed: false, ..pending(0) };
    assert_eq!(told(&removing), ["paused", "removing", "unlisted"]);
    assert_eq!(told(&Facts { paused: None, ..removing }), ["next", "unlisted"], "somebody has resumed it");
    assert_eq!(told(&Facts { lock_holder: Some("b".into()), ..pending(1) }), ["behind", "locked-by-twin"]);
    assert_eq!(told(&Facts { lock_holder: Some("a".into()), ..pending(1) }), ["behind"]);
}

#[test]
fn explain_says_when_a_task_is_due_and_that_one_is_overdue() {
    assert_eq!(told(&facts("scheduled", "scheduled", "4000000001")), ["scheduled"]);
    assert_eq!(told(&facts("scheduled", "scheduled", "3999999999")), ["overdue"]);
    let published = Publications::parse("4 3999999990 3999999997 c0ffee replaced");
    let debounced = Facts { published, ..facts("scheduled", "scheduled", "4000000001") };
    assert_eq!(told(&debounced), ["scheduled", "published"]);
    assert_eq!(
        reasons("q", "a", &debounced, NOW)[1].to_string(),
        "it was published under its key 4 times since 2096-10-02T07:06:30Z, last at 2096-10-02T07:06:37Z"
    );
    let follows = Facts { follows: Some("a~".to_owned()), ..facts("scheduled", "scheduled", "4000000001") };
    assert_eq!(told(&follows), ["follows"]);
    let retry = facts("retry", "retry", "4000000001");
    let Reason::Retry { at, retried: 0, max_retry: 25, .. } = reasons("q", "a", &retry, NOW)[0] else { panic!() };
    assert_eq!(at, UnixSecond(NOW + 1));
    assert_eq!(told(&facts("retry", "retry", "3999999999")), ["overdue", "retry"]);
    let unserved = Facts { servers: Vec::new(), ..facts("scheduled", "scheduled", "4000000001") };
    assert_eq!(told(&unserved), ["scheduled", "no-server"]);
}

#[test]
fn a_task_that_is_left_waiting_although_places_are_free_says_so_first() {
    let pending =
        |ahead, secs| Facts { ahead: Some(ahead), pending_since: Some(NOW - secs), ..facts("pending", "pending", "") };
    assert_eq!(told(&pending(0, 5)), ["next"]);
    let with = |entry: &str, facts: Facts| {
        let entry = ServerEntry::parse(entry.as_bytes());
        Facts { servers: vec![ServerInfo { entry, ..server(10) }], ..facts }
    };
    for others in ["{}", r#"{"types": ["b"], "prefixes": ["c:"]}"#] {
        assert_eq!(told(&with(others, pending(0, 11))), ["passed-over"]);
        assert_eq!(told(&with(others, pending(3, 11))), ["passed-over", "behind"]);
    }
    // Go's servers, and older ones of ours, do not say what they have handlers for.
    for entry in ["", r#"{"types": ["t"]}"#, r#"{"prefixes": [""]}"#] {
        assert_eq!(told(&with(entry, pending(3, 11))), ["held-back", "behind"]);
    }
    let limited = Facts { limits_of_all: vec!["all".to_owned()], ..pending(0, 11) };
    assert!(reasons("q", "a", &limited, NOW)[0].to_string().contains("under a limit for all tasks of its queue (all)"));
    assert_eq!(told(&Facts { servers: vec![server(0)], ..pending(3, 11) }), ["behind", "busy"]);
    assert_eq!(told(&Facts { servers: Vec::new(), ..pending(3, 11) }), ["no-server", "behind"]);
}

#[test]
fn a_task_that_goes_round_without_a_handler_says_so_first() {
    for (state, place, score, then) in [("retry", "retry", "4000000001", "retry"), ("pending", "pending", "", "behind")]
    {
        let mut facts = Facts { ahead: Some(1), ..facts(state, place, score) };
        let message = facts.message.as_mut().unwrap();
        message.r#type = "b".into();
        message.error_msg = "handler not found for task \"b\"".into();
        assert_eq!(told(&facts), ["no-handler", then]);
    }
}

#[test]
fn an_active_task_has_a_worker_that_renews_or_is_silent() {
    let active = |lease: &str| {
        let mut facts = facts("active", "active", "");
        facts.seen.lease = lease.into();
        facts.owner = "host:7:uuid:12".into();
        facts
    };
    let running = Reason::Running { worker: "host:7:uuid".into(), since: None, lease_until: UnixSecond(NOW + 20) };
    assert_eq!(reasons("q", "a", &active("4000000020"), NOW), [running]);
    let silent = Reason::Silent {
        worker: "host:7:uuid".into(),
        lease_ended: UnixSecond(NOW - 5),
        recovered_at: UnixSecond(NOW + 2),
    };
    assert_eq!(reasons("q", "a", &active("3999999995"), NOW), [silent]);
    let worker = crate::WorkerInfo { task_id: "a".into(), queue: "q".into(), ..Default::default() };
    let with = ServerInfo { host: "h".into(), pid: 3, id: "s".into(), workers: vec![worker], ..server(10) };
    let claimed = Facts { servers: vec![with.clone()], ..active("3999999995") };
    let silent = Reason::Silent {
        worker: "h:3 (server s)".into(),
        lease_ended: UnixSecond(NOW - 5),
        recovered_at: UnixSecond(NOW + 25),
    };
    assert_eq!(reasons("q", "a", &claimed, NOW), [silent], "a server still says that it has the task");
    let named = Facts { servers: vec![with], ..active("4000000020") };
    let running = Reason::Running { worker: "h:3 (server s)".into(), since: None, lease_until: UnixSecond(NOW + 20) };
    assert_eq!(reasons("q", "a", &named, NOW), [running]);
}

#[test]
fn an_ended_task_and_one_in_a_group_say_so() {
    assert_eq!(told(&facts("archived", "archived", "5")), ["archived"]);
    assert_eq!(told(&facts("completed", "completed", "5")), ["completed"]);
    let crashed = Facts { crashes: Crashes::parse("6 5@host"), ..facts("archived", "archived", "5") };
    assert_eq!(told(&crashed), ["archived", "crashes"]);
    let failed =
        Facts { attempts: (7, vec![Attempt::lost(UnixSecond(5), "h:1:u:1")]), ..facts("archived", "archived", "5") };
    assert_eq!(told(&failed), ["archived", "failed-before"]);
    let mut group = facts("aggregating", "g:g", "5");
    group.seen.group = "g".into();
    group.group = Some(("g".into(), 2, UnixSecond(5), UnixSecond(6)));
    group.paused = Some("1".into());
    assert_eq!(told(&group), ["in-group", "paused"]);
    group.deadline = Some(7);
    group.seen.entries[0] = Entry { key: "asynq:{q}:g:g:u".into(), score: "5".into(), is_staged: true };
    assert_eq!(told(&group), ["aggregating"], "a pause does not hold up an aggregation that has begun");
    group.seen.entries.clear();
    group.seen.is_remains = true;
    assert_eq!(told(&group), ["aggregated"]);
}

#[test]
fn explain_names_faults_first() {
    let mut lost = facts("pending", "pending", "");
    lost.seen.entries.clear();
    assert_eq!(told(&lost), ["damaged"]);
    let mut ghost = facts("", "retry", "5");
    (ghost.seen.key_type, ghost.seen.message, ghost.message) = ("none".into(), Bytes::new(), None);
    assert_eq!(told(&ghost), ["damaged"]);
    ghost.seen.entries.clear();
    assert_eq!(told(&ghost), ["not-found"]);
}

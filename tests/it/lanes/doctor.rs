//! What the doctor finds of limits, and what puts it right.

use std::time::Duration;

use queue_core::TaskState;
use queue_core::limit::{Limit, LimitKey};
use queue_core::wire::ServerInfo;
use queue_redis::{Fault, Finding};
use queue_worker::{Event, Router};

use super::{of, one_of_each_tenant};
use crate::doctor::{examine, fix};
use crate::support::{Events, Fixture, QUEUE};

const SLOTS: &str = "asynq:{q}:x:slots";
const WAITING: &str = "asynq:{q}:x:waiting";
const DUE: &str = "asynq:{q}:x:due";

/// Of limits.
async fn found(fixture: &Fixture) -> Vec<Finding> {
    let all = examine(&fixture.inspector()).await.into_iter();
    let of_limits = [
        Fault::StaleSlot,
        Fault::StaleWait,
        Fault::ParkedNoLane,
        Fault::LostLimits,
        Fault::UnreadableRules,
        Fault::UnawareServer,
    ];
    all.filter(|found| of_limits.contains(&found.fault)).collect()
}

/// `fault subject: detail` each.
async fn lines(fixture: &Fixture) -> Vec<String> {
    let line = |found: Finding| format!("{} {}: {}", found.fault.as_str(), found.subject, found.detail);
    found(fixture).await.into_iter().map(line).collect()
}

impl Fixture {
    async fn members(&self, set: &str) -> Vec<String> {
        self.cmd(&["ZRANGE", set, "0", "-1"]).await
    }

    /// A server that is listed, as its heartbeat says; `features` as its entry does.
    async fn list_server(&self, name: &str, started: i64, features: Option<&str>) {
        let info = ServerInfo {
            host: name.to_owned(),
            pid: 1,
            server_id: "u".to_owned(),
            queues: [(QUEUE.to_owned(), 1)].into(),
            status: "active".to_owned(),
            start_time: Some(queue_core::wire::Timestamp { seconds: started, nanos: 0 }),
            ..ServerInfo::default()
        };
        let key = format!("asynq:servers:{{{name}:1:u}}");
        let raw = prost::Message::encode_to_vec(&info);
        self.cmd::<()>(&[b"SET".to_vec(), key.clone().into_bytes(), raw]).await;
        self.run(&format!("ZADD asynq:servers 5000000000 {key}")).await;
        if let Some(features) = features {
            let json = format!(r#"{{"features":[{features}]}}"#);
            self.cmd::<()>(&["SET", &format!("asynq:x:servers:{{{name}:1:u}}"), &json]).await;
        }
    }
}

#[tokio::test]
async fn a_slot_that_nobody_has_given_back_is_found_and_given_back() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put([of("acme", "a 1"), of("acme", "a2"), of("beta", "b1")]).await;
    let (taken, _) = fixture.take_some(10).await;
    assert_eq!(lines(&fixture).await, [""; 0], "while they run");
    fixture.end_in_silence(&taken[..1]).await;
    assert_eq!(lines(&fixture).await, ["stale-slot tenant:acme: of task a 1"]);
    assert_eq!(fix(&fixture.inspector()).await.0, [Fault::StaleSlot]);
    assert_eq!(fixture.members(SLOTS).await, ["tenant:beta b1"]);
    assert_eq!(lines(&fixture).await, [""; 0]);
}

/// A repair looks again: by then the task may run again in the same lane.
#[tokio::test]
async fn a_slot_whose_task_runs_again_meanwhile_stays() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put([of("acme", "a1")]).await;
    let (taken, _) = fixture.take_some(1).await;
    fixture.end_in_silence(&taken).await;
    let found = found(&fixture).await;
    assert_eq!(found.len(), 1, "{found:?}");
    fixture.put([of("acme", "a1")]).await;
    assert_eq!(fixture.take_ids(1).await, ["a1"]);
    assert!(!fixture.inspector().doctor().mend(&found[0], &[]).await.unwrap());
    assert_eq!(fixture.members(SLOTS).await, ["tenant:acme a1"]);
}

#[tokio::test]
async fn a_parked_task_that_no_take_would_find_comes_back_into_its_lane() {
    for set in [WAITING, DUE] {
        let fixture = Fixture::start().await;
        fixture.limit(one_of_each_tenant()).await;
        fixture.put([of("acme", "a1"), of("acme", "a2")]).await;
        let (taken, _) = fixture.take_some(10).await;
        assert_eq!(lines(&fixture).await, [""; 0]);
        let gone = fixture.members(set).await;
        assert_eq!(fixture.cmd::<usize>(&["ZREM", set, &gone[0]]).await, gone.len());
        assert_eq!(lines(&fixture).await, [r#"parked-no-lane a2: lane "tenant:acme""#], "{set}");
        assert_eq!(fix(&fixture.inspector()).await.0, [Fault::ParkedNoLane]);
        assert_eq!(lines(&fixture).await, [""; 0]);
        fixture.end(&taken).await;
        assert_eq!(fixture.take_ids(10).await, ["a2"], "{set}");
    }
}

/// Go deletes and runs parked tasks without knowing of lanes; the next take drops the entries.
#[tokio::test]
async fn what_others_did_to_parked_tasks_is_a_note() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put(["a1", "a2", "a3", "a4", "a5", "a6"].map(|id| of("acme", id))).await;
    fixture.take_some(10).await;
    for id in ["a2", "a3", "a4", "a5"] {
        fixture.inspector().delete_task(QUEUE, id).await.unwrap();
    }
    assert_eq!(lines(&fixture).await, ["stale-wait tenant:acme: of task a2, a3, a4 and 1 more"]);
    assert_eq!(fix(&fixture.inspector()).await.0, [Fault::StaleWait]);
    assert_eq!(fixture.members(WAITING).await.len(), 1);
    assert_eq!(fixture.state("a6").await, "scheduled");
}

#[tokio::test]
async fn limits_that_cannot_be_read_are_found_and_left_to_people() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.cmd::<()>(&["SET", "asynq:{q}:x:rules", r#"{"rules":[{"name":"x"}]}"#]).await;
    let found = found(&fixture).await;
    assert_eq!((found.len(), found[0].fault), (1, Fault::UnreadableRules), "{found:?}");
    assert!(found[0].detail.contains("missing field `key`"), "{found:?}");
    assert!(!found[0].is_mendable());
    fixture.inspector().remove_limits(QUEUE).await.unwrap();
    assert_eq!(lines(&fixture).await, [""; 0]);
}

#[tokio::test]
async fn tasks_that_wait_for_limits_that_are_lost_are_found_and_can_be_let_go() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put(["a1", "a2", "a3"].map(|id| of("acme", id))).await;
    let (taken, _) = fixture.take_some(10).await;
    fixture.run("DEL asynq:{q}:x:rules").await;
    assert_eq!(lines(&fixture).await, ["lost-limits asynq:{q}:x:rules: 2 tasks"]);
    assert!(!found(&fixture).await[0].is_mendable());
    fixture.end(&taken).await;
    assert_eq!(fixture.inspector().remove_limits(QUEUE).await.unwrap(), 2);
    assert_eq!(lines(&fixture).await, [""; 0]);
    assert_eq!([fixture.state("a2").await, fixture.state("a3").await], ["pending", "pending"]);
}

#[tokio::test]
async fn servers_that_know_nothing_of_limits_are_named_by_all_who_are_asked() {
    let fixture = Fixture::start().await;
    fixture.list_server("go", 5, None).await;
    fixture.list_server("older", 5, Some(r#""orders""#)).await;
    fixture.list_server("ours", 5, Some(r#""limits""#)).await;
    fixture.list_server("new", 4_999_999_999, None).await;
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    assert_eq!(lines(&fixture).await, [""; 0], "without limits there is nothing to know");
    fixture.limit(one_of_each_tenant()).await;
    assert_eq!(lines(&fixture).await, ["unaware-server go:1:u: ", "unaware-server older:1:u: "]);
    fixture.put([of("acme", "a1")]).await;
    let inspector = fixture.inspector();
    assert_eq!(inspector.servers_unaware_of_limits().await.unwrap()[QUEUE], ["go:1:u", "older:1:u"]);
    let explained = inspector.explain(QUEUE, "a1").await.unwrap();
    let said =
        explained.reasons.iter().any(|reason| reason.to_string().contains("know nothing of them: go:1:u, older:1:u"));
    assert!(said, "{explained:?}");
    let text = queue_metrics::text(&queue_metrics::QueueMetrics::new(inspector).gather().await);
    for line in [
        r#"asynq_unaware_servers{feature="limits",queue="q"} 2"#,
        r#"asynq_lane_waiting{limit="tenant",queue="q"} 0"#,
        r#"asynq_lane_running{limit="tenant",queue="q"} 0"#,
    ] {
        assert!(text.lines().any(|other| other == line), "{line} in:\n{text}");
    }
}

#[tokio::test]
async fn a_server_gives_back_slots_and_parks_anew_by_itself() {
    let (fixture, events) = (Fixture::start().await, Events::<String>::default());
    fixture.limit(Limit::new("tenant", LimitKey::header("tenant")).concurrency(1)).await;
    fixture.put([of("acme", "a1"), of("acme", "a2"), of("beta", "b1")]).await;
    let (taken, _) = fixture.take_some(10).await;
    fixture.end_in_silence(&taken[1..]).await;
    fixture.run("DEL asynq:{q}:x:waiting").await;
    let heard = events.clone();
    let server = fixture.server(Router::new(()).fallback(async |_| ())).reconcile_interval(Duration::from_secs(1));
    let server = server.observe(move |event| {
        if let Event::Reconciled { fault, .. } = event {
            heard.tell((*fault).to_owned());
        }
    });
    let server = server.start().await.unwrap();
    let mut faults = events.wait(2).await;
    faults.sort();
    assert_eq!(faults, ["parked-no-lane", "stale-slot"]);
    fixture.end(&taken[..1]).await;
    fixture.in_no_state("a2").await;
    server.shutdown().await;
}

impl Fixture {
    /// Waits until a task is done.
    async fn in_no_state(&self, id: &str) {
        crate::support::eventually("the task is done", async || self.state(id).await.is_empty()).await;
    }
}

/// A pause of a scheduled task of its own is none of a lane.
#[tokio::test]
async fn scheduled_tasks_that_wait_for_their_time_are_in_order() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put_in(TaskState::Scheduled, of("acme", "later")).await;
    assert_eq!(lines(&fixture).await, [""; 0]);
}

#[tokio::test]
async fn a_place_and_a_slot_are_dropped_where_something_else_stands_in_the_place_of_the_task() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put([of("acme", "a1"), of("acme", "a2"), of("acme", "a3")]).await;
    fixture.take_some(10).await;
    let _: i64 = fixture.cmd(&["DEL", "asynq:{q}:t:a1", "asynq:{q}:t:a2", "asynq:{q}:lease"]).await;
    let _: String = fixture.cmd(&["SET", "asynq:{q}:t:a1", "no task"]).await;
    let _: String = fixture.cmd(&["SET", "asynq:{q}:t:a2", "no task"]).await;
    let mut found = lines(&fixture).await;
    found.sort();
    assert_eq!(found, ["stale-slot tenant:acme: of task a1", "stale-wait tenant:acme: of task a2"]);
    fix(&fixture.inspector()).await;
    assert_eq!(lines(&fixture).await, [""; 0]);
    assert_eq!(fixture.take_ids(10).await, ["a3"]);
}

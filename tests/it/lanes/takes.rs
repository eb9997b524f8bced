//! Single takes, one after another.

use std::time::Duration;

use queue_core::TaskState;
use queue_core::limit::{LaneChange, Limit, LimitKey};
use queue_core::limits::MAX_LANE_KEY_BYTES;
use queue_redis::broker::{Dequeued, Freed, More, Run};

use super::{ids, of, one_of_each_tenant};
use crate::support::{Fixture, NOW, QUEUE, job, wait_for};

fn lanes(run: &Run) -> &str {
    std::str::from_utf8(run.lanes()).unwrap()
}

#[tokio::test]
async fn a_task_without_room_waits_as_a_scheduled_one_and_others_pass_it() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put([of("acme", "a1"), of("acme", "a2"), of("beta", "b1"), job("free")]).await;
    let (taken, more) = fixture.take_some(10).await;
    assert_eq!((ids(&taken), more), (["a1", "b1", "free"].map(String::from).to_vec(), More::Nothing));
    assert_eq!((lanes(&taken[0].run), lanes(&taken[2].run)), ("tenant:acme", ""));
    assert_eq!(fixture.state("a2").await, "scheduled");
    assert_eq!(fixture.cmd::<Vec<String>>(&["ZRANGE", "asynq:{q}:scheduled", "0", "-1"]).await, ["a2"]);
    let waiting: Vec<String> = fixture.cmd(&["ZRANGE", "asynq:{q}:x:waiting", "0", "-1"]).await;
    let waits: String = fixture.cmd(&["HGET", "asynq:{q}:t:a2", "x_waits"]).await;
    assert_eq!(waiting, [format!("{waits} a2")]);
    assert_eq!((waits.len(), &waits[..12]), (12 + 19, "tenant:acme "), "{waits}");
    let slots: Vec<String> = fixture.cmd(&["ZRANGE", "asynq:{q}:x:slots", "0", "-1"]).await;
    assert_eq!(slots, ["tenant:acme a1", "tenant:beta b1"]);
    assert!(fixture.take_ids(10).await.is_empty());
    fixture.end(&taken).await;
    let (taken, _) = fixture.take_some(10).await;
    assert_eq!(ids(&taken), ["a2"]);
    assert_eq!(fixture.cmd::<Option<String>>(&["HGET", "asynq:{q}:t:a2", "x_waits"]).await, None);
    fixture.end(&taken).await;
    fixture.inspector().remove_limit(QUEUE, "tenant").await.unwrap();
    while let Dequeued::Limited { tasks, .. } = fixture.dequeue(1).await {
        assert!(tasks.is_empty());
    }
    let keys: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:x:*"]).await;
    assert_eq!(keys, [""; 0], "a queue without limits has no keys of them");
}

#[tokio::test]
async fn tasks_of_a_lane_are_taken_in_the_order_in_which_they_came() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    // All are put at the same time, in an order that is not that of their ids.
    let names: Vec<String> = (0..35).rev().map(|n| format!("{n:02}")).collect();
    fixture.put(names.iter().map(|id| of("acme", id))).await;
    let mut order = Vec::new();
    while order.len() < names.len() {
        let (taken, _) = fixture.take_some(10).await;
        assert!(taken.len() <= 1, "{taken:?}");
        order.extend(ids(&taken));
        fixture.end(&taken).await;
    }
    assert_eq!(order, names);
}

#[tokio::test]
async fn a_slot_counts_only_while_its_task_has_a_lease() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put([of("acme", "a1"), of("acme", "a2"), of("acme", "a3")]).await;
    let (taken, _) = fixture.take_some(10).await;
    fixture.look_again().await;
    assert!(fixture.take_ids(10).await.is_empty(), "a1 has its lease");
    fixture.end_in_silence(&taken).await;
    fixture.look_again().await;
    let (taken, _) = fixture.take_some(10).await;
    assert_eq!(ids(&taken), ["a2"]);
    // A task that was taken again keeps its slot, whoever says what.
    let freed = [Freed { run: taken[0].run.clone(), too_many: None, went_well: None }];
    assert_eq!(fixture.broker.free_slots(QUEUE, &freed).await.unwrap(), 0);
    fixture.look_again().await;
    assert!(fixture.take_ids(10).await.is_empty());
}

#[tokio::test]
async fn what_others_do_to_a_parked_task_is_done_and_its_entry_is_dropped() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put(["a1", "run", "gone", "kept", "due", "last"].map(|id| of("acme", id))).await;
    let (taken, _) = fixture.take_some(10).await;
    assert_eq!(ids(&taken), ["a1"]);
    let inspector = fixture.inspector();
    inspector.run_task(QUEUE, "run").await.unwrap();
    inspector.delete_task(QUEUE, "gone").await.unwrap();
    inspector.archive_task(QUEUE, "kept").await.unwrap();
    fixture.run("ZADD asynq:{q}:scheduled XX 1 due").await;
    fixture.broker.forward(QUEUE, TaskState::Scheduled, 2_000_000_000, 0).await.unwrap();
    assert_eq!((fixture.state("run").await, fixture.state("due").await), ("pending".into(), "pending".into()));
    assert!(fixture.take_ids(10).await.is_empty(), "they are judged again");
    assert_eq!((fixture.state("run").await, fixture.state("due").await), ("scheduled".into(), "scheduled".into()));
    let (mut order, mut taken) = (Vec::new(), taken);
    while !taken.is_empty() {
        fixture.end(&taken).await;
        taken = fixture.take_some(10).await.0;
        order.extend(ids(&taken));
    }
    assert_eq!(order, ["run", "due", "last"], "each once, in the order of their lane");
    assert_eq!(fixture.state("kept").await, "archived");
    fixture.take_ids(1).await;
    assert_eq!(
        fixture.cmd::<usize>(&["EXISTS", "asynq:{q}:x:waiting", "asynq:{q}:x:due", "asynq:{q}:scheduled"]).await,
        0
    );
}

#[tokio::test]
async fn a_limit_for_all_of_a_queue_takes_less_and_parks_nothing() {
    let fixture = Fixture::start().await;
    fixture.limit(Limit::new("all", LimitKey::Queue).concurrency(2)).await;
    fixture.put(["a", "b", "c", "d"].map(job)).await;
    let (taken, more) = fixture.take_some(10).await;
    assert_eq!((ids(&taken), more), (vec!["a".to_owned(), "b".to_owned()], More::Shut));
    assert_eq!(fixture.cmd::<usize>(&["LLEN", "asynq:{q}:pending"]).await, 2);
    assert!(matches!(fixture.dequeue(1).await, Dequeued::Limited { more: More::Shut, look_at_ms: Some(_), .. }));
    fixture.end(&taken[..1]).await;
    assert_eq!(
        fixture.cmd::<Vec<String>>(&["ZRANGE", "asynq:{q}:x:due", "0", "-1", "WITHSCORES"]).await,
        ["all:", "0"]
    );
    assert_eq!(fixture.take_ids(10).await, ["c"]);
}

#[tokio::test]
async fn keys_are_read_from_type_header_and_payload() {
    let fixture = Fixture::start().await;
    let payload = |id: &str, json: &str| job(id).payload(json.to_owned().into_bytes());
    for (limit, tasks, lane) in [
        (Limit::new("a", LimitKey::Type), [job("1"), job("2")], "a:job"),
        (Limit::new("b", LimitKey::Queue).task_type("jo*"), [job("3"), job("4")], "b:"),
        (Limit::new("c", LimitKey::header("tenant")), [of("a b%", "5"), of("a b%", "6")], "c:a%20b%25"),
        (
            Limit::new("d", LimitKey::payload("/account/id")),
            [payload("7", r#"{"account":{"id":42}}"#), payload("8", r#"{"account":{"id":42,"x":1}}"#)],
            "d:42",
        ),
    ] {
        let name = limit.name.clone();
        fixture.limit(limit.concurrency(1)).await;
        fixture.put(tasks).await;
        let (taken, _) = fixture.take_some(10).await;
        assert_eq!((taken.len(), lanes(&taken[0].run)), (1, lane));
        fixture.end(&taken).await;
        let (taken, _) = fixture.take_some(10).await;
        assert_eq!(lanes(&taken[0].run), lane);
        fixture.end(&taken).await;
        fixture.inspector().remove_limit(QUEUE, &name).await.unwrap();
    }
    // What has no key is not limited.
    fixture.limit(Limit::new("d", LimitKey::payload("/id")).concurrency(1)).await;
    let without = ["", "{", "[]", "{\"id\":null}", "{\"id\":{}}", "\"id\"", "7"];
    fixture.put(without.iter().enumerate().map(|(n, json)| payload(&format!("x{n}"), json))).await;
    assert_eq!(fixture.take_some(10).await.0.len(), without.len());
    fixture.put([payload("long1", &format!("{{\"id\":\"{}\"}}", "k".repeat(200)))]).await;
    let (taken, _) = fixture.take_some(10).await;
    assert_eq!(lanes(&taken[0].run).len(), "d:".len() + MAX_LANE_KEY_BYTES);
}

/// One field of a message, or of an entry in it: bytes that are shorter than 128.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    [&[tag, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

#[tokio::test]
async fn a_header_is_read_however_its_entry_is_encoded() {
    let fixture = Fixture::start().await;
    let long = "n".repeat(130);
    let (name, value) = (field(0x0a, b"tenant"), |value: &str| field(0x12, value.as_bytes()));
    let entry = |parts: &[&[u8]]| field(0x7a, &parts.concat());
    let large = [&[0x7a, 0xce, 0x01][..], &name, &[0x12, 0xc3, 0x01], "v".repeat(195).as_bytes()].concat();
    // The key is cut, and ends in its SHA-1.
    let cut = format!("t:{}", "v".repeat(MAX_LANE_KEY_BYTES - 40));
    for (n, (limit, appended, lane)) in [
        ("tenant", entry(&[&name, &value("x")]), Some("t:x".to_owned())),
        ("tenant", entry(&[&name]), Some("t:".to_owned())),
        ("tenant", entry(&[&name, &value("")]), Some("t:".to_owned())),
        ("tenant", entry(&[&value("x"), &name]), Some("t:x".to_owned())),
        ("tenant", [entry(&[&name, &value("x")]), entry(&[&name, &value("y")])].concat(), Some("t:y".to_owned())),
        ("tenant", [entry(&[&field(0x0a, b"z"), &value("tenant")]), large].concat(), Some(cut.clone())),
        ("tenant", entry(&[&field(0x0a, b"tenants"), &value("x")]), None),
        ("tenant", entry(&[&field(0x0a, b"ten"), &value("tenant")]), None),
        ("tenant", field(0x12, &entry(&[&name, &value("x")])), None),
        (
            &*long,
            [&[0x7a, 0x88, 0x01, 0x0a, 0x82, 0x01][..], long.as_bytes(), &value("x")].concat(),
            Some("t:x".to_owned()),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        fixture.limit(Limit::new("t", LimitKey::header(limit)).concurrency(5)).await;
        let id = format!("a{n}");
        fixture.put([job(&id)]).await;
        let key = format!("asynq:{{q}}:t:{id}");
        let mut message: Vec<u8> = fixture.cmd(&["HGET", &key, "msg"]).await;
        message.extend(appended);
        fixture.cmd::<()>(&[&b"HSET"[..], key.as_bytes(), b"msg", &message]).await;
        let (taken, _) = fixture.take_some(10).await;
        let in_lanes = lanes(&taken[0].run);
        match lane {
            Some(lane) if lane == cut => {
                assert!(in_lanes.starts_with(&lane) && in_lanes.len() == cut.len() + 40, "{n}: {in_lanes}");
            }
            lane => assert_eq!(in_lanes, lane.unwrap_or_default(), "{n}"),
        }
    }
}

/// Whoever reads the lane as text names another one, and the slot stays.
#[tokio::test]
async fn a_key_that_is_no_text_has_a_lane_like_any_other() {
    let fixture = Fixture::start().await;
    fixture.limit(Limit::new("t", LimitKey::payload("/t")).concurrency(1)).await;
    let of = |id| job(id).payload(b"{\"t\": \"M\xfcller\"}".to_vec());
    fixture.put([of("1"), of("2")]).await;
    let (taken, _) = fixture.take_some(10).await;
    assert_eq!(ids(&taken), ["1"]);
    fixture.end(&taken).await;
    assert_eq!(fixture.take_ids(10).await, ["2"]);
}

#[tokio::test]
async fn a_task_under_two_limits_needs_room_under_both() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.limit(Limit::new("type", LimitKey::Type).concurrency(2)).await;
    fixture.put([of("a", "a1"), of("a", "a2"), of("b", "b1"), of("c", "c1")]).await;
    let (taken, _) = fixture.take_some(10).await;
    assert_eq!(ids(&taken), ["a1", "b1"]);
    fixture.end(&taken[..1]).await;
    let (second, _) = fixture.take_some(10).await;
    assert_eq!(second.len(), 1);
    fixture.end(&taken[1..]).await;
    let (third, _) = fixture.take_some(10).await;
    assert_eq!(third.len(), 1);
    let mut rest = [ids(&second), ids(&third)].concat();
    rest.sort();
    assert_eq!(rest, ["a2", "c1"]);
}

#[tokio::test]
async fn a_key_can_be_paused_and_have_another_cap_of_its_own() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    let change = async |key: &str, concurrency: Option<u32>, paused: bool| {
        let mut change = LaneChange::default();
        (change.concurrency, change.paused) = (concurrency, paused);
        fixture.inspector().change_lane(QUEUE, "tenant", key, Some(&change)).await.unwrap();
    };
    change("big", Some(3), false).await;
    change("off", None, true).await;
    fixture.put([of("big", "1"), of("big", "2"), of("big", "3"), of("big", "4"), of("off", "5")]).await;
    assert_eq!(fixture.take_ids(10).await, ["1", "2", "3"]);
    let found = fixture.inspector().limits(QUEUE).await.unwrap();
    assert_eq!((found[0].running, found[0].waiting, found[0].changes.len()), (3, 2, 2));
    change("off", None, false).await;
    assert_eq!(fixture.take_ids(10).await, ["5"]);
}

#[tokio::test]
async fn limits_change_while_tasks_wait() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put((0..9).map(|n| of("acme", &n.to_string()))).await;
    assert_eq!(fixture.take_ids(10).await, ["0"]);
    fixture.limit(one_of_each_tenant().concurrency(3)).await;
    assert_eq!(fixture.take_ids(10).await, ["1", "2"]);
    assert_eq!(fixture.inspector().remove_limits(QUEUE).await.unwrap(), 6);
    assert_eq!(fixture.cmd::<usize>(&["LLEN", "asynq:{q}:pending"]).await, 6);
    let keys: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:x:*"]).await;
    assert_eq!(keys, [""; 0]);
    let Dequeued::Tasks(taken) = fixture.dequeue(10).await else { panic!("limits") };
    assert_eq!(taken.len(), 6);
}

#[tokio::test]
async fn a_limit_that_becomes_one_for_all_tasks_lets_those_go_that_waited_by_their_key() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put((0..4).map(|n| of("acme", &n.to_string()))).await;
    assert_eq!(fixture.take_ids(10).await, ["0"]);
    fixture.limit(Limit::new("tenant", LimitKey::Queue).concurrency(4)).await;
    let mut taken = fixture.take_ids(10).await;
    taken.extend(fixture.take_ids(10).await);
    assert_eq!(taken, ["1", "2", "3"]);
}

/// 56 bytes of a key are kept, and the 56th is within a character.
#[tokio::test]
async fn a_long_key_is_cut_between_two_characters() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    let key = format!("k{}", "é".repeat(80));
    fixture.put([of(&key, "1"), of(&key, "2")]).await;
    let (taken, _) = fixture.take_some(10).await;
    assert!(lanes(&taken[0].run).starts_with(&format!("tenant:k{}", "é".repeat(27))), "{}", lanes(&taken[0].run));
    let slots: Vec<String> = fixture.cmd(&["ZRANGE", "asynq:{q}:x:slots", "0", "-1"]).await;
    assert_eq!(slots, [format!("{} 1", lanes(&taken[0].run))]);
    fixture.end(&taken).await;
    assert_eq!(fixture.take_ids(10).await, ["2"], "its slot is free");
}

#[tokio::test]
async fn what_a_slower_rate_held_up_starts_when_the_rate_is_raised_or_the_limit_removed() {
    let fixture = Fixture::start().await;
    let rate = |count, per| Limit::new("tenant", LimitKey::header("tenant")).rate(count, per);
    fixture.limit(rate(1, Duration::from_secs(3_600))).await;
    for id in ["1", "2", "3", "4", "5"] {
        fixture.put([of("a", id)]).await;
    }
    assert_eq!(fixture.take_ids(10).await, ["1"]);
    fixture.look_again().await;
    assert_eq!(fixture.take_ids(10).await, Vec::<String>::new(), "nobody waits for an hour less than that");
    fixture.limit(rate(1, Duration::from_millis(50))).await;
    let next = wait_for("the next one is due", async || fixture.take_ids(10).await.pop()).await;
    assert_eq!(next, "2");
    // Slower again: what starts now is charged at this rate, and what was removed charges nobody.
    fixture.limit(rate(1, Duration::from_secs(3_600))).await;
    let next = wait_for("the last start is over", async || fixture.take_ids(10).await.pop()).await;
    assert_eq!(next, "3");
    fixture.inspector().remove_limit(QUEUE, "tenant").await.unwrap();
    assert_eq!(fixture.take_ids(10).await, ["4", "5"]);
}

#[tokio::test]
async fn a_paused_key_of_a_limit_that_is_removed_is_not_paused_any_more() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put([of("a", "1")]).await;
    let mut pause = LaneChange::default();
    pause.paused = true;
    fixture.inspector().change_lane(QUEUE, "tenant", "a", Some(&pause)).await.unwrap();
    assert_eq!(fixture.take_ids(10).await, Vec::<String>::new());
    let explained = fixture.inspector().explain(QUEUE, "1").await.unwrap();
    assert!(explained.reasons[0].to_string().contains("this key is paused"), "{explained:?}");
    fixture.inspector().remove_limit(QUEUE, "tenant").await.unwrap();
    assert_eq!(fixture.take_ids(10).await, ["1"]);
    // One that has its name later is another one.
    fixture.limit(one_of_each_tenant()).await;
    fixture.put([of("a", "2")]).await;
    assert!(fixture.inspector().limits(QUEUE).await.unwrap()[0].changes.is_empty());
}

#[tokio::test]
async fn a_handler_that_says_too_much_does_not_bring_back_what_a_slower_rate_has_charged() {
    let fixture = Fixture::start().await;
    let rate = |per| Limit::new("tenant", LimitKey::header("tenant")).rate(1, per);
    fixture.limit(rate(Duration::from_secs(3_600))).await;
    fixture.put([of("a", "1"), of("a", "2")]).await;
    let (taken, _) = fixture.take_some(10).await;
    fixture.limit(rate(Duration::from_millis(50))).await;
    fixture.end_in_silence(&taken).await;
    let too_many = Some(("tenant".to_owned(), Duration::from_millis(100)));
    let freed = Freed { run: taken[0].run.clone(), too_many, went_well: None };
    fixture.broker.free_slots(QUEUE, &[freed]).await.unwrap();
    let left: i64 = fixture.cmd(&["PTTL", "asynq:{q}:x:tat:tenant:a"]).await;
    assert!(left <= 102, "{left}");
    let next = wait_for("the next one is due", async || fixture.take_ids(10).await.pop()).await;
    assert_eq!(next, "2");
}

#[tokio::test]
async fn nothing_is_taken_while_the_limits_cannot_be_read() {
    let fixture = Fixture::start().await;
    fixture.put([job("a")]).await;
    for text in [
        "",
        "nothing",
        "{}",
        r#"{"rules":{"a":1}}"#,
        r#"{"rules":[{"name":"a","key":"tenant"}]}"#,
        r#"{"rules":[{"name":"a","key":"type","fair":1}]}"#,
        r#"{"rules":[{"name":"a","key":"queue","fair":true}]}"#,
        r#"{"rules":[{"name":"a","key":"type","fair":true,"order":"strict"}]}"#,
    ] {
        fixture.run(&format!("SET asynq:{{q}}:x:rules {text}")).await;
        let before = fixture.keyspace().await;
        for count in [1, 10] {
            let taken = fixture.broker.dequeue(&QUEUE.into(), count, &"run".into(), NOW + 30).await;
            let error = taken.unwrap_err().to_string();
            assert!(error.contains("cannot be read"), "{error}");
        }
        fixture.keyspace().await.assert_changes_since(&before, "");
    }
    assert_eq!(fixture.inspector().remove_limits(QUEUE).await.unwrap(), 0);
    assert_eq!(fixture.take().await.run.id, "a");
}

/// By the clock of Redis: it says how long the starts took at the most.
#[tokio::test]
async fn no_more_start_than_the_rate_and_the_burst_allow() {
    let fixture = Fixture::start().await;
    fixture.limit(Limit::new("rate", LimitKey::Type).rate(50, Duration::from_secs(1)).burst(3)).await;
    fixture.put((0..40).map(|n| job(&format!("{n:02}")))).await;
    let now_us = async || {
        let time: Vec<u64> = fixture.cmd(&["TIME"]).await;
        time[0] * 1_000_000 + time[1]
    };
    let (began, mut started) = (now_us().await, 0);
    while started < 40 {
        let taken = fixture.take_some(10).await.0;
        started += taken.len() as u64;
        let allowed = 3 + (now_us().await - began) / 20_000;
        assert!(started <= allowed, "{started} of {allowed}");
        fixture.end(&taken).await;
    }
}

#[tokio::test]
async fn somebody_who_says_that_it_is_too_much_stops_the_whole_key() {
    let fixture = Fixture::start().await;
    fixture.limit(Limit::new("tenant", LimitKey::header("tenant")).concurrency(5)).await;
    fixture.put([of("a", "a1"), of("a", "a2"), of("b", "b1")]).await;
    let (taken, _) = fixture.take_some(1).await;
    fixture.end_in_silence(&taken).await;
    let too_many = Some(("tenant".to_owned(), Duration::from_secs(60)));
    fixture.broker.free_slots(QUEUE, &[Freed { run: taken[0].run.clone(), too_many, went_well: None }]).await.unwrap();
    assert_eq!(fixture.take_ids(10).await, ["b1"]);
    assert_eq!(fixture.state("a2").await, "scheduled");
    let left: i64 = fixture.cmd(&["PTTL", "asynq:{q}:x:tat:tenant:a"]).await;
    assert!((1..=60_001).contains(&left), "{left}");
}

#[tokio::test]
async fn one_call_gives_ten_tasks_at_the_most_and_says_that_there_are_more() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put((0..25).map(|n| of(&n.to_string(), &format!("{n:02}")))).await;
    for (count, more) in [(10, More::Now), (10, More::Now), (5, More::Nothing)] {
        let (taken, said) = fixture.take_some(100).await;
        assert_eq!((taken.len(), said), (count, more));
    }
}

#[tokio::test]
async fn remains_and_paused_queues_are_as_without_limits() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.run("LPUSH asynq:{q}:pending ghost").await;
    fixture.put([of("acme", "a1")]).await;
    fixture.inspector().pause(QUEUE).await.unwrap();
    assert!(matches!(fixture.dequeue(5).await, Dequeued::Paused));
    fixture.inspector().unpause(QUEUE).await.unwrap();
    let tasks = fixture.dequeue(5).await.into_tasks();
    assert_eq!(tasks.len(), 2, "{tasks:?}");
    assert_eq!(fixture.cmd::<usize>(&["LLEN", "asynq:{q}:pending"]).await, 0);
}

#[tokio::test]
async fn limits_count_how_often_tasks_were_parked_and_handlers_said_too_much() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.limit(Limit::new("type", LimitKey::Type).concurrency(50)).await;
    fixture.put([of("acme", "a1"), of("acme", "a2"), of("acme", "a3"), of("beta", "b1")]).await;
    let (taken, _) = fixture.take_some(10).await;
    let too_many = Some(("tenant".to_owned(), Duration::from_millis(1)));
    fixture.end_in_silence(&taken[..1]).await;
    fixture.broker.free_slots(QUEUE, &[Freed { run: taken[0].run.clone(), too_many, went_well: None }]).await.unwrap();
    let counts = async || {
        let limits = fixture.inspector().limits(QUEUE).await.unwrap().into_iter();
        limits.map(|info| (info.limit.name, info.parked, info.too_many)).collect::<Vec<_>>()
    };
    assert_eq!(counts().await, [("tenant".to_owned(), 2, 1), ("type".to_owned(), 0, 0)]);
    let text = queue_metrics::text(&queue_metrics::QueueMetrics::new(fixture.inspector()).gather().await);
    for line in [
        r#"asynq_lane_parked_total{limit="tenant",queue="q"} 2"#,
        r#"asynq_lane_too_many_total{limit="tenant",queue="q"} 1"#,
        r#"asynq_lane_waiting{limit="tenant",queue="q"} 2"#,
    ] {
        assert!(text.lines().any(|other| other == line), "{line} in:\n{text}");
    }
    fixture.inspector().remove_limits(QUEUE).await.unwrap();
    assert_eq!(fixture.cmd::<usize>(&["EXISTS", "asynq:{q}:x:limit-stats"]).await, 0);
}

/// A user of an older release has no right to count, and a key may be anything: neither costs a task.
#[tokio::test]
async fn counts_that_cannot_be_written_lose_nothing() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.run("SET asynq:{q}:x:limit-stats text").await;
    fixture.put([of("acme", "a1"), of("acme", "a2")]).await;
    let (taken, _) = fixture.take_some(10).await;
    assert_eq!(ids(&taken), ["a1"]);
    fixture.end(&taken).await;
    assert_eq!(fixture.take_ids(10).await, ["a2"]);
}

#[tokio::test]
async fn something_else_under_the_key_of_a_parked_task_keeps_no_other_from_starting() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant()).await;
    fixture.put([of("acme", "a1"), of("acme", "a2"), of("acme", "a3")]).await;
    let (taken, _) = fixture.take_some(10).await;
    let _: i64 = fixture.cmd(&["DEL", "asynq:{q}:t:a2"]).await;
    let _: String = fixture.cmd(&["SET", "asynq:{q}:t:a2", "no task"]).await;
    fixture.end(&taken).await;
    assert_eq!(fixture.take_ids(10).await, ["a3"]);
}

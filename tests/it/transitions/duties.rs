//! `lead`, `take_duties`, `put_off_duty` and `forget_cancel`: what the leader has to do, and who it is.

use std::time::Duration;

use queue_redis::broker::HeldDuty;

use crate::support::Fixture;

/// What is due by then, `count` at the most, held for ten seconds.
async fn taken(fixture: &Fixture, now_ms: i64, count: usize) -> Vec<HeldDuty> {
    fixture.broker.take_duties(now_ms, now_ms + 10_000, count).await.unwrap()
}

fn text(held: &HeldDuty) -> String {
    held.duty().to_owned()
}

const LEASE: Duration = Duration::from_secs(3);

#[tokio::test]
async fn lead_makes_one_server_the_leader_until_it_is_not_heard_of() {
    let fixture = Fixture::start().await;
    assert!(fixture.broker.lead("a", LEASE).await.unwrap());
    fixture.run("PEXPIRE asynq:x:leader 500").await;
    let before = fixture.keyspace().await;
    assert!(!fixture.broker.lead("b", LEASE).await.unwrap());
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert!(fixture.broker.lead("a", LEASE).await.unwrap());
    assert!(fixture.cmd::<i64>(&["PTTL", "asynq:x:leader"]).await > 1_000, "it leads for longer");
    fixture.run("DEL asynq:x:leader").await;
    assert!(fixture.broker.lead("b", LEASE).await.unwrap());
}

#[tokio::test]
async fn a_duty_is_asked_for_at_the_earliest_time_that_anybody_named() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    assert_eq!(fixture.broker.first_duty().await.unwrap(), None);
    for (at, first) in [(5_000, 5_000), (7_000, 5_000), (3_000, 3_000)] {
        fixture.broker.ask_for_duty("flow", "f 1", at).await.unwrap();
        assert_eq!(fixture.broker.first_duty().await.unwrap(), Some(first));
    }
    fixture.keyspace().await.assert_changes_since(&before, "+ x:duties flow f 1: score 3000");
}

#[tokio::test]
async fn take_duties_takes_what_is_due_and_gives_it_to_nobody_else_until_the_hold_ends() {
    let fixture = Fixture::start().await;
    for (subject, at) in [("a", 1_000), ("b", 2_000), ("c", 3_000), ("d", 9_000)] {
        fixture.broker.ask_for_duty("flow", subject, at).await.unwrap();
    }
    let take = async |now, count| taken(&fixture, now, count).await.iter().map(text).collect::<Vec<_>>();
    assert_eq!(take(4_000, 2).await, ["flow a", "flow b"]);
    assert_eq!(take(4_000, 2).await, ["flow c"]);
    assert!(take(4_000, 2).await.is_empty());
    assert_eq!(take(14_000, 9).await, ["flow d", "flow a", "flow b", "flow c"], "they were not done");
}

#[tokio::test]
async fn what_belongs_to_a_queue_is_taken_before_trees_that_are_overdue() {
    let fixture = Fixture::start().await;
    let ask = async |duty, subject, at| fixture.broker.ask_for_duty(duty, subject, at).await.unwrap();
    let take = async |now, count| taken(&fixture, now, count).await.iter().map(text).collect::<Vec<_>>();
    for subject in ["a", "b", "c"] {
        ask("flow", subject, 1_000).await;
    }
    for task in ["0", "1", "2", "3"] {
        ask("cancel", task, 500).await;
    }
    assert_eq!(take(900, 4).await, ["cancel 0", "cancel 1", "cancel 2"], "the others have a quarter");
    assert_eq!(take(900, 4).await, ["cancel 3"]);
    fixture.run("DEL asynq:x:duties").await;
    for subject in ["a", "b", "c"] {
        ask("flow", subject, 1_000).await;
    }
    ask("members", "q", 5_000).await;
    ask("members", "later", 9_000).await;
    assert_eq!(take(4_000, 1).await, ["flow a"], "the queue is not due");
    assert_eq!(take(5_000, 2).await, ["members q", "flow b"]);
    assert_eq!(fixture.broker.first_duty().await.unwrap(), Some(1_000), "of a tree");
    assert_eq!(take(5_000, 9).await, ["flow c"]);
    assert_eq!(fixture.broker.first_duty().await.unwrap(), Some(9_000), "of a queue");
    // As a server writes it that is older than the head start.
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:duties", "1000", "members q"]).await;
    let again = taken(&fixture, 9_000, 9).await;
    assert_eq!(again.iter().map(text).collect::<Vec<_>>(), ["members later", "members q"]);
    for held in &again {
        assert!(fixture.broker.put_off_duty(held, Some(9_500)).await.unwrap());
    }
    assert_eq!(take(15_000, 2).await, ["members later", "members q"], "with its head start again");
}

#[tokio::test]
async fn put_off_duty_says_when_it_is_next_and_yields_to_those_who_asked_meanwhile() {
    let fixture = Fixture::start().await;
    let broker = &fixture.broker;
    for (number, subject) in (1_000..).zip(["later", "over", "again", "taken", "gone"]) {
        broker.ask_for_duty("flow", subject, number).await.unwrap();
    }
    let held = taken(&fixture, 2_000, 9).await;
    let [later, over, again, taken, gone] = &held[..] else { panic!("{held:?}") };
    broker.ask_for_duty("flow", "again", 2_500).await.unwrap();
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:duties", "21000", "flow taken"]).await;
    let _: i64 = fixture.cmd(&["ZREM", "asynq:x:duties", "flow gone"]).await;
    let before = fixture.keyspace().await;
    assert!(broker.put_off_duty(later, Some(5_000)).await.unwrap());
    assert!(broker.put_off_duty(over, None).await.unwrap());
    assert!(!broker.put_off_duty(again, None).await.unwrap());
    assert!(!broker.put_off_duty(taken, None).await.unwrap(), "another leader has it");
    assert!(!broker.put_off_duty(gone, Some(5_000)).await.unwrap());
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- x:duties flow later: score 12000
         + x:duties flow later: score 5000
         - x:duties flow over: score 12000",
    );
}

#[tokio::test]
async fn forget_cancel_leaves_a_wish_that_was_said_again_since_the_task_was_looked_at() {
    let fixture = Fixture::start().await;
    let broker = &fixture.broker;
    broker.request_cancel("q", "a", "ann", 1_000).await.unwrap();
    let seen = broker.cancel_request("q", "a").await.unwrap().unwrap();
    // The task ended; one of the same id was enqueued, and is to end as well.
    broker.request_cancel("q", "a", "bob", 2_000).await.unwrap();
    assert!(!broker.forget_cancel("a q", &seen).await.unwrap());
    let again = broker.cancel_request("q", "a").await.unwrap().unwrap();
    assert_eq!(again.by, "bob");
    assert!(broker.forget_cancel("a q", &again).await.unwrap());
    assert_eq!(broker.cancel_request("q", "a").await.unwrap(), None);
}

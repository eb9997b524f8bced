use std::time::Duration;

use queue_core::publish::PublishOutcome::{self, Follows, Kept, Replaced, Rescheduled, Restarted, Stored, Suppressed};
use queue_core::publish::PublishPolicy;
use queue_core::{RawTask, TaskState};
use queue_redis::broker::{PublishVerdict, Seen};

use crate::support::{Fixture, NOW, NOW_NS, QUEUE, is_wrong_type, job};

const SECOND_NS: i64 = 1_000_000_000;

fn policy(may: &str) -> PublishPolicy {
    let mut policy = PublishPolicy::default();
    (policy.replace, policy.reschedule) = (may.contains("replace"), may.contains("reschedule"));
    (policy.restart, policy.follow) = (may.contains("restart"), may.contains("follow"));
    policy
}

const ALL: &str = "replace reschedule restart";

/// Publishes so many seconds after [`NOW`], by the call of this number: what became of it, and how the task stands.
async fn publish(
    fixture: &Fixture,
    task: RawTask,
    policy: &PublishPolicy,
    after: i64,
    call: u64,
) -> (PublishOutcome, Option<(Vec<u8>, TaskState, Option<i64>)>) {
    let now_ns = NOW_NS + after * SECOND_NS;
    let composed = queue_core::options::compose(task, queue_core::TaskOptions::new(), now_ns).unwrap();
    match fixture.broker.publish(&composed, policy, now_ns, call).await.unwrap() {
        Some(PublishVerdict { outcome, holder, .. }) => {
            (outcome, holder.map(|(message, state, score)| (message.payload.to_vec(), state, score)))
        }
        None => panic!("no task has the id"),
    }
}

fn stands(payload: &str, state: TaskState, score: Option<i64>) -> Option<(Vec<u8>, TaskState, Option<i64>)> {
    Some((payload.into(), state, score))
}

#[tokio::test]
async fn publish_stores_a_task_whose_key_is_free_with_a_note_about_the_call() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    let told = publish(&fixture, job("a").payload("p"), &policy(""), 0, 0xC0_FFEE).await;
    assert_eq!(told, (Stored, stands("p", TaskState::Pending, None)));
    let later = job("b").payload("p").process_in(Duration::from_secs(60));
    let told = publish(&fixture, later, &policy(""), 0, 1).await;
    assert_eq!(told, (Stored, stands("p", TaskState::Scheduled, Some(NOW + 60))));
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:pending: [a]
         + {q}:scheduled b: score 4000000060
         + {q}:t:a msg: type=job payload=p id=a queue=q retry=25 timeout=1800
         + {q}:t:a pending_since: 4000000000000000000
         + {q}:t:a state: pending
         + {q}:t:a x_published: 1 4000000000 4000000000 c0ffee stored
         + {q}:t:b msg: type=job payload=p id=b queue=q retry=25 timeout=1800
         + {q}:t:b state: scheduled
         + {q}:t:b x_published: 1 4000000000 4000000000 1 stored",
    );
}

#[tokio::test]
async fn a_task_is_kept_in_every_state_where_nothing_else_is_allowed() {
    for state in [
        TaskState::Pending,
        TaskState::Scheduled,
        TaskState::Active,
        TaskState::Retry,
        TaskState::Archived,
        TaskState::Completed,
        TaskState::Aggregating,
    ] {
        let fixture = Fixture::start().await;
        fixture.put_in(state, job("a").payload("old")).await;
        let before = fixture.keyspace().await;
        let (outcome, holder) = publish(&fixture, job("a").payload("new"), &policy(""), 0, 1).await;
        let (payload, found, _) = holder.unwrap();
        assert_eq!((outcome, payload, found), (Kept, b"old".to_vec(), state));
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn a_task_that_waits_is_replaced_in_its_place_and_one_that_does_not_is_kept() {
    for (state, due) in
        [(TaskState::Pending, None), (TaskState::Scheduled, Some(NOW + 3600)), (TaskState::Retry, Some(NOW + 3600))]
    {
        let fixture = Fixture::start().await;
        fixture.put_in(state, job("a").payload("old").header("k", "old")).await;
        fixture.run("HSET asynq:{q}:t:a x_cursor 7 x_progress done x_log 0").await;
        let before = fixture.keyspace().await;
        let new = job("a").payload("new").header("k", "new").max_retry(3).timeout(Duration::from_secs(9));
        assert_eq!(publish(&fixture, new, &policy("replace"), 5, 1).await, (Replaced, stands("new", state, due)));
        let came_to = if state == TaskState::Retry { " retried=1 error_msg=boom" } else { "" };
        let failed_at = if state == TaskState::Retry { " last_failed_at=4000000000" } else { "" };
        let retention = if state == TaskState::Retry { " retention=3600" } else { "" };
        fixture.keyspace().await.assert_changes_since(
            &before,
            &format!(
                "- {{q}}:t:a msg: type=job payload=old id=a queue=q retry=25{came_to} timeout=1800{failed_at}{retention} headers=k:old
                 + {{q}}:t:a msg: type=job payload=new id=a queue=q retry=3{came_to} timeout=9{failed_at} headers=k:new
                 - {{q}}:t:a x_cursor: 7
                 - {{q}}:t:a x_log: 0
                 - {{q}}:t:a x_progress: done
                 + {{q}}:t:a x_published: 1 4000000005 4000000005 1 replaced"
            ),
        );
    }
    for state in [TaskState::Active, TaskState::Aggregating] {
        let fixture = Fixture::start().await;
        fixture.put_in(state, job("a").payload("old")).await;
        let before = fixture.keyspace().await;
        assert_eq!(publish(&fixture, job("a").payload("new"), &policy(ALL), 0, 1).await.0, Kept, "{state}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

/// It holds the lock of a payload that it has no more; the lock is released with the task all the same.
#[tokio::test]
async fn a_task_that_is_replaced_keeps_its_lock_and_its_group() {
    let fixture = Fixture::start().await;
    let old = job("a").payload("old").unique(Duration::from_secs(600)).group("g");
    fixture.put_in(TaskState::Scheduled, old).await;
    publish(&fixture, job("a").payload("new"), &policy("replace"), 0, 1).await;
    let after = fixture.keyspace().await;
    let message = after.get("{q}:t:a msg").unwrap();
    assert!(message.contains("payload=new") && message.contains("group_key=g"), "{message}");
    assert!(message.contains("unique_key=asynq:{q}:unique:job:149603e6c03516362a8da23f624db945"), "{message}");
    fixture.broker.delete_tasks(QUEUE, Seen::Anywhere, &["a"]).await.unwrap();
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "*unique*"]).await, [""; 0]);
}

#[tokio::test]
async fn only_a_scheduled_task_that_is_not_parked_is_given_another_time() {
    let fixture = Fixture::start().await;
    let in_secs = |id: &str, secs| job(id).payload("new").process_in(Duration::from_secs(secs));
    fixture.put_in(TaskState::Scheduled, job("a").payload("old")).await;
    let told = publish(&fixture, in_secs("a", 60), &policy("reschedule"), 0, 1).await;
    assert_eq!(told, (Rescheduled, stands("old", TaskState::Scheduled, Some(NOW + 60))));
    // At once.
    let told = publish(&fixture, job("a"), &policy("reschedule"), 3, 2).await;
    assert_eq!(told, (Rescheduled, stands("old", TaskState::Scheduled, Some(NOW + 3))));
    fixture.run("HSET asynq:{q}:t:a x_waits lane:x").await;
    let told = publish(&fixture, in_secs("a", 60), &policy(ALL), 0, 3).await;
    assert_eq!(told, (Replaced, stands("new", TaskState::Scheduled, Some(NOW + 3))), "in its lane");
    for state in [TaskState::Pending, TaskState::Retry, TaskState::Completed] {
        let fixture = Fixture::start().await;
        fixture.put_in(state, job("a").payload("old")).await;
        let before = fixture.keyspace().await;
        assert_eq!(publish(&fixture, in_secs("a", 60), &policy("reschedule"), 0, 1).await.0, Kept, "{state}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn a_debounced_task_is_put_off_up_to_the_longest_wait_since_the_first() {
    let fixture = Fixture::start().await;
    let mut debounce = policy(ALL);
    debounce.max_wait = Some(Duration::from_secs(12));
    for (after, due) in [(0, 5), (4, 9), (8, 12), (11, 12)] {
        let task = job("a").payload(after.to_string()).process_in(Duration::from_secs(5));
        let (_, holder) = publish(&fixture, task, &debounce, after, 1 + after as u64).await;
        assert_eq!(holder, stands(&after.to_string(), TaskState::Scheduled, Some(NOW + due)), "after {after} s");
    }
    let field: String = fixture.cmd(&["HGET", "asynq:{q}:t:a", "x_published"]).await;
    assert_eq!(field, "4 4000000000 4000000011 c replaced");
}

#[tokio::test]
async fn the_first_one_waits_no_longer_than_the_longest_wait_either() {
    let fixture = Fixture::start().await;
    let mut reschedule = policy(ALL);
    reschedule.max_wait = Some(Duration::from_secs(60));
    let task = job("a").payload("x").process_in(Duration::from_secs(3_600));
    let (_, holder) = publish(&fixture, task, &reschedule, 0, 1).await;
    assert_eq!(holder, stands("x", TaskState::Scheduled, Some(NOW + 60)));
}

#[tokio::test]
async fn a_task_that_has_ended_begins_anew_and_nothing_is_left_of_it() {
    for state in [TaskState::Completed, TaskState::Archived] {
        for (delay, container) in [(0, "pending"), (60, "scheduled")] {
            let fixture = Fixture::start().await;
            fixture.put_in(state, job("a").payload("old").unique(Duration::from_secs(600))).await;
            fixture.run("HSET asynq:{q}:t:a result r x_n 1 x_a0 boom x_cursor 7").await;
            let new = job("a").payload("new").process_in(Duration::from_secs(delay));
            assert_eq!(publish(&fixture, new, &policy("restart"), 0, 1).await.0, Restarted, "{state}");
            fixture.forget_counters().await;
            let whole = fixture.keyspace().await;
            assert_eq!(whole.get("{q}:t:a state"), Some(container));
            let message = whole.get("{q}:t:a msg").unwrap();
            assert_eq!(message, "type=job payload=new id=a queue=q retry=25 timeout=1800", "{state}");
            let mut keys: Vec<String> = fixture.cmd(&["KEYS", "*"]).await;
            keys.sort();
            assert_eq!(keys, [format!("asynq:{{q}}:{container}"), "asynq:{q}:t:a".to_owned()], "{state}");
            let mut fields: Vec<String> = fixture.cmd(&["HKEYS", "asynq:{q}:t:a"]).await;
            fields.sort();
            let since = (delay == 0).then(|| "pending_since".to_owned());
            let expected = ["msg"].map(str::to_owned).into_iter().chain(since);
            assert_eq!(fields, expected.chain(["state", "x_published"].map(str::to_owned)).collect::<Vec<_>>());
        }
    }
}

#[tokio::test]
async fn a_window_suppresses_others_whatever_becomes_of_the_task() {
    let fixture = Fixture::start().await;
    let mut throttle = policy("restart");
    throttle.window = Some(Duration::from_secs(60));
    assert_eq!(publish(&fixture, job("a").payload("1"), &throttle, 0, 1).await.0, Stored);
    let window: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:x:window:*"]).await;
    assert_eq!(window, ["asynq:{q}:x:window:0cc175b9c0f1b6a831c399e269772661"]);
    let left: i64 = fixture.cmd(&["PTTL", &window[0]]).await;
    assert!((1..=60_000).contains(&left), "{left}");
    let told = publish(&fixture, job("a").payload("2"), &throttle, 0, 2).await;
    assert_eq!(told, (Suppressed, stands("1", TaskState::Pending, None)));
    fixture.broker.delete_tasks(QUEUE, Seen::Anywhere, &["a"]).await.unwrap();
    assert_eq!(publish(&fixture, job("a").payload("3"), &throttle, 0, 3).await, (Suppressed, None));
    // Sent again, the one that opened it learns that it did.
    assert_eq!(publish(&fixture, job("a").payload("1"), &throttle, 0, 1).await, (Stored, None));
    // Others heed the window only if they have one.
    assert_eq!(publish(&fixture, job("a").payload("4"), &policy(""), 0, 4).await.0, Stored);
    let _: i64 = fixture.cmd(&["DEL", &window[0]]).await;
    assert_eq!(publish(&fixture, job("a").payload("5"), &throttle, 0, 5).await.0, Kept);
    assert_eq!(fixture.cmd::<i64>(&["EXISTS", &window[0]]).await, 0, "what changes nothing opens no window");
}

#[tokio::test]
async fn a_call_that_is_sent_again_does_nothing_and_tells_what_it_has_done() {
    for (state, may, outcome) in [
        (None, "", Stored),
        (Some(TaskState::Pending), "replace", Replaced),
        (Some(TaskState::Scheduled), "reschedule", Rescheduled),
        (Some(TaskState::Completed), "restart", Restarted),
    ] {
        let fixture = Fixture::start().await;
        if let Some(state) = state {
            fixture.put_in(state, job("a").payload("old")).await;
        }
        let task = job("a").payload("new");
        assert_eq!(publish(&fixture, task.clone(), &policy(may), 0, 7).await.0, outcome);
        let before = fixture.keyspace().await;
        assert_eq!(publish(&fixture, task.clone(), &policy(may), 0, 7).await.0, outcome);
        fixture.keyspace().await.assert_unchanged_since(&before);
        if state == Some(TaskState::Pending) {
            fixture.take().await;
            assert_eq!(publish(&fixture, task, &policy(may), 0, 7).await.0, outcome, "a worker has it by now");
        }
    }
}

#[tokio::test]
async fn an_id_of_what_is_no_task_is_taken_and_nothing_is_written() {
    let fixture = Fixture::start().await;
    for stray in ["SET asynq:{q}:t:a text", "HSET asynq:{q}:t:a state pending"] {
        fixture.run("DEL asynq:{q}:t:a").await;
        fixture.run(stray).await;
        let before = fixture.keyspace().await;
        let composed = fixture.compose(job("a"));
        let verdict = fixture.broker.publish(&composed, &policy(ALL), NOW_NS, 1).await.unwrap();
        assert_eq!(verdict, None);
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn publish_fails_where_a_key_has_another_type_and_changes_nothing() {
    for (key, task) in [
        ("asynq:{q}:pending", job("new")),
        ("asynq:{q}:pending", job("done")),
        ("asynq:{q}:scheduled", job("new").process_in(Duration::from_secs(9))),
        ("asynq:{q}:scheduled", job("done").process_in(Duration::from_secs(9))),
        ("asynq:{q}:completed", job("done")),
    ] {
        let fixture = Fixture::start().await;
        fixture.put_in(TaskState::Completed, job("done")).await;
        let composed = fixture.compose(task);
        fixture
            .with_stray(key, async || {
                let before = fixture.keyspace().await;
                let error = fixture.broker.publish(&composed, &policy(ALL), NOW_NS, 1).await.unwrap_err();
                assert!(is_wrong_type(&error), "{key}: {error}");
                fixture.keyspace().await.assert_unchanged_since(&before);
            })
            .await;
    }
}

const FOLLOW: &str = "replace restart follow";

/// Where the tasks of the key are, `-` where there is none.
async fn places(fixture: &Fixture) -> String {
    let mut places = Vec::new();
    for id in ["a", "a~"] {
        let state: Option<String> = fixture.cmd(&["HGET", &format!("asynq:{{q}}:t:{id}"), "state"]).await;
        places.push(state.unwrap_or_else(|| "-".to_owned()));
    }
    places.join(" ")
}

#[tokio::test]
async fn what_is_published_while_a_worker_has_the_task_follows_with_the_last_payload() {
    let fixture = Fixture::start().await;
    let follow = policy(FOLLOW);
    let task = |payload: &str| job("a").payload(payload.to_owned()).timeout(Duration::from_secs(60));
    assert_eq!(publish(&fixture, task("1"), &follow, 0, 1).await.0, Stored);
    fixture.take().await;
    let told = publish(&fixture, task("2"), &follow, 0, 2).await;
    assert_eq!(told, (Follows, stands("2", TaskState::Scheduled, Some(NOW + 60))));
    let again = publish(&fixture, task("2"), &follow, 9, 2).await;
    assert_eq!(again, (Follows, stands("2", TaskState::Scheduled, Some(NOW + 60))), "the same call");
    let told = publish(&fixture, task("3"), &follow, 9, 3).await;
    assert_eq!(told, (Replaced, stands("3", TaskState::Scheduled, Some(NOW + 60))), "its time stays");
    assert_eq!(places(&fixture).await, "active scheduled");
    let message = fixture.keyspace().await.get("{q}:t:a~ msg").unwrap().to_owned();
    assert_eq!(message, "type=job payload=3 id=a~ queue=q retry=25 timeout=60");

    // Not before the first has ended.
    assert_eq!(fixture.broker.start_followers(QUEUE, &["a"], NOW_NS).await.unwrap(), 0);
    fixture.run("LREM asynq:{q}:active 0 a").await;
    fixture.run("ZREM asynq:{q}:lease a").await;
    fixture.run("DEL asynq:{q}:t:a").await;
    let before = fixture.keyspace().await;
    assert_eq!(fixture.broker.start_followers(QUEUE, &["b", "a"], NOW_NS).await.unwrap(), 1);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:pending: [a~]
         - {q}:scheduled a~: score 4000000060
         + {q}:t:a~ pending_since: 4000000000000000000
         - {q}:t:a~ state: scheduled
         + {q}:t:a~ state: pending",
    );
    assert_eq!(fixture.broker.start_followers(QUEUE, &["a"], NOW_NS).await.unwrap(), 0, "nor twice");
    // The two follow each other.
    fixture.take().await;
    assert_eq!(publish(&fixture, task("4"), &follow, 9, 4).await.0, Follows);
    assert_eq!(places(&fixture).await, "scheduled active");
    assert_eq!(publish(&fixture, task("5"), &follow, 9, 5).await.0, Replaced);
    // A worker has both: there is no third.
    fixture.broker.start_followers(QUEUE, &["a~"], NOW_NS).await.unwrap();
    fixture.run("ZADD asynq:{q}:scheduled 1 a").await;
    fixture.broker.forward(QUEUE, TaskState::Scheduled, NOW_NS, 0).await.unwrap();
    fixture.take().await;
    assert_eq!(places(&fixture).await, "active active");
    let before = fixture.keyspace().await;
    assert_eq!(publish(&fixture, task("6"), &follow, 9, 6).await.0, Kept);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

/// It would run beside the first one.
#[tokio::test]
async fn what_follows_a_task_without_a_timeout_is_due_at_its_deadline() {
    let fixture = Fixture::start().await;
    let task = |payload: &str| {
        let deadline = queue_core::clock::date_from_secs(NOW + 500).unwrap();
        job("a").payload(payload.to_owned()).deadline(deadline)
    };
    publish(&fixture, task("1"), &policy(FOLLOW), 0, 1).await;
    fixture.take().await;
    let told = publish(&fixture, task("2"), &policy(FOLLOW), 0, 2).await;
    assert_eq!(told, (Follows, stands("2", TaskState::Scheduled, Some(NOW + 500))));
}

#[tokio::test]
async fn a_plain_task_with_the_id_of_a_twin_is_neither_replaced_nor_started() {
    let fixture = Fixture::start().await;
    fixture.put([job("a~").process_in(Duration::from_secs(900))]).await;
    let before = fixture.keyspace().await;
    let composed = fixture.compose(job("a"));
    let verdict = fixture.broker.publish(&composed, &policy(FOLLOW), NOW_NS, 1).await.unwrap();
    assert_eq!(verdict, None);
    assert_eq!(fixture.broker.start_followers(QUEUE, &["a"], NOW_NS).await.unwrap(), 0);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn what_follows_is_due_as_soon_as_something_is_published_after_the_end() {
    let fixture = Fixture::start().await;
    let follow = policy(FOLLOW);
    publish(&fixture, job("a").payload("1"), &follow, 0, 1).await;
    fixture.take().await;
    publish(&fixture, job("a").payload("2"), &follow, 0, 2).await;
    // Nobody starts what follows.
    fixture.run("LREM asynq:{q}:active 0 a").await;
    fixture.run("ZREM asynq:{q}:lease a").await;
    fixture.run("DEL asynq:{q}:t:a").await;
    let told = publish(&fixture, job("a").payload("3"), &follow, 5, 3).await;
    assert_eq!(told, (Replaced, stands("3", TaskState::Scheduled, Some(NOW + 5))));
    // One that has a time of its own keeps it, or has an earlier one.
    let fixture = Fixture::start().await;
    let after = |secs| job("a").payload("p").process_in(Duration::from_secs(secs));
    for (secs, due) in [(60, 60), (90, 60), (30, 30)] {
        let (_, holder) = publish(&fixture, after(secs), &follow, 0, secs).await;
        assert_eq!(holder, stands("p", TaskState::Scheduled, Some(NOW + due)));
    }
}

#[tokio::test]
async fn of_two_that_wait_the_one_that_was_published_last_is_replaced() {
    let fixture = Fixture::start().await;
    let follow = policy(FOLLOW);
    fixture.put_in(TaskState::Retry, job("a").payload("1")).await;
    let _: i64 = fixture.cmd(&["HSET", "asynq:{q}:t:a", "x_published", "1 4000000000 4000000000 1 stored"]).await;
    fixture.put([job("a~").payload("2").process_in(Duration::from_secs(60))]).await;
    let _: i64 = fixture.cmd(&["HSET", "asynq:{q}:t:a~", "x_published", "1 4000000003 4000000003 2 follows"]).await;
    assert_eq!(publish(&fixture, job("a").payload("3"), &follow, 5, 3).await.0, Replaced);
    let payload = async |id: &str| fixture.inspector().task(QUEUE, id).await.unwrap().payload;
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    assert_eq!((&payload("a").await[..], &payload("a~").await[..]), (&b"1"[..], &b"3"[..]));
    let _: i64 = fixture.cmd(&["HSET", "asynq:{q}:t:a", "x_published", "1 4000000009 4000000009 1 stored"]).await;
    assert_eq!(publish(&fixture, job("a").payload("4"), &follow, 9, 4).await.0, Replaced);
    assert_eq!((&payload("a").await[..], &payload("a~").await[..]), (&b"4"[..], &b"3"[..]));
}

/// A debounce puts off what waits for its time, and not what waits for the end of another one.
#[tokio::test]
async fn what_follows_is_not_due_before_the_first_has_ended_also_while_that_is_retried() {
    let fixture = Fixture::start().await;
    let debounce = policy(&format!("{FOLLOW} reschedule"));
    let task = |payload: &str| job("a").payload(payload.to_owned()).timeout(Duration::from_secs(60));
    let soon = |payload: &str| task(payload).process_in(Duration::from_secs(5));
    assert_eq!(publish(&fixture, task("1"), &debounce, 0, 1).await.0, Stored);
    fixture.take().await;
    let told = publish(&fixture, soon("2"), &debounce, 0, 2).await;
    assert_eq!(told, (Follows, stands("2", TaskState::Scheduled, Some(NOW + 60))));
    let told = publish(&fixture, soon("3"), &debounce, 1, 3).await;
    assert_eq!(told, (Replaced, stands("3", TaskState::Scheduled, Some(NOW + 60))), "while it is active");
    for line in [
        "LREM asynq:{q}:active 0 a",
        "ZREM asynq:{q}:lease a",
        "ZADD asynq:{q}:retry 5000000000 a",
        "HSET asynq:{q}:t:a state retry",
    ] {
        fixture.run(line).await;
    }
    let told = publish(&fixture, soon("4"), &debounce, 2, 4).await;
    assert_eq!(told, (Replaced, stands("4", TaskState::Scheduled, Some(NOW + 60))), "while it is retried");
}

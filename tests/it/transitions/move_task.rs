use std::time::Duration;

use bytes::Bytes;
use queue_admin::{Error, Inspector};
use queue_core::queue_name::Family;
use queue_core::{TaskMessage, TaskState};
use queue_redis::broker::MoveVerdict;

use crate::support::{Fixture, NOW_NS, QUEUE, is_wrong_type, job};

const OTHER: &str = "q}@web-1";
const WAITING: [TaskState; 3] = [TaskState::Pending, TaskState::Scheduled, TaskState::Retry];

async fn message(fixture: &Fixture, id: &str) -> (Vec<u8>, TaskMessage) {
    let raw: Vec<u8> = fixture.cmd(&["HGET", &format!("asynq:{{q}}:t:{id}"), "msg"]).await;
    let message = TaskMessage::from_bytes(Bytes::from(raw.clone())).unwrap();
    (raw, message)
}

async fn moved(fixture: &Fixture, id: &str) -> MoveVerdict {
    let (raw, message) = message(fixture, id).await;
    fixture.broker.move_task((QUEUE, OTHER), &raw, message, NOW_NS).await.unwrap()
}

#[tokio::test]
async fn a_task_that_waits_moves_with_all_it_has_and_its_lock_stays() {
    for state in WAITING {
        let fixture = Fixture::start().await;
        let task = job("a").payload("p").header("k", "v").unique(Duration::from_secs(600));
        fixture.put_in(state, task).await;
        fixture.forget_counters().await;
        let before = fixture.keyspace().await.without_relative_ttls();
        assert_eq!(moved(&fixture, "a").await, MoveVerdict::Moved);
        let after = fixture.keyspace().await.without_relative_ttls();
        let expected: Vec<String> = before
            .to_string()
            .lines()
            .map(|line| match line.strip_prefix("{q}:") {
                Some(rest) if !rest.starts_with("unique:") => {
                    format!("{{{OTHER}}}:{}", rest.replace("queue=q ", &format!("queue={OTHER} ")))
                }
                _ => line.to_owned(),
            })
            .collect();
        let mut found: Vec<String> = after.to_string().lines().map(str::to_owned).collect();
        let mut sorted = expected.clone();
        sorted.sort();
        found.sort();
        assert_eq!(found, sorted, "{state}");
        assert_ne!(found, before.to_string().lines().collect::<Vec<_>>());
        let raw: Vec<u8> = fixture.cmd(&["HGET", &format!("asynq:{{{OTHER}}}:t:a"), "msg"]).await;
        assert_eq!(TaskMessage::from_bytes(raw.into()).unwrap().queue, OTHER, "{state}");
    }
}

#[tokio::test]
async fn a_move_that_is_made_again_finds_that_it_was_made() {
    let fixture = Fixture::start().await;
    fixture.put([job("a"), job("b")]).await;
    let (raw, read) = message(&fixture, "a").await;
    assert_eq!(moved(&fixture, "a").await, MoveVerdict::Moved);
    let before = fixture.keyspace().await;
    let again = fixture.broker.move_task((QUEUE, OTHER), &raw, read, NOW_NS).await.unwrap();
    assert_eq!(again, MoveVerdict::Moved);
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert_eq!(before.get("{q}:pending"), Some("[b]"));
}

#[tokio::test]
async fn move_task_is_refused_where_the_task_does_not_wait_or_is_not_what_was_read() {
    for state in [TaskState::Active, TaskState::Completed, TaskState::Archived, TaskState::Aggregating] {
        let fixture = Fixture::start().await;
        fixture.put_in(state, job("a")).await;
        let before = fixture.keyspace().await;
        assert_eq!(moved(&fixture, "a").await, MoveVerdict::NotWaiting, "{state}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
    for (commands, expected) in [
        (&["HSET asynq:{q}:t:a msg other"][..], MoveVerdict::Changed),
        (&["DEL asynq:{q}:t:a"], MoveVerdict::Gone),
        (&["HDEL asynq:{q}:t:a msg"], MoveVerdict::Gone),
        (&["DEL asynq:{q}:t:a", "SET asynq:{q}:t:a text"], MoveVerdict::Gone),
        (&["HSET asynq:{q}@web-1}:t:a msg other"], MoveVerdict::IdTaken),
        (&["LREM asynq:{q}:pending 0 a"], MoveVerdict::Misplaced),
        (&["HSET asynq:{q}:t:a state retry"], MoveVerdict::Misplaced),
    ] {
        let fixture = Fixture::start().await;
        fixture.put([job("a"), job("b")]).await;
        let (raw, read) = message(&fixture, "a").await;
        for command in commands {
            fixture.run(command).await;
        }
        let before = fixture.keyspace().await;
        let verdict = fixture.broker.move_task((QUEUE, OTHER), &raw, read, NOW_NS).await.unwrap();
        assert_eq!(verdict, expected, "{commands:?}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
    for (state, key) in [(TaskState::Pending, "pending"), (TaskState::Scheduled, "scheduled")] {
        let fixture = Fixture::start().await;
        fixture.put_in(state, job("a")).await;
        fixture.run(&format!("SET asynq:{{{OTHER}}}:{key} text")).await;
        let before = fixture.keyspace().await;
        let (raw, read) = message(&fixture, "a").await;
        let refused = fixture.broker.move_task((QUEUE, OTHER), &raw, read, NOW_NS).await.unwrap_err();
        assert!(is_wrong_type(&refused), "{refused}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn what_waits_in_a_lane_of_one_queue_is_pending_in_the_other() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Scheduled, job("a")).await;
    fixture.run("HSET asynq:{q}:t:a x_waits tenant:acme").await;
    assert_eq!(moved(&fixture, "a").await, MoveVerdict::Moved);
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}@web-1}:pending"), Some("[a]"));
    assert_eq!(after.get("{q}@web-1}:t:a state"), Some("pending"));
    assert_eq!((after.get("{q}@web-1}:t:a x_waits"), after.get("{q}@web-1}:scheduled")), (None, None));
}

#[tokio::test]
async fn the_inspector_moves_between_the_queues_of_a_family_and_says_why_not() {
    let fixture = Fixture::start().await;
    let inspector = Inspector::new(fixture.redis());
    fixture.enqueue([job("a"), job("taken"), job("taken").priority(9)]).await;
    let labels = || Family::Labels(["eu".to_owned(), "gpu".to_owned()].into());
    for (from, to, queue) in [
        ("q", Some(Family::Level(9)), "q}p9"),
        ("q}p9", Some(Family::Mailbox("web-1".into())), "q}@web-1"),
        ("q}@web-1", Some(labels()), "q}#eu+gpu"),
        ("q}#eu+gpu", Some(Family::Level(5)), "q"),
        ("q", Some(labels()), "q}#eu+gpu"),
        ("q}#eu+gpu", None, "q"),
    ] {
        assert_eq!(inspector.move_task(from, "a", to).await.unwrap(), queue);
        assert_eq!(inspector.task(queue, "a").await.unwrap().queue, queue);
        assert!(inspector.queues().await.unwrap().iter().any(|name| name == queue), "it is listed");
    }
    let refused = async |id: &str, to| inspector.move_task(QUEUE, id, to).await.unwrap_err();
    assert!(matches!(refused("a", None).await, Error::AlreadyInQueue { .. }));
    assert!(matches!(refused("taken", Some(Family::Level(9))).await, Error::IdTaken { .. }));
    assert!(matches!(refused("nothing", Some(Family::Level(9))).await, Error::TaskNotFound { .. }));
    assert!(matches!(refused("a", Some(Family::Level(10))).await, Error::NoFamily(_)));
    assert!(matches!(refused("flow:a:0:1", Some(Family::Level(9))).await, Error::MemberStays { .. }));
    fixture.run("HSET asynq:{q}:t:a msg \u{1}").await;
    let unreadable = refused("a", Some(Family::Level(9))).await;
    assert!(matches!(unreadable, Error::Unreadable { .. }), "{unreadable}");
}

/// Go has taken what was parked, and failed.
#[tokio::test]
async fn a_retry_keeps_its_time_whatever_is_left_of_a_limit() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Retry, job("a")).await;
    fixture.run("HSET asynq:{q}:t:a x_waits tenant:acme").await;
    assert_eq!(moved(&fixture, "a").await, MoveVerdict::Moved);
    let after = fixture.keyspace().await;
    assert!(after.get("{q}@web-1}:retry a").is_some() && after.get("{q}@web-1}:pending").is_none());
    assert_eq!(after.get("{q}@web-1}:t:a x_waits"), None);
}

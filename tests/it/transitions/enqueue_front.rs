use std::time::Duration;

use queue_core::RawTask;
use queue_core::limit::{Limit, LimitKey};
use queue_core::options::Composed;
use queue_redis::broker::Dequeued;
use queue_redis::broker::EnqueueVerdict::{self, AlreadyStored, Duplicate, IdTaken, Stored};

use crate::support::{Fixture, NOW_NS, QUEUE, is_wrong_type, job};

const LOCK: Duration = Duration::from_secs(600);

async fn enqueue_front(fixture: &Fixture, tasks: impl IntoIterator<Item = RawTask>) -> Vec<EnqueueVerdict> {
    let tasks: Vec<Composed> = tasks.into_iter().map(|task| fixture.compose(task.front())).collect();
    fixture.broker.enqueue_front(QUEUE, &tasks, NOW_NS).await.unwrap()
}

#[tokio::test]
async fn enqueue_front_puts_tasks_before_all_others_and_the_last_of_them_first() {
    let fixture = Fixture::start().await;
    fixture.put([job("old"), job("new")]).await;
    let before = fixture.keyspace().await;
    assert_eq!(enqueue_front(&fixture, [job("a").payload("p").unique(LOCK), job("b").payload("q")]).await, [Stored; 2]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:pending: [new old]
         + {q}:pending: [new old a b]
         + {q}:t:a msg: type=job payload=p id=a queue=q retry=25 timeout=1800 unique_key=asynq:{q}:unique:job:83878c91171338902e0fe0fb97a8c47a
         + {q}:t:a pending_since: 4000000000000000000
         + {q}:t:a state: pending
         + {q}:t:a unique_key: asynq:{q}:unique:job:83878c91171338902e0fe0fb97a8c47a
         + {q}:t:b msg: type=job payload=q id=b queue=q retry=25 timeout=1800
         + {q}:t:b pending_since: 4000000000000000000
         + {q}:t:b state: pending
         + {q}:unique:job:83878c91171338902e0fe0fb97a8c47a: a
         + {q}:unique:job:83878c91171338902e0fe0fb97a8c47a expires: in about 600 s",
    );
    let mut order = Vec::new();
    for _ in 0..4 {
        order.push(fixture.take().await.run.id);
    }
    assert_eq!(order, ["b", "a", "old", "new"]);
}

#[tokio::test]
async fn enqueue_front_refuses_what_is_taken_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").payload("p").unique(LOCK), job("c")]).await;
    let before = fixture.keyspace().await;
    let tasks = [job("a").payload("p").unique(LOCK), job("c").payload("x"), job("b").payload("p").unique(LOCK)];
    assert_eq!(enqueue_front(&fixture, tasks).await, [AlreadyStored, IdTaken, Duplicate]);
    fixture.keyspace().await.assert_unchanged_since(&before);
    // Of two of one id the first is stored.
    assert_eq!(enqueue_front(&fixture, [job("d"), job("d")]).await, [Stored, IdTaken]);
}

#[tokio::test]
async fn enqueue_front_on_a_key_of_another_type_fails_and_stores_nothing() {
    let fixture = Fixture::start().await;
    fixture.run("SET asynq:{q}:pending x").await;
    let before = fixture.keyspace().await;
    let task = fixture.compose(job("a").front());
    let error = fixture.broker.enqueue_front(QUEUE, &[task], NOW_NS).await.unwrap_err();
    assert!(is_wrong_type(&error), "{error}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

/// In front is in front of what is pending, and not of those that wait in a lane.
#[tokio::test]
async fn a_task_in_front_has_no_place_before_those_that_wait_under_a_limit() {
    let fixture = Fixture::start().await;
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    let limit = Limit::new("tenant", LimitKey::header("tenant")).concurrency(1);
    fixture.inspector().set_limit(QUEUE, limit).await.unwrap();
    let of = |id: &str| job(id).header("tenant", "acme");
    let take = async |count| match fixture.dequeue(count).await {
        Dequeued::Limited { tasks, .. } => tasks.into_iter().map(|task| format!("{task:?}")).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    fixture.put([of("a1"), of("a2")]).await;
    assert_eq!(take(10).await.len(), 1);
    fixture.put([job("free"), of("a3").front()]).await;
    assert!(take(10).await.concat().contains("free"), "it waits itself, and holds up nobody");
    let waiting: Vec<String> = fixture.cmd(&["ZRANGE", "asynq:{q}:x:waiting", "0", "-1"]).await;
    assert!(waiting[0].ends_with("a2") && waiting[1].ends_with("a3"), "{waiting:?}");
}

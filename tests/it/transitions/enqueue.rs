use std::time::Duration;

use queue_core::options::Composed;
use queue_core::{RawTask, TaskState};
use queue_redis::broker::EnqueueVerdict::{self, AlreadyStored, Duplicate, IdTaken, Stored};

use crate::support::{Fixture, NOW_NS, QUEUE, is_wrong_type, job};

const LOCK: Duration = Duration::from_secs(600);

async fn enqueue(fixture: &Fixture, tasks: impl IntoIterator<Item = RawTask>) -> Vec<EnqueueVerdict> {
    let tasks: Vec<Composed> = tasks.into_iter().map(|task| fixture.compose(task)).collect();
    fixture.broker.enqueue(QUEUE, &tasks, NOW_NS).await.unwrap()
}

#[tokio::test]
async fn enqueue_stores_a_task_and_makes_it_pending() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    let task = job("a").payload("p").max_retry(3).header("k", "v");
    assert_eq!(enqueue(&fixture, [task]).await, [Stored]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:pending: [a]
         + {q}:t:a msg: type=job payload=p id=a queue=q retry=3 timeout=1800 headers=k:v
         + {q}:t:a pending_since: 4000000000000000000
         + {q}:t:a state: pending",
    );
}

#[tokio::test]
async fn enqueue_takes_the_lock_of_a_unique_task() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    assert_eq!(enqueue(&fixture, [job("a").unique(LOCK)]).await, [Stored]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:pending: [a]
         + {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800 unique_key=asynq:{q}:unique:job:
         + {q}:t:a pending_since: 4000000000000000000
         + {q}:t:a state: pending
         + {q}:t:a unique_key: asynq:{q}:unique:job:
         + {q}:unique:job:: a
         + {q}:unique:job: expires: in about 600 s",
    );
}

#[tokio::test]
async fn enqueue_refuses_what_is_taken_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").payload("p").unique(LOCK)]).await;
    let before = fixture.keyspace().await;
    for (task, verdict) in [
        (job("a").payload("p").unique(LOCK), AlreadyStored),
        (job("a").payload("other"), IdTaken),
        (job("a").payload("other").unique(LOCK), IdTaken),
        // As in Go, the lock is looked at first.
        (job("a").payload("p").max_retry(3).unique(LOCK), Duplicate),
        (job("b").payload("p").unique(LOCK), Duplicate),
    ] {
        assert_eq!(enqueue(&fixture, [task.clone()]).await, [verdict], "{task:?}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn an_id_is_taken_in_every_state() {
    let fixture = Fixture::start().await;
    for state in TaskState::ALL {
        fixture.run(&format!("HSET asynq:{{q}}:t:{state} msg m state {state}")).await;
        let before = fixture.keyspace().await;
        assert_eq!(enqueue(&fixture, [job(state.as_str())]).await, [IdTaken], "{state}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

/// asynq leaves such a lock behind after an id conflict; it then blocks the id it names.
#[tokio::test]
async fn enqueue_takes_over_a_lock_that_names_its_own_id() {
    let fixture = Fixture::start().await;
    fixture.run("SET asynq:{q}:unique:job: a EX 100").await;
    let before = fixture.keyspace().await;
    let other = enqueue(&fixture, [job("b").unique(LOCK)]).await;
    assert_eq!(other, [Duplicate]);
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert_eq!(enqueue(&fixture, [job("a").unique(LOCK)]).await, [Stored]);
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}:unique:job: expires"), Some("in about 600 s"));
}

#[tokio::test]
async fn enqueue_judges_each_task_of_a_batch_by_itself() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").payload("1"), job("b").payload("2").unique(LOCK)]).await;
    let before = fixture.keyspace().await;
    let verdicts = enqueue(
        &fixture,
        [
            job("c").payload("3").unique(LOCK),
            job("a").payload("1"),
            job("a").payload("other"),
            job("d").payload("2").unique(LOCK),
            job("e").payload("3").unique(LOCK), // the lock of c, in the same batch
            job("c").payload("4"),              // the id of c
            job("f").payload("2"),              // not unique, so that the lock of b is no concern
        ],
    );
    assert_eq!(verdicts.await, [Stored, AlreadyStored, IdTaken, Duplicate, Duplicate, IdTaken, Stored]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:pending: [b a]
         + {q}:pending: [f c b a]
         + {q}:t:c msg: type=job payload=3 id=c queue=q retry=25 timeout=1800 unique_key=asynq:{q}:unique:job:eccbc87e4b5ce2fe28308fd9f2a7baf3
         + {q}:t:c pending_since: 4000000000000000000
         + {q}:t:c state: pending
         + {q}:t:c unique_key: asynq:{q}:unique:job:eccbc87e4b5ce2fe28308fd9f2a7baf3
         + {q}:t:f msg: type=job payload=2 id=f queue=q retry=25 timeout=1800
         + {q}:t:f pending_since: 4000000000000000000
         + {q}:t:f state: pending
         + {q}:unique:job:eccbc87e4b5ce2fe28308fd9f2a7baf3: c
         + {q}:unique:job:eccbc87e4b5ce2fe28308fd9f2a7baf3 expires: in about 600 s",
    );
}

#[tokio::test]
async fn a_batch_is_stored_in_order() {
    let fixture = Fixture::start().await;
    let verdicts = enqueue(&fixture, (0..100).map(|n| job(&n.to_string()))).await;
    assert_eq!(verdicts, [Stored; 100]);
    let oldest_first: Vec<String> = (0..100).rev().map(|n| n.to_string()).collect();
    let keyspace = fixture.keyspace().await;
    assert_eq!(keyspace.get("{q}:pending").unwrap(), format!("[{}]", oldest_first.join(" ")));
}

#[tokio::test]
async fn enqueue_fails_where_the_list_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    for batch in [1, 2] {
        let tasks: Vec<Composed> = (0..batch).map(|n| fixture.compose(job(&n.to_string()).unique(LOCK))).collect();
        let enqueue = async || fixture.broker.enqueue(QUEUE, &tasks, NOW_NS).await;
        let error = fixture.with_stray("asynq:{q}:pending", enqueue).await.unwrap_err();
        assert!(is_wrong_type(&error), "{error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn a_task_or_lock_of_another_type_counts_as_taken() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    let taken = fixture.with_stray("asynq:{q}:t:a", async || enqueue(&fixture, [job("a")]).await);
    assert_eq!(taken.await, [IdTaken]);
    let locked = fixture.with_stray("asynq:{q}:unique:job:", async || enqueue(&fixture, [job("b").unique(LOCK)]).await);
    assert_eq!(locked.await, [Duplicate]);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

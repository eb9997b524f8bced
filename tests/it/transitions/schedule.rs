use std::time::Duration;

use queue_core::RawTask;
use queue_core::options::Composed;
use queue_redis::broker::EnqueueVerdict::{self, AlreadyStored, Duplicate, IdTaken, Stored};

use crate::support::{Fixture, QUEUE, is_wrong_type, job};

const LOCK: Duration = Duration::from_secs(600);
const LATER: Duration = Duration::from_secs(100);

async fn schedule(fixture: &Fixture, tasks: impl IntoIterator<Item = RawTask>) -> Vec<EnqueueVerdict> {
    let tasks: Vec<Composed> = tasks.into_iter().map(|task| fixture.compose(task.process_in(LATER))).collect();
    fixture.broker.schedule(QUEUE, &tasks).await.unwrap()
}

#[tokio::test]
async fn schedule_stores_a_task_for_its_time() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    assert_eq!(schedule(&fixture, [job("a").payload("p")]).await, [Stored]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:scheduled a: score 4000000100
         + {q}:t:a msg: type=job payload=p id=a queue=q retry=25 timeout=1800
         + {q}:t:a state: scheduled",
    );
}

/// asynq forgets the group of a scheduled task (W21).
#[tokio::test]
async fn a_scheduled_task_keeps_its_group_and_its_lock_covers_the_wait() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    assert_eq!(schedule(&fixture, [job("a").group("g").unique(LOCK)]).await, [Stored]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:scheduled a: score 4000000100
         + {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800 unique_key=asynq:{q}:unique:job: group_key=g
         + {q}:t:a state: scheduled
         + {q}:t:a unique_key: asynq:{q}:unique:job:
         + {q}:t:a x_group: g
         + {q}:unique:job:: a
         + {q}:unique:job: expires: in about 700 s",
    );
}

#[tokio::test]
async fn schedule_judges_each_task_of_a_batch_by_itself() {
    let fixture = Fixture::start().await;
    fixture.put([job("a"), job("b").payload("2").unique(LOCK)]).await;
    assert_eq!(schedule(&fixture, [job("c").payload("3")]).await, [Stored]);
    let before = fixture.keyspace().await;
    let verdicts = schedule(
        &fixture,
        [
            job("c").payload("3"),
            job("a").payload("other").group("g"),
            job("d").payload("2").unique(LOCK),
            job("e").payload("5"),
            job("e").payload("6"),
        ],
    );
    assert_eq!(verdicts.await, [AlreadyStored, IdTaken, Duplicate, Stored, IdTaken]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:scheduled e: score 4000000100
         + {q}:t:e msg: type=job payload=5 id=e queue=q retry=25 timeout=1800
         + {q}:t:e state: scheduled",
    );
}

#[tokio::test]
async fn schedule_fails_where_a_set_has_another_type_and_loses_nothing() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    let task = [fixture.compose(job("a").group("g").unique(LOCK).process_in(LATER))];
    let schedule = async || fixture.broker.schedule(QUEUE, &task).await;
    let error = fixture.with_stray("asynq:{q}:scheduled", schedule).await.unwrap_err();
    assert!(is_wrong_type(&error), "{error}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

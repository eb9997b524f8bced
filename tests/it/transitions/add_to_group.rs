use std::time::Duration;

use queue_core::RawTask;
use queue_redis::broker::EnqueueVerdict::{self, AlreadyStored, Duplicate, IdTaken, Stored};

use crate::support::{Fixture, NOW, is_wrong_type, job};

const LOCK: Duration = Duration::from_secs(600);

async fn add(fixture: &Fixture, task: RawTask) -> EnqueueVerdict {
    fixture.broker.add_to_group(&fixture.compose(task), NOW).await.unwrap()
}

#[tokio::test]
async fn add_to_group_stores_a_task_and_lists_its_group() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    assert_eq!(add(&fixture, job("a").group("user:7").unique(LOCK)).await, Stored);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:g:user:7 a: score 4000000000
         + {q}:groups user:7: member
         + {q}:t:a group: user:7
         + {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800 unique_key=asynq:{q}:unique:job: group_key=user:7
         + {q}:t:a state: aggregating
         + {q}:t:a unique_key: asynq:{q}:unique:job:
         + {q}:unique:job:: a
         + {q}:unique:job: expires: in about 600 s",
    );
}

#[tokio::test]
async fn add_to_group_refuses_what_is_taken_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").group("g").unique(LOCK)]).await;
    let before = fixture.keyspace().await;
    for (task, verdict) in [
        (job("a").group("g").unique(LOCK), AlreadyStored),
        (job("a").group("h"), IdTaken),
        (job("b").group("h").unique(LOCK), Duplicate),
    ] {
        assert_eq!(add(&fixture, task).await, verdict);
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn add_to_group_fails_where_a_set_has_another_type_and_loses_nothing() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    let task = fixture.compose(job("a").group("g").unique(LOCK));
    for (key, left) in [("asynq:{q}:groups", ""), ("asynq:{q}:g:g", "+ {q}:groups g: member")] {
        let error = fixture.with_stray(key, async || fixture.broker.add_to_group(&task, NOW).await).await.unwrap_err();
        assert!(is_wrong_type(&error), "{error}");
        // A listed group without tasks is harmless, for Go too.
        fixture.keyspace().await.assert_changes_since(&before, left);
    }
}

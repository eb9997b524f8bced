//! `begin_removal`, `sweep` and `finish_removal`.

use queue_core::TaskState;

use crate::support::{Fixture, NOW, QUEUE, is_wrong_type, job};

#[tokio::test]
async fn begin_removal_pauses_and_marks_and_leaves_an_older_pause() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    assert_eq!(fixture.broker.begin_removal(QUEUE, NOW).await.unwrap(), 0);
    let marks = "+ {q}:paused: 4000000000
                 + {q}:x:removing: 4000000000";
    fixture.keyspace().await.assert_changes_since(&before, marks);
    fixture.broker.begin_removal(QUEUE, NOW + 5).await.unwrap();
    let again = "+ {q}:paused: 4000000000
                 + {q}:x:removing: 4000000005";
    fixture.keyspace().await.assert_changes_since(&before, again);
}

#[tokio::test]
async fn sweep_and_finish_removal_do_nothing_while_there_is_a_task() {
    for state in TaskState::ALL {
        let fixture = Fixture::start().await;
        fixture.put_in(state, job("a")).await;
        fixture.run("SET asynq:{q}:x:own 1").await;
        let before = fixture.keyspace().await;
        assert!(!fixture.broker.sweep(QUEUE, &["asynq:{q}:x:own", "asynq:{q}:t:a"]).await.unwrap(), "{state}");
        assert!(!fixture.broker.finish_removal(QUEUE).await.unwrap(), "{state}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn sweep_spares_the_lock_of_a_task_that_is_there() {
    let fixture = Fixture::start().await;
    fixture.run("SET asynq:{q}:unique:t:1 a").await;
    fixture.run("HSET asynq:{q}:t:a msg m state nonsense").await;
    fixture.run("SET asynq:{q}:unique:t:2 b").await;
    let before = fixture.keyspace().await;
    let locks = ["asynq:{q}:unique:t:1", "asynq:{q}:unique:t:2", "asynq:{q}:unique:t:3"];
    assert!(fixture.broker.sweep(QUEUE, &locks).await.unwrap());
    fixture.keyspace().await.assert_changes_since(&before, "- {q}:unique:t:2: b");
}

#[tokio::test]
async fn groups_without_tasks_do_not_stand_against_a_removal_however_many_they_are() {
    let fixture = Fixture::start().await;
    let fill = "for n = 1, 1000 do redis.call('SADD', 'asynq:{q}:groups', 'g' .. n) end";
    let _: redis::Value = fixture.cmd(&["EVAL", fill, "0"]).await;
    let mut calls = 1;
    while !fixture.broker.finish_removal(QUEUE).await.unwrap() {
        calls += 1;
        assert!(calls < 100);
    }
    assert_eq!(fixture.keyspace().await.to_string(), "");
}

#[tokio::test]
async fn a_removal_fails_where_a_key_has_another_type_and_changes_nothing() {
    for key in ["active", "aggregation_sets"] {
        let fixture = Fixture::start().await;
        let before = fixture.keyspace().await;
        let act = async || fixture.broker.begin_removal(QUEUE, NOW).await;
        let error = fixture.with_stray(&format!("asynq:{{q}}:{key}"), act).await.unwrap_err();
        assert!(is_wrong_type(&error), "{key}: {error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

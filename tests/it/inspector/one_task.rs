//! Changes to one task, and the refusals that callers tell apart.

use queue_admin::Error;
use queue_core::TaskState;
use queue_redis::broker::MAX_BATCH;

use super::start;
use crate::support::{QUEUE, READY, RULES, job};

#[tokio::test]
async fn a_task_is_run_archived_and_deleted() {
    let (fixture, inspector) = start().await;
    fixture.put_in(TaskState::Scheduled, job("a")).await;
    inspector.run_task(QUEUE, "a").await.unwrap();
    assert_eq!(inspector.task(QUEUE, "a").await.unwrap().state, TaskState::Pending);
    inspector.archive_task(QUEUE, "a").await.unwrap();
    assert_eq!(inspector.task(QUEUE, "a").await.unwrap().state, TaskState::Archived);
    inspector.run_task(QUEUE, "a").await.unwrap();
    assert_eq!(fixture.take().await.run.id, "a");
    fixture.put_in(TaskState::Scheduled, job("b")).await;
    inspector.delete_task(QUEUE, "b").await.unwrap();
    assert!(matches!(inspector.task(QUEUE, "b").await, Err(Error::TaskNotFound { .. })));
}

fn variant(error: &Error) -> &'static str {
    match error {
        Error::TaskActive { .. } => "TaskActive",
        Error::AlreadyPending { .. } => "AlreadyPending",
        Error::AlreadyArchived { .. } => "AlreadyArchived",
        Error::TaskMisplaced { .. } => "TaskMisplaced",
        Error::TaskNotFound { .. } => "TaskNotFound",
        _ => "another",
    }
}

#[tokio::test]
async fn refusals_are_told_apart_and_say_what_to_do() {
    let (fixture, inspector) = start().await;
    fixture.put_in(TaskState::Active, job("active")).await;
    fixture.put_in(TaskState::Archived, job("archived")).await;
    fixture.put_in(TaskState::Aggregating, job("staged")).await;
    fixture.put_in(TaskState::Pending, job("pending")).await;
    fixture.run("ZREM asynq:{q}:g:g staged").await;
    fixture.run("ZADD asynq:{q}:g:g:set 1 staged").await;
    fixture.run("ZADD asynq:{q}:aggregation_sets 4000000120 asynq:{q}:g:g:set").await;
    let before = fixture.keyspace().await;
    let mut texts = Vec::new();
    for (id, run, archive, delete) in [
        ("active", "TaskActive", "TaskActive", "TaskActive"),
        ("pending", "AlreadyPending", "", ""),
        ("archived", "", "AlreadyArchived", ""),
        ("staged", "TaskMisplaced", "TaskMisplaced", "TaskMisplaced"),
        ("nobody", "TaskNotFound", "TaskNotFound", "TaskNotFound"),
    ] {
        for (expected, operation) in [(run, "run"), (archive, "archive"), (delete, "delete")] {
            if expected.is_empty() {
                continue;
            }
            let answer = match operation {
                "run" => inspector.run_task(QUEUE, id).await,
                "archive" => inspector.archive_task(QUEUE, id).await,
                _ => inspector.delete_task(QUEUE, id).await,
            };
            let error = answer.unwrap_err();
            assert_eq!(variant(&error), expected, "{operation} {id}: {error:?}");
            texts.push(error.to_string());
        }
        let elsewhere = inspector.run_task("none", id).await.unwrap_err();
        assert!(matches!(elsewhere, Error::QueueNotFound(_)));
    }
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert_eq!(texts[0], "task \"active\" in queue \"q\" is being worked on; cancel it, or wait until it is done");
    assert!(texts.iter().any(|text| text.contains("if it stays like this, delete it")), "{texts:?}");
}

#[tokio::test]
async fn a_script_that_redis_has_forgotten_is_loaded_again() {
    let (fixture, inspector) = start().await;
    for id in ["a", "b", "c"] {
        fixture.put_in(TaskState::Scheduled, job(id)).await;
    }
    let flush = async || fixture.run("SCRIPT FLUSH").await;
    flush().await;
    inspector.update_payload(QUEUE, "a", "new").await.unwrap();
    flush().await;
    inspector.run_task(QUEUE, "a").await.unwrap();
    flush().await;
    inspector.archive_task(QUEUE, "b").await.unwrap();
    flush().await;
    inspector.delete_task(QUEUE, "c").await.unwrap();
    assert_eq!(fixture.keyspace().await.get("{q}:pending"), Some("[a]"));
}

/// Each task ends in one place, whoever was faster.
#[tokio::test]
async fn workers_and_inspectors_that_race_for_tasks_leave_each_in_one_place() {
    let (fixture, inspector) = start().await;
    let ids: Vec<String> = (0..MAX_BATCH).map(|n| format!("t{n}")).collect();
    fixture.put(ids.iter().map(|id| job(id))).await;
    let racers: Vec<_> = (0..3)
        .map(|offset| {
            let (inspector, ids) = (inspector.clone(), ids.clone());
            tokio::spawn(async move {
                for n in 0..ids.len() {
                    let id = &ids[(n * 7 + offset * 31) % ids.len()];
                    let answer = match (n + offset) % 3 {
                        0 => inspector.run_task(QUEUE, id).await,
                        1 => inspector.archive_task(QUEUE, id).await,
                        _ => inspector.delete_task(QUEUE, id).await,
                    };
                    assert!(!matches!(answer, Err(Error::TaskMisplaced { .. } | Error::Redis(_))), "{answer:?}");
                }
            })
        })
        .collect();
    for _ in 0..40 {
        fixture.dequeue(1).await;
    }
    for racer in racers {
        racer.await.unwrap();
    }
    let after = fixture.keyspace().await;
    for id in &ids {
        let Some(state) = after.get(&format!("{{q}}:t:{id} state")) else {
            assert!(after.paths_with(id).is_empty(), "{id}: {:?}", after.paths_with(id));
            continue;
        };
        let mut places: Vec<String> = after.paths_with(id);
        places.retain(|path| !path.starts_with("{q}:t:"));
        let expected = match state {
            "pending" => vec!["{q}:pending".to_owned()],
            "active" => vec!["{q}:active".to_owned(), format!("{{q}}:lease {id}")],
            state => vec![format!("{{q}}:{state} {id}")],
        };
        assert_eq!(places, expected, "{id} is {state}");
    }
}

/// While all listed groups are empty, Go's tools show -9223372036854775808 bytes.
#[tokio::test]
async fn a_group_is_listed_while_tasks_wait_in_it_and_no_longer() {
    let (fixture, inspector) = start().await;
    let listed = async || fixture.cmd::<Vec<String>>(&["SMEMBERS", "asynq:{q}:groups"]).await;
    fixture.put([job("a").group("g").process_in(std::time::Duration::from_secs(60))]).await;
    assert_eq!(listed().await, [""; 0]);
    inspector.delete_task(QUEUE, "a").await.unwrap();
    for id in ["run", "archived", "deleted", "staged"] {
        fixture.put([job(id).group("g")]).await;
        assert_eq!(listed().await, ["g"]);
        match id {
            "run" => inspector.run_task(QUEUE, id).await.unwrap(),
            "archived" => inspector.archive_task(QUEUE, id).await.unwrap(),
            "deleted" => inspector.delete_task(QUEUE, id).await.unwrap(),
            _ => drop(fixture.stage("g", "s", RULES, READY).await.unwrap()),
        }
        assert_eq!(listed().await, [""; 0], "{id}");
    }
}

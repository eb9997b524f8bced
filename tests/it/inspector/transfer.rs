use queue_core::TaskState;

use super::start;
use crate::support::{QUEUE, job};

async fn ids(reader: &mut queue_admin::Reader) -> Vec<String> {
    reader.next().await.unwrap().into_iter().map(|task| task.id).collect()
}

#[tokio::test]
async fn a_task_that_moves_while_a_queue_is_read_is_read_once() {
    let (fixture, inspector) = start().await;
    fixture.put([job("pending"), job("late")]).await;
    fixture.put([job("archived")]).await;
    inspector.archive_task(QUEUE, "archived").await.unwrap();
    let scheduled = job("scheduled").process_in(std::time::Duration::from_secs(60));
    fixture.put([scheduled]).await;
    let mut reader = inspector.reader(QUEUE, false);
    assert_eq!(ids(&mut reader).await, ["scheduled"]);
    // One that was read moves to where it is met again, and one from where it would have been to where it was
    // looked for already.
    inspector.run_task(QUEUE, "scheduled").await.unwrap();
    let mut pending = ids(&mut reader).await;
    pending.sort();
    assert_eq!(pending, ["late", "pending"]);
    inspector.run_task(QUEUE, "archived").await.unwrap();
    assert_eq!(ids(&mut reader).await, ["archived"]);
    assert!(ids(&mut reader).await.is_empty());
    assert!(reader.unfit().is_empty());
}

#[tokio::test]
async fn reader_reads_active_tasks_as_if_they_were_requeued() {
    let (fixture, inspector) = start().await;
    fixture.active(job("active")).await;
    fixture.put([job("pending"), job("staged").group("g")]).await;
    fixture.run("RENAME asynq:{q}:g:g asynq:{q}:g:g:set").await;
    fixture.run("ZADD asynq:{q}:aggregation_sets 4000000120 asynq:{q}:g:g:set").await;
    assert_eq!(inspector.tasks_in_hand(QUEUE).await.unwrap(), 2);
    let mut reader = inspector.reader(QUEUE, true);
    let mut found = Vec::new();
    loop {
        let tasks = reader.next().await.unwrap();
        if tasks.is_empty() {
            break;
        }
        found.extend(tasks.into_iter().map(|task| (task.id, task.state, task.group)));
    }
    found.sort();
    let expected = [
        ("active", TaskState::Pending, None),
        ("pending", TaskState::Pending, None),
        ("staged", TaskState::Aggregating, Some("g")),
    ];
    let expected = expected.map(|(id, state, group)| (id.to_owned(), state, group.map(str::to_owned)));
    assert_eq!(found, expected);
    assert!(reader.unfit().is_empty());
}

/// What `Reader::gone` says once everything is read.
async fn gone(reader: &mut queue_admin::Reader) -> u64 {
    while !ids(reader).await.is_empty() {}
    reader.gone().await.unwrap()
}

#[tokio::test]
async fn a_reader_counts_the_tasks_that_have_gone_since() {
    let (fixture, inspector) = start().await;
    fixture.put([job("run"), job("stays"), job("over")]).await;
    fixture.put(["a", "b", "moved"].map(|id| job(id).group("g"))).await;
    inspector.archive_task(QUEUE, "over").await.unwrap();
    fixture.put([job("kept")]).await;
    inspector.archive_task(QUEUE, "kept").await.unwrap();
    fixture.run("LPUSH asynq:{q}:pending ghost").await;
    let mut reader = inspector.reader(QUEUE, false);
    assert_eq!(gone(&mut reader).await, 0);
    assert_eq!(reader.unfit().len(), 1, "what has no task was not given");
    // Those who aggregate large groups give them another name before they delete them.
    fixture.run("ZREM asynq:{q}:g:g a").await;
    assert_eq!(reader.gone().await.unwrap(), 1);
    fixture.run("DEL asynq:{q}:t:b").await;
    inspector.delete_task(QUEUE, "run").await.unwrap();
    assert_eq!(reader.gone().await.unwrap(), 3);
    // What moves is there, and what is over goes by itself.
    inspector.run_task(QUEUE, "moved").await.unwrap();
    inspector.delete_task(QUEUE, "over").await.unwrap();
    assert_eq!(reader.gone().await.unwrap(), 3);
    // What has run and is kept has run all the same.
    fixture.run("HSET asynq:{q}:t:stays state completed").await;
    assert_eq!(reader.gone().await.unwrap(), 4);
    fixture.run("HSET asynq:{q}:t:kept state completed").await;
    assert_eq!(reader.gone().await.unwrap(), 5, "it was archived");
}

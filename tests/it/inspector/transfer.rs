use queue_core::State;

use super::start;
use crate::support::{QUEUE, job};

async fn ids(reader: &mut queue_redis::Reader) -> Vec<String> {
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
async fn tasks_in_hand_are_read_as_if_they_were_put_back() {
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
        ("active", State::Pending, None),
        ("pending", State::Pending, None),
        ("staged", State::Aggregating, Some("g")),
    ];
    let expected = expected.map(|(id, state, group)| (id.to_owned(), state, group.map(str::to_owned)));
    assert_eq!(found, expected);
    assert!(reader.unfit().is_empty());
}

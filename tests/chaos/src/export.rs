//! A queue that is paused and read as an export reads it, while aggregators of its groups go on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use queue_admin::Inspector;
use queue_redis::broker::StoredTask;

use crate::Failure;
use crate::name::{DIGEST, HEADER};
use crate::node::Redis;

/// How long tasks in hand may take to come to rest.
const PATIENCE: Duration = Duration::from_secs(8);

/// For so long the queue is read, which is longer than its groups wait to be aggregated.
const READING: Duration = Duration::from_secs(4);

/// No longer: producers go on, and nobody works the queue meanwhile. What was read by then is judged.
const LONGEST: Duration = Duration::from_secs(30);

/// The tasks that the export of a queue has more than once: by themselves, and in the digest of their group.
pub(crate) async fn tasks_twice(redis: &Redis, queue: &str) -> Result<Vec<String>, Failure> {
    let inspector = Inspector::new(redis.handle().await?);
    if inspector.stored_queue(queue).await.is_err() {
        return Ok(Vec::new()); // nothing was ever enqueued
    }
    inspector.pause(queue).await?;
    let read = read(&inspector, queue).await;
    inspector.unpause(queue).await?;
    Ok(twice(&read?)
        .into_iter()
        .map(|(name, times)| format!("{name}: {times} times in an export of {queue}"))
        .collect())
}

/// The names that these tasks have more than once, and how often.
fn twice(tasks: &[StoredTask]) -> BTreeMap<String, u32> {
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for name in tasks.iter().flat_map(names) {
        *times.entry(name).or_default() += 1;
    }
    times.retain(|_, times| *times > 1);
    times
}

async fn read(inspector: &Inspector, queue: &str) -> Result<Vec<StoredTask>, Failure> {
    let begun = Instant::now();
    while inspector.tasks_in_hand(queue).await? > 0 {
        if begun.elapsed() > PATIENCE {
            return Ok(Vec::new()); // a worker was killed with some
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (mut reader, mut tasks, mut has_waited) = (inspector.reader(queue, false), Vec::new(), false);
    // The tasks of groups are read first, and the digests that they become last.
    while begun.elapsed() < LONGEST {
        let next = reader.next().await?;
        if next.is_empty() {
            break;
        }
        let was_aggregating = next.iter().any(|task| task.group.is_some());
        tasks.extend(next);
        if was_aggregating && !std::mem::replace(&mut has_waited, true) {
            tokio::time::sleep(READING).await;
        }
    }
    Ok(tasks)
}

/// The name of a task, or of all that became this digest.
fn names(task: &StoredTask) -> Vec<String> {
    match task.message() {
        Ok(message) if message.r#type == DIGEST => {
            String::from_utf8_lossy(&message.payload).split(' ').map(str::to_owned).collect()
        }
        Ok(message) => message.headers.get(HEADER).cloned().into_iter().collect(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use queue_core::{TaskMessage, TaskState};

    use super::*;

    fn stored(message: TaskMessage) -> StoredTask {
        let fields = [("msg".to_owned(), message.to_bytes())].into();
        let id = message.id;
        StoredTask { id, state: TaskState::Pending, score: None, group: None, fields, lock_expires_at_ms: None }
    }

    #[test]
    fn twice_finds_a_task_beside_the_digest_that_has_it() {
        let member = |name: &str| {
            let headers = [(HEADER.to_owned(), name.to_owned())].into();
            stored(TaskMessage { id: name.to_owned(), headers, ..TaskMessage::default() })
        };
        let payload = bytes::Bytes::from_static(b"g0-1-1 g0-1-2");
        let digest = stored(TaskMessage { r#type: DIGEST.to_owned(), payload, ..TaskMessage::default() });
        assert_eq!(twice(&[member("g0-1-2"), digest.clone()]), [("g0-1-2".to_owned(), 2)].into());
        assert_eq!(twice(&[member("g0-1-3"), digest]), BTreeMap::new());
    }
}

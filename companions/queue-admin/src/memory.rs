use queue_core::TaskState;
use queue_core::keys::QueueKeys;

use super::Inspector;
use queue_redis::Error as RedisError;

use crate::error::Error;
use crate::lenient::{sorted, total};
use queue_redis::Connection;

/// Tasks measured of each list, set or group; asynq measures as many.
const SAMPLE: isize = 20;
/// Groups of which tasks are measured; asynq measures as many.
const GROUPS: usize = 5;

/// The keys that hold the ids of one state, how many ids that are, and some of them.
#[derive(Default)]
struct Part {
    keys: Vec<String>,
    size: u64,
    sample: Vec<Vec<u8>>,
}

impl Inspector {
    /// About how many bytes of Redis' memory a queue takes: each list and set as Redis measures it, and for
    /// the tasks of each state the mean of up to 20 (aggregating: of 20 in each of five groups) times their
    /// number. `None` where the server refuses `MEMORY USAGE`, as some hosted ones do.
    ///
    /// # Errors
    /// When there is no such queue, or Redis cannot be asked or refuses anything else.
    pub async fn queue_memory(&self, queue: &str) -> Result<Option<u64>, Error> {
        self.require_queue(queue).await?;
        let keys = QueueKeys::new(queue);
        let mut connection = self.redis.pooled().await?;
        let mut parts = vec![aggregating(&mut connection, &keys).await?];
        for state in TaskState::ALL {
            if let Some(key) = keys.container(state) {
                parts.push(container(&mut connection, state, key).await?);
            }
        }
        let mut memory = 0_u64;
        for part in parts.iter().filter(|part| part.size > 0) {
            match measure(&mut connection, &keys, part).await {
                Ok(bytes) => memory = memory.saturating_add(bytes),
                // What a server without the command answers, or one that denies the right to it.
                Err(Error::Redis(error @ RedisError::Refused { .. })) if !error.is_transient() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(memory))
    }
}

async fn container(connection: &mut Connection, state: TaskState, key: String) -> Result<Part, Error> {
    let is_list = matches!(state, TaskState::Pending | TaskState::Active);
    let mut look = redis::pipe();
    look.cmd(if is_list { "LLEN" } else { "ZCARD" }).arg(&key);
    look.cmd(if is_list { "LRANGE" } else { "ZRANGE" }).arg(&key).arg(0).arg(SAMPLE - 1);
    let (size, sample) = connection.pipeline("sampling a queue", &look).await?;
    Ok(Part { keys: vec![key], size, sample })
}

async fn aggregating(connection: &mut Connection, keys: &QueueKeys) -> Result<Part, Error> {
    let groups = connection.query("SMEMBERS", redis::cmd("SMEMBERS").arg(keys.groups())).await.map(sorted)?;
    let mut part = Part::default();
    if groups.is_empty() {
        return Ok(part);
    }
    part.keys = groups.iter().map(|group| keys.group(group)).collect();
    let mut look = redis::pipe();
    part.keys.iter().for_each(|key| {
        look.cmd("ZCARD").arg(key);
    });
    part.size = total(&connection.pipeline::<Vec<u64>>("counting groups", &look).await?);
    let mut look = redis::pipe();
    part.keys.iter().take(GROUPS).for_each(|key| {
        look.cmd("ZRANGE").arg(key).arg(0).arg(SAMPLE - 1);
    });
    part.sample = connection.pipeline::<Vec<Vec<Vec<u8>>>>("sampling groups", &look).await?.concat();
    Ok(part)
}

async fn measure(connection: &mut Connection, keys: &QueueKeys, part: &Part) -> Result<u64, Error> {
    let mut usage = redis::pipe();
    let tasks = part.sample.iter().map(|id| [keys.task_prefix().as_bytes(), id].concat());
    part.keys.iter().map(|key| key.clone().into_bytes()).chain(tasks).for_each(|key| {
        usage.cmd("MEMORY").arg("USAGE").arg(key);
    });
    // What has gone meanwhile, and an id without a task, takes none.
    let bytes: Vec<Option<u64>> = connection.pipeline("MEMORY USAGE", &usage).await?;
    let (containers, tasks) = bytes.split_at(part.keys.len());
    let tasks: Vec<u64> = tasks.iter().filter_map(|bytes| *bytes).collect();
    let mean = total(&tasks) / (tasks.len() as u64).max(1);
    Ok(total(containers.iter().flatten()).saturating_add(mean.saturating_mul(part.size)))
}

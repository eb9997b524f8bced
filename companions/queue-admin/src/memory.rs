use queue_core::TaskState;
use queue_core::keys::QueueKeys;

use super::Inspector;
use queue_redis::Error as RedisError;

use crate::error::Error;
use crate::lenient::{Text, sorted, total};
use queue_redis::Connection;

/// Tasks measured of each list, set or group; asynq measures as many.
const SAMPLE: isize = 20;
/// Groups of which tasks are measured; asynq measures as many.
const GROUPS: usize = 5;
/// Queues that are measured together: some thousand commands in a round trip.
const AT_ONCE: usize = 20;

/// The keys that hold the ids of one state of a queue, and how many ids that are.
struct Part {
    /// The place of the queue among those that are measured.
    queue: usize,
    keys: Vec<String>,
    is_list: bool,
    size: u64,
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
        let memory = self.queues_memory(&[queue.to_owned()]).await?;
        Ok(memory.into_iter().flatten().next())
    }

    /// The same of several queues, in four round trips for twenty of them. One that is not there takes none.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses anything else.
    pub async fn queues_memory(&self, queues: &[String]) -> Result<Vec<Option<u64>>, Error> {
        let mut connection = self.redis.pooled().await?;
        let mut memory = Vec::with_capacity(queues.len());
        for queues in queues.chunks(AT_ONCE) {
            match measure(&mut connection, queues).await {
                Ok(measured) => memory.extend(measured.into_iter().map(Some)),
                // What a server without the command answers, or one that denies the right to it.
                Err(Error::Redis(error @ RedisError::Refused { .. })) if !error.is_transient() => {
                    memory.extend(queues.iter().map(|_| None));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(memory)
    }
}

async fn measure(connection: &mut Connection, queues: &[String]) -> Result<Vec<u64>, Error> {
    let keys: Vec<QueueKeys> = queues.iter().map(|queue| QueueKeys::new(queue)).collect();
    let mut parts = parts(connection, &keys).await?;
    let mut look = redis::pipe();
    for part in &parts {
        for key in &part.keys {
            look.cmd(if part.is_list { "LLEN" } else { "ZCARD" }).arg(key);
        }
    }
    let sizes: Vec<u64> = connection.pipeline("counting tasks", &look).await?;
    let mut sizes = sizes.iter();
    parts.iter_mut().for_each(|part| part.size = total(sizes.by_ref().take(part.keys.len())));
    parts.retain(|part| part.size > 0);
    if parts.is_empty() {
        return Ok(vec![0; queues.len()]);
    }
    let mut look = redis::pipe();
    for part in &parts {
        for key in part.keys.iter().take(GROUPS) {
            look.cmd(if part.is_list { "LRANGE" } else { "ZRANGE" }).arg(key).arg(0).arg(SAMPLE - 1);
        }
    }
    let samples: Vec<Vec<Vec<u8>>> = connection.pipeline("sampling queues", &look).await?;
    let mut samples = samples.into_iter();
    let mut usage = redis::pipe();
    let mut sampled = Vec::with_capacity(parts.len());
    for part in &parts {
        let prefix = keys[part.queue].task_prefix();
        let ids: Vec<Vec<u8>> = samples.by_ref().take(part.keys.len().min(GROUPS)).flatten().collect();
        sampled.push(ids.len());
        let tasks = ids.iter().map(|id| [prefix.as_bytes(), id].concat());
        part.keys.iter().map(|key| key.clone().into_bytes()).chain(tasks).for_each(|key| {
            usage.cmd("MEMORY").arg("USAGE").arg(key);
        });
    }
    // What has gone meanwhile, and an id without a task, takes none.
    let bytes: Vec<Option<u64>> = connection.pipeline("MEMORY USAGE", &usage).await?;
    let mut bytes = bytes.into_iter();
    let mut memory = vec![0_u64; queues.len()];
    for (part, sampled) in parts.iter().zip(sampled) {
        let containers: Vec<u64> = bytes.by_ref().take(part.keys.len()).flatten().collect();
        let tasks: Vec<u64> = bytes.by_ref().take(sampled).flatten().collect();
        let mean = total(&tasks) / (tasks.len() as u64).max(1);
        let sum = &mut memory[part.queue];
        *sum = sum.saturating_add(total(&containers)).saturating_add(mean.saturating_mul(part.size));
    }
    Ok(memory)
}

/// What there is of these queues: their lists and sets, and for what aggregates all their groups together.
async fn parts(connection: &mut Connection, keys: &[QueueKeys]) -> Result<Vec<Part>, Error> {
    let mut look = redis::pipe();
    keys.iter().for_each(|keys| {
        look.cmd("SMEMBERS").arg(keys.groups());
    });
    let groups: Vec<Vec<Text>> = connection.pipeline("listing groups", &look).await?;
    let mut parts = Vec::new();
    for (queue, (keys, groups)) in keys.iter().zip(groups).enumerate() {
        let part = |keys, is_list| Part { queue, keys, is_list, size: 0 };
        parts.push(part(sorted(groups).iter().map(|group| keys.group(group)).collect(), false));
        for state in TaskState::ALL {
            let is_list = matches!(state, TaskState::Pending | TaskState::Active);
            parts.extend(keys.container(state).map(|key| part(vec![key], is_list)));
        }
    }
    Ok(parts)
}

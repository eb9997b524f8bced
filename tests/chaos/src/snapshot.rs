//! All that is in Redis after a run, each key accounted for.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use queue_core::TaskMessage;
use redis::aio::MultiplexedConnection;

use crate::Failure;
use crate::name::{HEADER, Name, QUEUES};

/// A task as it is stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stored {
    /// Empty for an id that has no hash.
    pub(crate) state: String,
    pub(crate) message: Option<TaskMessage>,
    pub(crate) result: Option<String>,
    /// The lists and sets that have it.
    pub(crate) places: Vec<String>,
}

impl Stored {
    pub(crate) fn name(&self) -> Option<Name> {
        Name::parse(self.message.as_ref()?.headers.get(HEADER)?)
    }
}

/// The counters of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) processed: u64,
    pub(crate) failed: u64,
    /// The sums of the day counters.
    pub(crate) processed_days: u64,
    pub(crate) failed_days: u64,
}

/// What is in Redis.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// By queue and id.
    pub(crate) tasks: HashMap<(usize, String), Stored>,
    /// Locks, by name, with the queue and the id of whoever holds each.
    pub(crate) locks: BTreeMap<String, (usize, String)>,
    /// The names of trees of batches that have keys.
    pub(crate) trees: BTreeSet<String>,
    pub(crate) counters: [Counters; QUEUES.len()],
    /// How often a task was parked under a limit.
    pub(crate) parked: u64,
    /// Keys that should not be there.
    pub(crate) strays: Vec<String>,
    pub(crate) keys: usize,
}

/// Keys of servers, which expire by themselves, and lists that stay.
const FLEET: [&str; 13] = [
    "asynq:queues",
    "asynq:servers",
    "asynq:workers",
    "asynq:servers:{",
    "asynq:workers:{",
    "asynq:x:servers:{",
    "asynq:x:want:{",
    "asynq:x:audit",
    "asynq:x:watchers",
    "asynq:x:events",
    // What the leader looks after. Trees are judged by their own keys.
    "asynq:x:leader",
    "asynq:x:duties",
    "asynq:x:flows",
];

/// What PTTL says of a key that does not expire.
const NEVER: i64 = -1;

impl Snapshot {
    pub(crate) async fn read(connection: &mut MultiplexedConnection) -> Result<Self, Failure> {
        let mut snapshot = Self::default();
        let (mut cursor, mut seen) = (0_u64, std::collections::HashSet::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            let (next, keys): (u64, Vec<String>) =
                scan.arg(cursor).arg("COUNT").arg(1_000).query_async(connection).await?;
            // SCAN may show a key twice.
            let keys: Vec<String> = keys.into_iter().filter(|key| seen.insert(key.clone())).collect();
            snapshot.add(&keys, connection).await?;
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        snapshot.keys = seen.len();
        Ok(snapshot)
    }

    async fn add(&mut self, keys: &[String], connection: &mut MultiplexedConnection) -> Result<(), Failure> {
        let mut hashes = Vec::new();
        for key in keys {
            let place = QUEUES.iter().enumerate().find_map(|(number, queue)| {
                let rest = key.strip_prefix(&format!("asynq:{{{queue}}}"))?;
                // What stands in a mailbox counts as standing in its queue.
                let rest = if rest.starts_with('@') { rest.split_once('}')?.1 } else { rest };
                Some((number, rest.strip_prefix(':')?.to_owned()))
            });
            match place {
                Some((queue, rest)) => match rest.strip_prefix("t:") {
                    Some(id) => hashes.push((key, queue, id.to_owned())),
                    None => self.add_key(key, queue, &rest, connection).await?,
                },
                None if FLEET.iter().any(|known| key == known || known.ends_with('{') && key.starts_with(known)) => {}
                None => match key.strip_prefix("asynq:x:{").and_then(|rest| rest.split_once('}')) {
                    Some((tree, _)) => {
                        self.trees.insert(tree.to_owned());
                    }
                    None => self.strays.push(key.clone()),
                },
            }
        }
        let mut look = redis::pipe();
        for (key, ..) in &hashes {
            look.cmd("HMGET").arg(key).arg("state").arg("msg").arg("result");
        }
        if hashes.is_empty() {
            return Ok(());
        }
        type Fields = (Option<String>, Option<Vec<u8>>, Option<String>);
        let fields: Vec<Fields> = look.query_async(connection).await?;
        for ((_, queue, id), (state, message, result)) in hashes.into_iter().zip(fields) {
            let task = self.tasks.entry((queue, id)).or_default();
            task.state = state.unwrap_or_else(|| "without a state".to_owned());
            task.message = message.and_then(|raw| TaskMessage::from_bytes(Bytes::from(raw)).ok());
            task.result = result;
        }
        Ok(())
    }

    async fn add_key(
        &mut self,
        key: &str,
        queue: usize,
        rest: &str,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), Failure> {
        let number = async |connection: &mut MultiplexedConnection| {
            redis::cmd("GET").arg(key).query_async::<u64>(connection).await
        };
        let counters = &mut self.counters[queue];
        let ids: Vec<String> = match rest {
            "pending" | "active" => redis::cmd("LRANGE").arg(key).arg(0).arg(-1).query_async(connection).await?,
            "lease" | "scheduled" | "retry" | "archived" | "completed" => members(key, connection).await?,
            // Full names of sets; those that are left hold tasks, which are found by themselves.
            "aggregation_sets" | "groups" => return Ok(()),
            // Ids of callbacks, for a day.
            "x:once" => return Ok(()),
            "processed" => {
                counters.processed += number(connection).await?;
                return Ok(());
            }
            "failed" => {
                counters.failed += number(connection).await?;
                return Ok(());
            }
            _ if rest.starts_with("processed:") => {
                counters.processed_days += number(connection).await?;
                return Ok(());
            }
            _ if rest.starts_with("failed:") => {
                counters.failed_days += number(connection).await?;
                return Ok(());
            }
            _ if rest.starts_with("unique:") => {
                let holder: Option<String> = redis::cmd("GET").arg(key).query_async(connection).await?;
                self.locks.insert(key.to_owned(), (queue, holder.unwrap_or_default()));
                return Ok(());
            }
            "x:rules" => return Ok(()),
            "x:limit-stats" => {
                let stats: HashMap<String, u64> = redis::cmd("HGETALL").arg(key).query_async(connection).await?;
                self.parked +=
                    stats.iter().filter(|(name, _)| name.ends_with(":parked")).map(|(_, count)| count).sum::<u64>();
                return Ok(());
            }
            // They go away with the server that it names, and with who listens.
            "x:reconciler" | "x:events" => {
                let left: i64 = redis::cmd("PTTL").arg(key).query_async(connection).await?;
                if left == NEVER {
                    self.strays.push(format!("{key}, which never expires"));
                }
                return Ok(());
            }
            _ if rest.starts_with("g:") => members(key, connection).await?,
            _ => {
                self.strays.push(key.to_owned());
                return Ok(());
            }
        };
        for id in ids {
            self.tasks.entry((queue, id)).or_default().places.push(rest.to_owned());
        }
        Ok(())
    }
}

async fn members(key: &str, connection: &mut MultiplexedConnection) -> Result<Vec<String>, Failure> {
    Ok(redis::cmd("ZRANGE").arg(key).arg(0).arg(-1).query_async(connection).await?)
}

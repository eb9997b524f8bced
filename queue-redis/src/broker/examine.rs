//! Where tasks are, and bringing them back: `examine_tasks.lua`, `mend_task.lua`, `remove_key.lua`,
//! `undo_entry.lua`.

use bytes::Bytes;
use queue_core::doctor::{Entry, Remedy, Suspect, Target, Whereabouts};
use queue_core::keys::QueueKeys;
use redis::{Cmd, Value};

use super::{Broker, MAX_BATCH};
use crate::error::Error;
use crate::script::{EXAMINE_TASKS, MEND_TASK, REMOVE_KEY, UNDO_ENTRY};

/// How many entries of lists may be searched in one call. Redis looks at about 50 of them in a microsecond.
const MAX_SEARCHED: usize = 20_000;

fn holders(call: &mut Cmd, keys: &QueueKeys) {
    call.arg(keys.pending()).arg(keys.active()).arg(keys.lease()).arg(keys.scheduled()).arg(keys.retry());
    call.arg(keys.archived()).arg(keys.completed()).arg(keys.aggregation_sets()).arg(keys.aggregated());
}

fn bytes(value: &Value) -> Option<Bytes> {
    if let Value::BulkString(bytes) = value { Some(Bytes::copy_from_slice(bytes)) } else { None }
}

fn text(value: &Value) -> Option<String> {
    bytes(value).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn parse(reply: &Value) -> Option<Whereabouts> {
    let Value::Array(parts) = reply else { return None };
    let [digest, key_type, message, state, group, expires, pending_since, lease, is_remains, entries @ ..] = &parts[..]
    else {
        return None;
    };
    let entry = |parts: &[Value]| {
        let [key, score, is_staged] = parts else { return None };
        Some(Entry { key: bytes(key)?, score: text(score)?, is_staged: text(is_staged)? == "1" })
    };
    Some(Whereabouts {
        digest: bytes(digest)?,
        key_type: text(key_type)?,
        message: bytes(message)?,
        state: text(state)?,
        group: bytes(group)?,
        expires: text(expires)? == "1",
        pending_since: text(pending_since)?,
        lease: text(lease)?,
        is_remains: text(is_remains)? == "1",
        entries: entries.chunks(3).map(entry).collect::<Option<_>>()?,
    })
}

impl Broker {
    /// How many tasks of this queue one call of [`examine_tasks`](Self::examine_tasks) should look at, so that
    /// it does not keep others waiting.
    pub async fn examine_at_once(&self, queue: &str) -> Result<usize, Error> {
        let keys = QueueKeys::new(queue);
        let mut look = redis::pipe();
        look.cmd("LLEN").arg(keys.pending()).cmd("LLEN").arg(keys.active()).ignore_errors();
        let lengths: Vec<redis::RedisResult<usize>> = self.redis.pipeline("LLEN", &look).await?;
        let searched: usize = lengths.into_iter().flatten().sum();
        Ok((MAX_SEARCHED / searched.max(1)).clamp(1, MAX_BATCH))
    }

    /// Looks at tasks, each at one moment.
    pub async fn examine_tasks(&self, queue: &str, suspects: &[Suspect]) -> Result<Vec<Whereabouts>, Error> {
        if suspects.is_empty() {
            return Ok(Vec::new());
        }
        let keys = QueueKeys::new(queue);
        let mut call = EXAMINE_TASKS.call(9);
        holders(&mut call, &keys);
        call.arg(keys.prefix());
        for suspect in suspects {
            call.arg(&suspect.id[..]).arg(suspect.groups.len());
            suspect.groups.iter().for_each(|group| {
                call.arg(&group[..]);
            });
        }
        let reply = self.redis.run(&EXAMINE_TASKS, &call).await?;
        let Value::Array(found) = &reply else { return Err(Error::unexpected(EXAMINE_TASKS.name, &reply)) };
        let found: Option<Vec<Whereabouts>> = found.iter().map(parse).collect();
        found.filter(|found| found.len() == suspects.len()).ok_or_else(|| Error::unexpected(EXAMINE_TASKS.name, &reply))
    }

    /// Does what is to be done about a task that is still as it was seen; returns whether it was.
    pub(crate) async fn mend_task(
        &self,
        queue: &str,
        suspect: &Suspect,
        digest: &[u8],
        remedy: &Remedy,
        now_ns: i64,
    ) -> Result<bool, Error> {
        let keys = QueueKeys::new(queue);
        let task = [keys.task_prefix().as_bytes(), &suspect.id].concat();
        let mut call = MEND_TASK.call(12);
        holders(&mut call, &keys);
        call.arg(keys.groups()).arg(&task);
        match remedy {
            Remedy::Place(target) => call.arg(&target.key[..]),
            Remedy::Delete { .. } => call.arg(&task),
        };
        call.arg(keys.prefix()).arg(&suspect.id[..]).arg(digest);
        match remedy {
            Remedy::Place(Target { score, state, group, lease, .. }) => {
                call.arg(score).arg(state.as_str()).arg(&group[..]).arg(lease).arg("")
            }
            Remedy::Delete { copy } => call.arg("").arg("").arg("").arg("").arg(&copy[..]),
        };
        call.arg(now_ns);
        suspect.groups.iter().for_each(|group| {
            call.arg(&group[..]);
        });
        Ok(self.integer(&MEND_TASK, &call).await? == 1)
    }

    /// Deletes a key if it still is what `copy` (its `DUMP`) says; for a lock, if the task that it names
    /// (`holders`, its key and its message in each queue) is as it was, too. Returns whether it was deleted.
    pub(crate) async fn remove_key(&self, key: &[u8], copy: &[u8], holders: &[(Bytes, Bytes)]) -> Result<bool, Error> {
        let mut call = REMOVE_KEY.call(1 + holders.len());
        call.arg(key);
        holders.iter().for_each(|(holder, _)| {
            call.arg(&holder[..]);
        });
        call.arg(copy);
        holders.iter().for_each(|(_, message)| {
            call.arg(&message[..]);
        });
        Ok(self.integer(&REMOVE_KEY, &call).await? == 1)
    }

    /// Lists an id again in a list (`score` empty) or set; returns whether it was not there.
    pub(crate) async fn undo_entry(&self, key: &[u8], id: &[u8], score: &str) -> Result<bool, Error> {
        let mut call = UNDO_ENTRY.call(1);
        call.arg(key).arg(id).arg(score);
        Ok(self.integer(&UNDO_ENTRY, &call).await? == 1)
    }
}

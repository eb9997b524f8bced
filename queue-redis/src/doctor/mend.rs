//! Repairs: each is one atomic step that looks again before it writes; and copies of what they delete.

use bytes::Bytes;
use queue_core::Clock as _;
use queue_core::doctor::{Finding, Remedy, Repair};
use queue_core::keys::QueueKeys;

use super::Doctor;
use crate::error::Error;

impl Doctor {
    /// What the repair of a finding would delete, as it is now. Keep it before you [`mend`](Self::mend): in a
    /// file that is on disk, say. Empty for a repair that deletes nothing.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn copies(&self, finding: &Finding) -> Result<Vec<Copied>, Error> {
        match &finding.repair {
            Some(Repair::Key { key, .. }) => Ok(self.copy_key(key).await?.into_iter().collect()),
            Some(repair @ Repair::Task { queue, suspect, remedy, entries, lease, .. }) if repair.deletes() => {
                let keys = QueueKeys::new(queue);
                let entry = |key: &[u8], score: &str| Copied::Entry {
                    key: Bytes::copy_from_slice(key),
                    id: suspect.id.clone(),
                    score: Some(score.to_owned()).filter(|score| !score.is_empty()),
                };
                let mut copies: Vec<Copied> = entries.iter().map(|found| entry(&found.key, &found.score)).collect();
                if !lease.is_empty() {
                    copies.push(entry(keys.lease().as_bytes(), lease));
                }
                if matches!(remedy, Remedy::Delete { .. }) {
                    let task = [keys.task_prefix().as_bytes(), &suspect.id].concat();
                    copies.extend(self.copy_key(&task).await?);
                }
                Ok(copies)
            }
            _ => Ok(Vec::new()),
        }
    }

    async fn copy_key(&self, key: &[u8]) -> Result<Option<Copied>, Error> {
        let mut look = redis::pipe();
        look.cmd("DUMP").arg(key).cmd("PTTL").arg(key).cmd("TIME");
        let mut connection = self.redis.pooled().await?;
        type Found = (Option<Vec<u8>>, i64, (i64, i64));
        let (dump, ttl_ms, (secs, micros)): Found = connection.pipeline("copying a key", &look).await?;
        let expires_at_ms = (ttl_ms >= 0).then(|| secs * 1_000 + micros / 1_000 + ttl_ms);
        Ok(dump.map(|dump| Copied::Key { key: Bytes::copy_from_slice(key), dump: dump.into(), expires_at_ms }))
    }

    /// Repairs what was found, in one atomic step, if it is still as it was found, and what is deleted is what
    /// `copies` holds ([`copies`](Self::copies) gave them). Returns whether it was; if not, nothing was changed:
    /// examine again.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn mend(&self, finding: &Finding, copies: &[Copied]) -> Result<bool, Error> {
        let Some(repair) = &finding.repair else { return Ok(false) };
        self.clock.refresh(&self.redis).await?;
        let broker = self.broker();
        let dump_of = |name: &[u8]| {
            copies.iter().find_map(|copy| match copy {
                Copied::Key { key, dump, .. } if key == name => Some(dump.clone()),
                _ => None,
            })
        };
        match repair {
            Repair::Task { queue, suspect, digest, remedy, .. } => {
                if repair.deletes() && copies.is_empty() {
                    return Ok(false);
                }
                let task = [QueueKeys::new(queue).task_prefix().as_bytes(), &suspect.id].concat();
                let remedy = match remedy {
                    Remedy::Delete { .. } => Remedy::Delete { copy: dump_of(&task).unwrap_or_default() },
                    remedy => remedy.clone(),
                };
                broker.mend_task(queue, suspect, digest, &remedy, self.clock.now_ns()).await
            }
            Repair::Key { key, holders } => {
                let Some(dump) = dump_of(key) else { return Ok(false) };
                broker.remove_key(key, &dump, holders).await
            }
            Repair::ListGroup { queue, group } => {
                Ok(broker.list_groups_again(queue, std::slice::from_ref(group)).await? != [0, 0])
            }
            Repair::ListSet { queue, key } => {
                let sets = QueueKeys::new(queue).aggregation_sets();
                Ok(self.redis.command::<u64>("ZADD", (sets, "NX", self.clock.now_secs(), &key[..])).await? > 0)
            }
            Repair::Reclaim { queue, group, set, only_expired } => {
                let cutoff = only_expired.then(|| self.clock.now_secs());
                broker.reclaim(queue, group, set, cutoff).await?;
                Ok(true)
            }
            Repair::Flow { root, flow, repair } => self.mend_flow(root, *flow, *repair).await,
            Repair::Lanes { queue, entries } => Ok(broker.mend_lanes(queue, entries).await? > 0),
            Repair::ListQueue { queue } => {
                broker.publish_queue(queue).await?;
                Ok(true)
            }
            Repair::Unlist { set, member } => Ok(self.redis.command::<u64>("ZREM", (set, &member[..])).await? > 0),
            Repair::Purge { set, before } => {
                Ok(self.redis.command::<u64>("ZREMRANGEBYSCORE", (set, "-inf", *before)).await? > 0)
            }
        }
    }

    /// Brings back what a repair has deleted, if its place is free; returns whether it was. A key of a Redis that
    /// is newer than this one may be refused.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn undo(&self, copy: &Copied) -> Result<bool, Error> {
        match copy {
            Copied::Entry { key, id, score } => {
                self.broker().undo_entry(key, id, score.as_deref().unwrap_or_default()).await
            }
            Copied::Key { key, dump, expires_at_ms } => {
                let entry = (&key[..], expires_at_ms.unwrap_or(0), &dump[..], "ABSTTL");
                match self.redis.command::<()>("RESTORE", entry).await {
                    Ok(()) => Ok(true),
                    Err(Error::Refused { code, .. }) if code == "BUSYKEY" => Ok(false),
                    Err(error) => Err(error),
                }
            }
        }
    }
}

/// What a repair deletes, as it was: to be kept until nobody misses it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Copied {
    /// A whole key.
    Key {
        /// Its name.
        key: Bytes,
        /// What `DUMP` gives for it.
        dump: Bytes,
        /// Unix millisecond at which it would have expired; `None` for never.
        expires_at_ms: Option<i64>,
    },
    /// An id in a list or sorted set.
    Entry {
        /// The name of the list or set.
        key: Bytes,
        /// The id.
        id: Bytes,
        /// Its score; `None` in a list.
        score: Option<String>,
    },
}

impl Copied {
    /// The copy of a key, read back from where it was kept.
    pub fn key(key: impl Into<Bytes>, dump: impl Into<Bytes>, expires_at_ms: Option<i64>) -> Self {
        Self::Key { key: key.into(), dump: dump.into(), expires_at_ms }
    }

    /// The copy of an id in a list or sorted set, read back from where it was kept.
    pub fn entry(key: impl Into<Bytes>, id: impl Into<Bytes>, score: Option<String>) -> Self {
        Self::Entry { key: key.into(), id: id.into(), score }
    }
}

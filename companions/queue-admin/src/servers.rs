use std::collections::BTreeMap;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use queue_core::Clock as _;
use queue_core::TaskOptions;
use queue_core::keys::{SERVER_ENTRY, SERVERS, WORKERS};
use queue_core::queue_name::QueueName;
use queue_core::registry::{ServerEntry, TARGETS, honours};
use queue_core::wire;

use super::Inspector;
use crate::error::Error;

/// A server, Go's or ours, as it described itself at its last heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// UUID of the server.
    pub id: String,
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: i32,
    /// How many tasks it runs at once.
    pub concurrency: i32,
    /// Queues and their priorities.
    pub queues: BTreeMap<String, i32>,
    /// Whether it serves them strictly by priority.
    pub strict_priority: bool,
    /// `active`, `stopped` (takes no more tasks) or `closed` (is ending).
    pub status: String,
    /// When it started.
    pub started: Option<DateTime<Utc>>,
    /// What it works on.
    pub workers: Vec<WorkerInfo>,
    /// What it says beyond asynq's format; `None` of Go's servers, and of older ones of ours.
    pub entry: Option<ServerEntry>,
}

impl ServerInfo {
    /// The name that it was given.
    pub fn name(&self) -> Option<&str> {
        self.entry.as_ref()?.name.as_deref()
    }

    /// Whether it takes tasks of this queue, or will as soon as there is one: it has named the queue or joined it, or it serves
    /// the base of the queue's family and has the name or the labels that the queue is for.
    pub fn fits(&self, queue: &str) -> bool {
        if self.queues.contains_key(queue) {
            return true;
        }
        let (QueueName { base, family }, Some(entry)) = (QueueName::parse(queue), &self.entry) else { return false };
        let admits = family.is_some_and(|family| {
            family.is_target() && family.admits(entry.name.as_deref(), &entry.labels) && honours(Some(entry), TARGETS)
        });
        admits && self.queues.contains_key(base)
    }

    /// `<host>:<pid>:<uuid>`, which stands in the names of its keys.
    pub(crate) fn key(&self) -> String {
        format!("{}:{}:{}", self.host, self.pid, self.id)
    }
}

/// A task that a server works on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// Task id.
    pub task_id: String,
    /// Task type.
    pub task_type: String,
    /// Payload bytes.
    pub payload: Bytes,
    /// Queue name.
    pub queue: String,
    /// When the attempt started.
    pub started: Option<DateTime<Utc>>,
    /// When the attempt must end.
    pub deadline: Option<DateTime<Utc>>,
}

impl Inspector {
    /// The servers that are alive and may run a task with these options; empty also where nobody serves its queue. Clients do
    /// not ask that: a task for a server that is not there waits for it.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn servers_for(&self, options: &TaskOptions) -> Result<Vec<ServerInfo>, Error> {
        let queue = options.queue_name();
        Ok(self.servers().await?.into_iter().filter(|server| server.fits(&queue)).collect())
    }

    /// The servers that are alive, by host and process.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn servers(&self) -> Result<Vec<ServerInfo>, Error> {
        self.look_at_the_clock().await?;
        let mut connection = self.redis.pooled().await?;
        let now = self.clock.now_secs();
        let mut index = redis::pipe();
        for set in [SERVERS, WORKERS] {
            index.cmd("ZRANGEBYSCORE").arg(set).arg(now).arg("+inf");
        }
        let (infos, hashes): (Vec<Vec<u8>>, Vec<Vec<u8>>) = connection.pipeline("listing servers", &index).await?;
        if infos.is_empty() {
            return Ok(Vec::new());
        }
        let mut fetch = redis::pipe();
        for key in &infos {
            fetch.cmd("GET").arg(key);
        }
        for key in &infos {
            // What servers of ours say beyond that stands in a key that ends alike.
            let end = key.get(SERVERS.len() + 1..).unwrap_or_default();
            fetch.cmd("GET").arg([SERVER_ENTRY.as_bytes(), end].concat());
        }
        let mut infos: Vec<Option<Vec<u8>>> = connection.pipeline("reading servers", &fetch).await?;
        let entries = infos.split_off(infos.len() / 2);
        let mut fetch = redis::pipe();
        for key in &hashes {
            fetch.cmd("HVALS").arg(key);
        }
        let workers: Vec<Vec<Vec<u8>>> =
            if hashes.is_empty() { Vec::new() } else { connection.pipeline("reading workers", &fetch).await? };
        let mut by_server: BTreeMap<String, Vec<WorkerInfo>> = BTreeMap::new();
        for worker in workers.iter().flatten().filter_map(|raw| wire::WorkerInfo::from_bytes(raw).ok()) {
            by_server.entry(worker.server_id).or_default().push(WorkerInfo {
                task_id: worker.task_id,
                task_type: worker.task_type,
                payload: worker.task_payload,
                queue: worker.queue,
                started: worker.start_time.and_then(wire::Timestamp::to_date),
                deadline: worker.deadline.and_then(wire::Timestamp::to_date),
            });
        }
        let infos = infos.iter().zip(entries).filter_map(|(raw, entry)| {
            let info = wire::ServerInfo::from_bytes(raw.as_deref()?).ok()?;
            Some((info, entry.and_then(|json| ServerEntry::parse(&json))))
        });
        let mut servers: Vec<ServerInfo> = infos
            .map(|(info, entry)| ServerInfo {
                workers: by_server.remove(&info.server_id).unwrap_or_default(),
                entry,
                id: info.server_id,
                host: info.host,
                pid: info.pid,
                concurrency: info.concurrency,
                queues: info.queues,
                strict_priority: info.strict_priority,
                status: info.status,
                started: info.start_time.and_then(wire::Timestamp::to_date),
            })
            .collect();
        servers.sort_by(|a, b| (&a.host, a.pid, &a.id).cmp(&(&b.host, b.pid, &b.id)));
        Ok(servers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_fits_by_its_name_its_labels_or_because_it_says_so() {
        let labels = ["eu".to_owned(), "gpu".to_owned()].into();
        let features = [TARGETS.to_owned()].into();
        let mut entry = ServerEntry::default();
        (entry.name, entry.labels, entry.features) = (Some("web-1".to_owned()), labels, features);
        let ours = ServerInfo { queues: [("mail".to_owned(), 1)].into(), entry: Some(entry), ..ServerInfo::default() };
        for queue in ["mail", "mail}@web-1", "mail}#gpu", "mail}#eu+gpu"] {
            assert!(ours.fits(queue), "{queue}");
        }
        for queue in ["news", "news}@web-1", "mail}@web-2", "mail}#big", "mail}#eu+gpu+big", "mail}p9"] {
            assert!(!ours.fits(queue), "{queue}");
        }
        let mut older = ours;
        older.entry.as_mut().unwrap().features.clear();
        assert!(older.fits("mail") && !older.fits("mail}@web-1"));
        let go = ServerInfo { queues: [("mail}@web-1".to_owned(), 1)].into(), ..ServerInfo::default() };
        assert!(go.fits("mail}@web-1") && !go.fits("mail}#gpu") && !go.fits("mail"));
    }
}

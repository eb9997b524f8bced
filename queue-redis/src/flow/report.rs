//! What became of a broadcast, server by server.

use std::collections::HashSet;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use queue_core::broadcast::Verdict;
use queue_core::flow::{FlowId, MemberId, MemberState};
use queue_core::keys::QueueKeys;
use queue_core::limits::MAX_BATCH;
use queue_core::{TaskMessage, TaskState};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Flows;
use super::status::{BatchState, status_of};
use crate::error::Error;

queue_core::words! {
    /// What has become of a task on one server.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum WorkerState {
        /// It waits in the mailbox of the server.
        Waiting: "waiting",
        /// It runs.
        Running: "running",
        /// It has failed, and will be tried again.
        Failed: "failed",
        /// It has not ended, and no server of the name is alive. One that comes back goes on with it.
        Gone: "gone",
        /// It succeeded.
        Succeeded: "succeeded",
        /// It is in the archive.
        Dead: "dead",
        /// It was deleted, revoked or lost.
        Removed: "removed",
        /// It was cancelled, by somebody or at the deadline.
        Cancelled: "cancelled",
        /// No server of the name was alive for so long that another one does its part.
        Replaced: "replaced",
    }
}

impl WorkerState {
    fn of(member: MemberState, task: Option<TaskState>, is_alive: bool) -> Self {
        match (member, task) {
            (MemberState::Succeeded, _) => Self::Succeeded,
            (MemberState::Dead, _) => Self::Dead,
            (MemberState::Removed, _) => Self::Removed,
            (MemberState::Cancelled, _) => Self::Cancelled,
            _ if !is_alive => Self::Gone,
            (_, Some(TaskState::Retry)) => Self::Failed,
            // What has ended will be recorded in a moment.
            (_, Some(TaskState::Active | TaskState::Completed | TaskState::Archived)) => Self::Running,
            _ => Self::Waiting,
        }
    }
}

/// What one server has made of a broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Its name.
    pub server: String,
    /// What has become of its task.
    pub state: WorkerState,
    /// The queue of its task: its mailbox.
    pub queue: String,
    /// The id of its task.
    pub task: String,
    /// The error of its last attempt that failed, while it has not succeeded.
    pub error: Option<String>,
    /// Its result, if it succeeded and has left one.
    pub result: Option<Bytes>,
}

impl WorkerReport {
    /// The result, read as JSON; `None` where there is none.
    ///
    /// # Errors
    /// When it is not what is expected.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, serde_json::Error> {
        self.result.as_deref().map(serde_json::from_slice).transpose()
    }
}

/// How a broadcast stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BroadcastStatus {
    /// Its id.
    pub id: String,
    /// Type of its task.
    pub task_type: String,
    /// The queue whose servers were chosen.
    pub queue: String,
    /// How many servers have to succeed.
    pub quorum: u32,
    /// Whether so many have.
    pub verdict: Verdict,
    /// How it stands as a batch, which goes by all servers and not by the quorum.
    pub state: BatchState,
    /// When it was sent.
    pub created: Option<DateTime<Utc>>,
    /// When it is cancelled if it is not over by then.
    pub deadline: Option<DateTime<Utc>>,
    /// When every server had ended.
    pub over: Option<DateTime<Utc>>,
    /// Until when servers that start have a part in it, too.
    pub joins_until: Option<DateTime<Utc>>,
    /// The servers that were chosen, by name; behind them those that have joined, as they came.
    pub workers: Vec<WorkerReport>,
}

impl BroadcastStatus {
    /// How many servers have succeeded.
    pub fn succeeded(&self) -> usize {
        self.workers.iter().filter(|worker| worker.state == WorkerState::Succeeded).count()
    }

    /// How many servers have a part in it: all but those that were replaced.
    pub fn servers(&self) -> usize {
        self.workers.iter().filter(|worker| worker.state != WorkerState::Replaced).count()
    }
}

impl Flows {
    /// How a broadcast stands, server by server; `None` if there is none of this id. Reads all results.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn broadcast(&self, id: &FlowId) -> Result<Option<BroadcastStatus>, Error> {
        let Some(ledger) = self.ledger(id).await? else { return Ok(None) };
        let Some(plan) = ledger.plan() else { return Ok(None) };
        let status = status_of(id, &ledger);
        let (born, alive) = (self.born(id.root()).await?, self.alive().await?);
        let state_of =
            |number: u32, server: &str, task| match WorkerState::of(ledger.state(number), task, alive.contains(server))
            {
                WorkerState::Removed | WorkerState::Dead if plan.lost.contains(&number) => WorkerState::Replaced,
                state => state,
            };
        let members: Vec<(u32, WorkerReport)> = plan
            .members()
            .map(|(number, server)| {
                let report = WorkerReport {
                    state: state_of(number, server, None),
                    queue: ledger.queue_of(number).to_owned(),
                    task: MemberId { flow: id.clone(), born, part: ledger.part(number) }.to_string(),
                    server: server.to_owned(),
                    error: None,
                    result: None,
                };
                (number, report)
            })
            .collect();
        let mut workers = Vec::with_capacity(members.len());
        for members in members.chunks(MAX_BATCH) {
            let mut look = redis::pipe();
            for (_, member) in members {
                look.cmd("HMGET").arg(QueueKeys::new(&member.queue).task(&member.task)).arg("state").arg("result");
                // Its error; what has succeeded has none, and may be large.
                look.arg(if member.state == WorkerState::Succeeded { "" } else { "msg" });
            }
            type Read = (Option<String>, Option<Vec<u8>>, Option<Vec<u8>>);
            let read: Vec<Read> = self.broker.redis().pipeline("HMGET", &look).await?;
            for ((number, member), (state, result, message)) in members.iter().zip(read) {
                let task = state.and_then(|state| state.parse().ok());
                let state = state_of(*number, &member.server, task);
                let message = message.and_then(|raw| TaskMessage::from_bytes(raw.into()).ok());
                let error = message.map(|message| message.error_msg).filter(|error| !error.is_empty());
                let result = result.filter(|_| state == WorkerState::Succeeded).map(Bytes::from);
                workers.push(WorkerReport { state, error, result, ..member.clone() });
            }
        }
        Ok(Some(BroadcastStatus {
            id: id.to_string(),
            verdict: status.verdict().unwrap_or(Verdict::Open),
            joins_until: plan.until.and_then(|second| DateTime::from_timestamp(second, 0)),
            quorum: plan.quorum,
            task_type: plan.r#type,
            queue: plan.queue,
            state: status.state,
            created: status.created,
            deadline: status.deadline,
            over: status.over,
            workers,
        }))
    }

    /// The names of the servers that are alive.
    async fn alive(&self) -> Result<HashSet<String>, Error> {
        let servers = self.broker.live_servers().await?;
        Ok(servers.into_iter().filter_map(|(_, entry)| entry?.name).collect())
    }
}

//! What tools write as JSON: the values of this crate with the names and units that programs rely on.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use queue_core::budget::Account;
use queue_core::clock::UnixSecond;
use queue_core::doctor::Finding as Found;
use queue_core::limit::LaneChange;
use queue_core::registry::{ORDERS, ServerEntry, honours};
use queue_core::{RetryPolicy, TaskInfo, TaskState};
use serde::Serialize;

use crate::{LimitInfo, QueueInfo, ServerInfo, WorkerInfo, payload};

/// Bytes: as text if they are, else in base64, and read as MessagePack if they are that.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Bytes {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Binary {
        /// The bytes.
        base64: String,
        /// The same as JSON, if they are a map or an array.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_pack: Option<serde_json::Value>,
    },
}

impl Bytes {
    /// These bytes.
    pub fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Binary { base64: STANDARD.encode(bytes), message_pack: payload::message_pack(bytes) },
        }
    }
}

/// A task.
#[derive(Debug, Serialize)]
pub struct Task {
    id: String,
    queue: String,
    r#type: String,
    state: TaskState,
    payload: Bytes,
    max_retry: i32,
    retried: i32,
    last_error: Option<String>,
    last_failed_at: Option<DateTime<Utc>>,
    timeout_secs: Option<u64>,
    deadline: Option<DateTime<Utc>>,
    group: Option<String>,
    next_process_at: Option<DateTime<Utc>>,
    retention_secs: u64,
    completed_at: Option<DateTime<Utc>>,
    result: Option<Bytes>,
    progress: Option<Progress>,
    budgets: Option<Budgets>,
    headers: BTreeMap<String, String>,
    orphaned: bool,
}

/// How far a task is.
#[derive(Debug, Serialize)]
pub struct Progress {
    percent: u8,
    at: Option<DateTime<Utc>>,
    note: String,
}

impl From<queue_core::progress::Progress> for Progress {
    fn from(progress: queue_core::progress::Progress) -> Self {
        Self { percent: progress.percent, at: progress.at.date(), note: progress.note }
    }
}

/// The budgets that a task has of its own, and what is spent of them.
#[derive(Debug, Serialize)]
pub struct Budgets {
    crashes: u32,
    max_crashes: Option<u32>,
    snoozes: u32,
    max_snoozes: Option<u32>,
    give_up_after_secs: Option<u64>,
    first_failed_at: Option<DateTime<Utc>>,
    backoff: Option<String>,
    on_exhausted: Option<String>,
    on_exhausted_queue: Option<String>,
}

impl From<Account> for Budgets {
    fn from(account: Account) -> Self {
        let Account { budget, crashes, snoozes, first_failed } = account;
        Self {
            crashes,
            max_crashes: budget.max_crashes,
            snoozes,
            max_snoozes: budget.max_snoozes,
            give_up_after_secs: budget.give_up_after.map(|after| after.as_secs()),
            first_failed_at: first_failed.and_then(UnixSecond::date),
            backoff: budget.backoff.as_ref().and_then(RetryPolicy::text),
            on_exhausted: budget.on_exhausted,
            on_exhausted_queue: budget.on_exhausted_queue,
        }
    }
}

/// An attempt that failed.
#[derive(Debug, Serialize)]
pub struct Attempt {
    at: Option<DateTime<Utc>>,
    took_ms: Option<u64>,
    end: &'static str,
    server: String,
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    backtrace: Option<String>,
}

impl From<queue_core::attempt::Attempt> for Attempt {
    fn from(attempt: queue_core::attempt::Attempt) -> Self {
        Self {
            at: attempt.ended.date(),
            took_ms: attempt.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            end: attempt.end.as_str(),
            server: attempt.server,
            error: attempt.error,
            backtrace: attempt.backtrace,
        }
    }
}

/// A line of the log of a task.
#[derive(Debug, Serialize)]
pub struct LogLine {
    at: Option<DateTime<Utc>>,
    attempt: u32,
    text: String,
}

impl From<&queue_core::task_log::LogLine> for LogLine {
    fn from(line: &queue_core::task_log::LogLine) -> Self {
        Self { at: line.at.date(), attempt: line.attempt, text: line.text.clone() }
    }
}

/// A task with what was asked for beside it.
#[derive(Debug, Serialize)]
pub struct TaskInFull {
    #[serde(flatten)]
    task: Task,
    /// The last attempts at it, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<Vec<Attempt>>,
    /// The last lines of its log, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<Vec<LogLine>>,
    /// How many lines there were before those.
    #[serde(skip_serializing_if = "Option::is_none")]
    log_left_out: Option<u64>,
}

impl TaskInFull {
    /// All of it.
    pub fn new(
        task: TaskInfo,
        attempts: Option<Vec<queue_core::attempt::Attempt>>,
        log: Option<&queue_core::task_log::TaskLog>,
    ) -> Self {
        let attempts = attempts.map(|attempts| attempts.into_iter().map(Attempt::from).collect());
        let lines = log.map(|log| log.lines().map(LogLine::from).collect());
        Self { task: task.into(), attempts, log: lines, log_left_out: log.map(queue_core::task_log::TaskLog::left_out) }
    }
}

impl From<TaskInfo> for Task {
    fn from(task: TaskInfo) -> Self {
        Self {
            payload: Bytes::new(&task.payload),
            result: task.result.as_deref().map(Bytes::new),
            progress: task.progress.map(Progress::from),
            budgets: Account::of(&task.headers, task.crashes).map(Budgets::from),
            timeout_secs: task.timeout.map(|timeout| timeout.as_secs()),
            retention_secs: task.retention.as_secs(),
            id: task.id,
            queue: task.queue,
            r#type: task.task_type,
            state: task.state,
            max_retry: task.max_retry,
            retried: task.retried,
            last_error: task.last_error,
            last_failed_at: task.last_failed_at,
            deadline: task.deadline,
            group: task.group,
            next_process_at: task.next_process_at,
            completed_at: task.completed_at,
            headers: task.headers,
            orphaned: task.is_orphaned,
        }
    }
}

/// A queue.
#[derive(Debug, Serialize)]
pub struct Queue {
    queue: String,
    paused: bool,
    size: u64,
    #[serde(flatten)]
    states: BTreeMap<&'static str, u64>,
    groups: u64,
    latency_ms: u64,
    processed_today: u64,
    failed_today: u64,
    processed_total: u64,
    failed_total: u64,
    timestamp: DateTime<Utc>,
}

impl From<&QueueInfo> for Queue {
    fn from(queue: &QueueInfo) -> Self {
        Self {
            queue: queue.name.clone(),
            paused: queue.paused,
            size: queue.size(),
            states: TaskState::ALL.map(|state| (state.as_str(), queue.count(state))).into(),
            groups: queue.groups,
            latency_ms: u64::try_from(queue.latency.as_millis()).unwrap_or(u64::MAX),
            processed_today: queue.processed,
            failed_today: queue.failed,
            processed_total: queue.processed_total,
            failed_total: queue.failed_total,
            timestamp: queue.timestamp,
        }
    }
}

/// A server.
#[derive(Debug, Serialize)]
pub struct Server {
    id: String,
    host: String,
    pid: i32,
    name: Option<String>,
    labels: BTreeSet<String>,
    takes_orders: bool,
    refused_orders: Vec<String>,
    status: String,
    started: Option<DateTime<Utc>>,
    concurrency: i32,
    strict_priority: bool,
    queues: BTreeMap<String, i32>,
    workers: Vec<Worker>,
}

/// A task in the hands of a server.
#[derive(Debug, Serialize)]
struct Worker {
    task_id: String,
    r#type: String,
    queue: String,
    payload: Bytes,
    started: Option<DateTime<Utc>>,
    deadline: Option<DateTime<Utc>>,
}

impl From<ServerInfo> for Server {
    fn from(server: ServerInfo) -> Self {
        let takes_orders = honours(server.entry.as_ref(), ORDERS);
        let ServerEntry { name, labels, refused, .. } = server.entry.unwrap_or_default();
        Self {
            name,
            labels,
            takes_orders,
            refused_orders: refused,
            workers: server.workers.into_iter().map(Worker::from).collect(),
            id: server.id,
            host: server.host,
            pid: server.pid,
            status: server.status,
            started: server.started,
            concurrency: server.concurrency,
            strict_priority: server.strict_priority,
            queues: server.queues,
        }
    }
}

impl From<WorkerInfo> for Worker {
    fn from(worker: WorkerInfo) -> Self {
        Self {
            payload: Bytes::new(&worker.payload),
            task_id: worker.task_id,
            r#type: worker.task_type,
            queue: worker.queue,
            started: worker.started,
            deadline: worker.deadline,
        }
    }
}

/// An entry that is not listed and of which no scheduler has spoken for so long is carried by none. Heartbeats
/// come every 10 s; when the scheduler that lists an entry dies, another one takes some seconds to do so.
const SILENT: TimeDelta = TimeDelta::seconds(15);

/// An entry as `--json` writes it. What only ours have is null for one of Go's.
#[derive(Debug, Serialize)]
pub struct CronEntry {
    /// Its name; for one of Go's, its id.
    pub id: String,
    /// `rust` or `go`.
    pub scheduler: &'static str,
    /// Cron spec.
    pub spec: String,
    /// Its time zone.
    pub timezone: Option<String>,
    /// Task type.
    pub r#type: String,
    /// Payload.
    pub payload: Bytes,
    /// The queue of its tasks.
    pub queue: String,
    /// Options as text, for example `Queue("low")`.
    pub options: Vec<String>,
    /// `active`, `paused`, or `stopped` when no scheduler carries it.
    pub state: &'static str,
    /// Next tick.
    pub next: Option<DateTime<Utc>>,
    /// When its task was enqueued last.
    pub last: Option<DateTime<Utc>>,
    /// Id of that task.
    pub last_task: Option<String>,
    /// Since when it is paused.
    pub paused_since: Option<DateTime<Utc>>,
    /// A tick that waits for the end of the run before.
    pub waiting: Option<DateTime<Utc>>,
    /// What happens to missed ticks.
    pub missed: Option<String>,
    /// What happens to a tick while the run before is unfinished.
    pub overlap: Option<String>,
    /// Seconds by which a tick may be delayed.
    pub jitter_secs: Option<i64>,
    /// When its ticks begin.
    pub starts: Option<DateTime<Utc>>,
    /// When they end.
    pub ends: Option<DateTime<Utc>>,
    /// Most runs there may be.
    pub max_runs: Option<u64>,
    /// How many there were.
    pub runs: Option<u64>,
}

impl CronEntry {
    pub(crate) fn of_go(entry: crate::SchedulerEntry) -> Self {
        Self {
            queue: entry.queue(),
            id: entry.id,
            scheduler: "go",
            spec: entry.spec,
            timezone: None,
            r#type: entry.task_type,
            payload: Bytes::new(&entry.payload),
            options: entry.options,
            state: "active",
            next: entry.next,
            last: entry.prev,
            last_task: None,
            paused_since: None,
            waiting: None,
            missed: None,
            overlap: None,
            jitter_secs: None,
            starts: None,
            ends: None,
            max_runs: None,
            runs: None,
        }
    }

    /// `listed` is how a scheduler that is alive shows it.
    pub(crate) fn of_ours(entry: crate::CronEntry, listed: Option<crate::SchedulerEntry>, now: DateTime<Utc>) -> Self {
        let carried = listed.is_some() || entry.seen.is_some_and(|seen| now - seen < SILENT);
        let no_more = listed.as_ref().is_some_and(|listed| listed.next.is_none());
        let state = if !carried {
            "stopped"
        } else if entry.max_runs.is_some_and(|most| entry.runs >= most) {
            "exhausted"
        } else if entry.paused.is_some() {
            "paused"
        } else if entry.ends.is_some_and(|ends| ends < now || no_more) {
            "ended"
        } else {
            "active"
        };
        let next = listed.as_ref().and_then(|listed| listed.next).filter(|_| state == "active");
        Self {
            id: entry.name,
            scheduler: "rust",
            spec: entry.spec,
            timezone: Some(entry.zone),
            r#type: entry.task_type,
            payload: Bytes::new(&entry.payload),
            queue: entry.queue,
            options: listed.map(|listed| listed.options).unwrap_or_default(),
            state,
            next,
            last: entry.last,
            last_task: entry.last_task,
            paused_since: entry.paused,
            waiting: entry.waiting,
            missed: Some(entry.missed),
            overlap: Some(entry.overlap),
            jitter_secs: Some(entry.jitter_secs),
            starts: entry.starts,
            ends: entry.ends,
            max_runs: entry.max_runs,
            runs: Some(entry.runs),
        }
    }
}

/// A line of a history as `--json` writes it.
#[derive(Debug, Serialize)]
pub struct CronLine {
    /// Id of the task.
    pub task_id: String,
    /// When it was dealt with.
    pub enqueued_at: Option<DateTime<Utc>>,
    /// What became of it, see [`CronEvent`](crate::CronEvent::outcome).
    pub outcome: String,
    /// Why it was dealt with.
    pub why: Option<String>,
    /// The tick.
    pub tick: Option<DateTime<Utc>>,
    /// Of several that were let go, the first.
    pub from: Option<DateTime<Utc>>,
}

impl From<crate::CronEvent> for CronLine {
    fn from(event: crate::CronEvent) -> Self {
        Self {
            task_id: event.task_id,
            enqueued_at: Some(event.at),
            outcome: event.outcome,
            why: Some(event.why),
            tick: event.tick,
            from: event.from,
        }
    }
}

impl From<crate::EnqueueEvent> for CronLine {
    fn from(event: crate::EnqueueEvent) -> Self {
        let outcome = "enqueued".to_owned();
        Self { task_id: event.task_id, enqueued_at: event.enqueued_at, outcome, why: None, tick: None, from: None }
    }
}

/// Why a task is not running.
#[derive(Debug, Serialize)]
pub struct Explanation {
    queue: String,
    id: String,
    r#type: Option<String>,
    state: Option<TaskState>,
    reasons: Vec<Reason>,
}

#[derive(Debug, Serialize)]
struct Reason {
    reason: &'static str,
    at: Option<DateTime<Utc>>,
    text: String,
}

impl From<&crate::Explanation> for Explanation {
    fn from(explanation: &crate::Explanation) -> Self {
        let reason = |reason: &crate::Reason| Reason {
            reason: reason.as_str(),
            at: reason.at().filter(|at| at.0 != 0).and_then(UnixSecond::date),
            text: reason.to_string(),
        };
        Self {
            queue: explanation.queue.clone(),
            id: explanation.id.clone(),
            r#type: explanation.task_type.clone(),
            state: explanation.state,
            reasons: explanation.reasons.iter().map(reason).collect(),
        }
    }
}

/// What a batch waits for, and why the first of its tasks of each queue and state does not run.
#[derive(Debug, Serialize)]
pub struct BatchExplanation {
    #[serde(flatten)]
    batch: queue_redis::flow::Explanation,
    tasks: Vec<Explanation>,
}

impl From<crate::BatchExplanation> for BatchExplanation {
    fn from(crate::BatchExplanation { batch, tasks }: crate::BatchExplanation) -> Self {
        Self { batch, tasks: tasks.iter().map(Explanation::from).collect() }
    }
}

/// A limit of a queue, and what it does.
#[derive(Debug, Clone, Serialize)]
pub struct Limit {
    queue: String,
    #[serde(flatten)]
    limit: queue_core::limit::Limit,
    running: u64,
    waiting: u64,
    parked: u64,
    too_many: u64,
    opened: u64,
    /// What is different for some keys.
    keys: BTreeMap<String, LaneChange>,
    /// Servers of the queue that take tasks without asking for limits.
    unaware_servers: Vec<String>,
}

impl Limit {
    /// One of this queue; the servers are those of
    /// [`Inspector::servers_unaware_of_limits`](crate::Inspector::servers_unaware_of_limits).
    pub fn new(queue: &str, info: &LimitInfo, unaware_servers: &BTreeMap<String, Vec<String>>) -> Self {
        let LimitInfo { limit, running, waiting, parked, too_many, opened, changes } = info.clone();
        let unaware_servers = unaware_servers.get(queue).cloned().unwrap_or_default();
        let (queue, keys) = (queue.to_owned(), changes);
        Self { queue, limit, running, waiting, parked, too_many, opened, keys, unaware_servers }
    }
}

/// Something that the doctor found.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: &'static str,
    /// Name of the fault.
    pub fault: &'static str,
    /// In which queue.
    pub queue: Option<String>,
    /// What it is about.
    pub subject: String,
    /// The facts.
    pub detail: String,
    /// What that means.
    pub meaning: &'static str,
    /// What to do.
    pub advice: &'static str,
    /// Whether `queuectl doctor --fix` repairs it.
    pub mendable: bool,
    /// Whether the repair deletes something.
    pub deletes: bool,
}

impl From<&Found> for Finding {
    fn from(finding: &Found) -> Self {
        Self {
            severity: finding.severity.as_str(),
            fault: finding.fault.as_str(),
            queue: finding.queue.clone(),
            subject: finding.subject.clone(),
            detail: finding.detail.clone(),
            meaning: finding.fault.meaning(),
            advice: finding.fault.advice(),
            mendable: finding.is_mendable(),
            deletes: finding.deletes(),
        }
    }
}

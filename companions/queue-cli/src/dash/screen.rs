//! The screens: what each shows, and what it needs for that.

use chrono::{DateTime, Utc};
use queue_admin::{EnqueueEvent, GroupInfo, QueueInfo, SchedulerEntry, ServerInfo, WorkerInfo};
use queue_core::attempt::Attempt;
use queue_core::flow::FlowId;
use queue_core::task_log::TaskLog;
use queue_core::{TaskInfo, TaskState};

use super::list::{List, Moves, Row};

/// The order of asynq's tabs, which is that of a task's life.
pub(super) const TABS: [TaskState; 7] = [
    TaskState::Active,
    TaskState::Pending,
    TaskState::Aggregating,
    TaskState::Scheduled,
    TaskState::Retry,
    TaskState::Archived,
    TaskState::Completed,
];

/// A queue with what it takes of Redis' memory, if that is known.
#[derive(Debug, Clone)]
pub(super) struct QueueRow {
    pub(super) info: QueueInfo,
    /// Bytes, estimated from samples.
    pub(super) memory: Option<u64>,
    /// Why it cannot be read; then its numbers say nothing.
    pub(super) spoilt: Option<String>,
    /// Its limits and what they do, or why they cannot be read; empty where there are none, and in the list of all queues.
    pub(super) limits: String,
}

/// A periodic entry as its scheduler describes it, and what else is known of it if it is one of ours.
#[derive(Debug, Clone)]
pub(super) struct CronRow {
    pub(super) entry: SchedulerEntry,
    /// Whether it is one of ours, which can be changed; those of Go's schedulers only they change.
    pub(super) ours: bool,
    pub(super) paused: bool,
}

/// A batch or workflow.
#[derive(Debug, Clone)]
pub(super) struct BatchRow {
    pub(super) id: String,
    pub(super) state: &'static str,
    pub(super) total: u64,
    pub(super) live: u64,
    pub(super) succeeded: u64,
    /// Members that died, were removed or are doomed.
    pub(super) bad: u64,
    pub(super) created: Option<DateTime<Utc>>,
    pub(super) description: String,
    /// The events of its callbacks, and how these stand.
    pub(super) callbacks: Vec<(&'static str, &'static str)>,
}

/// A node or child of a batch, or a task of it that failed.
#[derive(Debug, Clone)]
pub(super) struct PartRow {
    pub(super) name: String,
    pub(super) state: &'static str,
    pub(super) work: String,
    /// What it waits for.
    pub(super) after: String,
    pub(super) opens: Opens,
}

/// What is shown of a part.
#[derive(Debug, Clone)]
pub(super) enum Opens {
    Batch(String),
    Task {
        queue: String,
        id: String,
    },
    /// It is a signal, or waits for its turn.
    Nothing,
}

/// One batch or workflow.
#[derive(Debug)]
pub(super) struct BatchScreen {
    pub(super) id: FlowId,
    pub(super) row: Option<BatchRow>,
    pub(super) parts: List<PartRow>,
    /// Why it is not there.
    pub(super) gone: Option<String>,
}

/// One of the screens.
#[derive(Debug)]
pub(super) enum Screen {
    Queues(List<QueueRow>),
    Servers(List<ServerInfo>),
    Cron(List<CronRow>),
    Queue(QueueScreen),
    Task(Box<TaskScreen>),
    Workers { server: ServerInfo, list: List<WorkerInfo> },
    Events { entry: SchedulerEntry, skip: usize, list: List<EnqueueEvent> },
    Batches { skip: usize, list: List<BatchRow> },
    Batch(BatchScreen),
}

/// One queue: its tasks in one state, or its groups.
#[derive(Debug)]
pub(super) struct QueueScreen {
    pub(super) name: String,
    pub(super) state: TaskState,
    /// The group whose tasks are shown; without one, the state aggregating shows the groups.
    pub(super) group: Option<String>,
    /// Tasks before this page.
    pub(super) skip: usize,
    pub(super) row: Option<QueueRow>,
    pub(super) tasks: List<TaskInfo>,
    pub(super) groups: List<GroupInfo>,
    /// How many tasks were looked through for the filter, and whether that was all of them.
    pub(super) searched: Option<(usize, bool)>,
    /// Why there is nothing to show.
    pub(super) gone: Option<String>,
}

/// A task with what is remembered of its attempts, and what these have written down.
#[derive(Debug)]
pub(super) struct TaskInFull {
    pub(super) task: TaskInfo,
    /// How many attempts failed at servers that remember it, and the last of them.
    pub(super) failed: u64,
    pub(super) attempts: Vec<Attempt>,
    pub(super) log: TaskLog,
}

/// One task.
#[derive(Debug)]
pub(super) struct TaskScreen {
    pub(super) queue: String,
    pub(super) id: String,
    pub(super) found: Option<TaskInFull>,
    /// Payload and result, made readable once and not with every frame.
    pub(super) body: Vec<String>,
    /// Lines above the first one that is shown.
    pub(super) scroll: usize,
    /// Why it is not there, or no more.
    pub(super) gone: Option<String>,
}

/// What a screen has to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    Queues,
    Servers,
    Cron,
    Groups { queue: String },
    Tasks { queue: String, state: TaskState, group: Option<String>, filter: String, skip: usize, size: usize },
    Task { queue: String, id: String },
    Events { entry: String, skip: usize, size: usize },
    Batches { skip: usize, size: usize },
    Batch { id: FlowId },
}

/// What it is told.
#[derive(Debug)]
pub(super) enum Found {
    Queues(Vec<QueueRow>),
    Servers(Vec<ServerInfo>),
    Cron(Vec<CronRow>),
    Groups(QueueRow, Vec<GroupInfo>),
    Tasks {
        row: QueueRow,
        tasks: Vec<TaskInfo>,
        searched: Option<(usize, bool)>,
    },
    Task(Box<TaskInFull>),
    Events(Vec<EnqueueEvent>),
    Batches(Vec<BatchRow>),
    Batch(BatchRow, Vec<PartRow>),
    /// The queue, the task or the batch is not there.
    Gone(String),
}

impl QueueScreen {
    pub(super) fn new(name: String, state: TaskState) -> Self {
        Self {
            name,
            state,
            group: None,
            skip: 0,
            row: None,
            tasks: List::default(),
            groups: List::default(),
            searched: None,
            gone: None,
        }
    }

    /// Whether groups are shown and not tasks.
    pub(super) fn shows_groups(&self) -> bool {
        self.state == TaskState::Aggregating && self.group.is_none()
    }

    /// How many tasks there are to page through, as far as that is known.
    pub(super) fn total(&self) -> Option<u64> {
        match &self.group {
            Some(group) => self.groups.all().iter().find(|found| found.name == *group).map(|found| found.size),
            None => self.row.as_ref().map(|row| row.info.count(self.state)),
        }
    }

    /// Shows another state, from its beginning.
    pub(super) fn turn_to(&mut self, state: TaskState, height: usize) {
        (self.state, self.group) = (state, None);
        self.tasks.set_filter(String::new(), height);
        self.rewind();
    }

    /// Shows the first page, once it has been read.
    pub(super) fn rewind(&mut self) {
        (self.skip, self.searched) = (0, None);
        self.tasks.restart();
    }
}

impl TaskScreen {
    pub(super) fn new(queue: String, id: String) -> Self {
        Self { queue, id, found: None, body: Vec::new(), scroll: 0, gone: None }
    }
}

impl Screen {
    /// The list of the screen.
    pub(super) fn list(&mut self) -> Option<&mut dyn Moves> {
        match self {
            Self::Queues(list) => Some(list),
            Self::Servers(list) => Some(list),
            Self::Cron(list) => Some(list),
            Self::Queue(queue) => match queue.shows_groups() {
                true => Some(&mut queue.groups),
                false => Some(&mut queue.tasks),
            },
            Self::Workers { list, .. } => Some(list),
            Self::Events { list, .. } => Some(list),
            Self::Batches { list, .. } => Some(list),
            Self::Batch(batch) => Some(&mut batch.parts),
            Self::Task(_) => None,
        }
    }

    /// The filter of its list.
    pub(super) fn filter(&self) -> &str {
        match self {
            Self::Queues(list) => list.filter(),
            Self::Servers(list) => list.filter(),
            Self::Cron(list) => list.filter(),
            Self::Queue(queue) if queue.shows_groups() => queue.groups.filter(),
            Self::Queue(queue) => queue.tasks.filter(),
            Self::Workers { list, .. } => list.filter(),
            Self::Events { list, .. } => list.filter(),
            Self::Batches { list, .. } => list.filter(),
            Self::Batch(batch) => batch.parts.filter(),
            Self::Task(_) => "",
        }
    }

    /// What to read for it, with a page of this many rows.
    pub(super) fn wanted(&self, size: usize) -> Wanted {
        match self {
            Self::Queues(_) => Wanted::Queues,
            Self::Servers(_) | Self::Workers { .. } => Wanted::Servers,
            Self::Cron(_) => Wanted::Cron,
            Self::Queue(queue) if queue.shows_groups() => Wanted::Groups { queue: queue.name.clone() },
            Self::Queue(queue) => Wanted::Tasks {
                queue: queue.name.clone(),
                state: queue.state,
                group: queue.group.clone(),
                filter: queue.tasks.filter().to_lowercase(),
                skip: queue.skip,
                size,
            },
            Self::Task(task) => Wanted::Task { queue: task.queue.clone(), id: task.id.clone() },
            Self::Events { entry, skip, .. } => Wanted::Events { entry: entry.id.clone(), skip: *skip, size },
            Self::Batches { skip, .. } => Wanted::Batches { skip: *skip, size },
            Self::Batch(batch) => Wanted::Batch { id: batch.id.clone() },
        }
    }
}

/// Whether one of the texts contains the needle, which is in lower case.
fn any(needle: &str, texts: &[&str]) -> bool {
    texts.iter().any(|text| text.to_lowercase().contains(needle))
}

/// The beginning of a payload, for searching.
fn beginning(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(4096)])
}

/// What rows are known by, and the texts in which a filter looks.
macro_rules! rows {
    ($($type:ty as $row:ident: $key:expr, $texts:expr;)*) => {
        $(impl Row for $type {
            fn key(&self) -> String {
                let $row = self;
                $key
            }

            fn matches(&self, needle: &str) -> bool {
                let $row = self;
                any(needle, &$texts)
            }
        })*
    };
}

rows! {
    QueueRow as row: row.info.name.clone(), [&row.info.name];
    WorkerInfo as worker: format!("{}\0{}", worker.queue, worker.task_id),
        [&worker.task_id, &worker.task_type, &worker.queue, &beginning(&worker.payload)];
    CronRow as row: row.entry.id.clone(),
        [&row.entry.id, &row.entry.spec, &row.entry.task_type, &row.entry.options.join(" "), &beginning(&row.entry.payload)];
    EnqueueEvent as event: event.task_id.clone(), [&event.task_id];
    BatchRow as batch: batch.id.clone(), [&batch.id, batch.state, &batch.description];
    PartRow as part: part.name.clone(), [&part.name, part.state, &part.work];
    GroupInfo as group: group.name.clone(), [&group.name];
    TaskInfo as task: task.id.clone(),
        [&task.id, &task.task_type, task.last_error.as_deref().unwrap_or_default(), &beginning(&task.payload)];
}

impl Row for ServerInfo {
    fn key(&self) -> String {
        self.id.clone()
    }

    fn matches(&self, needle: &str) -> bool {
        any(needle, &[&self.host, &self.id, &self.status, &self.pid.to_string()])
            || self.queues.keys().any(|queue| any(needle, &[queue]))
    }
}

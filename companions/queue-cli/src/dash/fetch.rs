//! Reads what the screen needs and changes what the user asked for, while the keyboard goes on.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use queue_admin::payload::harmless;
use queue_admin::{Admin, Error, Filter, Inspector, LimitInfo, Page, Progress, QueueInfo, SchedulerEntry};
use queue_core::{Clock as _, SystemClock, TaskInfo, TaskState};
use queue_redis::flow::Flows;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::action::{Action, BatchVerb, CronVerb, QueueVerb, Verb};
use super::flows;
use super::list::Row as _;
use super::model::Answer;
use super::screen::{CronRow, Found, QueueRow, TaskInFull, Wanted};

/// Queues that are read at the same time; the pool has eight connections, and an action wants one too.
const AT_ONCE: usize = 4;
/// Tasks that are looked through for a filter; more would be too much for every refresh.
const SEARCHED: usize = 1_000;
/// Tasks per call while looking through them.
const STRIDE: usize = 100;
/// How old a figure of a queue's memory may be: it costs Redis more than all others together.
const MEMORY_FOR: Duration = Duration::from_secs(20);

/// Reads for the screen, again and again, until nobody is there to tell.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) inspector: Inspector,
    pub(super) flows: Flows,
    pub(super) refresh: Duration,
    pub(super) wanted: watch::Receiver<Wanted>,
    /// Somebody has changed something.
    pub(super) changed: std::rc::Rc<Notify>,
    pub(super) answers: mpsc::Sender<Answer>,
}

impl Reader {
    pub(super) async fn run(mut self) {
        let memory = std::cell::RefCell::new(HashMap::new());
        loop {
            let (wanted, started) = (self.wanted.borrow_and_update().clone(), Instant::now());
            let found = tokio::select! {
                found = read(&self.inspector, &self.flows, &memory, &wanted) => found,
                // Whoever asked has gone to another screen.
                gone = self.wanted.changed() => match gone {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            };
            let answer = Answer::Read { wanted, found: Box::new(found), at: SystemClock.now() };
            if self.answers.send(answer).await.is_err() {
                return;
            }
            // However much there is to read, most of the time is left to others.
            let next = Instant::now() + self.refresh.max(started.elapsed() * 4);
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.changed.notified() => {}
                gone = self.wanted.changed() => if gone.is_err() { return },
            }
        }
    }
}

type Memory = std::cell::RefCell<HashMap<String, (Instant, Option<u64>)>>;

async fn read(inspector: &Inspector, flows: &Flows, memory: &Memory, wanted: &Wanted) -> Result<Found, Error> {
    let found = match wanted {
        Wanted::Queues => queues(inspector, memory).await.map(Found::Queues),
        Wanted::Servers => inspector.servers().await.map(Found::Servers),
        Wanted::Cron => cron(inspector).await.map(Found::Cron),
        Wanted::Groups { queue } => groups(inspector, memory, queue).await,
        Wanted::Tasks { .. } => tasks(inspector, memory, wanted).await,
        Wanted::Task { queue, id } => task(inspector, queue, id).await,
        Wanted::Events { entry, skip, size } => {
            inspector.enqueue_events(entry, Page { skip: *skip, size: *size }).await.map(Found::Events)
        }
        Wanted::Batches { skip, size } => flows::batches(flows, *skip, *size).await,
        Wanted::Batch { id } => flows::batch(flows, id).await,
    };
    match found {
        Err(error @ (Error::QueueNotFound(_) | Error::TaskNotFound { .. } | Error::Unreadable { .. })) => {
            Ok(Found::Gone(error.to_string()))
        }
        found => found,
    }
}

async fn task(inspector: &Inspector, queue: &str, id: &str) -> Result<Found, Error> {
    let task = inspector.task(queue, id).await?;
    let (failed, attempts) = inspector.attempts(queue, id).await?;
    let log = inspector.log(queue, id).await?;
    Ok(Found::Task(Box::new(TaskInFull { task, failed, attempts, log })))
}

async fn cron(inspector: &Inspector) -> Result<Vec<CronRow>, Error> {
    let ours = inspector.cron_entries().await?;
    let row = |entry: SchedulerEntry| {
        let known = ours.iter().find(|known| known.name == entry.id);
        CronRow { ours: known.is_some(), paused: known.is_some_and(|known| known.paused.is_some()), entry }
    };
    Ok(inspector.scheduler_entries().await?.into_iter().map(row).collect())
}

async fn queues(inspector: &Inspector, memory: &Memory) -> Result<Vec<QueueRow>, Error> {
    let names = inspector.queues().await?;
    memory.borrow_mut().retain(|name, _| names.binary_search(name).is_ok());
    let reads = names.iter().map(async |name| match row(inspector, memory, name).await {
        Ok(row) => Ok(Some(row)),
        // Removed since we asked for the names.
        Err(Error::QueueNotFound(_)) => Ok(None),
        Err(Error::Redis(error)) if error.is_wrong_type() => {
            let mut info = QueueInfo::default();
            info.name.clone_from(name);
            Ok(Some(QueueRow { info, memory: None, spoilt: Some(error.to_string()), limits: String::new() }))
        }
        Err(error) => Err(error),
    });
    let rows: Vec<Option<QueueRow>> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    Ok(rows.into_iter().flatten().collect())
}

async fn row(inspector: &Inspector, memory: &Memory, queue: &str) -> Result<QueueRow, Error> {
    let info = inspector.queue(queue).await?;
    let known = memory.borrow().get(queue).filter(|(at, _)| at.elapsed() < MEMORY_FOR).copied();
    let memory = match known {
        Some((_, bytes)) => bytes,
        None => {
            let bytes = inspector.queue_memory(queue).await?;
            memory.borrow_mut().insert(queue.to_owned(), (Instant::now(), bytes));
            bytes
        }
    };
    Ok(QueueRow { info, memory, spoilt: None, limits: String::new() })
}

/// The same with its limits, for its own page.
async fn row_with_limits(inspector: &Inspector, memory: &Memory, queue: &str) -> Result<QueueRow, Error> {
    let row = row(inspector, memory, queue).await?;
    let limits = match inspector.limits(queue).await {
        Ok(limits) => {
            let told = |info: LimitInfo| format!("{}: {} run, {} wait", info.limit.name, info.running, info.waiting);
            limits.into_iter().map(told).collect::<Vec<_>>().join("; ")
        }
        // The tasks can be shown all the same.
        Err(error @ Error::LimitsUnreadable { .. }) => harmless(&error.to_string()),
        Err(error) => return Err(error),
    };
    Ok(QueueRow { limits, ..row })
}

async fn groups(inspector: &Inspector, memory: &Memory, queue: &str) -> Result<Found, Error> {
    let row = row_with_limits(inspector, memory, queue).await?;
    Ok(Found::Groups(row, inspector.groups(queue).await?))
}

async fn tasks(inspector: &Inspector, memory: &Memory, wanted: &Wanted) -> Result<Found, Error> {
    let Wanted::Tasks { queue, state, group, filter, skip, size } = wanted else {
        return Ok(Found::Gone(String::new()));
    };
    let row = row_with_limits(inspector, memory, queue).await?;
    let page = |page| some(inspector, queue, *state, group.as_deref(), page);
    if filter.is_empty() {
        let tasks = page(Page { skip: *skip, size: *size }).await?;
        return Ok(Found::Tasks { row, tasks, searched: None });
    }
    let (mut tasks, mut passed, mut read) = (Vec::new(), 0, 0);
    // One more than the page holds is not needed: a full page may have another one behind it.
    while read < SEARCHED && tasks.len() < *size {
        let found = page(Page { skip: read, size: STRIDE }).await?;
        read += STRIDE;
        let last = found.is_empty();
        for task in found.into_iter().filter(|task| task.matches(filter)) {
            passed += 1;
            if passed > *skip && tasks.len() < *size {
                tasks.push(task);
            }
        }
        if last {
            break;
        }
    }
    let total = match group {
        Some(_) => read as u64,
        None => row.info.count(*state),
    };
    let searched = usize::try_from(total).unwrap_or(read).min(read);
    Ok(Found::Tasks { row, tasks, searched: Some((searched, (searched as u64) >= total)) })
}

async fn all(
    admin: &Admin,
    verb: Verb,
    queue: &str,
    state: TaskState,
    group: Option<&str>,
    answers: &mpsc::Sender<Answer>,
) -> Result<String, Error> {
    let past = queue_admin::Action::Tasks(verb).info().past;
    let mut filter = Filter::new().state(state);
    if let Some(group) = group {
        filter = filter.group(group);
    }
    let progress = |progress: Progress| {
        let text = format!("{} tasks {past} …", progress.so_far.changed);
        // Only to watch: if there is no room for it, the next one will do.
        let _ = answers.try_send(Answer::Done(Ok(text)));
    };
    let changed = admin.change_all(verb, queue, &filter, progress).await?;
    let left = if changed.skipped > 0 { format!("; {} had moved on", changed.skipped) } else { String::new() };
    Ok(format!("{} tasks {past}{left}", changed.changed))
}

async fn some(
    inspector: &Inspector,
    queue: &str,
    state: TaskState,
    group: Option<&str>,
    page: Page,
) -> Result<Vec<TaskInfo>, Error> {
    match group {
        Some(group) => inspector.group_tasks(queue, group, page).await,
        None => inspector.tasks(queue, state, page).await,
    }
}

/// Does what is asked, one after another, and has everything read anew afterwards.
pub(super) async fn act(
    admin: Admin,
    mut actions: mpsc::UnboundedReceiver<Action>,
    changed: std::rc::Rc<Notify>,
    answers: mpsc::Sender<Answer>,
) {
    while let Some(action) = actions.recv().await {
        let done = perform(&admin, &action, &answers).await;
        changed.notify_one();
        if answers.send(Answer::Done(done)).await.is_err() {
            return;
        }
    }
    // The loop that sends has ended, and with it the dashboard.
    sleep(Duration::MAX).await;
}

async fn perform(admin: &Admin, action: &Action, answers: &mpsc::Sender<Answer>) -> Result<String, Error> {
    match action {
        Action::Queue(QueueVerb::Remove, queue) => admin.remove_queue(queue, false).await.map(drop)?,
        Action::Cron(CronVerb::Pause, entry) => admin.pause_cron(entry, true).await.map(drop)?,
        Action::Cron(CronVerb::Resume, entry) => admin.pause_cron(entry, false).await.map(drop)?,
        Action::Cron(CronVerb::Run, entry) => admin.run_cron(entry, false).await.map(drop)?,
        Action::All { verb, queue, state, group, .. } => {
            return all(admin, *verb, queue, *state, group.as_deref(), answers).await;
        }
        Action::Cron(CronVerb::Remove, entry) => admin.remove_cron(entry).await?,
        Action::Batch(BatchVerb::Cancel, id) => {
            if !admin.cancel_batch(id).await? {
                return Ok(format!(
                    "batch {id} is over, or only its callbacks are left, so there is nothing to cancel"
                ));
            }
        }
        Action::Batch(_, id) => {
            let members = admin.retry_batch(id).await?;
            return Ok(format!("{members} members of batch {id} are run again"));
        }
        Action::Queue(QueueVerb::Pause, queue) => admin.pause(queue, true).await.map(drop)?,
        Action::Queue(QueueVerb::Resume, queue) => admin.pause(queue, false).await.map(drop)?,
        Action::Task { verb, queue, id } => {
            if !admin.change_task(*verb, queue, id).await? {
                return Ok(match verb {
                    Verb::Interrupt => format!("no server is listening, so nobody stops task {id}"),
                    _ => format!("task {id} had ended before"),
                });
            }
        }
    }
    Ok(action.done())
}

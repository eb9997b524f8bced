//! One aggregation: the tasks of a group become one task.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use queue_core::limits::{AGGREGATION_RENEWAL, AGGREGATION_SECS};
use queue_core::options::{DEFAULT_TIMEOUT, compose_for};
use queue_core::outcome::{Failure, Outcome, Step, next_step};
use queue_core::{RawTask, RetryPolicy, TaskMessage};
use queue_redis::service::{Backoff, Outage};
use queue_redis::{
    Error,
    broker::{Aggregated, Broker, GroupRules, MAX_BATCH, StagedSet, StagedTask},
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use uuid::Uuid;

use super::options::GroupErrorHook;
use super::time::Time;
use super::wakeups::Wakeups;
use crate::aggregate::{Aggregation, Prepared};
use crate::events::{Event, Observers};
use crate::log::{error, info, warn};
use crate::panic::{self, Catch};
use crate::routes::Routes;

/// How long a call to Redis is repeated: well within what is left of the deadline.
const PATIENCE: Duration = Duration::from_secs(60);

/// A group whose aggregation failed over and over is tried this often, at the least.
const LONGEST_RETRY: Duration = Duration::from_secs(120);

/// How an aggregation ended.
enum Ended {
    /// The tasks have become another, or were dropped, or archived.
    Done(Option<Made>),
    /// Somebody has put the tasks back.
    Lost,
    /// The tasks go back into their group.
    Failed(Failure),
}

/// What an aggregator was given.
struct Made {
    tasks: usize,
    took: Duration,
}

/// What an aggregation needs.
pub(super) struct Means {
    pub(super) broker: Broker,
    pub(super) routes: Arc<Routes>,
    pub(super) outage: Arc<Outage>,
    pub(super) time: Arc<Time>,
    /// Triggers when aggregators are to stop.
    pub(super) stop: CancellationToken,
    pub(super) cancel_grace: Duration,
}

impl Means {
    /// Aggregates one set of a group; `None` when the group is not ready any more.
    async fn aggregate(&self, aggregation: &Aggregation, id: &str, rules: GroupRules) -> Option<Ended> {
        let Aggregation { queue, group, .. } = aggregation;
        let now = self.time.now();
        Some(match self.broker.stage(queue, group, id, rules, now, now + AGGREGATION_SECS).await {
            Ok(None) => return None,
            // Aggregators are caught where they run. This is for what is beside them: what their errors say, their `Drop`.
            Ok(Some(mut set)) => match Catch::new(work(self, aggregation, &mut set)).await {
                Ok(Ok(ended) | Err(ended)) => ended,
                Err(panicked) => Ended::Failed(panicked.into()),
            },
            Err(error) => error.into(),
        })
    }

    async fn reclaim(&self, aggregation: &Aggregation, id: &str) {
        let Aggregation { queue, group, .. } = aggregation;
        // Whatever cannot be reclaimed now comes back after the deadline.
        if let Err(error) = persist(self, || self.broker.reclaim(queue, group, id, None)).await {
            warn!(queue = %queue, group, %error, "could not put the tasks of a group back; they come back in two minutes");
        }
    }

    /// Aggregates one set of a group without a server, if the group is ready; with the failure, if it failed.
    pub(super) async fn aggregate_once(
        &self,
        queue: Arc<str>,
        group: String,
        rules: GroupRules,
    ) -> Option<Result<(), Failure>> {
        let aggregation = Aggregation { queue, group, token: CancellationToken::new() };
        let id = Uuid::new_v4().to_string();
        match self.aggregate(&aggregation, &id, rules).await? {
            Ended::Done(_) | Ended::Lost => Some(Ok(())),
            Ended::Failed(failure) => {
                self.reclaim(&aggregation, &id).await;
                Some(Err(failure))
            }
        }
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

/// What the aggregations of a server share.
pub(super) struct Aggregations {
    pub(super) means: Means,
    pub(super) rules: GroupRules,
    /// How long a group is left alone after a failure; then twice as long each time.
    pub(super) retry_interval: Duration,
    pub(super) on_error: Option<Box<GroupErrorHook>>,
    pub(super) observers: Observers,
    pub(super) wakeups: Arc<Wakeups>,
    // A std mutex: held to read or change one entry.
    pub(super) failing: Mutex<HashMap<GroupName, Failing>>,
}

pub(super) type GroupName = (Arc<str>, String);

pub(super) struct Failing {
    failures: u32,
    not_before: Instant,
}

impl Aggregations {
    /// Aggregates one set of a group, if the group is still ready.
    pub(super) async fn run(self: Arc<Self>, queue: Arc<str>, group: String, permit: OwnedSemaphorePermit) {
        let aggregation = Aggregation { queue, group, token: CancellationToken::new() };
        let Aggregation { queue, group, .. } = &aggregation;
        let id = Uuid::new_v4().to_string();
        let Some(ended) = self.means.aggregate(&aggregation, &id, self.rules).await else { return };
        match ended {
            Ended::Done(made) => {
                self.succeeded(queue, group);
                if let Some(Made { tasks, took }) = made {
                    self.observers.tell(|| Event::Aggregated { queue, group, tasks, took });
                }
            }
            Ended::Lost => {
                warn!(queue = %queue, group, "the tasks of a group were given to somebody else while they were aggregated");
            }
            Ended::Failed(failure) => {
                self.observers.tell(|| Event::AggregationFailed { queue, group, failure: &failure });
                let error = panic::catch(|| failure.to_string()).unwrap_or_else(|panicked| panicked.to_string());
                warn!(queue = %queue, group, error, "aggregating a group failed; its tasks go back into it");
                if let Some(hook) = &self.on_error
                    && let Err(panicked) = panic::catch(|| hook(&aggregation, &failure))
                {
                    error!(queue = %queue, group, error = %panicked, "the group error hook panicked");
                }
                let delay = match &failure {
                    Failure::RetryIn(delay, _) | Failure::Snooze(Some(delay), _) => Some(*delay),
                    _ => None,
                };
                if let Err(panicked) = panic::discard(failure) {
                    error!(queue = %queue, group, error = %panicked, "the error of an aggregator panicked");
                }
                self.failed(queue, group, delay);
                self.means.reclaim(&aggregation, &id).await;
            }
        }
        drop(permit);
        self.wakeups.groups.notify_one();
    }

    fn failing(&self) -> MutexGuard<'_, HashMap<GroupName, Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a group alone for this long, or for longer after each failure in a row.
    fn failed(&self, queue: &Arc<str>, group: &str, delay: Option<Duration>) {
        let mut failing = self.failing();
        let entry = failing
            .entry((queue.clone(), group.to_owned()))
            .or_insert(Failing { failures: 0, not_before: Instant::now() });
        let pause = delay.unwrap_or_else(|| (self.retry_interval * (1 << entry.failures.min(10))).min(LONGEST_RETRY));
        entry.failures += 1;
        entry.not_before = Instant::now() + pause.min(Duration::from_secs(24 * 60 * 60));
    }

    fn succeeded(&self, queue: &Arc<str>, group: &str) {
        let mut failing = self.failing();
        if !failing.is_empty() {
            failing.remove(&(queue.clone(), group.to_owned()));
        }
    }

    /// When a group that has failed may be tried again; `None` for any time.
    pub(super) fn not_before(&self, queue: &Arc<str>, group: &str) -> Option<Instant> {
        let failing = self.failing();
        if failing.is_empty() {
            return None;
        }
        failing.get(&(queue.clone(), group.to_owned())).map(|entry| entry.not_before).filter(|at| *at > Instant::now())
    }

    /// Forgets groups that have long been dealt with by others.
    pub(super) fn forget(&self) {
        self.failing().retain(|_, entry| entry.not_before.elapsed() < LONGEST_RETRY);
    }
}

async fn work(means: &Means, aggregation: &Aggregation, set: &mut StagedSet) -> Result<Ended, Ended> {
    let Some(aggregate) = means.routes.aggregators().find(&set.queue, &set.group) else { return Ok(Ended::Done(None)) };
    let Some(staged) = means.broker.read_set(set).await? else { return Err(Ended::Lost) };
    let (tasks, unreadable): (Vec<StagedTask>, Vec<StagedTask>) =
        staged.into_iter().partition(|task| task.message.is_some());
    for task in &unreadable {
        error!(task = task.id, queue = %set.queue, group = set.group, "task cannot be read; it goes to the archive as it is");
    }
    archive(means, set, unreadable.iter().map(|task| (task, None)).collect()).await?;

    let messages: Vec<&TaskMessage> = tasks.iter().filter_map(|task| task.message.as_ref()).collect();
    let prepare = || aggregate.prepare(aggregation.clone(), &messages);
    let Prepared { work, refused } = panic::catch(prepare).map_err(|panicked| Ended::Failed(panicked.into()))?;
    let mut refused = refused.into_iter().peekable();
    let (mut good, mut bad) = (Vec::with_capacity(tasks.len()), Vec::new());
    for (position, task) in tasks.into_iter().enumerate() {
        match refused.next_if(|(refused, _)| *refused == position) {
            Some((_, error)) => {
                warn!(task = task.id, queue = %set.queue, group = set.group, %error, "task cannot be aggregated; it is archived");
                bad.push((task, error.to_string()));
            }
            None => good.push(task),
        }
    }
    archive(means, set, bad.iter().map(|(task, error)| (task, Some(error.as_str()))).collect()).await?;
    if set.count == 0 {
        // With the last of its tasks, the set is over.
        if unreadable.is_empty() && bad.is_empty() {
            conclude(means, set, &[], None).await?;
        }
        return Ok(Ended::Done(None));
    }

    let began = Instant::now();
    let answer = attend(means, aggregation, set, work).await?;
    let took = began.elapsed();
    settle(means, set, &good, answer, took).await?;
    Ok(Ended::Done(Some(Made { tasks: good.len(), took })))
}

/// Does with the tasks what the aggregator answered.
async fn settle(
    means: &Means,
    set: &mut StagedSet,
    good: &[StagedTask],
    answer: Result<RawTask, Failure>,
    elapsed: Duration,
) -> Result<(), Ended> {
    let (tasks, queue, group) = (good.len(), set.queue.clone(), set.group.clone());
    match answer {
        Ok(task) => {
            let task_type = task.task_type.clone();
            conclude(means, set, good, Some(task)).await?;
            info!(queue = %queue, group, tasks, task_type, ?elapsed, "group aggregated");
        }
        Err(Failure::Revoke(reason)) => {
            conclude(means, set, good, None).await?;
            info!(queue = %queue, group, tasks, %reason, "the tasks of a group were dropped");
        }
        Err(Failure::Archive(reason)) => {
            warn!(queue = %queue, group, tasks, %reason, "the tasks of a group are archived");
            let reason = reason.to_string();
            archive(means, set, good.iter().map(|task| (task, Some(reason.as_str()))).collect()).await?;
        }
        Err(failure) => return Err(Ended::Failed(failure)),
    }
    Ok(())
}

/// Runs the aggregator, and keeps its tasks for it.
async fn attend(
    means: &Means,
    aggregation: &Aggregation,
    set: &StagedSet,
    work: impl Future<Output = Result<RawTask, Failure>>,
) -> Result<Result<RawTask, Failure>, Ended> {
    let mut work = pin!(Catch::new(work));
    let end = Instant::now() + DEFAULT_TIMEOUT;
    let mut lost = false;
    let why = loop {
        tokio::select! {
            biased;
            answer = &mut work => return Ok(answer.unwrap_or_else(|panicked| Err(panicked.into()))),
            () = means.stop.cancelled() => break "the server shuts down",
            () = tokio::time::sleep_until(end) => break "it took more than 30 minutes",
            () = tokio::time::sleep(AGGREGATION_RENEWAL) => {
                // If Redis cannot be asked, the next call may come in time.
                lost = means.broker.extend_set(set, means.time.now() + AGGREGATION_SECS).await.is_ok_and(|held| !held);
                if lost {
                    break "its tasks were given to somebody else";
                }
            }
        }
    };
    aggregation.token.cancel();
    match tokio::time::timeout(means.cancel_grace, &mut work).await {
        Ok(Ok(Ok(task))) if !lost => Ok(Ok(task)),
        _ if lost => Err(Ended::Lost),
        _ => Ok(Err(format!("the aggregator was told to stop: {why}").into())),
    }
}

/// Stores the task that the set has become, if there is one, and takes the set away.
async fn conclude(means: &Means, set: &StagedSet, tasks: &[StagedTask], task: Option<RawTask>) -> Result<(), Ended> {
    let now_ns = means.time.now_ns();
    let composed = match task {
        None => None,
        Some(task) => Some(compose_for(&set.queue, task, now_ns).map_err(|error| Ended::Failed(error.into()))?),
    };
    let store = || async {
        if composed.is_some() {
            match means.broker.list_queue(&set.queue).await {
                // Whoever has put the tasks into the group has listed it, and this makes room.
                Err(error) if error.is_out_of_memory() => {}
                listed => listed?,
            }
        }
        means.broker.aggregate(set, tasks, composed.as_ref(), now_ns).await
    };
    let aggregated = persist(means, store).await?;
    match aggregated {
        Aggregated::Done => {}
        Aggregated::Lost => return Err(Ended::Lost),
        Aggregated::IdTaken => return Err(Ended::Failed("the id of the aggregated task is taken in its queue".into())),
        Aggregated::Duplicate => {
            return Err(Ended::Failed("another task holds the uniqueness lock of the aggregated task".into()));
        }
    }
    if set.count > MAX_BATCH
        && let Err(error) = means.broker.delete_aggregated(&set.queue).await
    {
        debug!(queue = %set.queue, %error, "aggregated tasks are not deleted yet; that is done later");
    }
    Ok(())
}

/// Archives tasks of a set, with the reason; without one, as they are.
async fn archive(means: &Means, set: &mut StagedSet, tasks: Vec<(&StagedTask, Option<&str>)>) -> Result<(), Ended> {
    for tasks in tasks.chunks(MAX_BATCH) {
        let now = means.time.now();
        let messages: Vec<Option<TaskMessage>> =
            tasks.iter().map(|(task, reason)| Some(archived(task.message.as_ref()?, (*reason)?, now))).collect();
        let tasks: Vec<_> = tasks.iter().map(|(task, _)| *task).zip(messages.iter().map(Option::as_ref)).collect();
        if !means.broker.archive_staged(set, &tasks, now).await? {
            return Err(Ended::Lost);
        }
    }
    Ok(())
}

/// The message of a task that is archived for this reason.
fn archived(message: &TaskMessage, reason: &str, now: i64) -> TaskMessage {
    let outcome = Outcome::Failed(Failure::archive(reason));
    match next_step(message, outcome, now, &RetryPolicy::Asynq) {
        Step::Archive { message } => message,
        // Not what an archived task becomes.
        _ => message.clone(),
    }
}

/// Makes a call again while Redis is away, for a while.
async fn persist<T, F>(means: &Means, mut call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let end = Instant::now() + PATIENCE;
    let mut backoff = Backoff::new(&means.outage, "aggregating");
    loop {
        match call().await {
            Err(error) if error.is_outage() && Instant::now() < end => backoff.failed(&error).await,
            Ok(value) => {
                backoff.succeeded();
                return Ok(value);
            }
            Err(error) => return Err(error),
        }
    }
}

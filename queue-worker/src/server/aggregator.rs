//! One aggregation: the tasks of a group become one task.

use std::sync::Arc;
use std::time::Duration;

use queue_core::options::{DEFAULT_TIMEOUT, compose_for};
use queue_core::outcome::{Failure, Outcome, Step, next_step};
use queue_core::{RawTask, RetryPolicy, TaskMessage};
use queue_redis::{Aggregated, Error, MAX_BATCH, StagedSet, StagedTask};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use uuid::Uuid;

use super::Shared;
use super::backoff::Backoff;
use crate::aggregate::{Aggregation, Prepared};
use crate::events::Event;
use crate::log::{error, info, warn};
use crate::panic::{self, Catch};

/// Seconds after which an aggregation counts as lost, as in asynq; prolonged while it runs.
const DEADLINE: i64 = 120;
/// How often it is prolonged.
const PROLONG: Duration = Duration::from_secs(10);
/// How long a call to Redis is repeated: well within what is left of the deadline.
const PATIENCE: Duration = Duration::from_secs(60);

/// How an aggregation ended.
enum Ended {
    /// The tasks have become another, or were dropped, or archived.
    Done,
    /// Somebody has put the tasks back.
    Lost,
    /// The tasks are to be put back.
    Failed(Failure),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

/// Aggregates one set of a group, if the group is still ready.
pub(super) async fn run(shared: Arc<Shared>, queue: Arc<str>, group: String, permit: OwnedSemaphorePermit) {
    let aggregation = Aggregation { queue, group, token: CancellationToken::new() };
    let Aggregation { queue, group, .. } = &aggregation;
    let id = Uuid::new_v4().to_string();
    let (now, rules) = (shared.now(), shared.options.groups.rules());
    let ended = match shared.broker.stage(queue, group, &id, rules, now, now + DEADLINE).await {
        Ok(None) => return,
        // Aggregators are caught where they run. This is for what is beside them: what their errors say, their `Drop`.
        Ok(Some(mut set)) => match Catch(std::pin::pin!(work(&shared, &aggregation, &mut set))).await {
            Ok(Ok(ended) | Err(ended)) => ended,
            Err(panicked) => Ended::Failed(panicked.into()),
        },
        Err(error) => error.into(),
    };
    match ended {
        Ended::Done => shared.groups.succeeded(queue, group),
        Ended::Lost => {
            warn!(queue = %queue, group, "the tasks of a group were given to somebody else while they were aggregated");
        }
        Ended::Failed(failure) => {
            shared.tell(|| Event::AggregationFailed { queue, group, failure: &failure });
            let error = panic::catch(|| failure.to_string()).unwrap_or_else(|panicked| panicked.to_string());
            warn!(queue = %queue, group, error, "aggregating a group failed; its tasks are put back");
            if let Some(hook) = &shared.options.groups.on_error
                && let Err(panicked) = panic::catch(|| hook(&aggregation, &failure))
            {
                error!(queue = %queue, group, error = %panicked, "the group error hook panicked");
            }
            let delay = match &failure {
                Failure::RetryIn(delay, _) | Failure::PutBack(Some(delay), _) => Some(*delay),
                _ => None,
            };
            if let Err(panicked) = panic::discard(failure) {
                error!(queue = %queue, group, error = %panicked, "the error of an aggregator panicked");
            }
            shared.groups.failed(queue, group, delay, shared.group_retry_interval());
            // Whatever cannot be put back now comes back after the deadline.
            if let Err(error) = persist(&shared, || shared.broker.reclaim(queue, group, &id, None)).await {
                warn!(queue = %queue, group, %error, "could not put the tasks of a group back; they come back in two minutes");
            }
        }
    }
    drop(permit);
    shared.groups.changed.notify_one();
}

async fn work(shared: &Shared, aggregation: &Aggregation, set: &mut StagedSet) -> Result<Ended, Ended> {
    let Some(aggregate) = shared.routes.aggregators().find(&set.queue, &set.group) else { return Ok(Ended::Done) };
    let Some(staged) = shared.broker.read_set(set).await? else { return Err(Ended::Lost) };
    let (tasks, unreadable): (Vec<StagedTask>, Vec<StagedTask>) =
        staged.into_iter().partition(|task| task.message.is_some());
    for task in &unreadable {
        error!(task = task.id, queue = %set.queue, group = set.group, "task cannot be read; it goes to the archive as it is");
    }
    archive(shared, set, unreadable.iter().map(|task| (task, None)).collect()).await?;

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
    archive(shared, set, bad.iter().map(|(task, error)| (task, Some(error.as_str()))).collect()).await?;
    if set.count == 0 {
        conclude(shared, set, &[], None).await?;
        return Ok(Ended::Done);
    }

    let began = Instant::now();
    let answer = attend(shared, aggregation, set, work).await?;
    let took = began.elapsed();
    settle(shared, set, &good, answer, took).await?;
    shared.tell(|| Event::Aggregated { queue: &set.queue, group: &set.group, tasks: good.len(), took });
    Ok(Ended::Done)
}

/// Does with the tasks what the aggregator answered.
async fn settle(
    shared: &Shared,
    set: &mut StagedSet,
    good: &[StagedTask],
    answer: Result<RawTask, Failure>,
    elapsed: Duration,
) -> Result<(), Ended> {
    let (tasks, queue, group) = (good.len(), set.queue.clone(), set.group.clone());
    match answer {
        Ok(task) => {
            let kind = task.kind.clone();
            conclude(shared, set, good, Some(task)).await?;
            info!(queue = %queue, group, tasks, kind, ?elapsed, "group aggregated");
        }
        Err(Failure::Revoke(reason)) => {
            conclude(shared, set, good, None).await?;
            info!(queue = %queue, group, tasks, %reason, "the tasks of a group were dropped");
        }
        Err(Failure::Archive(reason)) => {
            warn!(queue = %queue, group, tasks, %reason, "the tasks of a group are archived");
            let reason = reason.to_string();
            archive(shared, set, good.iter().map(|task| (task, Some(reason.as_str()))).collect()).await?;
        }
        Err(failure) => return Err(Ended::Failed(failure)),
    }
    Ok(())
}

/// Runs the aggregator, and keeps its tasks for it.
async fn attend(
    shared: &Shared,
    aggregation: &Aggregation,
    set: &StagedSet,
    work: impl Future<Output = Result<RawTask, Failure>>,
) -> Result<Result<RawTask, Failure>, Ended> {
    let mut work = Catch(Box::pin(work));
    let end = Instant::now() + DEFAULT_TIMEOUT;
    let mut lost = false;
    let why = loop {
        tokio::select! {
            biased;
            answer = &mut work => return Ok(answer.unwrap_or_else(|panicked| Err(panicked.into()))),
            () = shared.groups.stop.cancelled() => break "the server shuts down",
            () = tokio::time::sleep_until(end) => break "it took more than 30 minutes",
            () = tokio::time::sleep(PROLONG) => {
                // If Redis cannot be asked, the next call may come in time.
                lost = shared.broker.extend_set(set, shared.now() + DEADLINE).await.is_ok_and(|held| !held);
                if lost {
                    break "its tasks were given to somebody else";
                }
            }
        }
    };
    aggregation.token.cancel();
    match tokio::time::timeout(shared.options.cancel_grace, &mut work).await {
        Ok(Ok(Ok(task))) if !lost => Ok(Ok(task)),
        _ if lost => Err(Ended::Lost),
        _ => Ok(Err(format!("the aggregator was told to stop: {why}").into())),
    }
}

/// Stores the task that the set has become, if there is one, and takes the set away.
async fn conclude(shared: &Shared, set: &StagedSet, tasks: &[StagedTask], task: Option<RawTask>) -> Result<(), Ended> {
    let now_ns = shared.now_ns();
    let composed = match task {
        None => None,
        Some(task) => Some(compose_for(&set.queue, task, now_ns).map_err(|error| Ended::Failed(error.into()))?),
    };
    if composed.is_some() {
        shared.broker.publish_queue(&set.queue).await?;
    }
    let aggregated = persist(shared, || shared.broker.aggregate(set, tasks, composed.as_ref(), now_ns)).await?;
    match aggregated {
        Aggregated::Done => {}
        Aggregated::Lost => return Err(Ended::Lost),
        Aggregated::IdTaken => return Err(Ended::Failed("the id of the aggregated task is taken in its queue".into())),
        Aggregated::Duplicate => {
            return Err(Ended::Failed("another task holds the uniqueness lock of the aggregated task".into()));
        }
    }
    if set.count > MAX_BATCH
        && let Err(error) = shared.broker.delete_aggregated(&set.queue).await
    {
        debug!(queue = %set.queue, %error, "aggregated tasks are not deleted yet; that is done later");
    }
    Ok(())
}

/// Archives tasks of a set, with the reason; without one, as they are.
async fn archive(shared: &Shared, set: &mut StagedSet, tasks: Vec<(&StagedTask, Option<&str>)>) -> Result<(), Ended> {
    for tasks in tasks.chunks(MAX_BATCH) {
        let now = shared.now();
        let messages: Vec<Option<TaskMessage>> =
            tasks.iter().map(|(task, reason)| Some(archived(task.message.as_ref()?, (*reason)?, now))).collect();
        let tasks: Vec<_> = tasks.iter().map(|(task, _)| *task).zip(messages.iter().map(Option::as_ref)).collect();
        if !shared.broker.archive_staged(set, &tasks, now).await? {
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
async fn persist<T, F>(shared: &Shared, mut call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let end = Instant::now() + PATIENCE;
    let mut backoff = Backoff::new(&shared.outage, "aggregating");
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

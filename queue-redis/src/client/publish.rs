//! Publishing a task under a key: [`Client::publish`].

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::{Duration, Instant};

use chrono::DateTime;
use queue_core::options::{Composed, Placement};
use queue_core::publish::{FOLLOW, PublishOutcome, PublishPolicy, TWIN_ENDS};
use queue_core::{EncodeError, IntoTask, OptionError, RawTask, TaskInfo, TaskOptions, TaskState};

use super::patience::Attempts;
use super::{Client, EnqueueError, Store};
use crate::broker::PublishVerdict;
use crate::error::Error;

/// A task that is to be published under a key; nothing is sent until it is awaited.
///
/// A key stands for one piece of work, however often it is asked for. It becomes the id of the task, so everybody who
/// enqueues with this id in this queue, Go's clients included, is refused while there is such a task. What is done where
/// there is one, the methods say; each allows something more, and without any the task that is there is kept.
///
/// ```no_run
/// # async fn example(client: queue_redis::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use queue_core::{PublishOutcome, RawTask};
///
/// let index = |user: u64| RawTask::new("index").payload(user.to_string()).queue("search");
/// // Idempotent: the second one finds the first.
/// client.publish(index(7)).key("index:7").await?;
/// let again = client.publish(index(7)).key("index:7").await?;
/// assert_eq!(again.outcome, PublishOutcome::Kept);
/// // When 5 s have gone by without another, or a minute after the first of them, with the last payload.
/// let debounced = client.publish(index(8)).key("index:8").debounce(Duration::from_secs(5));
/// debounced.max_wait(Duration::from_secs(60)).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Publish {
    client: Client,
    task: Result<RawTask, EncodeError>,
    call: TaskOptions,
    policy: PublishPolicy,
}

/// What became of a task that was published.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// What became of it.
    pub outcome: PublishOutcome,
    /// The key.
    pub id: String,
    /// The task that has the key now, and when it is due; of two, the one that waits. One that [follows](Publish::coalesce) has `~` behind
    /// the key in its id, or not, in turn; its result and progress are left out. `None` where it is gone: it was
    /// suppressed by the window of one that has ended.
    pub holder: Option<TaskInfo>,
    /// How long the window is open, in whole milliseconds; `None` without [`throttle`](Publish::throttle), or where none is open.
    pub window: Option<Duration>,
}

impl Client {
    /// Publishes a task under a key: see [`Publish`]. It needs a [`key`](Publish::key) or a task id.
    ///
    /// Interceptors see the task, and [`wait_for_redis`](Client::wait_for_redis) counts, as for [`enqueue`](Client::enqueue).
    pub fn publish(&self, task: impl IntoTask) -> Publish {
        Publish {
            client: self.clone(),
            task: task.into_task(),
            call: TaskOptions::new(),
            policy: PublishPolicy::default(),
        }
    }
}

impl Publish {
    /// The key; it becomes the id of the task, and obeys the same rules ([`TaskOptions::task_id`]). Not one that begins with `flow:` or ends
    /// with `~`.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.call = self.call.task_id(key);
        self
    }

    /// Options that win over those of the task.
    pub fn with(mut self, options: TaskOptions) -> Self {
        self.call = self.call.overlaid_with(options);
        self
    }

    /// A task that waits (pending, scheduled, to be retried) gets this payload, these headers and these options, and keeps its place,
    /// its time and what its attempts have come to. Its checkpoint and progress go.
    ///
    /// A take and this are two steps, one after the other: whoever is first wins, and the outcome tells.
    pub fn replace(mut self) -> Self {
        self.policy.replace = true;
        self
    }

    /// A task that is scheduled gets the time of this one, earlier or later: now, if it has none.
    ///
    /// A pending task is not put off, a failed one keeps the time of its next attempt, and one that waits for room under a limit keeps its place.
    pub fn reschedule(mut self) -> Self {
        self.policy.reschedule = true;
        self
    }

    /// A task that has completed or was archived begins anew as this one, without its result, its errors and its retries.
    pub fn restart(mut self) -> Self {
        self.policy.restart = true;
        self
    }

    /// What is published while a worker has the task is not lost: it [follows](PublishOutcome::Follows) as a second task, with the payload that came
    /// last, when that one has ended. A task that waits is [replaced](Self::replace), one that has ended [restarted](Self::restart).
    ///
    /// The server of ours that ends the first starts the second; without one it starts when the timeout of an attempt has gone by. Publish a
    /// key always in this way: a worker knows by a header of its task that another may follow.
    pub fn coalesce(mut self) -> Self {
        self.policy.follow = true;
        self.replace().restart()
    }

    /// The task runs when so long has gone by without another publish, with the last payload: [`coalesce`](Self::coalesce)
    /// and [`reschedule`](Self::reschedule), each time to so long from now, rounded up to the second. A time of the task's own counts for
    /// nothing.
    ///
    /// What is published while a worker has the task starts when that one has ended, quiet or not.
    pub fn debounce(mut self, quiet: Duration) -> Self {
        self.call = self.call.process_in(quiet);
        self.policy.quiet = Some(quiet);
        self.reschedule().coalesce()
    }

    /// With [`debounce`](Self::debounce) or [`reschedule`](Self::reschedule): at the latest so long after the first publish, rounded up to
    /// the second. Defaults to none: whoever is published often enough never runs.
    pub fn max_wait(mut self, most: Duration) -> Self {
        self.policy.max_wait = Some(most);
        self
    }

    /// After a publish that has changed something, others under this key are [`Suppressed`](PublishOutcome::Suppressed) for so long,
    /// whatever becomes of the task meanwhile; afterwards a task that has ended is [restarted](Self::restart). Rounded up to the
    /// millisecond, by the clock of Redis.
    ///
    /// Only publishes with a throttle heed the window.
    pub fn throttle(mut self, window: Duration) -> Self {
        self.policy.window = Some(window);
        self.restart()
    }

    /// Publishes it; awaiting does the same. A call whose answer was lost is sent again, and is told what it has done the first time,
    /// unless others have published under the key meanwhile: then it comes after theirs.
    ///
    /// # Errors
    /// See [`EnqueueError`]; [`TaskIdConflict`](EnqueueError::TaskIdConflict) where something that is no task has the id. A task with
    /// `unique` or a `group` is refused: [`OptionError::NotWithKey`]; so are a time of zero, and a longest wait that is shorter than
    /// the debounce, or has nothing to limit.
    pub async fn send(self) -> Result<Published, EnqueueError> {
        let Self { client, task, mut call, policy } = self;
        let now_ns = client.now_ns();
        if policy.follow {
            call = call.header(FOLLOW, "1");
        }
        let mut composed = super::composed(task?, call, now_ns)?;
        let (under_way, seen) = client.interceptors.see(&mut composed);
        let published = match seen.map_err(EnqueueError::from).and_then(|()| check(&client, &composed, &policy)) {
            Ok(()) => {
                client.store.publish(&composed, &policy, now_ns, client.until()).await.map_err(EnqueueError::from)
            }
            Err(refusal) => Err(refusal),
        };
        under_way.end(published.and_then(|verdict| told(verdict, composed, now_ns)))
    }
}

impl IntoFuture for Publish {
    type Output = Result<Published, EnqueueError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

fn check(client: &Client, task: &Composed, policy: &PublishPolicy) -> Result<(), EnqueueError> {
    if task.generated_id {
        return Err(OptionError::NoKey.into());
    }
    if task.message.id.ends_with(TWIN_ENDS) {
        return Err(OptionError::ReservedKey.into());
    }
    if !task.message.unique_key.is_empty() {
        return Err(OptionError::NotWithKey { option: "unique", instead: "its key makes it unique" }.into());
    }
    if !task.message.group_key.is_empty() {
        return Err(OptionError::NotWithKey { option: "a group", instead: "enqueue it into the group" }.into());
    }
    if task.placement == Placement::Front {
        return Err(OptionError::NotInFront { what: "a task that is published under a key" }.into());
    }
    policy.check()?;
    client.check_size(task)
}

fn told(verdict: Option<PublishVerdict>, task: Composed, now_ns: i64) -> Result<Published, EnqueueError> {
    let (id, queue) = (task.message.id, task.message.queue);
    let Some(PublishVerdict { outcome, holder, window_ms }) = verdict else {
        return Err(EnqueueError::TaskIdConflict { id, queue });
    };
    let holder = holder.map(|(message, state, score)| {
        let due = match state {
            TaskState::Pending => Some(DateTime::from_timestamp_nanos(now_ns)),
            TaskState::Scheduled | TaskState::Retry => score.and_then(|score| DateTime::from_timestamp(score, 0)),
            _ => None,
        };
        TaskInfo::new(message, state).due_at(due)
    });
    let window = Some(Duration::from_millis(window_ms)).filter(|window| !window.is_zero());
    Ok(Published { outcome, id, holder, window })
}

impl Store {
    async fn publish(
        &self,
        task: &Composed,
        policy: &PublishPolicy,
        now_ns: i64,
        until: Instant,
    ) -> Result<Option<PublishVerdict>, Error> {
        let mut attempts = Attempts::begin(Instant::now(), until, self.broker.redis().options());
        let call = fastrand::u64(..);
        // Why nobody knows whether it was done, as soon as that is so.
        let mut unsure: Option<Error> = None;
        loop {
            let error = match self.publish_once(task, policy, now_ns, call).await {
                Ok(verdict) => {
                    let put = verdict.as_ref().filter(|verdict| verdict.outcome.is_put());
                    let put = put
                        .and_then(|verdict| verdict.holder.as_ref())
                        .map(|(message, state, score)| (message, score.filter(|_| *state == TaskState::Scheduled)));
                    self.broker.tell_enqueued(put.into_iter(), now_ns);
                    return Ok(verdict);
                }
                Err(error) => error,
            };
            if error.is_ambiguous() {
                unsure = Some(error.clone());
            }
            match attempts.next(&error, Instant::now(), fastrand::f64()) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(unsure.unwrap_or(error)),
            }
        }
    }

    async fn publish_once(
        &self,
        task: &Composed,
        policy: &PublishPolicy,
        now_ns: i64,
        call: u64,
    ) -> Result<Option<PublishVerdict>, Error> {
        self.broker.list_queue(&task.message.queue).await?;
        self.broker.publish(task, policy, now_ns, call).await
    }
}

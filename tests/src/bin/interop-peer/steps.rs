//! The steps of which sequences are made.

use std::sync::Arc;
use std::time::Duration;

use queue_admin::Inspector;
use queue_core::options::compose;
use queue_core::outcome::{Outcome as Ended, Step, next_step};
use queue_core::{Clock as _, RawTask, RetryPolicy, SystemClock, TaskOptions, TaskState};
use queue_redis::broker::{Aggregated, GroupRules, StagedTask};
use queue_redis::{
    Client, EnqueueError, Redis,
    broker::{Broker, Completion, Delivery, Dequeued, Report, Side, Taken, Verdict},
};

use crate::Outcome;

pub(crate) const QUEUE: &str = "seq";
pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);
const LEASE_SECS: i64 = 30;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A client and a broker on the same Redis.
pub(crate) struct Steps {
    pub(crate) client: Client,
    broker: Broker,
    pub(crate) inspector: Inspector,
    takes: u64,
}

/// A task of type `job` in the queue of the sequences.
pub(crate) fn job(id: &str) -> RawTask {
    RawTask::new("job").queue(QUEUE).task_id(id)
}

impl Steps {
    pub(crate) async fn on(url: &str) -> Result<Self, Error> {
        let redis = Redis::connect(url).await?;
        Ok(Self {
            client: Client::new(redis.clone()),
            broker: Broker::new(redis.clone()),
            inspector: Inspector::new(redis),
            takes: 0,
        })
    }

    pub(crate) async fn put(&self, task: RawTask) -> Outcome {
        self.client.enqueue(task).await?;
        Ok(())
    }

    /// Enqueues what has to be refused.
    pub(crate) async fn refused(&self, task: RawTask, expected: impl Fn(&EnqueueError) -> bool) -> Outcome {
        match self.client.enqueue(task.clone()).await {
            Err(error) if expected(&error) => Ok(()),
            other => Err(format!("{task:?} was answered with {other:?}").into()),
        }
    }

    /// DEQUEUE, which has to give this task.
    pub(crate) async fn take(&mut self, id: &str) -> Result<Delivery, Error> {
        self.takes += 1;
        let token: Arc<str> = format!("sequence:{}", self.takes).into();
        let expires = SystemClock.now_secs() + LEASE_SECS;
        let taken = self.broker.dequeue(&QUEUE.into(), 1, &token, expires).await?;
        if let Dequeued::Tasks(tasks) | Dequeued::Limited { tasks, .. } = &taken
            && let [Taken::Task(delivery)] = &tasks[..]
            && delivery.run.id == id
        {
            return Ok(delivery.clone());
        }
        Err(format!("took {taken:?} instead of {id:?}").into())
    }

    pub(crate) async fn write_result(&self, delivery: &Delivery, result: &str) -> Outcome {
        applied(self.broker.write_result(&delivery.run, result.as_bytes()).await?)
    }

    /// Ends a run by the transition that follows from how the handler ended.
    pub(crate) async fn end(&self, delivery: Delivery, ended: Ended) -> Outcome {
        let Delivery { message, run, .. } = delivery;
        let (now, now_ns) = (SystemClock.now_secs(), SystemClock.now_ns());
        let step = next_step(&message, ended, now, &RetryPolicy::Asynq);
        let report = Report::by_owner(run, &message, Side::Oldest);
        let verdict = match step {
            Step::Done => self.broker.done(QUEUE, &[report], now).await?[0],
            Step::Revoke => self.broker.revoke(&report, now).await?,
            Step::Complete { message, expires_at, result } => {
                self.broker.complete(QUEUE, &[Completion { report, message, expires_at, result }], now).await?[0]
            }
            Step::Retry { message, at, is_failure } => {
                self.broker.retry(&report, &message.to_bytes(), at, is_failure, now).await?
            }
            Step::Archive { message } => self.broker.archive(&report, &message.to_bytes(), now).await?,
            Step::Requeue => self.broker.requeue(&report, now_ns).await?,
        };
        applied(verdict)
    }

    pub(crate) async fn pause(&self) -> Outcome {
        if self.inspector.pause(QUEUE).await? { Ok(()) } else { Err("the queue was paused already".into()) }
    }

    /// FORWARD, as soon as a task of this set is due.
    pub(crate) async fn forward(&self, from: TaskState) -> Outcome {
        loop {
            let forwarded = self.broker.forward(QUEUE, from, SystemClock.now_ns(), 0).await?;
            match (forwarded.moved, forwarded.next_due) {
                (1, _) => return Ok(()),
                (0, Some(due)) => wait_until(due).await,
                _ => return Err(format!("forwarded {forwarded:?}").into()),
            }
        }
    }

    /// CHECK of a group that is full, READ, the new task and DELETE-SET.
    pub(crate) async fn aggregate(
        &self,
        group: &str,
        size: usize,
        join: impl FnOnce(Vec<String>) -> RawTask,
    ) -> Outcome {
        let rules = GroupRules { grace_secs: 3_600, max_delay_secs: 0, max_size: size };
        let (now, now_ns) = (SystemClock.now_secs(), SystemClock.now_ns());
        let set = self.broker.stage(&QUEUE.into(), group, "set", rules, now, now + 120).await?;
        let mut set = set.ok_or("the group is not full")?;
        let tasks = self.broker.read_set(&mut set).await?.ok_or("the set is gone")?;
        let payload = |task: &StagedTask| {
            let message = task.message.as_ref().ok_or("a task cannot be read")?;
            Ok::<_, Error>(String::from_utf8(message.payload.to_vec())?)
        };
        let task = join(tasks.iter().map(payload).collect::<Result<_, _>>()?);
        let task = compose(task, TaskOptions::new().queue(QUEUE), now_ns)?;
        match self.broker.aggregate(&set, &tasks, Some(&task), now_ns).await? {
            Aggregated::Done => Ok(()),
            other => Err(format!("the verdict is {other:?}").into()),
        }
    }

    /// JANITOR, as soon as a completed task has expired.
    pub(crate) async fn delete_expired(&self, expires_at: i64) -> Outcome {
        wait_until(expires_at).await;
        match self.broker.delete_expired_completed(QUEUE, SystemClock.now_secs()).await? {
            1 => Ok(()),
            other => Err(format!("{other} completed tasks were deleted").into()),
        }
    }
}

fn applied(verdict: Verdict) -> Outcome {
    if verdict == Verdict::Applied { Ok(()) } else { Err(format!("the verdict is {verdict:?}").into()) }
}

async fn wait_until(secs: i64) {
    while SystemClock.now_secs() < secs {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

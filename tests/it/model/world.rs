//! One side of the comparison, and what has happened on it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use queue_admin::{Inspector, Page};
use queue_core::clock::ManualClock;
use queue_core::options::{Composed, Placement, compose};
use queue_core::publish::PublishPolicy;
use queue_core::{Clock as _, RawTask, TaskMessage, TaskOptions, TaskState};
use queue_redis::{
    Error,
    broker::{
        Broker, Completion, Dequeued, Matching, PublishVerdict, Recovery, Report, Run, Side, StagedSet, StagedTask,
        Taken,
    },
};

use super::operation::{NewTask, Nth, Operation};
use crate::support::{Fixture, NOW, QUEUE};

/// A store, and all that its users remember.
pub(crate) struct World<'a> {
    fixture: &'a Fixture,
    clock: Arc<ManualClock>,
    /// Every run there ever was, with the message it was given.
    runs: Vec<(Run, TaskMessage)>,
    /// The token and the expiry of every take.
    takes: Vec<(Arc<str>, i64)>,
    /// Every set that was staged, with its tasks.
    pub(super) sets: Vec<(StagedSet, Vec<StagedTask>)>,
}

/// An answer as text. Of an error only the code, because the texts differ between versions of Redis.
pub(super) fn told<T: Debug>(answer: Result<T, impl Into<queue_admin::Error>>) -> String {
    match answer.map_err(Into::into) {
        Ok(answer) => format!("{answer:?}"),
        Err(queue_admin::Error::Redis(Error::Refused { operation, code, .. })) => {
            format!("{operation} is refused: {code}")
        }
        Err(error) => format!("{error:?}"),
    }
}

impl<'a> World<'a> {
    pub(crate) fn new(fixture: &'a Fixture) -> Self {
        let clock = Arc::new(ManualClock::at_secs(NOW));
        Self { fixture, clock, runs: Vec::new(), takes: Vec::new(), sets: Vec::new() }
    }

    pub(super) fn broker(&self) -> &'a Broker {
        &self.fixture.broker
    }

    pub(super) fn now(&self) -> i64 {
        self.clock.now_secs()
    }

    pub(super) fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    pub(super) fn compose(&self, task: &NewTask) -> Composed {
        let NewTask { id, task_type, payload, unique, group, delay, retention, max_retry, front } = task;
        let mut raw = RawTask::new(format!("kind-{task_type}")).queue(QUEUE).task_id(id.to_string());
        raw = raw.payload(payload.to_string()).max_retry(u32::from(*max_retry));
        if *unique {
            // So long that it does not end by Redis' own clock; Disturbance::EndLocks ends it.
            raw = raw.unique(Duration::from_secs(10_000));
        }
        if let Some(group) = group {
            raw = raw.group(format!("g{group}"));
        }
        if let Some(delay) = delay {
            raw = raw.process_in(Duration::from_secs(u64::from(*delay)));
        }
        if let Some(retention) = retention {
            raw = raw.retention(Duration::from_secs(u64::from(*retention)));
        }
        if *front && group.is_none() && delay.is_none() {
            raw = raw.front();
        }
        compose(raw, TaskOptions::new(), self.now_ns()).unwrap()
    }

    /// Some runs and their messages, each once, as a server would report on them.
    fn pick(&self, nths: &[Nth]) -> Vec<(Run, TaskMessage)> {
        let mut picked: Vec<&(Run, TaskMessage)> = Vec::new();
        for run in nths.iter().filter_map(|nth| nth.of(&self.runs)) {
            if !picked.iter().any(|other| std::ptr::eq(*other, run)) {
                picked.push(run);
            }
        }
        picked.into_iter().cloned().collect()
    }

    fn report((run, message): &(Run, TaskMessage), resent: bool) -> Report {
        let side = if run.id.len().is_multiple_of(2) { Side::Youngest } else { Side::Oldest };
        Report { resent, ..Report::by_owner(run.clone(), message, side) }
    }

    fn remember(&mut self, taken: &Dequeued) {
        let Dequeued::Tasks(tasks) = taken else { return };
        for task in tasks {
            match task {
                Taken::Task(delivery) => self.runs.push((delivery.run.clone(), delivery.message.clone())),
                Taken::Poisoned(run, ..) => self.runs.push((run.clone(), TaskMessage::default())),
                Taken::Ghost(_) => {}
            }
        }
    }

    fn new_take(&mut self) -> (Arc<str>, i64) {
        let take: (Arc<str>, i64) = (format!("take-{}", self.takes.len()).into(), self.now() + 30);
        self.takes.push(take.clone());
        take
    }

    pub(crate) async fn apply(&mut self, operation: &Operation) -> String {
        let (broker, now, now_ns) = (self.broker(), self.now(), self.now_ns());
        let queue: Arc<str> = QUEUE.into();
        match operation {
            Operation::Store(tasks) => self.store(tasks).await,
            Operation::Publish { task, replace, reschedule, restart, follow, throttle, call } => {
                let mut policy = PublishPolicy::default();
                (policy.replace, policy.reschedule) = (*replace, *reschedule);
                (policy.restart, policy.follow) = (*restart, *follow);
                policy.max_wait = restart.then_some(Duration::from_secs(100));
                // So long that it does not end by Redis' own clock.
                policy.window = throttle.then_some(Duration::from_secs(10_000));
                match broker.publish(&self.compose(task), &policy, now_ns, u64::from(*call)).await {
                    // What is left of the window is Redis' own time.
                    Ok(Some(PublishVerdict { outcome, holder, .. })) => format!("{outcome} {holder:?}"),
                    answer => told(answer),
                }
            }
            Operation::Take { count } => {
                let (token, expires) = self.new_take();
                let taken = broker.dequeue(&queue, usize::from(*count), &token, expires).await;
                taken.iter().for_each(|taken| self.remember(taken));
                told(taken)
            }
            Operation::TakeMatching { count, types, from, window, are_young } => {
                let (token, expires) = self.new_take();
                let task_type = |task_type: &u8| format!("kind-{task_type}");
                let (from, to) = (i64::from(*from), i64::from(from + window - 1));
                let range = if *are_young { (from, to) } else { (-to - 1, -from - 1) };
                let mut ids = match broker.waiting(QUEUE, &[range]).await {
                    Ok(mut waiting) => waiting.ids.remove(0),
                    Err(error) => return error.to_string(),
                };
                ids.reverse();
                let matching = Matching {
                    types: types.iter().skip(1).map(task_type).collect(),
                    prefixes: types.iter().take(1).map(task_type).collect(),
                    ids,
                    are_young: *are_young,
                };
                let taken = broker.dequeue_matching(&queue, usize::from(*count), &token, expires, &matching).await;
                taken.iter().for_each(|(taken, _)| self.remember(taken));
                told(taken)
            }
            Operation::Done { runs, resent } => {
                let reports: Vec<Report> = self.pick(runs).iter().map(|run| Self::report(run, *resent)).collect();
                if reports.is_empty() { String::new() } else { told(broker.done(&queue, &reports, now).await) }
            }
            Operation::Complete { runs, resent, result } => {
                let complete = |run: &(Run, TaskMessage)| Completion {
                    report: Self::report(run, *resent),
                    message: TaskMessage { completed_at: now, ..run.1.clone() },
                    expires_at: now + 50,
                    result: result.then(|| "a result".into()),
                };
                let completions: Vec<Completion> = self.pick(runs).iter().map(complete).collect();
                if completions.is_empty() {
                    String::new()
                } else {
                    told(broker.complete(&queue, &completions, now).await)
                }
            }
            Operation::Retry { run, delay, counts } => {
                let Some(run) = self.pick(&[*run]).pop() else { return String::new() };
                let message = failed(&run.1, now);
                let at = now + i64::from(*delay);
                told(broker.retry(&Self::report(&run, false), &message, at, *counts, now).await)
            }
            Operation::Archive { run } => {
                let Some(run) = self.pick(&[*run]).pop() else { return String::new() };
                told(broker.archive(&Self::report(&run, false), &failed(&run.1, now), now).await)
            }
            Operation::Requeue { run } => {
                let Some(run) = self.pick(&[*run]).pop() else { return String::new() };
                told(broker.requeue(&Self::report(&run, false), now_ns).await)
            }
            Operation::WriteResult { run } => {
                let Some((run, _)) = self.pick(&[*run]).pop() else { return String::new() };
                told(broker.write_result(&run, format!("half-way at {now}").as_bytes()).await)
            }
            Operation::Renew { runs } => {
                let runs: Vec<Run> = self.pick(runs).into_iter().map(|(run, _)| run).collect();
                if runs.is_empty() {
                    return String::new();
                }
                let mut connection = broker.redis().pooled().await.unwrap();
                told(broker.extend_lease(&mut connection, &queue, &runs, now + 30).await)
            }
            Operation::Forward { retry, skip } => {
                let set = if *retry { TaskState::Retry } else { TaskState::Scheduled };
                told(broker.forward(&queue, set, now_ns, u64::from(*skip)).await)
            }
            Operation::Recover { archive, skip } => self.recover(&queue, *archive, *skip).await,
            Operation::FindLost { take } => {
                let Some((token, expires)) = take.of(&self.takes) else { return String::new() };
                told(broker.requeue_run(&queue, token, *expires, now_ns).await)
            }
            Operation::CleanUp => {
                let completed = told(broker.delete_expired_completed(&queue, now).await);
                let long_after = now + 90 * 24 * 60 * 60 - 100;
                format!("{completed} {}", told(broker.trim_archived(&queue, long_after).await))
            }
            Operation::Pause => told(self.inspector().pause(&queue).await),
            Operation::Unpause => told(self.inspector().unpause(&queue).await),
            Operation::Wait { secs } => {
                self.clock.set_secs(now + i64::from(*secs));
                String::new()
            }
            Operation::Look => self.look().await,
            Operation::Group(operation) => self.apply_to_groups(operation).await,
            Operation::Manage(operation) => self.manage(operation).await,
            Operation::Disturb(disturbance) => {
                disturbance.apply(self.fixture).await;
                String::new()
            }
        }
    }

    pub(crate) fn inspector(&self) -> Inspector {
        Inspector::with_clock(self.broker().redis().clone(), self.clock.clone())
    }

    async fn store(&self, tasks: &[NewTask]) -> String {
        let (broker, now_ns) = (self.broker(), self.now_ns());
        let mut told = told(broker.publish_queue(QUEUE).await);
        let (mut pending, mut front, mut scheduled) = (Vec::new(), Vec::new(), Vec::new());
        for task in tasks.iter().map(|task| self.compose(task)) {
            match task.placement {
                Placement::Pending => pending.push(task),
                Placement::Front => front.push(task),
                Placement::Scheduled { .. } => scheduled.push(task),
                Placement::Aggregating => told += &super::world::told(broker.add_to_group(&task, self.now()).await),
            }
        }
        if !pending.is_empty() {
            told += &super::world::told(broker.enqueue(QUEUE, &pending, now_ns).await);
        }
        if !front.is_empty() {
            told += &super::world::told(broker.enqueue_front(QUEUE, &front, now_ns).await);
        }
        if !scheduled.is_empty() {
            told += &super::world::told(broker.schedule(QUEUE, &scheduled).await);
        }
        told
    }

    /// What a recoverer does with the tasks of silent workers, half of them by retrying.
    async fn recover(&self, queue: &Arc<str>, archive: bool, skip: bool) -> String {
        let (broker, now) = (self.broker(), self.now());
        let expired = broker.list_expired(queue, now - 30, usize::from(skip)).await;
        let mut text = told(expired.as_ref().map_err(Error::clone));
        for lease in expired.into_iter().flat_map(|expired| expired.leases).take(2) {
            let crashes = Some(lease.crashes.clone().and(&lease.owner, lease.ended_at()));
            let message = lease.message.as_ref().map_or_else(|| lease.raw.to_vec(), |message| failed(message, now));
            let (message, retry_at) = (message.into(), (!archive).then_some(now + 10));
            let recovery = Recovery { lease, message, retry_at, crashes, attempt: None, follow_up: None };
            text += &told(broker.recover(queue, &[recovery], 0, now).await);
        }
        text
    }

    async fn look(&self) -> String {
        let inspector = self.inspector();
        let mut text = told(inspector.queues().await) + &told(inspector.queue(QUEUE).await);
        for state in TaskState::ALL {
            for page in [Page { skip: 0, size: 3 }, Page { skip: 3, size: 30 }] {
                text += &format!("\n{state} {}", told(inspector.tasks(QUEUE, state, page).await));
            }
        }
        for id in 0..10 {
            text += &format!("\n{}", told(inspector.task(QUEUE, &id.to_string()).await));
        }
        text
    }
}

/// The message of a task whose attempt failed.
fn failed(message: &TaskMessage, now: i64) -> Vec<u8> {
    let retried = message.retried + 1;
    TaskMessage { retried, error_msg: "failed".into(), last_failed_at: now, ..message.clone() }.to_bytes().to_vec()
}

//! The ticker: deals with ticks when their time has come.

use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use futures_util::StreamExt as _;
use queue_core::clock::UnixSecond;
use queue_core::options::Placement;
use queue_core::{Clock, TaskInfo, TaskState};
use queue_redis::log::{error, info, warn};
use queue_redis::service::Service;
use queue_redis::{
    EnqueueError, Error,
    broker::{Broker, Tick, TickReply, TickVerdict, Why},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::carried::Shared;
use super::hooks::{TickHook, Ticked, guarded};
use crate::schedule::{Schedule, Step};

/// Entries dealt with at the same time.
const AT_ONCE: usize = 32;
/// How often the end of the run before is looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The longest pause after failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Waits for ticks and deals with them.
#[derive(Clone)]
pub(super) struct Ticker {
    pub(super) broker: Broker,
    pub(super) clock: Arc<dyn Clock>,
    /// The longest time without a look at the clock.
    pub(super) poll_interval: Duration,
    pub(super) on_tick: Option<Arc<TickHook>>,
    pub(super) shared: Arc<Shared>,
    /// Ends it between two ticks of an entry.
    pub(super) stop: CancellationToken,
}

impl Service for Ticker {
    const NAME: &'static str = "ticker";
    const WORK: &'static str = "enqueuing periodic tasks";
    // No answer is lost.
    const FINISHES: bool = true;

    /// What fails is tried again by itself: each entry has its own pause.
    async fn run_once(&mut self) -> Result<Duration, Error> {
        let now_ns = self.clock.now_ns();
        let (due, rest) = self.shared.entries().due(now_ns, Instant::now());
        if due.is_empty() {
            // The clock may be set: look again soon.
            return Ok(rest.min(self.poll_interval).max(Duration::from_millis(1)));
        }
        let dealing = futures_util::stream::iter(due);
        dealing.for_each_concurrent(AT_ONCE, |(schedule, version)| self.deal(schedule, version)).await;
        Ok(Duration::ZERO)
    }

    async fn wait(&mut self, pause: Duration) {
        if !pause.is_zero() {
            let _ = tokio::time::timeout(pause, self.shared.changed.notified()).await;
        }
    }
}

impl Ticker {
    /// Deals with what is due of one entry, tick by tick.
    pub(super) async fn deal(&self, schedule: Arc<Schedule>, version: u64) {
        let now = self.clock.now_secs();
        let (upto, waiting, unsure) = match self.shared.entries().version(&schedule.name, version) {
            Some(carried) => (carried.upto, carried.waiting, carried.unsure),
            None => return,
        };
        let waiting = waiting.map(|tick| Step { why: Why::Waiting, tick });
        let mut steps: Vec<Step> = waiting.into_iter().chain(schedule.plan(upto, now)).collect();
        if let Some((tick, _)) = unsure
            && !steps.iter().any(|step| step.tick == tick)
        {
            // Its time is over, or Redis has said that it is dealt with; all there is to learn is by whom.
            steps.insert(0, Step { why: Why::LetGo { from: tick }, tick });
        }
        let (mut rest, mut known) = (None, upto);
        for step in steps {
            if self.stop.is_cancelled() {
                return;
            }
            let lost_ns = unsure.filter(|(tick, _)| *tick == step.tick).map(|(_, at_ns)| at_ns);
            let now_ns = lost_ns.unwrap_or_else(|| self.clock.now_ns());
            match self.attempt(&schedule, step, now_ns, lost_ns.is_some()).await {
                Ok(reply) => {
                    let mut entries = self.shared.entries();
                    let Some(carried) = entries.version(&schedule.name, version) else { return };
                    if std::mem::take(&mut carried.failures) > 0 {
                        info!(entry = schedule.name, "the entry works again");
                    }
                    carried.unsure = carried.unsure.filter(|(tick, _)| *tick != step.tick);
                    carried.look_back(reply.before, known);
                    known = known.max(reply.upto);
                    carried.learn(reply.upto, reply.last_ns);
                    match (reply.verdict, step.why) {
                        (TickVerdict::Waiting, _) => {
                            carried.waiting = Some(step.tick);
                            rest = Some(LOOK_AGAIN);
                        }
                        (TickVerdict::Ahead, _) => {
                            error!(
                                entry = schedule.name,
                                "the time by which ticks come is over a minute ahead of that of the Redis node with the entry; correct the \
                                 clock that is wrong, this machine's or a node's"
                            );
                            carried.rest_until = Some(Instant::now() + LONGEST_PAUSE);
                            return;
                        }
                        // A later run makes up for the one that waits.
                        (TickVerdict::Enqueued, _) | (_, Why::Waiting) => carried.waiting = None,
                        _ => {}
                    }
                }
                Err(problem) => {
                    let mut entries = self.shared.entries();
                    let Some(carried) = entries.version(&schedule.name, version) else { return };
                    let first = carried.failures == 0;
                    carried.failures = carried.failures.saturating_add(1);
                    if matches!(&problem, EnqueueError::Redis(problem) if problem.is_ambiguous()) {
                        carried.unsure = Some((step.tick, now_ns));
                    }
                    let pause = Duration::from_millis(50).saturating_mul(1 << carried.failures.min(10));
                    carried.rest_until = Some(Instant::now() + pause.min(LONGEST_PAUSE));
                    drop(entries);
                    if first {
                        error!(entry = schedule.name, tick = %UnixSecond(step.tick), error = %problem, "a tick failed; trying again until it works");
                        self.tell(&schedule, step, Err(&problem));
                    }
                    return;
                }
            }
        }
        if let Some(carried) = self.shared.entries().version(&schedule.name, version) {
            carried.rest_until = rest.map(|rest| Instant::now() + rest);
        }
    }

    /// Asks Redis for one tick. `again`: the answer to an earlier call, of the same nanosecond, was lost.
    async fn attempt(
        &self,
        schedule: &Schedule,
        step: Step,
        now_ns: i64,
        again: bool,
    ) -> Result<TickReply, EnqueueError> {
        self.broker.list_queue(&schedule.queue).await?;
        let task = match schedule.compose(step.tick, now_ns) {
            Ok(task) => task,
            // It was composed when it was registered, and nothing but the time has changed since.
            Err(problem) => return Err(problem.into()),
        };
        let tick = Tick {
            entry: &schedule.name,
            why: step.why,
            at: step.tick,
            task: &task,
            overlap: schedule.overlap,
            max_runs: schedule.max_runs,
        };
        let mut reply = self.broker.enqueue_tick(tick, now_ns).await?;
        let was_ours = reply.last_id == task.message.id && reply.last_ns == now_ns;
        if again && reply.verdict == TickVerdict::Claimed && was_ours {
            reply.verdict = TickVerdict::Enqueued;
        }
        let id = &task.message.id;
        match reply.verdict {
            TickVerdict::Enqueued => {
                info!(entry = schedule.name, tick = %UnixSecond(step.tick), task = %id, queue = schedule.queue, "enqueued");
                self.broker.tell_enqueued(std::iter::once((&task.message, task.placement.due())), now_ns);
                if let Err(problem) = self.broker.record_enqueue_event(&schedule.name, id, reply.last_ns).await {
                    warn!(entry = schedule.name, error = %problem, "the tick is missing in the history that Go's tools show");
                }
            }
            TickVerdict::LetGo => {
                let Why::LetGo { from } = step.why else { return Ok(reply) };
                warn!(entry = schedule.name, from = %UnixSecond(from), to = %UnixSecond(step.tick), "ticks were missed and are let go");
            }
            TickVerdict::Unfinished | TickVerdict::Locked => {
                info!(entry = schedule.name, tick = %UnixSecond(step.tick), verdict = ?reply.verdict, "a tick is left out");
            }
            verdict => debug!(entry = schedule.name, tick = %UnixSecond(step.tick), ?verdict, "a tick"),
        }
        if !matches!(reply.verdict, TickVerdict::Claimed | TickVerdict::Waiting | TickVerdict::Ahead) {
            self.tell(schedule, step, Ok(reply.verdict));
        }
        Ok(reply)
    }

    /// Calls the hook about a tick.
    fn tell(&self, schedule: &Schedule, step: Step, outcome: Result<TickVerdict, &EnqueueError>) {
        let Some(hook) = &self.on_tick else { return };
        let Ok(task) = schedule.compose(step.tick, self.clock.now_ns()) else { return };
        let state = match task.placement {
            Placement::Pending | Placement::Front => TaskState::Pending,
            Placement::Scheduled { .. } => TaskState::Scheduled,
            Placement::Aggregating => TaskState::Aggregating,
        };
        let ticked = Ticked {
            entry: &schedule.name,
            tick: DateTime::from_timestamp(step.tick, 0).unwrap_or_default(),
            why: step.why,
            task: TaskInfo::new(task.message, state),
            outcome,
        };
        guarded("tick", || hook(&ticked));
    }
}

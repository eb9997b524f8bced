//! Reports on finished attempts.
//!
//! Reports gather while others are under way and then travel together, one call for each queue and kind: natural
//! batches, without timers. Where they come faster than Redis answers, a [wave](Shared::wave) of them waits for
//! nobody. A call that fails is repeated until it is answered, while the leases of its tasks are kept; asynq drops
//! such a report (W01).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{join, join_all};
use futures_util::stream::FuturesUnordered;
use queue_core::outcome::Step;
use queue_redis::service::{Backoff, Outage, Service};
use queue_redis::{
    Error,
    broker::{Ended, Report, Run, SHORT_BATCH, Travel, Verdict},
};
use tokio::sync::Notify;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::shared::Shared;
use super::slots::{Slot, Slots};
use super::trouble::{Refusal, Trouble};
use crate::events::Event;
use crate::log::warn;
use crate::sequel::{Sequel, free_lanes, start_followers};

/// Boxed, since it changes hands some twenty times.
pub(super) type Ack = Box<Unsettled>;

/// A report, from the beginning of the attempt until it is settled, and what becomes free by it.
///
/// One that is dropped before, whoever panicked, is sent to the loop again: without an outcome yet, the task is requeued.
pub(super) struct Unsettled {
    ticket: u64,
    pub(super) report: Report,
    pub(super) step: Step,
    pub(super) sequel: Sequel,
    /// What those who listen are told when it is written.
    pub(super) news: Option<Box<queue_core::event::Event>>,
    /// None while others have it, because the report is on its way, or refused.
    slot: Option<Arc<Slot>>,
    shared: Arc<Shared>,
    /// Whether it counts as unwritten.
    sent: bool,
    settled: bool,
}

impl Unsettled {
    pub(super) fn new(shared: Arc<Shared>, ticket: u64, report: Report, slot: Arc<Slot>) -> Ack {
        let (step, slot) = (Step::Requeue, Some(slot));
        Box::new(Self {
            ticket,
            report,
            step,
            sequel: Sequel::default(),
            news: None,
            slot,
            shared,
            sent: false,
            settled: false,
        })
    }

    /// Nothing is left to be written; the task is no longer in hand.
    pub(super) fn settle(&mut self) {
        self.settled = true;
        self.shared.running.remove([self.ticket]);
        self.shared.slots.give_back(self.slot.take());
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if self.settled {
            if self.sent {
                self.shared.acks.written();
            }
            return;
        }
        let mut report = self.report.clone();
        report.resent |= self.sent;
        let step = std::mem::replace(&mut self.step, Step::Requeue);
        let (slot, shared, sequel) = (self.slot.take(), self.shared.clone(), std::mem::take(&mut self.sequel));
        let (ticket, news, sent) = (self.ticket, self.news.take(), self.sent);
        let again = Self { ticket, report, step, sequel, news, slot, shared, sent, settled: false };
        self.shared.acks.send([Box::new(again)]);
    }
}

impl Ended for Ack {
    fn ended(&self) -> (&Report, &Step) {
        (&self.report, &self.step)
    }
}

/// The sending side.
#[derive(Debug)]
pub(super) struct Acks {
    // Unbounded, because what is in it is bounded by the slots.
    sender: UnboundedSender<Ack>,
    unwritten: AtomicUsize,
    all_written: Notify,
    pub(super) trouble: Arc<Trouble>,
}

impl Acks {
    pub(super) fn new(trouble: Arc<Trouble>) -> (Self, UnboundedReceiver<Ack>) {
        let (sender, receiver) = unbounded_channel();
        let (unwritten, all_written) = Default::default();
        (Self { sender, unwritten, all_written, trouble }, receiver)
    }

    /// Hands reports to the loop.
    pub(super) fn send(&self, acks: impl IntoIterator<Item = Ack>) {
        for mut ack in acks {
            if !std::mem::replace(&mut ack.sent, true) {
                self.unwritten.fetch_add(1, Ordering::AcqRel);
            }
            // The loop lives until all attempts have ended and all reports are written, or given up.
            if let Err(SendError(mut ack)) = self.sender.send(ack) {
                warn!(
                    task = %ack.report.run.id,
                    "an attempt ended after its server; its task comes back when its lease ends"
                );
                ack.settle();
            }
        }
    }

    /// Waits until no report is unwritten.
    pub(super) async fn flushed(&self) {
        loop {
            let written = self.all_written.notified();
            if self.unwritten.load(Ordering::Acquire) == 0 {
                return;
            }
            written.await;
        }
    }

    /// One report less is unwritten.
    fn written(&self) {
        if self.unwritten.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all_written.notify_waiters();
        }
    }
}

#[derive(Clone)]
pub(super) struct AckWriter {
    pub(super) shared: Arc<Shared>,
    /// Locked while the loop runs: one that panicked leaves it to the next.
    pub(super) acks: Arc<tokio::sync::Mutex<UnboundedReceiver<Ack>>>,
}

impl Service for AckWriter {
    const NAME: &'static str = "acks";
    const WORK: &'static str = "writing the outcomes of tasks";

    /// Writes what has been reported by now.
    async fn run_once(&mut self) -> Result<Duration, Error> {
        let mut gathered = Vec::new();
        gather(&mut *self.acks.lock().await, &mut gathered);
        send(&self.shared, gathered, &self.shared.shutdown.ended).await;
        Ok(Duration::ZERO)
    }

    /// Writes reports until it is told to stop.
    async fn run(&mut self, stop: &CancellationToken, _: &Arc<Outage>) {
        let shared = &self.shared;
        let mut acks = self.acks.lock().await;
        let mut gathered = Vec::new();
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(()) = under_way.next() => {}
                () = stop.cancelled() => break,
                Some(ack) = acks.recv() => gathered.push(ack),
            }
            let wave = shared.wave();
            gather(&mut acks, &mut gathered);
            if under_way.is_empty() && (1..wave).contains(&gathered.len()) {
                // Attempts that are about to end, end now and travel with this one; a lone one loses no time.
                tokio::task::yield_now().await;
                gather(&mut acks, &mut gathered);
            }
            let few = if under_way.is_empty() { 0 } else { gathered.len() % wave };
            if gathered.len() > few {
                let rest = gathered.split_off(gathered.len() - few);
                under_way.push(send(shared, std::mem::replace(&mut gathered, rest), stop));
            }
        }
        while let Some(()) = under_way.next().await {}
    }
}

fn gather(acks: &mut UnboundedReceiver<Ack>, gathered: &mut Vec<Ack>) {
    while gathered.len() < 50 * SHORT_BATCH
        && let Ok(ack) = acks.try_recv()
    {
        gathered.push(ack);
    }
}

async fn send(shared: &Arc<Shared>, gathered: Vec<Ack>, stop: &CancellationToken) {
    let mut batches = batches(gathered);
    let slots: Vec<_> = batches.iter_mut().flat_map(Batch::free_slots).collect();
    let writes = join_all(batches.into_iter().map(|batch| attempt(shared, batch, false)));
    // Whoever takes tasks into these slots does it after the reports, on the same connection: Redis never
    // sees more tasks active than there are slots. Both travel together, which halves the round trips.
    let (failed, ()) = join(writes, async { shared.slots.give_back(slots) }).await;
    for (batch, error, resend) in failed.into_iter().flatten() {
        let refusal = refused(shared, &batch, &error);
        // Others need not wait for a queue that Redis refuses to change.
        let persist = persist(shared.clone(), batch, error, resend, refusal);
        tokio::spawn(stop.clone().run_until_cancelled_owned(persist));
    }
}

/// Reports that one call can carry.
struct Batch(Vec<Ack>);

impl Batch {
    /// The slots that nobody else holds.
    fn free_slots(&mut self) -> Vec<Arc<Slot>> {
        let free = |ack: &mut Ack| ack.slot.take_if(|slot| Arc::strong_count(slot) == 1);
        self.0.iter_mut().filter_map(free).collect()
    }

    /// The same, to be sent again; it may have been applied already. While Redis cannot be asked, the slots
    /// are taken back, which holds up the server until it can. A refusal does not concern other queues.
    fn again(mut self, resent: bool, transient: bool, slots: &Slots) -> Self {
        for ack in &mut self.0 {
            ack.report.resent |= resent;
            if transient {
                ack.slot.get_or_insert_with(|| slots.take_back());
            }
        }
        if !transient {
            slots.give_back(self.free_slots());
        }
        self
    }

    /// Each report in a batch of its own.
    fn into_singles(self) -> impl Iterator<Item = Self> {
        self.0.into_iter().map(|ack| Self(vec![ack]))
    }
}

fn batches(gathered: Vec<Ack>) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut open: HashMap<(Arc<str>, Travel), (Vec<Ack>, usize)> = HashMap::new();
    for ack in gathered {
        let (travel, bytes) = Travel::of(&ack.step);
        if travel == Travel::Alone {
            batches.push(Batch(vec![ack]));
            continue;
        }
        let (batch, size) = open.entry((ack.report.run.queue.clone(), travel)).or_default();
        if !travel.has_room(batch.len(), *size, bytes) {
            batches.push(Batch(std::mem::take(batch)));
            *size = 0;
        }
        batch.push(ack);
        *size += bytes;
    }
    batches.extend(open.into_values().map(|(acks, _)| Batch(acks)));
    batches
}

/// Sends one batch. Gives it back with the error when that failed, and whether it may have been applied.
async fn attempt(shared: &Shared, batch: Batch, resend: bool) -> Option<(Batch, Error, bool)> {
    let apply = shared.broker.apply(&batch.0, shared.now_ns());
    let freed = free_lanes(&shared.broker, batch.0.iter().map(|ack| (&ack.report.run, &ack.sequel)));
    let applied = if batch.0.iter().any(|ack| ack.report.follow_up.is_some()) {
        // Before such a report the leader is asked for a look, and slots that are freed meanwhile are still in use.
        let applied = apply.await;
        freed.await;
        applied
    } else {
        // Behind the reports, on the same connection.
        join(apply, freed).await.0
    };
    match applied {
        Ok(verdicts) => {
            let followed = followed(&batch, &verdicts);
            settle(shared, batch, &verdicts, resend);
            if !followed.is_empty() {
                Box::pin(start_followers(&shared.broker, &followed, shared.now_ns())).await;
            }
            None
        }
        Err(error) => {
            let resend = resend || error.is_ambiguous();
            Some((batch.again(resend, error.is_outage(), &shared.slots), error, resend))
        }
    }
}

/// The runs of a batch that have ended for good and that others may follow.
fn followed(batch: &Batch, verdicts: &[Verdict]) -> Vec<Run> {
    let begins = |(ack, verdict): &(&Ack, &Verdict)| ack.sequel.begins(&ack.step, **verdict);
    batch.0.iter().zip(verdicts).filter(begins).map(|(ack, _)| ack.report.run.clone()).collect()
}

/// Sends a batch that failed again and again until it is answered.
///
/// A queue whose key has another type, say, is refused for as long as nobody mends it. No more is taken from
/// it meanwhile, so that no more reports gather than tasks were in hand.
async fn persist(shared: Arc<Shared>, batch: Batch, error: Error, resend: bool, mut refusal: Option<Refusal>) {
    let mut backoff = Backoff::new(&shared.outage, "writing the outcomes of tasks");
    let mut failed = Some((batch, error, resend));
    while let Some((batch, error, resend)) = failed {
        refusal = refusal.or_else(|| refused(&shared, &batch, &error));
        if !error.is_outage() && batch.0.len() > 1 {
            // What is wrong with one of them must not hold up the others.
            let alone = batch.into_singles().map(|batch| persist(shared.clone(), batch, error.clone(), resend, None));
            join_all(alone.map(Box::pin)).await;
            break;
        }
        if error.is_outage() {
            backoff.failed(&error).await;
        } else {
            backoff.refused().await;
        }
        failed = attempt(&shared, batch, resend).await;
    }
    backoff.succeeded();
    if let Some(refusal) = refusal {
        refusal.answered();
    }
}

fn refused(shared: &Arc<Shared>, batch: &Batch, error: &Error) -> Option<Refusal> {
    Refusal::of(&shared.acks.trouble, &batch.0.first()?.report.run.queue, error)
}

fn settle(shared: &Shared, mut batch: Batch, verdicts: &[Verdict], resent: bool) {
    // First what must not be lost, whatever becomes of the log.
    let acks = &mut batch.0;
    shared.running.remove(acks.iter().map(|ack| ack.ticket));
    shared.slots.give_back(acks.iter_mut().filter_map(|ack| {
        ack.settled = true;
        ack.slot.take()
    }));
    let mut refused = 0;
    for (ack, verdict) in acks.iter_mut().zip(verdicts) {
        if let Some(news) = ack.news.take()
            && matches!(verdict, Verdict::Applied | Verdict::AlreadyApplied)
        {
            shared.broker.feed().tell(|| *news);
        }
        let (run, resent) = (&ack.report.run, resent || ack.report.resent);
        match verdict {
            Verdict::Applied | Verdict::AlreadyApplied => continue,
            // The first sending deleted it, and its answer was lost.
            Verdict::Gone if resent && matches!(ack.step, Step::Done | Step::Revoke) => continue,
            // Likewise: it waits in its queue, or somebody has it already.
            Verdict::Lost if resent && ack.step == Step::Requeue => continue,
            Verdict::Gone => warn!(task = run.id, queue = %run.queue, "task was deleted while it was being worked on"),
            Verdict::Lost => {
                warn!(task = run.id, queue = %run.queue, "outcome not written: the task was recovered by another server");
            }
        }
        refused += 1;
    }
    if let Some(first) = acks.first() {
        shared.tell(|| Event::Reported { queue: &first.report.run.queue, tasks: acks.len(), refused });
    }
}

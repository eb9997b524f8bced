//! Reports on finished attempts.
//!
//! Reports gather while others are under way and then travel together, one call for each queue and kind: natural
//! batches, without timers. Where they come faster than Redis answers, a [wave](Shared::wave) of them waits for
//! nobody. A call that fails is repeated until it is answered, while the leases of its tasks are kept; asynq drops
//! such a report (W01).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use futures_util::future::{join, join_all};
use futures_util::stream::FuturesUnordered;
use queue_core::outcome::Step;
use queue_redis::service::Backoff;
use queue_redis::{Completion, Error, MAX_BATCH_BYTES, Report, SET_BATCH, SHORT_BATCH, Verdict};
use tokio::sync::Notify;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::slots::{Slot, Slots};
use super::trouble::{Refusal, Trouble};
use crate::events::Event;
use crate::log::warn;

/// A report, from the beginning of the attempt until it is settled, and what becomes free by it.
///
/// One that is dropped before, whoever panicked, is sent to the loop again: without an outcome yet, the task is put back.
pub(super) struct Ack {
    ticket: u64,
    pub(super) report: Report,
    pub(super) step: Step,
    /// None while others have it, because the report is on its way, or refused.
    slot: Option<Arc<Slot>>,
    shared: Arc<Shared>,
    /// Whether it counts as unwritten.
    sent: bool,
    settled: bool,
}

impl Ack {
    pub(super) fn new(shared: Arc<Shared>, ticket: u64, report: Report, slot: Arc<Slot>) -> Self {
        Self { ticket, report, step: Step::Requeue, slot: Some(slot), shared, sent: false, settled: false }
    }

    /// Hands it to the loop.
    pub(super) fn send(mut self) {
        let acks = &self.shared.acks;
        if !std::mem::replace(&mut self.sent, true) {
            acks.unwritten.fetch_add(1, Ordering::AcqRel);
        }
        let sender = acks.sender.clone();
        // The loop lives until all attempts have ended and all reports are written, or given up.
        if let Err(SendError(mut ack)) = sender.send(self) {
            ack.settle();
        }
    }

    /// Nothing is left to be written; the task is no longer in hand.
    pub(super) fn settle(&mut self) {
        self.settled = true;
        self.shared.running.remove([self.ticket]);
        self.shared.slots.give_back(self.slot.take());
    }
}

impl Drop for Ack {
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
        let (slot, shared) = (self.slot.take(), self.shared.clone());
        Self { ticket: self.ticket, report, step, slot, shared, sent: self.sent, settled: false }.send();
    }
}

/// The sending side.
#[derive(Debug)]
pub(super) struct Acks {
    // Unbounded, because what is in it is bounded by the slots.
    sender: UnboundedSender<Ack>,
    unwritten: AtomicUsize,
    all_written: Notify,
    pub(super) trouble: Trouble,
}

impl Acks {
    pub(super) fn new() -> (Self, UnboundedReceiver<Ack>) {
        let (sender, receiver) = unbounded_channel();
        let (unwritten, all_written, trouble) = Default::default();
        (Self { sender, unwritten, all_written, trouble }, receiver)
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

/// Writes reports until it is told to stop.
pub(super) async fn run(
    shared: Arc<Shared>,
    acks: Arc<tokio::sync::Mutex<UnboundedReceiver<Ack>>>,
    stop: CancellationToken,
) {
    let mut acks = acks.lock().await;
    let wave = shared.wave();
    let mut gathered = Vec::new();
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(()) = under_way.next() => {}
            () = stop.cancelled() => break,
            Some(ack) = acks.recv() => gathered.push(ack),
        }
        gather(&mut acks, &mut gathered);
        if under_way.is_empty() && (1..wave).contains(&gathered.len()) {
            // Attempts that are about to end, end now and travel with this one; a lone one loses no time.
            tokio::task::yield_now().await;
            gather(&mut acks, &mut gathered);
        }
        let few = if under_way.is_empty() { 0 } else { gathered.len() % wave };
        if gathered.len() > few {
            let rest = gathered.split_off(gathered.len() - few);
            under_way.push(send(&shared, std::mem::replace(&mut gathered, rest), &stop));
        }
    }
    while let Some(()) = under_way.next().await {}
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
enum Batch {
    Done(Vec<Ack>),
    Complete(Vec<Ack>),
    Single(Box<Ack>),
}

impl Batch {
    fn of(completes: bool, acks: Vec<Ack>) -> Self {
        if completes { Self::Complete(acks) } else { Self::Done(acks) }
    }

    fn acks(&self) -> &[Ack] {
        match self {
            Batch::Done(acks) | Batch::Complete(acks) => acks,
            Batch::Single(ack) => std::slice::from_ref(ack),
        }
    }

    fn acks_mut(&mut self) -> &mut [Ack] {
        match self {
            Batch::Done(acks) | Batch::Complete(acks) => acks,
            Batch::Single(ack) => std::slice::from_mut(&mut **ack),
        }
    }

    /// The slots that nobody else holds.
    fn free_slots(&mut self) -> Vec<Arc<Slot>> {
        let free = |ack: &mut Ack| ack.slot.take_if(|slot| Arc::strong_count(slot) == 1);
        self.acks_mut().iter_mut().filter_map(free).collect()
    }

    /// The same, to be sent again; it may have been applied already. While Redis cannot be asked, the slots
    /// are taken back, which holds up the server until it can. A refusal does not concern other queues.
    fn again(mut self, resent: bool, transient: bool, slots: &Slots) -> Self {
        for ack in self.acks_mut() {
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
        let completes = matches!(self, Self::Complete(_));
        self.into_acks().into_iter().map(move |ack| Self::of(completes, vec![ack]))
    }

    fn into_acks(self) -> Vec<Ack> {
        match self {
            Batch::Done(acks) | Batch::Complete(acks) => acks,
            Batch::Single(ack) => vec![*ack],
        }
    }
}

fn batches(gathered: Vec<Ack>) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut open: HashMap<(Arc<str>, bool), (Vec<Ack>, usize)> = HashMap::new();
    for ack in gathered {
        let (completes, bytes) = match &ack.step {
            Step::Done => (false, 0),
            Step::Complete { message, result, .. } => {
                (true, message.payload.len() + result.as_ref().map_or(0, bytes::Bytes::len))
            }
            Step::Retry { .. } | Step::Archive { .. } | Step::Requeue => {
                batches.push(Batch::Single(Box::new(ack)));
                continue;
            }
        };
        let most = if completes { SET_BATCH } else { SHORT_BATCH };
        let (batch, size) = open.entry((ack.report.run.queue.clone(), completes)).or_default();
        if batch.len() == most || (!batch.is_empty() && *size + bytes > MAX_BATCH_BYTES) {
            batches.push(Batch::of(completes, std::mem::take(batch)));
            *size = 0;
        }
        batch.push(ack);
        *size += bytes;
    }
    batches.extend(open.into_iter().map(|((_, completes), (acks, _))| Batch::of(completes, acks)));
    batches
}

/// Sends one batch. Gives it back with the error when that failed, and whether it may have been applied.
async fn attempt(shared: &Shared, batch: Batch, resend: bool) -> Option<(Batch, Error, bool)> {
    match write(shared, &batch).await {
        Ok(verdicts) => {
            settle(shared, batch, &verdicts, resend);
            None
        }
        Err(error) => {
            let resend = resend || error.is_ambiguous();
            Some((batch.again(resend, error.is_outage(), &shared.slots), error, resend))
        }
    }
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
        if !error.is_outage() && batch.acks().len() > 1 {
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
    Refusal::of(shared, &batch.acks().first()?.report.run.queue, error)
}

async fn write(shared: &Shared, batch: &Batch) -> Result<Vec<Verdict>, Error> {
    let broker = &shared.broker;
    let now = shared.now();
    match batch {
        Batch::Done(acks) => {
            let reports: Vec<Report> = acks.iter().map(|ack| ack.report.clone()).collect();
            broker.done(&acks[0].report.run.queue, &reports, now).await
        }
        Batch::Complete(acks) => {
            let reports: Vec<Completion> = acks
                .iter()
                .filter_map(|ack| match &ack.step {
                    Step::Complete { message, expires_at, result } => Some(Completion {
                        report: ack.report.clone(),
                        message: message.clone(),
                        expires_at: *expires_at,
                        result: result.clone(),
                    }),
                    _ => None,
                })
                .collect();
            broker.complete(&acks[0].report.run.queue, &reports, now).await
        }
        Batch::Single(ack) => {
            let report = &ack.report;
            let verdict = match &ack.step {
                Step::Retry { message, at, is_failure } => {
                    broker.retry(report, &message.to_bytes(), *at, *is_failure, now).await
                }
                Step::Archive { message } => broker.archive(report, &message.to_bytes(), now).await,
                Step::Requeue => broker.requeue(report, shared.now_ns()).await,
                Step::Done | Step::Complete { .. } => return Ok(Vec::new()),
            };
            verdict.map(|verdict| vec![verdict])
        }
    }
}

fn settle(shared: &Shared, mut batch: Batch, verdicts: &[Verdict], resent: bool) {
    // First what must not be lost, whatever becomes of the log.
    let acks = batch.acks_mut();
    shared.running.remove(acks.iter().map(|ack| ack.ticket));
    shared.slots.give_back(acks.iter_mut().filter_map(|ack| {
        ack.settled = true;
        ack.slot.take()
    }));
    let mut refused = 0;
    for (ack, verdict) in acks.iter().zip(verdicts) {
        let (run, resent) = (&ack.report.run, resent || ack.report.resent);
        match verdict {
            Verdict::Applied | Verdict::AlreadyApplied => continue,
            // The first sending deleted it, and its answer was lost.
            Verdict::Gone if resent && ack.step == Step::Done => continue,
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

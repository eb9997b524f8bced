//! What steers a running server, and how it ends.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use queue_core::clock::{UnixSecond, secs_ceil};
use queue_core::event::Kind;
use queue_redis::flow::Recorder;
use queue_redis::service::{Service as _, Services};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::heartbeater::Heartbeater;
use super::shared::Shared;
use super::shutdown::Phase;
use super::telling;
use crate::events::Event;
use crate::job::CancelReason;
use crate::log::{info, warn};

/// How many tasks a log line names.
const NAMED: usize = 10;

/// How long the end waits for outcomes of batches to be recorded, and for the last events to be told.
const LAST_RECORDS: Duration = Duration::from_secs(2);

/// A running server; clones steer the same one.
///
/// Dropping it, or all of them, leaves the server running until its runtime ends. Tasks that are in hand by then come back
/// when their leases end, and count as crashed: [`shutdown`](Self::shutdown) first.
#[derive(Clone)]
pub struct Handle {
    pub(super) inner: Arc<HandleInner>,
}

pub(super) struct HandleInner {
    pub(super) shared: Arc<Shared>,
    pub(super) heartbeater: Heartbeater,
    /// What begins new work: the processor and the aggregator.
    pub(super) intake: Services,
    /// All other loops. Leases are kept and the server listed until the last report is written.
    pub(super) upkeep: Services,
    pub(super) recorder: Recorder,
    /// As many permits as aggregations may still begin.
    pub(super) aggregating: Arc<Semaphore>,
    /// Whether somebody has begun to end it.
    pub(super) is_ending: AtomicBool,
    /// Whether it has ended without having written what became of all tasks.
    pub(super) has_unwritten: AtomicBool,
    /// Triggers when it has ended.
    pub(super) over: CancellationToken,
    /// Where it was started.
    pub(super) runtime: tokio::runtime::Handle,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("server", &self.inner.shared.identity.id()).finish_non_exhaustive()
    }
}

impl Handle {
    /// UUID of the server, as asynqmon shows it.
    pub fn server_id(&self) -> &str {
        self.inner.shared.identity.id()
    }

    /// Tasks in hand.
    pub fn active(&self) -> usize {
        self.inner.shared.running.len()
    }

    /// Stops taking tasks; those in hand go on, and so does everything else. What is on its way from Redis at this moment
    /// is requeued in front of its queue. Cannot be undone.
    pub fn quiet(&self) {
        let shared = &self.inner.shared;
        if !shared.shutdown.quiet.is_cancelled() {
            info!(server = shared.identity.id(), "server takes no more tasks");
        }
        shared.shutdown.enter(Phase::Quiet);
    }

    /// Stops taking tasks, waits for those in hand up to the shutdown timeout, puts the rest back without
    /// spending a retry, and takes the server off the list. Returns when all is written. Calling it
    /// again, at the same time or later, waits for the same end.
    pub async fn shutdown(&self) {
        self.end(self.inner.shared.options.shutdown_timeout).await;
    }

    /// Waits until the server has ended, whoever began that: this handle, another one, or an operator
    /// (`queuectl server stop`).
    pub async fn ended(&self) {
        self.inner.shared.shutdown.closing.cancelled().await;
        self.shutdown().await;
    }

    /// [`shutdown`](Self::shutdown) without waiting for the tasks in hand.
    pub async fn abort(&self) {
        self.inner.interrupt();
        self.end(Duration::ZERO).await;
    }

    async fn end(&self, patience: Duration) {
        self.inner.begin_end(patience);
        self.inner.over.cancelled().await;
    }
}

impl HandleInner {
    /// Has it end, in a task of its own: whoever waits for that may not be polled any more, or be dropped.
    fn begin_end(self: &Arc<Self>, patience: Duration) {
        self.shared.shutdown.enter(Phase::Closing);
        if !self.is_ending.swap(true, Ordering::AcqRel) {
            let (inner, over) = (self.clone(), self.over.clone().drop_guard());
            self.runtime.spawn(async move {
                inner.end(patience).await;
                drop(over);
            });
        }
    }

    /// The one way to the end; `docs/shutdown.md` says why in this order.
    async fn end(&self, patience: Duration) {
        let Self { shared, heartbeater, intake, upkeep, recorder, .. } = self;
        let server = shared.identity.id();
        intake.ended().await;
        shared.handlers.close();
        self.tell_what_is_waited_for(patience);
        let is_interrupted = shared.shutdown.interrupting.cancelled();
        let patience = async { tokio::time::timeout(patience, is_interrupted).await.is_err() };
        let is_over = tokio::select! {
            biased;
            () = shared.handlers.wait() => None,
            is_over = patience => Some(is_over),
        };
        if let Some(is_over) = is_over {
            if is_over {
                let (_, oldest) = shared.running.oldest(NAMED);
                let left = self.interrupt();
                warn!(server, tasks = left, ?oldest, "time is over; running tasks are requeued");
            }
            // A handler that never yields cannot be dropped; its task comes back when its lease ends.
            let grace = shared.options.cancel_grace + Duration::from_secs(2);
            if tokio::time::timeout(grace, shared.handlers.wait()).await.is_err() {
                warn!(server, "a handler blocks its thread and cannot be stopped");
            }
        }
        // Every attempt has ended and queued its report by now. Tasks of a take that was not answered are looked for in
        // the same time.
        shared.lookups.close();
        let all = async { tokio::join!(shared.acks.flushed(), shared.lookups.wait()) };
        if tokio::time::timeout(shared.options.lease, all).await.is_err() {
            self.has_unwritten.store(true, Ordering::Release);
            warn!(server, "some reports could not be written; their tasks come back when their leases end");
        }
        shared.shutdown.enter(Phase::Ended);
        upkeep.ended().await;
        // What members of batches have told and nobody has recorded, the leader would find; why have it wait.
        let _ = tokio::time::timeout(LAST_RECORDS, recorder.clone().run_once()).await;
        heartbeater.clear().await;
        telling::of_server(shared, Kind::ServerStopped);
        let _ = tokio::time::timeout(LAST_RECORDS, shared.broker.tell_events(telling::now(&shared.time).0)).await;
        shared.tell(|| Event::ServerStopped { server, concurrency: shared.slots.total() });
        info!(server, "server stopped");
    }

    /// Tells handlers and aggregators to stop; returns how many tasks are in hand.
    pub(super) fn interrupt(&self) -> usize {
        self.shared.shutdown.enter(Phase::Interrupting);
        self.shared.running.cancel_all(CancelReason::Shutdown)
    }

    /// Whoever has told a server to end wants to know why it does not.
    fn tell_what_is_waited_for(&self, patience: Duration) {
        let Self { shared, aggregating, .. } = self;
        if shared.handlers.is_empty() {
            return;
        }
        let (tasks, oldest) = shared.running.oldest(NAMED);
        let aggregations = shared.options.groups.concurrency.saturating_sub(aggregating.available_permits());
        let (server, until) = (shared.identity.id(), UnixSecond(shared.now().saturating_add(secs_ceil(patience))));
        info!(server, tasks, ?oldest, aggregations, %until, "server ends; waiting for what it works on");
    }
}

/// A server that does not outlive this value; one that has ended already does not notice.
pub(super) struct Leash(pub(super) Handle);

impl Deref for Leash {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.0
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.0.quiet();
        self.0.inner.interrupt();
        self.0.inner.begin_end(Duration::ZERO);
    }
}

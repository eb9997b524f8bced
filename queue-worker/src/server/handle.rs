//! What steers a running server, and how it ends.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use queue_core::clock::{At, secs_ceil};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::heartbeat;
use super::shared::{Shared, Status};
use crate::events::Event;
use crate::log::{error, info, warn};

/// How many tasks a log line names.
const NAMED: usize = 10;

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
    pub(super) stop: CancellationToken,
    /// Triggers after the last report was sent; leases are kept and the server listed until then.
    pub(super) ack_stop: CancellationToken,
    pub(super) services: TaskTracker,
    /// Held by whoever shuts down. Each step of that can be repeated, so that another caller can take
    /// over from one that was dropped half-way.
    pub(super) ending: tokio::sync::Mutex<Ending>,
}

pub(super) struct Ending {
    pub(super) processor: Option<tokio::task::JoinHandle<()>>,
    pub(super) ended: bool,
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
    /// is put back in front of its queue. Cannot be undone.
    pub fn quiet(&self) {
        let shared = &self.inner.shared;
        if !shared.quiet.is_cancelled() {
            info!(server = shared.identity.id(), "server takes no more tasks");
        }
        shared.quiet.cancel();
        let _ = shared.status.compare_exchange(
            Status::Active as u8,
            Status::Stopped as u8,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// Stops taking tasks, waits for those in hand up to the shutdown timeout, puts the rest back without
    /// spending a retry, and takes the server off the list. Returns when all is written. Calling it
    /// again, at the same time or later, waits for the same end.
    pub async fn shutdown(&self) {
        self.end(self.inner.shared.options.shutdown_timeout).await;
    }

    /// [`shutdown`](Self::shutdown) without waiting for the tasks in hand.
    pub async fn abort(&self) {
        self.inner.shared.stop_work();
        self.end(Duration::ZERO).await;
    }

    async fn end(&self, patience: Duration) {
        let HandleInner { shared, stop, ack_stop, services, ending } = &*self.inner;
        shared.quiet.cancel();
        shared.groups.closing.cancel();
        shared.status.store(Status::Closed as u8, Ordering::Release);
        let mut ending = ending.lock().await;
        if ending.ended {
            return;
        }
        if let Some(processor) = &mut ending.processor {
            if let Err(error) = processor.await {
                error!(%error, "the loop that takes tasks had failed");
            }
            ending.processor = None;
        }
        shared.handlers.close();
        tell_what_is_waited_for(shared, patience);
        if tokio::time::timeout(patience, shared.handlers.wait()).await.is_err() {
            let (_, oldest) = shared.running.oldest(NAMED);
            let left = shared.stop_work();
            warn!(server = shared.identity.id(), tasks = left, ?oldest, "time is over; running tasks are put back");
            // A handler that never yields cannot be dropped; its task comes back when its lease ends.
            let grace = shared.options.cancel_grace + Duration::from_secs(2);
            if tokio::time::timeout(grace, shared.handlers.wait()).await.is_err() {
                warn!(server = shared.identity.id(), "a handler blocks its thread and cannot be stopped");
            }
        }
        // Every attempt has ended and queued its report by now; the loop ends when all are written, or
        // when it has tried for as long as a lease lasts anyway. Tasks of a take that was not answered are
        // looked for in the same time.
        let id = shared.identity.id();
        shared.lookups.close();
        let all = async { tokio::join!(shared.acks.flushed(), shared.lookups.wait()) };
        if tokio::time::timeout(shared.options.lease, all).await.is_err() {
            warn!(server = id, "some reports could not be written; their tasks come back when their leases end");
        }
        stop.cancel();
        ack_stop.cancel();
        services.close();
        services.wait().await;
        heartbeat::clear(shared).await;
        ending.ended = true;
        shared.tell(|| Event::ServerStopped { server: id, concurrency: shared.options.concurrency });
        info!(server = id, "server stopped");
    }
}

/// Whoever has told a server to end wants to know why it does not.
fn tell_what_is_waited_for(shared: &Shared, patience: Duration) {
    let server = shared.identity.id();
    let (tasks, oldest) = shared.running.oldest(NAMED);
    let aggregations = shared.groups.running(shared.options.groups.concurrency);
    if shared.handlers.is_empty() {
        return;
    }
    let until = At(shared.now().saturating_add(secs_ceil(patience)));
    info!(server, tasks, ?oldest, aggregations, %until, "server ends; waiting for what it works on");
}

/// A server that does not outlive this value; one that has ended already does not notice.
pub(super) struct Leash {
    handle: Handle,
    runtime: tokio::runtime::Handle,
}

impl Leash {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle, runtime: tokio::runtime::Handle::current() }
    }
}

impl Deref for Leash {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        // At once, and not when the runtime gets to it.
        self.handle.quiet();
        let handle = self.handle.clone();
        self.runtime.spawn(async move { handle.abort().await });
    }
}

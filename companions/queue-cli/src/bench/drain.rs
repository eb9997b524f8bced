use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use queue_admin::Inspector;
use queue_worker::{Handle, Job, Router};
use tokio::sync::Notify;

use super::{Calling, Speed, Working, enqueue};
use crate::error::CliError;
use crate::session::Session;

/// How often to look whether the queue is empty: others may be working it too.
const LOOK: Duration = Duration::from_millis(100);

/// A server whose handlers do nothing but count.
struct Counting {
    server: Handle,
    worked: Arc<AtomicU64>,
    reached: Arc<Notify>,
}

impl Counting {
    /// Tells when `goal` tasks were worked.
    async fn start(session: &Session, queue: &str, working: &Working, goal: u64) -> Result<Self, CliError> {
        let (worked, reached) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let handler = {
            let (worked, reached, work) = (worked.clone(), reached.clone(), working.work);
            move |_: Job| {
                let (worked, reached) = (worked.clone(), reached.clone());
                async move {
                    if !work.is_zero() {
                        take(work).await;
                    }
                    if worked.fetch_add(1, Ordering::AcqRel) + 1 == goal {
                        reached.notify_one();
                    }
                }
            }
        };
        let server = super::serve(session, queue, working, Router::new(()).fallback(handler)).await?;
        Ok(Self { server, worked, reached })
    }

    /// How many were worked, all told.
    async fn end(self) -> u64 {
        self.server.shutdown().await;
        self.worked.load(Ordering::Acquire)
    }
}

/// Takes as long as a handler would. The thread is there for its timer: tokio's counts whole milliseconds, so that
/// handlers of 10 ms would take 11 and all end at once.
async fn take(work: Duration) {
    // It fails only when the runtime is ending, and nobody waits any more.
    let _ = tokio::task::spawn_blocking(move || std::thread::sleep(work)).await;
}

/// Works until the queue is empty. The time includes starting and stopping the server.
pub(super) async fn run(session: &Session, queue: &str, working: &Working) -> Result<Speed, CliError> {
    let inspector = Inspector::new(session.redis().clone());
    let waiting = inspector.queue(queue).await?.pending;
    let started = Instant::now();
    if waiting == 0 {
        return Ok(Speed::new(0, started));
    }
    let counting = Counting::start(session, queue, working, waiting).await?;
    while tokio::time::timeout(LOOK, counting.reached.notified()).await.is_err() {
        let queue = inspector.queue(queue).await?;
        if queue.pending + queue.active == 0 {
            break;
        }
    }
    let worked = counting.end().await;
    Ok(Speed::new(worked, started))
}

/// Enqueues and works at the same time, until all is done.
pub(super) async fn end_to_end(
    session: &Session,
    queue: &str,
    working: &Working,
    calling: &Calling,
) -> Result<Speed, CliError> {
    let counting = Counting::start(session, queue, working, calling.tasks).await?;
    let started = Instant::now();
    enqueue::run(session, queue, calling).await?;
    counting.reached.notified().await;
    let speed = Speed::new(calling.tasks, started);
    counting.end().await;
    Ok(speed)
}

//! What becomes of tasks that were taken and are not started.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use queue_core::TaskMessage;
use queue_redis::broker::{Delivery, Report, Run, Side};
use queue_redis::service::Backoff;

use super::shared::Shared;
use crate::log::{error, warn};

/// When to look again for the tasks of a take whose answer was lost: at once, and later, because the
/// lost call may still be on its way to a server that was slow.
const LOOK_AGAIN: [Duration; 3] = [Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(6)];

/// Archives a task that cannot be read.
pub(super) async fn archive_as_it_is(shared: Arc<Shared>, run: Run, raw: Bytes) {
    let report = Report::by_owner(run, &TaskMessage::default(), Side::Youngest);
    // Failing that, the recoverer archives it when its lease has ended.
    if let Err(error) = shared.broker.archive(&report, &raw, shared.now()).await {
        error!(task = report.run.id, %error, "could not archive the task");
    }
}

/// Requeues a task that is still ours, although it should not be started any more.
pub(super) async fn requeue(shared: Arc<Shared>, delivery: Delivery) {
    let report = Report::by_owner(delivery.run, &delivery.message, Side::Oldest);
    // Failing that, somebody recovers it: its lease has ended.
    if let Err(error) = shared.broker.requeue(&report, shared.now_ns()).await {
        warn!(task = report.run.id, %error, "could not requeue the task");
    }
}

/// A take whose answer was lost.
pub(super) struct Lost {
    pub(super) queue: Arc<str>,
    pub(super) token: Arc<str>,
    pub(super) expires: i64,
}

/// Requeues what such a take may have taken.
pub(super) async fn find_lost(shared: Arc<Shared>, lost: Lost) {
    find_after(&LOOK_AGAIN, &shared, &lost).await;
}

/// The same; what is found later than at once is requeued in the background.
pub(super) async fn find_lost_at_once(shared: &Arc<Shared>, lost: Lost) {
    let (first, later) = LOOK_AGAIN.split_at(1);
    if find_after(first, shared, &lost).await {
        let shared = shared.clone();
        shared.clone().lookups.spawn(async move { find_after(later, &shared, &lost).await });
    }
}

/// Returns whether it makes sense to look on.
async fn find_after(pauses: &[Duration], shared: &Shared, Lost { queue, token, expires }: &Lost) -> bool {
    for pause in pauses {
        tokio::time::sleep(*pause).await;
        match requeue_take(shared, queue, token, *expires).await {
            Some(0) => {}
            Some(tasks) => warn!(queue = %queue, tasks, "tasks were requeued whose take was not answered"),
            None => return false,
        }
    }
    true
}

/// Requeues all that a take has taken, in front and in its order; returns how many tasks. `None` where Redis refuses:
/// what was taken comes back when its leases end.
pub(super) async fn requeue_take(shared: &Shared, queue: &str, token: &str, expires: i64) -> Option<u64> {
    let mut backoff = Backoff::new(&shared.outage, "requeueing what a take has taken");
    loop {
        match shared.broker.requeue_run(queue, token, expires, shared.now_ns()).await {
            Ok(tasks) => {
                backoff.succeeded();
                return Some(tasks);
            }
            Err(error) if error.is_outage() => backoff.failed(&error).await,
            Err(error) => {
                warn!(queue, %error, "could not requeue what a take may have taken; it comes back when its leases end");
                return None;
            }
        }
    }
}

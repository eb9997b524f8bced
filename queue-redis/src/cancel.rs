//! The duty that sees to it that tasks which are to be canceled end, wherever they are put meanwhile.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use queue_core::clock::UnixMilli;
use queue_core::event::{Event, Kind};
use queue_core::{Clock, TaskState};

use crate::broker::cancel::CANCEL;
use crate::broker::{Broker, Change, Seen};
use crate::error::Error;
use crate::leader::Duty;

/// How often to look at a task that somebody works on.
const AGAIN: Duration = Duration::from_secs(2);

/// For how long a record stands at least: servers that hear of an id by asynq's channel look in which queue it is.
const HEARD_MS: i64 = 1_000;

/// When a cancelation is given up that had no effect.
const GIVES_UP_MS: i64 = 24 * 60 * 60 * 1_000;

pub(crate) struct CancelDuty {
    pub(crate) broker: Broker,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Duty for CancelDuty {
    fn name(&self) -> &'static str {
        CANCEL
    }

    fn look<'a>(&'a self, record: &'a str) -> BoxFuture<'a, Result<Option<Duration>, Error>> {
        self.look_at(record).boxed()
    }
}

impl CancelDuty {
    async fn look_at(&self, record: &str) -> Result<Option<Duration>, Error> {
        let Some(request) = self.broker.cancel_recorded(record).await? else { return Ok(None) };
        let now_ns = self.clock.now_ns();
        let age = now_ns.div_euclid(1_000_000).saturating_sub(request.at.0);
        let task = request.task(record).filter(|_| age <= GIVES_UP_MS);
        let Some((id, queue)) = task else {
            self.broker.forget_cancel(record, &request).await?;
            return Ok(None);
        };
        let state = self.broker.state_of(queue, id).await?;
        let ended = match state {
            None | Some(TaskState::Archived | TaskState::Completed) => true,
            Some(TaskState::Active) => false,
            // Go's servers let it be tried again.
            Some(_) => {
                let now = now_ns.div_euclid(1_000_000_000);
                let (changes, _) = self.broker.archive_tasks(queue, Seen::Uncompleted, &[id], now).await?;
                if changes[..] == [Change::Applied] {
                    self.tell(queue, id, &request.by, UnixMilli::of_ns(now_ns)).await;
                }
                matches!(changes[..], [Change::Applied | Change::Gone | Change::AlreadyThere | Change::MovedOn])
            }
        };
        if !ended || (0..HEARD_MS).contains(&age) {
            return Ok(Some(AGAIN));
        }
        self.broker.forget_cancel(record, &request).await?;
        Ok(None)
    }

    /// Tells those who listen that it has ended: no attempt did, whose server would.
    async fn tell(&self, queue: &str, id: &str, by: &str, at: UnixMilli) {
        if !self.broker.feed().is_heard() {
            return;
        }
        // Deleted already, or unreadable: that it has ended is true all the same.
        let task = self.broker.task_info(queue, id).await.ok().flatten();
        let mut event = Event::of_task(Kind::Cancelled, at, queue, id, "");
        (event.by, event.task_type) = (Some(by.to_owned()), task.map(|task| task.task_type));
        self.broker.feed().tell(|| event);
    }
}

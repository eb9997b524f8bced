//! The joiner: has a server take from the queues of its families (priorities, its mailboxes, those of its labels), and from
//! those that fit a pattern of its, as soon as there are any.
//!
//! A client lists a queue before it puts its first task there. Redis tells of that change, so a server that joins queues
//! asks for the list when it has changed; one that joins none never does.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use queue_core::limits::{FORWARD_INTERVAL, JOIN_INTERVAL, MAX_JOINED};
use queue_core::queue_name::{Family, QueueName};
use queue_redis::service::Service;
use queue_redis::{Error, broker::Broker};

use super::heartbeater::Heartbeater;
use super::queues::Queues;
use super::wakeups::Wakeups;
use crate::events::{Event, Observers};
use crate::log::{info, warn};

/// Many new queues are not as many looks.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub(super) struct Joiner {
    pub(super) broker: Broker,
    pub(super) queues: Arc<Queues>,
    pub(super) wakeups: Arc<Wakeups>,
    pub(super) heartbeater: Heartbeater,
    pub(super) observers: Observers,
    /// Whether it was said that there are too many.
    pub(super) is_full: bool,
    /// Those for certain servers that the leader was asked to look after: Go's clients, which list them too, do not ask.
    pub(super) asked_for: HashSet<String>,
}

impl Service for Joiner {
    const NAME: &'static str = "joiner";
    const WORK: &'static str = "looking for queues to join";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        let (names, is_told) = self.names().await?;
        let (joined, left, all) = self.queues.join(&names);
        if !all && !std::mem::replace(&mut self.is_full, true) {
            warn!(
                joined = MAX_JOINED,
                "there are more queues to join than one server can; start others for some of them"
            );
        }
        // First: whatever fails afterwards, the next pass does not find them new again.
        if !joined.is_empty() {
            self.wakeups.joined(&joined);
            info!(queues = ?joined.iter().map(|queue| self.queues.name(*queue)).collect::<Vec<_>>(), "queues joined");
            // asynq's tools, and who asks why a task waits, see it now.
            self.heartbeater.beat(false).await?;
        }
        for queue in left {
            self.observers.tell(|| Event::QueueLeft { queue: self.queues.name(queue) });
        }
        let is_target = |name: &&String| QueueName::parse(name).family.as_ref().is_some_and(Family::is_target);
        let targets: HashSet<String> = names.iter().filter(is_target).cloned().collect();
        if !targets.is_subset(&self.asked_for) {
            self.broker.ask_for_targets().await?;
        }
        self.asked_for = targets;
        Ok(if is_told { JOIN_INTERVAL } else { FORWARD_INTERVAL })
    }

    async fn wait(&mut self, pause: Duration) {
        tokio::time::sleep(PAUSE).await;
        let _ = tokio::time::timeout(pause, self.wakeups.queues.notified()).await;
    }
}

impl Joiner {
    /// All queues, and whether Redis tells of the next change.
    async fn names(&self) -> Result<(Vec<String>, bool), Error> {
        if let Some(mut watch) = self.wakeups.watch() {
            match watch.queue_names().await {
                // The listening connection is being replaced.
                Err(error) if error.is_outage() => {}
                names => return Ok((names?, true)),
            }
        }
        Ok((self.broker.queue_names().await?, false))
    }
}

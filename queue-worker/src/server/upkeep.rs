//! What a server does beside working, once: what a testing kit is built on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use queue_core::limits::SILENT_MARGIN_SECS;
use queue_core::outcome::Failure;
use queue_redis::duties;
use queue_redis::flow::{Flows, Recorder};
use queue_redis::leader::Leader;
use queue_redis::service::{Outage, Service as _};
use queue_redis::{
    Error,
    broker::{Broker, GroupRules},
};
use tokio_util::sync::CancellationToken;

use super::aggregation::Means;
use super::forwarder::Forwarder;
use super::holdings::Holdings;
use super::janitor::Janitor;
use super::queues::Queues;
use super::reclaimer::Reclaimer;
use super::recoverer::Recoverer;
use super::time::Time;
use super::wakeups::Wakeups;
use crate::events::Observers;
use crate::exhausted::OnExhausted;
use crate::routes::Routes;

/// The loops of a server, each of which is run once when it is called.
#[derive(Debug)]
pub(crate) struct Upkeep {
    pub(crate) broker: Broker,
    pub(crate) routes: Arc<Routes>,
    pub(crate) time: Arc<Time>,
    pub(crate) max_crashes: u32,
    /// Hears what members of batches tell through this broker.
    pub(crate) recorder: Recorder,
}

impl Upkeep {
    /// Looks after these queues once, as servers do that Redis has heard for a while. Returns the Unix second at which a
    /// task is due, its lease will have ended for long enough, or a batch is to be looked after.
    pub(crate) async fn look_after(&self, queues: &[String]) -> Result<Option<i64>, Error> {
        if queues.is_empty() {
            return Ok(None);
        }
        self.recorder.clone().run_once().await?;
        let weights: Vec<(String, u32)> = queues.iter().map(|queue| (queue.clone(), 1)).collect();
        let queues = Arc::new(Queues::new(&weights, false, &BTreeMap::new()));
        let (broker, time, wakeups) = (&self.broker, &self.time, Arc::<Wakeups>::default());
        let holdings = Arc::new(Holdings::new(broker.clone(), queues.clone(), wakeups.clone()));
        let recoverer = Recoverer::new(
            broker.clone(),
            time.clone(),
            holdings.clone(),
            self.routes.clone(),
            self.max_crashes,
            OnExhausted::default(),
            Observers::default(),
        );
        let lease_ends = recoverer.recover(SILENT_MARGIN_SECS).await?;
        let mut forwarder = Forwarder::new(broker.clone(), time.clone(), queues, wakeups, Observers::default());
        forwarder.forward_due().await?;
        Reclaimer::new(broker.clone(), time.clone(), holdings.clone()).run_once().await?;
        Janitor::new(broker.clone(), time.clone(), holdings).run_once().await?;
        let mut leader =
            Leader::new(broker.clone(), time.clock(), "upkeep", duties::standard(broker, time.clock()).into());
        leader.do_all().await?;
        let recovered = lease_ends.map(|end| end.saturating_add(SILENT_MARGIN_SECS));
        let flows = Flows::new(self.broker.clone(), self.time.clock()).next_look().await?;
        Ok([recovered, forwarder.next_due(), flows].into_iter().flatten().filter(|due| *due > time.now()).min())
    }

    /// Aggregates a group, if it is ready by these rules; then says whether that failed.
    pub(crate) async fn aggregate(
        &self,
        queue: &Arc<str>,
        group: &str,
        rules: GroupRules,
    ) -> Option<Result<(), Failure>> {
        let means = Means {
            broker: self.broker.clone(),
            routes: self.routes.clone(),
            outage: Outage::new(|_| {}),
            time: self.time.clone(),
            stop: CancellationToken::new(),
            cancel_grace: Duration::from_secs(1),
        };
        means.aggregate_once(queue.clone(), group.to_owned(), rules).await
    }
}

//! Which queues have something to be looked after. What a look has learned is not asked again: it has Redis tell of the
//! next change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use queue_redis::{
    Error,
    broker::{Broker, Holding},
};
use tokio::sync::Mutex;

use super::queues::Queues;
use super::wakeups::Wakeups;

/// What is known of one kind of holdings.
#[derive(Debug, Default)]
struct Known {
    hold: BTreeSet<usize>,
    /// When all queues are asked again; at first.
    sweep: Option<Instant>,
}

/// What is known of all kinds.
#[derive(Debug)]
pub(super) struct Holdings {
    broker: Broker,
    queues: Arc<Queues>,
    wakeups: Arc<Wakeups>,
    kinds: [Mutex<Known>; Holding::WATCHED.len()],
}

impl Holdings {
    pub(super) fn new(broker: Broker, queues: Arc<Queues>, wakeups: Arc<Wakeups>) -> Self {
        Self { broker, queues, wakeups, kinds: Default::default() }
    }

    /// The queues that have this. Where Redis does not tell about changes, all are asked.
    pub(super) async fn which_hold(&self, holding: Holding) -> Result<Vec<&Arc<str>>, Error> {
        let name = |queue: &usize| self.queues.name(*queue);
        let names = |queues: &BTreeSet<usize>| queues.iter().map(|queue| &**name(queue)).collect::<Vec<&str>>();
        let all = || (0..self.queues.count()).collect::<BTreeSet<_>>();
        let kind = Holding::WATCHED.iter().position(|kind| *kind == holding).map(|kind| &self.kinds[kind]);
        if let (Some(known), Some(told), Some(mut watch)) = (kind, self.wakeups.holdings(holding), self.wakeups.watch())
        {
            let mut known = known.lock().await;
            let changes = told.take();
            let is_due = known.sweep.is_none_or(|sweep| sweep <= Instant::now());
            let doubtful = if is_due || changes.everywhere { all() } else { changes.queues };
            match watch.which_hold(&names(&doubtful), holding).await {
                Ok(hold) => {
                    for (queue, holds) in doubtful.into_iter().zip(hold) {
                        if holds {
                            known.hold.insert(queue)
                        } else {
                            known.hold.remove(&queue)
                        };
                    }
                    if is_due {
                        known.sweep = Some(Instant::now() + self.queues.safety_interval());
                    }
                    return Ok(known.hold.iter().map(name).collect());
                }
                // The listening connection is being replaced, or a key is refused.
                Err(_) => known.sweep = None,
            }
        }
        let all = all();
        let hold = self.broker.which_hold(&names(&all), holding).await?;
        Ok(all.iter().zip(hold).filter(|(_, holds)| *holds).map(|(queue, _)| name(queue)).collect())
    }
}

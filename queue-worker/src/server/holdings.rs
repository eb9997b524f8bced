//! Which queues have something to be looked after. What a look has learned is not asked again: it has Redis tell of the
//! next change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use queue_redis::{Error, Holding};
use tokio::sync::Mutex;

use super::Shared;
use super::told::Told;

/// What is known of one kind of holdings.
#[derive(Debug, Default)]
struct Known {
    hold: BTreeSet<usize>,
    /// When all queues are asked again; at first.
    sweep: Option<Instant>,
}

/// What is known of all kinds.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    kinds: [(Told, Mutex<Known>); Holding::WATCHED.len()],
}

impl Holdings {
    fn kind(&self, holding: Holding) -> Option<&(Told, Mutex<Known>)> {
        self.kinds.get(Holding::WATCHED.iter().position(|kind| *kind == holding)?)
    }

    /// A queue has changed in this.
    pub(super) fn tell(&self, queue: Option<usize>, holding: Holding) {
        if let Some((told, _)) = self.kind(holding) {
            told.tell(queue);
        }
    }

    pub(super) fn tell_everything(&self) {
        self.kinds.iter().for_each(|(told, _)| told.tell_everything());
    }
}

impl Shared {
    /// How often is asked again although Redis tells about changes, a net below the net: with many queues so seldom that
    /// their nine keys take one command for a thousand queues every 15 s.
    pub(super) fn safety_interval(&self) -> Duration {
        const FEW: usize = 100;
        Duration::from_secs(if self.queues.count() > FEW { 9 * 15 } else { 15 })
    }

    /// The queues that have this. Where Redis does not tell about changes, all are asked.
    pub(super) async fn which_hold(&self, holding: Holding) -> Result<Vec<&Arc<str>>, Error> {
        let name = |queue: &usize| self.queues.name(*queue);
        let names = |queues: &BTreeSet<usize>| queues.iter().map(|queue| &**name(queue)).collect::<Vec<&str>>();
        let all = || (0..self.queues.count()).collect::<BTreeSet<_>>();
        if let (Some((told, known)), Some(mut watch)) = (self.holdings.kind(holding), self.watch()) {
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
                        known.sweep = Some(Instant::now() + self.safety_interval());
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

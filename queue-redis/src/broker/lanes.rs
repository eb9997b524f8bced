//! Limits: `free_slots.lua`, `set_limits.lua`, `remove_limits.lua`, `mend_lanes.lua`, and when the next lane is due. What goes by them is in `take.rs`.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use queue_core::doctor::LaneEntries;
use queue_core::keys::QueueKeys;
use redis::Pipeline;

use super::{Broker, Run};
use crate::error::Error;
use crate::script::{FREE_SLOTS, MEND_LANES, REMOVE_LIMITS, SET_LIMITS};

/// The queues of which a take has said that they have limits: the next one asks for its tasks by them at once.
#[derive(Debug, Default)]
pub(crate) struct Limited(RwLock<HashSet<String>>);

/// A run that has ended, whose slots are free.
#[derive(Debug, Clone)]
pub struct Freed {
    /// The run.
    pub run: Run,
    /// The limit of which nothing is to start for so long, because somebody else has said that it is too much.
    pub too_many: Option<(String, Duration)>,
    /// Whether it has ended well or badly, for breakers; `None` where that says nothing.
    pub went_well: Option<bool>,
}

/// Asks when the first lane of each queue is due.
pub(crate) fn first_lanes(queues: &[&str]) -> Pipeline {
    let mut look = redis::pipe();
    for queue in queues {
        look.cmd("ZRANGE").arg(QueueKeys::new(queue).lanes_due()).arg(0).arg(0).arg("WITHSCORES");
    }
    look
}

/// What is answered to that, in Unix milliseconds.
pub(crate) type FirstLanes = Vec<Vec<(Vec<u8>, f64)>>;

/// The same for each queue.
pub(crate) fn read_first_lanes(found: FirstLanes) -> Vec<Option<i64>> {
    found.into_iter().map(|lanes| lanes.first().map(|(_, at)| *at as i64)).collect()
}

impl Broker {
    /// Whether a queue has limits, as far as is known here.
    pub fn has_limits(&self, queue: &str) -> bool {
        self.limited.0.read().unwrap_or_else(PoisonError::into_inner).contains(queue)
    }

    /// A queue has limits, or has none any more.
    pub fn learn_limits(&self, queue: &str, has_limits: bool) {
        let mut limited = self.limited.0.write().unwrap_or_else(PoisonError::into_inner);
        if has_limits {
            limited.insert(queue.to_owned());
        } else {
            limited.remove(queue);
        }
    }

    /// When the first lane of each of these queues is due, in Unix milliseconds by Redis' clock.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn lanes_due(&self, queues: &[&str]) -> Result<Vec<Option<i64>>, Error> {
        Ok(read_first_lanes(self.redis.pipeline("ZRANGE", &first_lanes(queues)).await?))
    }

    /// Gives back the slots of runs of one queue that have ended, and returns how many lanes are looked at again for it.
    /// A hint, that may be lost: a slot counts only while its task has a lease. 1 to
    /// [`MAX_BATCH`](super::MAX_BATCH) runs.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn free_slots(&self, queue: &str, freed: &[Freed]) -> Result<u64, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = FREE_SLOTS.call(5);
        call.arg(keys.lease()).arg(keys.rules()).arg(keys.lane_slots()).arg(keys.lanes_due());
        call.arg(keys.limit_stats()).arg(keys.prefix());
        for Freed { run, too_many, went_well } in freed {
            let (limit, pause) = too_many.as_ref().map_or(("", Duration::ZERO), |(limit, pause)| (limit, *pause));
            call.arg(run.raw_id())
                .arg(run.lanes())
                .arg(limit)
                .arg(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX))
                .arg(went_well.map_or("", |went_well| if went_well { "1" } else { "0" }));
        }
        self.integer(&FREE_SLOTS, &call).await
    }

    /// Puts right what is left of lanes; returns how many entries were added or removed.
    pub(crate) async fn mend_lanes(&self, queue: &str, entries: &LaneEntries) -> Result<u64, Error> {
        let keys = QueueKeys::new(queue);
        let (what, entries) = match entries {
            LaneEntries::Slots(entries) => ("slots", entries),
            LaneEntries::Waiting(entries) => ("waiting", entries),
        };
        let mut call = MEND_LANES.call(5);
        call.arg(keys.lease()).arg(keys.scheduled()).arg(keys.lanes_waiting()).arg(keys.lane_slots());
        call.arg(keys.lanes_due()).arg(keys.prefix()).arg(what);
        for entry in entries {
            call.arg(&entry[..]);
        }
        self.integer(&MEND_LANES, &call).await
    }

    /// The limits of a queue as they stand in Redis, whoever has written them; `None` where there are none.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn limits_text(&self, queue: &str) -> Result<Option<Vec<u8>>, Error> {
        self.redis.command("GET", QueueKeys::new(queue).rules()).await
    }

    /// Writes the limits of a queue if they are still `before`, and has all its lanes looked at. Returns `false` if
    /// they are not.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn set_limits(&self, queue: &str, before: Option<&[u8]>, after: &str) -> Result<bool, Error> {
        let mut after = after;
        loop {
            let keys = QueueKeys::new(queue);
            let mut call = SET_LIMITS.call(2);
            call.arg(keys.rules()).arg(keys.lanes_due()).arg(before.unwrap_or_default()).arg(after);
            match self.redis.run(&SET_LIMITS, &call).await? {
                redis::Value::Int(-1) => return Ok(false),
                redis::Value::Int(0) => return Ok(true),
                redis::Value::Int(_) => after = "",
                reply => return Err(Error::unexpected(SET_LIMITS.name, &reply)),
            }
        }
    }

    /// Deletes what is kept of the limits of a queue that has none; where somebody has set one, all stays. Returns `false`, having
    /// written nothing, while tasks wait in lanes.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn remove_limits(&self, queue: &str, none: &str) -> Result<bool, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = REMOVE_LIMITS.call(6);
        call.arg(keys.rules()).arg(keys.lanes_waiting()).arg(keys.lanes_due()).arg(keys.lane_slots());
        call.arg(keys.lane_changes()).arg(keys.limit_stats()).arg(none);
        Ok(self.integer(&REMOVE_LIMITS, &call).await? != 0)
    }

    /// Has all lanes of a queue looked at: what holds for some of them has changed.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn look_at_lanes(&self, queue: &str) -> Result<(), Error> {
        self.set_limits(queue, None, "").await.map(drop)
    }
}

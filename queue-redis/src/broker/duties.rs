//! What belongs to no queue alone, and who looks after it: `lead.lua`, `take_duties.lua`, `put_off_duty.lua`.

use std::fmt::Display;
use std::time::Duration;

use queue_core::keys;
use redis::FromRedisValue as _;

use super::Broker;
use crate::error::Error;
use crate::script::{LEAD, PUT_OFF_DUTY, TAKE_DUTIES};

/// The duty of looking after a queue with members, or with tasks that are followed; its subject is the queue.
pub(crate) const MEMBERS: &str = "members";
/// The duty of looking after a tree of batches; its subject is the name of the root.
pub(crate) const TREE: &str = "flow";

/// By how many milliseconds the scores of duties that go first are earlier than their next look. There may be more trees than
/// can be looked at in time, and what belongs to a queue or to a task does not wait for them.
const HEAD_START_MS: i64 = 10_000_000_000_000;

/// The score of a duty of this name that is to be looked at then (Unix milliseconds).
pub(crate) fn score(duty: &str, at_ms: i64) -> i64 {
    if duty == TREE { at_ms } else { at_ms.saturating_sub(HEAD_START_MS) }
}

fn name_of(duty: &str) -> &str {
    duty.split_once(' ').map_or(duty, |(name, _)| name)
}

/// A duty that was taken, until its time is over or it is put off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldDuty {
    duty: String,
    score: String,
}

impl HeldDuty {
    /// This duty, as it was taken until `held_ms` (Unix milliseconds).
    pub fn new(duty: impl Into<String>, held_ms: i64) -> Self {
        let duty = duty.into();
        Self { score: score(name_of(&duty), held_ms).to_string(), duty }
    }

    /// As it stands in the set: `<duty> <subject>`.
    pub fn duty(&self) -> &str {
        &self.duty
    }
}

impl Broker {
    /// Asks the leader to look at this by then (Unix milliseconds), or earlier if somebody has asked for that. Belongs
    /// before the write that gives the duty something to do: one that finds nothing ends.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn ask_for_duty(&self, duty: &str, subject: &str, at_ms: i64) -> Result<(), Error> {
        self.ask_for_duties(duty, &[subject], at_ms).await
    }

    /// The same with each of these, of which there has to be one.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn ask_for_duties(&self, duty: &str, subjects: &[impl Display], at_ms: i64) -> Result<(), Error> {
        let duties = subjects.iter().map(|subject| (score(duty, at_ms), format!("{duty} {subject}")));
        self.redis.command("ZADD", (keys::DUTIES, "LT", duties.collect::<Vec<_>>())).await
    }

    /// When the first duty is to be looked at (Unix milliseconds); `None` where there is none.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn first_duty(&self) -> Result<Option<i64>, Error> {
        Ok(read_first(self.redis.pipeline("ZRANGEBYSCORE", &first_duty()).await?))
    }

    /// Makes a server the leader for `lives`, or lets it stay that for so long; returns whether it is.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn lead(&self, server: &str, lives: Duration) -> Result<bool, Error> {
        let mut call = LEAD.call(1);
        call.arg(keys::LEADER).arg(server).arg(queue_core::clock::secs_ceil(lives).max(1));
        Ok(self.integer(&LEAD, &call).await? == 1)
    }

    /// The duties that are due, `count` at the most, those of trees last. They are due again at `held_ms`, unless
    /// [`put_off_duty`](Self::put_off_duty) says otherwise.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn take_duties(&self, now_ms: i64, held_ms: i64, count: usize) -> Result<Vec<HeldDuty>, Error> {
        let mut call = TAKE_DUTIES.call(1);
        call.arg(keys::DUTIES).arg(now_ms).arg(held_ms).arg(count).arg(HEAD_START_MS);
        let reply = self.redis.run(&TAKE_DUTIES, &call).await?;
        let taken = Vec::<(Vec<u8>, String)>::from_redis_value(reply)
            .map_err(|error| self.redis.explain(TAKE_DUTIES.name, error.into()))?;
        let held = |(duty, score): (Vec<u8>, _)| HeldDuty { duty: String::from_utf8_lossy(&duty).into_owned(), score };
        Ok(taken.into_iter().map(held).collect())
    }

    /// Holds a duty for longer that was taken, until then, unless somebody has asked for it meanwhile, or taken it.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub(crate) async fn hold_duty(&self, held: &mut HeldDuty, until_ms: i64) -> Result<(), Error> {
        if self.put_off_duty(held, Some(until_ms)).await? {
            held.score = score(name_of(&held.duty), until_ms).to_string();
        }
        Ok(())
    }

    /// A duty that was taken was done, and is looked at again at `next_ms`, or never where there is nothing more to do. Returns whether that was noted: if somebody has asked for it meanwhile, that counts.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn put_off_duty(&self, held: &HeldDuty, next_ms: Option<i64>) -> Result<bool, Error> {
        let mut call = PUT_OFF_DUTY.call(1);
        let HeldDuty { duty, score: held } = held;
        let next = next_ms.map(|next| score(name_of(duty), next).to_string());
        call.arg(keys::DUTIES).arg(duty).arg(held).arg(next.unwrap_or_default());
        Ok(self.integer(&PUT_OFF_DUTY, &call).await? == 1)
    }
}

/// What the look at the first duty is answered with.
pub(crate) type First = (Vec<(Vec<u8>, f64)>, Vec<(Vec<u8>, f64)>);

/// A look at the first duty: at the first of those that go first, and of the others.
pub(crate) fn first_duty() -> redis::Pipeline {
    let mut look = redis::pipe();
    for (from, to) in [("-inf", "(0"), ("0", "+inf")] {
        look.cmd("ZRANGEBYSCORE").arg(keys::DUTIES).arg(from).arg(to).arg("WITHSCORES").arg("LIMIT").arg(0).arg(1);
    }
    look
}

pub(crate) fn read_first((first, others): First) -> Option<i64> {
    // Casting a float saturates.
    let at = |duties: Vec<(_, f64)>| duties.first().map(|(_, at)| at.ceil() as i64);
    let first = at(first).map(|at| at.saturating_add(HEAD_START_MS));
    [first, at(others)].into_iter().flatten().min()
}

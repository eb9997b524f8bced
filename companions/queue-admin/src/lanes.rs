//! The lanes of a limit: what runs and waits under each key.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use chrono::{DateTime, Utc};
use queue_core::keys::QueueKeys;
use queue_core::limit::{LaneChange, Limit};
use queue_core::limits::LANE_FIRST_MS;
use serde::Serialize;

use super::Inspector;
use crate::error::{BadCursor, Error};

/// A lane of a limit, which has tasks or for which something is different.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Lane {
    /// The type, the header's value or the field's; empty for a limit of a whole queue. Of one above 96 bytes the beginning and its SHA-1.
    pub key: String,
    /// Tasks that run in it, if it has a cap. Some of them may have ended without anybody having looked.
    pub running: u64,
    /// Tasks that wait in it. Some of them may have been run or deleted by others meanwhile.
    pub waiting: u64,
    /// When those who wait are looked at again, if that is known; they are also when a run in it ends.
    pub next_look: Option<DateTime<Utc>>,
    /// How many may run at once here; `None`: as for all.
    pub concurrency: Option<u32>,
    /// Whether nothing starts here.
    pub paused: bool,
    /// How many times as often as others it is at turn under a fair limit; `None`: as one without a weight.
    pub weight: Option<u32>,
    /// Until when its breaker lets nothing start; if that is past, one at a time, until one has succeeded.
    pub rests_until: Option<DateTime<Utc>>,
    /// Where its adaptive rate is not whole, since a handler said that it was too much.
    pub slowed: Option<Slowed>,
}

/// How an adaptive rate was slowed down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Slowed {
    /// To how many percent of the rate, the last time. It has grown since.
    pub percent: u32,
    /// When it is whole again, if no handler says that it is too much until then.
    pub until: DateTime<Utc>,
}

/// A name of a lane, and the blank that follows it in all entries. Redis has these in the order of their bytes, so they are taken in this order.
type Name = Vec<u8>;

fn name_in(entry: &[u8]) -> Name {
    let end = entry.iter().position(|byte| *byte == b' ').unwrap_or(entry.len());
    [&entry[..end], b" "].concat()
}

/// The bound above all entries of a lane: an exclamation mark follows the blank.
fn above(name: &[u8], sign: &[u8]) -> Vec<u8> {
    [sign, &name[..name.len() - 1], b"!"].concat()
}

impl Inspector {
    /// The lanes of a limit in the order of their keys: `most` of them behind a place, and the place to go on from, if there are more. Each costs
    /// five small commands, in two round trips of its own and one of all.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], [`Error::LimitNotFound`], [`Error::BadCursor`]; when the limits cannot be read, or Redis cannot be asked or refuses.
    pub async fn lanes(
        &self,
        queue: &str,
        limit: &str,
        behind: Option<&[u8]>,
        most: usize,
    ) -> Result<(Vec<Lane>, Option<Vec<u8>>), Error> {
        let mut last: Name = behind.unwrap_or_default().to_vec();
        if behind.is_some() && !(last.starts_with(format!("{limit}:").as_bytes()) && last.ends_with(b" ")) {
            return Err(BadCursor.into());
        }
        let missing = || Error::LimitNotFound { queue: queue.to_owned(), limit: limit.to_owned() };
        let limits = self.limits(queue).await?;
        let info = limits.iter().find(|info| info.limit.name == limit).ok_or_else(missing)?;
        let changed = |key: &str| info.changes.get(key).cloned().unwrap_or_default();
        if !info.limit.parks() {
            let LaneChange { concurrency, paused, weight, .. } = changed("");
            let (key, running) = (String::new(), info.running);
            let lanes = [format!("{limit}:")];
            let rests_until = self.rests_until(queue, &info.limit, &lanes).await?.remove(0);
            let slowed = self.slowed(queue, &info.limit, &lanes).await?.remove(0);
            let (waiting, next_look) = (0, None);
            let lane = Lane { key, running, waiting, next_look, concurrency, paused, weight, rests_until, slowed };
            return Ok((vec![lane], None));
        }
        let written = info.changes.keys().map(|key| Ok([info.limit.lane(key)?.as_bytes(), b" "].concat()));
        let of_changes: BTreeSet<Name> = written.collect::<Result<_, Error>>()?;
        let keys = QueueKeys::new(queue);
        let mut connection = self.redis.pooled().await?;
        let end = format!("({limit};");
        let mut names: Vec<Name> = Vec::new();
        // One more than is wanted tells whether there are more.
        while names.len() <= most {
            let from = if last.is_empty() { format!("[{limit}:").into_bytes() } else { above(&last, b"(") };
            let mut look = redis::pipe();
            for set in [keys.lanes_waiting(), keys.lane_slots()] {
                look.cmd("ZRANGEBYLEX").arg(set).arg(&from).arg(&end).arg("LIMIT").arg(0).arg(1);
            }
            let found: Vec<Vec<Vec<u8>>> = connection.pipeline("looking for lanes", &look).await?;
            let next = found.iter().flatten().map(|entry| name_in(entry));
            let next = next.chain(of_changes.range::<[u8], _>((Excluded(&last[..]), Unbounded)).next().cloned()).min();
            let Some(next) = next else { break };
            names.push(next.clone());
            last = next;
        }
        let next = (names.len() > most).then(|| names[most.saturating_sub(1)].clone());
        names.truncate(most);
        let mut look = redis::pipe();
        for name in &names {
            let (from, to) = ([b"[", &name[..]].concat(), above(name, b"("));
            look.cmd("ZLEXCOUNT").arg(keys.lane_slots()).arg(&from).arg(&to);
            look.cmd("ZLEXCOUNT").arg(keys.lanes_waiting()).arg(&from).arg(&to);
            look.cmd("ZSCORE").arg(keys.lanes_due()).arg(&name[..name.len() - 1]);
        }
        let counts: Vec<Option<f64>> = match names.is_empty() {
            true => Vec::new(),
            false => connection.pipeline("looking at lanes", &look).await?,
        };
        let written = names.iter().map(|name| String::from_utf8_lossy(&name[..name.len() - 1]).into_owned());
        let written: Vec<String> = written.collect();
        let rests = self.rests_until(queue, &info.limit, &written).await?;
        let paces = rests.into_iter().zip(self.slowed(queue, &info.limit, &written).await?);
        let lanes = names.iter().zip(counts.chunks(3)).zip(paces).map(|((name, counts), (rests_until, slowed))| {
            let count = |at: usize| counts[at].unwrap_or(0.0) as u64;
            let due = counts[2].filter(|ms| *ms >= LANE_FIRST_MS as f64);
            let written = String::from_utf8_lossy(&name[limit.len() + 1..name.len() - 1]);
            let key = info.limit.key_of_lane(&written);
            let LaneChange { concurrency, paused, weight, .. } = changed(&key);
            let next_look = due.and_then(|ms| DateTime::from_timestamp_millis(ms.ceil() as i64));
            let (running, waiting) = (count(0), count(1));
            Lane { key, running, waiting, next_look, concurrency, paused, weight, rests_until, slowed }
        });
        Ok((lanes.collect(), next))
    }

    /// Until when the breakers of these lanes of a limit let nothing start.
    async fn rests_until(
        &self,
        queue: &str,
        limit: &Limit,
        lanes: &[String],
    ) -> Result<Vec<Option<DateTime<Utc>>>, Error> {
        if limit.breaker.is_none() {
            return Ok(vec![None; lanes.len()]);
        }
        let keys = QueueKeys::new(queue);
        let found = self.of_lanes(lanes, |lane| keys.lane_health(lane)).await?;
        Ok(found.iter().map(|health| rests_until(health.as_deref()?)).collect())
    }

    /// How the adaptive rates of these lanes of a limit were slowed down.
    async fn slowed(&self, queue: &str, limit: &Limit, lanes: &[String]) -> Result<Vec<Option<Slowed>>, Error> {
        if limit.adapt.is_none() {
            return Ok(vec![None; lanes.len()]);
        }
        let keys = QueueKeys::new(queue);
        let found = self.of_lanes(lanes, |lane| keys.lane_pace(lane)).await?;
        Ok(found.iter().map(|pace| slowed(pace.as_deref()?)).collect())
    }

    async fn of_lanes(&self, lanes: &[String], key: impl Fn(&str) -> String) -> Result<Vec<Option<String>>, Error> {
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.redis.command("MGET", lanes.iter().map(|lane| key(lane)).collect::<Vec<_>>()).await?)
    }
}

/// What stands in Redis of a lane with an adaptive rate.
pub(crate) fn slowed(pace: &str) -> Option<Slowed> {
    let mut words = pace.split(' ');
    let share: f64 = words.next()?.parse().ok()?;
    let until = DateTime::from_timestamp_millis(words.nth(1)?.parse().ok()?)?;
    Some(Slowed { percent: (share * 100.0).round() as u32, until })
}

/// What stands in Redis of a lane with a breaker says until when it rests; `None` if it lets all start.
pub(crate) fn rests_until(health: &str) -> Option<DateTime<Utc>> {
    let until = health.split(' ').nth(3)?.parse().ok().filter(|until| *until > 0)?;
    DateTime::from_timestamp_millis(until)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_at_the_blank_and_all_its_entries_lie_below_the_next() {
        let name = name_in(b"tenant:a%20b 1700 id with blanks");
        assert_eq!(name, b"tenant:a%20b ");
        let bound = above(&name, b"");
        for below in [&b"tenant:a%20b 1"[..], b"tenant:a%20b ~", b"tenant:a%20b \xff"] {
            assert!(below < &bound[..] && below >= &name[..]);
        }
        for other in [&b"tenant:a%20b! 1"[..], b"tenant:a%20bc 1"] {
            assert!(other > &bound[..]);
        }
        assert!(b"tenant:a%20 1"[..] < name[..]);
    }
}

//! Of a parked task, the lane that it waits in.

use queue_core::clock::UnixSecond;
use queue_core::keys::QueueKeys;
use queue_core::limit::{LaneChange, Limit, Limits};
use queue_core::limits::LANE_FIRST_MS;
use queue_redis::Connection;

use super::{Reason, parse};
use crate::error::Error;
use crate::lanes::{rests_until, slowed};

/// So many of those who run in the lane are named.
const NAMED: usize = 5;

/// What there is to be said of it; `None` where the task is not parked.
pub(super) async fn look(connection: &mut Connection, keys: &QueueKeys, id: &str) -> Result<Option<Reason>, Error> {
    let waits: Option<String> = connection.command("HGET", (keys.task(id), "x_waits")).await?;
    let Some((lane, since)) = waits.as_deref().and_then(|waits| waits.split_once(' ')) else { return Ok(None) };
    let (from, to) = (format!("[{lane} "), format!("({lane}!"));
    let mut look = redis::pipe();
    look.cmd("ZSCORE").arg(keys.lanes_waiting()).arg(format!("{lane} {since} {id}"));
    look.cmd("ZLEXCOUNT").arg(keys.lanes_waiting()).arg(&from).arg(format!("({lane} {since} {id}"));
    look.cmd("ZLEXCOUNT").arg(keys.lane_slots()).arg(&from).arg(&to);
    look.cmd("ZRANGEBYLEX").arg(keys.lane_slots()).arg(&from).arg(&to).arg("LIMIT").arg(0).arg(NAMED);
    look.cmd("ZSCORE").arg(keys.lanes_due()).arg(lane);
    look.cmd("GET").arg(keys.lane_health(lane)).cmd("GET").arg(keys.lane_pace(lane));
    look.cmd("HGET").arg(keys.lane_changes()).arg(lane);
    look.cmd("ZSCORE").arg(keys.scheduled()).arg(id).cmd("GET").arg(keys.rules()).ignore_errors();
    let replies: Vec<redis::RedisResult<redis::Value>> = connection.pipeline("looking at a lane", &look).await?;
    let mut replies = replies.into_iter().map(Result::ok);
    let place: Option<f64> = parse(replies.next());
    let (ahead, running): (u64, u64) = (parse(replies.next()), parse(replies.next()));
    let holders: Vec<String> = parse(replies.next());
    let (due, health): (Option<f64>, Option<String>) = (parse(replies.next()), parse(replies.next()));
    let (pace, change): (Option<String>, Option<String>) = (parse(replies.next()), parse(replies.next()));
    let change: LaneChange = change.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let fallback: Option<f64> = parse(replies.next());
    let limits = Limits::read(&parse::<String>(replies.next())).unwrap_or_default();
    let is_strict = |limit: &Limit| limit.is_strict() && lane.starts_with(&format!("{}:", limit.name));
    let holders: Vec<String> = holders.iter().filter_map(|holder| Some(holder.split_once(' ')?.1.to_owned())).collect();
    let turn = match holders.first().filter(|_| limits.rules.iter().any(is_strict)) {
        Some(first) => connection.command("HGET", (keys.task(first), "state")).await?,
        None => None,
    };
    let second = |ms: f64| UnixSecond((ms / 1_000.0).ceil() as i64);
    Ok(place.map(|_| Reason::Lane {
        lane: lane.to_owned(),
        since: UnixSecond(since.parse::<i64>().unwrap_or(0).div_euclid(1_000_000_000)),
        ahead,
        running,
        holders,
        turn,
        next_look: due.filter(|ms| *ms >= LANE_FIRST_MS as f64).map(second),
        rests_until: health.as_deref().and_then(rests_until).map(|until| UnixSecond(until.timestamp())),
        slowed: pace.as_deref().and_then(slowed).map(|slowed| (slowed.percent, UnixSecond(slowed.until.timestamp()))),
        paused: change.paused,
        fallback: UnixSecond(fallback.unwrap_or(0.0) as i64),
    }))
}

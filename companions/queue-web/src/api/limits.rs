//! Limits of queues, and the lanes of their keys.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use queue_admin::{BadCursor, Error, LimitInfo, view};
use queue_core::limit::{Breaker, LaneChange, LaneOrder, Limit, LimitKey};
use serde::Deserialize;
use serde_json::{Value, json as value};

use super::queues::to_value;
use crate::problem::Problem;
use crate::request::{Answer, Request, json};

type Unaware = BTreeMap<String, Vec<String>>;

/// The limit without keys that are hidden in tasks.
fn shown(request: &Request, queue: &str, info: &LimitInfo, unaware: &Unaware) -> Result<Value, Problem> {
    let mut shown = to_value(&view::Limit::new(queue, info, unaware))?;
    if request.web.redact.hides_key(&info.limit.key) {
        shown["keys"] = value!({});
    }
    Ok(shown)
}

/// The limits of these queues. Who knows nothing of them does not matter where there are none.
async fn of_queues(request: &Request, queues: &[String], is_one: bool) -> Answer {
    let (inspector, mut items, mut unaware, mut unreadable) = (request.inspector(), Vec::new(), None, Vec::new());
    let limited = if is_one { queues.to_vec() } else { inspector.limited_queues(queues).await? };
    for queue in limited {
        let limits = match inspector.limits(&queue).await {
            // Limits that somebody has spoilt cost no other queue its own.
            Err(error @ Error::LimitsUnreadable { .. }) if !is_one => {
                unreadable.push(value!({ "queue": queue, "detail": error.to_string() }));
                continue;
            }
            // Removed since it was looked at.
            Err(Error::QueueNotFound(_)) if !is_one => continue,
            limits => limits?,
        };
        if unaware.is_none() {
            unaware = Some(inspector.servers_unaware_of_limits().await?);
        }
        let unaware = unaware.as_ref().into_iter().flat_map(|unaware| limits.iter().map(move |info| (info, unaware)));
        for (info, unaware) in unaware {
            items.push(shown(request, &queue, info, unaware)?);
        }
    }
    let mut told = value!({ "total": items.len(), "items": items });
    if !unreadable.is_empty() {
        told["unreadable"] = unreadable.into();
    }
    json(&told)
}

pub(crate) async fn all(request: Request) -> Answer {
    let queues = request.inspector().queues().await?;
    let queues: Vec<String> = queues.into_iter().filter(|queue| request.who.sees(queue)).collect();
    of_queues(&request, &queues, false).await
}

pub(crate) async fn list(request: Request) -> Answer {
    let queue = request.queue()?.to_owned();
    of_queues(&request, &[queue], true).await
}

/// A limit as it is asked for; its name stands in the path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewLimit {
    key: LimitKey,
    #[serde(default)]
    types: Vec<String>,
    concurrency: Option<u32>,
    rate: Option<u32>,
    /// Milliseconds.
    per: Option<u64>,
    burst: Option<u32>,
    /// One in how many starts.
    adapt: Option<u32>,
    #[serde(default)]
    order: LaneOrder,
    #[serde(default)]
    fair: bool,
    breaker: Option<Breaker>,
    /// Seconds.
    fallback: Option<u64>,
}

pub(crate) async fn set(request: Request) -> Answer {
    let (queue, name) = (request.queue()?, &request.names[1]);
    let NewLimit { key, types, concurrency, rate, per, burst, adapt, order, fair, breaker, fallback } =
        request.json()?;
    let mut limit = types.into_iter().fold(Limit::new(name, key), Limit::task_type);
    if order == LaneOrder::Strict {
        limit = limit.strict_order();
    }
    if fair {
        limit = limit.fair();
    }
    limit = concurrency.into_iter().fold(limit, Limit::concurrency);
    limit = match (rate, per) {
        (Some(rate), Some(per)) => limit.rate(rate, Duration::from_millis(per)),
        (None, None) => limit,
        _ => {
            return Err(Problem::invalid(
                "per",
                "rate and per belong together: so many starts in so many milliseconds",
            ));
        }
    };
    limit = adapt.into_iter().fold(limit, Limit::adaptive);
    limit = breaker.into_iter().fold(limit, Limit::breaker);
    limit = burst.into_iter().fold(limit, Limit::burst);
    limit = fallback.into_iter().fold(limit, |limit, secs| limit.fallback(Duration::from_secs(secs)));
    // Nothing is written down about what cannot be.
    limit.check().map_err(Error::from)?;
    request.admin().set_limit(queue, limit).await?;
    let (limits, unaware) =
        (request.inspector().limits(queue).await?, request.inspector().servers_unaware_of_limits().await?);
    let info = limits.iter().find(|info| info.limit.name == *name);
    let info = info.ok_or_else(|| Error::LimitNotFound { queue: queue.to_owned(), limit: name.clone() })?;
    json(&shown(&request, queue, info, &unaware)?)
}

pub(crate) async fn remove(request: Request) -> Answer {
    let (queue, name) = (request.queue()?, &request.names[1]);
    request.admin().remove_limit(queue, name).await?;
    json(&value!({ "queue": queue, "name": name, "removed": true }))
}

pub(crate) async fn off(request: Request) -> Answer {
    let queue = request.queue()?;
    let tasks = request.admin().remove_limits(queue).await?;
    json(&value!({ "queue": queue, "made_pending": tasks }))
}

pub(crate) async fn lanes(request: Request) -> Answer {
    let (queue, name, inspector) = (request.queue()?, &request.names[1], request.inspector());
    let behind = request.param("cursor").map(|text| URL_SAFE_NO_PAD.decode(text)).transpose();
    let behind = behind.map_err(|_| Error::BadCursor(BadCursor))?;
    let limits = inspector.limits(queue).await?;
    let limit = limits.iter().find(|info| info.limit.name == *name);
    if limit.is_some_and(|info| request.web.redact.hides_key(&info.limit.key)) {
        return Err(Problem::forbidden("redacted", "the keys of this limit are hidden here, as they are in the tasks"));
    }
    let (items, next) = inspector.lanes(queue, name, behind.as_deref(), request.number("limit", 50, 200)?).await?;
    json(&value!({ "items": items, "next": next.map(|next| URL_SAFE_NO_PAD.encode(next)) }))
}

/// What is to be different for one key.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wish {
    concurrency: Option<std::num::NonZeroU32>,
    paused: bool,
    weight: Option<u32>,
}

pub(crate) async fn change(request: Request) -> Answer {
    request.queue()?;
    let Wish { concurrency, paused, weight } = request.json()?;
    let mut change = LaneChange::default();
    (change.concurrency, change.paused, change.weight) = (concurrency.map(Into::into), paused, weight);
    change_to(request, change).await
}

pub(crate) async fn reset(request: Request) -> Answer {
    change_to(request, LaneChange::default()).await
}

async fn change_to(request: Request, change: LaneChange) -> Answer {
    let (queue, name, key) = (request.queue()?, &request.names[1], &request.names[2]);
    request.admin().change_lane(queue, name, key, Some(&change)).await?;
    json(&value!({ "queue": queue, "name": name, "key": key, "now": change }))
}

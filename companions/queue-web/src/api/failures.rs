//! What fails, grouped by its cause.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_admin::{Error, FailureGroup, Failures, Unread};
use queue_core::fingerprint::{Fingerprint, NoFingerprint};
use queue_core::{Clock as _, SystemClock};
use serde_json::{Value, json as value};
use tokio::time::{Instant, sleep};

use super::tasks::{PAUSE_FACTOR, SEARCH_FOR};
use crate::Inner;
use crate::problem::Problem;
use crate::request::{Answer, Request, json};

/// How long what was found is told before it is looked through again.
const FRESH: Duration = Duration::from_secs(60);
/// How often it is looked whether the first way through all has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The last way through all that has failed, and the one that goes on: one for all who look. A std mutex: nothing waits while it is held.
#[derive(Default)]
pub(crate) struct Watch(Mutex<State>);

#[derive(Default)]
struct State {
    running: bool,
    /// When the one that goes on began, or the last one.
    began: Option<Instant>,
    /// What goes on, or has broken off.
    now: Way,
    /// The last one that came to its end, and when it did.
    last: Option<(Way, Instant)>,
    error: Option<String>,
}

#[derive(Default, Clone)]
struct Way {
    started: Option<DateTime<Utc>>,
    ended: Option<DateTime<Utc>>,
    found: Failures,
    unread: Vec<Unread>,
}

impl Watch {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sees to it that what is told is not old, or `again` that it was read after this was called: what somebody has just changed shall be seen. Waits a
/// little for that, and where there is nothing whole to tell.
async fn refresh(web: &Arc<Inner>, again: bool) {
    let asked = Instant::now();
    loop {
        let (begins, waits) = web.failures.with(|state| {
            let is_young = state.last.as_ref().is_some_and(|(_, at)| at.elapsed() < FRESH);
            let is_fresh = !again && is_young || state.began.is_some_and(|began| began >= asked);
            let begins = !state.running && !is_fresh;
            if begins {
                state.running = true;
                state.began = Some(Instant::now());
                state.error = None;
                state.now = Way { started: Some(SystemClock.now()), ..Way::default() };
            }
            (begins, state.running && (again || state.last.is_none()))
        });
        if begins {
            tokio::spawn(go_through(web.clone()));
        }
        if !waits || asked.elapsed() >= SEARCH_FOR {
            return;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Reads for a fifth of the time, so that it takes Redis from nobody.
async fn go_through(web: Arc<Inner>) {
    let error = match look(&web).await {
        Ok(()) => None,
        Err(error) => Some(error.to_string()),
    };
    web.failures.with(|state| {
        state.running = false;
        if error.is_none() {
            let ended = Some(SystemClock.now());
            state.last = Some((Way { ended, ..std::mem::take(&mut state.now) }, Instant::now()));
        }
        state.error = error;
    });
}

async fn look(web: &Inner) -> Result<(), Error> {
    let mut scan = web.inspector.failures(None).await?;
    web.failures.with(|state| {
        state.now.found.expect(&scan);
        state.now.unread = scan.unread().to_vec();
    });
    loop {
        let started = Instant::now();
        let Some(stretch) = scan.next().await? else { return Ok(()) };
        web.failures.with(|state| state.now.found.add(&stretch));
        sleep(started.elapsed() * PAUSE_FACTOR).await;
    }
}

/// The groups that the sender may see, in one queue or in all, and how they were found.
fn shown(request: &Request, queue: Option<&str>) -> (Vec<FailureGroup>, Value) {
    let sees = |name: &str| request.who.sees(name) && queue.is_none_or(|queue| queue == name);
    request.web.failures.with(|state| {
        let way = state.last.as_ref().map_or(&state.now, |(way, _)| way);
        let totals = way.found.totals(sees);
        let told = value!({
            "started": way.started,
            "ended": way.ended,
            "running": state.running,
            "partial": state.last.is_none(),
            "looked_at": totals.looked_at,
            "of": totals.of,
            "other": totals.other,
            "without_error": totals.without_error,
            "unreadable": way.unread.iter().filter(|it| sees(&it.queue)).collect::<Vec<_>>(),
            "error": state.error,
        });
        (way.found.groups(sees), told)
    })
}

pub(crate) async fn list(request: Request) -> Answer {
    let (limit, queue) = (request.number("limit", 50, 200)?, request.param("queue"));
    if let Some(queue) = queue
        && !(request.who.sees(queue) && request.inspector().queues().await?.iter().any(|name| name == queue))
    {
        return Err(Error::QueueNotFound(queue.to_owned()).into());
    }
    refresh(&request.web, request.flag("again")?).await;
    let (mut groups, mut told) = shown(&request, queue);
    told["groups"] = groups.len().into();
    groups.truncate(limit);
    told["items"] = super::queues::to_value(&groups)?;
    json(&told)
}

pub(crate) async fn one(request: Request) -> Answer {
    let wanted = &request.names[0];
    let wanted: Fingerprint =
        wanted.parse().map_err(|error: NoFingerprint| Problem::invalid("fingerprint", error.to_string()))?;
    refresh(&request.web, false).await;
    let (groups, mut told) = shown(&request, None);
    let group = groups.into_iter().find(|group| group.fingerprint == wanted.to_string());
    let group = group.ok_or_else(|| {
        Problem::not_found(
            "failure-not-found",
            "no task in retry or in the archive has failed like this, as far as was looked",
        )
        .with("partial", told["partial"].clone())
    })?;
    told["group"] = super::queues::to_value(&group)?;
    json(&told)
}

//! Examinations.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use queue_admin::view::Finding;
use queue_core::{Clock as _, SystemClock};
use serde::Serialize;
use serde_json::json as value;

use crate::Inner;
use crate::request::{Answer, Request, json};

/// Findings that are kept; a thousand that say the same help nobody.
const MOST: usize = 1_000;

/// The last examination, and the one that goes on. A std mutex: nothing waits while it is held.
#[derive(Default)]
pub(crate) struct Checkup(Mutex<State>);

#[derive(Default, Clone)]
struct State {
    running: bool,
    started: Option<DateTime<Utc>>,
    ended: Option<DateTime<Utc>>,
    tasks: u64,
    findings: Vec<Found>,
    count: u64,
    error: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
struct Found {
    #[serde(flatten)]
    finding: Finding,
}

impl Checkup {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) async fn last(request: Request) -> Answer {
    let state = request.web.checkup.with(|state| state.clone());
    let who = &request.who;
    let sees = |found: &&Found| found.finding.queue.as_deref().map_or(who.sees_all(), |queue| who.sees(queue));
    let items: Vec<&Found> = state.findings.iter().filter(sees).collect();
    let count = if who.sees_all() { state.count } else { items.len() as u64 };
    json(&value!({
        "running": state.running,
        "started": state.started,
        "ended": state.ended,
        "tasks": state.tasks,
        "findings": count,
        "items": items,
        "error": state.error,
    }))
}

/// Begins an examination, unless one goes on. It changes nothing, and so it is not in the audit.
pub(crate) async fn begin(request: Request) -> Answer {
    let web = request.web.clone();
    let begins = web.checkup.with(|state| {
        let begins = !state.running;
        if begins {
            *state = State { running: true, started: Some(SystemClock.now()), ..State::default() };
        }
        begins
    });
    if begins {
        tokio::spawn(examine(web));
    }
    last(request).await
}

async fn examine(web: Arc<Inner>) {
    let mut examination = web.inspector.doctor().examine();
    let error = loop {
        match examination.next().await {
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
            Ok(Some(findings)) => web.checkup.with(|state| {
                state.tasks = examination.tasks();
                state.count += findings.len() as u64;
                let room = MOST.saturating_sub(state.findings.len());
                let shown = findings.iter().take(room).map(|found| {
                    let mut finding = Finding::from(found);
                    finding.subject = web.redact.lock(finding.subject);
                    finding.detail = web.redact.lock(finding.detail);
                    Found { finding }
                });
                state.findings.extend(shown);
            }),
        }
    };
    web.checkup.with(|state| {
        state.running = false;
        state.ended = Some(SystemClock.now());
        state.error = error;
    });
}

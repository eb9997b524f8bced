//! Queues.

use queue_admin::view;
use serde_json::{Value, json as value};

use super::whole::look;
use crate::problem::Problem;
use crate::request::{Answer, Request, json};

pub(crate) async fn list(request: Request) -> Answer {
    let look = look(&request).await?;
    let items: Vec<_> = look.rows(&request.who).collect();
    json(&value!({ "total": items.len(), "items": items }))
}

pub(crate) async fn one(request: Request) -> Answer {
    let (queue, inspector) = (request.queue()?, request.inspector());
    let with_memory = request.flag("memory")?;
    let mut shown = to_value(&view::Queue::from(&inspector.queue(queue).await?))?;
    if with_memory {
        shown["memory_bytes"] = inspector.queue_memory(queue).await?.into();
    }
    json(&shown)
}

pub(crate) fn to_value(shown: &impl serde::Serialize) -> Result<Value, Problem> {
    serde_json::to_value(shown)
        .map_err(|error| Problem::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()))
}

pub(crate) async fn remove(request: Request) -> Answer {
    let queue = request.queue()?;
    let tasks = request.admin().remove_queue(queue, request.flag("force")?).await?;
    json(&value!({ "queue": queue, "tasks": tasks }))
}

pub(crate) async fn pause(request: Request) -> Answer {
    set(request, true).await
}

pub(crate) async fn resume(request: Request) -> Answer {
    set(request, false).await
}

/// A queue can be paused before it has had a task. That it is not there yet is told.
async fn set(request: Request, paused: bool) -> Answer {
    let queue = request.queue()?;
    if paused && queue.trim().is_empty() {
        return Err(Problem::invalid("queue", "a queue has a name"));
    }
    let changed = request.admin().pause(queue, paused).await?;
    let exists = request.inspector().queues().await?.iter().any(|name| name == queue);
    json(&value!({ "queue": queue, "paused": paused, "changed": changed, "exists": exists }))
}

/// What Redis keeps.
const MOST_DAYS: usize = 90;

pub(crate) async fn days(request: Request) -> Answer {
    let days = request.inspector().history(request.queue()?, request.number("days", 10, MOST_DAYS)?).await?;
    let items: Vec<Value> = days
        .iter()
        .map(|day| value!({ "date": day.date.to_string(), "processed": day.processed, "failed": day.failed }))
        .collect();
    json(&value!({ "items": items }))
}

pub(crate) async fn groups(request: Request) -> Answer {
    let groups = request.inspector().groups(request.queue()?).await?;
    let items: Vec<Value> = groups.iter().map(|group| value!({ "group": group.name, "size": group.size })).collect();
    json(&value!({ "total": items.len(), "items": items }))
}

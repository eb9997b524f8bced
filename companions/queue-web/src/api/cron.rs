//! Periodic entries.

use queue_admin::{Error, Page, view};
use serde_json::json as value;

use super::queues::to_value;
use crate::problem::Problem;
use crate::redact::HIDDEN;
use crate::request::{Answer, Request, json};

/// The entries that the sender may see.
async fn entries(request: &Request) -> Result<Vec<view::CronEntry>, Problem> {
    let entries = request.inspector().all_cron_entries().await?;
    Ok(entries.into_iter().filter(|entry| request.who.sees(&entry.queue)).collect())
}

fn shown(request: &Request, entry: &view::CronEntry) -> Result<serde_json::Value, Problem> {
    let mut shown = to_value(entry)?;
    if request.web.redact.hides_payload(&entry.r#type) {
        shown["payload"] = HIDDEN.into();
    }
    shown["options"] = request.web.redact.options(&entry.options).into();
    Ok(shown)
}

pub(crate) async fn list(request: Request) -> Answer {
    let entries = entries(&request).await?;
    let items: Result<Vec<_>, Problem> = entries.iter().map(|entry| shown(&request, entry)).collect();
    json(&value!({ "total": entries.len(), "items": items? }))
}

async fn find(request: &Request) -> Result<view::CronEntry, Problem> {
    let name = &request.names[0];
    let found = entries(request).await?.into_iter().find(|entry| entry.id == *name);
    found.ok_or_else(|| Error::EntryNotFound(name.clone()).into())
}

pub(crate) async fn one(request: Request) -> Answer {
    json(&shown(&request, &find(&request).await?)?)
}

pub(crate) async fn history(request: Request) -> Answer {
    let skip =
        request.param("skip").unwrap_or("0").parse().map_err(|_| Problem::invalid("skip", "skip is a number"))?;
    let size = request.number("limit", 50, 200)?;
    let entry = find(&request).await?;
    let lines = request.inspector().all_cron_history(&entry.id, Page { skip, size }).await?.unwrap_or_default();
    json(&value!({ "items": lines }))
}

pub(crate) async fn pause(request: Request) -> Answer {
    set(request, true).await
}

pub(crate) async fn resume(request: Request) -> Answer {
    set(request, false).await
}

async fn set(request: Request, paused: bool) -> Answer {
    let entry = find(&request).await?;
    let changed = request.admin().pause_cron(&entry.id, paused).await?;
    json(&value!({ "entry": entry.id, "paused": paused, "changed": changed }))
}

pub(crate) async fn run(request: Request) -> Answer {
    let entry = find(&request).await?;
    let id = request.admin().run_cron(&entry.id, request.flag("force")?).await?;
    json(&value!({ "entry": entry.id, "task_id": id }))
}

pub(crate) async fn remove(request: Request) -> Answer {
    let entry = find(&request).await?;
    if entry.state != "stopped" {
        let told =
            format!("a scheduler carries entry {:?}; take it out of the scheduler's file or program first", entry.id);
        return Err(Problem::new(axum::http::StatusCode::CONFLICT, "entry-carried", told));
    }
    request.admin().remove_cron(&entry.id).await?;
    json(&value!({ "entry": entry.id, "removed": true }))
}

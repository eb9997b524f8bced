//! What asynqmon shows.

use std::collections::BTreeMap;

use queue_admin::{Error, Page, WorkerInfo};
use queue_core::{Clock as _, SystemClock, TaskState};
use serde_json::{Value, json as value};

use super::{list, shape};
use crate::api::redis::whole_redis;
use crate::live;
use crate::problem::Problem;
use crate::request::{Answer, Request, json};

/// Most tasks of a page.
const MOST: usize = 1_000;
/// Days of the statistics of all queues, and of one.
const DAYS: (usize, usize) = (90, 10);

/// `size` and `page`, which begins with 1; what is no number counts as asynqmon's own, as there.
fn page(request: &Request) -> Result<Page, Problem> {
    let number = |name, default: usize| request.param(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (size, page) = (number("size", 20), number("page", 1));
    // Fewer than were asked for would look like the end of the list.
    if size > MOST {
        return Err(Problem::invalid("size", format!("a page has at most {MOST} tasks")));
    }
    Ok(Page { skip: page.saturating_sub(1).saturating_mul(size), size })
}

async fn snapshot(request: &Request, queue: &str) -> Result<Value, Error> {
    let inspector = request.inspector();
    let (info, memory) = (inspector.queue(queue).await?, inspector.queue_memory(queue).await?);
    Ok(shape::snapshot(&info, memory.unwrap_or_default()))
}

/// A queue that cannot be read is left out, and costs no other one.
pub(super) async fn queues(request: Request) -> Answer {
    let inspector = request.inspector();
    let board = inspector.board_of(request.queues_seen().await?).await?;
    let infos: Vec<_> = board.rows.into_iter().filter_map(|row| row.queue.ok()).collect();
    let names: Vec<String> = infos.iter().map(|info| info.name.clone()).collect();
    let memory = inspector.queues_memory(&names).await?;
    let shown = infos.iter().zip(memory).map(|(info, memory)| shape::snapshot(info, memory.unwrap_or_default()));
    json(&value!({ "queues": shown.collect::<Vec<_>>() }))
}

pub(super) async fn queue(request: Request) -> Answer {
    let queue = request.queue()?;
    let history = request.inspector().history(queue, DAYS.1).await?;
    json(&value!({ "current": snapshot(&request, queue).await?, "history": shape::days(queue, &history) }))
}

pub(super) async fn stats(request: Request) -> Answer {
    let queues = request.queues_seen().await?;
    let histories = request.inspector().histories(&queues, DAYS.0).await?;
    let stats: serde_json::Map<_, _> =
        queues.iter().zip(histories).map(|(queue, days)| (queue.clone(), shape::days(queue, &days))).collect();
    json(&value!({ "stats": stats }))
}

pub(super) async fn groups(request: Request) -> Answer {
    let queue = request.queue()?;
    let groups = request.inspector().groups(queue).await?;
    json(&value!({ "stats": snapshot(&request, queue).await?, "groups": shape::groups(&groups) }))
}

pub(super) async fn tasks(request: Request) -> Answer {
    let (list, page, inspector) = (list(&request, &request.names, None)?, page(&request)?, request.inspector());
    let found = match list.group {
        Some(group) => inspector.group_tasks(list.queue, group, page).await?,
        None => inspector.tasks(list.queue, list.state, page).await?,
    };
    let mut workers: BTreeMap<String, WorkerInfo> = BTreeMap::new();
    if list.state == TaskState::Active {
        let servers = inspector.servers().await?;
        let here = servers.into_iter().flat_map(|server| server.workers).filter(|worker| worker.queue == list.queue);
        workers.extend(here.map(|worker| (worker.task_id.clone(), worker)));
    }
    let now = SystemClock.now();
    let items = found.into_iter().map(|task| {
        let task = request.web.redact.task(task);
        shape::listed(&task, workers.get(&task.id), now)
    });
    let items: Vec<Value> = items.collect();
    let mut told = value!({ "tasks": items, "stats": snapshot(&request, list.queue).await? });
    if list.group.is_some() {
        told["groups"] = shape::groups(&inspector.groups(list.queue).await?);
    }
    json(&told)
}

pub(super) async fn task(request: Request) -> Answer {
    let task = request.inspector().task(request.queue()?, &request.names[1]).await?;
    json(&shape::alone(&request.web.redact.task(task), SystemClock.now()))
}

pub(super) async fn servers(request: Request) -> Answer {
    let servers = request.inspector().servers().await?;
    let shown = servers.into_iter().map(|server| shape::server(&live::shown(&request.web, &request.who, server)));
    json(&value!({ "servers": shown.collect::<Vec<_>>() }))
}

pub(super) async fn entries(request: Request) -> Answer {
    let entries = request.inspector().scheduler_entries().await?;
    let seen = entries.iter().filter(|entry| request.who.sees(&entry.queue()));
    let shown = seen.map(|entry| shape::entry(entry, &request.web.redact));
    json(&value!({ "entries": shown.collect::<Vec<_>>() }))
}

/// What an entry has enqueued, whether somebody carries it or not. For who is confined to some queues, one that nobody carries does not
/// exist: its queue is not known.
pub(super) async fn events(request: Request) -> Answer {
    let (entry, page, inspector) = (&request.names[0], page(&request)?, request.inspector());
    let sees = request.who.sees_all()
        || inspector.scheduler_entries().await?.iter().any(|it| it.id == *entry && request.who.sees(&it.queue()));
    let events = if sees { inspector.enqueue_events(entry, page).await? } else { Vec::new() };
    json(&value!({ "events": events.iter().map(shape::event).collect::<Vec<_>>() }))
}

/// What Redis says of itself; for a cluster, what one of its nodes does. For who sees all queues.
pub(super) async fn redis_info(request: Request) -> Answer {
    whole_redis(&request)?;
    let inspector = request.inspector();
    let text = inspector.redis_info_text().await?;
    // As asynqmon reads it: a line with two colons says nothing.
    let info: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once(':')).filter(|(_, value)| !value.contains(':')).collect();
    let is_cluster = info.get("cluster_enabled").is_some_and(|it| *it == "1");
    let places = if is_cluster { Some(inspector.places_of_queues().await?) } else { None };
    let locations = places.map(|places| {
        let told = places.iter().map(|it| value!({ "queue": it.queue, "keyslot": it.slot, "nodes": it.nodes }));
        told.collect::<Vec<_>>()
    });
    json(&value!({
        "address": request.web.redis.target(),
        "info": info,
        "raw_info": text,
        "cluster": is_cluster,
        "raw_cluster_nodes": "",
        "queue_locations": locations,
    }))
}

//! Tasks.

use std::time::Duration;

use axum::http::{StatusCode, header};
use queue_admin::{Cancellation, Cursor, Direction, Error, Explanation, Filter, Listing, Reason, Verb, view};
use queue_core::{TaskInfo, TaskState};
use serde::Deserialize;
use serde_json::{Value, json as value};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep};

use super::queues::to_value;
use crate::problem::Problem;
use crate::request::{Answer, Request, download, json, tagged, tags};

/// Bytes of a payload, of a result and of each header that a list shows.
pub(crate) const IN_LIST: usize = 1_024;
/// The same of a task alone; all of it is at `/payload` and `/result`.
const ALONE: usize = 64 * 1024;
/// How long a search goes on before it answers with what it has found.
pub(crate) const SEARCH_FOR: Duration = Duration::from_millis(300);
/// Tasks that a search looks at between two pauses.
pub(crate) const STRIDE: usize = 500;
/// A search reads for a fifth of the time, so that it takes Redis from nobody.
pub(crate) const PAUSE_FACTOR: u32 = 4;
/// Longest wait for the end of a task.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The task without what is hidden, its payload and result cut at so many bytes. Alone, it has all of its headers.
pub(crate) fn shown(request: &Request, task: TaskInfo, limit: Option<usize>) -> Result<Value, Problem> {
    let mut task = request.web.redact.task(task);
    if let Some(limit) = limit {
        task.headers.values_mut().for_each(|value| value.truncate(value.floor_char_boundary(limit)));
    }
    let limit = limit.unwrap_or(ALONE);
    let sizes = [Some(task.payload.len()), task.result.as_ref().map(bytes::Bytes::len)];
    cut(&mut task.payload, limit);
    task.result.iter_mut().for_each(|result| cut(result, limit));
    let mut shown = to_value(&view::Task::from(task))?;
    for (field, size) in ["payload_bytes", "result_bytes"].into_iter().zip(sizes) {
        shown[field] = size.into();
    }
    Ok(shown)
}

/// Text is cut between two characters, so that it stays text.
fn cut(bytes: &mut bytes::Bytes, limit: usize) {
    if bytes.len() <= limit {
        return;
    }
    let end = match std::str::from_utf8(bytes) {
        Ok(text) => text.floor_char_boundary(limit),
        Err(_) => limit,
    };
    bytes.truncate(end);
}

/// The filter of a query: `q`, and `state` beside it.
pub(crate) fn filter(request: &Request) -> Result<Filter, Problem> {
    let mut filter: Filter = match request.param("q") {
        Some(text) => {
            text.parse().map_err(|error: queue_admin::FilterError| Problem::invalid("q", error.to_string()))?
        }
        None => Filter::new(),
    };
    if let Some(text) = request.param("state") {
        if filter.has_states() {
            return Err(Problem::invalid("state", "states are named either by state or in q"));
        }
        for name in text.split(',') {
            let state: TaskState = name.parse().map_err(|_| {
                Problem::invalid(
                    "state",
                    format!("the states are {}", TaskState::ALL.map(TaskState::as_str).join(", ")),
                )
            })?;
            filter = filter.state(state);
        }
    }
    request.web.redact.check(&filter)?;
    Ok(filter)
}

pub(crate) async fn list(request: Request) -> Answer {
    let queue = request.param("queue").ok_or_else(|| Problem::invalid("queue", "name a queue"))?;
    if !request.who.sees(queue) {
        return Err(Error::QueueNotFound(queue.to_owned()).into());
    }
    let (filter, limit) = (filter(&request)?, request.number("limit", 50, 200)?);
    let direction = match request.param("order") {
        None | Some("oldest") => Direction::Oldest,
        Some("newest") => Direction::Newest,
        Some(_) => return Err(Problem::invalid("order", "order is oldest or newest")),
    };
    let (of, filter) = (&request, &filter);
    let keep = |task| shown(of, task, Some(IN_LIST));
    let read = |cursor: Option<Cursor>, left| async move {
        of.inspector().list_as(queue, filter, direction, cursor.as_ref(), left, STRIDE.max(left), keep).await
    };
    json(&pages(of, filter, limit, read, |shown| shown).await?)
}

/// Reads pages from the cursor of the request on, until there are so many tasks or the time of a search is over.
pub(crate) async fn pages<F, T>(
    request: &Request,
    filter: &Filter,
    limit: usize,
    mut read: impl FnMut(Option<Cursor>, usize) -> F,
    show: impl Fn(T) -> Result<Value, Problem>,
) -> Result<Value, Problem>
where
    F: Future<Output = Result<Listing<T>, Error>>,
{
    let mut cursor: Option<Cursor> = request.param("cursor").map(str::parse).transpose().map_err(Error::BadCursor)?;
    let begun = Instant::now();
    // One page of all tasks costs nothing worth counting.
    let _searching = match filter.is_search() {
        true => Some(searching(request).await?),
        false => None,
    };
    let (mut items, mut moved) = (Vec::new(), false);
    loop {
        let started = Instant::now();
        let page = read(cursor, limit - items.len()).await?;
        for task in page.tasks {
            items.push(show(task)?);
        }
        let queue = request.param("queue");
        items.extend(page.unread.iter().map(|id| value!({ "id": id, "queue": queue, "unreadable": true })));
        moved |= page.moved;
        cursor = page.next;
        let pause = started.elapsed() * PAUSE_FACTOR;
        if items.len() >= limit || cursor.is_none() || begun.elapsed() + pause >= SEARCH_FOR {
            let is_plain = !filter.is_search();
            return Ok(value!({
                "items": items,
                "next": cursor.map(|cursor| cursor.to_string()),
                "total": is_plain.then_some(page.searched.of),
                "searched": page.searched,
                "moved": moved,
            }));
        }
        sleep(pause).await;
    }
}

/// A place among those who go through many tasks.
pub(crate) async fn searching(request: &Request) -> Result<SemaphorePermit<'_>, Problem> {
    let closed = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "closed", "the dashboard ends");
    request.web.searches.acquire().await.map_err(closed)
}

pub(crate) async fn everywhere(request: Request) -> Answer {
    let tasks = request.inspector().task_everywhere(&request.names[0], |queue| request.who.sees(queue)).await?;
    let items: Result<Vec<Value>, Problem> = tasks.into_iter().map(|task| shown(&request, task, None)).collect();
    json(&value!({ "items": items? }))
}

pub(crate) async fn one(request: Request) -> Answer {
    let (queue, id) = (request.queue()?, &request.names[1]);
    let Some(wait) = request.duration("wait")? else {
        let (task, version) = seen(&request, queue, id).await?;
        return tagged(&request, &version.told, &shown(&request, task, None)?);
    };
    let Ok(_place) = request.web.waits.try_acquire() else {
        let told = "too many requests wait for tasks already";
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate-limited", told).header(header::RETRY_AFTER, "10"));
    };
    // One that has ended before it could be looked at is not there, as for everybody.
    let (outcome, task) = request.inspector().wait(queue, id, None, Some(wait.min(MAX_WAIT))).await?;
    let task = task.map(|task| shown(&request, task, None)).transpose()?;
    json(&value!({ "outcome": outcome, "task": task }))
}

/// Which task somebody has seen.
struct Version {
    /// As the ETag tells it.
    told: String,
    /// As [`Inspector::task_version`](queue_admin::Inspector::task_version) tells it.
    whole: String,
}

async fn seen(request: &Request, queue: &str, id: &str) -> Result<(TaskInfo, Version), Problem> {
    // First: whatever changes from here on makes it another one.
    let whole = request.inspector().task_version(queue, id).await?;
    let task = request.inspector().task(queue, id).await?;
    let shown = request.web.redact.task(task.clone());
    // A hash of all tells what is hidden to whoever can guess it.
    let told = if shown == task { whole.clone() } else { version_of_shown(shown)? };
    Ok((task, Version { told, whole }))
}

/// A hash of what is shown of a message, without what changes while it stays the same.
fn version_of_shown(shown: TaskInfo) -> Result<String, Problem> {
    let mut message = shown.due_at(None);
    (message.progress, message.result, message.crashes, message.is_orphaned) = (None, None, 0, false);
    Ok(format!("{:x}", md5::compute(to_value(&view::Task::from(message))?.to_string())))
}

/// The versions of which the sender has seen one, if it names any.
fn if_match(request: &Request) -> Option<Vec<&str>> {
    request.headers.get(header::IF_MATCH)?;
    let versions: Vec<&str> = tags(request, header::IF_MATCH).filter_map(|tag| tag.split('.').next()).collect();
    Some(versions).filter(|versions| !versions.contains(&"*"))
}

/// Refuses what the sender may not see, or has seen otherwise. Returns what there is, for one who names what was seen.
async fn check_version(request: &Request, queue: &str, id: &str) -> Result<Option<String>, Problem> {
    let Some(known) = if_match(request) else {
        // It has to be there.
        request.inspector().task_version(queue, id).await?;
        return Ok(None);
    };
    let (_, version) = seen(request, queue, id).await?;
    if !known.contains(&&*version.told) {
        return Err(Error::VersionChanged { queue: queue.to_owned(), id: id.to_owned() }.into());
    }
    Ok(Some(version.whole))
}

/// Does this to one task that the sender may see; `false` where nothing came of it, as [`Admin::change_task`](queue_admin::Admin::change_task) says.
pub(crate) async fn change_one(request: &Request, verb: Verb, queue: &str, id: &str) -> Result<bool, Problem> {
    // A server may be told of any id. Only of those that the sender may see.
    check_version(request, queue, id).await?;
    if verb == Verb::Interrupt {
        let state = request.inspector().task(queue, id).await?.state;
        if state != TaskState::Active {
            let told = format!("task {id:?} is {state} and not running, so there is nothing to interrupt");
            return Err(Problem::new(StatusCode::CONFLICT, "wrong-state", told).with("state", state.as_str()));
        }
    }
    Ok(request.admin().change_task(verb, queue, id).await?)
}

async fn change(request: Request, verb: Verb) -> Answer {
    let (queue, id) = (request.queue()?, &request.names[1]);
    let heard = change_one(&request, verb, queue, id).await?;
    json(&value!({ "action": verb, "queue": queue, "id": id, "changed": heard }))
}

pub(crate) async fn run(request: Request) -> Answer {
    change(request, Verb::Run).await
}

pub(crate) async fn archive(request: Request) -> Answer {
    change(request, Verb::Archive).await
}

pub(crate) async fn delete(request: Request) -> Answer {
    change(request, Verb::Delete).await
}

/// `changed` is `false` where no server was there to hear it.
pub(crate) async fn interrupt(request: Request) -> Answer {
    change(request, Verb::Interrupt).await
}

/// `changed` is `false` where it had ended before.
pub(crate) async fn cancel(request: Request) -> Answer {
    let (queue, id) = (request.queue()?, &request.names[1]);
    check_version(&request, queue, id).await?;
    let cancellation = request.admin().cancel_for_good(queue, id).await?;
    json(&value!({
        "action": Verb::Cancel, "queue": queue, "id": id, "changed": !matches!(cancellation, Cancellation::Ended(_)),
        "outcome": cancellation.as_str(), "server": cancellation.server(),
    }))
}

pub(crate) async fn explain(request: Request) -> Answer {
    let (queue, id) = (request.queue()?, &request.names[1]);
    // Of a task that is not there, it looks for the lock, through all keys of the Redis.
    let closed = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "closed", "the dashboard ends");
    let _place = request.web.explains.acquire().await.map_err(closed)?;
    let found = redacted(&request, request.inspector().explain(queue, id).await?).await;
    json(&view::Explanation::from(&found))
}

/// The same without what is hidden in the task: the key of its lane, the hash in the name of its lock.
pub(super) async fn redacted(request: &Request, found: Explanation) -> Explanation {
    let limits = match found.reasons.iter().any(|reason| matches!(reason, Reason::Lane { .. })) {
        // Of limits that cannot be read, no key is told.
        true => request.inspector().limits(&found.queue).await.unwrap_or_default(),
        false => Vec::new(),
    };
    request.web.redact.explanation(found, &limits)
}

/// The last attempts that failed, oldest first. Their errors are shown as the last error of the task is.
pub(crate) async fn attempts(request: Request) -> Answer {
    let (queue, id) = (request.queue()?, &request.names[1]);
    request.inspector().task(queue, id).await?; // one that is not there is not one that never failed
    let (failed, attempts) = request.inspector().attempts(queue, id).await?;
    let items: Vec<_> = attempts.into_iter().map(view::Attempt::from).collect();
    json(&value!({ "failed": failed, "items": items }))
}

/// The last lines that its handlers have written down, oldest first.
pub(crate) async fn log(request: Request) -> Answer {
    let (queue, id) = (request.queue()?, &request.names[1]);
    let task = request.inspector().task(queue, id).await?;
    let log = request.inspector().log(queue, id).await?;
    let lines = log.lines().map(|line| request.web.redact.log_line(&task.task_type, line.clone()));
    let items: Vec<_> = lines.map(|line| view::LogLine::from(&line)).collect();
    json(&value!({ "left_out": log.left_out(), "items": items }))
}

pub(crate) async fn payload(request: Request) -> Answer {
    let task = request.inspector().task(request.queue()?, &request.names[1]).await?;
    Ok(download("attachment; filename=\"payload\"", request.web.redact.task(task).payload))
}

pub(crate) async fn result(request: Request) -> Answer {
    let (queue, id) = (request.queue()?, &request.names[1]);
    let task = request.web.redact.task(request.inspector().task(queue, id).await?);
    let result =
        task.result.ok_or_else(|| Problem::not_found("result-not-found", format!("task {id:?} has no result")))?;
    Ok(download("attachment; filename=\"result\"", result))
}

pub(crate) async fn update(request: Request) -> Answer {
    let (queue, id) = (request.queue()?, &request.names[1]);
    let task = request.inspector().task(queue, id).await?;
    if request.web.redact.hides_payload(&task.task_type) {
        return Err(Problem::forbidden(
            "redacted",
            "a part of this payload is hidden here, so that it cannot be replaced",
        ));
    }
    let version = check_version(&request, queue, id).await?;
    if task.state == TaskState::Scheduled && version.is_none() {
        let told = "a scheduled task may become another one at any time; If-Match says which was seen";
        return Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, "version-needed", told));
    }
    request.admin().update_payload(queue, id, request.body.clone(), version.as_deref()).await?;
    json(
        &value!({ "action": "update", "queue": queue, "id": id, "changed": true, "payload_bytes": request.body.len() }),
    )
}

/// What is to be done to many.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    action: String,
    /// Which tasks; as in `q`.
    filter: String,
    #[serde(default)]
    dry_run: bool,
    /// Nothing is done if there are more.
    at_most: Option<u64>,
}

pub(crate) async fn bulk(request: Request) -> Answer {
    let queue = request.queue()?;
    let wish: Wish = request.json()?;
    let verb = Verb::from_name(&wish.action)
        .ok_or_else(|| Problem::invalid("action", "the actions are run, archive, delete, cancel and interrupt"))?;
    let filter: Filter =
        wish.filter.parse().map_err(|error: queue_admin::FilterError| Problem::invalid("filter", error.to_string()))?;
    if !filter.has_states() {
        return Err(Problem::invalid("filter", "name the states of the tasks, such as state:archived"));
    }
    request.web.redact.check(&filter)?;
    let _searching = searching(&request).await?;
    let matched = if wish.dry_run || wish.at_most.is_some() {
        Some(request.while_asked(request.inspector().count(queue, &filter)).await??)
    } else {
        None
    };
    if wish.dry_run {
        return json(&value!({ "action": verb, "queue": queue, "dry_run": true, "matched": matched }));
    }
    if let (Some(matched), Some(at_most)) = (matched, wish.at_most)
        && matched > at_most
    {
        let told = format!("{matched} tasks fit by now, and at most {at_most} were meant; nothing was done");
        return Err(Problem::new(StatusCode::CONFLICT, "limit-reached", told).with("matched", matched));
    }
    let changed = request.admin().change_all(verb, queue, &filter, |_| {}).await?;
    json(&value!({
        "action": verb, "queue": queue, "dry_run": false,
        "matched": changed.matched, "changed": changed.changed, "skipped": changed.skipped, "trimmed": changed.trimmed,
    }))
}

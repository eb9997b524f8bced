//! Enqueuing.

use axum::http::{HeaderValue, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use queue_admin::line;
use queue_core::budget::ON_EXHAUSTED_QUEUE;
use queue_core::queue_name::QueueName;
use queue_core::{RawTask, TaskInfo};
use queue_redis::EnqueueError;
use serde_json::{Value, json as value};

use super::tasks::shown;
use crate::problem::Problem;
use crate::request::{Answer, Request, with_status};

/// Most tasks of one request.
const MOST: usize = 1_000;
/// The header that says whose request has made a task.
const ENQUEUED_BY: &str = "x-enqueued-by";
/// Longest `Idempotency-Key`: it becomes a part of ids.
const MAX_KEY: usize = 200;

/// What makes the same request again find what it has made before; a task without an id gets it as one.
pub(super) fn key(request: &Request) -> Result<Option<&str>, Problem> {
    let Some(key) = request.headers.get("idempotency-key") else { return Ok(None) };
    let key =
        key.to_str().ok().map(|key| key.trim().trim_matches('"')).filter(|key| !key.is_empty() && key.len() <= MAX_KEY);
    key.map(Some).ok_or_else(|| Problem::invalid("Idempotency-Key", format!("it is text of 1 to {MAX_KEY} characters")))
}

/// Notes in the task whose request makes it, unless that says another one.
pub(super) fn mark(request: &Request, task: &mut RawTask) {
    task.options.headers.entry(ENQUEUED_BY.to_owned()).or_insert_with(|| request.who.name().to_owned());
}

fn task(request: &Request, text: &[u8], id: Option<String>) -> Result<RawTask, String> {
    let queue = &request.names[0];
    let mut task = line::parse(text)?;
    if task.options.queue.as_ref().is_some_and(|named| named != queue) {
        return Err(format!("the queue of the address is {queue:?}"));
    }
    // One who is confined to some queues puts tasks into no other one, neither now nor when this one is given up.
    let family = task.options.family.clone().map(|family| QueueName::new(queue, family).to_string());
    let follows = task.options.on_exhausted_queue.as_ref().or(task.options.headers.get(ON_EXHAUSTED_QUEUE));
    if let Some(hidden) = family.iter().chain(follows).find(|name| !request.who.sees(name)) {
        return Err(format!("there is no queue {hidden:?}"));
    }
    task.options.queue = Some(queue.clone());
    task.options.task_id = task.options.task_id.or(id);
    mark(request, &mut task);
    Ok(task)
}

pub(crate) async fn enqueue(request: Request) -> Answer {
    let kind =
        request.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("application/json");
    match &*kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase() {
        // The second is what curl says of whatever it sends.
        "application/json" | "application/x-www-form-urlencoded" => one(&request).await,
        "application/x-ndjson" | "application/jsonl" => many(&request).await,
        other => {
            let told = format!("{other:?} is neither application/json nor application/x-ndjson");
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media", told))
        }
    }
}

/// Enqueues them. What a request with the same key has enqueued before is an answer too.
async fn put(request: &Request, tasks: Vec<RawTask>) -> Result<Vec<Result<TaskInfo, Problem>>, Problem> {
    let (queue, has_key) = (request.queue()?, key(request)?.is_some());
    let answers = request.admin().enqueue(&request.web.client, queue, tasks.clone()).await?;
    let mut told = Vec::new();
    for (answer, task) in answers.into_iter().zip(tasks) {
        let taken = match &answer {
            Err(EnqueueError::TaskIdConflict { id, .. }) => Some(id),
            // A unique task meets its own lock first.
            Err(EnqueueError::DuplicateTask { holder, .. }) => holder.as_ref(),
            _ => None,
        };
        let before = match taken.filter(|id| has_key && task.options.task_id.as_ref() == Some(id)) {
            Some(id) => {
                let placed = task.options.clone().queue(queue).queue_name();
                request.inspector().same_task(&placed, id, &task).await?
            }
            None => None,
        };
        // Somebody else may have used the same key.
        let before = before.filter(|before| before.headers.get(ENQUEUED_BY) == task.options.headers.get(ENQUEUED_BY));
        told.push(before.map_or_else(|| answer.map_err(Problem::from), Ok));
    }
    Ok(told)
}

/// What stands as it is in a part of an address.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b':');

/// A name as a part of an address; none for one that only `~` can write.
fn segment(name: &str) -> Option<String> {
    let is_other = name.contains(['/', '\\', '%']) || name.starts_with('~') || [".", ".."].contains(&name);
    (!is_other).then(|| utf8_percent_encode(name, PLAIN).to_string())
}

async fn one(request: &Request) -> Answer {
    request.queue()?;
    let task = task(request, &request.body, key(request)?.map(str::to_owned))
        .map_err(|reason| Problem::invalid("task", reason))?;
    let Some(answer) = put(request, vec![task]).await?.into_iter().next() else {
        return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "there is no answer"));
    };
    let info = answer?;
    // From the address of the request; the task may be in a queue of the same family.
    let place = match info.queue == request.queue()? {
        true => Some(String::new()),
        false => segment(&info.queue).map(|queue| format!("../{queue}/")),
    };
    let location = place.zip(segment(&info.id)).map(|(place, id)| format!("{place}tasks/{id}"));
    let mut response = with_status(StatusCode::CREATED, &shown(request, info, None)?)?;
    if let Some(location) = location.and_then(|location| HeaderValue::from_str(&location).ok()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// An answer for each line, in order. What is wrong with a line costs no other one.
async fn many(request: &Request) -> Answer {
    request.queue()?;
    let key = key(request)?;
    let lines = (1..).zip(request.body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii));
    let lines: Vec<(usize, &[u8])> = lines.filter(|(_, line)| !line.is_empty()).collect();
    if lines.len() > MOST {
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            format!("these are {} lines, and {MOST} go at once", lines.len()),
        ));
    }
    let id = |n: usize| key.map(|key| format!("{key}-{n}"));
    let parsed: Vec<Result<RawTask, String>> =
        lines.iter().zip(1..).map(|((_, line), n)| task(request, line, id(n))).collect();
    let tasks: Vec<RawTask> = parsed.iter().filter_map(|task| task.as_ref().ok()).cloned().collect();
    let mut answers = if tasks.is_empty() { Vec::new() } else { put(request, tasks).await? }.into_iter();
    let mut enqueued = 0;
    let items: Vec<Value> = parsed
        .into_iter()
        .zip(&lines)
        .map(|(task, (line, _))| {
            let failed = |code: &str, detail: &str| value!({ "line": line, "outcome": "refused", "code": code, "detail": detail });
            match task.map(|_| answers.next()) {
                Err(reason) => failed("invalid-value", &reason),
                Ok(Some(Ok(info))) => {
                    enqueued += 1;
                    value!({ "line": line, "outcome": "enqueued", "id": info.id, "state": info.state })
                }
                Ok(Some(Err(problem))) => failed(problem.code(), problem.detail()),
                Ok(None) => failed("internal", "there is no answer"),
            }
        })
        .collect();
    let refused = items.len() - enqueued;
    let status = if refused == 0 { StatusCode::CREATED } else { StatusCode::OK };
    with_status(status, &value!({ "enqueued": enqueued, "refused": refused, "items": items }))
}

//! Operations, changes of many tasks that outlive the process; and the bin.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use queue_admin::{Cursor, Error, Filter, FilterError, Operation, OperationSpec, OperationVerb, Pace, Rate, Work};
use serde::Deserialize;
use serde_json::json as value;
use tracing::warn;

use super::enqueue::key;
use super::queues::to_value;
use super::tasks::{IN_LIST, STRIDE, filter, pages, searching, shown};
use crate::Inner;
use crate::problem::Problem;
use crate::request::{Answer, Request, json, with_status};

/// How often a dashboard looks for operations that another process has left.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What is to be done: an [`OperationSpec`], in which a misspelled name is not ignored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    action: Work,
    #[serde(default)]
    queues: Vec<String>,
    filter: Option<String>,
    #[serde(default)]
    ids: Vec<String>,
    #[serde(default = "yes")]
    bin: bool,
    operation: Option<String>,
    at_most: Option<u64>,
    rate: Option<Rate>,
    reason: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

fn yes() -> bool {
    true
}

async fn seen(request: &Request, id: &str) -> Result<Operation, Problem> {
    let operation = request.inspector().operation(id).await?;
    if request.who.sees_all_of(&operation.spec.queues) {
        Ok(operation)
    } else {
        Err(Error::OperationNotFound(id.to_owned()).into())
    }
}

pub(crate) async fn list(request: Request) -> Answer {
    let operations = request.inspector().operations(request.number("limit", 100, 500)?).await?;
    let items: Vec<&Operation> =
        operations.iter().filter(|operation| request.who.sees_all_of(&operation.spec.queues)).collect();
    json(&value!({ "items": items }))
}

pub(crate) async fn one(request: Request) -> Answer {
    json(&seen(&request, &request.names[0]).await?)
}

pub(crate) async fn start(request: Request) -> Answer {
    let Wish { action, queues, filter, ids, bin, operation, at_most, rate, reason, dry_run } = request.json()?;
    let spec = OperationSpec { action, queues, filter, ids, bin, operation, at_most, rate, reason };
    for queue in &spec.queues {
        if !request.who.sees(queue) {
            return Err(Error::QueueNotFound(queue.clone()).into());
        }
    }
    if let Some(of) = &spec.operation {
        seen(&request, of).await?;
    }
    if let Some(text) = &spec.filter {
        let filter = text.parse::<Filter>();
        request
            .web
            .redact
            .check(&filter.map_err(|error: FilterError| Problem::invalid("filter", error.to_string()))?)?;
    }
    if dry_run {
        let _searching = searching(&request).await?;
        let by_queue = request.while_asked(request.inspector().dry_run(&spec)).await??;
        let matched: u64 = by_queue.values().sum();
        return json(&value!({ "action": spec.action, "dry_run": true, "matched": matched, "by_queue": by_queue }));
    }
    let operation = request.admin().start_operation(spec, key(&request)?).await?;
    carry_out(&request.web, &operation);
    with_status(StatusCode::ACCEPTED, &operation)
}

/// What an operation is to do.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    state: String,
}

pub(crate) async fn change(request: Request) -> Answer {
    let Change { state } = request.json()?;
    let verb = match &*state {
        "paused" => OperationVerb::Pause,
        "running" => OperationVerb::Resume,
        "cancelled" => OperationVerb::Cancel,
        _ => return Err(Problem::invalid("state", "an operation can be paused, running or cancelled")),
    };
    seen(&request, &request.names[0]).await?;
    let operation = request.admin().steer_operation(&request.names[0], verb).await?;
    if verb == OperationVerb::Resume {
        carry_out(&request.web, &operation);
    }
    json(&operation)
}

pub(crate) async fn bins(request: Request) -> Answer {
    let bins = request.inspector().bins().await?;
    let items: Vec<_> = bins.iter().filter(|bin| request.who.sees_all_of(&bin.operation.spec.queues)).collect();
    json(&value!({ "items": items }))
}

pub(crate) async fn bin(request: Request) -> Answer {
    let (of, filter, limit) = (&request, &filter(&request)?, request.number("limit", 50, 200)?);
    let id = &seen(of, &request.names[0]).await?.id;
    let bin = to_value(&of.inspector().bin(id).await?)?;
    let read = |cursor: Option<Cursor>, left| async move {
        of.inspector().binned_tasks(id, filter, cursor.as_ref(), left, STRIDE.max(left)).await
    };
    let mut answer = pages(of, filter, limit, read, |task| shown(of, task, Some(IN_LIST))).await?;
    for name in ["operation", "tasks", "until"] {
        answer[name] = bin[name].clone();
    }
    json(&answer)
}

pub(crate) async fn empty(request: Request) -> Answer {
    let id = seen(&request, &request.names[0]).await?.id;
    let deleted = request.admin().empty_bin(&id).await?;
    json(&value!({ "operation": id, "deleted": deleted }))
}

/// Carries an operation out beside everything else, unless this process does so already. What Redis does not let it do is done by
/// whoever looks for such operations next.
fn carry_out(web: &Arc<Inner>, operation: &Operation) {
    let id = operation.id.clone();
    // What keeps to a rate mostly waits, for hours, and others are not to wait for it.
    let takes_a_place = operation.spec.rate.is_none();
    let running = |web: &Inner| web.running.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
    if !running(web) {
        return;
    }
    let web = web.clone();
    tokio::spawn(async move {
        let _place = if takes_a_place { web.operations.acquire().await.ok() } else { None };
        if let Err(error) = web.inspector.run_operation(&id, Pace::Gentle, |_| {}).await {
            warn!(%error, operation = id, "an operation is left for now");
        }
        web.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    });
}

/// Looks for operations that nobody carries out, again and again.
pub(crate) async fn look(web: Arc<Inner>) {
    loop {
        match web.inspector.open_operations().await {
            Ok(open) => open.iter().for_each(|operation| carry_out(&web, operation)),
            Err(error) => warn!(%error, "operations cannot be looked for"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

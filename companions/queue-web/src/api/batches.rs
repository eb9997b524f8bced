//! Batches and workflows.

use axum::http::{HeaderValue, StatusCode, header};
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use queue_admin::{Error, flow, view};
use queue_core::flow::{FlowId, MemberState};
use queue_redis::BatchState;
use queue_redis::flow::{Member, NodeStatus};
use serde::Deserialize;
use serde_json::{Value, json as value};

use super::enqueue::{key, mark};
use super::queues::to_value;
use super::tasks::{self, IN_LIST, shown};
use crate::problem::Problem;
use crate::request::{Answer, Request, json, with_status};

/// Most batches of a tree.
const IN_TREE: usize = 200;
/// Tasks of members that are looked at together.
const AT_ONCE: usize = 8;

/// The batch of the path. Its members may be in any queue, so it does not exist for who is confined to some queues.
fn id(request: &Request) -> Result<FlowId, Problem> {
    let name = &request.names[0];
    let id = name.parse().ok().filter(|_| request.who.sees_all());
    id.ok_or_else(|| Error::BatchNotFound(name.clone()).into())
}

/// One of these by its name.
fn named<T: Copy>(request: &Request, all: &[T], name: fn(T) -> &'static str) -> Result<Option<T>, Problem> {
    let Some(wanted) = request.param("state") else { return Ok(None) };
    let found = all.iter().copied().find(|state| name(*state) == wanted);
    let names: Vec<&str> = all.iter().copied().map(name).collect();
    found.map(Some).ok_or_else(|| Problem::invalid("state", format!("the states are {}", names.join(", "))))
}

/// Where a list goes on: a number.
fn place<T: std::str::FromStr + Default>(request: &Request) -> Result<T, Problem> {
    let Some(cursor) = request.param("cursor") else { return Ok(T::default()) };
    // A longer one no list is, and Redis cannot count it.
    let place = if cursor.len() > 15 { None } else { cursor.parse().ok() };
    place.ok_or_else(|| Error::BadCursor(queue_admin::BadCursor).into())
}

pub(crate) async fn list(request: Request) -> Answer {
    let state = named(&request, &BatchState::ALL, BatchState::as_str)?;
    let (skip, limit) = (place(&request)?, request.number("limit", 50, 200)?);
    let (items, next) = match request.who.sees_all() {
        true => request.inspector().batches(state, request.param("tag"), skip, limit).await?,
        false => (Vec::new(), None),
    };
    json(&value!({ "items": items, "next": next.map(|next| next.to_string()) }))
}

pub(crate) async fn create(request: Request) -> Answer {
    if !request.who.sees_all() {
        return Err(Problem::forbidden(
            "forbidden",
            "the members of a batch may be in any queue, and who may see some queues only makes none",
        )
        .with("permission", "enqueue"));
    }
    let refused = |reason| Problem::new(StatusCode::BAD_REQUEST, "invalid-request", reason);
    let mut flow = flow::parse(&request.body).map_err(refused)?;
    flow.id = flow.id.or(key(&request)?.map(str::to_owned));
    for task in flow.tasks_mut() {
        mark(&request, task);
    }
    let batch = request.admin().create_batch(&request.web.client, flow).await?;
    let (id, existed) = (batch.id().to_string(), batch.existed());
    let status = if existed { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = with_status(status, &value!({ "id": id, "existed": existed }))?;
    response
        .headers_mut()
        .extend(HeaderValue::from_str(&format!("batches/{id}")).map(|place| (header::LOCATION, place)));
    Ok(response)
}

pub(crate) async fn one(request: Request) -> Answer {
    json(&request.inspector().batch(&id(&request)?).await?)
}

/// The states that a member can have that is a task.
fn member_states() -> Vec<MemberState> {
    let no_task = [MemberState::Void, MemberState::Doomed, MemberState::DoomedAttempted];
    MemberState::ALL.into_iter().filter(|state| !no_task.contains(state)).collect()
}

pub(crate) async fn members(request: Request) -> Answer {
    let id = id(&request)?;
    let state = named(&request, &member_states(), MemberState::as_str)?;
    let (from, limit) = (place(&request)?, request.number("limit", 50, 200)?);
    request.inspector().batch_status(&id).await?;
    let (members, next) = request.inspector().flows().members(&id, state, from, limit).await?;
    let looks = stream::iter(members).map(|member| with_task(&request, member)).buffered(AT_ONCE);
    let items: Vec<Result<Value, Problem>> = looks.collect().await;
    let items: Result<Vec<Value>, Problem> = items.into_iter().collect();
    json(&value!({ "items": items?, "next": next.map(|next| next.to_string()) }))
}

/// The member with its task, as lists show it; without one where it is gone, or cannot be read.
async fn with_task(request: &Request, member: Member) -> Result<Value, Problem> {
    let task = match request.inspector().task(&member.queue, &member.id).await {
        Ok(task) => shown(request, task, Some(IN_LIST))?,
        Err(Error::TaskNotFound { .. } | Error::QueueNotFound(_) | Error::Unreadable { .. }) => Value::Null,
        Err(error) => return Err(error.into()),
    };
    let mut item = to_value(&member)?;
    item["task"] = task;
    Ok(item)
}

pub(crate) async fn tree(request: Request) -> Answer {
    let (branches, has_more) = request.inspector().batch_tree(&id(&request)?, IN_TREE).await?;
    json(&value!({ "items": branches, "truncated": has_more }))
}

fn redacted(request: &Request, nodes: Vec<NodeStatus>) -> Vec<NodeStatus> {
    nodes.into_iter().map(|node| request.web.redact.node(node)).collect()
}

pub(crate) async fn nodes(request: Request) -> Answer {
    let id = id(&request)?;
    request.inspector().batch_status(&id).await?;
    let nodes = request.inspector().flows().nodes(&id).await?;
    json(&value!({ "items": redacted(&request, nodes) }))
}

pub(crate) async fn explain(request: Request) -> Answer {
    let id = id(&request)?;
    let mut explained = request.inspector().explain_batch(&id).await?;
    explained.batch.nodes = redacted(&request, explained.batch.nodes);
    explained.tasks = join_all(explained.tasks.into_iter().map(|task| tasks::redacted(&request, task))).await;
    json(&view::BatchExplanation::from(explained))
}

/// Whether it is only to be counted what would be done.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wish {
    dry_run: bool,
}

pub(crate) async fn cancel(request: Request) -> Answer {
    let (id, wish) = (id(&request)?, request.json::<Wish>()?);
    if wish.dry_run {
        let batch = request.inspector().batch(&id).await?;
        let (members, children) = (batch.status.live(), batch.children.len());
        return json(&value!({ "id": id.to_string(), "dry_run": true, "members": members, "children": children }));
    }
    if !request.admin().cancel_batch(&id).await? {
        let told = format!("batch {id} is over, or only its callbacks are left, so there is nothing to cancel");
        return Err(Problem::new(StatusCode::CONFLICT, "batch-over", told));
    }
    json(&value!({ "id": id.to_string(), "cancelled": true }))
}

pub(crate) async fn retry(request: Request) -> Answer {
    let (id, wish) = (id(&request)?, request.json::<Wish>()?);
    if wish.dry_run {
        request.inspector().batch_status(&id).await?;
        let (dead, _) = request.inspector().flows().members(&id, Some(MemberState::Dead), 0, usize::MAX).await?;
        return json(&value!({ "id": id.to_string(), "dry_run": true, "members": dead.len() }));
    }
    let members = request.admin().retry_batch(&id).await?;
    json(&value!({ "id": id.to_string(), "members": members }))
}

/// Which members were done by other means.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Done {
    /// Those with these task ids; all that are dead or removed if it is missing and `all` is set.
    members: Option<Vec<String>>,
    all: bool,
    dry_run: bool,
}

pub(crate) async fn resolve(request: Request) -> Answer {
    let (id, done) = (id(&request)?, request.json::<Done>()?);
    if done.all == done.members.is_some() {
        return Err(Problem::invalid(
            "members",
            "it is either \"all\": true or \"members\", an array of task ids".to_owned(),
        ));
    }
    if done.dry_run {
        request.inspector().batch_status(&id).await?;
        let mut count = 0;
        for state in [MemberState::Dead, MemberState::Removed] {
            let (members, _) = request.inspector().flows().members(&id, Some(state), 0, usize::MAX).await?;
            let is_wanted = |member: &&Member| done.members.as_ref().is_none_or(|wanted| wanted.contains(&member.id));
            count += members.iter().filter(is_wanted).count();
        }
        return json(&value!({ "id": id.to_string(), "dry_run": true, "members": count }));
    }
    let members = request.admin().resolve_batch(&id, done.members.as_deref()).await?;
    json(&value!({ "id": id.to_string(), "members": members }))
}

pub(crate) async fn rerun(request: Request) -> Answer {
    let (id, node) = (id(&request)?, &request.names[1]);
    let done = request.admin().rerun_batch(&id, node).await?;
    json(&value!({ "id": id.to_string(), "node": node, "generation": done.generation, "nodes": done.nodes }))
}

/// What is said with a signal.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Said {
    payload: Value,
    decline: bool,
}

pub(crate) async fn signal(request: Request) -> Answer {
    let (id, node) = (id(&request)?, &request.names[1]);
    let Said { payload, decline } = request.json()?;
    if !request.admin().signal_batch(&id, node, &payload, decline).await? {
        let told = format!("node {node:?} of workflow {id} has ended before; this signal changes nothing");
        return Err(Problem::new(StatusCode::CONFLICT, "signal-late", told));
    }
    let done = if decline { "declined" } else { "given" };
    json(&value!({ "id": id.to_string(), "node": node, "signal": done }))
}

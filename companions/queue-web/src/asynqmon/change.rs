//! What asynqmon can do to queues and tasks.

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use queue_admin::{Filter, Verb};
use serde::Deserialize;
use serde_json::json as value;

use super::list;
use crate::api::tasks::{change_one, searching};
use crate::problem::Problem;
use crate::request::{Answer, Request, json};

/// Most bytes of a body with ids, as in asynqmon.
const MAX_IDS: usize = 1_000_000;

fn done() -> Answer {
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn remove(request: Request) -> Answer {
    request.admin().remove_queue(request.queue()?, false).await?;
    done()
}

pub(super) async fn pause(request: Request, paused: bool) -> Answer {
    request.admin().pause(request.queue()?, paused).await?;
    done()
}

pub(super) async fn one(request: Request, verb: Verb) -> Answer {
    let (id, names) = request.names.split_last().ok_or_else(|| Problem::invalid("task_id", "name a task"))?;
    let list = list(&request, names, Some(verb))?;
    change_one(&request, verb, list.queue, id).await?;
    done()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ids {
    task_ids: Option<Vec<String>>,
}

pub(super) async fn batch(request: Request, verb: Verb) -> Answer {
    let list = list(&request, &request.names, Some(verb))?;
    if request.body.len() > MAX_IDS {
        let told = format!("the ids take more than {MAX_IDS} bytes; send them in several requests");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", told));
    }
    let ids = request.json::<Ids>()?.task_ids.unwrap_or_default();
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    let mut ids = ids.into_iter();
    for id in ids.by_ref() {
        match change_one(&request, verb, list.queue, &id).await {
            Ok(_) => done.push(id),
            Err(problem) => {
                failed.push(id);
                // Redis is away, or refuses; it would be asked in vain for each of the others.
                if problem.is_ours() {
                    break;
                }
            }
        }
    }
    failed.extend(ids);
    json(&match verb {
        Verb::Run => value!({ "pending_ids": done, "error_ids": failed }),
        Verb::Archive => value!({ "archived_ids": done, "error_ids": failed }),
        Verb::Delete => value!({ "deleted_ids": done, "failed_ids": failed }),
        Verb::Cancel | Verb::Interrupt => value!({ "canceled_ids": done, "error_ids": failed }),
    })
}

pub(super) async fn all(request: Request, verb: Verb) -> Answer {
    let list = list(&request, &request.names, Some(verb))?;
    let filter = Filter::new().state(list.state);
    let filter = list.group.into_iter().fold(filter, Filter::group);
    let _searching = searching(&request).await?;
    let changed = request.admin().change_all(verb, list.queue, &filter, |_| {}).await?.changed;
    match verb {
        Verb::Run => json(&value!({ "scheduled": changed })),
        Verb::Archive => json(&value!({ "archived": changed })),
        Verb::Delete => json(&value!({ "deleted": changed })),
        Verb::Cancel | Verb::Interrupt => done(),
    }
}

//! Servers.

use serde_json::json as value;

use super::whole::look;
use crate::problem::Problem;
use crate::request::{Answer, Request, json};

pub(crate) async fn list(request: Request) -> Answer {
    let items = look(&request).await?.servers(&request.web, &request.who);
    json(&value!({ "total": items.len(), "items": items }))
}

pub(crate) async fn one(request: Request) -> Answer {
    let look = look(&request).await?;
    let at = look.server_infos.iter().position(|server| server.id == request.names[0]);
    let server = at.and_then(|at| look.servers(&request.web, &request.who).into_iter().nth(at));
    json(
        &server.ok_or_else(|| {
            Problem::not_found("server-not-found", format!("no server {:?} is alive", request.names[0]))
        })?,
    )
}

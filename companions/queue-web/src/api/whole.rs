//! What is about everything.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse as _;
use queue_admin::{Action, Error, Permission};
use queue_core::event::{Kind, UnknownKind, Wanted};
use queue_core::registry::{EVENTS, honours};
use serde_json::json;

use crate::problem::Problem;
use crate::request::{Answer, Request, json, stream};
use crate::{feed, live};

pub(crate) async fn info(request: Request) -> Answer {
    let web = &request.web;
    json(&json!({
        "name": "queue-web",
        "version": env!("CARGO_PKG_VERSION"),
        "redis": web.redis.target(),
        "read_only": web.read_only,
        "login": !web.auth.is_open(),
        "openapi": "openapi.json",
    }))
}

pub(crate) async fn openapi(request: Request) -> Answer {
    json(&request.web.openapi)
}

/// Who asks, and what this one may do: the pages offer nothing else.
pub(crate) async fn me(request: Request) -> Answer {
    let (who, web) = (&request.who, &request.web);
    let may = |permission: Permission, changes: bool| who.role().allows(permission) && !(changes && web.read_only);
    let permissions: Vec<&str> = Permission::ALL
        .into_iter()
        .filter(|permission| may(*permission, !matches!(permission, Permission::View | Permission::Audit)))
        .map(Permission::as_str)
        .collect();
    let actions = Action::all().iter().filter(|info| may(info.permission, true)).map(|info| {
        json!({ "name": info.name, "word": info.word, "past": info.past, "consequence": info.consequence, "key": info.key })
    });
    json(&json!({
        "name": who.name(),
        "role": who.role(),
        "queues": who.patterns(),
        "read_only": web.read_only,
        "login": !web.auth.is_open(),
        "session": who.session().is_some(),
        "permissions": permissions,
        "actions": actions.collect::<Vec<_>>(),
    }))
}

pub(crate) async fn overview(request: Request) -> Answer {
    let look = look(&request).await?;
    let body = look.json(&request.web, &request.who);
    let tag = format!("\"{:x}\"", md5::compute(&body));
    let known = request.headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let kind = HeaderValue::from_static("application/json");
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, kind)], body).into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

/// What the overview says, or that Redis cannot be asked.
pub(crate) async fn look(request: &Request) -> Result<std::sync::Arc<live::Sample>, Problem> {
    Ok(live::look(&request.web).await?)
}

fn too_many() -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate-limited", "there are too many streams")
        .header(header::RETRY_AFTER, "10")
}

pub(crate) async fn events(request: Request) -> Answer {
    Ok(stream(live::events(request.web.clone(), request.who).ok_or_else(too_many)?))
}

/// What happens to tasks and servers. A browser that comes back says in a header how far it was; `after` is for those that cannot.
pub(crate) async fn feed(request: Request) -> Answer {
    let mut wanted = Wanted::default();
    if let Some(queue) = request.param("queue") {
        if !request.who.sees(queue) {
            return Err(Error::QueueNotFound(queue.to_owned()).into());
        }
        wanted.queues.insert(queue.to_owned());
    }
    wanted.types.extend(request.param("type").map(str::to_owned));
    for kind in request.param("kind").into_iter().flat_map(|kinds| kinds.split(',')) {
        let kind: Kind = kind.parse().map_err(|error: UnknownKind| Problem::invalid("kind", error.to_string()))?;
        wanted.kinds.insert(kind.as_str().to_owned());
    }
    let header = request.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let behind = header.or(request.param("after"));
    // Whether Redis can be asked is told by the stream.
    let look = live::look(&request.web).await.ok();
    let servers = look.iter().flat_map(|look| look.servers_seen(&request.who));
    let unaware = servers.filter(|server| !honours(server.entry.as_ref(), EVENTS));
    let unaware: Vec<String> = unaware.map(|server| format!("{}:{}", server.host, server.pid)).collect();
    let events = feed::events(request.web.clone(), request.who.clone(), wanted, behind, &unaware);
    Ok(stream(events.ok_or_else(too_many)?))
}

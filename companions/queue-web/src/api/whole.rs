//! What is about everything.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse as _;
use queue_admin::{Action, Permission};
use serde_json::json;

use crate::live;
use crate::problem::Problem;
use crate::request::{Answer, Request, json, stream};

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
        "permissions": permissions,
        "actions": actions.collect::<Vec<_>>(),
    }))
}

fn away(error: &str) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "redis-away", error).header(header::RETRY_AFTER, "2")
}

pub(crate) async fn overview(request: Request) -> Answer {
    let look = live::look(&request.web).await.map_err(|error| away(&error))?;
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
    live::look(&request.web).await.map_err(|error| away(&error))
}

pub(crate) async fn events(request: Request) -> Answer {
    let events = live::events(request.web.clone(), request.who);
    let events = events.ok_or_else(|| {
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate-limited", "there are too many streams")
            .header(header::RETRY_AFTER, "10")
    })?;
    Ok(stream(events))
}

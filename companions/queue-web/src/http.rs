//! From a request to its answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, OriginalUri, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::watch;

use crate::Inner;
use crate::asynqmon;
use crate::guard;
use crate::login::{self, Login};
use crate::problem::Problem;
use crate::request::{Answer, Request, query};
use crate::route::{find, table};
use crate::session::Session;

/// Most bytes of a body. One of many tasks is as large as one of one task may be.
const MAX_BODY: usize = 8 * 1024 * 1024;
/// How long a body may take to come.
const BODY_LIMIT: Duration = Duration::from_secs(30);
/// How long an answer may take, waiting for a task aside.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long a health check waits for Redis.
const HEALTH_LIMIT: Duration = Duration::from_secs(2);

pub(crate) async fn answer(State(web): State<Arc<Inner>>, request: axum::extract::Request) -> Response {
    let (mut parts, body) = request.into_parts();
    if let Some(address) = forwarded(&parts.headers, web.proxies) {
        parts.extensions.insert(ConnectInfo(SocketAddr::new(address, 0)));
    }
    let is_head = parts.method == Method::HEAD;
    let mut response = match answer_parts(&web, &parts, body).await {
        Ok(response) => response,
        Err(problem) if matches!(area(parts.uri.path()), Area::Asynqmon(_)) => problem.in_words(),
        Err(problem) => problem.into_response(),
    };
    guard::secure(response.headers_mut());
    if is_head {
        *response.body_mut() = Body::empty();
    }
    response
}

/// By whom the first of so many proxies was asked: what those before it say, anybody can have sent.
fn forwarded(headers: &HeaderMap, proxies: usize) -> Option<IpAddr> {
    let lines: Vec<&[u8]> = headers.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes).collect();
    let mut from_last = lines.iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b','));
    let asked_by = std::str::from_utf8(from_last.nth(proxies.checked_sub(1)?)?).ok()?.trim();
    let with_port = || asked_by.parse::<SocketAddr>().map(|address| address.ip());
    asked_by.parse().or_else(|_| with_port()).ok()
}

async fn answer_parts(web: &Arc<Inner>, parts: &Parts, body: Body) -> Answer {
    let path = parts.uri.path();
    if path == "/healthz" {
        return Ok(health(web).await);
    }
    if web.auth.is_open() {
        guard::check_host(parts, &web.hosts)?;
    }
    let area = area(path);
    if let (Some(login), Area::Pages) = (web.auth.login(), &area) {
        return before_login(web, login, parts, body).await;
    }
    let Some(who) = web.auth.identify(parts) else { return Err(unauthenticated(web.auth.login().is_some())) };
    guard::check_origin(parts, &web.hosts)?;
    let (routes, below) = match area {
        Area::Ours(below) => (table(), below),
        Area::Asynqmon(below) => (asynqmon::table(), below),
        Area::Pages => return page(web, parts),
    };
    let (route, names) = find(routes, &parts.method, below).map_err(|others| no_route(&others))?;
    if route.changes() && web.read_only {
        return Err(Problem::forbidden("read-only", "this dashboard changes nothing (--read-only)"));
    }
    let permission = route.permission();
    if !who.role().allows(permission) {
        let told =
            format!("{} is a {}, who has no permission to {}", who.name(), who.role().as_str(), permission.as_str());
        return Err(Problem::forbidden("forbidden", told).with("permission", permission.as_str()));
    }
    let query = query(parts.uri.query().unwrap_or_default())?;
    // asynqmon does not look at what it does not know.
    if matches!(area, Area::Ours(_))
        && let Some(unknown) = query.keys().find(|name| !route.query.contains(&name.as_str()))
    {
        return Err(Problem::invalid(unknown, format!("there is no parameter {unknown:?} here")));
    }
    // What only looks has no use for a body, and anybody who may look could have us hold many large ones.
    let body = match parts.method {
        Method::GET | Method::HEAD => Bytes::new(),
        _ => read(body, MAX_BODY).await?,
    };
    let address =
        parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip().to_string());
    // asynqmon has no such parameter.
    let waits = matches!(area, Area::Ours(_)) && query.contains_key("wait");
    let (_here, asked) = watch::channel(());
    let session = who.session().cloned();
    let request = Request { web: web.clone(), who, names, query, headers: parts.headers.clone(), body, address, asked };
    let work = (route.work)(request);
    if waits {
        return work.await;
    }
    let late = |_| Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "Redis took longer than 30 s");
    if route.changes() {
        // Goes on to its end, and to its line in the audit, also when the caller has gone.
        let done = tokio::spawn(work).await;
        return done.unwrap_or_else(|error| {
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()))
        });
    }
    let answer = tokio::time::timeout(ANSWER_LIMIT, work).await.map_err(late)?;
    Ok(while_logged_in(answer?, session))
}

async fn read(body: Body, most: usize) -> Result<Bytes, Problem> {
    let body = tokio::time::timeout(BODY_LIMIT, to_bytes(body, most)).await;
    let body =
        body.map_err(|_| Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body did not come in time"))?;
    body.map_err(|_| {
        let told = format!("the body has more than {most} bytes, or broke off");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", told)
    })
}

/// What is answered to everybody where people log in on a page: the files of the pages, in which there is nothing, and the login.
async fn before_login(web: &Inner, login: &Arc<Login>, parts: &Parts, body: Body) -> Answer {
    match (&parts.method, parts.uri.path()) {
        (&Method::POST, "/login") => {
            guard::check_origin(parts, &web.hosts)?;
            login.enter(parts, &read(body, login::MAX_BODY).await?).await
        }
        (&Method::POST, "/logout") => {
            guard::check_origin(parts, &web.hosts)?;
            Ok(login.leave(&parts.headers))
        }
        (_, "/login" | "/logout") => Err(no_route(&[Method::POST])),
        _ => page(web, parts),
    }
}

/// A stream ends with the session in which it was asked for, before anything more of it is told.
fn while_logged_in(answer: Response, session: Option<Arc<Session>>) -> Response {
    let is_stream = answer.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    match session {
        Some(session) if is_stream => answer.map(|body| {
            let events = body.into_data_stream();
            Body::from_stream(events.take_while(move |_| std::future::ready(session.goes_on())))
        }),
        _ => answer,
    }
}

/// Whose routes a path leads to, with what is below their root.
enum Area<'a> {
    Ours(&'a str),
    Asynqmon(&'a str),
    Pages,
}

fn area(path: &str) -> Area<'_> {
    match (below(path, "/api/v1"), below(path, "/api")) {
        (Some(rest), _) => Area::Ours(rest),
        (None, Some(rest)) => Area::Asynqmon(rest),
        (None, None) => Area::Pages,
    }
}

fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where people log in on a page, browsers are not to ask for a name and a password by themselves; `login` has the page do so.
fn unauthenticated(has_page: bool) -> Problem {
    let told = |detail| Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail);
    if has_page {
        let problem = told("log in, or name a token").with("login", true);
        return problem.header(header::WWW_AUTHENTICATE, "Bearer realm=\"queue\"");
    }
    told("name a token: as Bearer, or as the password of its name")
        .header(header::WWW_AUTHENTICATE, "Basic realm=\"queue\", charset=\"UTF-8\"")
}

fn no_route(others: &[Method]) -> Problem {
    if others.is_empty() {
        return Problem::not_found("no-route", "there is nothing at this address");
    }
    let others: Vec<&str> = others.iter().map(Method::as_str).collect();
    let told = format!("only {} is possible here", others.join(" and "));
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", told).header(header::ALLOW, &others.join(", "))
}

async fn health(web: &Inner) -> Response {
    let (status, told) = match tokio::time::timeout(HEALTH_LIMIT, web.redis.ping()).await {
        Ok(Ok(())) => (StatusCode::OK, "ok\n"),
        // Why not is for those who log in.
        _ => (StatusCode::SERVICE_UNAVAILABLE, "Redis does not answer\n"),
    };
    (status, told).into_response()
}

/// A page, or a file of one. All pages are one document; what is shown follows from the address.
fn page(web: &Inner, parts: &Parts) -> Answer {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(no_route(&[Method::GET]));
    }
    let path = parts.uri.path();
    // Addresses in a page are relative, so that it works under any path, which then has to end with a slash.
    let original = parts.extensions.get::<OriginalUri>().map_or(path, |OriginalUri(uri)| uri.path());
    if path == "/" && !original.ends_with('/') {
        let last = original.rsplit('/').next().unwrap_or_default();
        let target = HeaderValue::from_str(&format!("./{last}/")).map_err(|_| no_route(&[]))?;
        return Ok((StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, target)]).into_response());
    }
    web.assets.answer(path, &parts.headers).ok_or_else(|| no_route(&[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_our_proxies_have_appended_is_believed() {
        let from = |lines: &[&str], proxies| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-forwarded-for", HeaderValue::from_bytes(line.as_bytes()).unwrap());
            }
            forwarded(&headers, proxies).map(|address| address.to_string())
        };
        let said = &["né, 6.6.6.6, 10.0.0.1", "203.0.113.7,10.0.0.2:4711"];
        assert_eq!(from(said, 0), None);
        assert_eq!(from(said, 1).as_deref(), Some("10.0.0.2"));
        assert_eq!(from(said, 2).as_deref(), Some("203.0.113.7"));
        assert_eq!(from(said, 5), None, "fewer proxies than there should be");
        assert_eq!(from(&["[2001:db8::1]:443"], 1).as_deref(), Some("2001:db8::1"));
        assert_eq!(from(&["2001:db8::1"], 1).as_deref(), Some("2001:db8::1"));
        assert_eq!(from(&["unknown"], 1), None);
    }
}

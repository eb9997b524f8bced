//! A request as the routes see it, and their answers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::Stream;
use percent_encoding::percent_decode_str;
use queue_admin::{Actor, Admin, Error, Inspector};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

use crate::Inner;
use crate::auth::Identity;
use crate::guard::SANDBOX;
use crate::problem::Problem;

/// A request whose sender is known.
pub(crate) struct Request {
    pub(crate) web: Arc<Inner>,
    pub(crate) who: Identity,
    /// The parts of the path that stand for names, decoded.
    pub(crate) names: Vec<String>,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Address of the sender, where it is known.
    pub(crate) address: Option<String>,
    /// Its other end is gone when the sender is.
    pub(crate) asked: watch::Receiver<()>,
}

pub(crate) type Answer = Result<Response, Problem>;

impl Request {
    pub(crate) fn inspector(&self) -> &Inspector {
        &self.web.inspector
    }

    /// Changes in the name of the sender.
    pub(crate) fn admin(&self) -> Admin {
        let actor = Actor {
            name: self.who.name().to_owned(),
            role: self.who.role(),
            via: "web",
            address: self.address.clone(),
        };
        Admin::new(self.web.inspector.clone(), actor)
    }

    /// Does what only the sender wants to know, until that one has gone. A change is carried on to its end in any case.
    pub(crate) async fn while_asked<T>(&self, work: impl Future<Output = T>) -> Result<T, Problem> {
        let mut asked = self.asked.clone();
        tokio::select! {
            done = work => Ok(done),
            _ = asked.changed() => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", "nobody waits for it any more")),
        }
    }

    /// The queue of the path. One that the sender may not see does not exist.
    pub(crate) fn queue(&self) -> Result<&str, Problem> {
        let queue = &self.names[0];
        if self.who.sees(queue) { Ok(queue) } else { Err(Error::QueueNotFound(queue.clone()).into()) }
    }

    /// The queues that the sender may see.
    pub(crate) async fn queues_seen(&self) -> Result<Vec<String>, Error> {
        let queues = self.inspector().queues().await?;
        Ok(queues.into_iter().filter(|queue| self.who.sees(queue)).collect())
    }

    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A whole number between 1 and `most`.
    pub(crate) fn number(&self, name: &str, default: usize, most: usize) -> Result<usize, Problem> {
        let Some(text) = self.param(name) else { return Ok(default) };
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| Problem::invalid(name, format!("{name} is a number from 1 to {most}")))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.query.get(name).map(String::as_str) {
            None | Some("false" | "0") => Ok(false),
            Some("" | "true" | "1") => Ok(true),
            Some(_) => Err(Problem::invalid(name, format!("{name} is true or false"))),
        }
    }

    pub(crate) fn duration(&self, name: &str) -> Result<Option<Duration>, Problem> {
        let duration = self.param(name).map(queue_core::duration::parse).transpose();
        duration.map_err(|error| Problem::invalid(name, error.to_string()))
    }

    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let body = if self.body.is_empty() { &b"{}"[..] } else { &self.body };
        queue_admin::json::read(body).map_err(|wrong| {
            let said = wrong.of("the body");
            match &wrong.field {
                Some(field) => Problem::invalid(field, said),
                None => Problem::new(StatusCode::BAD_REQUEST, "invalid-request", said),
            }
        })
    }
}

/// A JSON answer.
pub(crate) fn json(value: &impl Serialize) -> Answer {
    with_status(StatusCode::OK, value)
}

pub(crate) fn with_status(status: StatusCode, value: &impl Serialize) -> Answer {
    let text = serde_json::to_string(value)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()))?;
    Ok((status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response())
}

/// The tags in a header, without their quotes; `*` is one. That one is weak is overlooked: a proxy that compresses makes them so.
pub(crate) fn tags(request: &Request, name: HeaderName) -> impl Iterator<Item = &str> {
    let text = request.headers.get(name).and_then(|tags| tags.to_str().ok()).unwrap_or_default();
    let tags = text.split(',').map(|tag| tag.trim().trim_start_matches("W/").trim_matches('"'));
    tags.filter(|tag| !tag.is_empty())
}

/// The same with an ETag of the version and of what is told of it, but for what changes with the time alone: 304 without a body
/// where the sender has it already.
pub(crate) fn tagged(request: &Request, version: &str, value: &Value) -> Answer {
    let mut told = value.clone();
    if let Some(fields) = told.as_object_mut().filter(|fields| fields.get("state") == Some(&"pending".into())) {
        fields.remove("next_process_at");
    }
    let tag = format!("{version}.{:x}", md5::compute(told.to_string()));
    let mut response = if tags(request, header::IF_NONE_MATCH).any(|known| known == "*" || known == tag) {
        (StatusCode::NOT_MODIFIED, Body::empty()).into_response()
    } else {
        json(value)?
    };
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{tag}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

/// Bytes that somebody else has written: to be stored, never to be shown by a browser.
pub(crate) fn download(name: &'static str, bytes: Bytes) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, name),
        (HeaderName::from_static("content-security-policy"), SANDBOX),
    ];
    (headers, bytes).into_response()
}

/// A stream of events.
pub(crate) fn stream(events: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        // A proxy would keep events until it has many.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(events)).into_response()
}

/// A name in a path: percent-encoded, or `~` and base64url of its bytes. The latter is for names that proxies change: those that
/// begin with `~`, are `.` or `..`, or hold `/`, `\`, `%` or control characters.
pub(crate) fn name(segment: &str) -> Option<String> {
    if let Some(encoded) = segment.strip_prefix('~') {
        return String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok();
    }
    percent_decode_str(segment).decode_utf8().ok().map(|name| name.into_owned()).filter(|name| !name.is_empty())
}

/// Most bytes of a query that are read.
const MAX_QUERY: usize = 16_384;

/// The parameters of a query; of several of one name, the last.
pub(crate) fn query(text: &str) -> Result<BTreeMap<String, String>, Problem> {
    let bad = || Problem::new(StatusCode::BAD_REQUEST, "invalid-request", "the query is not UTF-8, or too long");
    if text.len() > MAX_QUERY {
        return Err(bad());
    }
    let decode = |part: &str| {
        let part = part.replace('+', " ");
        percent_decode_str(&part).decode_utf8().map(|part| part.into_owned()).map_err(|_| bad())
    };
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_can_stand_in_a_path() {
        for text in ["mail", "a/b", "..", "~x", "é%", "a b\n", "a?b#c", "\u{202e}"] {
            let encoded = format!("~{}", URL_SAFE_NO_PAD.encode(text));
            assert_eq!(name(&encoded).as_deref(), Some(text));
            let percent: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            assert_eq!(name(&percent).as_deref(), Some(text));
        }
        for bad in ["", "~!", "%ff", "~_w"] {
            assert_eq!(name(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_query_is_read_with_its_escapes() {
        let read = query("q=type%3Aa+b&state=retry&x&state=pending").unwrap();
        let expected = [("q", "type:a b"), ("state", "pending"), ("x", "")];
        assert_eq!(read, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert!(query("a=%ff").is_err() && query(&"x".repeat(MAX_QUERY + 1)).is_err());
    }
}

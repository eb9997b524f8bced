//! Works tasks by sending them to a service.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use queue_admin::payload::{harmless, shorten};
use queue_core::limits::MAX_RESULT_BYTES;
use queue_core::{Clock as _, SystemClock};
use queue_worker::{Failure, Job};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::io::StreamReader;
use tracing::info;

use super::header::Headers;
use super::notes::Notes;
use super::{environment, retry_after};
use crate::error::CliError;

/// How long making a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How much of the body of a refusal is read for its first line.
const MAX_COMPLAINT: usize = 4 * 1024;

/// How long a refusal is waited for to say why.
const COMPLAINT: Duration = Duration::from_secs(2);

/// The type of an answer that is notes, line by line.
const LINES: &str = "application/x-ndjson";

/// The longest such line: that with the result.
const LONGEST: u64 = MAX_RESULT_BYTES as u64 + 128 * 1024;

/// The last line, which means what an answer with this status does.
#[derive(Deserialize)]
struct End {
    /// A number, or one as a text.
    status: Value,
    error: Option<Value>,
    /// In seconds.
    retry_after: Option<Value>,
    result: Option<Box<RawValue>>,
}

/// Where tasks are sent.
#[derive(Debug, Clone)]
pub(super) struct Target(Url);

impl Target {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        // The URL is not repeated: it may hold a password.
        let url =
            Url::parse(text).map_err(|error| format!("this is no URL: {error}; write it like https://host/path"))?;
        match url.scheme() {
            "http" | "https" => Ok(Self(url)),
            scheme => Err(format!("the URL begins with {scheme}:; only http:// and https:// are known")),
        }
    }

    pub(super) fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }
}

/// Sends requests; clones share the connections.
#[derive(Debug, Clone)]
pub(super) struct Http {
    client: reqwest::Client,
    headers: Arc<Headers>,
    /// Whether services can tell how far they are, and where to go on.
    notes: bool,
}

impl Http {
    /// Without `tls`, the certificates of the system are not looked for, and a machine that has none can
    /// still speak plain HTTP. A proxy from the environment then serves for plain HTTP alone.
    pub(super) fn new(tls: bool, headers: Headers, notes: bool) -> Result<Self, CliError> {
        // Somebody else (the Redis connection) may have chosen it already, which serves us as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder()
            // Else a host that drops packets holds its slot for minutes. The answer may take as long as the task's
            // timeout allows.
            .connect_timeout(CONNECT)
            .user_agent(concat!("queuectl/", env!("CARGO_PKG_VERSION")))
            // To follow a redirect would turn the POST into a GET, and send the task to who knows whom.
            .redirect(reqwest::redirect::Policy::none());
        let builder = if tls { builder } else { builder.tls_certs_only([]) };
        let client =
            builder.build().map_err(|error| CliError::failed(format!("cannot speak HTTP: {}", causes(&error))))?;
        Ok(Self { client, headers: Arc::new(headers), notes })
    }

    /// Works one task.
    pub(super) async fn run(&self, target: &Target, job: &Job) -> Result<Bytes, Failure> {
        let started = Instant::now();
        let answer = async {
            let mut headers = headers(job)?;
            if self.notes {
                offer_notes(&mut headers, job).await?;
            }
            self.headers.apply(job.task_type(), &mut headers);
            let request = self.client.post(target.0.clone()).headers(headers).body(job.payload().clone());
            match request.send().await.map_err(failed)? {
                answer if self.notes && are_notes(&answer) => follow(answer, job).await,
                answer => judge(answer, job).await,
            }
        };
        let result = tokio::select! {
            answer = answer => answer?,
            // Dropping the request closes its connection, which is how a service learns of it.
            () = job.cancellation().cancelled() => return Err("the request was given up".into()),
        };
        let (id, task_type, queue, attempt) = (job.id(), job.task_type(), job.queue(), job.attempt());
        info!(task = id, task_type, queue, attempt, took = ?started.elapsed(), "task done");
        Ok(result)
    }
}

fn headers(job: &Job) -> Result<HeaderMap, Failure> {
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(job.payload()).is_ok();
    let content_type = if is_json { "application/json" } else { "application/octet-stream" };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    for (name, value) in environment::describe(job) {
        describe(&mut headers, name, &value)?;
    }
    Ok(headers)
}

fn describe(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), Failure> {
    let name = format!("x-task-{}", name.to_ascii_lowercase().replace('_', "-"));
    match (HeaderName::try_from(&name), HeaderValue::from_bytes(value.as_bytes())) {
        (Ok(name), Ok(value)) => drop(headers.insert(name, value)),
        _ => return Err(Failure::archive(format!("the value of {name} cannot stand in an HTTP header"))),
    }
    Ok(())
}

/// Says that the answer may be notes, and where an earlier attempt has stopped.
async fn offer_notes(headers: &mut HeaderMap, job: &Job) -> Result<(), Failure> {
    headers.insert(ACCEPT, HeaderValue::from_static("application/x-ndjson, */*;q=0.5"));
    if let Some(cursor) = job.cursor::<Value>().await? {
        describe(headers, "CURSOR", &environment::ascii_json(&cursor))?;
    }
    Ok(())
}

fn are_notes(answer: &Response) -> bool {
    let content_type = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    answer.status().is_success() && media_type.eq_ignore_ascii_case(LINES)
}

/// Does what the lines of an answer say. The last one tells the end: an answer that only stops may be half of one.
async fn follow(answer: Response, job: &Job) -> Result<Bytes, Failure> {
    let chunks = std::pin::pin!(futures_util::stream::try_unfold(answer, async |mut answer| {
        let chunk = answer.chunk().await.map_err(|error| io::Error::other(causes(&error.without_url())))?;
        Ok::<_, io::Error>(chunk.map(|chunk| (chunk, answer)))
    }));
    let mut notes = Notes::new(StreamReader::new(chunks), LONGEST, "of the service's answer");
    let End { status, error, retry_after, result } = loop {
        match notes.next(job).await.map_err(|error| Failure::from(error.to_string()))? {
            Some(line) => {
                if let Ok(end) = serde_json::from_slice(&line) {
                    break end;
                }
            }
            None if notes.cut => return Err(too_long()),
            None => return Err("the service's answer ended without a line with a status".into()),
        }
    };
    let number = status.as_u64().or_else(|| status.as_str()?.trim().parse().ok());
    let known = number.and_then(|number| StatusCode::from_u16(number.try_into().ok()?).ok());
    let status = known.ok_or_else(|| format!("the service told the status {}", shorten(&status.to_string(), 100)))?;
    if status.is_success() {
        return kept(job, result.map(|result| Bytes::from(String::from(Box::<str>::from(result)))).unwrap_or_default());
    }
    let seconds = retry_after.and_then(|told| told.as_f64().or_else(|| told.as_str()?.trim().parse().ok()));
    let seconds = seconds.map(|seconds| (seconds.max(0.0).ceil() as u64).to_string());
    let delay = seconds.and_then(|seconds| retry_after::parse(&seconds, SystemTime::from(SystemClock.now())));
    let error = error.map(|error| error.as_str().map_or_else(|| error.to_string(), str::to_owned));
    let reason = error.map(|error| format!(": {}", shorten(error.trim(), 1_000))).unwrap_or_default();
    Err(refused(status, delay, format!("HTTP {status}{reason}")))
}

/// What an answer means for the task.
async fn judge(response: Response, job: &Job) -> Result<Bytes, Failure> {
    let status = response.status();
    if status.is_success() {
        // One byte more shows that there is more.
        return kept(job, body(response, MAX_RESULT_BYTES + 1).await.map_err(failed)?);
    }
    let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    // Whoever says when to come again has not tried the task. A redirect that says it is one all the same.
    let delay = header(RETRY_AFTER)
        .filter(|_| !status.is_redirection())
        .and_then(|value| retry_after::parse(value, SystemTime::from(SystemClock.now())));
    let mut message = format!("HTTP {status}");
    if let Some(elsewhere) = header(LOCATION).filter(|_| status.is_redirection()) {
        message.push_str(&format!("; redirects are not followed, give the URL itself: {}", harmless(elsewhere)));
    }
    // The reason is worth a look, and not worth losing the status for.
    let body = tokio::time::timeout(COMPLAINT, body(response, MAX_COMPLAINT)).await;
    let body = body.ok().and_then(Result::ok).unwrap_or_default();
    if let Some(line) = String::from_utf8_lossy(&body).lines().find(|line| !line.trim().is_empty()) {
        message.push_str(&format!(": {}", shorten(line.trim(), 1_000)));
    }
    Err(refused(status, delay, message))
}

/// The result of a task, unless it is too long to be kept.
fn kept(job: &Job, result: Bytes) -> Result<Bytes, Failure> {
    match result.len() <= MAX_RESULT_BYTES {
        true => Ok(result),
        false if job.keeps_result() => Err(too_long()),
        false => Ok(Bytes::new()),
    }
}

fn too_long() -> Failure {
    Failure::archive(format!(
        "the service succeeded, but its answer is longer than {} MiB; let it store that elsewhere and answer where",
        MAX_RESULT_BYTES / (1024 * 1024)
    ))
}

fn refused(status: StatusCode, delay: Option<Duration>, message: String) -> Failure {
    match (status, delay) {
        (_, Some(delay)) => Failure::snooze(delay, message),
        (StatusCode::TOO_MANY_REQUESTS, None) => Failure::Snooze(None, message.into()),
        (StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY, None) => message.into(),
        (status, None) if status.is_client_error() => Failure::archive(message),
        _ => message.into(),
    }
}

/// The body, up to so many bytes.
async fn body(mut response: Response, limit: usize) -> reqwest::Result<Bytes> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let keep = chunk.len().min(limit - body.len());
        body.extend_from_slice(&chunk[..keep]);
        if keep < chunk.len() {
            break;
        }
    }
    Ok(body.into())
}

fn failed(error: reqwest::Error) -> Failure {
    // Without the URL, which may hold a password and would end up in Redis.
    causes(&error.without_url()).into()
}

/// The error and its causes; reqwest's own text says no more than that sending failed.
pub(crate) fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_are_targets_and_passwords_are_not_repeated() {
        assert!(Target::parse("http://127.0.0.1:80/x?y=1").is_ok());
        assert!(Target::parse("https://user:secret@host/").is_ok_and(|target| target.is_https()));
        for text in ["", "host/path", "ftp://u:secret@host", "http://", "http://u:secret@[bad"] {
            let reason = Target::parse(text).unwrap_err();
            assert!(!reason.contains("secret"), "{reason}");
        }
    }
}

//! Errors as RFC 9457 writes them.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use queue_admin::Error;
use queue_redis::EnqueueError;
use serde_json::{Map, Value, json};

/// Why a request was not answered as it was meant.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    more: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// How long a caller should wait for Redis, or for a connection to it.
const RETRY_AFTER_SECS: &str = "2";

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), more: Map::new(), headers: Vec::new() }
    }

    pub(crate) fn invalid(field: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-value", detail).with("field", field)
    }

    pub(crate) fn forbidden(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, detail)
    }

    pub(crate) fn not_found(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn header(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.extend(HeaderValue::from_str(value).map(|value| (name, value)));
        self
    }

    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Whether it is not the request that is at fault.
    pub(crate) fn is_ours(&self) -> bool {
        self.status.is_server_error()
    }

    /// As asynqmon tells of errors: a line of text.
    pub(crate) fn in_words(self) -> Response {
        let status = if self.code == "queue-not-empty" { StatusCode::BAD_REQUEST } else { self.status };
        let mut response = (status, format!("{}\n", self.detail)).into_response();
        response.headers_mut().extend(self.headers);
        response
    }

    fn of_redis(error: &queue_redis::Error) -> Self {
        let later = |code| {
            let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, error.to_string());
            problem.header(header::RETRY_AFTER, RETRY_AFTER_SECS)
        };
        match error {
            // Redis may be well: it is this process that asks too much at once.
            queue_redis::Error::PoolInUse { .. } => later("busy"),
            error if error.is_transient() => later("redis-away"),
            error => Self::new(StatusCode::BAD_GATEWAY, "redis-refused", error.to_string()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.code.replace('-', " ");
        let mut body = json!({
            "type": format!("urn:queue:problem:{}", self.code),
            "title": title,
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        if let Value::Object(fields) = &mut body {
            fields.extend(self.more);
        }
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"))];
        let mut response = (self.status, kind, body.to_string()).into_response();
        response.headers_mut().extend(self.headers);
        response
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        use StatusCode as S;
        let detail = error.to_string();
        let told = |status, code| Self::new(status, code, detail.clone());
        match &error {
            Error::Redis(error) => Self::of_redis(error),
            Error::Unaudited(cause) if cause.is_transient() => Self::of_redis(cause),
            Error::Unaudited(_) => told(S::BAD_GATEWAY, "audit-refused"),
            Error::BadCursor(_) => told(S::BAD_REQUEST, "invalid-cursor"),
            Error::Forbidden { permission } => told(S::FORBIDDEN, "forbidden").with("permission", permission.as_str()),
            Error::BadName(_) => told(S::BAD_REQUEST, "invalid-value"),
            Error::Limit(_) => told(S::BAD_REQUEST, "invalid-limit"),
            Error::LimitsUnreadable { queue, .. } => {
                told(S::CONFLICT, "limits-unreadable").with("queue", queue.as_str())
            }
            Error::LimitNotFound { .. } => told(S::NOT_FOUND, "limit-not-found"),
            Error::LimitsContended(_) => told(S::CONFLICT, "changed-meanwhile"),
            Error::QueueNotFound(_) => told(S::NOT_FOUND, "queue-not-found"),
            Error::BatchNotFound(_) => told(S::NOT_FOUND, "batch-not-found"),
            Error::FlowRefused(_) => told(S::BAD_REQUEST, "invalid-request"),
            Error::BatchClosed(_) => told(S::CONFLICT, "batch-closed"),
            Error::SignalRefused(_) => told(S::CONFLICT, "signal-refused"),
            Error::RerunRefused(_) => told(S::CONFLICT, "rerun-refused"),
            Error::OperationNotFound(_) => told(S::NOT_FOUND, "operation-not-found"),
            Error::BinNotFound(_) => told(S::NOT_FOUND, "bin-not-found"),
            Error::OperationOver { state, .. } => told(S::CONFLICT, "wrong-state").with("state", *state),
            Error::OperationLive(_) => told(S::CONFLICT, "operation-live"),
            Error::OperationInvalid(_) => told(S::BAD_REQUEST, "invalid-value"),
            Error::KeyReused => told(S::UNPROCESSABLE_ENTITY, "key-reused"),
            Error::EntryNotFound(_) => told(S::NOT_FOUND, "entry-not-found"),
            Error::TaskNotFound { .. } => told(S::NOT_FOUND, "task-not-found"),
            Error::QueueNotEmpty { tasks, .. } => told(S::CONFLICT, "queue-not-empty").with("tasks", *tasks),
            Error::QueueActive { active, .. } => told(S::CONFLICT, "queue-active").with("active", *active),
            Error::TaskActive { .. } => told(S::CONFLICT, "wrong-state").with("state", "active"),
            Error::AlreadyPending { .. } => told(S::CONFLICT, "wrong-state").with("state", "pending"),
            Error::AlreadyArchived { .. } => told(S::CONFLICT, "wrong-state").with("state", "archived"),
            Error::TaskCompleted { .. } => told(S::CONFLICT, "wrong-state").with("state", "completed"),
            Error::TaskMisplaced { state, .. } | Error::StateRefused { state, .. } => {
                told(S::CONFLICT, "wrong-state").with("state", state.as_str())
            }
            Error::PayloadLocked { holder, .. } => told(S::CONFLICT, "duplicate-task").with("holder", holder.as_str()),
            Error::TaskChanged { .. } => told(S::CONFLICT, "changed-meanwhile"),
            Error::VersionChanged { .. } => told(S::PRECONDITION_FAILED, "changed-meanwhile"),
            Error::RunRefused { .. } => told(S::CONFLICT, "run-refused"),
            Error::ArchiveFull { archived, .. } => told(S::CONFLICT, "archive-full").with("archived", *archived),
            Error::Unreadable { .. } => told(S::CONFLICT, "unreadable"),
            _ => told(S::INTERNAL_SERVER_ERROR, "internal"),
        }
    }
}

impl From<queue_redis::Error> for Problem {
    fn from(error: queue_redis::Error) -> Self {
        Self::of_redis(&error)
    }
}

impl From<EnqueueError> for Problem {
    fn from(error: EnqueueError) -> Self {
        use StatusCode as S;
        let detail = error.to_string();
        match &error {
            EnqueueError::Redis(error) => Self::of_redis(error),
            EnqueueError::DuplicateTask { holder, .. } => {
                Self::new(S::CONFLICT, "duplicate-task", detail).with("holder", holder.clone())
            }
            EnqueueError::TaskIdConflict { id, .. } => {
                Self::new(S::CONFLICT, "task-id-taken", detail).with("existing", id.as_str())
            }
            EnqueueError::TooLarge { .. } => Self::new(S::PAYLOAD_TOO_LARGE, "too-large", detail),
            _ => Self::new(S::BAD_REQUEST, "invalid-value", detail),
        }
    }
}

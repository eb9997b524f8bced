//! What is done with every task on its way into a queue.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use queue_core::EncodeError;
use queue_core::keys::QueueKeys;
use queue_core::options::Composed;
use tracing::Span;

/// A task on its way into a queue: all is decided but for its headers and its payload.
#[derive(Debug)]
pub struct Outgoing<'a> {
    composed: &'a mut Composed,
    refusal: Option<EncodeError>,
}

impl Outgoing<'_> {
    /// Task id.
    pub fn id(&self) -> &str {
        &self.composed.message.id
    }

    /// Task type.
    pub fn task_type(&self) -> &str {
        &self.composed.message.r#type
    }

    /// Queue name.
    pub fn queue(&self) -> &str {
        &self.composed.message.queue
    }

    /// Payload bytes.
    pub fn payload(&self) -> &[u8] {
        &self.composed.message.payload
    }

    /// The headers so far.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.composed.message.headers
    }

    /// Sets a header, instead of the one of this name if there is one.
    pub fn set_header(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.composed.message.headers.insert(name.into(), value.into());
    }

    /// Removes a header.
    pub fn remove_header(&mut self, name: &str) {
        self.composed.message.headers.remove(name);
    }

    /// Sets the payload, for those who pack or encrypt it. The uniqueness lock of the task, if it has one, stays
    /// that of the payload before.
    pub fn set_payload(&mut self, payload: impl Into<Bytes>) {
        self.composed.message.payload = payload.into();
    }

    /// Names the uniqueness lock of the task, if it has one, after these bytes instead of its payload. Tasks of
    /// the same type in the same queue with the same bytes exclude each other. A lock that has a
    /// [key of its own](queue_core::TaskOptions::unique_key) keeps its name.
    pub fn set_lock_payload(&mut self, bytes: &[u8]) {
        let message = &mut self.composed.message;
        if !message.unique_key.is_empty() && !self.composed.has_own_lock {
            message.unique_key = QueueKeys::new(&message.queue).unique(&message.r#type, Some(bytes));
        }
    }

    /// Refuses the task: it is not sent, and whoever enqueues it gets this error. The first refusal counts.
    pub fn refuse(&mut self, error: EncodeError) {
        self.refusal.get_or_insert(error);
    }
}

/// Something to do with every task that a client enqueues; see [`Client::intercept`](super::Client::intercept).
///
/// A closure that takes `&mut Outgoing` is one.
pub trait Interceptor: Send + Sync {
    /// A span for the time in which the task is enqueued. Defaults to none. If it has the fields
    /// `otel.status_code` and `otel.status_description`, they are filled in when that fails.
    fn span(&self, _task: &Outgoing<'_>) -> Span {
        Span::none()
    }

    /// Called inside the span, before the task is sent. What it [refuses](Outgoing::refuse) is not.
    fn intercept(&self, task: &mut Outgoing<'_>);
}

impl<F: Fn(&mut Outgoing<'_>) + Send + Sync> Interceptor for F {
    fn intercept(&self, task: &mut Outgoing<'_>) {
        self(task);
    }
}

/// All that a client does with its tasks.
#[derive(Clone, Default)]
pub(super) struct Interceptors(Arc<[Arc<dyn Interceptor>]>);

impl fmt::Debug for Interceptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interceptors").field(&self.0.len()).finish()
    }
}

impl Interceptors {
    pub(super) fn and(&self, one: Arc<dyn Interceptor>) -> Self {
        Self(self.0.iter().cloned().chain([one]).collect())
    }

    /// Lets all see the task, in the order in which they were added; an error if one of them refused it.
    pub(super) fn see(&self, composed: &mut Composed) -> (UnderWay, Result<(), EncodeError>) {
        let mut task = Outgoing { composed, refusal: None };
        let spans = self.0.iter().map(|one| {
            let span = one.span(&task);
            span.in_scope(|| one.intercept(&mut task));
            span
        });
        let under_way = UnderWay(spans.collect());
        (under_way, task.refusal.map_or(Ok(()), Err))
    }
}

/// The spans of a task that is being enqueued; they end with it.
#[derive(Debug)]
pub(super) struct UnderWay(Vec<Span>);

impl UnderWay {
    pub(super) fn end<T, E: fmt::Display>(self, outcome: Result<T, E>) -> Result<T, E> {
        if let Err(error) = &outcome
            && !self.0.is_empty()
        {
            let error = error.to_string();
            for span in self.0 {
                span.record("otel.status_code", "ERROR").record("otel.status_description", error.as_str());
            }
        }
        outcome
    }
}

//! Functions as handlers.

use std::future::Future;

use bytes::Bytes;
use queue_core::outcome::Failure;
use queue_core::{Codec, Task};
use serde::Serialize;

use crate::extract::FromJob;
use crate::job::Job;
use crate::panic;

/// What came of calling a handler, as [layers](crate::Router::layer) see it: the result to store, or the failure.
pub type Answer = Result<Option<Bytes>, Failure>;

/// What is the error of a handler; so that the compiler can say what an error type lacks.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error that a handler can return",
    label = "neither a `Failure` nor an error",
    note = "implement `std::error::Error` for it (with `Send + Sync`, by thiserror for example), or return `Failure`, `String` or \
            `Box<dyn Error + Send + Sync>`"
)]
pub trait HandlerError {}

#[diagnostic::do_not_recommend]
impl<E: Into<Failure>> HandlerError for E {}

/// What a handler may return.
///
/// `()`, an [`Output`], or a `Result` of either with any error: errors are retried, and a [`Failure`]
/// says otherwise.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what happens to the task",
    label = "not what a handler can return",
    note = "a handler returns `()`, `Output(value)` (stored as JSON), `Bytes` (stored as they are), or a `Result` of one of them with any \
            error"
)]
pub trait IntoOutcome {
    /// The result to store, or the failure.
    ///
    /// # Errors
    /// What went wrong.
    fn into_outcome(self) -> Result<Option<Bytes>, Failure>;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Result<Option<Bytes>, Failure> {
        Ok(None)
    }
}

/// For handlers that can only fail.
impl IntoOutcome for std::convert::Infallible {
    fn into_outcome(self) -> Result<Option<Bytes>, Failure> {
        match self {}
    }
}

/// A result, stored as JSON with tasks that have a retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output<T>(pub T);

impl<T: Serialize> IntoOutcome for Output<T> {
    fn into_outcome(self) -> Result<Option<Bytes>, Failure> {
        // The work is done; doing it again would not make its result any better to encode.
        serde_json::to_vec(&self.0).map(|json| Some(json.into())).map_err(Failure::archive)
    }
}

/// A result, stored as it is.
impl IntoOutcome for Bytes {
    fn into_outcome(self) -> Result<Option<Bytes>, Failure> {
        Ok(Some(self))
    }
}

impl<T: IntoOutcome, E: Into<Failure>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Result<Option<Bytes>, Failure> {
        self.map_err(Into::into)?.into_outcome()
    }
}

/// An async function that works tasks of type `P`; implemented for functions of the payload and up to
/// eight [extractors](crate::extract).
#[diagnostic::on_unimplemented(
    message = "this function is not a handler for a router with the state `{S}`",
    label = "not a handler",
    note = "put `#[queue_worker::debug_handler(state = {S})]` on the function, and the compiler points at what does not fit",
    note = "a handler is an `async fn` of a task (`#[derive(Task)]`) and up to eight extractors (`State`, `Job`, `Headers`, `Extension`, \
            …) in this order, all owned; it returns `()`, `Output`, `Bytes` or a `Result` of one of them with any error; its future is \
            `Send`: it holds no `Rc` and no guard of a std mutex across an await"
)]
pub trait Handler<P, M, S>: Clone + Send + Sync + 'static {
    /// Works one task.
    fn call(self, job: Job, state: S) -> impl Future<Output = Result<Option<Bytes>, Failure>> + Send;
}

/// A blocking function that works tasks of type `P`; implemented for functions of the payload and up to
/// eight [extractors](crate::extract).
#[diagnostic::on_unimplemented(
    message = "this function is not a blocking handler for a router with the state `{S}`",
    label = "not a blocking handler",
    note = "put `#[queue_worker::debug_handler(blocking, state = {S})]` on the function, and the compiler points at what does not fit",
    note = "a blocking handler is a `fn` of a task (`#[derive(Task)]`) and up to eight extractors (`State`, `Job`, `Headers`, \
            `Extension`, …) in this order, all owned; it returns `()`, `Output`, `Bytes` or a `Result` of one of them with any error"
)]
pub trait BlockingHandler<P, M, S>: Clone + Send + Sync + 'static {
    /// Works one task on a thread of its own.
    fn call(self, job: Job, state: S) -> impl Future<Output = Result<Option<Bytes>, Failure>> + Send;
}

fn decode<P: Task>(job: &Job) -> Result<P, Failure> {
    P::Codec::decode(job.payload()).map_err(|error| {
        let error = if job.has_other_payload() { error.without_values() } else { error };
        job.undecodable().failure(error)
    })
}

macro_rules! handlers {
    ($($extractor:ident),*) => {
        #[allow(non_snake_case, clippy::allow_attributes, reason = "type names serve as variables; without extractors there are none")]
        impl<F, Fut, P, S, R, $($extractor),*> Handler<P, (P, $($extractor,)*), S> for F
        where
            F: Fn(P, $($extractor),*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output = R> + Send,
            R: IntoOutcome,
            P: Task,
            S: Clone + Send + Sync + 'static,
            $($extractor: FromJob<S> + Send,)*
        {
            async fn call(self, job: Job, state: S) -> Result<Option<Bytes>, Failure> {
                let _ = &state;
                let payload = decode::<P>(&job)?;
                $(let $extractor = $extractor::from_job(&job, &state).await.map_err(Into::<Failure>::into)?;)*
                self(payload, $($extractor),*).await.into_outcome()
            }
        }

        #[allow(non_snake_case, clippy::allow_attributes, reason = "type names serve as variables; without extractors there are none")]
        impl<F, P, S, R, $($extractor),*> BlockingHandler<P, (P, $($extractor,)*), S> for F
        where
            F: Fn(P, $($extractor),*) -> R + Clone + Send + Sync + 'static,
            R: IntoOutcome + Send + 'static,
            P: Task,
            S: Clone + Send + Sync + 'static,
            $($extractor: FromJob<S> + Send + 'static,)*
        {
            async fn call(self, job: Job, state: S) -> Result<Option<Bytes>, Failure> {
                let _ = &state;
                let payload = decode::<P>(&job)?;
                $(let $extractor = $extractor::from_job(&job, &state).await.map_err(Into::<Failure>::into)?;)*
                on_a_thread(job, move || self(payload, $($extractor),*).into_outcome()).await
            }
        }
    };
}

handlers!();
handlers!(A);
handlers!(A, B);
handlers!(A, B, C);
handlers!(A, B, C, D);
handlers!(A, B, C, D, E);
handlers!(A, B, C, D, E, G);
handlers!(A, B, C, D, E, G, H);
handlers!(A, B, C, D, E, G, H, I);

/// Runs blocking work. A thread cannot be stopped, so it keeps the job's slot until it has ended, even
/// when nobody waits for its answer any more.
async fn on_a_thread(
    job: Job,
    work: impl FnOnce() -> Result<Option<Bytes>, Failure> + Send + 'static,
) -> Result<Option<Bytes>, Failure> {
    let slot = job.hold_slot();
    let thread = tokio::task::spawn_blocking(move || {
        // It may have waited for a thread for so long that nobody wants it any more.
        if job.cancel_reason().is_some() {
            return Ok(Err(Failure::Retry("the attempt ended before a thread was free".into())));
        }
        let outcome = panic::catch(work);
        drop(slot);
        outcome
    });
    match thread.await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panicked)) => Err(Failure::Retry(panicked.into())),
        Err(gone) => Err(Failure::Retry(gone.into())),
    }
}

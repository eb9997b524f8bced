//! Panics of handlers, as errors with message and place.
//!
//! Unwinding carries the message but not the place; only the panic hook is told that. So the hook notes
//! it for its thread, and whoever catches the unwinding, on the same thread, picks it up. The hook is
//! installed once and calls the one that was there before.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, UnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Once;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use queue_core::outcome::Failure;

use crate::handler::Answer;

thread_local! {
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic of a handler, as an error with its message and place. A layer tells it from other failures by
/// `failure.error().is::<Panicked>()`.
#[derive(Debug, thiserror::Error)]
#[error("panic{place}: {message}")]
pub struct Panicked {
    place: String,
    message: String,
}

impl Panicked {
    fn new(payload: &(dyn Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a value that is not text".to_owned());
        let place = PLACE.take().map(|place| format!(" [{place}]")).unwrap_or_default();
        Self { place, message }
    }
}

/// Makes panics note their place from now on.
pub(crate) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PLACE.set(info.location().map(|place| format!("{}:{}", place.file(), place.line())));
            previous(info);
        }));
    });
}

/// Calls a function; a panic in it is an error.
pub(crate) fn catch<T>(work: impl FnOnce() -> T + UnwindSafe) -> Result<T, Panicked> {
    catch_unwind(work).map_err(|payload| Panicked::new(&*payload))
}

/// Runs a handler; a panic in it is a failure.
pub(crate) async fn as_failure(work: impl Future<Output = Answer>) -> Answer {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(answer) => answer,
        Err(payload) => Err(Failure::Retry(Panicked::new(&*payload).into())),
    }
}

/// Runs a future; a panic in it is an error.
pub(crate) struct Catch<F>(pub(crate) Pin<Box<F>>);

impl<F: Future> Future for Catch<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match catch(AssertUnwindSafe(|| self.0.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    }
}

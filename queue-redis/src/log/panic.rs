//! Panics of what users give us (handlers, observers, hooks, clocks), as errors with message and place.
//!
//! Every call of such a thing goes through [`catch`] or [`Catch`], its end through [`discard`]: a panic in it concerns
//! the task at hand, and never the part of the server that called.
//!
//! Unwinding carries the message but not the place; only the panic hook is told that. So the hook notes
//! it for its thread, and whoever catches the unwinding, on the same thread, picks it up. The hook is
//! installed once and calls the one that was there before.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::log::error;

thread_local! {
    static PLACE: RefCell<Option<(String, Backtrace)>> = const { RefCell::new(None) };
}

/// A panic of a handler, or of other code of a user, as an error with its message and place. A layer tells it from other
/// failures by `failure.error().is::<Panicked>()`.
#[derive(Debug, thiserror::Error)]
#[error("panic{place}: {message}")]
pub struct Panicked {
    place: String,
    message: String,
    backtrace: Option<Box<Backtrace>>,
}

impl Panicked {
    fn new(payload: &(dyn Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a value that is not text".to_owned());
        let (place, backtrace) = PLACE.take().unzip();
        let place = place.map(|place| format!(" [{place}]")).unwrap_or_default();
        Self { place, message, backtrace: backtrace.map(Box::new) }
    }

    /// Where the panic came from: the calls below the standard library's. `None` unless the variable `RUST_BACKTRACE` or
    /// `RUST_LIB_BACKTRACE` of the process asks for it (see [`Backtrace::capture`]).
    pub fn backtrace(&self) -> Option<String> {
        let captured = self.backtrace.as_ref().filter(|it| it.status() == BacktraceStatus::Captured)?;
        let text = captured.to_string();
        // Above it stand only the hook and what calls it.
        let begin = text.find("rust_begin_unwind").and_then(|at| text[..at].rfind('\n'));
        Some(begin.map_or(&*text, |end| &text[end + 1..]).to_owned())
    }
}

/// Makes panics note their place from now on.
pub fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().map(|place| format!("{}:{}", place.file(), place.line()));
            PLACE.set(place.map(|place| (place, Backtrace::capture())));
            previous(info);
        }));
    });
}

/// Calls a function; a panic in it is an error.
///
/// # Errors
/// When it panics.
pub fn catch<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let panicked = Panicked::new(&*payload);
        // What a panic carries may itself panic in its `Drop`.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(again);
        }
        panicked
    })
}

/// Drops a value; a panic in its `Drop` is an error.
///
/// # Errors
/// When it panics.
pub fn discard<T>(value: T) -> Result<(), Panicked> {
    catch(|| drop(value))
}

pin_project! {
    /// Runs a future; a panic in it is an error. Keeps the future until it is dropped itself.
    #[derive(Debug)]
    pub struct Catch<F> {
        #[pin]
        future: F,
    }
}

impl<F> Catch<F> {
    /// Begins nothing yet.
    pub fn new(future: F) -> Self {
        Self { future }
    }
}

impl<F: Future> Future for Catch<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match catch(|| self.project().future.poll(context)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    }
}

/// Calls what is called over and over, and logs its panics: the first, the second, the fourth and so on, so that one that
/// always panics does not fill the log.
#[derive(Debug, Default)]
pub struct Guard {
    panics: AtomicU64,
}

impl Guard {
    /// Makes the call; `None` when it panics. `what` says in the log who panicked.
    pub fn call<T>(&self, what: &'static str, call: impl FnOnce() -> T) -> Option<T> {
        let error = match catch(call) {
            Ok(value) => return Some(value),
            Err(panicked) => panicked,
        };
        let panics = self.panics.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if panics.is_power_of_two() {
            error!(what, %error, panics, "code that was given to the queue's library panicked; the library goes on");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_whose_payload_panics_too_is_one_error() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                std::panic::panic_any(Self);
            }
        }
        assert!(catch(|| std::panic::panic_any(Bomb)).is_err());
    }
}

//! Watching the calls to Redis, for those who want to count or time them.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::log::panic::Guard;

/// How one call to Redis went: one command, script or pipeline, and the answer to it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The name of the script, or of the command or pipeline.
    pub operation: &'static str,
    /// From the call to the answer, making a connection and waiting for one included.
    pub took: Duration,
    /// Why there is no answer, or not the one that was asked for.
    pub error: Option<&'a Error>,
}

type Observer = Box<dyn Fn(&Call<'_>) + Send + Sync>;

/// Who watches: a list that only grows, so that looking at it takes no lock.
#[derive(Default)]
pub(crate) struct Calls(OnceLock<Box<Observed>>);

struct Observed {
    observer: Observer,
    guard: Guard,
    next: Calls,
}

impl Calls {
    pub(crate) fn add(&self, observer: Observer) {
        let mut new = Box::new(Observed { observer, guard: Guard::default(), next: Calls::default() });
        let mut at = self;
        while let Err(back) = at.0.set(new) {
            new = back;
            let Some(taken) = at.0.get() else { continue };
            at = &taken.next;
        }
    }

    /// The beginning of a call.
    pub(crate) fn begin(&self, operation: &'static str) -> Watched<'_> {
        Watched(self.0.get().map(|first| (&**first, operation, Instant::now())))
    }
}

/// A call under way. One that is dropped half-way is not told about.
pub(crate) struct Watched<'a>(Option<(&'a Observed, &'static str, Instant)>);

impl Watched<'_> {
    /// The end of the call; gives its reply back.
    pub(crate) fn end<T>(self, reply: Result<T, Error>) -> Result<T, Error> {
        if let Some((first, operation, began)) = self.0 {
            let call = Call { operation, took: began.elapsed(), error: reply.as_ref().err() };
            let mut next = Some(first);
            while let Some(observed) = next {
                observed.guard.call("an observer of calls", || (observed.observer)(&call));
                next = observed.next.0.get().map(|next| &**next);
            }
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn every_observer_hears_of_every_call() {
        let calls = Calls::default();
        calls.begin("nobody listens").end(Ok(())).unwrap();
        type Heard = Arc<Mutex<Vec<(u8, &'static str, bool)>>>;
        let heard = Heard::default();
        for name in [1, 2, 3] {
            let heard = heard.clone();
            calls.add(Box::new(move |call| heard.lock().unwrap().push((name, call.operation, call.error.is_some()))));
        }
        calls.begin("PING").end(Ok(())).unwrap();
        calls.begin("done").end::<()>(Err(Error::InvalidUrl { reason: "q".into() })).unwrap_err();
        let all = [(1, "PING", false), (2, "PING", false), (3, "PING", false)];
        assert_eq!(heard.lock().unwrap()[..3], all);
        assert_eq!(heard.lock().unwrap()[3..], all.map(|(name, ..)| (name, "done", true)));
    }

    #[test]
    fn an_observer_that_panics_hinders_neither_the_call_nor_the_others() {
        let (calls, heard) = (Calls::default(), Arc::new(AtomicU64::new(0)));
        calls.add(Box::new(|_| panic!("one bad label")));
        let count = heard.clone();
        calls.add(Box::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        for _ in 0..3 {
            assert_eq!(calls.begin("PING").end(Ok("PONG")).unwrap(), "PONG");
        }
        assert_eq!(heard.load(Ordering::Relaxed), 3);
    }
}

//! Whether Redis does what it is asked, for all loops of a server or a scheduler together.
//!
//! Each part notices by itself that it fails and that it works again. What is said, and what a health check gets to
//! know, is about all of them: one line when the first one fails, and one when none does any more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::error::Error;
use crate::log::{error, info};

/// Called with the error when an outage begins, and without one when it is over.
type Tell = dyn Fn(Option<&Error>) + Send + Sync;

/// The parts of a server that cannot do their work because Redis is away, or refuses all of it.
pub struct Outage {
    // A std mutex: held to change a few fields.
    state: Mutex<State>,
    tell: Box<Tell>,
}

#[derive(Default)]
struct State {
    /// How many parts are failing.
    failing: usize,
    /// Since when, and why, as it was last said.
    since: Option<Instant>,
    error: Option<Error>,
}

impl Outage {
    /// Tells when it begins, with the error, and when it is over, without one.
    pub fn new(tell: impl Fn(Option<&Error>) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), tell: Box::new(tell) })
    }

    /// Why something does not work now.
    pub fn error(&self) -> Option<Error> {
        self.lock().error.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, what: &'static str, error: &Error) {
        let begins = {
            let mut state = self.lock();
            state.failing += 1;
            state.since.get_or_insert_with(Instant::now);
            state.error = Some(error.clone());
            state.failing == 1
        };
        if begins {
            error!(what, %error, "Redis does not do what it is asked; trying again until it does");
            (self.tell)(Some(error));
        }
    }

    fn stay(&self, error: &Error) {
        self.lock().error = Some(error.clone());
    }

    /// A part is no longer among those that fail, because it works, or because it has ended.
    fn leave(&self, works: bool) {
        let over = {
            let mut state = self.lock();
            state.failing = state.failing.saturating_sub(1);
            if state.failing > 0 {
                return;
            }
            state.error = None;
            state.since.take()
        };
        let Some(since) = over else { return };
        if works {
            info!(seconds = since.elapsed().as_secs(), "Redis does what it is asked again");
        }
        (self.tell)(None);
    }
}

impl std::fmt::Debug for Outage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outage").field("error", &self.error()).finish_non_exhaustive()
    }
}

/// One loop, and how it fares.
#[derive(Debug)]
pub struct Part {
    what: &'static str,
    outage: Arc<Outage>,
    fares: Fares,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fares {
    Well,
    /// Redis is away, or refuses for a reason that concerns all.
    Away,
    /// It refuses this.
    Refused,
}

impl Part {
    /// Of this outage, if there is one; it does this.
    pub fn new(outage: &Arc<Outage>, what: &'static str) -> Self {
        Self { what, outage: outage.clone(), fares: Fares::Well }
    }

    /// It worked.
    pub fn succeeded(&mut self) {
        match std::mem::replace(&mut self.fares, Fares::Well) {
            Fares::Well => {}
            Fares::Away => self.outage.leave(true),
            Fares::Refused => info!(what = self.what, "works again"),
        }
    }

    /// It failed, and is to be tried again.
    pub fn failed(&mut self, error: &Error) {
        let now = if error.is_outage() { Fares::Away } else { Fares::Refused };
        tracing::debug!(what = self.what, %error, "failed");
        match (std::mem::replace(&mut self.fares, now), now) {
            (Fares::Away, Fares::Away) => self.outage.stay(error),
            (_, Fares::Away) => self.outage.enter(self.what, error),
            (Fares::Refused, _) => {}
            (before, _) => {
                error!(what = self.what, %error, "refused; trying again until it works");
                if before == Fares::Away {
                    self.outage.leave(true);
                }
            }
        }
    }

    /// Redis answered, and what it refuses is somebody else's to tell.
    pub fn refused(&mut self) {
        if std::mem::replace(&mut self.fares, Fares::Well) == Fares::Away {
            self.outage.leave(true);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.fares == Fares::Away {
            self.outage.leave(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away() -> Error {
        Error::Unreachable { target: "r".to_owned(), source: Arc::new(std::io::Error::other("gone")) }
    }

    fn watched() -> (Arc<Outage>, Arc<Mutex<Vec<bool>>>) {
        let told: Arc<Mutex<Vec<bool>>> = Arc::default();
        let tell = told.clone();
        (Outage::new(move |error| tell.lock().unwrap().push(error.is_some())), told)
    }

    #[test]
    fn an_outage_begins_with_the_first_part_that_fails_and_ends_with_the_last() {
        let (outage, told) = watched();
        let (mut one, mut other) = (Part::new(&outage, "one"), Part::new(&outage, "other"));
        one.failed(&away());
        one.failed(&away());
        other.failed(&away());
        assert!(outage.error().is_some());
        one.succeeded();
        one.succeeded();
        assert_eq!(*told.lock().unwrap(), [true]);
        other.succeeded();
        assert!(outage.error().is_none());
        assert_eq!(*told.lock().unwrap(), [true, false]);
    }

    #[test]
    fn errors_of_one_part_alone_are_no_outage_and_a_part_that_ends_leaves() {
        let (outage, told) = watched();
        let refused = Error::InvalidUrl { reason: "q".to_owned() };
        let mut part = Part::new(&outage, "part");
        part.failed(&refused);
        assert!(told.lock().unwrap().is_empty());
        part.failed(&away());
        part.failed(&refused);
        assert_eq!(*told.lock().unwrap(), [true, false]);
        part.failed(&away());
        drop(part);
        assert_eq!(*told.lock().unwrap(), [true, false, true, false]);
    }
}

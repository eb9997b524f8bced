//! What is done when a task is about to be archived: the hook of the server is called, and the task may be followed by another.

use std::fmt;
use std::sync::Arc;

use queue_core::Step;
use queue_core::exhausted::{Exhausted, FollowUp};

use crate::log::error;
use crate::panic;

type Hook = dyn Fn(&Exhausted) + Send + Sync;

/// The hook of a server, if it has one.
#[derive(Clone, Default)]
pub(crate) struct OnExhausted(Option<Arc<Hook>>);

impl fmt::Debug for OnExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnExhausted").field(&self.0.is_some()).finish()
    }
}

impl OnExhausted {
    pub(crate) fn new(hook: impl Fn(&Exhausted) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    /// What follows a task of which this is to become at this Unix second. The hook is called if that is the archive.
    pub(crate) fn take_leave(&self, step: &Step, now: i64) -> Option<Box<FollowUp>> {
        self.tell(step, now);
        let Step::Archive { message } = step else { return None };
        FollowUp::of(message, now).map(Box::new)
    }

    /// Calls the hook if the archive is what is to become of a task.
    pub(crate) fn tell(&self, step: &Step, now: i64) {
        let Step::Archive { message } = step else { return };
        if let Some(hook) = &self.0
            && let Err(panicked) = panic::catch(|| hook(&Exhausted::of(message, now)))
        {
            error!(task = message.id, queue = message.queue, error = %panicked, "the hook of exhausted tasks panicked");
        }
    }
}

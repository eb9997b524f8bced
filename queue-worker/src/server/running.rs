//! The tasks in hand.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use queue_redis::broker::Side;

use crate::job::{CancelReason, Job};

/// The jobs whose tasks are ours, from the take until their report is confirmed. In the order in which
/// they were taken, so that an acknowledgement knows where in the active list its task is.
#[derive(Debug, Default)]
pub(super) struct Running {
    // A std mutex: held for a few instructions, by attempts, the lease keeper and cancelations.
    jobs: Mutex<Jobs>,
}

#[derive(Debug, Default)]
struct Jobs {
    next: u64,
    by_age: BTreeMap<u64, Job>,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, job: Job) -> u64 {
        let mut jobs = self.lock();
        let ticket = jobs.next;
        jobs.next += 1;
        jobs.by_age.insert(ticket, job);
        ticket
    }

    pub(super) fn remove(&self, tickets: impl IntoIterator<Item = u64>) {
        let mut jobs = self.lock();
        for ticket in tickets {
            jobs.by_age.remove(&ticket);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lock().by_age.len()
    }

    /// Where in the active list this task should be, judged by its place among ours. Of a task alone nothing is
    /// known; most tasks are short, and so among the youngest.
    pub(super) fn side(&self, ticket: u64) -> Side {
        let jobs = self.lock();
        let oldest = jobs.by_age.first_key_value().map_or(ticket, |(oldest, _)| *oldest);
        let youngest = jobs.by_age.last_key_value().map_or(ticket, |(youngest, _)| *youngest);
        if ticket - oldest < youngest - ticket { Side::Oldest } else { Side::Youngest }
    }

    /// How many there are, and the oldest few: id and type.
    pub(super) fn oldest(&self, few: usize) -> (usize, Vec<String>) {
        let jobs = self.lock();
        let name = |job: &Job| format!("{} ({})", job.id(), job.task_type());
        (jobs.by_age.len(), jobs.by_age.values().take(few).map(name).collect())
    }

    pub(super) fn all(&self) -> Vec<Job> {
        self.lock().by_age.values().cloned().collect()
    }

    /// The jobs with this task id, in whichever queue.
    pub(super) fn named(&self, id: &str) -> Vec<Job> {
        self.lock().by_age.values().filter(|job| job.id() == id).cloned().collect()
    }

    pub(super) fn cancel_all(&self, reason: CancelReason) -> usize {
        let jobs = self.all();
        jobs.iter().for_each(|job| job.cancel(reason));
        jobs.len()
    }
}

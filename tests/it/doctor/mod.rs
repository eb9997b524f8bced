//! The doctor: each kind of damage is found, left alone without being asked, and mended.

mod busy;
mod copies;
mod damage;
mod interrupted;
mod random;
mod repairs;
mod sound;

use std::sync::Arc;

use queue_admin::Inspector;
use queue_core::TaskState;
use queue_core::clock::ManualClock;
use queue_redis::{Copied, Fault, Finding, Severity};

use crate::support::{Fixture, NOW, QUEUE, job};

/// An inspector at [`NOW`] on a Redis with a task in each state, called after it.
pub(crate) async fn start() -> (Fixture, Inspector) {
    let fixture = Fixture::start().await;
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    let states =
        [TaskState::Archived, TaskState::Completed, TaskState::Retry, TaskState::Scheduled, TaskState::Aggregating];
    for state in states.into_iter().chain([TaskState::Active, TaskState::Pending]) {
        fixture.put_in(state, job(state.as_str())).await;
    }
    let inspector = Inspector::with_clock(fixture.redis(), Arc::new(ManualClock::at_secs(NOW)));
    (fixture, inspector)
}

/// Everything that is found, notes and all.
pub(crate) async fn examine(inspector: &Inspector) -> Vec<Finding> {
    let mut examination = inspector.doctor().examine();
    let mut all = Vec::new();
    while let Some(findings) = examination.next().await.unwrap() {
        all.extend(findings);
    }
    all
}

/// The same without notes, `fault subject` each.
pub(crate) async fn problems(inspector: &Inspector) -> Vec<String> {
    let found = examine(inspector).await;
    let problems = found.iter().filter(|found| found.fault.severity() > Severity::Note);
    problems.map(|found| format!("{} {}", found.fault.as_str(), found.subject)).collect()
}

/// Examines and mends at once; returns the faults and what was deleted.
pub(crate) async fn fix(inspector: &Inspector) -> (Vec<Fault>, Vec<Copied>) {
    let mut examination = inspector.doctor().examine();
    let (mut mended, mut deleted) = (Vec::new(), Vec::new());
    while let Some(findings) = examination.next().await.unwrap() {
        for finding in findings.iter().filter(|finding| finding.is_mendable()) {
            let copies = inspector.doctor().copies(finding).await.unwrap();
            if inspector.doctor().mend(finding, &copies).await.unwrap() {
                mended.push(finding.fault);
            }
            deleted.extend(copies);
        }
    }
    (mended, deleted)
}

//! Keeps the entries as a provider has them.

use std::collections::BTreeSet;
use std::sync::Arc;

use queue_redis::log::info;
use queue_redis::panic::Catch;

use super::{Shared, SyncProblem};
use crate::problem::EntryProblem;
use crate::provider::BoxError;

/// Asks the provider over and over.
pub(super) async fn run(shared: Arc<Shared>) {
    let Some((_, interval)) = &shared.options.provider else { return };
    while shared.stop.run_until_cancelled(tokio::time::sleep(*interval)).await.is_some() {
        if let Some(Err(problem)) = shared.stop.run_until_cancelled(once(&shared)).await {
            shared.complain(&SyncProblem::Provider(problem));
        }
    }
}

/// Asks the provider once. One bad entry is reported and leaves the others alone.
pub(super) async fn once(shared: &Shared) -> Result<(), BoxError> {
    let Some((provider, _)) = &shared.options.provider else { return Ok(()) };
    let mut managed = shared.managed.lock().await;
    // A panic of the provider is one of its errors.
    let provided = Catch(Box::pin(async { provider.entries().await })).await??;
    let (mut seen, mut wanted, mut problems) = (BTreeSet::new(), Vec::new(), Vec::new());
    for entry in provided {
        let checked = entry.check(&shared.options.zone).and_then(|schedule| {
            let known = managed.contains(&schedule.name);
            // One that was registered by hand stays as it is.
            let foreign = !known && shared.entries().carried.contains_key(&schedule.name);
            if foreign || seen.contains(&schedule.name) {
                return Err(entry.error(EntryProblem::Duplicate));
            }
            Ok(schedule)
        });
        match checked {
            Ok(schedule) => {
                seen.insert(schedule.name.clone());
                wanted.push(schedule);
            }
            Err(problem) => {
                // What ran under this name until now goes on.
                seen.insert(entry.known_as());
                problems.push(problem);
            }
        }
    }
    let (mut added, mut removed) = (0, 0);
    {
        let mut entries = shared.entries();
        for name in managed.iter().filter(|name| !seen.contains(*name)) {
            removed += usize::from(entries.remove(name));
        }
        managed.retain(|name| seen.contains(name));
        for schedule in wanted {
            let name = schedule.name.clone();
            let replace = entries.carried.contains_key(&name);
            added += usize::from(!replace);
            // Cannot be refused: whether it is there was looked at under the same lock.
            let _ = entries.put(schedule, replace);
            managed.insert(name);
        }
    }
    if added + removed > 0 {
        info!(scheduler = shared.id, added, removed, "entries synced with their provider");
    }
    shared.untold.notify_one();
    for problem in problems {
        shared.complain(&SyncProblem::Entry(problem));
    }
    Ok(())
}

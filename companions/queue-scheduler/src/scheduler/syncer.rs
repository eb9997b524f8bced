//! The syncer: keeps the entries as a provider has them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use queue_redis::Error;
use queue_redis::log::{error, info};
use queue_redis::panic::Catch;
use queue_redis::service::Service;

use super::carried::Shared;
use super::hooks::{ProblemHook, SyncProblem, guarded};
use crate::problem::EntryProblem;
use crate::provider::{BoxError, DynProvider};
use crate::spec::Zone;

/// Asks the provider over and over.
#[derive(Clone)]
pub(super) struct Syncer {
    /// Of the scheduler.
    pub(super) id: Arc<str>,
    pub(super) provider: Arc<dyn DynProvider>,
    pub(super) interval: Duration,
    pub(super) zone: Zone,
    pub(super) on_problem: Option<Arc<ProblemHook>>,
    pub(super) shared: Arc<Shared>,
    /// The names that came from the provider; held while they are synced.
    pub(super) managed: Arc<tokio::sync::Mutex<BTreeSet<String>>>,
}

impl Service for Syncer {
    const NAME: &'static str = "syncer";
    const WORK: &'static str = "asking the provider for its entries";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        if let Err(problem) = self.sync().await {
            self.complain(&SyncProblem::Provider(problem));
        }
        Ok(self.interval)
    }

    fn delay(&self) -> Duration {
        self.interval
    }
}

impl Syncer {
    /// Asks the provider once. One bad entry is reported and leaves the others alone.
    pub(super) async fn sync(&self) -> Result<(), BoxError> {
        let shared = &self.shared;
        let mut managed = self.managed.lock().await;
        // A panic of the provider is one of its errors.
        let provided = Catch::new(async { self.provider.entries().await }).await??;
        let (mut seen, mut wanted, mut problems, mut is_any_lost) = (BTreeSet::new(), Vec::new(), Vec::new(), false);
        for entry in provided {
            let checked = entry.check(&self.zone).and_then(|schedule| {
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
                    // What ran under this name until now goes on. Without a name nobody knows which one that is: none is taken out.
                    is_any_lost |= !entry.has_name();
                    seen.insert(entry.known_as());
                    problems.push(problem);
                }
            }
        }
        let (mut added, mut removed) = (0, 0);
        {
            let mut entries = shared.entries();
            if !is_any_lost {
                for name in managed.iter().filter(|name| !seen.contains(*name)) {
                    removed += usize::from(entries.remove(name));
                }
                managed.retain(|name| seen.contains(name));
            }
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
            info!(scheduler = &*self.id, added, removed, "entries synced with their provider");
        }
        shared.untold.notify_one();
        for problem in problems {
            self.complain(&SyncProblem::Entry(problem));
        }
        Ok(())
    }

    /// Tells what is wrong with the entries of the provider.
    fn complain(&self, problem: &SyncProblem) {
        match &self.on_problem {
            Some(hook) => guarded("problem", || hook(problem)),
            None => error!(%problem, "a periodic entry cannot be used"),
        }
    }
}

//! The periodic entries of all schedulers, as tools show them.

use std::collections::BTreeMap;

use queue_core::Clock as _;

use super::{Inspector, Page};
use crate::error::Error;
use crate::view;

impl Inspector {
    /// The entries of all schedulers as tools show them: ours with all that is known about them, and those that only Go's
    /// schedulers carry; by spec and id.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn all_cron_entries(&self) -> Result<Vec<view::CronEntry>, Error> {
        let ours = self.cron_entries().await?;
        let (mut by_name, mut views) = (BTreeMap::new(), Vec::new());
        for entry in self.scheduler_entries().await? {
            if ours.iter().any(|own| own.name == entry.id) {
                by_name.insert(entry.id.clone(), entry);
            } else {
                views.push(view::CronEntry::of_go(entry));
            }
        }
        let now = self.clock.now();
        views.extend(ours.into_iter().map(|entry| {
            let listed = by_name.remove(&entry.name);
            view::CronEntry::of_ours(entry, listed, now)
        }));
        views.sort_by(|a, b| (&a.spec, &a.id).cmp(&(&b.spec, &b.id)));
        Ok(views)
    }

    /// What became of the ticks of an entry of ours, or when the task of one of Go's was enqueued; newest first. `None` where
    /// nobody knows the entry.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn all_cron_history(&self, entry: &str, page: Page) -> Result<Option<Vec<view::CronLine>>, Error> {
        match self.cron_history(entry, page).await {
            Ok(events) => return Ok(Some(events.into_iter().map(view::CronLine::from).collect())),
            Err(Error::EntryNotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let events = self.enqueue_events(entry, page).await?;
        let known = !events.is_empty()
            || page.skip > 0
            || self.scheduler_entries().await?.iter().any(|other| other.id == entry);
        Ok(known.then(|| events.into_iter().map(view::CronLine::from).collect()))
    }
}

//! Running, archiving, deleting, cancelling and interrupting many tasks.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use queue_core::Clock as _;
use queue_core::TaskState;
use queue_core::keys::QueueKeys;
use queue_core::limits::{CHANGE_BATCH, SHORT_BATCH};

use super::super::Inspector;
use super::super::tasks::Entry;
use super::walk::Stretch;
use super::{Filter, PAGE, Place};
use crate::error::Error;
use crate::lenient::total;
use crate::verb::Verb;
use queue_redis::Connection;
use queue_redis::broker::ARCHIVE_MAX;
use queue_redis::broker::{Broker, Change, Seen};

/// Pending tasks per call: each call searches the list once, which takes half of that by itself.
const PENDING_BATCH: usize = SHORT_BATCH;
/// How often the pending list is gone through for tasks that have moved away from where they were seen.
const PASSES: usize = 5;

/// What became of the tasks that were to be changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// Tasks to which the filter applied.
    pub matched: u64,
    /// Those that were changed.
    pub changed: u64,
    /// Those that were not: they had moved on when their turn came. For interrupting: nobody listened.
    pub skipped: u64,
    /// Older archived tasks that were deleted because the archive was full, or they were past their time.
    pub trimmed: u64,
}

/// How far a change of many tasks has come; told after each page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Tasks looked at so far.
    pub looked_at: u64,
    /// Tasks there were to look at in the beginning. Others may have come or gone since.
    pub of: u64,
    /// What became of them.
    pub so_far: Changed,
}

/// Who has many tasks changed, and is heard in between.
pub(crate) trait Drive: Send {
    /// In whose name tasks are cancelled.
    fn by(&self) -> &str;

    /// Told after each page; whether to go on.
    fn go_on(&mut self, progress: Progress) -> impl Future<Output = Result<bool, Error>> + Send;

    /// How many of so many tasks may be changed now, after waiting until it is time; none where it is to end, an error where no more may be.
    fn room(&mut self, _: Progress, wanted: usize) -> impl Future<Output = Result<usize, Error>> + Send {
        async move { Ok(wanted) }
    }

    /// Whether time passes between the look at a page and the change of the last of it.
    fn takes_its_time(&self) -> bool {
        false
    }

    /// How many of the newest tasks in the archive are not to go from it, because they have been archived for this before.
    fn archived_before(&self) -> u64 {
        0
    }

    /// Deletes tasks.
    fn delete(
        &mut self,
        broker: &Broker,
        queue: &str,
        seen: Seen<'_>,
        ids: &[&[u8]],
    ) -> impl Future<Output = Result<Vec<Change>, Error>> + Send {
        async move { Ok(broker.delete_tasks(queue, seen, ids).await?) }
    }
}

/// One with this name who only wants to know.
pub(crate) struct Told<'a>(pub(crate) &'a str, pub(crate) &'a mut (dyn FnMut(Progress) + Send));

impl Drive for Told<'_> {
    fn by(&self) -> &str {
        self.0
    }

    async fn go_on(&mut self, progress: Progress) -> Result<bool, Error> {
        (self.1)(progress);
        Ok(true)
    }
}

/// A change under way.
struct Bulk<'a, D> {
    inspector: &'a Inspector,
    queue: &'a str,
    verb: Verb,
    progress: Progress,
    drive: &'a mut D,
    /// Hashes of the ids that were judged: what comes back to where it was (a task that is run and fails
    /// again) is left alone, or this could go on for ever.
    judged: HashSet<u64>,
    hasher: RandomState,
}

impl Inspector {
    /// Makes tasks pending that wait or have ended, as [`run_task`](Self::run_task) does: all that are
    /// scheduled, retry, archived and aggregating, or those in the states that the filter names; completed
    /// ones only if it does. `progress` is called after each page of tasks.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`]; [`Error::StateRefused`] where the filter names active or pending tasks; or
    /// Redis cannot be asked or refuses: then a part is done, and the same call does the rest.
    pub async fn run_all(
        &self,
        queue: &str,
        filter: &Filter,
        progress: impl FnMut(Progress) + Send,
    ) -> Result<Changed, Error> {
        self.change_all(Verb::Run, queue, filter, "", progress).await
    }

    /// Archives tasks, as [`archive_task`](Self::archive_task) does (pending ones can be missed while somebody
    /// else takes tasks out of the middle of the list too; the same call again finds them): all that are pending, scheduled, retry
    /// and aggregating, or those in the states that the filter names; completed ones only if it does. What
    /// was in the archive before may be trimmed by it; what this call has archived is not.
    ///
    /// # Errors
    /// As [`run_all`](Self::run_all), for active and archived tasks; and [`Error::ArchiveFull`] when there are
    /// more tasks than the archive keeps, which is 9,999: the rest stays where it is.
    pub async fn archive_all(
        &self,
        queue: &str,
        filter: &Filter,
        progress: impl FnMut(Progress) + Send,
    ) -> Result<Changed, Error> {
        self.change_all(Verb::Archive, queue, filter, "", progress).await
    }

    /// Deletes tasks and the locks they own, as [`delete_task`](Self::delete_task) does: all but the active
    /// ones, or those in the states that the filter names.
    ///
    /// # Errors
    /// As [`run_all`](Self::run_all), for active tasks.
    pub async fn delete_all(
        &self,
        queue: &str,
        filter: &Filter,
        progress: impl FnMut(Progress) + Send,
    ) -> Result<Changed, Error> {
        self.change_all(Verb::Delete, queue, filter, "", progress).await
    }

    /// Ends the active tasks to which a filter applies for good, as [`cancel_for_good`](Self::cancel_for_good) does. A task of
    /// another queue with the same id is interrupted.
    ///
    /// # Errors
    /// As [`run_all`](Self::run_all), for all tasks that are not active.
    pub async fn cancel_all(
        &self,
        queue: &str,
        filter: &Filter,
        by: &str,
        progress: impl FnMut(Progress) + Send,
    ) -> Result<Changed, Error> {
        self.change_all(Verb::Cancel, queue, filter, by, progress).await
    }

    /// Asks every server to stop the attempts of the active tasks to which a filter applies, as [`cancel`](Self::cancel)
    /// does. Those that no server was there to hear count as skipped. A task of another queue with the same id is
    /// interrupted with it.
    ///
    /// # Errors
    /// As [`run_all`](Self::run_all), for all tasks that are not active.
    pub async fn interrupt_all(
        &self,
        queue: &str,
        filter: &Filter,
        progress: impl FnMut(Progress) + Send,
    ) -> Result<Changed, Error> {
        self.change_all(Verb::Interrupt, queue, filter, "", progress).await
    }

    /// Does this to the tasks to which a filter applies, in the name of somebody.
    ///
    /// # Errors
    /// As [`run_all`](Self::run_all), [`archive_all`](Self::archive_all), [`delete_all`](Self::delete_all),
    /// [`cancel_all`](Self::cancel_all) and [`interrupt_all`](Self::interrupt_all).
    pub async fn change_all(
        &self,
        verb: Verb,
        queue: &str,
        filter: &Filter,
        by: &str,
        mut progress: impl FnMut(Progress) + Send,
    ) -> Result<Changed, Error> {
        self.require_queue(queue).await?;
        let states = filter.states_of(verb.usual_states());
        states.iter().try_for_each(|state| verb.check(*state))?;
        self.change_in(queue, filter, &states, verb, &mut Told(by, &mut progress)).await
    }

    /// The same with states that were checked.
    pub(crate) async fn change_in(
        &self,
        queue: &str,
        filter: &Filter,
        states: &[TaskState],
        verb: Verb,
        drive: &mut impl Drive,
    ) -> Result<Changed, Error> {
        let keys = QueueKeys::new(queue);
        let places = self.places(&keys, states).await?;
        let of = total(&self.sizes(&places).await?);
        let started = self.started(queue, filter, states).await?;
        let mut bulk = Bulk {
            inspector: self,
            queue,
            verb,
            progress: Progress { of, ..Progress::default() },
            drive,
            judged: HashSet::new(),
            hasher: RandomState::new(),
        };
        for place in &places {
            for _ in 0..PASSES {
                let mut walk = place.walk(true);
                let mut again = false;
                loop {
                    // Not for longer: a change that keeps to a rate takes hours, and others want a connection too.
                    let mut connection = self.redis.pooled().await?;
                    let Stretch { at, entries } = walk.next(&mut connection, PAGE).await?;
                    if entries.is_empty() {
                        break;
                    }
                    let matching = self.select(&mut connection, &keys, place, filter, &started, &entries).await?;
                    drop(connection);
                    let Some((gone, elsewhere)) = bulk.change(&keys, place, filter, at, &entries, matching).await?
                    else {
                        return Ok(bulk.progress.so_far);
                    };
                    again |= elsewhere;
                    walk.go_on(&entries, |id| gone.contains(id));
                    if !bulk.drive.go_on(bulk.progress).await? {
                        return Ok(bulk.progress.so_far);
                    }
                }
                if !again {
                    break;
                }
            }
        }
        Ok(bulk.progress.so_far)
    }
}

impl<D: Drive> Bulk<'_, D> {
    /// Changes those of a page that match. Returns the ids that are no longer where they were because of
    /// this, and whether some could not be found; `None` where it is to end.
    async fn change(
        &mut self,
        keys: &QueueKeys,
        place: &Place,
        filter: &Filter,
        at: usize,
        page: &[Entry],
        mut matching: Vec<Entry>,
    ) -> Result<Option<(HashSet<Vec<u8>>, bool)>, Error> {
        matching.retain(|(id, _)| !self.judged.contains(&self.hasher.hash_one(id)));
        let (mut gone, mut elsewhere) = (HashSet::new(), false);
        let mut rest = &matching[..];
        while !rest.is_empty() {
            let room = match self.room(place, rest.len()).await {
                Ok(0) => return Ok(None),
                Ok(room) => room,
                Err(error) => {
                    // What was done of this page is told all the same.
                    self.drive.go_on(self.progress).await?;
                    return Err(error);
                }
            };
            let (batch, others) = rest.split_at(room);
            rest = others;
            let mut batch = Cow::Borrowed(batch);
            if self.drive.takes_its_time() {
                let still = self.inspector.select_anew(self.queue, keys, place, filter, &batch).await?;
                let moved_on = (batch.len() - still.len()) as u64;
                self.progress.so_far.matched += moved_on;
                self.progress.so_far.skipped += moved_on;
                batch = Cow::Owned(still);
            }
            if batch.is_empty() {
                continue;
            }
            let ids: Vec<&[u8]> = batch.iter().map(|(id, _)| &id[..]).collect();
            // Where the first of them is by now, as far as it depends on us.
            let place_of_first = page.iter().position(|(id, _)| id == ids[0]).unwrap_or(0);
            let taken_before = page[..place_of_first].iter().filter(|(id, _)| gone.contains(id)).count();
            let seen = match (&place.group, place.state) {
                (Some(group), _) => Seen::InGroup(group),
                (None, TaskState::Pending) => Seen::PendingAt(at + place_of_first - taken_before),
                (None, state) => Seen::In(state),
            };
            let changes = self.apply(seen, &ids).await?;
            let changed = ids.iter().zip(&changes).filter(|(_, change)| **change == Change::Applied).map(|(id, _)| *id);
            self.inspector.tell_batches(self.verb, Some(place.state), changed).await;
            for (id, change) in ids.into_iter().zip(changes) {
                let so_far = &mut self.progress.so_far;
                match change {
                    Change::Elsewhere => {
                        elsewhere = true;
                        continue;
                    }
                    Change::Applied | Change::Dropped => {
                        so_far.changed += 1;
                        if !matches!(self.verb, Verb::Cancel | Verb::Interrupt) {
                            gone.insert(id.to_vec());
                        }
                    }
                    _ => so_far.skipped += 1,
                }
                so_far.matched += 1;
                self.judged.insert(self.hasher.hash_one(id));
            }
        }
        self.progress.looked_at += page.len() as u64;
        Ok(Some((gone, elsewhere)))
    }

    /// How many of so many tasks the next call may change.
    async fn room(&mut self, place: &Place, wanted: usize) -> Result<usize, Error> {
        let mut batch = wanted.min(if place.state == TaskState::Pending { PENDING_BATCH } else { CHANGE_BATCH });
        if self.verb == Verb::Archive {
            let archived = self.drive.archived_before() + self.progress.so_far.changed;
            match u64::from(ARCHIVE_MAX).saturating_sub(archived) {
                0 => return Err(Error::ArchiveFull { queue: self.queue.to_owned(), archived }),
                left => batch = batch.min(usize::try_from(left).unwrap_or(batch)),
            }
        }
        self.drive.room(self.progress, batch).await
    }

    async fn apply(&mut self, seen: Seen<'_>, ids: &[&[u8]]) -> Result<Vec<Change>, Error> {
        let broker = self.inspector.broker();
        match self.verb {
            Verb::Run => Ok(broker.run_tasks(self.queue, seen, ids, self.inspector.clock.now_ns()).await?),
            Verb::Delete => self.drive.delete(&broker, self.queue, seen, ids).await,
            Verb::Archive => {
                self.inspector.look_at_the_clock().await?;
                let now = self.inspector.clock.now_secs();
                let (changes, trimmed) = broker.archive_tasks(self.queue, seen, ids, now).await?;
                let so_far = &mut self.progress.so_far;
                so_far.trimmed = so_far.trimmed.saturating_add(trimmed);
                Ok(changes)
            }
            Verb::Cancel => {
                // The record of a task is text.
                let named: Vec<Option<&str>> = ids.iter().map(|id| std::str::from_utf8(id).ok()).collect();
                let names: Vec<&str> = named.iter().copied().flatten().collect();
                let by = self.drive.by().to_owned();
                self.inspector.look_at_the_clock().await?;
                broker.request_cancels(self.queue, &names, &by, self.inspector.clock.now_ms()).await?;
                interrupt(&mut self.inspector.redis.pooled().await?, ids).await?;
                Ok(named.iter().map(|name| name.map_or(Change::Gone, |_| Change::Applied)).collect())
            }
            Verb::Interrupt => interrupt(&mut self.inspector.redis.pooled().await?, ids).await,
        }
    }
}

async fn interrupt(connection: &mut Connection, ids: &[&[u8]]) -> Result<Vec<Change>, Error> {
    let mut publish = redis::pipe();
    for id in ids {
        publish.cmd("PUBLISH").arg(queue_core::keys::CANCEL_CHANNEL).arg(id);
    }
    let heard: Vec<u64> = connection.pipeline("PUBLISH", &publish).await?;
    Ok(heard.into_iter().map(|servers| if servers > 0 { Change::Applied } else { Change::Gone }).collect())
}

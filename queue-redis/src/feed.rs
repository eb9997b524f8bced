//! What this process has to tell those who listen, until it is written.
//!
//! While nobody listens, telling is one look at a flag. Else an event that somebody wants is packed with others, and waits a
//! tenth of a second; whoever writes takes them from here. Clones of a broker share it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use queue_core::clock::{UnixMilli, UnixSecond};
use queue_core::event::{Event, Kind, Wanted};
use queue_core::limits::{EVENT_BACKLOG_BYTES, EVENT_ENTRY_BYTES, EVENTS_GATHER, EVENTS_PER_ENTRY, EVENTS_PER_SECOND};
use tokio::sync::Notify;

/// Events of this process on their way to those who listen.
#[derive(Debug, Default)]
pub struct Feed {
    heard: AtomicBool,
    /// What is routine is left out, because as much was told in this second as may be.
    full: AtomicBool,
    /// So many were left out before they were made.
    spared: AtomicU64,
    /// A std lock: held to look or to replace it.
    wanted: RwLock<Vec<Wanted>>,
    /// The same, to put or take events.
    unsent: Mutex<Unsent>,
    come: Notify,
    served: AtomicBool,
    teller: OnceLock<String>,
}

#[derive(Debug, Default)]
struct Unsent {
    /// By queue; without one, in the stream of all.
    streams: HashMap<Option<String>, Vec<Packed>>,
    bytes: usize,
    /// In which second how many were told.
    second: UnixSecond,
    told: u32,
    dropped: u64,
    /// The number of the last entry, by stream.
    numbers: HashMap<Option<String>, u64>,
}

#[derive(Debug, Default)]
struct Packed {
    lines: String,
    events: usize,
}

/// An entry of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) queue: Option<String>,
    /// Counts the entries of this process in the stream, so that a missing one is noticed.
    pub(crate) number: u64,
    /// One event on each.
    pub(crate) lines: String,
    pub(crate) events: usize,
}

impl Feed {
    /// A server looks who listens, and writes what gathers here. It is named in what is told: `<host>:<pid>:<uuid>`. Only the
    /// first name counts.
    pub fn serve(&self, teller: &str) {
        let _ = self.teller.set(teller.to_owned());
        self.served.store(true, Ordering::Relaxed);
    }

    /// Whether a server writes what gathers here.
    pub(crate) fn is_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    pub(crate) fn teller(&self) -> &str {
        self.teller.get_or_init(|| uuid::Uuid::new_v4().to_string())
    }

    /// Whether anybody listens.
    pub fn is_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// From now on, Unix milliseconds, these listen. Returns how long it is until the first of them is over, if nobody
    /// hears of it again.
    pub fn heard_by(&self, mut wanted: Vec<Wanted>, now_ms: i64) -> Option<Duration> {
        wanted.retain(|wanted| wanted.until > now_ms);
        let over = wanted.iter().map(|wanted| wanted.until).min();
        let heard = !wanted.is_empty();
        *self.wanted.write().unwrap_or_else(PoisonError::into_inner) = wanted;
        self.heard.store(heard, Ordering::Relaxed);
        if !heard {
            let mut unsent = self.lock();
            self.full.store(false, Ordering::Relaxed);
            self.spared.store(0, Ordering::Relaxed);
            *unsent = Unsent { numbers: std::mem::take(&mut unsent.numbers), ..Unsent::default() };
        }
        over.map(|over| Duration::from_millis(u64::try_from(over.saturating_sub(now_ms)).unwrap_or(0)))
    }

    /// Whether to make such an event of a task: somebody wants it, and as much may still be told. If it is too much, that is counted.
    pub fn takes(&self, kind: Kind, queue: &str, task_type: &str) -> bool {
        if !self.is_heard() {
            return false;
        }
        let wants = |wanted: &Wanted| wanted.wants_of(kind, Some(queue), Some(task_type));
        if !self.wanted.read().unwrap_or_else(PoisonError::into_inner).iter().any(wants) {
            return false;
        }
        if !(kind.is_routine() && self.full.load(Ordering::Relaxed)) {
            return true;
        }
        if self.spared.fetch_add(1, Ordering::Relaxed) == 0 {
            self.come.notify_one();
        }
        false
    }

    /// Tells an event, if anybody wants it; it is made only where somebody listens. It never waits: what is too much is counted, and left out.
    pub fn tell(&self, event: impl FnOnce() -> Event) {
        if !self.is_heard() {
            return;
        }
        let event = event();
        if !self.wanted.read().unwrap_or_else(PoisonError::into_inner).iter().any(|wanted| wanted.wants(&event)) {
            return;
        }
        let mut unsent = self.lock();
        let second = event.at.second();
        if unsent.second != second {
            self.begin(&mut unsent, second);
        }
        let most = if event.kind.is_routine() { EVENTS_PER_SECOND } else { 2 * EVENTS_PER_SECOND };
        // What is left out is not even written down.
        let line = if unsent.told < most { event.to_json() } else { String::new() };
        if line.is_empty() || line.len() > EVENT_ENTRY_BYTES || unsent.bytes + line.len() > EVENT_BACKLOG_BYTES {
            unsent.dropped += 1;
        } else {
            unsent.told += 1;
            unsent.pack(event.queue, &line);
        }
        if unsent.told >= EVENTS_PER_SECOND {
            self.full.store(true, Ordering::Relaxed);
        }
        drop(unsent);
        self.come.notify_one();
    }

    /// Waits until there is something to write, and then for what comes with it.
    pub async fn gathered(&self) {
        self.come.notified().await;
        tokio::time::sleep(EVENTS_GATHER).await;
    }

    /// Takes what is to be written.
    pub(crate) fn take(&self, now_ms: i64) -> Vec<Entry> {
        let mut unsent = self.lock();
        let second = UnixMilli(now_ms).second();
        if unsent.second != second {
            self.begin(&mut unsent, second);
        }
        unsent.dropped += self.spared.swap(0, Ordering::Relaxed);
        if unsent.dropped > 0 {
            let mut dropped = Event::new(Kind::Dropped, UnixMilli(now_ms));
            dropped.count = Some(std::mem::take(&mut unsent.dropped));
            unsent.pack(None, &dropped.to_json());
        }
        unsent.bytes = 0;
        let streams = std::mem::take(&mut unsent.streams);
        let mut entries = Vec::new();
        for (queue, packed) in streams {
            for Packed { lines, events } in packed {
                let number = unsent.numbers.entry(queue.clone()).or_default();
                *number += 1;
                entries.push(Entry { queue: queue.clone(), number: *number, lines, events });
            }
        }
        entries
    }

    /// So many events could not be written.
    pub(crate) fn lose(&self, events: usize) {
        self.lock().dropped += events as u64;
    }

    /// Another second, with room of its own.
    fn begin(&self, unsent: &mut Unsent, second: UnixSecond) {
        (unsent.second, unsent.told) = (second, 0);
        self.full.store(false, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Unsent> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unsent {
    fn pack(&mut self, queue: Option<String>, line: &str) {
        self.bytes += line.len();
        let packed = self.streams.entry(queue).or_default();
        let fits = |last: &Packed| last.events < EVENTS_PER_ENTRY && last.lines.len() + line.len() < EVENT_ENTRY_BYTES;
        if !packed.last().is_some_and(fits) {
            packed.push(Packed::default());
        }
        if let Some(last) = packed.last_mut() {
            if last.events > 0 {
                last.lines.push('\n');
            }
            last.lines.push_str(line);
            last.events += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn heard(json: &str) -> Feed {
        let feed = Feed::default();
        feed.heard_by(Wanted::parse(json).into_iter().collect(), NOW);
        feed
    }

    fn event_at(at: i64, kind: Kind) -> Event {
        Event::of_task(kind, UnixMilli(at), "mail", "7", "send")
    }

    fn event(kind: Kind) -> Event {
        event_at(NOW, kind)
    }

    fn all() -> Feed {
        heard(&format!(r#"{{"until":{}}}"#, NOW + 5))
    }

    #[test]
    fn nothing_is_made_while_nobody_listens_or_the_listener_is_over() {
        for feed in [Feed::default(), heard(&format!(r#"{{"until":{NOW}}}"#))] {
            feed.tell(|| unreachable!("nobody listens"));
            assert!(!feed.is_heard() && feed.take(NOW).is_empty());
        }
    }

    #[test]
    fn only_what_is_wanted_is_kept_and_nothing_of_it_when_the_listener_is_gone() {
        let feed = heard(&format!(r#"{{"until":{},"kinds":["failed"]}}"#, NOW + 5));
        feed.tell(|| event(Kind::Succeeded));
        assert!(feed.take(NOW).is_empty());
        feed.tell(|| event(Kind::Failed));
        assert_eq!(feed.heard_by(Vec::new(), NOW), None);
        assert!(feed.take(NOW).is_empty());
    }

    #[test]
    fn entries_are_full_at_fifty_events_or_ten_kilobytes_and_are_numbered() {
        let feed = all();
        (0..120).for_each(|_| feed.tell(|| event(Kind::Started)));
        let entries = feed.take(NOW);
        let shape = |entries: &[Entry]| entries.iter().map(|entry| (entry.number, entry.events)).collect::<Vec<_>>();
        assert_eq!(shape(&entries), [(1, 50), (2, 50), (3, 20)]);
        assert_eq!(entries[2].lines.lines().filter_map(Event::parse).count(), 20);
        (0..40).for_each(|_| feed.tell(|| event(Kind::Failed).because(&"x".repeat(512))));
        let entries = feed.take(NOW);
        assert!(entries.len() > 1 && entries.iter().all(|entry| entry.lines.len() <= EVENT_ENTRY_BYTES));
        assert_eq!(entries[0].number, 4);
    }

    #[test]
    fn what_is_too_much_is_counted_and_failures_come_first() {
        let feed = all();
        let second = EVENTS_PER_SECOND as usize;
        (0..second + 7).for_each(|_| feed.tell(|| event(Kind::Succeeded)));
        (0..second + 3).for_each(|_| feed.tell(|| event(Kind::Failed)));
        let entries = feed.take(NOW);
        let events: Vec<Event> =
            entries.iter().flat_map(|entry| entry.lines.lines()).filter_map(Event::parse).collect();
        let of = |kind| events.iter().filter(|event| event.kind == kind).count();
        assert_eq!((of(Kind::Succeeded), of(Kind::Failed), of(Kind::Dropped)), (second, second, 1));
        let dropped = events.iter().find(|event| event.kind == Kind::Dropped).unwrap();
        assert_eq!((dropped.count, &dropped.queue), (Some(10), &None));
        feed.tell(|| event_at(NOW + 1_000, Kind::Succeeded));
        assert_eq!(feed.take(NOW).len(), 1, "another second has begun");
    }

    #[test]
    fn what_is_too_much_is_not_even_made_and_what_nobody_wants_is_not_counted() {
        let feed = heard(&format!(r#"{{"until":{},"queues":["mail"]}}"#, NOW + 5));
        let takes = |kind, queue| feed.takes(kind, queue, "send");
        assert!(takes(Kind::Succeeded, "mail") && !takes(Kind::Succeeded, "other"));
        (0..EVENTS_PER_SECOND).for_each(|_| feed.tell(|| event(Kind::Succeeded)));
        assert!(!takes(Kind::Succeeded, "mail") && !takes(Kind::Succeeded, "other") && takes(Kind::Failed, "mail"));
        let dropped = |now| {
            let entries = feed.take(now);
            let events = entries.iter().flat_map(|entry| entry.lines.lines()).filter_map(Event::parse);
            events.filter_map(|event| event.count).sum::<u64>()
        };
        assert_eq!((dropped(NOW), dropped(NOW)), (1, 0));
        assert!(!takes(Kind::Succeeded, "mail"), "it is the same second");
        assert_eq!(dropped(NOW + 1_000), 1);
        assert!(takes(Kind::Succeeded, "mail"), "another second has begun");
        assert!(!Feed::default().takes(Kind::Failed, "mail", "send"));
    }

    #[test]
    fn a_process_that_cannot_write_keeps_a_megabyte_at_the_most() {
        let feed = all();
        for second in 0..20 {
            for _ in 0..1_000 {
                feed.tell(|| event_at(NOW + second * 1_000, Kind::Started).because(&"x".repeat(512)));
            }
        }
        let kept: usize = feed.take(NOW).iter().map(|entry| entry.lines.len()).sum();
        assert!(kept <= EVENT_BACKLOG_BYTES + 4 * 1024, "{kept}");
    }
}

//! What happens to tasks and servers, heard once for all who listen.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use queue_admin::Permission;
use queue_core::clock::UnixMilli;
use queue_core::event::{Event, Kind, Wanted};
use queue_core::limits::HEARD_FOR;
use queue_core::{Clock as _, SystemClock};
use queue_redis::Error;
use queue_redis::events::{Cursor, EventStream, Events};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::Inner;
use crate::auth::Identity;
use crate::live::{Counted, SIGN_OF_LIFE};

/// Events that are kept for those who come back, and for those who read slowly.
const KEPT: usize = 2_000;
/// The pause between two pieces for one listener, so that many events travel together.
const GATHERED: Duration = Duration::from_millis(100);
/// How far in the past a reader begins that goes on behind nothing.
const AGO: Duration = Duration::from_secs(1);
/// The pause after Redis has refused.
const REFUSED: Duration = Duration::from_secs(5);
/// How often Redis is asked whether it is back.
const BACK: Duration = Duration::from_secs(1);

/// What was heard.
#[derive(Clone)]
enum Item {
    Event(Arc<Event>),
    /// Redis cannot be asked, and why; or it can be again.
    Away(Option<Arc<str>>),
    /// Nobody listened for a while: something is missing for those who did before.
    Unheard,
}

#[derive(Default)]
struct State {
    /// The newest last.
    kept: VecDeque<Item>,
    /// How many there were in all: the number of the next one.
    count: u64,
    listeners: BTreeMap<u64, Wanted>,
    /// Those who have gone, and when: they may come back, and are then to miss nothing.
    left: Vec<(Instant, Wanted)>,
    numbers: u64,
    /// How far the readers came.
    cursor: Option<Cursor>,
    /// When the last one ended.
    ended: Option<Instant>,
}

/// The reader, and what it has heard. A std mutex: nothing waits while it is held.
pub(crate) struct Feed {
    state: Mutex<State>,
    /// Tells listeners of new events: their number.
    heard: watch::Sender<u64>,
    /// Tells the reader that other listeners are there.
    changed: watch::Sender<()>,
    running: tokio::sync::Mutex<()>,
    /// Numbers mean something to this process alone.
    boot: String,
}

impl Default for Feed {
    fn default() -> Self {
        let boot = uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
        let (heard, changed) = (watch::channel(0).0, watch::channel(()).0);
        Self { state: Mutex::default(), heard, changed, running: tokio::sync::Mutex::default(), boot }
    }
}

impl Feed {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, item: Item) {
        let count = self.with(|state| {
            if state.kept.len() >= KEPT {
                state.kept.pop_front();
            }
            state.kept.push_back(item);
            state.count += 1;
            state.count
        });
        self.heard.send_replace(count);
    }

    fn id(&self, number: u64) -> String {
        format!("{}.{number}", self.boot)
    }

    /// What all listeners together want to hear, and those who have just left; `None` where nobody listens. An empty set is no
    /// restriction.
    fn wanted(&self) -> Option<Wanted> {
        self.with(|state| {
            state.left.retain(|(at, _)| at.elapsed() < HEARD_FOR);
            let mut all = state.listeners.values();
            let mut sum = all.next()?.clone();
            for one in all.chain(state.left.iter().map(|(_, wanted)| wanted)) {
                for (sum, one) in
                    [(&mut sum.queues, &one.queues), (&mut sum.kinds, &one.kinds), (&mut sum.types, &one.types)]
                {
                    if one.is_empty() {
                        sum.clear();
                    } else if !sum.is_empty() {
                        sum.extend(one.iter().cloned());
                    }
                }
            }
            Some(sum)
        })
    }

    fn leave(&self, number: u64) {
        self.with(|state| {
            if let Some(wanted) = state.listeners.remove(&number) {
                state.left.retain(|(_, other)| *other != wanted);
                state.left.push((Instant::now(), wanted));
            }
        });
    }

    /// What came from this number on, and whether something before it is kept no longer.
    fn since(&self, number: u64) -> (Vec<Item>, u64, bool) {
        self.with(|state| {
            let first = state.count - state.kept.len() as u64;
            let skip = usize::try_from(number.saturating_sub(first)).unwrap_or(usize::MAX);
            (state.kept.iter().skip(skip).cloned().collect(), state.count, number < first)
        })
    }
}

/// Reads as long as somebody listens. One runs at a time: the lock is its.
async fn run(web: Arc<Inner>) {
    // Who comes while the last listener goes finds the lock taken: so it is looked once more who listens.
    while web.feed.wanted().is_some() {
        let Ok(_only) = web.feed.running.try_lock() else { return };
        let mut changed = web.feed.changed.subscribe();
        while let Some(wanted) = web.feed.wanted() {
            if let Err(error) = read(&web, &wanted, &mut changed).await {
                wait_for_redis(&web, &error).await;
            }
        }
    }
}

/// Reads until other things are wanted.
async fn read(web: &Inner, wanted: &Wanted, changed: &mut watch::Receiver<()>) -> Result<(), Error> {
    let mut events = open(web, wanted).await?;
    loop {
        let heard = tokio::select! {
            biased;
            _ = changed.changed() => {
                if web.feed.wanted().as_ref() == Some(wanted) {
                    continue;
                }
                web.feed.with(|state| state.ended = Some(Instant::now()));
                return Ok(());
            }
            heard = events.next() => heard,
        };
        match heard {
            Some(Ok(heard)) => {
                web.feed.with(|state| state.cursor = Some(heard.cursor));
                web.feed.push(Item::Event(heard.event.into()));
            }
            // What comes behind the error is told by the stream itself, a gap too.
            Some(Err(error)) => wait_for_redis(web, &error).await,
            None => return Ok(()),
        }
    }
}

/// Begins to listen, behind what was heard last if that was just now.
async fn open(web: &Inner, wanted: &Wanted) -> Result<EventStream, Error> {
    let mut events = Events::of(&web.redis).kinds(wanted.kinds.iter().filter_map(|kind| kind.parse::<Kind>().ok()));
    events = wanted.queues.iter().fold(events, Events::queue);
    events = wanted.types.iter().fold(events, Events::task_type);
    let (cursor, ended) = web.feed.with(|state| (state.cursor.clone(), state.ended));
    // Behind a cursor, nothing is missing while servers go on telling. Without one, a reader begins a second ago.
    let keeps = if cursor.is_some() { HEARD_FOR } else { AGO };
    if ended.is_some_and(|at| at.elapsed() >= keeps) {
        web.feed.push(Item::Unheard);
    } else if let Some(cursor) = cursor {
        events = events.since(cursor);
    }
    events.stream().await
}

fn gap(why: &str) -> Event {
    let mut gap = Event::new(Kind::Gap, UnixMilli::of_ns(SystemClock.now_ns()));
    gap.note = Some(why.to_owned());
    gap
}

/// Says that Redis is away, and when it is back. While nobody listens, nothing is asked.
async fn wait_for_redis(web: &Inner, error: &Error) {
    web.feed.push(Item::Away(Some(error.to_string().into())));
    if !error.is_transient() {
        return sleep(REFUSED).await;
    }
    while web.feed.wanted().is_some() {
        sleep(BACK).await;
        if web.redis.ping().await.is_ok() {
            web.feed.push(Item::Away(None));
            return;
        }
    }
}

/// One who listens, as long as it is there.
struct Listener {
    web: Arc<Inner>,
    number: u64,
    /// Whether it was here before.
    returns: bool,
    _counted: Counted,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.web.feed.leave(self.number);
        self.web.feed.changed.send_replace(());
    }
}

/// Events that fit, from now on, or behind the one of this id; `None` when there are too many streams. The servers of which nothing is heard are
/// named first.
pub(crate) fn events(
    web: Arc<Inner>,
    who: Identity,
    wanted: Wanted,
    behind: Option<&str>,
    unaware: &[String],
) -> Option<impl Stream<Item = Result<Bytes, Infallible>> + Send + use<>> {
    let (counted, returns) = (Counted::new(&web.live)?, behind.is_some());
    let heard = web.feed.heard.subscribe();
    let now = *heard.borrow();
    let number = behind.and_then(|id| id.strip_prefix(&format!("{}.", web.feed.boot))?.parse().ok());
    let known = number.filter(|number| *number <= now);
    let next = known.unwrap_or(now);
    let listener = web.feed.with(|state| {
        state.numbers += 1;
        state.listeners.insert(state.numbers, wanted.clone());
        Listener { web: web.clone(), number: state.numbers, returns, _counted: counted }
    });
    web.feed.changed.send_replace(());
    let id = web.feed.id(next);
    let start = json!({ "unaware_servers": unaware });
    let mut first = format!("retry: 2000\nid: {id}\nevent: start\ndata: {start}\n\n");
    if returns && known.is_none() {
        let gap = gap("the dashboard was started anew meanwhile");
        first.push_str(&told(&web, &who, &wanted, &gap, next).unwrap_or_default());
    }
    let state = (listener, heard, who, wanted, next, Some(first));
    Some(stream::unfold(state, async |(listener, mut heard, who, wanted, mut next, first)| {
        let web = &listener.web;
        // Each stream sees to it that somebody reads: whoever did may have ended just when this one came.
        tokio::spawn(run(web.clone()));
        let mut text = first.unwrap_or_default();
        while text.is_empty() {
            if *heard.borrow_and_update() == next {
                if timeout(SIGN_OF_LIFE, heard.changed()).await.is_err() {
                    // The number too: what was not for this one need not be looked at again.
                    text = format!("id: {}\n: still here\n\n", web.feed.id(next));
                    break;
                }
                sleep(GATHERED).await;
            }
            let (items, count, is_late) = web.feed.since(next);
            if is_late {
                let gap = gap("this listener is slower than what happens");
                text.push_str(&told(web, &who, &wanted, &gap, next).unwrap_or_default());
            }
            let from = count - items.len() as u64;
            for (item, number) in items.iter().zip(from + 1..) {
                text.push_str(&match item {
                    Item::Event(event) => told(web, &who, &wanted, event, number).unwrap_or_default(),
                    Item::Away(Some(error)) => notice(&json!({ "redis": "away", "error": **error })),
                    Item::Away(None) => notice(&json!({ "redis": "back" })),
                    Item::Unheard if listener.returns => {
                        told(web, &who, &wanted, &gap("nobody listened for a while"), number).unwrap_or_default()
                    }
                    Item::Unheard => String::new(),
                });
            }
            next = count;
        }
        Some((Ok(Bytes::from(text)), (listener, heard, who, wanted, next, None)))
    }))
}

fn notice(what: &serde_json::Value) -> String {
    format!("event: notice\ndata: {what}\n\n")
}

/// The event for one who may see it and wants it.
fn told(web: &Inner, who: &Identity, wanted: &Wanted, event: &Event, number: u64) -> Option<String> {
    // What operators do is read from the audit.
    let may = event.kind != Kind::Operator || who.role().allows(Permission::Audit);
    let sees = match &event.queue {
        Some(queues) if event.kind == Kind::Operator => who.sees_each(queues),
        Some(queue) => who.sees(queue),
        None => event.kind != Kind::Operator || who.sees_all(),
    };
    if !may || !sees || !wanted.wants(event) {
        return None;
    }
    let data = web.redact.event(event.clone()).to_json();
    Some(format!("id: {}\nevent: happened\ndata: {data}\n\n", web.feed.id(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(queues: &[&str], kinds: &[&str]) -> Wanted {
        let mut wanted = Wanted::default();
        wanted.queues = queues.iter().map(|name| (*name).to_owned()).collect();
        wanted.kinds = kinds.iter().map(|name| (*name).to_owned()).collect();
        wanted
    }

    #[test]
    fn the_reader_wants_what_any_listener_wants() {
        let feed = Feed::default();
        assert_eq!(feed.wanted(), None);
        let listen = |number, wanted| feed.with(|state| state.listeners.insert(number, wanted));
        listen(1, wants(&["a"], &["failed"]));
        assert_eq!(feed.wanted(), Some(wants(&["a"], &["failed"])));
        listen(2, wants(&["b"], &["archived"]));
        assert_eq!(feed.wanted(), Some(wants(&["a", "b"], &["archived", "failed"])));
        listen(3, wants(&["c"], &[]));
        assert_eq!(feed.wanted(), Some(wants(&["a", "b", "c"], &[])), "all kinds are more than some");
        listen(4, wants(&["c"], &["failed"]));
        assert_eq!(feed.wanted(), Some(wants(&["a", "b", "c"], &[])), "and stay so");
    }

    #[test]
    fn who_has_just_left_misses_nothing_that_others_do_not_want() {
        let feed = Feed::default();
        feed.with(|state| state.listeners.insert(1, wants(&["a"], &["failed"])));
        feed.with(|state| state.listeners.insert(2, wants(&["b"], &["failed"])));
        feed.leave(1);
        assert_eq!(feed.wanted(), Some(wants(&["a", "b"], &["failed"])));
        feed.with(|state| state.left[0].0 -= HEARD_FOR);
        assert_eq!(feed.wanted(), Some(wants(&["b"], &["failed"])));
        feed.leave(2);
        assert_eq!(feed.wanted(), None, "nothing is read for those who have left alone");
    }

    #[test]
    fn what_is_kept_no_longer_is_known_to_be_missing() {
        let feed = Feed::default();
        for _ in 0..KEPT + 5 {
            feed.push(Item::Event(gap("x").into()));
        }
        let (items, count, is_late) = feed.since(0);
        assert_eq!((items.len(), count, is_late), (KEPT, KEPT as u64 + 5, true));
        let (items, _, is_late) = feed.since(KEPT as u64 + 3);
        assert_eq!((items.len(), is_late), (2, false));
        let (items, _, is_late) = feed.since(5);
        assert_eq!((items.len(), is_late), (KEPT, false));
    }
}

//! Listening: reads the streams, and says now and then that somebody does.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use queue_core::clock::UnixMilli;
use queue_core::event::{Event, Kind, Wanted};
use queue_core::keys;
use queue_core::limits::{EVENTS_TTL_SECS, HEARD_FOR, LISTENER_RENEWAL};
use queue_core::{Clock as _, SystemClock};
use tokio::time::Instant;

use super::cursor::{Cursor, Position, Positions, Source, order};
use crate::broker::Broker;
use crate::broker::events::{LOOK, RawEntry};
use crate::clock::RedisClock;
use crate::connection::Redis;
use crate::error::Error;

/// The pause between two looks that find nothing.
const PAUSE: Duration = Duration::from_millis(200);
/// How often to look which queues there are.
const LISTING: Duration = Duration::from_secs(1);
/// The pause after one that failed.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);
/// How far in the past to begin: the clocks of processes and of Redis differ by up to this.
const BEFORE_MS: i64 = 1_000;
/// What is older stands in no stream of a queue any more. The minute is for clocks that differ.
const GONE_MS: i64 = (EVENTS_TTL_SECS + 60) * 1_000;
/// So many processes are known by the numbers of their entries; then they are learned anew.
const MOST_TELLERS: usize = 10_000;

/// An event, and how to go on behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heard {
    /// What has happened.
    pub event: Event,
    /// Where to go on after it.
    pub cursor: Cursor,
}

/// The events from [`Events::stream`](super::Events::stream).
///
/// It does not end. After an error it goes on where it was when it is polled again, which then waits for a second. Redis is
/// asked only while it is polled, about five times a second: one that is not polled for 30 s is no longer told anything, and
/// is told of the gap when it is polled again. Dropping it ends it; servers go on telling for up to 30 s.
pub struct EventStream(Pin<Box<dyn Stream<Item = Result<Heard, Error>> + Send>>);

queue_core::debug_some!(EventStream);

impl Stream for EventStream {
    type Item = Result<Heard, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

impl EventStream {
    pub(super) async fn open(redis: &Redis, wanted: Wanted, since: Option<Cursor>) -> Result<Self, Error> {
        let mut listening = Listening::new(redis, wanted, since).await?;
        listening.renew().await?;
        let next = |mut listening: Listening| async {
            let item = listening.next().await;
            Some((item, listening))
        };
        Ok(Self(Box::pin(unfold(listening, next))))
    }
}

struct Listening {
    broker: Broker,
    clock: RedisClock,
    wanted: Wanted,
    who: Arc<str>,
    /// The name of the one from whose cursor this one goes on, until it is known whether that one was heard until then. Its own name is
    /// another one: whoever goes on from the same cursor later has to hear of what this one has missed.
    before: Option<Arc<str>>,
    began: i64,
    sources: Vec<Source>,
    positions: Arc<Positions>,
    /// Whether the positions come from an earlier listener.
    is_resumed: bool,
    /// The number of the last entry of each process, by stream.
    numbers: HashMap<(Source, String), u64>,
    ready: VecDeque<Heard>,
    renewed: Option<Instant>,
    listed: Option<Instant>,
    has_failed: bool,
    /// Whether a stream may have more than was read of it.
    is_behind: bool,
}

impl Listening {
    async fn new(redis: &Redis, wanted: Wanted, since: Option<Cursor>) -> Result<Self, Error> {
        let clock = RedisClock::new(Arc::new(SystemClock));
        clock.compare(redis).await?;
        let (before, began, positions) = match &since {
            Some(cursor) => (Some(cursor.who.clone()), cursor.began, cursor.positions()),
            None => (None, clock.now_ms().saturating_sub(BEFORE_MS), Positions::new()),
        };
        Ok(Self {
            broker: Broker::new(redis.clone()),
            clock,
            wanted,
            who: uuid::Uuid::new_v4().to_string().into(),
            before,
            began,
            sources: Vec::new(),
            positions: Arc::new(positions),
            is_resumed: since.is_some(),
            numbers: HashMap::new(),
            ready: VecDeque::new(),
            renewed: None,
            listed: None,
            has_failed: false,
            is_behind: true,
        })
    }

    async fn next(&mut self) -> Result<Heard, Error> {
        if std::mem::take(&mut self.has_failed) {
            tokio::time::sleep(AFTER_A_FAILURE).await;
        }
        let next = self.try_next().await;
        self.has_failed = next.is_err();
        next
    }

    async fn try_next(&mut self) -> Result<Heard, Error> {
        loop {
            if self.renewed.is_none_or(|renewed| renewed.elapsed() >= LISTENER_RENEWAL) {
                self.renew().await?;
            }
            if let Some(heard) = self.ready.pop_front() {
                return Ok(heard);
            }
            if !self.look().await? {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Says that somebody listens.
    async fn renew(&mut self) -> Result<(), Error> {
        self.clock.compare(self.broker.redis()).await?;
        let now = self.clock.now_ms();
        let lasts = i64::try_from(HEARD_FOR.as_millis()).unwrap_or(i64::MAX);
        self.wanted.until = now.saturating_add(lasts);
        let was = self.before.as_ref().unwrap_or(&self.who);
        let was_heard = self.broker.listen(&self.who, was, &self.wanted, now).await?;
        self.before = None;
        self.list().await?;
        let is_first = self.renewed.is_none();
        if is_first && self.is_resumed {
            self.look_for_trimmed().await?;
        }
        if !was_heard && (!is_first || self.is_resumed) {
            self.miss("nobody was told that this listener is there");
        }
        self.renewed = Some(Instant::now());
        Ok(())
    }

    /// Looks which queues there are.
    async fn list(&mut self) -> Result<(), Error> {
        let mut queues: Vec<String> = if self.wanted.queues.is_empty() {
            self.broker.redis().command("SMEMBERS", keys::QUEUES).await?
        } else {
            self.wanted.queues.iter().cloned().collect()
        };
        queues.sort_unstable();
        self.sources = vec![Source::Servers];
        if self.wanted.kinds.is_empty() || self.wanted.kinds.contains(Kind::Operator.as_str()) {
            self.sources.push(Source::Audit);
        }
        self.sources.extend(queues.into_iter().map(Source::Queue));
        self.listed = Some(Instant::now());
        Ok(())
    }

    /// Whether what was heard last still stands in the streams: else what came after it may be gone too.
    async fn look_for_trimmed(&mut self) -> Result<(), Error> {
        let known: Vec<(Source, String)> = self
            .sources
            .iter()
            .filter_map(|source| Some((source.clone(), self.positions.get(source)?.id.clone())))
            .collect();
        let from: Vec<(String, String)> = known.iter().map(|(source, id)| (source.key(), id.clone())).collect();
        let found = self.broker.read_events(&from, 1).await?;
        let is_there =
            |(_, id): &(Source, String), found: &Vec<RawEntry>| found.first().is_some_and(|(first, _)| first == id);
        let gone = known.iter().zip(&found).filter(|(known, found)| !is_there(known, found)).count();
        if gone > 0 {
            self.miss("what came next is no longer kept");
        }
        Ok(())
    }

    /// Something was missed, nobody knows what.
    fn miss(&mut self, why: &str) {
        let mut gap = Event::new(Kind::Gap, UnixMilli(self.clock.now_ms()));
        gap.note = Some(why.to_owned());
        let cursor =
            self.ready.back().map_or_else(|| self.cursor(&Arc::from(Vec::new()), 0, None), |last| last.cursor.clone());
        self.ready.push_back(Heard { event: gap, cursor });
    }

    fn cursor(&self, steps: &Arc<[(Source, String)]>, last: usize, heard: Option<usize>) -> Cursor {
        let (who, base) = (self.who.clone(), self.positions.clone());
        Cursor { who, began: self.began, base, steps: steps.clone(), last, heard }
    }

    /// Reads what is new; whether there was anything.
    async fn look(&mut self) -> Result<bool, Error> {
        if self.listed.is_none_or(|listed| listed.elapsed() >= LISTING) {
            self.list().await?;
            self.forget();
        }
        let from: Vec<(String, String)> =
            self.sources.iter().map(|source| (source.key(), self.start(source))).collect();
        let mut found = self.broker.read_events(&from, LOOK + 1).await?;
        self.is_behind = found.iter().any(|entries| entries.len() > LOOK);
        let mut is_trimmed = false;
        for (source, entries) in self.sources.iter().zip(&mut found) {
            let Some(Position { id, heard: None }) = self.positions.get(source) else { continue };
            if entries.first().is_some_and(|(first, _)| first == id) {
                entries.remove(0);
            } else {
                // In a stream where nothing happens for long, the last that was read goes too.
                is_trimmed |= entries.len() > LOOK;
            }
        }
        if is_trimmed {
            self.miss("what came next is no longer kept");
        }
        let sources = self.sources.iter();
        let mut entries: Vec<(Source, RawEntry)> = sources
            .zip(found)
            .flat_map(|(source, entries)| entries.into_iter().map(|entry| (source.clone(), entry)))
            .collect();
        if entries.is_empty() {
            return Ok(false);
        }
        // Of several streams the older entry comes first.
        entries.sort_by_cached_key(|(_, (id, _))| order(id));
        let steps: Arc<[_]> = entries.iter().map(|(source, (id, _))| (source.clone(), id.clone())).collect();
        for (at, (source, (id, fields))) in entries.into_iter().enumerate() {
            self.read(&steps, at, &source, &id, &fields);
        }
        self.positions = Arc::new(self.cursor(&steps, steps.len(), None).positions());
        Ok(true)
    }

    /// Forgets queues of which nothing is kept any more: else cursors grow with every queue that ever was. All that is as old was
    /// read, so that nothing is read again where their streams begin.
    fn forget(&mut self) {
        let gone = self.clock.now_ms().saturating_sub(GONE_MS);
        if self.is_behind {
            return;
        }
        self.began = self.began.max(gone);
        let is_gone = |source: &Source, Position { id, .. }: &Position| {
            let ms = order(id).and_then(|(ms, _)| i64::try_from(ms).ok());
            matches!(source, Source::Queue(_)) && ms.is_some_and(|ms| ms < gone)
        };
        if self.positions.iter().any(|(source, position)| is_gone(source, position)) {
            Arc::make_mut(&mut self.positions).retain(|source, position| !is_gone(source, position));
        }
    }

    /// Where the next look at a stream begins.
    fn start(&self, source: &Source) -> String {
        match self.positions.get(source) {
            // With it: whether it is still there tells whether what came next is.
            Some(Position { id, .. }) => id.clone(),
            None => self.began.to_string(),
        }
    }

    /// What an entry tells.
    fn read(
        &mut self,
        steps: &Arc<[(Source, String)]>,
        at: usize,
        source: &Source,
        id: &str,
        fields: &HashMap<String, Vec<u8>>,
    ) {
        let text = |field: &str| fields.get(field).map(|value| String::from_utf8_lossy(value));
        let mut events: Vec<Event> = Vec::new();
        if *source == Source::Audit {
            events.extend(operator(id, &text));
        } else if let (Some(server), Some(lines)) = (text("s"), text("e")) {
            let number = text("n").and_then(|number| number.parse().ok()).unwrap_or(0);
            self.count(source, &server, number);
            events.extend(lines.lines().filter_map(Event::parse));
            let of_servers = events.iter_mut().filter(|event| event.kind != Kind::Enqueued);
            of_servers.for_each(|event| event.server = Some(server.clone().into_owned()));
        }
        let before =
            self.positions.get(source).filter(|position| position.id == id).and_then(|position| position.heard);
        let all = events.len();
        for (number, event) in events.into_iter().enumerate().skip(before.unwrap_or(0)) {
            if self.wanted.wants(&event) {
                let heard = Some(number + 1).filter(|heard| *heard < all);
                let cursor = self.cursor(steps, at, heard);
                self.ready.push_back(Heard { event, cursor });
            }
        }
    }

    /// Notices entries of a process that are missing.
    fn count(&mut self, source: &Source, server: &str, number: u64) {
        if self.numbers.len() >= MOST_TELLERS {
            self.numbers.clear();
        }
        let last = self.numbers.insert((source.clone(), server.to_owned()), number);
        if last.is_some_and(|last| last.saturating_add(1) != number) {
            self.miss(&format!("entries of {server} are missing"));
        }
    }
}

/// What an entry of the audit says is about to be done; how it ended is another entry, and no event.
fn operator<'a>(id: &str, text: &impl Fn(&str) -> Option<std::borrow::Cow<'a, str>>) -> Option<Event> {
    let at = UnixMilli(id.split('-').next()?.parse().ok()?);
    let mut event = Event::new(Kind::Operator, at);
    event.action = Some(text("action")?.into_owned());
    event.by = text("actor").map(|actor| actor.into_owned());
    event.queue = text("queue").map(|queue| queue.into_owned());
    let ids: Vec<String> = text("ids").and_then(|ids| serde_json::from_str(&ids).ok()).unwrap_or_default();
    event.count = Some(ids.len() as u64).filter(|count| *count > 1);
    event.id = ids.into_iter().next();
    event.note = text("filter").or_else(|| text("entry")).map(|note| note.into_owned());
    Some(event)
}

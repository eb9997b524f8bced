//! The overview, read once for all who look.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::{Stream, StreamExt as _, stream};
use queue_admin::view::{self, Queue};
use queue_admin::{Board, Error, Operation, ServerInfo};
use serde::Serialize;
use tokio::join;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::Inner;
use crate::auth::Identity;

/// Time between two looks while somebody watches, and how old an answer may be.
const EVERY: Duration = Duration::from_secs(2);
/// The share of the time that looks may take is a fifth: the pause is at least four times as long as the look.
const PAUSE_FACTOR: u32 = 4;
/// A sign of life, so that proxies do not cut a silent stream.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Most streams at once.
const STREAMS: usize = 1_000;
/// The youngest operations that are looked at: each of them is a command more.
const OPERATIONS: usize = 10;
/// How long one of them is shown that has ended.
const JUST: chrono::TimeDelta = chrono::TimeDelta::minutes(1);
/// How far back rates look.
const RATE_WINDOW: Duration = Duration::from_secs(30);

/// A queue on the overview.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    queue: Option<Queue>,
    /// Where the queue cannot be read, its name stands here.
    #[serde(rename = "queue", skip_serializing_if = "Option::is_none")]
    unread: Option<String>,
    error: Option<String>,
    overdue: u64,
    aggregating_exact: bool,
    /// Finished tasks and failures a second, over the last 30 s; null until it was looked at twice.
    processed_per_s: Option<f64>,
    failed_per_s: Option<f64>,
    /// Servers that serve it; null where servers cannot be read.
    servers: Option<usize>,
    #[serde(skip)]
    name: String,
}

/// All at a glance.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    at: DateTime<Utc>,
    target: &'a str,
    queues: Vec<&'a Row>,
    servers: Servers,
    /// Operations that are under way, or have just ended.
    operations: Vec<&'a Operation>,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Servers {
    count: usize,
    concurrency: u64,
    busy: usize,
}

/// What was read at one moment.
#[derive(Debug)]
pub(crate) struct Sample {
    at: DateTime<Utc>,
    rows: Vec<Row>,
    servers: Servers,
    pub(crate) server_infos: Vec<ServerInfo>,
    operations: Vec<Operation>,
    /// The text for those who see all queues.
    whole: Bytes,
}

/// What was read last, or why nothing could be.
pub(crate) type Look = Result<Arc<Sample>, Error>;

/// Counters by queue, as they were.
type Counts = BTreeMap<String, (u64, u64)>;

#[derive(Default)]
struct Reading {
    last: Option<(Instant, Look)>,
    past: VecDeque<(Instant, Counts)>,
}

/// The looks at the overview.
pub(crate) struct Live {
    reading: Mutex<Reading>,
    looks: watch::Sender<Option<Look>>,
    running: Mutex<()>,
    streams: Arc<AtomicUsize>,
    events: AtomicU64,
}

impl Default for Live {
    fn default() -> Self {
        let (looks, _) = watch::channel(None);
        Self {
            reading: Mutex::default(),
            looks,
            running: Mutex::default(),
            streams: Arc::default(),
            events: AtomicU64::new(0),
        }
    }
}

/// The overview, if it is young enough; else it is read. Whoever asks meanwhile waits for the same answer.
pub(crate) async fn look(web: &Inner) -> Look {
    let mut reading = web.live.reading.lock().await;
    if let Some((at, look)) = &reading.last
        && at.elapsed() < EVERY
    {
        return look.clone();
    }
    let look = read(web, &mut reading.past).await.map(Arc::new);
    reading.last = Some((Instant::now(), look.clone()));
    look
}

async fn read(web: &Inner, past: &mut VecDeque<(Instant, Counts)>) -> Result<Sample, Error> {
    // None waits for another one: a Redis that is far away is waited for four times, not ten.
    let (board, servers, operations) =
        join!(web.inspector.board(), web.inspector.servers(), web.inspector.operations(OPERATIONS));
    let (Board { rows, at, .. }, mut operations) = (board?, operations?);
    // A server's entry that cannot be read costs no queue.
    let servers = match servers {
        Err(error) if error.is_transient() => return Err(error),
        servers => servers.ok(),
    };
    operations.retain(|operation| operation.ended_at.is_none_or(|ended| at - ended < JUST));
    let now = Instant::now();
    let counted = rows.iter().filter_map(|row| row.queue.as_ref().ok());
    let counts: Counts = counted.map(|info| (info.name.clone(), (info.processed_total, info.failed_total))).collect();
    while past.front().is_some_and(|(at, _)| now.duration_since(*at) > RATE_WINDOW) {
        past.pop_front();
    }
    let rate = |name: &str, of: fn(&(u64, u64)) -> u64| {
        let (since, before) = past.front()?;
        let grown = of(counts.get(name)?).checked_sub(of(before.get(name)?))?;
        Some((grown as f64 / now.duration_since(*since).as_secs_f64().max(0.001) * 100.0).round() / 100.0)
    };
    let serving = |name: &str| {
        servers.as_ref().map(|servers| servers.iter().filter(|server| server.queues.contains_key(name)).count())
    };
    let rows: Vec<Row> = rows
        .iter()
        .map(|row| Row {
            queue: row.queue.as_ref().ok().map(Queue::from),
            unread: row.queue.is_err().then(|| row.name.clone()),
            error: row.queue.as_ref().err().cloned(),
            overdue: row.overdue,
            aggregating_exact: row.aggregating_exact,
            processed_per_s: rate(&row.name, |counts| counts.0),
            failed_per_s: rate(&row.name, |counts| counts.1),
            servers: serving(&row.name),
            name: row.name.clone(),
        })
        .collect();
    past.push_back((now, counts));
    let server_infos = servers.unwrap_or_default();
    let servers = Servers {
        count: server_infos.len(),
        concurrency: server_infos.iter().map(|server| u64::try_from(server.concurrency).unwrap_or(0)).sum(),
        busy: server_infos.iter().map(|server| server.workers.len()).sum(),
    };
    let mut sample = Sample { at, rows, servers, server_infos, operations, whole: Bytes::new() };
    sample.whole = sample.text(web, None);
    Ok(sample)
}

impl Sample {
    fn text(&self, web: &Inner, who: Option<&Identity>) -> Bytes {
        let queues = self.rows.iter().filter(|row| who.is_none_or(|who| who.sees(&row.name))).collect();
        let sees = |operation: &&Operation| who.is_none_or(|who| who.sees_all_of(&operation.spec.queues));
        let operations = self.operations.iter().filter(sees).collect();
        let shown = Shown { at: self.at, target: web.redis.target(), queues, servers: self.servers, operations };
        serde_json::to_vec(&shown).unwrap_or_default().into()
    }

    /// The JSON of what this one may see.
    pub(crate) fn json(&self, web: &Inner, who: &Identity) -> Bytes {
        if who.sees_all() { self.whole.clone() } else { self.text(web, Some(who)) }
    }

    pub(crate) fn rows<'a>(&'a self, who: &'a Identity) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(|row| who.sees(&row.name))
    }

    /// The servers that serve a queue of these.
    pub(crate) fn servers_seen<'a>(&'a self, who: &'a Identity) -> impl Iterator<Item = &'a ServerInfo> {
        self.server_infos.iter().filter(|server| server.queues.keys().any(|queue| who.sees(queue)))
    }

    pub(crate) fn servers(&self, web: &Inner, who: &Identity) -> Vec<view::Server> {
        self.server_infos.iter().map(|server| shown(web, who, server.clone()).into()).collect()
    }
}

/// The server as somebody may see it.
pub(crate) fn shown(web: &Inner, who: &Identity, mut server: ServerInfo) -> ServerInfo {
    server.queues.retain(|queue, _| who.sees(queue));
    server.workers.retain(|worker| who.sees(&worker.queue));
    web.redact.server(server)
}

/// Looks again and again, as long as somebody watches. One runs at a time: the lock is its.
async fn run(web: Arc<Inner>) {
    let live = &web.live;
    // Who comes while the last look ends finds the lock taken: so it is looked once more who watches.
    while live.looks.receiver_count() > 0 {
        let Ok(_only) = live.running.try_lock() else { return };
        while live.looks.receiver_count() > 0 {
            let started = Instant::now();
            let look = look(&web).await;
            // A look that Redis did not answer took it no time, and the browsers want to know when it is back.
            let pause = if look.is_ok() { EVERY.max(started.elapsed() * PAUSE_FACTOR) } else { EVERY };
            live.events.fetch_add(1, Ordering::Relaxed);
            live.looks.send_replace(Some(look));
            sleep(pause).await;
        }
        live.looks.send_replace(None);
    }
}

/// A stream that counts as long as it is there.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// One more; `None` when there are too many.
    pub(crate) fn new(live: &Live) -> Option<Self> {
        let counted = Self(live.streams.clone());
        let before = live.streams.fetch_add(1, Ordering::AcqRel);
        (before < STREAMS).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The overview as events, from now on; `None` when there are too many streams.
pub(crate) fn events(web: Arc<Inner>, who: Identity) -> Option<impl Stream<Item = Result<Bytes, Infallible>> + Send> {
    let counted = Counted::new(&web.live)?;
    let looks = web.live.looks.subscribe();
    let events = stream::unfold((looks, web, who, counted, true), async |(mut looks, web, who, counted, is_first)| {
        let text = if is_first && looks.borrow_and_update().is_none() {
            // Something at once, so that the browser knows that it is connected.
            vec![Bytes::from_static(b"retry: 2000\n\n")]
        } else {
            // Each stream sees to it that somebody looks: whoever did may have ended just when this one came.
            tokio::spawn(run(web.clone()));
            match if is_first { Ok(Ok(())) } else { timeout(SIGN_OF_LIFE, looks.changed()).await } {
                Err(_) => vec![Bytes::from_static(b": still here\n\n")],
                Ok(Err(_)) => return None,
                Ok(Ok(())) => {
                    let look = looks.borrow_and_update().clone();
                    event(&web, &who, look.as_ref())
                }
            }
        };
        Some((stream::iter(text.into_iter().map(Ok)), (looks, web, who, counted, false)))
    });
    Some(events.flatten())
}

/// An event in parts: all streams share the text of the overview.
fn event(web: &Inner, who: &Identity, look: Option<&Look>) -> Vec<Bytes> {
    let id = web.live.events.load(Ordering::Relaxed);
    match look {
        None => vec![Bytes::from_static(b": nothing yet\n\n")],
        Some(Ok(sample)) => {
            let head = format!("id: {id}\nevent: overview\ndata: ").into();
            vec![head, sample.json(web, who), Bytes::from_static(b"\n\n")]
        }
        Some(Err(error)) => {
            let notice = serde_json::json!({ "redis": "away", "error": error.to_string() });
            vec![format!("id: {id}\nevent: notice\ndata: {notice}\n\n").into()]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each had a copy: 300 that nobody read, of 5,000 queues, took 600 MB.
    #[test]
    fn all_streams_share_one_text() {
        let redis = queue_redis::Redis::lazy("redis://127.0.0.1:1", queue_redis::RedisOptions::default()).unwrap();
        let web = crate::Web::builder(redis).build();
        let whole = Bytes::from("{}".to_owned());
        let (servers, operations) = (Servers::default(), Vec::new());
        let sample =
            Sample { at: DateTime::UNIX_EPOCH, rows: Vec::new(), servers, server_infos: Vec::new(), operations, whole };
        let who = Identity::new("ann", queue_admin::Role::Admin);
        let look: Look = Ok(Arc::new(sample));
        let [first, second] = [(); 2].map(|()| event(&web.inner, &who, Some(&look)));
        assert_eq!(first.concat(), b"id: 0\nevent: overview\ndata: {}\n\n");
        assert!(first.iter().any(|part| {
            second.iter().any(|other| part.len() == 2 && part[..] == b"{}"[..] && part.as_ptr() == other.as_ptr())
        }));
    }
}

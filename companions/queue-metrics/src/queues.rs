//! What is in the queues, asked from Redis at each scrape.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prometheus::Registry;
use queue_admin::{Error, Inspector, QueueInfo, ServerInfo};
use queue_core::clock::UnixSecond;
use queue_redis::log::{info, warn};
use tracing::debug;

use crate::families::sound;
use crate::memory::Memory;
use crate::rates::Rates;
use crate::shown::{NONE, Seen, Shown};
use crate::text;

/// Queues whose memory is measured together: some thousand commands in a round trip.
const MEASURED_AT_ONCE: usize = 20;
/// How long a scrape measures memory. Queues that are left have their turn at the next one.
const MEASURED_FOR: Duration = Duration::from_secs(2);

/// How long a scrape counts: several Prometheus servers, or an impatient human, cost no more than one.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// The queues of one Redis as metrics; clones share what they know.
///
/// Names, types and labels are those of Go asynq's exporter, so that its dashboards work; others are added. A
/// queue that cannot be asked is missing in these, and has `asynq_queue_up` 0.
#[derive(Debug, Clone)]
pub struct QueueMetrics {
    inspector: Inspector,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    memory: Memory,
    rates: Rates,
    last: tokio::sync::Mutex<Option<(Instant, String)>>,
    /// Whether the last scrape had something to complain about, which is logged once.
    failing: AtomicBool,
}

impl QueueMetrics {
    /// The metrics of the queues that this inspector sees. Their memory is estimated once a minute.
    pub fn new(inspector: Inspector) -> Self {
        Self::with_memory(inspector, Some(Duration::from_secs(60)))
    }

    /// The same, with another time between two estimates of a queue's memory; `None` for none at all. Redis
    /// measures up to 220 tasks for one.
    pub fn with_memory(inspector: Inspector, interval: Option<Duration>) -> Self {
        let inner = Inner {
            memory: Memory::new(interval),
            rates: Rates::default(),
            last: tokio::sync::Mutex::default(),
            failing: AtomicBool::default(),
        };
        Self { inspector, inner: Arc::new(inner) }
    }

    /// All metrics in Prometheus' text format, at most a second old. While Redis is away, that is little
    /// more than `asynq_redis_up 0`.
    pub async fn text(&self) -> String {
        let mut last = self.inner.last.lock().await;
        if let Some((_, text)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH_FOR) {
            return text.clone();
        }
        let text = text(&self.gather().await);
        *last = Some((Instant::now(), text.clone()));
        text
    }

    /// Asks Redis, and gives a registry with what it said.
    pub async fn gather(&self) -> Registry {
        let began = Instant::now();
        let shown = Shown::new();
        let complaint = match self.inspector.queues().await {
            Ok(queues) => {
                shown.redis_up.set(1);
                self.inner.memory.keep(&queues);
                // A node that hangs is waited for in both at the same time, and is not asked again: Prometheus does not wait for long.
                let ((seen, complaint), servers) = tokio::join!(self.queues(&queues, &shown), self.servers(&shown));
                let answered: Vec<String> = seen.iter().map(|queue| queue.name.clone()).collect();
                let complaint = self.limits(&answered, servers.is_ok(), &shown).await.err().or(complaint);
                match servers {
                    Ok(servers) => {
                        let looks = seen.iter().map(|queue| (queue.name.clone(), queue.look(0, &servers)));
                        for (queue, told) in self.inner.rates.see(looks.collect()) {
                            shown.forecast(&queue, &told);
                        }
                        complaint
                    }
                    Err(error) => Some(error.to_string()),
                }
            }
            Err(error) => Some(error.to_string()),
        };
        self.tell(complaint);
        shown.scrape_seconds.set(began.elapsed().as_secs_f64());
        let registry = Registry::new();
        sound("the metrics of queues", shown.register(&registry));
        registry
    }

    /// Shows all queues, read together; returns them, and what the last one that failed has to say.
    async fn queues(&self, queues: &[String], shown: &Shown) -> (Vec<QueueInfo>, Option<String>) {
        let answers = match self.look(queues).await {
            Ok(answers) => answers,
            Err(error) => {
                queues.iter().for_each(|queue| shown.queue_is_down(queue));
                return (Vec::new(), Some(error.to_string()));
            }
        };
        let (mut all, mut complaint) = (Vec::new(), None);
        for (queue, answer) in answers {
            match answer {
                Ok(seen) => {
                    shown.queue(&seen);
                    all.push(seen.info);
                }
                Err(why) => {
                    shown.queue_is_down(&queue);
                    complaint = Some(format!("queue {queue:?}: {why}"));
                }
            }
        }
        (all, complaint)
    }

    async fn look(&self, queues: &[String]) -> Result<Vec<(String, Result<Seen, String>)>, Error> {
        let board = self.inspector.board_of(queues.to_vec()).await?;
        let sound = board.rows.iter().filter(|row| row.queue.is_ok()).map(|row| row.name.clone());
        let sound: Vec<String> = sound.collect();
        let first_due = self.inspector.first_due(&sound).await?;
        let oldest = self.inspector.oldest_outcomes(&sound).await?;
        self.measure(sound).await;
        let since = |second: Option<UnixSecond>| {
            let age = |at: UnixSecond| u64::try_from(board.at.timestamp().saturating_sub(at.0)).unwrap_or(0);
            Duration::from_secs(second.map_or(0, age))
        };
        let mut more = first_due.into_iter().zip(oldest);
        let told = board.rows.into_iter().map(|row| {
            let seen = row.queue.and_then(|info| {
                let (first_due, oldest) = more.next().unwrap_or((Ok(None), Ok(None)));
                let overdue = since(first_due.map_err(|error| error.to_string())?);
                let unrecorded = since(oldest.map_err(|error| error.to_string())?);
                Ok(Seen { info, memory: self.inner.memory.last(&row.name), overdue, unrecorded })
            });
            (row.name, seen)
        });
        Ok(told.collect())
    }

    /// Shows the limits of those queues that have some; and which servers are unaware of them, if servers can be asked.
    async fn limits(&self, queues: &[String], with_servers: bool, shown: &Shown) -> Result<(), String> {
        let failed = |error: Error| error.to_string();
        let limited = self.inspector.limited_queues(queues).await.map_err(failed)?;
        if limited.is_empty() {
            return Ok(());
        }
        let (mut unaware, mut complaint) = (None, Ok(()));
        if with_servers {
            match self.inspector.servers_unaware_of_limits().await {
                Ok(servers) => unaware = Some(servers),
                Err(error) => complaint = Err(error.to_string()),
            }
        }
        for (queue, limits) in limited.iter().zip(self.inspector.limits_of(&limited).await.map_err(failed)?) {
            match limits {
                Ok(limits) => {
                    let unaware = unaware.as_ref().map(|unaware| unaware.get(queue).map_or(0, Vec::len));
                    shown.limits(queue, &limits, unaware);
                }
                // The limits of one queue that cannot be read should not cost those of the others.
                Err(error) => complaint = Err(error.to_string()),
            }
        }
        complaint
    }

    /// Estimates the memory of queues of which the last estimate is old, the oldest first, as far as there is time.
    async fn measure(&self, queues: Vec<String>) {
        let (began, due) = (Instant::now(), self.inner.memory.due(queues));
        for queues in due.chunks(MEASURED_AT_ONCE) {
            match self.inspector.queues_memory(queues).await {
                Ok(measured) => {
                    queues.iter().zip(measured).for_each(|(queue, bytes)| self.inner.memory.learn(queue, bytes))
                }
                // One figure that is missing, or old, should not cost the others.
                Err(error) => debug!(?queues, %error, "the memory of queues cannot be estimated"),
            }
            if began.elapsed() > MEASURED_FOR {
                return;
            }
        }
    }

    async fn servers(&self, shown: &Shown) -> Result<Vec<ServerInfo>, Error> {
        let mut by_status: BTreeMap<String, i64> = BTreeMap::new();
        let servers = self.inspector.servers().await?;
        let (slots, busy) = (shown.slots.with_label_values(NONE), shown.slots_busy.with_label_values(NONE));
        for server in &servers {
            slots.add(server.concurrency.into());
            busy.add(i64::try_from(server.workers.len()).unwrap_or(i64::MAX));
            *by_status.entry(server.status.clone()).or_default() += 1;
        }
        for (status, count) in by_status {
            shown.servers.with_label_values(&[status]).set(count);
        }
        Ok(servers)
    }

    /// Says that a scrape was given up after so long.
    #[cfg(feature = "http")]
    pub(crate) fn took_too_long(&self, limit: Duration) {
        self.tell(Some(format!("a scrape was given up after {limit:?}, because Redis takes too long to answer")));
    }

    /// Logs that something is wrong when that begins, and when it is over.
    fn tell(&self, complaint: Option<String>) {
        let was_failing = self.inner.failing.swap(complaint.is_some(), Ordering::Relaxed);
        match complaint {
            Some(error) if !was_failing => {
                warn!(%error, "not all queues can be shown as metrics");
            }
            None if was_failing => info!("all queues are shown as metrics again"),
            _ => {}
        }
    }
}

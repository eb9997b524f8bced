//! What is in the queues, asked from Redis at each scrape.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use prometheus::Registry;
use queue_admin::{Error, Inspector, Page, QueueInfo, ServerInfo};
use queue_core::TaskState;
use queue_core::clock::UnixSecond;
use queue_redis::log::{info, warn};
use tracing::debug;

use crate::families::sound;
use crate::memory::Memory;
use crate::rates::Rates;
use crate::shown::{Seen, Shown};
use crate::text;

/// Queues that are asked at the same time; the others wait. Less than there are pooled connections.
const AT_ONCE: usize = 4;

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
                let (seen, complaint) = self.queues(&queues, &shown).await;
                let complaint = self.limits(&queues, &shown).await.err().or(complaint);
                match self.servers(&shown).await {
                    Ok(servers) => {
                        let looks = seen.iter().map(|queue| (queue.name.clone(), queue.look(0, &servers)));
                        for (queue, told) in self.inner.rates.see(looks.collect()) {
                            shown.forecast(&queue, &told);
                        }
                        complaint
                    }
                    Err(error) => Some(error),
                }
            }
            Err(error) => Some(error),
        };
        self.tell(complaint);
        shown.scrape_seconds.set(began.elapsed().as_secs_f64());
        let registry = Registry::new();
        sound("the metrics of queues", shown.register(&registry));
        registry
    }

    /// Shows all queues; returns them, and what the last one that failed has to say.
    async fn queues(&self, queues: &[String], shown: &Shown) -> (Vec<QueueInfo>, Option<Error>) {
        let asked = queues.iter().cloned().map(|queue| async move {
            let answer = self.queue(&queue).await;
            (queue, answer)
        });
        let mut answers = futures_util::stream::iter(asked).buffer_unordered(AT_ONCE);
        let (mut all, mut complaint) = (Vec::new(), None);
        while let Some((queue, answer)) = answers.next().await {
            match answer {
                Ok(seen) => {
                    shown.queue(&seen);
                    all.push(seen.info);
                }
                // Somebody has removed it since it was listed.
                Err(Error::QueueNotFound(_)) => {}
                Err(error) => {
                    shown.queue_is_down(&queue);
                    complaint = Some(error);
                }
            }
        }
        (all, complaint)
    }

    async fn queue(&self, queue: &str) -> Result<Seen, Error> {
        let info = self.inspector.queue(queue).await?;
        let mut first_due = None;
        for state in [TaskState::Scheduled, TaskState::Retry] {
            if info.count(state) > 0 {
                let first = self.inspector.tasks(queue, state, Page { skip: 0, size: 1 }).await?;
                first_due = first_due.into_iter().chain(first.first().and_then(|task| task.next_process_at)).min();
            }
        }
        let overdue = first_due.and_then(|due| (info.timestamp - due).to_std().ok()).unwrap_or_default();
        let oldest = self.inspector.oldest_outcome(queue).await?;
        let age = |at: UnixSecond| u64::try_from(info.timestamp.timestamp() - at.0).unwrap_or(0);
        let unrecorded = Duration::from_secs(oldest.map_or(0, age));
        Ok(Seen { info, memory: self.memory(queue).await, overdue, unrecorded })
    }

    /// Shows the limits of those queues that have some.
    async fn limits(&self, queues: &[String], shown: &Shown) -> Result<(), Error> {
        let limited = self.inspector.limited_queues(queues).await?;
        if limited.is_empty() {
            return Ok(());
        }
        let unaware = self.inspector.servers_unaware_of_limits().await?;
        let mut complaint = Ok(());
        for queue in &limited {
            match self.inspector.limits(queue).await {
                Ok(limits) => shown.limits(queue, &limits, unaware.get(queue).map_or(0, Vec::len)),
                // The limits of one queue that cannot be read should not cost those of the others.
                Err(error) => complaint = Err(error),
            }
        }
        complaint
    }

    /// The last estimate, or a new one when that is due.
    async fn memory(&self, queue: &str) -> Option<u64> {
        let (last, is_old) = self.inner.memory.last(queue);
        if !is_old {
            return last;
        }
        match self.inspector.queue_memory(queue).await {
            Ok(bytes) => {
                self.inner.memory.learn(queue, bytes);
                bytes
            }
            // One figure that is missing, or old, should not cost the others.
            Err(error) => {
                debug!(queue, %error, "the memory of a queue cannot be estimated");
                last
            }
        }
    }

    async fn servers(&self, shown: &Shown) -> Result<Vec<ServerInfo>, Error> {
        let mut by_status: BTreeMap<String, i64> = BTreeMap::new();
        let servers = self.inspector.servers().await?;
        for server in &servers {
            shown.slots.add(server.concurrency.into());
            shown.slots_busy.add(i64::try_from(server.workers.len()).unwrap_or(i64::MAX));
            *by_status.entry(server.status.clone()).or_default() += 1;
        }
        for (status, count) in by_status {
            shown.servers.with_label_values(&[status]).set(count);
        }
        Ok(servers)
    }

    /// Logs that something is wrong when that begins, and when it is over.
    fn tell(&self, complaint: Option<Error>) {
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

//! Says what the server is beyond asynq's format, and goes by what operators want of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use queue_core::limits::{MAX_CONCURRENCY, WATCH_POLL};
use queue_core::registry::{FEATURES, Mode, ServerEntry, Want};
use queue_redis::Error;
use queue_redis::service::Service;
use tokio_util::sync::CancellationToken;

use super::heartbeater::Heartbeater;
use super::shared::Shared;
use crate::log::info;

/// How often the entry is written although nothing has changed: half of its life.
const RENEWAL: Duration = Duration::from_secs(12 * 60 * 60);

#[derive(Clone)]
pub(super) struct Steering {
    shared: Arc<Shared>,
    heartbeater: Heartbeater,
    entry: ServerEntry,
    /// What was ordered of this server by its id. Kept although Redis forgets it.
    of_server: Want,
    written: Option<Instant>,
    stop: CancellationToken,
}

impl Service for Steering {
    const NAME: &'static str = "steering";
    const WORK: &'static str = "looking what operators want of this server";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        let (broker, server) = (self.shared.broker.clone(), self.shared.identity.name());
        let name = self.entry.name.as_deref();
        let mut watch = self.shared.wakeups.watch();
        let wants = match &mut watch {
            Some(watch) => watch.wants(&server, name).await,
            None => broker.wants(&server, name).await,
        };
        let wants = match wants {
            // The listening connection is being replaced.
            Err(error) if watch.is_some() && error.is_outage() => broker.wants(&server, name).await?,
            wants => wants?,
        };
        if let Some(want) = wants.of_server {
            self.of_server = self.of_server.renewed(want);
        }
        let entry = self.entry.clone();
        let (before, stop) = (self.state(), self.go_by(wants.of_name));
        if self.state() != before {
            self.shared.wakeups.work.tell_everything();
            info!(
                server = self.shared.identity.id(),
                concurrency = self.shared.slots.total(),
                is_quiet = self.shared.queues.are_held(),
                queues = ?self.shared.queues.weights().collect::<Vec<_>>(),
                "the server goes by what operators want of it"
            );
            // asynq's tools see it before anybody is told that it is so.
            self.heartbeater.beat(false).await?;
        }
        if self.entry != entry {
            self.written = None;
        }
        // Redis wakes this loop only when something has happened, which may be that all keys were lost.
        let mut pause = watch.as_ref().map_or(WATCH_POLL, |watch| watch.rest(RENEWAL));
        if watch.is_some() || self.written.is_none_or(|written| written.elapsed() >= RENEWAL) {
            match broker.write_server_entry(&server, &self.entry).await {
                Ok(()) => self.written = Some(Instant::now()),
                // It is news, and the tasks of a full Redis have to be worked all the same.
                Err(error) if error.is_out_of_memory() => pause = WATCH_POLL,
                Err(error) => return Err(error),
            }
        }
        if stop {
            info!(server = self.shared.identity.id(), "an operator wants the server to end");
            self.stop.cancel();
        }
        Ok(pause)
    }

    async fn wait(&mut self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.shared.wakeups.wants.notified()).await;
    }
}

/// What can be ordered.
type State = (usize, bool, Vec<u32>);

impl Steering {
    /// Triggers `stop` when the server is to end.
    pub(super) fn new(shared: Arc<Shared>, heartbeater: Heartbeater, stop: CancellationToken) -> Self {
        let (options, routes) = (&shared.options, &shared.routes);
        let mut entry = ServerEntry::default();
        entry.name.clone_from(&options.name);
        entry.labels.clone_from(&options.labels);
        entry.version = env!("CARGO_PKG_VERSION").to_owned();
        entry.features = FEATURES.map(str::to_owned).into();
        entry.types = routes.types().into_iter().collect();
        entry.prefixes = routes.prefixes().into_iter().collect();
        Self { shared, heartbeater, entry, of_server: Want::default(), written: None, stop }
    }

    fn state(&self) -> State {
        let Shared { slots, queues, .. } = &*self.shared;
        (slots.total(), queues.are_held(), queues.weights().map(|(_, weight)| weight).collect())
    }

    /// Does what is wanted, and notes in the entry what was seen and what cannot be done. Returns whether the server is to
    /// end.
    fn go_by(&mut self, mut of_name: Want) -> bool {
        let shared = &self.shared;
        let revisions = [&self.of_server, &of_name].map(|want| want.revision.clone());
        // By how they begin, `Order::is_refused_by` knows what they are about.
        let mut refused = Vec::new();
        if let Some((_, Mode::Stop)) = of_name.mode {
            // Whoever starts it again would see it end again.
            of_name.mode = None;
            refused.push("stop: not by name, which outlives the server".to_owned());
        }
        let wanted = self.of_server.merged(&of_name);
        refused.extend(wanted.unreadable.iter().map(|field| format!("{field}: it cannot be read")));

        let mut order = wanted.concurrency.map(|(_, tasks)| tasks as usize);
        if let Some(tasks) = order.take_if(|tasks| !(1..=MAX_CONCURRENCY).contains(tasks)) {
            refused.push(format!("concurrency {tasks}: it must be between 1 and {MAX_CONCURRENCY}"));
        }
        shared.resize(match &shared.adaptive {
            Some(adaptive) => adaptive.heed(order, shared.slots.total()),
            None => order.unwrap_or(shared.options.concurrency),
        });

        let (mut weights, mut joined) = (BTreeMap::new(), Vec::new());
        for (queue, (_, weight)) in wanted.queues {
            match shared.queues.serve(&queue) {
                Ok((number, is_new)) => {
                    weights.insert(shared.queues.name(number).clone(), weight);
                    joined.extend(is_new.then_some(number));
                }
                Err(reason) => refused.push(format!("queue {queue}: {reason}")),
            }
        }
        shared.queues.weigh(&weights);
        if !joined.is_empty() {
            shared.wakeups.joined(&joined);
        }
        if shared.queues.are_weightless() {
            shared.queues.weigh(&BTreeMap::new());
            refused.push("weights: all are zero; to take no tasks, it has to be quiet".to_owned());
        }

        let mode = wanted.mode.map(|(_, mode)| mode);
        shared.queues.hold(mode == Some(Mode::Quiet));
        if mode == Some(Mode::Active) && shared.shutdown.quiet.is_cancelled() {
            refused.push(
                "resume: a signal, or its own program, made the server quiet; only a restart undoes that".to_owned(),
            );
        }
        self.entry.applied = revisions.into_iter().flatten().collect();
        self.entry.refused = refused;
        mode == Some(Mode::Stop)
    }
}

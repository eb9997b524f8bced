//! A listener to all events, beside the faults that meet Redis.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicU16;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt as _;
use queue_core::event::Kind;
use queue_redis::events::Events;
use queue_redis::{Redis, RedisOptions};
use tokio::task::JoinHandle;

use crate::Failure;
use crate::ledger::now_ns;
use crate::name::Name;
use crate::proxy::Proxy;

/// What it was told.
#[derive(Debug, Default, Clone)]
pub(crate) struct Heard {
    /// Tasks that have succeeded, by the key of their name, and when that was first heard. Only those whose ids are their names.
    pub(crate) succeeded: HashMap<u64, u64>,
    pub(crate) events: u64,
    pub(crate) gaps: u64,
    /// Events that processes had counted, and not told.
    pub(crate) dropped: u64,
}

/// Somebody who listens, by a way to Redis that finds it again after a failover.
pub(crate) struct Listener {
    heard: Arc<Mutex<Heard>>,
    task: JoinHandle<()>,
    _way: Proxy,
}

impl Listener {
    pub(crate) async fn start(upstream: &Arc<AtomicU16>) -> Result<Self, Failure> {
        let way = Proxy::start(Ipv4Addr::LOCALHOST, upstream.clone()).await?;
        let redis = Redis::lazy(&format!("redis://{}", way.address), RedisOptions::default())?;
        let mut events = Events::of(&redis).stream().await?;
        let heard = Arc::<Mutex<Heard>>::default();
        let told = heard.clone();
        let task = tokio::spawn(async move {
            loop {
                match events.next().await {
                    Some(Ok(event)) => told.lock().unwrap_or_else(PoisonError::into_inner).add(&event.event),
                    // Redis is away, or refuses: whoever listens asks again, and is told of what was missed as a gap.
                    Some(Err(_)) => tokio::time::sleep(std::time::Duration::from_millis(300)).await,
                    None => match Events::of(&redis).stream().await {
                        Ok(again) => events = again,
                        Err(_) => tokio::time::sleep(std::time::Duration::from_millis(300)).await,
                    },
                }
            }
        });
        Ok(Self { heard, task, _way: way })
    }

    /// Ends it; what it was told.
    pub(crate) fn end(self) -> Heard {
        self.task.abort();
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Heard {
    fn add(&mut self, event: &queue_core::event::Event) {
        self.events += 1;
        match event.kind {
            Kind::Gap => self.gaps += 1,
            Kind::Dropped => self.dropped += event.count.unwrap_or(0),
            Kind::Succeeded => {
                if let Some(name) = event.id.as_deref().and_then(Name::parse) {
                    self.succeeded.entry(name.key()).or_insert_with(now_ns);
                }
            }
            _ => {}
        }
    }
}

//! The heartbeater: tells the world that the server lives and what it does.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use queue_core::limits::HEARTBEAT;
use queue_core::wire::{ServerInfo, Timestamp, WorkerInfo};
use queue_redis::service::Service;
use queue_redis::{Connection, Error, broker::Broker};
use tracing::debug;

use super::identity::Identity;
use super::queues::Queues;
use super::running::Running;
use super::shutdown::Shutdown;
use super::slots::Slots;
use super::time::Time;

/// The most bytes of payloads that one heartbeat writes, and of one of them. With all of them, a hundred large tasks
/// would make more traffic every 5 s than taking them did.
const MOST_SHOWN: usize = 1024 * 1024;
const MOST_OF_ONE: usize = 4 * 1024;

/// In how many heartbeats even an idle server writes all there is, and forgets servers that are gone.
const WHOLE_EVERY: u32 = 12;

#[derive(Clone)]
pub(super) struct Heartbeater {
    pub(super) broker: Broker,
    pub(super) time: Arc<Time>,
    pub(super) identity: Arc<Identity>,
    pub(super) queues: Arc<Queues>,
    pub(super) slots: Slots,
    pub(super) running: Arc<Running>,
    pub(super) shutdown: Shutdown,
    pub(super) beats: u32,
    /// Whether nothing was worked on at the last beat.
    pub(super) was_idle: bool,
}

impl Service for Heartbeater {
    const NAME: &'static str = "heartbeater";
    const WORK: &'static str = "writing the heartbeat";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        self.beats = self.beats.wrapping_add(1);
        let briefly = std::mem::take(&mut self.was_idle) && !self.beats.is_multiple_of(WHOLE_EVERY);
        // One for both: the pool asks whether a connection is alive whenever it hands it out.
        let mut connection = self.broker.redis().reserved().await?;
        // If Redis cannot be asked for its time, the heartbeat will not fare better, and tells.
        let _ = self.time.compare_on(&mut connection).await;
        self.was_idle = self.write(&mut connection, briefly).await?;
        Ok(HEARTBEAT)
    }

    async fn wait(&mut self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.shutdown.changed()).await;
    }

    fn delay(&self) -> Duration {
        // The first beat was written before the start.
        HEARTBEAT
    }
}

impl Heartbeater {
    /// Writes the server's state once, `briefly` if it can be; returns whether nothing is worked on.
    pub(super) async fn beat(&self, briefly: bool) -> Result<bool, Error> {
        self.write(&mut self.broker.redis().reserved().await?, briefly).await
    }

    async fn write(&self, connection: &mut Connection, briefly: bool) -> Result<bool, Error> {
        let identity = &self.identity;
        let running = self.running.all();
        let most = MOST_OF_ONE.min(MOST_SHOWN / running.len().max(1));
        let workers: Vec<WorkerInfo> = running
            .into_iter()
            .map(|job| WorkerInfo {
                host: identity.host.clone(),
                pid: identity.pid(),
                server_id: identity.id().to_owned(),
                task_id: job.id().to_owned(),
                task_type: job.task_type().to_owned(),
                task_payload: excerpt(job.payload(), most),
                queue: job.queue().to_owned(),
                start_time: Some(Timestamp::from_unix_ns(job.started_ns())),
                deadline: Some(Timestamp::from_unix_ns(job.deadline_ns())),
            })
            .collect();
        let server = self.server_info(workers.len());
        let (broker, is_idle, now) = (&self.broker, workers.is_empty(), self.time.now());
        if is_idle && briefly {
            broker.renew_server_state(connection, &server, now).await?;
        } else {
            broker.write_server_state(connection, &server, &workers, now).await?;
        }
        Ok(is_idle)
    }

    /// In asynq's words.
    fn status(&self) -> &'static str {
        match self.shutdown.status() {
            "active" if self.queues.are_held() => "stopped",
            status => status,
        }
    }

    fn server_info(&self, tasks: usize) -> ServerInfo {
        let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let weight = |weight| i32::try_from(weight).unwrap_or(i32::MAX);
        ServerInfo {
            host: self.identity.host.clone(),
            pid: self.identity.pid(),
            server_id: self.identity.id().to_owned(),
            concurrency: count(self.slots.total()),
            // One that nothing is taken from is not served: who asks why its tasks wait is to see that.
            queues: self
                .queues
                .weights()
                .filter(|(_, weight)| *weight > 0)
                .map(|(name, of_queue)| (name.to_string(), weight(of_queue)))
                .collect(),
            strict_priority: self.queues.strict(),
            status: self.status().to_owned(),
            start_time: Some(Timestamp::from_unix_ns(self.identity.started_ns)),
            active_worker_count: count(tasks),
        }
    }

    /// Takes the server off the list.
    pub(super) async fn clear(&self) {
        let cleared = async {
            let mut connection = self.broker.redis().reserved().await?;
            self.broker.clear_server_state(&mut connection, &self.server_info(0)).await?;
            self.broker.forget_server_entry(&self.identity.name()).await
        };
        if let Err(error) = cleared.await {
            debug!(%error, "could not take the server off the list; the entry expires by itself");
        }
    }
}

/// A payload for those who look: of a long one the beginning. What begins as text stays text, which asynqmon shows only
/// if all of it can be printed, and says how long the whole is.
fn excerpt(payload: &Bytes, most: usize) -> Bytes {
    if payload.len() <= most {
        return payload.clone();
    }
    let beginning = &payload[..most];
    let text = match std::str::from_utf8(beginning) {
        Ok(text) => Some(text),
        // The cut goes through a letter.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&beginning[..error.valid_up_to()]).ok(),
        Err(_) => None,
    };
    text.map_or_else(|| payload.slice(..most), |text| format!("{text}… ({} bytes in all)", payload.len()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_payload_is_cut_and_stays_text_where_it_was() {
        let excerpt = |payload: &[u8]| excerpt(&Bytes::copy_from_slice(payload), 8);
        for whole in ["", "12345678", "ñññ"] {
            assert_eq!(excerpt(whole.as_bytes()), whole);
        }
        assert_eq!(excerpt(b"{\"a\":\"bcdef\"}"), "{\"a\":\"bc… (13 bytes in all)");
        assert_eq!(excerpt("1234567ñ".as_bytes()), "1234567… (9 bytes in all)", "no half of a letter");
        assert_eq!(excerpt("ññññ\u{0}".as_bytes()), "ññññ… (9 bytes in all)");
        assert_eq!(excerpt(b"1234\xff6789"), &b"1234\xff678"[..]);
        assert_eq!(excerpt(b"1234567\xff9"), &b"1234567\xff"[..], "that begins no letter");
    }
}

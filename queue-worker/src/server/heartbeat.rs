//! Tells the world that the server lives and what it does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use queue_core::wire::{ServerInfo, Timestamp, WorkerInfo};
use queue_redis::Error;
use queue_redis::service::Part;
use tracing::debug;
use uuid::Uuid;

use super::{Shared, Status};
use crate::log::error;
use crate::panic;

/// As in asynq; what is written lives for twice as long.
const INTERVAL: Duration = Duration::from_secs(5);

/// The most bytes of payloads that one heartbeat writes, and of one of them. With all of them, a hundred large tasks
/// would make more traffic every 5 s than taking them did.
const MOST_SHOWN: usize = 1024 * 1024;
const MOST_OF_ONE: usize = 4 * 1024;

/// In how many heartbeats even an idle server writes all there is, and forgets servers that are gone.
const WHOLE_EVERY: u32 = 12;

/// Who this server is.
#[derive(Debug)]
pub(super) struct Identity {
    host: String,
    pid: u32,
    id: String,
    started_ns: i64,
}

impl Identity {
    pub(super) fn new(started_ns: i64) -> Self {
        let host = hostname::get().ok().and_then(|name| name.into_string().ok());
        Self {
            host: host.filter(|name| !name.is_empty()).unwrap_or_else(|| "unknown-host".to_owned()),
            pid: std::process::id(),
            id: Uuid::new_v4().to_string(),
            started_ns,
        }
    }

    /// What a task says about who has it.
    pub(super) fn name(&self) -> String {
        format!("{}:{}:{}", self.host, self.pid, self.id)
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.pid).unwrap_or(0)
    }
}

fn server_info(shared: &Shared, tasks: usize) -> ServerInfo {
    let identity = &shared.identity;
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let status = match shared.status.load(Ordering::Acquire) {
        status if status == Status::Stopped as u8 => "stopped",
        status if status == Status::Closed as u8 => "closed",
        _ => "active",
    };
    ServerInfo {
        host: identity.host.clone(),
        pid: identity.pid(),
        server_id: identity.id.clone(),
        concurrency: count(shared.options.concurrency),
        queues: shared
            .queues
            .weights()
            .map(|(name, weight)| (name.to_string(), i32::try_from(weight).unwrap_or(i32::MAX)))
            .collect(),
        strict_priority: shared.queues.strict(),
        status: status.to_owned(),
        start_time: Some(Timestamp::from_unix_ns(identity.started_ns)),
        active_worker_count: count(tasks),
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

/// Writes the server's state once, as briefly as can be if nothing has been worked on since it `was_idle`; returns
/// whether it is.
pub(super) async fn beat(shared: &Shared, was_idle: bool) -> Result<bool, Error> {
    let identity = &shared.identity;
    let running = shared.running.all();
    let most = MOST_OF_ONE.min(MOST_SHOWN / running.len().max(1));
    let workers: Vec<WorkerInfo> = running
        .into_iter()
        .map(|job| WorkerInfo {
            host: identity.host.clone(),
            pid: identity.pid(),
            server_id: identity.id.clone(),
            task_id: job.id().to_owned(),
            task_type: job.kind().to_owned(),
            task_payload: excerpt(job.payload(), most),
            queue: job.queue().to_owned(),
            start_time: Some(Timestamp::from_unix_ns(job.started_ns())),
            deadline: Some(Timestamp::from_unix_ns(job.deadline_ns())),
        })
        .collect();
    let server = server_info(shared, workers.len());
    let mut connection = shared.broker.redis().pooled().await?;
    let (broker, is_idle) = (&shared.broker, workers.is_empty());
    if is_idle && was_idle {
        broker.renew_server_state(&mut connection, &server, shared.now()).await?;
    } else {
        broker.write_server_state(&mut connection, &server, &workers, shared.now()).await?;
    }
    Ok(is_idle)
}

/// Writes the server's state over and over, and at once when its status changes.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut part = Part::new(&shared.outage, "writing the heartbeat");
    let (mut beats, mut was_idle) = (0_u32, false);
    loop {
        if shared.quiet.is_cancelled() {
            tokio::time::sleep(INTERVAL).await;
        } else {
            let _ = tokio::time::timeout(INTERVAL, shared.quiet.cancelled()).await;
        }
        beats = beats.wrapping_add(1);
        // If Redis cannot be asked for its time, the heartbeat will not fare better, and tells.
        let _ = shared.time.compare(shared.broker.redis()).await;
        match beat(&shared, was_idle && !beats.is_multiple_of(WHOLE_EVERY)).await {
            Ok(is_idle) => {
                was_idle = is_idle;
                part.succeeded();
            }
            Err(error) => {
                was_idle = false;
                part.failed(&error);
            }
        }
    }
}

/// Takes the server off the list.
pub(super) async fn clear(shared: &Shared) {
    let cleared = async {
        let mut connection = shared.broker.redis().pooled().await?;
        shared.broker.clear_server_state(&mut connection, &server_info(shared, 0)).await
    };
    if let Err(error) = cleared.await {
        debug!(%error, "could not take the server off the list; the entry expires by itself");
    }
}

/// Calls the health hook over and over, if there is one.
pub(super) async fn check_health(shared: Arc<Shared>) {
    let Some((interval, hook)) = &shared.options.health else { return };
    loop {
        tokio::time::sleep(*interval).await;
        // A Redis that answers may still refuse to do anything: a replica, one that is full.
        let health = match shared.broker.redis().ping().await {
            Ok(()) => shared.outage.error().map_or(Ok(()), Err),
            away => away,
        };
        if let Err(panicked) = panic::catch(|| hook(health.as_ref().copied())) {
            error!(error = %panicked, "the health hook panicked");
        }
    }
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

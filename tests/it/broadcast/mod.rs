//! One task on several servers.

mod choice;
mod ends;
mod lost;
mod others;
mod runs;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use queue_core::RawTask;
use queue_core::clock::ManualClock;
use queue_core::registry::{ServerEntry, TARGETS};
use queue_core::wire::ServerInfo;
use queue_core::{Clock as _, SystemClock};
use queue_redis::leader::Leader;
use queue_redis::{Broadcast, BroadcastBuilder, BroadcastStatus, To, WorkerState, duties};
use queue_worker::{Failure, Handle, Job, Output, Router};
use tokio::sync::Semaphore;

use crate::support::{Events, Fixture, PATIENCE, QUEUE, wait_for};

/// What the servers of a test have done, as `<server> <payload>`, and what holds them up.
#[derive(Clone)]
struct Ran {
    events: Events,
    /// Servers that are named in it wait, until it has a permit.
    slow: Arc<(std::sync::Mutex<Vec<String>>, Semaphore)>,
    dying: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Default for Ran {
    fn default() -> Self {
        let slow = Arc::new((std::sync::Mutex::default(), Semaphore::new(0)));
        Self { events: Events::default(), slow, dying: Arc::default() }
    }
}

impl Ran {
    fn hold_up(&self, server: &str) {
        self.slow.0.lock().unwrap().push(server.to_owned());
    }

    fn let_go(&self) {
        self.slow.0.lock().unwrap().clear();
        self.slow.1.add_permits(100);
    }

    fn let_die(&self, server: &str) {
        self.dying.lock().unwrap().push(server.to_owned());
    }

    fn sorted(&self) -> Vec<String> {
        let mut all = self.events.all();
        all.sort();
        all
    }

    async fn work(self, server: &'static str, job: Job) -> Result<Output<String>, Failure> {
        let payload = String::from_utf8_lossy(job.payload()).into_owned();
        self.events.tell(format!("{server} {payload}"));
        let is_slow = self.slow.0.lock().unwrap().contains(&server.to_owned());
        if is_slow {
            tokio::select! {
                permit = self.slow.1.acquire() => permit.unwrap().forget(),
                () = job.cancellation().cancelled() => {
                    return Err(Failure::retry_in(Duration::from_secs(3_600), "it was told to stop"));
                }
            }
        }
        if self.dying.lock().unwrap().contains(&server.to_owned()) {
            return Err(Failure::archive(format!("{server} cannot")));
        }
        Ok(Output(format!("done by {server}")))
    }
}

/// A leader who looks when it is told to, at a time that is told to pass.
struct Looks {
    clock: Arc<ManualClock>,
    leader: Leader,
}

impl Looks {
    fn new(fixture: &Fixture) -> Self {
        Self::at(fixture, Arc::new(ManualClock::at_secs(SystemClock.now_secs())))
    }

    /// Another leader, which knows nothing of what the one before has seen.
    fn anew(self, fixture: &Fixture) -> Self {
        Self::at(fixture, self.clock)
    }

    fn at(fixture: &Fixture, clock: Arc<ManualClock>) -> Self {
        let known = duties::standard(&fixture.broker, clock.clone());
        let leader = Leader::new(fixture.broker.clone(), clock.clone(), "leader", known.into());
        Self { clock, leader }
    }

    async fn pass(&mut self, secs: u64) {
        for _ in 0..secs.div_ceil(2) {
            self.clock.advance(Duration::from_secs(2));
            self.leader.do_all().await.unwrap();
        }
    }

    async fn until(&mut self, sent: &Broadcast, is_so: impl Fn(&BroadcastStatus) -> bool) -> BroadcastStatus {
        let passing = async {
            loop {
                self.pass(15).await;
                let status = sent.status().await.unwrap();
                if is_so(&status) {
                    return status;
                }
            }
        };
        tokio::time::timeout(PATIENCE, passing).await.expect("it comes to that")
    }
}

/// A server of this name that runs `flush`.
async fn serve(fixture: &Fixture, ran: &Ran, name: &'static str) -> Handle {
    labelled(fixture, ran, name, &[]).await
}

async fn labelled(fixture: &Fixture, ran: &Ran, name: &'static str, labels: &[&str]) -> Handle {
    let server = fixture.server(router(ran, name));
    let server = labels.iter().fold(server, |server, label| server.label(*label));
    let handle = if name.is_empty() { server } else { server.name(name) }.start().await.unwrap();
    // It is chosen as soon as it has said what it is.
    let before = fixture.inspector();
    wait_for("it is listed", async || {
        let servers = before.servers().await.unwrap();
        let is_it = |server: &queue_admin::ServerInfo| server.name() == Some(name).filter(|name| !name.is_empty());
        servers.iter().any(|server| server.entry.is_some() && is_it(server)).then_some(())
    })
    .await;
    handle
}

fn router(ran: &Ran, name: &'static str) -> Router {
    let ran = ran.clone();
    Router::new(()).route("flush", move |job: Job| ran.clone().work(name, job))
}

/// What servers tell that are alive, for as long as Redis keeps it: nobody takes their tasks.
async fn pretend(fixture: &Fixture, name: &str) -> ServerInfo {
    pretend_as(fixture, name, name).await
}

async fn pretend_as(fixture: &Fixture, host: &str, name: &str) -> ServerInfo {
    let info = ServerInfo {
        host: host.to_owned(),
        pid: 7,
        server_id: format!("id-of-{host}"),
        concurrency: 10,
        queues: BTreeMap::from([(QUEUE.to_owned(), 1)]),
        status: "active".to_owned(),
        ..ServerInfo::default()
    };
    let redis = fixture.redis();
    let mut connection = redis.pooled().await.unwrap();
    fixture.broker.write_server_state(&mut connection, &info, &[], SystemClock.now_secs()).await.unwrap();
    let mut entry = ServerEntry::default();
    entry.name = Some(name.to_owned());
    entry.features.insert(TARGETS.to_owned());
    entry.prefixes.insert(String::new());
    let server = format!("{host}:7:id-of-{host}");
    fixture.broker.write_server_entry(&server, &entry).await.unwrap();
    // A test may be slow.
    let _: i64 = fixture.cmd(&["PERSIST", &format!("asynq:servers:{{{server}}}")]).await;
    info
}

/// Such a server is no longer there.
async fn vanish(fixture: &Fixture, info: &ServerInfo) {
    let mut connection = fixture.redis().pooled().await.unwrap();
    fixture.broker.clear_server_state(&mut connection, info).await.unwrap();
}

fn flush(fixture: &Fixture) -> BroadcastBuilder {
    let task = RawTask::new("flush").payload("all").max_retry(3);
    fixture.client().broadcast(task).to(To::live()).queue(QUEUE)
}

async fn decided(broadcast: &Broadcast) -> BroadcastStatus {
    broadcast.wait(PATIENCE).await.unwrap()
}

fn states(status: &BroadcastStatus) -> Vec<(&str, WorkerState)> {
    status.workers.iter().map(|worker| (&*worker.server, worker.state)).collect()
}

/// Waits until the servers of a broadcast are in these states.
async fn until(broadcast: &Broadcast, wanted: &[(&str, WorkerState)]) -> BroadcastStatus {
    wait_for(format!("{wanted:?}"), async || {
        Some(broadcast.status().await.unwrap()).filter(|status| states(status) == wanted)
    })
    .await
}

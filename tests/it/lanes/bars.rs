//! What limits promise, at a size at which it would be seen if they broke it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_core::limit::{Limit, LimitKey};
use queue_worker::{Job, RetryPolicy, Router, Server};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::of;
use crate::support::{Fixture, QUEUE, eventually, job, with};

const KEYS: usize = 1_000;
const CAP: usize = 2;
/// So many of each key.
const OF_EACH: usize = 5;

/// What the handlers of all servers know of each other; it does not ask Redis.
#[derive(Debug, Default)]
struct Counts {
    running: HashMap<String, usize>,
    /// By server, the ids of its tasks.
    of_server: BTreeMap<usize, HashSet<String>>,
    /// Of one key at once.
    most: usize,
    done: HashSet<String>,
}

impl Counts {
    /// As many as the caps allow: of each key those that are left, up to its cap.
    fn allowed(&self) -> usize {
        let mut left = [OF_EACH; KEYS];
        self.done.iter().for_each(|id| left[key_of(id)] -= 1);
        left.iter().map(|left| (*left).min(CAP)).sum()
    }

    fn all_running(&self) -> usize {
        self.running.values().sum()
    }
}

fn key_of(id: &str) -> usize {
    id.parse::<usize>().unwrap() % KEYS
}

#[derive(Debug, Clone)]
struct Crowd {
    counts: Arc<Mutex<Counts>>,
    /// How often the handlers were let go; each waits for the next time.
    gate: watch::Receiver<u32>,
    server: usize,
}

/// A handler is over when this is dropped, also that of a server that dies.
struct Inside<'a>(&'a Crowd, Job);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let counts = &mut *self.0.counts.lock().unwrap();
        *counts.running.get_mut(&self.1.headers()["tenant"]).unwrap() -= 1;
        counts.of_server.get_mut(&self.0.server).unwrap().remove(self.1.id());
    }
}

impl Crowd {
    async fn work(self, job: Job) {
        let mut gate = self.gate.clone();
        let now = *gate.borrow_and_update();
        {
            let counts = &mut *self.counts.lock().unwrap();
            let here = counts.running.entry(job.headers()["tenant"].clone()).or_default();
            *here += 1;
            counts.most = counts.most.max(*here);
            counts.of_server.entry(self.server).or_default().insert(job.id().to_owned());
        }
        let inside = Inside(&self, job);
        gate.wait_for(|gate| *gate > now).await.unwrap();
        self.counts.lock().unwrap().done.insert(inside.1.id().to_owned());
    }

    /// A server in a runtime of its own, which can die without a word.
    fn start(&self, fixture: &Fixture, number: usize) -> Runtime {
        let crowd = Self { server: number, ..self.clone() };
        let url = fixture.url().to_owned();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move {
            let redis = queue_redis::Redis::lazy(&url, Default::default()).unwrap();
            let router = Router::new(()).route("job", with(&crowd, Self::work));
            let server = Server::new(redis, router).queues([(QUEUE, 1)]).concurrency(KEYS);
            let _running = server.retry_policy(RetryPolicy::Fixed(Duration::ZERO)).start().await.unwrap();
            std::future::pending::<()>().await;
        });
        runtime
    }
}

/// 1,000 keys, four servers, and one after the other of them dies with its tasks: no key ever has more than its cap by what the
/// handlers see, and in each round as many run as the caps allow, neither more nor fewer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caps_hold_by_what_handlers_see_while_servers_die_and_are_used_up() {
    let fixture = Fixture::start().await;
    fixture.limit(Limit::new("tenant", LimitKey::header("tenant")).concurrency(CAP as u32)).await;
    let (release, gate) = watch::channel(0);
    let crowd = Crowd { counts: Arc::default(), gate, server: 0 };
    let mut servers: Vec<(usize, Runtime)> = (0..4).map(|number| (number, crowd.start(&fixture, number))).collect();
    fixture.enqueue((0..KEYS * OF_EACH).map(|id| of(&format!("t{}", id % KEYS), &id.to_string()))).await;
    for round in 0.. {
        eventually("as many run as the caps allow", async || {
            let counts = crowd.counts.lock().unwrap();
            counts.all_running() == counts.allowed()
        })
        .await;
        let allowed = crowd.counts.lock().unwrap().allowed();
        assert!(crowd.counts.lock().unwrap().most <= CAP, "the most of one key at once");
        if allowed == 0 {
            break;
        }
        if round < 2 {
            let (number, dying) = servers.remove(0);
            let died = crowd.counts.lock().unwrap().of_server[&number].clone();
            tokio::task::spawn_blocking(|| dying.shutdown_timeout(Duration::from_secs(5))).await.unwrap();
            assert!(!died.is_empty(), "the server that dies has tasks");
            // Others take them over when their leases have ended, which here is at once.
            for id in died {
                fixture.run(&format!("ZADD asynq:{{q}}:lease XX 1 {id}")).await;
            }
            servers.push((4 + round, crowd.start(&fixture, 4 + round)));
            continue;
        }
        release.send_modify(|round| *round += 1);
    }
    assert_eq!(crowd.counts.lock().unwrap().most, CAP);
    eventually("all is done", async || {
        let left = ["EXISTS", "asynq:{q}:pending", "asynq:{q}:scheduled", "asynq:{q}:retry", "asynq:{q}:active"];
        fixture.cmd::<usize>(&left).await == 0
    })
    .await;
    for (_, server) in servers {
        server.shutdown_background();
    }
}

/// A start by the clock of Redis: after the first and before the second of these, in microseconds.
type Start = (u64, u64);

/// 50 in a second with a burst of 3, taken by four at once as fast as they can.
#[tokio::test]
async fn in_no_second_start_more_than_the_rate_and_the_burst_allow() {
    const STARTS: usize = 170;
    let fixture = Fixture::start().await;
    fixture.limit(Limit::new("rate", LimitKey::Type).rate(50, Duration::from_secs(1)).burst(3)).await;
    fixture.put((0..STARTS).map(|n| job(&format!("{n:03}")))).await;
    let mut starts: Vec<Start> = Vec::new();
    let now_us = async || {
        let time: Vec<u64> = fixture.cmd(&["TIME"]).await;
        time[0] * 1_000_000 + time[1]
    };
    while starts.len() < STARTS {
        let before = now_us().await;
        let taken = fixture.take_some(10).await.0;
        let after = now_us().await;
        starts.extend(taken.iter().map(|_| (before, after)));
        fixture.end(&taken).await;
    }
    for (from, _) in &starts {
        let surely = starts.iter().filter(|(before, after)| before >= from && *after <= from + 1_000_000).count();
        assert!(surely <= 52, "{surely} in a second");
    }
    let all = starts.last().unwrap().0 - starts[0].0;
    assert!(all >= 1_000_000, "more than one window was looked at: {all} us");
}

//! A user's program, as the README shows it, that measures itself.
//!
//! `bench-program COMMAND NAME=VALUE …` does one thing on the Redis of `redis=URL`, and prints one line of JSON:
//! `drain`, `enqueue`, `both`, `latency`, or `idle`, which ends only when it is killed. Whatever is not said has the
//! value that a user gets who says nothing: tokio's default runtime first of all; `runtime=one` has a single thread.
//!
//! `make bench-against` builds this file against two revisions, so it uses only what both have.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::time::{ClockId, clock_gettime};
use queue_redis::Client;
use queue_worker::{Handle, Router, Server, State, Task};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const QUEUE: &str = "bench";

/// About 200 bytes as JSON.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "bench:noop", queue = "bench")]
struct Noop {
    sent_ns: u64,
    text: String,
}

impl Noop {
    fn new(sent_ns: u64) -> Self {
        Self { sent_ns, text: "x".repeat(170) }
    }
}

/// What the command line says.
struct Said(HashMap<String, String>);

impl Said {
    fn get<T: FromStr>(&self, name: &str, default: T) -> T {
        match self.0.get(name) {
            None => default,
            Some(value) => value.parse().unwrap_or_else(|_| panic!("{name}={value} is not understood")),
        }
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().ok_or("say what to measure: drain, enqueue, both, latency or idle")?;
    let said = arguments.map(|argument| {
        let (name, value) = argument.split_once('=').expect("arguments are NAME=VALUE");
        (name.to_owned(), value.to_owned())
    });
    let said = Said(said.collect());
    let mut builder = match said.get("runtime", "default".to_owned()).as_str() {
        "one" => tokio::runtime::Builder::new_current_thread(),
        // What #[tokio::main] makes.
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    // As #[tokio::main] does: the user's `main` is not a task of the runtime.
    builder.enable_all().build()?.block_on(run(&command, &said))
}

async fn run(command: &str, said: &Said) -> Result<(), Failure> {
    // Two lines, at its start and its end, a few thousand times.
    queue_redis::log_to_stderr(false);
    let client = Client::connect(&said.get("redis", "redis://127.0.0.1:6379".to_owned())).await?;
    client.redis().ping().await?;
    let tasks = said.get("tasks", 10_000);
    match command {
        "drain" => {
            let meter = Meter::start();
            let working = Working::start(&client, said, tasks).await?;
            working.reached.notified().await;
            working.server.shutdown().await;
            meter.report(tasks, "");
        }
        "enqueue" => {
            let meter = Meter::start();
            enqueue(&client, said, tasks).await?;
            meter.report(tasks, "");
        }
        "both" => {
            let working = Working::start(&client, said, tasks).await?;
            let meter = Meter::start();
            enqueue(&client, said, tasks).await?;
            working.reached.notified().await;
            working.server.shutdown().await;
            meter.report(tasks, "");
        }
        "latency" => latency(&client, said, tasks).await?,
        "idle" => {
            let queues = (1..=said.get("queues", 4)).map(|number| (format!("idle-{number}"), 1));
            Server::new(client.redis().clone(), router(said, tasks).0).queues(queues).run().await?;
        }
        _ => return Err(format!("there is nothing called {command} to measure").into()),
    }
    Ok(())
}

/// What the handler knows.
#[derive(Clone)]
struct Seen {
    worked: Arc<AtomicU64>,
    goal: u64,
    reached: Arc<Notify>,
    work: Duration,
    waits: bool,
    waited_ns: Arc<Mutex<Vec<u64>>>,
}

async fn noop(task: Noop, State(seen): State<Seen>) {
    if task.sent_ns > 0 {
        seen.waited_ns.lock().unwrap().push(now(ClockId::CLOCK_MONOTONIC) - task.sent_ns);
    }
    if seen.waits {
        tokio::task::yield_now().await;
    }
    if !seen.work.is_zero() {
        // By the clock of the thread: what it waits for a processor is not work.
        let end = now(ClockId::CLOCK_THREAD_CPUTIME_ID) + seen.work.as_nanos() as u64;
        while now(ClockId::CLOCK_THREAD_CPUTIME_ID) < end {}
    }
    if seen.worked.fetch_add(1, Ordering::AcqRel) + 1 == seen.goal {
        seen.reached.notify_one();
    }
}

fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("there is such a clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

fn router(said: &Said, goal: u64) -> (Router<Seen>, Seen) {
    let work = Duration::from_micros(said.get("work_us", 0));
    let (worked, reached, waited_ns) = Default::default();
    let seen = Seen { worked, goal, reached, work, waits: said.get("waits", 0) > 0, waited_ns };
    (Router::new(seen.clone()).task(noop), seen)
}

struct Working {
    server: Handle,
    reached: Arc<Notify>,
    waited_ns: Arc<Mutex<Vec<u64>>>,
}

impl Working {
    async fn start(client: &Client, said: &Said, goal: u64) -> Result<Self, Failure> {
        let (router, seen) = router(said, goal);
        let server = Server::new(client.redis().clone(), router)
            .queues([(QUEUE, 1)])
            .concurrency(said.get("concurrency", 50))
            .start()
            .await?;
        Ok(Self { server, reached: seen.reached, waited_ns: seen.waited_ns })
    }
}

async fn enqueue(client: &Client, said: &Said, tasks: u64) -> Result<(), Failure> {
    let (callers, batch) = (said.get("callers", 1), said.get("batch", 1));
    let calls = (0..callers).map(|caller| {
        let share = tasks / callers + u64::from(caller < tasks % callers);
        let client = client.clone();
        // As in a service, in which each request is a task of the runtime.
        tokio::spawn(async move {
            let mut left = share;
            while left > 0 {
                let count = left.min(batch);
                if batch == 1 {
                    client.enqueue(Noop::new(0)).await?;
                } else {
                    for outcome in client.enqueue_many((0..count).map(|_| Noop::new(0))).await {
                        outcome?;
                    }
                }
                left -= count;
            }
            Ok::<_, Failure>(())
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await??;
    }
    Ok(())
}

/// From the enqueue call to the start of the handler, at a steady rate.
async fn latency(client: &Client, said: &Said, tasks: u64) -> Result<(), Failure> {
    let pause = Duration::from_secs(1) / said.get("rate", 100);
    let working = Working::start(client, said, tasks).await?;
    let meter = Meter::start();
    for _ in 0..tasks {
        // Not tokio's timer: it counts whole milliseconds, and is not among the features that the README names.
        tokio::task::spawn_blocking(move || std::thread::sleep(pause)).await?;
        client.enqueue(Noop::new(now(ClockId::CLOCK_MONOTONIC))).await?;
    }
    working.reached.notified().await;
    working.server.shutdown().await;
    let mut waited = std::mem::take(&mut *working.waited_ns.lock().unwrap());
    waited.sort_unstable();
    let at = |share: f64| waited[((waited.len() - 1) as f64 * share) as usize] as f64 / 1e6;
    meter.report(tasks, &format!(r#""p50_ms":{},"p99_ms":{},"#, at(0.5), at(0.99)));
    Ok(())
}

/// What the process used from one moment to another.
struct Meter {
    at: Instant,
    used: nix::sys::resource::Usage,
}

impl Meter {
    fn start() -> Self {
        Self { at: Instant::now(), used: getrusage(UsageWho::RUSAGE_SELF).expect("is always told") }
    }

    fn report(self, tasks: u64, more: &str) {
        let seconds = self.at.elapsed().as_secs_f64();
        let used = getrusage(UsageWho::RUSAGE_SELF).expect("is always told");
        let cpu = |usage: &nix::sys::resource::Usage| {
            (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64
        };
        let each = |count: f64| count / tasks as f64;
        println!(
            r#"{{{more}"tasks":{tasks},"seconds":{seconds},"per_second":{},"cpu_us":{},"waits":{},"preempted":{},"peak_mb":{}}}"#,
            tasks as f64 / seconds,
            each(cpu(&used) - cpu(&self.used)),
            each((used.voluntary_context_switches() - self.used.voluntary_context_switches()) as f64),
            each((used.involuntary_context_switches() - self.used.involuntary_context_switches()) as f64),
            peak_mb(),
        );
    }
}

/// Not what getrusage tells: that begins with what the program had that started this one.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().map_or(f64::NAN, |kib| kib * 1_024.0 / 1e6)
}

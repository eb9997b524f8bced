//! What limits cost a drain, and how exact a rate is.
//!
//! `bench-limits drain redis=URL [tasks=N] [ms=N] [rounds=N]` works N waiting tasks with 50 slots and handlers that wait so many milliseconds, in
//! turn without a limit, with one that no task falls under, with one key of one limit, and with a thousand keys of it; no cap is ever reached.
//! `bench-limits rate redis=URL [seconds=N]` lets eight servers of 25 slots work a backlog under 50 starts a second with a burst of three, and
//! after that time under 100 a second for ten seconds more.
//! Each drain, and the run of rates, is a line of JSON.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bench_program::{Failure, Goal, Said};
use queue_admin::Inspector;
use queue_core::RawTask;
use queue_core::limit::{Limit, LimitKey};
use queue_redis::{Client, Redis};
use queue_worker::{Job, Router, Server};

const QUEUE: &str = "bench";
const SECOND: Duration = Duration::from_secs(1);

fn limit() -> Limit {
    Limit::new("tenant", LimitKey::header("tenant"))
}

async fn enqueue(client: &Client, tasks: u64, keys: u64) -> Result<(), Failure> {
    let task = |n| {
        let task = RawTask::new("bench").payload(vec![b'x'; 200]).queue(QUEUE);
        if keys > 0 {
            task.header("tenant", format!("t{}", n % keys))
        } else {
            task.header("other", format!("t{}", n % 1000))
        }
    };
    for enqueued in client.enqueue_many((0..tasks).map(task)).await {
        enqueued?;
    }
    Ok(())
}

/// The seconds of CPU that Redis has used.
async fn cpu(redis: &Redis) -> Result<f64, Failure> {
    let info: String = redis.query("INFO", redis::cmd("INFO").arg("cpu")).await?;
    let of =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok()).unwrap_or(0.0);
    Ok(of("used_cpu_user:") + of("used_cpu_sys:"))
}

/// Tasks per second, and microseconds of Redis for each of them.
async fn drain(client: &Client, tasks: u64, work: Duration) -> Result<(f64, f64), Failure> {
    let goal = Goal::of(tasks);
    let handler = {
        let goal = goal.clone();
        move |_: Job| goal.clone().work(work)
    };
    let (before, began) = (cpu(client.redis()).await?, Instant::now());
    let server = Server::new(client.redis().clone(), Router::new(()).route("bench", handler));
    let server = server.queues([(QUEUE, 1)]).concurrency(50).start().await?;
    goal.reached().await;
    let rate = tasks as f64 / began.elapsed().as_secs_f64();
    server.shutdown().await;
    Ok((rate.round(), ((cpu(client.redis()).await? - before) * 1e6 / tasks as f64 * 10.0).round() / 10.0))
}

async fn drains(client: &Client, tasks: u64, work: Duration, rounds: u64) -> Result<(), Failure> {
    let inspector = Inspector::new(client.redis().clone());
    let modes = [("plain", 0, false), ("nobody's limit", 0, true), ("one key", 1, true), ("1,000 keys", 1000, true)];
    for round in 0..rounds as usize {
        for n in 0..modes.len() {
            let (name, keys, is_limited) = modes[(round + n) % modes.len()];
            if is_limited {
                inspector.set_limit(QUEUE, limit().concurrency(1000)).await?;
            }
            enqueue(client, tasks, keys).await?;
            let (rate, cpu) = drain(client, tasks, work).await?;
            println!(r#"{{"round": {round}, "mode": "{name}", "rate": {rate}, "redis_us": {cpu}}}"#);
            if is_limited {
                inspector.remove_limit(QUEUE, "tenant").await?;
                // A queue whose last limit has gone is told by the next take.
                enqueue(client, 1, 0).await?;
                drain(client, 1, Duration::ZERO).await?;
            }
        }
    }
    Ok(())
}

async fn rate(address: &str, lasts: Duration) -> Result<(), Failure> {
    let client = Client::connect(address).await?;
    let inspector = Inspector::new(client.redis().clone());
    inspector.set_limit(QUEUE, limit().rate(50, SECOND).burst(3)).await?;
    enqueue(&client, 50 * lasts.as_secs() + 2000, 1).await?;
    let starts = Arc::new(Mutex::new(Vec::new()));
    let mut servers = Vec::new();
    for _ in 0..8 {
        // Connections of its own, as a process has them.
        let redis = Client::connect(address).await?.redis().clone();
        let starts = starts.clone();
        let router = Router::new(()).route("bench", move |_: Job| {
            starts.lock().unwrap().push(Instant::now());
            std::future::ready(())
        });
        servers.push(Server::new(redis, router).queues([(QUEUE, 1)]).concurrency(25).start().await?);
    }
    tokio::time::sleep(lasts).await;
    let set = Instant::now();
    inspector.set_limit(QUEUE, limit().rate(100, SECOND).burst(3)).await?;
    let told = Instant::now();
    tokio::time::sleep(10 * SECOND).await;
    for server in servers {
        server.shutdown().await;
    }
    let starts = starts.lock().unwrap();
    let (before, after): (Vec<Instant>, Vec<Instant>) = starts.iter().partition(|start| **start < set);
    let fullest = |starts: &[Instant]| {
        let within = |n: usize| starts[n..].iter().take_while(|other| **other - starts[n] < SECOND).count();
        (0..starts.len()).map(within).max().unwrap_or(0)
    };
    let span = |starts: &[Instant]| (starts[starts.len() - 1] - starts[0]).as_secs_f64();
    let early = after.iter().filter(|start| **start - told < Duration::from_millis(100)).count();
    println!(
        r#"{{"fullest": {}, "rate": {:.2}, "fullest_after": {}, "rate_after": {:.2}, "starts_in_first_100_ms": {early}}}"#,
        fullest(&before),
        (before.len() - 1) as f64 / span(&before),
        fullest(&after),
        (after.len() - 1) as f64 / span(&after),
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    queue_redis::log_to_stderr(false);
    let said = Said::read();
    match said.mode.as_deref() {
        Some("drain") => {
            let client = Client::connect(said.redis()).await?;
            let work = Duration::from_millis(said.number("ms", 0));
            drains(&client, said.number("tasks", 50_000), work, said.number("rounds", 7)).await
        }
        Some("rate") => rate(said.redis(), Duration::from_secs(said.number("seconds", 60))).await,
        _ => Err("say drain or rate".into()),
    }
}

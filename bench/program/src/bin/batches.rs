//! What a batch costs beside the same tasks without one.
//!
//! `batches MODE redis=URL tasks=N size=M` enqueues N tasks and works them with a server of 50 slots, in batches of M with a
//! success callback each (`small`), in one batch (`large`), or as they are (`plain`); it prints one line of JSON: seconds to
//! enqueue and to work them off, for how many of each Redis computed, what the ledger of a large one takes, and the calls of scripts and
//! the most memory of this process when all were enqueued. `over` is as `small`, and when all batches are to be forgotten, a second server
//! does that: how long it takes for all, and the scripts that Redis is given.

use std::time::{Duration, Instant};

use bench_program::{Failure, Goal, Said};
use futures_util::{StreamExt as _, stream};
use nix::sys::resource::{UsageWho, getrusage};
use queue_core::RawTask;
use queue_redis::Client;
use queue_worker::{Router, Server};

fn task() -> RawTask {
    RawTask::new("bench:noop").payload("x".repeat(200)).queue("bench")
}

/// Seconds for which Redis has computed.
async fn redis_cpu(client: &Client) -> Result<f64, Failure> {
    let said: String = client.redis().query("INFO", redis::cmd("INFO").arg("cpu")).await?;
    let parts = said.lines().filter_map(|line| {
        let (name, seconds) = line.split_once(':')?;
        ["used_cpu_user", "used_cpu_sys"].contains(&name).then(|| seconds.trim().parse::<f64>().ok())?
    });
    Ok(parts.sum())
}

/// Scripts that Redis was given.
async fn scripts(client: &Client) -> Result<u64, Failure> {
    let said: String = client.redis().query("INFO", redis::cmd("INFO").arg("commandstats")).await?;
    let calls = said.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    Ok(calls.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    queue_redis::log_to_stderr(false);
    let said = Said::read();
    let mode = said.mode.as_deref().ok_or("say plain, large or small")?;
    let (tasks, size) = (said.number("tasks", 50_000), said.number("size", 10));
    let client = Client::connect(said.redis()).await?;

    let (began, computed) = (Instant::now(), redis_cpu(&client).await?);
    let mut goal = tasks;
    match mode {
        "plain" => {
            let sent = client.enqueue_stream(stream::iter((0..tasks).map(|_| task())));
            sent.for_each(async |outcome| drop(outcome)).await;
        }
        "large" => {
            client.batch().on_success(task()).add_all((0..tasks).map(|_| task())).await?;
            goal += 1;
        }
        _ => {
            let batch = || match mode {
                "over" => client.batch().linger(Duration::from_secs(1)),
                _ => client.batch(),
            };
            let batches = (0..tasks / size).map(|_| batch().on_success(task()).add_all((0..size).map(|_| task())));
            let mut made = stream::iter(batches).buffer_unordered(32);
            while let Some(made) = made.next().await {
                made?;
            }
            goal += tasks / size;
        }
    }
    let enqueued = began.elapsed();
    let to_enqueue = redis_cpu(&client).await? - computed;
    let (calls, peak_mb) = (scripts(&client).await?, getrusage(UsageWho::RUSAGE_SELF)?.max_rss() / 1_024);
    let ledger: u64 = match mode {
        "large" => {
            let keys: Vec<String> = client.redis().query("KEYS", redis::cmd("KEYS").arg("asynq:x:{*")).await?;
            let mut bytes = 0;
            for key in keys {
                bytes += client.redis().query::<u64>("MEMORY", redis::cmd("MEMORY").arg("USAGE").arg(key)).await?;
            }
            bytes
        }
        _ => 0,
    };

    let goal = Goal::of(goal);
    let router = Router::new(()).route("bench:noop", {
        let goal = goal.clone();
        move |_| std::future::ready(goal.worked())
    });
    let (began, computed) = (Instant::now(), redis_cpu(&client).await?);
    let server = || Server::new(client.redis().clone(), router.clone()).queues([("bench", 1)]).concurrency(50);
    let working = server().start().await?;
    tokio::time::timeout(Duration::from_secs(300), goal.reached()).await?;
    let (drained, to_drain) = (began.elapsed(), redis_cpu(&client).await? - computed);
    working.shutdown().await;
    if mode == "over" {
        // The leader looks at a batch half a minute after it was made.
        tokio::time::sleep(Duration::from_secs(35)).await;
        let count = async || client.redis().query::<u64>("ZCARD", redis::cmd("ZCARD").arg("asynq:x:flows")).await;
        let (batches, calls) = (count().await?, scripts(&client).await?);
        let began = Instant::now();
        let working = server().start().await?;
        while count().await? > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (seconds, calls) = (began.elapsed().as_secs_f64(), scripts(&client).await? - calls);
        working.shutdown().await;
        println!(r#"{{"mode": "over", "batches": {batches}, "seconds": {seconds:.3}, "scripts": {calls}}}"#);
        return Ok(());
    }
    println!(
        r#"{{"mode": "{mode}", "tasks": {tasks}, "enqueue_seconds": {:.3}, "drain_seconds": {:.3}, "redis_cpu_to_enqueue": {to_enqueue:.3}, "redis_cpu_to_drain": {to_drain:.3}, "ledger_bytes": {ledger}, "scripts_to_enqueue": {calls}, "peak_mb_then": {peak_mb}}}"#,
        enqueued.as_secs_f64(),
        drained.as_secs_f64()
    );
    Ok(())
}

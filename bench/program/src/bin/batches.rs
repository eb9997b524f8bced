//! What a batch costs beside the same tasks without one.
//!
//! `batches MODE redis=URL tasks=N size=M` enqueues N tasks and works them with a server of 50 slots, in batches of M with a
//! success callback each (`small`), in one batch (`large`), or as they are (`plain`); it prints one line of JSON: seconds to
//! enqueue and to work them off, and what the ledger of a large one takes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use queue_core::RawTask;
use queue_redis::Client;
use queue_worker::{Router, Server};
use tokio::sync::Notify;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn task() -> RawTask {
    RawTask::new("bench:noop").payload("x".repeat(200)).queue("bench")
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    queue_redis::log_to_stderr(false);
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().ok_or("say plain, large or small")?;
    let said: HashMap<String, String> =
        arguments.filter_map(|it| it.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))).collect();
    let number = |name: &str, default: u64| said.get(name).and_then(|it| it.parse().ok()).unwrap_or(default);
    let (tasks, size) = (number("tasks", 50_000), number("size", 10));
    let client = Client::connect(said.get("redis").map_or("redis://127.0.0.1:6379", String::as_str)).await?;

    let began = Instant::now();
    let mut goal = tasks;
    match &mode[..] {
        "plain" => {
            let sent = client.enqueue_stream(stream::iter((0..tasks).map(|_| task())));
            sent.for_each(async |outcome| drop(outcome)).await;
        }
        "large" => {
            client.batch().on_success(task()).add_all((0..tasks).map(|_| task())).await?;
            goal += 1;
        }
        _ => {
            let batches = (0..tasks / size).map(|_| client.batch().on_success(task()).add_all((0..size).map(|_| task())));
            let mut made = stream::iter(batches).buffer_unordered(32);
            while let Some(made) = made.next().await {
                made?;
            }
            goal += tasks / size;
        }
    }
    let enqueued = began.elapsed();
    let ledger: u64 = match &mode[..] {
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

    let (worked, reached) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let router = Router::new(()).route("bench:noop", {
        let (worked, reached) = (worked.clone(), reached.clone());
        move |_| {
            if worked.fetch_add(1, Ordering::AcqRel) + 1 == goal {
                reached.notify_one();
            }
            std::future::ready(())
        }
    });
    let began = Instant::now();
    let server = Server::new(client.redis().clone(), router).queues([("bench", 1)]).concurrency(50).start().await?;
    tokio::time::timeout(Duration::from_secs(300), reached.notified()).await?;
    let drained = began.elapsed();
    server.shutdown().await;
    println!(
        r#"{{"mode": "{mode}", "tasks": {tasks}, "enqueue_seconds": {:.3}, "drain_seconds": {:.3}, "ledger_bytes": {ledger}}}"#,
        enqueued.as_secs_f64(),
        drained.as_secs_f64()
    );
    Ok(())
}

//! What a batch costs beside the same tasks without one.
//!
//! `batches MODE redis=URL tasks=N size=M` enqueues N tasks and works them with a server of 50 slots, in batches of M with a
//! success callback each (`small`), in one batch (`large`), or as they are (`plain`); it prints one line of JSON: seconds to
//! enqueue and to work them off, and what the ledger of a large one takes.

use std::time::{Duration, Instant};

use bench_program::{Failure, Goal, Said};
use futures_util::{StreamExt as _, stream};
use queue_core::RawTask;
use queue_redis::Client;
use queue_worker::{Router, Server};

fn task() -> RawTask {
    RawTask::new("bench:noop").payload("x".repeat(200)).queue("bench")
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    queue_redis::log_to_stderr(false);
    let said = Said::read();
    let mode = said.mode.as_deref().ok_or("say plain, large or small")?;
    let (tasks, size) = (said.number("tasks", 50_000), said.number("size", 10));
    let client = Client::connect(said.redis()).await?;

    let began = Instant::now();
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
            let batches =
                (0..tasks / size).map(|_| client.batch().on_success(task()).add_all((0..size).map(|_| task())));
            let mut made = stream::iter(batches).buffer_unordered(32);
            while let Some(made) = made.next().await {
                made?;
            }
            goal += tasks / size;
        }
    }
    let enqueued = began.elapsed();
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
    let began = Instant::now();
    let server = Server::new(client.redis().clone(), router).queues([("bench", 1)]).concurrency(50).start().await?;
    tokio::time::timeout(Duration::from_secs(300), goal.reached()).await?;
    let drained = began.elapsed();
    server.shutdown().await;
    println!(
        r#"{{"mode": "{mode}", "tasks": {tasks}, "enqueue_seconds": {:.3}, "drain_seconds": {:.3}, "ledger_bytes": {ledger}}}"#,
        enqueued.as_secs_f64(),
        drained.as_secs_f64()
    );
    Ok(())
}

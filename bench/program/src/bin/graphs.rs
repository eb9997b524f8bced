//! How long a chain and a graph take whose tasks do nothing.
//!
//! `bench-graphs MODE redis=URL levels=N width=M parents=P`: `levels` batches within each other, the innermost with one task
//! (`deep`), a chain of so many tasks (`chain`), or so many layers of nodes, each of which waits for P of the layer before it (`graph`). It
//! prints one line of JSON: seconds to make it, and from there to the start of its success callback.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bench_program::{Failure, Said};
use queue_core::RawTask;
use queue_redis::Client;
use queue_worker::{Router, Server};
use tokio::sync::Notify;

fn task() -> RawTask {
    RawTask::new("bench:noop").payload("x".repeat(200)).queue("bench")
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    queue_redis::log_to_stderr(false);
    let said = Said::read();
    let mode = said.mode.as_deref().ok_or("say deep, chain or graph")?;
    let (levels, width, parents) =
        (said.number("levels", 1_000), said.number("width", 100), said.number("parents", 10));
    let client = Client::connect(said.redis()).await?;
    let ended = Arc::new(Notify::new());
    let end = RawTask::new("bench:end").queue("bench");
    let router = Router::new(()).route("bench:noop", |_| std::future::ready(())).route("bench:end", {
        let ended = ended.clone();
        move |_| std::future::ready(ended.notify_one())
    });
    let server = Server::new(client.redis().clone(), router).queues([("bench", 1)]).concurrency(50).start().await?;

    let began = Instant::now();
    let (whole, started) = match mode {
        "deep" => {
            let whole = client.batch().on_success(end).open().await?;
            let mut batch = whole.clone();
            let mut all = vec![whole.clone()];
            for _ in 1..levels {
                batch = batch.child().open().await?;
                all.push(batch.clone());
            }
            let leaf = all.pop().ok_or("no levels")?;
            for batch in &all {
                batch.commit().await?;
            }
            // Not one of them can end before this.
            let made = Instant::now();
            leaf.commit().await?;
            (whole, made)
        }
        "chain" => {
            let mut chain = client.chain().on_success(end);
            for _ in 0..levels {
                chain = chain.then(task());
            }
            (chain.start().await?, Instant::now())
        }
        _ => {
            let mut graph = client.workflow().on_success(end);
            for level in 0..levels {
                for at in 0..width {
                    graph = graph.task(format!("{level}-{at}"), task());
                    if level > 0 {
                        graph =
                            graph.after((0..parents).map(|n| format!("{}-{}", level - 1, (at * 7 + n * 13) % width)));
                    }
                }
            }
            (graph.start().await?, Instant::now())
        }
    };
    let made = started - began;
    tokio::time::timeout(Duration::from_secs(120), ended.notified()).await?;
    let ran = started.elapsed();
    let end = whole.wait(Duration::from_secs(10)).await?;
    server.shutdown().await;
    println!(
        r#"{{"mode": "{mode}", "members": {}, "succeeded": {}, "make_seconds": {:.3}, "run_seconds": {:.3}}}"#,
        end.total,
        end.succeeded,
        made.as_secs_f64(),
        ran.as_secs_f64()
    );
    Ok(())
}

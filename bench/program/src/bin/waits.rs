//! What it costs to wait for the ends of tasks.
//!
//! `waits redis=URL callers=N rounds=M work_ms=D` lets N callers enqueue a task each at once, in a process with a server of 50 slots. In turn, they
//! only enqueue, and the handler notes when it is done; or they wait for the end. It prints one line of JSON: the medians over
//! all callers of the time from before the enqueue to the end, in microseconds, for each round.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bench_program::{Failure, Said};
use queue_core::RawTask;
use queue_redis::{Client, Finished};
use queue_worker::{Job, Router, Server};
use tokio::sync::Notify;

const LONG: Duration = Duration::from_secs(60);

/// When handlers were done, by the number of the caller.
#[derive(Default)]
struct Done(Mutex<HashMap<usize, Instant>>, Notify);

fn median(mut times: Vec<Duration>) -> u128 {
    times.sort();
    times[times.len() / 2].as_micros()
}

async fn round(client: &Client, done: &Arc<Done>, callers: usize, waits: bool) -> Result<u128, Failure> {
    done.0.lock().unwrap().clear();
    let calls = (0..callers).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            let task = RawTask::new("bench").payload(number.to_string()).queue("bench").retention(LONG);
            let began = Instant::now();
            if waits {
                let ended = client.enqueue_and_wait(task, LONG).await?;
                assert!(matches!(ended, Finished::Completed(_)), "{ended:?}");
            } else {
                client.enqueue(task).await?;
            }
            Ok::<_, Failure>((began, Instant::now()))
        })
    });
    let mut times = Vec::new();
    for (number, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
        let (began, ended) = call.await??;
        let ended = if waits {
            ended
        } else {
            loop {
                let heard = done.1.notified();
                if let Some(at) = done.0.lock().unwrap().get(&number) {
                    break *at;
                }
                heard.await;
            }
        };
        times.push(ended - began);
    }
    Ok(median(times))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    queue_redis::log_to_stderr(false);
    let said = Said::read();
    let work = Duration::from_millis(said.number("work_ms", 0));
    let client = Client::connect(said.redis()).await?;
    let done: Arc<Done> = Arc::default();
    let handler = {
        let done = done.clone();
        move |job: Job| {
            let done = done.clone();
            async move {
                if !work.is_zero() {
                    tokio::time::sleep(work).await;
                }
                let number = String::from_utf8_lossy(job.payload()).parse().unwrap_or(usize::MAX);
                done.0.lock().unwrap().insert(number, Instant::now());
                done.1.notify_waiters();
            }
        }
    };
    let server = Server::new(client.redis().clone(), Router::new(()).route("bench", handler));
    let server = server.queues([("bench", 1)]).concurrency(50).start().await?;
    let callers = said.number("callers", 1_000) as usize;
    let (mut plain, mut waiting) = (Vec::new(), Vec::new());
    for _ in 0..said.number("rounds", 7) {
        plain.push(round(&client, &done, callers, false).await?);
        waiting.push(round(&client, &done, callers, true).await?);
    }
    server.shutdown().await;
    println!("{{\"plain_us\":{plain:?},\"waiting_us\":{waiting:?}}}");
    Ok(())
}

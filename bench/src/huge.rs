//! What becomes of the rates when ten million tasks are scheduled in the same queue.

use std::time::{Duration, Instant};

use queue_core::{RawTask, State, SystemClock, TaskOptions, clock::Clock as _};
use queue_redis::{Broker, Client};

use crate::rounds::median;
use crate::server::Server;
use crate::sizes::Size;
use crate::{Args, Failure, program};

const MANY: u64 = 10_000_000;
const FEW: u64 = 100_000;
const TASKS: u64 = 100_000;
const ROUNDS: usize = 3;
const QUEUE: &str = "bench";

/// Tasks per second.
#[derive(Debug, Default)]
struct Rates {
    schedule: Vec<f64>,
    enqueue: Vec<f64>,
    forward: Vec<f64>,
    drain: Vec<f64>,
}

pub(crate) async fn measure(args: &Args) -> Result<Vec<Size>, Failure> {
    eprintln!("ten million scheduled tasks");
    let few = beside(args, FEW).await?;
    let many = beside(args, MANY).await?;
    let size = |name, few: &[f64], many: &[f64]| {
        let (few, many) = (median(few), median(many));
        let value = format!("{:.2}x ({few:.0}/s beside 100,000, {many:.0}/s beside 10,000,000)", many / few);
        Size { name, value, must: "0.8x", goal: "flat" }
    };
    Ok(vec![
        size("enqueuing tasks beside 10,000,000 scheduled ones", &few.enqueue, &many.enqueue),
        size("scheduling tasks beside 10,000,000 scheduled ones", &few.schedule, &many.schedule),
        size("forwarding due tasks beside 10,000,000 scheduled ones", &few.forward, &many.forward),
        size("draining beside 10,000,000 scheduled ones", &few.drain, &many.drain),
    ])
}

async fn beside(args: &Args, scheduled: u64) -> Result<Rates, Failure> {
    let mut server = Server::start(false, &[]).await?;
    let url = format!("redis://127.0.0.1:{}", server.port);
    let client = Client::connect(&url).await?;
    let broker = Broker::new(client.redis().clone());
    server.schedule_far_off(QUEUE, scheduled).await?;
    let mut rates = Rates::default();
    let rate = |began: Instant| TASKS as f64 / began.elapsed().as_secs_f64();
    for _ in 0..ROUNDS {
        // Time enough to enqueue them; what counts as due is said to `forward`.
        let soon = TaskOptions::new().process_in(Duration::from_secs(3_000));
        let at_once = TaskOptions::new();
        for (options, rates) in [(at_once, &mut rates.enqueue), (soon, &mut rates.schedule)] {
            let task = RawTask::new("bench:noop").payload(vec![b'x'; 200]).queue(QUEUE).with(options);
            let tasks = vec![task; TASKS as usize];
            let began = Instant::now();
            for outcome in client.enqueue_many(tasks).await {
                outcome?;
            }
            rates.push(rate(began));
        }
        let later = SystemClock.now_ns() + 3_600 * 1_000_000_000;
        let began = Instant::now();
        while broker.forward(QUEUE, State::Scheduled, later, 0).await?.moved > 0 {}
        rates.forward.push(rate(began));
        let run =
            program::run(&args.queuectl, &format!("bench drain --concurrency 50 --redis {url} --json"), 1).await?;
        rates.drain.push(run.report["per_second"].as_f64().ok_or("no rate")?);
    }
    server.stop().await;
    Ok(rates)
}

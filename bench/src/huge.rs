//! What becomes of the rates when ten million tasks are scheduled in the same queue.
//!
//! Redis doubles a table of hashes when it is full, and moves it over bit by bit, with each look into it. Until it is
//! done every command does more; the next eight million or so entries meet a table that is done. Ten million are not
//! long after such a growth, a hundred thousand are: so both are measured when nothing is left to move, and the ten
//! million before that too.

use std::time::{Duration, Instant};

use queue_core::{RawTask, SystemClock, TaskOptions, TaskState, clock::Clock as _};
use queue_redis::{Client, broker::Broker};

use crate::rounds::median;
use crate::server::Server;
use crate::sizes::Size;
use crate::{Args, Failure, program};

const MANY: u64 = 10_000_000;
const FEW: u64 = 100_000;
const TASKS: u64 = 100_000;
const ROUNDS: usize = 5;
const QUEUE: &str = "bench";

/// One queue, and what is done with it.
struct Side {
    server: Server,
    client: Client,
    broker: Broker,
    scheduled: u64,
}

/// Tasks per second.
#[derive(Clone, Copy)]
struct Rates {
    enqueue: f64,
    schedule: f64,
    forward: f64,
    drain: f64,
}

/// What was reached beside few and beside many, round by round.
type Rounds = Vec<(Rates, Rates)>;

pub(crate) async fn measure(args: &Args) -> Result<Vec<Size>, Failure> {
    eprintln!("ten million scheduled tasks");
    let mut few = Side::start(FEW).await?;
    let mut many = Side::start(MANY).await?;
    let growing = rounds(args, &few, &many).await?;
    few.settle().await?;
    many.settle().await?;
    let settled = rounds(args, &few, &many).await?;
    few.server.stop().await;
    many.server.stop().await;
    let size = |name, rate: fn(&Rates) -> f64| {
        let ratios = |rounds: &Rounds| rounds.iter().map(|(few, many)| rate(many) / rate(few)).collect::<Vec<_>>();
        let (ratios, before) = (ratios(&settled), ratios(&growing));
        let [lowest, highest] = [f64::min, f64::max].map(|of| ratios.iter().copied().reduce(of).unwrap_or(f64::NAN));
        let (few, many): (Vec<f64>, Vec<f64>) = settled.iter().map(|(few, many)| (rate(few), rate(many))).unzip();
        let value = format!(
            "{:.2}x [{lowest:.2}–{highest:.2}] ({:.0}/s beside 100,000, {:.0}/s beside 10,000,000); {:.2}x while Redis' \
             tables grow",
            median(&ratios),
            median(&few),
            median(&many),
            median(&before),
        );
        Size { name, value, must: "0.8x", goal: "flat" }
    };
    Ok(vec![
        size("enqueuing tasks beside 10,000,000 scheduled ones", |rates| rates.enqueue),
        size("scheduling tasks beside 10,000,000 scheduled ones", |rates| rates.schedule),
        size("forwarding due tasks beside 10,000,000 scheduled ones", |rates| rates.forward),
        size("draining beside 10,000,000 scheduled ones", |rates| rates.drain),
    ])
}

async fn rounds(args: &Args, few: &Side, many: &Side) -> Result<Rounds, Failure> {
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        // Neither always follows the other.
        let rates = if round % 2 == 0 {
            let few = few.round(args).await?;
            (few, many.round(args).await?)
        } else {
            let many = many.round(args).await?;
            (few.round(args).await?, many)
        };
        rounds.push(rates);
    }
    Ok(rounds)
}

impl Side {
    async fn start(scheduled: u64) -> Result<Self, Failure> {
        let mut server = Server::start(false, &[]).await?;
        let client = Client::connect(&server.url()).await?;
        let broker = Broker::new(client.redis().clone());
        server.schedule_far_off(QUEUE, scheduled).await?;
        Ok(Self { server, client, broker, scheduled })
    }

    async fn settle(&mut self) -> Result<(), Failure> {
        self.server.settle(QUEUE, self.scheduled).await
    }

    async fn round(&self, args: &Args) -> Result<Rates, Failure> {
        // Time enough to enqueue them; what counts as due is said to `forward`.
        let soon = TaskOptions::new().process_in(Duration::from_secs(3_000));
        let enqueue = self.enqueue(TaskOptions::new()).await?;
        let schedule = self.enqueue(soon).await?;
        let later = SystemClock.now_ns() + 3_600 * 1_000_000_000;
        let began = Instant::now();
        while self.broker.forward(QUEUE, TaskState::Scheduled, later, 0).await?.moved > 0 {}
        let forward = rate(began);
        let drain = format!("bench drain --concurrency 50 --redis {} --json", self.server.url());
        let drain = program::run(&args.queuectl, &drain, 1).await?.report["per_second"].as_f64().ok_or("no rate")?;
        Ok(Rates { enqueue, schedule, forward, drain })
    }

    async fn enqueue(&self, options: TaskOptions) -> Result<f64, Failure> {
        let task = RawTask::new("bench:noop").payload(vec![b'x'; 200]).queue(QUEUE).with(options);
        let tasks = vec![task; TASKS as usize];
        let began = Instant::now();
        for outcome in self.client.enqueue_many(tasks).await {
            outcome?;
        }
        Ok(rate(began))
    }
}

fn rate(began: Instant) -> f64 {
    TASKS as f64 / began.elapsed().as_secs_f64()
}

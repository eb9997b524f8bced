//! A worker: a server as anybody would write it, whose handlers do what the plan of their task says.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use queue_core::{Clock, RawTask, SystemClock};
use queue_redis::{Client, Redis, RedisOptions, Stderr};
use queue_worker::{CheckpointError, Event, Failure, Group, Job, RetryPolicy, Router, Server, ServerError};

use crate::Seat;
use crate::batch::add_members;
use crate::fleet::clock_file;
use crate::ledger::{Book, Step, now_ns};
use crate::name::{DIGEST, HEADER, Name, Plan, QUEUES};

/// What a task with checkpoints consists of.
const PIECES: u16 = 8;

#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    seat: Seat,
    #[arg(long)]
    name: String,
    #[arg(long)]
    concurrency: usize,
    #[arg(long)]
    lease_secs: u64,
    #[arg(long)]
    max_crashes: u32,
    /// Seconds by which the clock of this host is set wrong now and then.
    #[arg(long, allow_hyphen_values = true, default_value_t = 0)]
    skew_secs: i64,
    /// Does not compare it with Redis' clock, to see what that would lead to.
    #[arg(long)]
    trust_clock: bool,
}

/// The clock of a host: set wrong by so many seconds and right again every 10 s, and stepped when the plan says so.
#[derive(Debug)]
struct Skewed {
    skew_secs: i64,
    step_secs: AtomicI64,
}

impl Clock for Skewed {
    fn now_ns(&self) -> i64 {
        let is_wrong = SystemClock.now_secs() / 10 % 2 == 1;
        let seconds = self.step_secs.load(Ordering::SeqCst) + if is_wrong { self.skew_secs } else { 0 };
        SystemClock.now_ns() + seconds * 1_000_000_000
    }
}

#[derive(Debug, Clone)]
struct Host {
    book: Book,
    client: Client,
    process: u16,
}

/// Serves until it is told to end.
pub(crate) async fn run(settings: Settings) -> Result<(), crate::Failure> {
    // Rust's own words about a panic would wait for whoever reads the log.
    std::panic::set_hook(Box::new(|panic| drop(writeln!(Stderr, "{panic}"))));
    let book = Book::open(&settings.seat.ledger)?;
    let redis = Redis::lazy(&settings.seat.redis, RedisOptions::default())?;
    let clock = Arc::new(Skewed { skew_secs: settings.skew_secs, step_secs: AtomicI64::new(0) });
    tokio::spawn(follow_steps(clock.clone(), clock_file(&settings.seat.ledger)));
    loop {
        let client = Client::new(redis.clone());
        let host = Host { book: book.clone(), client, process: settings.seat.process };
        let (worker, digester) = (host.clone(), host);
        let router = Router::new(())
            .route_exact(DIGEST, move |job: Job| digest(digester.clone(), job))
            .route("chaos:", move |job: Job| work(worker.clone(), job))
            .aggregate(aggregate);
        let told = book.clone();
        let server = Server::new(redis.clone(), router)
            .name(&settings.name)
            .queues(QUEUES.map(|queue| (queue, 1)))
            .concurrency(settings.concurrency)
            .lease(Duration::from_secs(settings.lease_secs))
            .max_crashes(settings.max_crashes)
            .retry_policy(RetryPolicy::Fixed(Duration::from_secs(1)))
            .shutdown_timeout(Duration::from_secs(3))
            .group_grace_period(Duration::from_secs(1))
            .group_max_delay(Duration::from_secs(3))
            .group_max_size(60)
            .clock(clock.clone())
            .correct_clock(!settings.trust_clock)
            .observe(move |event| match event {
                Event::Reported { refused, .. } if *refused > 0 => told.tell('L', *refused),
                Event::Recovered { .. } => told.tell('V', 1),
                _ => {}
            })
            .observe(careless());
        match server.run().await {
            // Redis may be away at this very moment; whoever runs a service starts it again.
            Err(ServerError::Redis(_)) => tokio::time::sleep(Duration::from_millis(300)).await,
            ended => return Ok(ended?),
        }
    }
}

/// Steps the clock as the conductor of the run says in a file.
async fn follow_steps(clock: Arc<Skewed>, file: PathBuf) {
    loop {
        let step = std::fs::read_to_string(&file).ok().and_then(|text| text.parse::<i64>().ok());
        clock.step_secs.store(step.unwrap_or(0), Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// An observer with a fault: one of four hundred events makes it panic.
fn careless() -> impl Fn(&Event<'_>) + Send + Sync + 'static {
    let seen = AtomicU64::new(0);
    move |_| assert!(seen.fetch_add(1, Ordering::SeqCst) % 400 != 399, "an observer with a fault")
}

async fn work(host: Host, job: Job) -> Result<Bytes, Failure> {
    let name = job.headers().get(HEADER).and_then(|name| Name::parse(name));
    let Some(name) = name else { return Err(Failure::archive("a task without a name")) };
    let begun = now_ns();
    host.book.note(Step::Start(u16::try_from(job.retried()).unwrap_or(u16::MAX)), &[name]);
    if name.plan == Plan::Careful {
        careful(&host, name, &job).await?;
    } else if !name.work().is_zero() {
        tokio::select! {
            () = tokio::time::sleep(name.work()) => {}
            () = job.cancellation().cancelled(), if name.plan == Plan::Unwanted => {
                host.book.note(Step::Archive, &[name]);
                return Err("cancelled".into());
            }
        }
    }
    if name.plan == Plan::Adder
        && let Err(error) = add_members(&host.client, &host.book, name, job.id()).await
    {
        host.book.note(Step::Failure, &[name]);
        return Err(error.into());
    }
    match name.plan {
        Plan::Poison => {
            kill(Pid::this(), Signal::SIGKILL)?;
            std::future::pending().await
        }
        Plan::Large if job.payload()[..] != name.large_payload()[..] => {
            host.book.note(Step::Archive, &[name]);
            Err(Failure::archive("another payload than was enqueued"))
        }
        Plan::Doomed => {
            host.book.note(Step::Archive, &[name]);
            Err(Failure::archive("meant to be archived"))
        }
        _ if job.retried() < name.failures() => {
            host.book.note(Step::Failure, &[name]);
            Err("meant to fail".into())
        }
        _ => {
            host.book.note(Step::Success, &[name]);
            // Whose result is kept in the end?
            Ok(format!("{} {begun}", host.process).into())
        }
    }
}

/// Works piece by piece, and goes on behind the last one that is known to be done.
async fn careful(host: &Host, name: Name, job: &Job) -> Result<(), Failure> {
    let failed = |error: CheckpointError| {
        host.book.note(Step::Failure, &[name]);
        Failure::from(error)
    };
    let done = job.cursor::<u16>().await.map_err(failed)?.unwrap_or(0);
    host.book.note(Step::From(done), &[name]);
    for piece in done..PIECES {
        tokio::time::sleep(Duration::from_millis(80)).await;
        // One that is not stored leads to nothing but more work.
        if let Ok(true) = job.checkpoint(&(piece + 1)).await {
            host.book.note(Step::Kept(piece + 1), &[name]);
        }
    }
    Ok(())
}

async fn aggregate(_group: Group, tasks: Vec<RawTask>) -> RawTask {
    let names: Vec<&str> =
        tasks.iter().filter_map(|task| task.options.headers.get(HEADER)).map(String::as_str).collect();
    RawTask::new(DIGEST).payload(names.join(" "))
}

async fn digest(host: Host, job: Job) -> Result<(), Failure> {
    let payload = String::from_utf8_lossy(job.payload()).into_owned();
    let names: Vec<Name> = payload.split(' ').filter_map(Name::parse).collect();
    host.book.note(Step::Start(u16::try_from(job.retried()).unwrap_or(u16::MAX)), &names);
    tokio::time::sleep(Duration::from_millis(20)).await;
    host.book.note(Step::Success, &names);
    host.book.tell('G', 1);
    Ok(())
}

//! A run from beginning to end.

use std::collections::{HashMap, HashSet};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use queue_admin::Inspector;
use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;
use crate::batch::Place;
use crate::broadcast;
use crate::check::{Evidence, judge};
use crate::faults::Hand;
use crate::findings::Invariant;
use crate::fleet::{Fleet, Orders, Process, Role};
use crate::history::History;
use crate::ledger::Step;
use crate::listen::Listener;
use crate::name::{self, GROUPS, QUEUES};
use crate::net::{self, Namespaces};
use crate::node::Redis;
use crate::plan::Plan;
use crate::poison::{Poisoner, watch};
use crate::report::Report;
use crate::snapshot::Snapshot;
use crate::tamper::Tamper;

#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// The plan to follow; a run with the same seed breaks the same things in the same order. Drawn by chance
    /// if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Breaks at least so many things
    #[arg(long, default_value_t = 1_000)]
    faults: usize,
    /// Enqueues at least so many tasks
    #[arg(long, default_value_t = 1_000_000)]
    tasks: u64,
    /// Tasks per second
    #[arg(long, default_value_t = 1_000)]
    rate: u32,
    /// Mean pause between two faults, in milliseconds
    #[arg(long, default_value_t = 500)]
    pause_ms: u64,
    /// Seconds by which the clocks of workers are set wrong and right again while they run, in both directions
    #[arg(long, default_value_t = 60)]
    skew_secs: i64,
    /// Makes so many trees of batches per minute, beside the tasks
    #[arg(long, default_value_t = 0)]
    batches: u32,
    /// Sends so many broadcasts per minute, beside the tasks
    #[arg(long, default_value_t = 0)]
    broadcasts: u32,
    /// The worker on Go asynq; without it only workers of ours take part
    #[arg(long)]
    go: Option<PathBuf>,
    /// Where to write the report
    #[arg(long)]
    report: Option<PathBuf>,
    /// Keeps the ledgers and the logs of all processes in this directory, which has to be empty
    #[arg(long)]
    keep: Option<PathBuf>,
    /// How many seconds everybody has to finish when nothing is broken any more
    #[arg(long, default_value_t = 600)]
    patience_secs: u64,
    /// How many crashes a task may survive, for workers of ours
    #[arg(long, default_value_t = 3)]
    max_crashes: u32,
    /// Gives each process a network of its own, so that the kernel can lose its packets; Linux only
    #[arg(long, value_enum, default_value_t = Namespaces::Never)]
    namespaces: Namespaces,
    /// This is the run within a network of its own
    #[arg(long, hide = true)]
    within: bool,
    /// Does something wrong behind the back of the ledger, to see that it is found
    #[arg(long, hide = true)]
    tamper: Option<Tamper>,
}

/// Runs; whether nothing was found.
pub(crate) async fn run(settings: Settings) -> Result<bool, Failure> {
    let network = network(&settings).await?;
    let seed = settings.seed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    println!("seed {seed}; to do the same again: queue-chaos run --seed {seed}, with the other options as they were");
    let begun = Instant::now();
    let temporary = tempfile::Builder::new().prefix("queue-chaos-").tempdir()?;
    let directory = settings.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&directory)?;
    if std::fs::read_dir(&directory)?.next().is_some() {
        let directory = directory.display();
        return Err(format!("{directory} is not empty, and this run would be judged by the ledgers in it").into());
    }
    let mut redis = Redis::start().await?;
    let version = redis.version().await?;
    let tasks = u32::try_from(settings.tasks).unwrap_or(u32::MAX);
    let orders = Orders {
        go: settings.go.clone(),
        seed,
        tasks,
        max_crashes: settings.max_crashes,
        namespaces: settings.within,
        roles: roles(&settings),
    };
    let inspector = Inspector::new(redis.handle().await?);
    for (queue, limit) in QUEUES.into_iter().zip(name::limits()) {
        inspector.set_limit(queue, limit).await?;
    }
    let mut fleet = Fleet::new(&directory, orders, &redis.upstream).await?;
    let poisoner = Poisoner::of(&mut fleet)?;
    let listener = Listener::start(&redis.upstream).await?;
    let mut hand = Hand::new(fleet, poisoner);
    let deaths = tokio::spawn(watch(hand.fleet.clone(), hand.happened.clone()));

    break_things(&settings, seed, &mut hand, &mut redis).await?;
    println!("{} faults; nothing is broken any more, but by poison that is left", hand.count());
    while hand.later.join_next().await.is_some() {}
    let mut fleet = hand.fleet.lock().await;
    for slot in fleet.of(true) {
        fleet.end(slot, Duration::from_secs(60)).await?;
    }
    if let Some(tamper) = settings.tamper {
        tamper.during(&redis, &directory, &mut fleet).await?;
    }
    drop(fleet);
    let left = unfinished_trees(&hand.fleet.lock().await.processes)?;
    let drained = drain(&redis, &left, Duration::from_secs(settings.patience_secs)).await?;
    deaths.abort();
    let mut fleet = hand.fleet.lock().await;
    let fallen = fleet.fallen();
    for slot in fleet.of(false) {
        fleet.end(slot, Duration::from_secs(30)).await?;
    }
    if let Some(tamper) = settings.tamper {
        tamper.after(&redis).await?;
    }

    let heard = listener.end();
    let snapshot = Snapshot::read(&mut redis.connection().await?).await?;
    redis.stop().await?;
    let history = History::read(&fleet.processes)?;
    let happened = hand.happened.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    if settings.keep.is_some() {
        std::fs::write(
            directory.join("faults.txt"),
            happened.iter().map(|fault| format!("{fault:?}\n")).collect::<String>(),
        )?;
    }
    let exported_twice = std::mem::take(&mut *hand.exports.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    let mixed = settings.go.is_some();
    let processes = &fleet.processes;
    let max_crashes = settings.max_crashes;
    let evidence = Evidence {
        history: &history,
        snapshot: &snapshot,
        happened: &happened,
        mixed,
        max_crashes,
        processes,
        heard: &heard,
        exported_twice: &exported_twice,
    };
    let (mut findings, tally) = judge(&evidence);
    for process in fallen {
        let log = std::fs::read_to_string(directory.join(format!("{process}.log"))).unwrap_or_default();
        let last = log.lines().next_back().unwrap_or("nothing was said");
        findings.add(Invariant::Fallen, format!("process {process}: {last}"));
    }
    let report = Report {
        seed,
        mixed,
        network,
        packets_lost: hand.packets_lost.load(Ordering::SeqCst),
        rate: settings.rate,
        skew_secs: settings.skew_secs,
        redis: version,
        lasted: begun.elapsed(),
        drained,
        processes: fleet.processes.len(),
        happened: &happened,
        history: &history,
        tally: &tally,
        snapshot: &snapshot,
        findings: &findings,
        heard: &heard,
    };
    println!("{report}");
    if let Some(path) = settings.report {
        std::fs::write(path, report.to_string())?;
    }
    Ok(findings.is_empty())
}

/// Sees to it that processes can have networks of their own, if they are to; returns what the report says.
async fn network(settings: &Settings) -> Result<String, Failure> {
    let shared = "the loopback of the host, one for all".to_owned();
    if settings.within {
        net::begin().await?;
        return Ok("a network namespace for each process, on links on which the kernel loses packets".to_owned());
    }
    match settings.namespaces {
        Namespaces::Never => Ok(shared),
        Namespaces::Always => Err(net::enter()),
        Namespaces::IfPossible => {
            let reason = net::enter();
            eprintln!("!!! {reason}\n!!! partitions by the kernel are LEFT OUT; proxies part instead");
            Ok(format!("{shared}; {reason}"))
        }
    }
}

fn roles(settings: &Settings) -> Vec<Role> {
    let skew = settings.skew_secs;
    let mut roles = vec![Role::Producer { rate: settings.rate / 2 }; 2];
    if settings.batches > 0 {
        roles.push(Role::Batcher { rate: settings.batches });
    }
    if settings.broadcasts > 0 {
        roles.push(Role::Broadcaster { rate: settings.broadcasts });
    }
    for (lease_secs, skew_secs) in [(5, 0), (5, skew), (5, -skew), (30, 0), (30, skew), (30, -skew)] {
        roles.push(Role::Worker { lease_secs, skew_secs });
    }
    if settings.go.is_some() {
        roles.extend([Role::GoWorker; 3]);
    }
    roles
}

/// Follows the plan until there were enough faults and enough tasks, or somebody has had enough (Ctrl-C, SIGTERM).
async fn break_things(settings: &Settings, seed: u64, hand: &mut Hand, redis: &mut Redis) -> Result<(), Failure> {
    let mut plan = Plan::new(seed, Duration::from_millis(settings.pause_ms), settings.within);
    let mut intents = Intents::default();
    let (mut told, mut number) = (Instant::now(), 0);
    let mut signals = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    let enough = Arc::new(AtomicBool::new(false));
    let heard = enough.clone();
    tokio::spawn(async move {
        let [interrupt, terminate] = &mut signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        heard.store(true, Ordering::SeqCst);
    });
    loop {
        let tasks = intents.count(&hand.fleet.lock().await.processes)?;
        if told.elapsed() > Duration::from_secs(30) {
            println!("{} faults, {tasks} tasks", hand.count());
            told = Instant::now();
        }
        let done = hand.count() >= settings.faults && tasks >= settings.tasks;
        if done || enough.load(Ordering::SeqCst) {
            return Ok(());
        }
        if settings.faults == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        }
        let Some(fault) = plan.next() else { return Ok(()) };
        tokio::time::sleep(fault.pause).await;
        number += 1;
        let did = hand.do_it(&fault, redis).await;
        did.map_err(|error| format!("fault {number}, {fault}, could not be made: {error}"))?;
    }
}

/// Counts what producers were about to enqueue, reading on where it stopped.
#[derive(Default)]
struct Intents {
    read: HashMap<u16, u64>,
    total: u64,
}

impl Intents {
    fn count(&mut self, processes: &[Process]) -> Result<u64, Failure> {
        for process in processes.iter().filter(|process| matches!(process.role, Role::Producer { .. })) {
            let Ok(mut file) = std::fs::File::open(&process.ledger) else { continue };
            let read = self.read.entry(process.number).or_default();
            file.seek(SeekFrom::Start(*read))?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            *read += text.len() as u64;
            // A line begins with what it says, and the letter stands nowhere else.
            self.total += text.iter().filter(|byte| **byte == b'I').count() as u64;
        }
        Ok(self.total)
    }
}

/// The trees of batches, and the broadcasts, whose makers were not told that they are there.
fn unfinished_trees(processes: &[Process]) -> Result<HashSet<String>, Failure> {
    let is_maker = |process: &&Process| matches!(process.role, Role::Batcher { .. } | Role::Broadcaster { .. });
    let makers: Vec<Process> = processes.iter().filter(is_maker).cloned().collect();
    let mut left = HashSet::new();
    for story in History::read(&makers)?.stories() {
        if matches!(story.answer, Some((_, Step::Stored))) {
            continue;
        }
        match story.name.plan {
            name::Plan::AfterAll => left.insert(Place::of(story.name).root()),
            name::Plan::Everywhere => left.insert(broadcast::id(story.name)),
            _ => false,
        };
    }
    Ok(left)
}

/// Waits until nothing is on its way any more; returns how long that took, or nothing.
/// Trees in `left` are those that their makers have left half-way: nobody waits for them.
async fn drain(redis: &Redis, left: &HashSet<String>, patience: Duration) -> Result<Option<Duration>, Failure> {
    let begun = Instant::now();
    let mut connection = redis.connection().await?;
    while begun.elapsed() < patience {
        let mut look = redis::pipe();
        for queue in QUEUES {
            let key = |suffix: &str| format!("asynq:{{{queue}}}:{suffix}");
            let keys = ["pending", "active", "lease", "scheduled", "retry", "aggregation_sets"];
            let groups = GROUPS.map(|group| key(&format!("g:{group}")));
            look.cmd("EXISTS").arg("asynq:x:cancels").arg(keys.map(key).to_vec()).arg(groups.to_vec());
        }
        let tasks: Vec<u64> = look.query_async(&mut connection).await?;
        let trees: Vec<String> = redis.ask(&["ZRANGE", "asynq:x:flows", "0", "-1"]).await?;
        if tasks.iter().all(|count| *count == 0) && trees.iter().all(|tree| left.contains(tree)) {
            return Ok(Some(begun.elapsed()));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(None)
}

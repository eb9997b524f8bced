//! Two builds of `bench/program` in turn, and whether the second one is worse.
//!
//! A machine that others use too gives more or less from second to second. So both sides run within each round, the
//! ratio is taken within the round, and what counts is the median of these ratios with the range that holds it with a
//! probability of 95 %, whatever the noise looks like. While that range does not say enough, more rounds follow.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::Failure;
use crate::program;
use crate::report::spread;
use crate::rounds::median;
use crate::server::Server;

/// Measure two builds of bench/program in turn: the first the earlier one, or the one to compare with
#[derive(Debug, Args)]
pub(crate) struct Against {
    /// The program built at the earlier revision
    #[arg(long)]
    before: PathBuf,
    /// The program built at the later revision
    #[arg(long)]
    after: PathBuf,
    /// More arguments for the first, such as runtime=one
    #[arg(long, default_value = "")]
    before_with: String,
    /// More arguments for the second
    #[arg(long, default_value = "")]
    after_with: String,
    /// By how many percent a figure may be worse
    #[arg(long, default_value_t = 3.0)]
    bound: f64,
    /// Rounds at the least; in each, either side runs once
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Rounds at the most, for figures of which fewer do not say enough
    #[arg(long, default_value_t = 21)]
    most_rounds: usize,
    /// Only figures whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Seconds for which idle servers are watched
    #[arg(long, default_value_t = 45)]
    idle_seconds: u64,
}

struct Figure {
    name: &'static str,
    arguments: &'static str,
    tasks: u64,
    filled: bool,
    /// What the programs report, the first of which is the figure itself.
    metrics: &'static [Metric],
}

#[derive(Clone, Copy)]
struct Metric {
    unit: &'static str,
    /// The field of the programs' JSON; empty for what Redis says.
    field: &'static str,
    more_is_better: bool,
    /// How many times the bound this one has.
    slack: f64,
}

const RATE: Metric = Metric { unit: "tasks/s", field: "per_second", more_is_better: true, slack: 1.0 };
const REDIS: Metric = Metric { unit: "Redis CPU µs/task", field: "", more_is_better: false, slack: 1.0 };
const OWN: Metric = Metric { unit: "own CPU µs/task", field: "cpu_us", more_is_better: false, slack: 1.0 };
const MEMORY: Metric = Metric { unit: "peak MB", field: "peak_mb", more_is_better: false, slack: 1.0 };
// What a processor needs to wake up differs more from moment to moment than what the program does then.
const MIDDLE: Metric = Metric { unit: "p50 ms", field: "p50_ms", more_is_better: false, slack: 3.0 };
const IDLE: Metric = Metric { unit: "commands/s", field: "", more_is_better: false, slack: 3.0 };

const WORK: &[Metric] = &[RATE, REDIS, OWN];

const fn drain(name: &'static str, arguments: &'static str, tasks: u64) -> Figure {
    Figure { name, arguments, tasks, filled: true, metrics: WORK }
}

const fn enqueue(name: &'static str, arguments: &'static str, tasks: u64) -> Figure {
    Figure { name, arguments, tasks, filled: false, metrics: WORK }
}

const FIGURES: &[Figure] = &[
    drain("drain, concurrency 10", "drain concurrency=10", 20_000),
    Figure { metrics: &[RATE, REDIS, OWN, MEMORY], ..drain("drain, concurrency 50", "drain concurrency=50", 30_000) },
    drain("drain, concurrency 100", "drain concurrency=100", 30_000),
    drain("drain, concurrency 10, 10 µs of work", "drain concurrency=10 work_us=10", 15_000),
    drain("drain, concurrency 50, 10 µs of work", "drain concurrency=50 work_us=10", 20_000),
    drain("drain, concurrency 100, 10 µs of work", "drain concurrency=100 work_us=10", 20_000),
    drain("drain, concurrency 50, 100 µs of work", "drain concurrency=50 work_us=100", 5_000),
    drain("drain, concurrency 50, handlers that wait once", "drain concurrency=50 waits=1", 30_000),
    drain("drain on one thread, concurrency 50", "drain concurrency=50 runtime=one", 30_000),
    drain("drain on one thread, concurrency 50, 10 µs of work", "drain concurrency=50 work_us=10 runtime=one", 20_000),
    enqueue("enqueue, 1 caller", "enqueue callers=1", 8_000),
    enqueue("enqueue, 50 callers", "enqueue callers=50", 20_000),
    enqueue("enqueue, 1 caller, 100 tasks per call", "enqueue batch=100", 30_000),
    enqueue("enqueue and drain at once, 50 callers, concurrency 50", "both callers=50 concurrency=50", 20_000),
    Figure { metrics: &[MIDDLE], ..enqueue("start after enqueue, 100 tasks/s", "latency rate=100", 150) },
];

/// What the rounds say about one metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Not worse by more than the bound.
    Fine,
    Worse,
    /// The rounds differ too much.
    Unclear,
}

impl Verdict {
    /// From how much better the second was in each round: 1 is the same.
    fn of(ratios: &[f64], bound: f64) -> Self {
        let (low, high) = range_of_median(ratios);
        if low >= 1.0 - bound {
            Self::Fine
        } else if high < 1.0 && median(ratios) < 1.0 - bound {
            Self::Worse
        } else {
            Self::Unclear
        }
    }
}

/// The values between which the median lies with a probability of 95 %. Of any distribution, each value falls on either
/// side of its median as a coin does; so the k-th smallest is above it as seldom as fewer than k coins of n show heads.
fn range_of_median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let (mut seldom, mut exactly, mut cut) = (0.0, 0.5_f64.powi(count as i32), 0);
    while cut < count / 2 {
        seldom += exactly;
        if seldom > 0.025 {
            break;
        }
        exactly *= (count - cut) as f64 / (cut + 1) as f64;
        cut += 1;
    }
    // With fewer than six values, not even all of them are enough.
    if cut == 0 { (f64::NEG_INFINITY, f64::INFINITY) } else { (sorted[cut - 1], sorted[count - cut]) }
}

/// What one metric was on either side.
struct Measured {
    name: String,
    metric: Metric,
    before: Vec<f64>,
    after: Vec<f64>,
}

impl Measured {
    fn new(figure: &str, metric: Metric) -> Self {
        Self { name: format!("{figure}: {}", metric.unit), metric, before: Vec::new(), after: Vec::new() }
    }

    /// How much better the second was, in each round.
    fn ratios(&self) -> Vec<f64> {
        let better = |(before, after): (&f64, &f64)| {
            if self.metric.more_is_better { after / before } else { before / after }
        };
        self.before.iter().zip(&self.after).map(better).collect()
    }

    fn verdict(&self, bound: f64) -> Verdict {
        Verdict::of(&self.ratios(), bound * self.metric.slack)
    }

    fn line(&self, bound: f64) -> String {
        let ratios = self.ratios();
        let (low, high) = range_of_median(&ratios);
        let verdict = match self.verdict(bound) {
            Verdict::Fine => "",
            Verdict::Worse => "**worse**",
            Verdict::Unclear => "unclear",
        };
        let (before, after, rounds) = (spread(&self.before), spread(&self.after), ratios.len());
        let middle = median(&ratios);
        format!("| {} | {before} | {after} | {middle:.3} [{low:.3}–{high:.3}] | {rounds} | {verdict} |\n", self.name)
    }
}

/// 0 when nothing is worse, 1 when something is, 3 when the rounds differ too much to say. 2 is for what failed.
pub(crate) async fn run(args: &Against) -> Result<ExitCode, Failure> {
    let bound = args.bound / 100.0;
    println!("| figure | before | after | after is better by | rounds | |\n| --- | --- | --- | --- | --- | --- |");
    let mut all = Vec::new();
    for figure in FIGURES.iter().filter(|figure| figure.name.contains(&args.only)) {
        eprintln!("{}", figure.name);
        let measured = measure(figure, args, bound).await?;
        measured.iter().for_each(|measured| print!("{}", measured.line(bound)));
        all.extend(measured);
    }
    let idle = "an idle server with 4 queues";
    if idle.contains(&args.only) {
        eprintln!("{idle}");
        let measured = watch_idle(idle, args).await?;
        print!("{}", measured.line(bound));
        all.push(measured);
    }
    let (text, code) = conclusion(&all, args.bound);
    println!("\n{text}");
    Ok(code)
}

fn conclusion(all: &[Measured], percent: f64) -> (String, ExitCode) {
    let named = |verdict| {
        let is_it = |measured: &&Measured| measured.verdict(percent / 100.0) == verdict;
        all.iter().filter(is_it).map(|measured| measured.name.as_str()).collect::<Vec<_>>().join("; ")
    };
    let (worse, unclear) = (named(Verdict::Worse), named(Verdict::Unclear));
    let mut text = format!(
        "Medians [lowest–highest]; the ratio is that within a round, with the range that holds its median with a \
         probability of 95 %. Bound: {percent} %, three times that for latencies and idle servers. "
    );
    let _ = if !worse.is_empty() {
        write!(text, "WORSE: {worse}. ")
    } else if unclear.is_empty() {
        write!(text, "Nothing is worse.")
    } else {
        Ok(())
    };
    if !unclear.is_empty() {
        let _ = write!(text, "Unclear, the rounds differ too much to exclude it: {unclear}.");
    }
    let code = match (worse.is_empty(), unclear.is_empty()) {
        (false, _) => 1,
        (true, false) => 3,
        (true, true) => 0,
    };
    (text, ExitCode::from(code))
}

async fn measure(figure: &Figure, args: &Against, bound: f64) -> Result<Vec<Measured>, Failure> {
    let mut server = Server::start(false, &[]).await?;
    let mut measured: Vec<_> = figure.metrics.iter().map(|metric| Measured::new(figure.name, *metric)).collect();
    for round in 0..args.most_rounds.max(args.rounds) {
        if round >= args.rounds && measured.iter().all(|measured| measured.verdict(bound) == Verdict::Fine) {
            break;
        }
        // Neither side always follows the other.
        for before in [round % 2 == 0, round % 2 != 0] {
            let values = one_side(figure, args, &mut server, before).await?;
            for (measured, value) in measured.iter_mut().zip(values) {
                (if before { &mut measured.before } else { &mut measured.after }).push(value);
            }
        }
    }
    server.stop().await;
    Ok(measured)
}

/// What to run on one side, with the arguments that both have.
fn side<'a>(args: &'a Against, before: bool, port: u16, arguments: &str) -> (&'a Path, String) {
    let (program, with) = if before { (&args.before, &args.before_with) } else { (&args.after, &args.after_with) };
    (program, format!("{arguments} redis=redis://127.0.0.1:{port} {with}"))
}

async fn one_side(figure: &Figure, args: &Against, server: &mut Server, before: bool) -> Result<Vec<f64>, Failure> {
    let (port, tasks) = (server.port, figure.tasks);
    server.flush().await?;
    if figure.filled {
        let (program, arguments) = side(args, false, port, &format!("enqueue batch=100 tasks={tasks}"));
        program::run(program, &arguments, 1).await?;
    }
    let (program, arguments) = side(args, before, port, &format!("{} tasks={tasks}", figure.arguments));
    let redis_cpu = server.cpu().await?;
    let run = program::run(program, &arguments, 1).await?;
    let redis_cpu = (server.cpu().await? - redis_cpu) * 1e6 / tasks as f64;
    let value = |metric: &Metric| match metric.field {
        "" => Ok(redis_cpu),
        field => run.report[field].as_f64().ok_or_else(|| format!("{arguments} did not report {field}").into()),
    };
    figure.metrics.iter().map(value).collect()
}

/// Commands per second that a server sends which has nothing to do, those within scripts included. Nobody is in the
/// way of anybody here, so that all rounds are at the same time.
async fn watch_idle(name: &str, args: &Against) -> Result<Measured, Failure> {
    const PAIRS: usize = 6;
    let mut servers = Vec::new();
    for pair in 0..PAIRS {
        for before in [pair % 2 == 0, pair % 2 != 0] {
            let redis = Server::start(false, &[]).await?;
            let (program, arguments) = side(args, before, redis.port, "idle queues=4");
            servers.push((before, redis, program::spawn(program, &arguments)?));
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut seen = Vec::new();
    for (_, redis, _) in &mut servers {
        seen.push(redis.info("stats", "total_commands_processed").await?);
    }
    tokio::time::sleep(Duration::from_secs(args.idle_seconds)).await;
    let mut measured = Measured::new(name, IDLE);
    for ((before, mut redis, mut child), seen) in servers.into_iter().zip(seen) {
        // One of them is the look itself.
        let commands = redis.info("stats", "total_commands_processed").await? - seen - 1.0;
        child.kill().await?;
        redis.stop().await;
        let side = if before { &mut measured.before } else { &mut measured.after };
        side.push(commands / args.idle_seconds as f64);
    }
    // Which two servers make a pair is chance; sorted, their jitter cancels out.
    measured.before.sort_by(f64::total_cmp);
    measured.after.sort_by(f64::total_cmp);
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds with this middle, which differ by up to so much; always the same ones.
    fn rounds(middle: f64, noise: f64, count: usize) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(7);
        (0..count).map(|_| middle * (1.0 + noise * (random.f64() * 2.0 - 1.0))).collect()
    }

    #[test]
    fn equal_revisions_pass_although_rounds_differ() {
        assert_eq!(Verdict::of(&rounds(1.0, 0.04, 15), 0.03), Verdict::Fine);
        assert_eq!(Verdict::of(&rounds(1.2, 0.15, 15), 0.03), Verdict::Fine, "better is fine");
    }

    #[test]
    fn a_tenth_less_is_worse_although_rounds_differ() {
        assert_eq!(Verdict::of(&rounds(0.9, 0.08, 15), 0.03), Verdict::Worse);
    }

    #[test]
    fn noise_is_neither_called_fine_nor_worse() {
        assert_eq!(Verdict::of(&rounds(1.0, 0.6, 15), 0.03), Verdict::Unclear);
        assert_eq!(Verdict::of(&rounds(1.0, 0.001, 5), 0.03), Verdict::Unclear, "five rounds say nothing for sure");
    }

    #[test]
    fn a_round_that_was_disturbed_decides_nothing() {
        let mut ratios = rounds(1.0, 0.01, 9);
        ratios[3] = 0.2;
        assert_eq!(Verdict::of(&ratios, 0.03), Verdict::Fine);
    }

    #[test]
    fn the_range_of_the_median_is_by_rank() {
        let values: Vec<f64> = (1..=15).map(f64::from).collect();
        assert_eq!(range_of_median(&values), (4.0, 12.0), "as tables of the sign test have it");
        assert_eq!(range_of_median(&values[..6]), (1.0, 6.0));
        assert_eq!(range_of_median(&values[..5]), (f64::NEG_INFINITY, f64::INFINITY));
    }

    #[test]
    fn less_cpu_is_better_and_fewer_tasks_per_second_are_not() {
        let measured = |metric, before, after| Measured { before, after, ..Measured::new("drain", metric) };
        let (many, few) = (vec![100.0; 9], vec![80.0; 9]);
        assert_eq!(measured(RATE, many.clone(), few.clone()).verdict(0.03), Verdict::Worse);
        assert_eq!(measured(RATE, few.clone(), many.clone()).verdict(0.03), Verdict::Fine);
        assert_eq!(measured(OWN, many.clone(), few.clone()).verdict(0.03), Verdict::Fine);
        assert_eq!(measured(OWN, few, many).verdict(0.03), Verdict::Worse);
    }
}

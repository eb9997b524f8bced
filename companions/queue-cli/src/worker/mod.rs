//! `queuectl worker`: a worker for programs in any language, and for services that speak HTTP.

mod capture;
mod command;
mod environment;
mod exec;
mod group;
mod header;
mod http;
mod metrics;
mod notes;
mod outcome;
mod retry_after;
mod rule;
mod shortage;
mod watchdog;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use queue_core::limits::MAX_CONCURRENCY;
use queue_core::options::check_existing_queue_name;
use queue_worker::{Priorities, RetryPolicy, Router, Server, Unhandled};

use self::command::Command;
use self::exec::Exec;
use self::header::Headers;
pub(crate) use self::http::causes;
use self::http::{Http, Target};
use self::metrics::Served;
use self::rule::{Pattern, Rule};
use self::shortage::{Shortage, raise_files};
use self::watchdog::Watchdog;
use crate::command::Running;
use crate::error::CliError;
use crate::global::Global;
use crate::logging::LogFormat;
use crate::output::Output;
use crate::session::Session;
use crate::when;

/// What a program or a service may still do after it was killed or hung up on: be reaped.
const REAPING: Duration = Duration::from_secs(10);

/// Which tasks to work, and how.
#[derive(Debug, Args)]
#[command(after_help = CONTRACT, group = ArgGroup::new("handlers").args(["exec", "http"]).required(true).multiple(true))]
#[group(skip)]
pub(crate) struct WorkerArgs {
    /// Name by which `queuectl server` gives this worker orders, and `enqueue --only` tasks; several may have the same
    #[arg(long, value_name = "N")]
    name: Option<String>,

    /// Word that `queuectl server ls` shows beside the name, and by which `enqueue --label` finds it; may be given many times
    #[arg(long = "label", value_name = "L")]
    labels: Vec<String>,

    /// Queue to work, with its weight; may be given many times [default: default]
    ///
    /// A queue of weight 6 is tried first six times as often as one of weight 1. `tenant:*` is all queues whose names begin
    /// with `tenant:`, each with this weight, also those that come later; one that is removed is left.
    #[arg(long = "queue", value_name = "NAME[=WEIGHT]", value_parser = queue)]
    queues: Vec<(String, u32)>,

    /// Work a queue only while all queues of greater weight are empty
    #[arg(long)]
    strict: bool,

    /// Work tasks with a priority as well, which others are left otherwise
    #[arg(long, value_enum, value_name = "HOW")]
    priorities: Option<PrioritiesChoice>,

    /// Tasks to work at once: a number, or two bounds such as 2..50 [default: 10, or the number of CPUs where that is more]
    ///
    /// Between two bounds it begins with the lower one, and runs more at once while all are busy and tasks do not become
    /// slower; fewer when they take twice as long as usual, or run out of time.
    #[arg(long, value_name = "N|MIN..MAX", value_parser = concurrency)]
    concurrency: Option<RangeInclusive<usize>>,

    /// Run COMMAND for tasks whose type fits PATTERN; may be given many times
    ///
    /// PATTERN is a task type, or a beginning followed by `*`; the longest that fits counts. COMMAND is split
    /// into words as a shell does, quotes honoured, and run without a shell; write `sh -c '…'` to have one.
    #[arg(long, value_name = "PATTERN=COMMAND", value_parser = command)]
    exec: Vec<Rule<Command>>,

    /// Let programs and services tell how far they are, what they do and where to go on
    ///
    /// Programs write lines of JSON to the file descriptor that TASK_NOTES_FD names: {"progress": 40, "note": "page 3"},
    /// {"log": "connected"}, {"checkpoint": ANY JSON}; if a line says "answer": true, TASK_ANSWERS_FD has a line that tells
    /// whether the checkpoint was stored. Services answer with such lines as application/x-ndjson; their last
    /// one is {"status": 200, "result": ANY JSON}, or {"status": 422, "error": "why", "retry_after": SECONDS}, and means
    /// what an answer with this status does. The next attempt gets the last checkpoint in TASK_CURSOR or the header
    /// X-Task-Cursor. It costs one more look at each task.
    #[arg(long)]
    notes: bool,

    /// POST tasks whose type fits PATTERN to URL; may be given many times
    #[arg(long, value_name = "PATTERN=URL", value_parser = target)]
    http: Vec<Rule<Target>>,

    /// Send this header with the POSTs for tasks whose type fits PATTERN; may be given many times
    ///
    /// Of two with one name, that of the longer PATTERN is sent. `PATTERN=@FILE` reads such lines from FILE at the
    /// start, so that no password stands on the command line, which everybody on the machine can see:
    /// `--http-header 'image:*=@/run/secrets/image'`, and in the file `Authorization: Bearer …`. A user and a password
    /// in the URL of --http are sent as well.
    #[arg(long = "http-header", value_name = "PATTERN=NAME: VALUE")]
    http_headers: Vec<String>,

    /// Time between a failure and the next attempt: asynq, 30s, 10s..1h, or `linear 10s..1h`
    ///
    /// `asynq` waits 15 to 44 s at first and 3.8 days before the 25th retry. One duration is always the same. Two
    /// begin with the first and double it each time up to the second; half of that is random. With `linear` they grow by
    /// the first, and nothing is random. A task that brings a policy with it (`enqueue --backoff`) goes by that.
    #[arg(long, value_name = "POLICY", default_value = "asynq")]
    retry_delay: RetryPolicy,

    /// How long a task stays with a worker that is not heard of any more; at least 5s
    ///
    /// The worker renews it while it runs, every 5s at the most, so that it does not limit how long a task may take.
    #[arg(long, value_name = "D", value_parser = when::duration, default_value = "30s")]
    lease: Duration,

    /// How long running tasks may go on after TERM or Ctrl-C; then they are stopped and requeued
    #[arg(long, value_name = "D", value_parser = when::duration, default_value = "8s")]
    shutdown_timeout: Duration,

    /// How long a program may take to end after TERM, before it gets KILL
    ///
    /// After the worker itself was killed, half of --lease at the most.
    #[arg(long, value_name = "D", value_parser = when::duration, default_value = "5s")]
    kill_grace: Duration,

    /// How often to look whether the queues are in order, and put right what loses nothing; 0s for never
    #[arg(long, value_name = "D", value_parser = when::duration, default_value = "5m")]
    reconcile_interval: Duration,

    /// What to do with tasks whose type fits no PATTERN
    #[arg(long, value_enum, value_name = "CHOICE", default_value_t = UnhandledChoice::Snooze)]
    unhandled: UnhandledChoice,

    /// Serve metrics of this worker at this address, under /metrics, and its health under /healthz
    ///
    /// Port 0 takes any free one, and the log says which. What is in the queues, `queuectl exporter` shows.
    #[arg(long, value_name = "HOST:PORT")]
    metrics_addr: Option<String>,

    /// Start also on a Redis that cannot hold queues, and only say so in the log
    ///
    /// Without it, the worker refuses to start on a Redis that is too old, a replica, or deletes keys when its memory
    /// is used up, and when the user lacks a right.
    #[arg(long)]
    no_start_check: bool,

    /// Form of the log lines on standard error [default: text, or json with --json]
    #[arg(long, value_enum, value_name = "FORM")]
    log_format: Option<LogFormat>,
}

const CONTRACT: &str = "\
Programs get the payload on standard input, and TASK_ID, TASK_TYPE, TASK_QUEUE,
TASK_RETRIED, TASK_MAX_RETRY, TASK_DEADLINE (RFC 3339) and TASK_HEADERS (JSON)
in the environment. Standard output is the result, up to 16 MiB; of a text, the
line break at its end is cut.
  exit code 0    done
  65             archive, no retry
  75             snooze, without spending a retry
  anything else  retry, with the last line of standard error as the message
On timeout, cancel and shutdown the whole process group gets TERM, and KILL
after the grace time; an exit code 0 after TERM does not count as done. What a
program leaves running in its process group is ended as well.

Services get the payload as the body of a POST, and X-Task-Id, X-Task-Type,
X-Task-Queue, X-Task-Retried, X-Task-Max-Retry, X-Task-Deadline, X-Task-Headers.
  2xx                          done, the body is the result
  429, and all other 4xx and   snooze, without spending a retry: for as long
  5xx with Retry-After         as that says, or else as --retry-delay does
  other 4xx, but 408 and 425   archive, no retry
  anything else                retry

  queuectl worker --queue mail=3 --queue default \\
      --exec 'email:*=./send-mail --html' --http 'image:*=http://localhost:8000/'";

/// How the priorities of a queue's tasks count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PrioritiesChoice {
    /// Each is tried first twice as often as the one below it
    Weighted,
    /// A task is worked only while nothing of a higher priority waits
    Strict,
}

/// What to do with tasks whose type fits no rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UnhandledChoice {
    /// Snooze them for 30 s, without spending a retry
    #[value(alias = "putback")]
    Snooze,
    /// Leave them where they are
    Leave,
    /// Let them fail and be retried, as asynq does
    Fail,
    /// Archive them
    Archive,
}

fn queue(text: &str) -> Result<(String, u32), String> {
    let (name, weight) = match text.rsplit_once('=') {
        None => (text, 1),
        Some((name, weight)) => match weight.parse() {
            Ok(weight @ 1..=1_000_000) => (name, weight),
            _ => {
                return Err(format!(
                    "the weight {weight:?} is not a number from 1 to 1000000; write NAME=WEIGHT, like mail=3"
                ));
            }
        },
    };
    if name.strip_suffix('*').is_some_and(|beginning| beginning.contains('*')) {
        return Err(format!("{name:?} has more than one '*'; a pattern is the beginning of names and one '*'"));
    }
    check_existing_queue_name(name).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), weight))
}

/// One number is both bounds.
fn concurrency(text: &str) -> Result<RangeInclusive<usize>, String> {
    let number = |text: &str| text.parse().ok().filter(|tasks| (1..=MAX_CONCURRENCY).contains(tasks));
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    match (number(least), number(most)) {
        (Some(least), Some(most)) if least <= most => Ok(least..=most),
        _ => Err(format!("write a number from 1 to {MAX_CONCURRENCY}, or two such as 2..50")),
    }
}

fn command(text: &str) -> Result<Rule<Command>, String> {
    Rule::parse(text, "COMMAND", Command::parse)
}

fn target(text: &str) -> Result<Rule<Target>, String> {
    Rule::parse(text, "URL", Target::parse)
}

/// Programs and services mostly wait, for others or for each other.
fn default_concurrency() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).max(10)
}

impl crate::command::Command for WorkerArgs {
    fn log(&self, json: bool) -> (&'static str, LogFormat) {
        ("info", self.log_format.unwrap_or(LogFormat::of(json)))
    }

    fn handles_signals(&self) -> bool {
        true
    }

    fn run<'a>(self: Box<Self>, session: &'a Session, out: &'a Output) -> Running<'a> {
        Box::pin(run(*self, session, out.json))
    }

    fn check(&self, _: &Global) -> Result<(), CliError> {
        let mut names = BTreeSet::new();
        if let Some((twice, _)) = self.queues.iter().find(|(name, _)| !names.insert(name)) {
            return Err(CliError::Usage(format!("the queue {twice:?} is given twice")));
        }
        let patterns = self.exec.iter().map(|rule| &rule.pattern).chain(self.http.iter().map(|rule| &rule.pattern));
        let mut seen = BTreeSet::new();
        for pattern in patterns {
            if !seen.insert(pattern) {
                return Err(CliError::Usage(format!("the pattern {pattern} is given twice")));
            }
        }
        for rule in &self.exec {
            rule.target.check().map_err(|reason| CliError::failed(format!("--exec {}: {reason}", rule.pattern)))?;
        }
        Headers::read(&self.http_headers, &self.http).map(|_| ())
    }
}

async fn run(args: WorkerArgs, session: &Session, json: bool) -> Result<(), CliError> {
    let forward = match args.log_format.unwrap_or(LogFormat::of(json)) {
        LogFormat::Text => capture::forward_text,
        LogFormat::Json => capture::forward_json,
    };
    let mut router = Router::new(());
    let concurrency = args.concurrency.unwrap_or_else(|| default_concurrency()..=default_concurrency());
    if !args.exec.is_empty() {
        // When this worker is killed, others begin its tasks as soon as their leases have ended.
        let watchdog = Watchdog::start(args.kill_grace.min(args.lease / 2))
            .map_err(|error| CliError::failed(format!("cannot start /bin/sh to watch over programs: {error}")))?;
        raise_files(*concurrency.end());
        let (watchdog, shortage) = (Arc::new(watchdog), Arc::new(Shortage::default()));
        let exec = Exec { grace: args.kill_grace, forward, watchdog, notes: args.notes, shortage };
        for Rule { pattern, target } in args.exec {
            let (exec, target) = (exec.clone(), Arc::new(target));
            router = add(router, pattern, move |job| {
                let (exec, target) = (exec.clone(), target.clone());
                async move { exec.run(&target, &job).await }
            });
        }
    }
    if !args.http.is_empty() {
        let headers = Headers::read(&args.http_headers, &args.http)?;
        let http = Http::new(args.http.iter().any(|rule| rule.target.is_https()), headers, args.notes)?;
        for Rule { pattern, target } in args.http {
            let (http, target) = (http.clone(), Arc::new(target));
            router = add(router, pattern, move |job| {
                let (http, target) = (http.clone(), target.clone());
                async move { http.run(&target, &job).await }
            });
        }
    }
    let server = Server::new(session.redis().clone(), router);
    let server = if concurrency.start() == concurrency.end() {
        server.concurrency(*concurrency.start())
    } else {
        server.adaptive_concurrency(concurrency)
    };
    let mut server = server
        .strict_priority(args.strict)
        .retry_policy(args.retry_delay)
        .lease(args.lease)
        .shutdown_timeout(args.shutdown_timeout)
        .reconcile_interval(args.reconcile_interval)
        .start_check(!args.no_start_check)
        // The handler's future must not be dropped before the program has been killed and reaped.
        .cancel_grace(args.kill_grace.saturating_add(REAPING))
        // Every line of this program names its task already.
        .span(|_| tracing::Span::none())
        .unhandled(match args.unhandled {
            UnhandledChoice::Snooze => Unhandled::Snooze(Duration::from_secs(30)),
            UnhandledChoice::Leave => Unhandled::Leave,
            UnhandledChoice::Fail => Unhandled::Fail,
            UnhandledChoice::Archive => Unhandled::Archive,
        });
    let (patterns, queues): (Vec<_>, Vec<_>) = args.queues.into_iter().partition(|(name, _)| name.ends_with('*'));
    server = patterns
        .into_iter()
        .fold(server.queues(queues), |server, (pattern, weight)| server.queue_pattern(pattern, weight));
    if let Some(priorities) = args.priorities {
        server = server.priorities(match priorities {
            PrioritiesChoice::Weighted => Priorities::Weighted,
            PrioritiesChoice::Strict => Priorities::Strict,
        });
    }
    if let Some(name) = args.name {
        server = server.name(name);
    }
    server = args.labels.into_iter().fold(server, Server::label);
    let mut served = None;
    if let Some(address) = &args.metrics_addr {
        let (observed, endpoint) = Served::start(server, address, session).await?;
        (server, served) = (observed, Some(endpoint));
    }
    let outcome = server.run().await;
    // Until the last task has ended, there is something to see.
    if let Some(served) = served {
        served.end().await;
    }
    Ok(outcome?)
}

/// Adds a handler for a pattern.
fn add<F, Fut>(router: Router, pattern: Pattern, handler: F) -> Router
where
    F: Fn(queue_worker::Job) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<bytes::Bytes, queue_worker::Failure>> + Send + 'static,
{
    match pattern {
        Pattern::Exact(task_type) => router.route_exact(task_type, handler),
        Pattern::Prefix(prefix) if prefix.is_empty() => router.fallback(handler),
        Pattern::Prefix(prefix) => router.route(prefix, handler),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrency_is_a_number_or_two_bounds() {
        assert_eq!((concurrency("7"), concurrency("2..50"), concurrency("3..3")), (Ok(7..=7), Ok(2..=50), Ok(3..=3)));
        for text in ["", "0", "0..5", "5..2", "5..", "..5", "1..100001", "auto", "1...5", "-1"] {
            assert!(concurrency(text).is_err(), "{text}");
        }
    }

    #[test]
    fn queues_have_a_weight_or_the_weight_one() {
        assert_eq!(queue("mail"), Ok(("mail".to_owned(), 1)));
        assert_eq!(queue("mail=3"), Ok(("mail".to_owned(), 3)));
        assert_eq!(queue("a=b=3"), Ok(("a=b".to_owned(), 3)));
        assert_eq!(queue("tenant:*=2"), Ok(("tenant:*".to_owned(), 2)));
        for text in ["", " ", "=3", "a*b*", "**", "mail=", "mail=0", "mail=-1", "mail=high", "mail=1000001", "}x"] {
            assert!(queue(text).is_err(), "{text}");
        }
    }
}

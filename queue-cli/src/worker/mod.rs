//! `queuectl worker`: a worker for programs in any language, and for services that speak HTTP.

mod capture;
mod command;
mod environment;
mod exec;
mod group;
mod http;
mod metrics;
mod outcome;
mod retry_after;
mod rule;
mod watchdog;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use queue_core::options::check_existing_queue_name;
use queue_worker::{Router, Server, Unhandled};

use self::command::Command;
use self::exec::Exec;
use self::http::{Http, Target};
use self::metrics::Served;
use self::rule::{Pattern, Rule};
use self::watchdog::Watchdog;
use crate::error::CliError;
use crate::logging::LogFormat;
use crate::session::Session;
use crate::when;

/// What a program or a service may still do after it was killed or hung up on: be reaped.
const REAPING: Duration = Duration::from_secs(10);

/// Which tasks to work, and how.
#[derive(Debug, Args)]
#[command(after_help = CONTRACT)]
#[group(skip)]
pub(crate) struct WorkerArgs {
    /// Queue to work, with its weight; may be given many times [default: default]
    ///
    /// A queue of weight 6 is tried first six times as often as one of weight 1.
    #[arg(long = "queue", value_name = "NAME[=WEIGHT]", value_parser = queue)]
    queues: Vec<(String, u32)>,

    /// Work a queue only while all queues of greater weight are empty
    #[arg(long)]
    strict: bool,

    /// Tasks to work at once [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: Option<u32>,

    /// Run COMMAND for tasks whose type fits PATTERN; may be given many times
    ///
    /// PATTERN is a task type, or a beginning followed by `*`; the longest that fits counts. COMMAND is split
    /// into words as a shell does, quotes honoured, and run without a shell; write `sh -c '…'` to have one.
    #[arg(long, value_name = "PATTERN=COMMAND", value_parser = command, required_unless_present = "http")]
    exec: Vec<Rule<Command>>,

    /// POST tasks whose type fits PATTERN to URL; may be given many times
    #[arg(long, value_name = "PATTERN=URL", value_parser = target)]
    http: Vec<Rule<Target>>,

    /// How long running tasks may go on after TERM or Ctrl-C; then they are stopped and put back
    #[arg(long, value_name = "D", value_parser = when::duration, default_value = "8s")]
    shutdown_timeout: Duration,

    /// How long a program may take to end after TERM, before it gets KILL
    #[arg(long, value_name = "D", value_parser = when::duration, default_value = "5s")]
    kill_grace: Duration,

    /// How often to look whether the queues are in order, and put right what loses nothing; 0s for never
    #[arg(long, value_name = "D", value_parser = when::duration, default_value = "5m")]
    reconcile_interval: Duration,

    /// What to do with tasks whose type fits no PATTERN
    #[arg(long, value_enum, value_name = "CHOICE", default_value_t = UnhandledChoice::Putback)]
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
in the environment. Standard output is the result, up to 16 MiB.
  exit code 0    done
  65             archive, no retry
  75             put back, without spending a retry
  anything else  retry, with the last line of standard error as the message
On timeout, cancel and shutdown the whole process group gets TERM, and KILL
after the grace time; an exit code 0 after TERM does not count as done. What a
program leaves running in its process group is ended as well.

Services get the payload as the body of a POST, and X-Task-Id, X-Task-Type,
X-Task-Queue, X-Task-Retried, X-Task-Max-Retry, X-Task-Deadline, X-Task-Headers.
  2xx                          done, the body is the result
  4xx, but 408, 425 and 429    archive, no retry
  429, 503 with Retry-After    retry then
  anything else                retry

  queuectl worker --queue mail=3 --queue default \\
      --exec 'email:*=./send-mail --html' --http 'image:*=http://localhost:8000/'";

/// What to do with tasks whose type fits no rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UnhandledChoice {
    /// Put them back for 30 s, without spending a retry
    Putback,
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
    check_existing_queue_name(name).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), weight))
}

fn command(text: &str) -> Result<Rule<Command>, String> {
    Rule::parse(text, "COMMAND", Command::parse)
}

fn target(text: &str) -> Result<Rule<Target>, String> {
    Rule::parse(text, "URL", Target::parse)
}

impl WorkerArgs {
    /// The form of log lines; `json` is the global flag.
    pub(crate) fn log_format(&self, json: bool) -> LogFormat {
        self.log_format.unwrap_or(if json { LogFormat::Json } else { LogFormat::Text })
    }

    /// Finds what is wrong with the rules before anything is started.
    pub(crate) fn check(&self) -> Result<(), CliError> {
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
        Ok(())
    }
}

pub(crate) async fn run(args: WorkerArgs, session: &Session, json: bool) -> Result<(), CliError> {
    let forward = match args.log_format(json) {
        LogFormat::Text => capture::forward_text,
        LogFormat::Json => capture::forward_json,
    };
    let mut router = Router::new(());
    if !args.exec.is_empty() {
        let watchdog = Watchdog::start(args.kill_grace)
            .map_err(|error| CliError::failed(format!("cannot start /bin/sh to watch over programs: {error}")))?;
        let exec = Exec { grace: args.kill_grace, forward, watchdog: Arc::new(watchdog) };
        for Rule { pattern, target } in args.exec {
            let (exec, target) = (exec.clone(), Arc::new(target));
            router = add(router, pattern, move |job| {
                let (exec, target) = (exec.clone(), target.clone());
                async move { exec.run(&target, &job).await }
            });
        }
    }
    if !args.http.is_empty() {
        let http = Http::new(args.http.iter().any(|rule| rule.target.is_https()))?;
        for Rule { pattern, target } in args.http {
            let (http, target) = (http.clone(), Arc::new(target));
            router = add(router, pattern, move |job| {
                let (http, target) = (http.clone(), target.clone());
                async move { http.run(&target, &job).await }
            });
        }
    }
    let mut server = Server::new(session.redis().clone(), router)
        .strict_priority(args.strict)
        .shutdown_timeout(args.shutdown_timeout)
        .reconcile_interval(args.reconcile_interval)
        .start_check(!args.no_start_check)
        // The handler's future must not be dropped before the program has been killed and reaped.
        .cancel_grace(args.kill_grace.saturating_add(REAPING))
        // Every line of this program names its task already.
        .span(|_| tracing::Span::none())
        .unhandled(match args.unhandled {
            UnhandledChoice::Putback => Unhandled::PutBack(Duration::from_secs(30)),
            UnhandledChoice::Leave => Unhandled::Leave,
            UnhandledChoice::Fail => Unhandled::Fail,
            UnhandledChoice::Archive => Unhandled::Archive,
        });
    if !args.queues.is_empty() {
        server = server.queues(args.queues);
    }
    if let Some(concurrency) = args.concurrency {
        server = server.concurrency(concurrency as usize);
    }
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
        Pattern::Exact(kind) => router.route_exact(kind, handler),
        Pattern::Prefix(prefix) if prefix.is_empty() => router.fallback(handler),
        Pattern::Prefix(prefix) => router.route(prefix, handler),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_have_a_weight_or_the_weight_one() {
        assert_eq!(queue("mail"), Ok(("mail".to_owned(), 1)));
        assert_eq!(queue("mail=3"), Ok(("mail".to_owned(), 3)));
        assert_eq!(queue("a=b=3"), Ok(("a=b".to_owned(), 3)));
        for text in ["", " ", "=3", "mail=", "mail=0", "mail=-1", "mail=high", "mail=1000001", "}x"] {
            assert!(queue(text).is_err(), "{text}");
        }
    }
}

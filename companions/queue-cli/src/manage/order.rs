//! Orders to servers: `queuectl server quiet`, `resume`, `stop`, `set` and `reset`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use queue_admin::{Heeded, ServerInfo, ServerVerb};
use queue_core::registry::Order;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::error::{CliError, exit};
use crate::output::Output;
use crate::session::Session;
use crate::when;

/// How often to look whether the servers go by it.
const LOOK: Duration = Duration::from_millis(50);

/// Which servers, and how long to wait for them.
#[derive(Debug, Args)]
pub(crate) struct OrderArgs {
    /// A name, which may be that of several servers; or an id, its first 8 letters, or HOST:PID
    #[arg(value_name = "NAME|ID")]
    whom: String,
    /// How long to wait until the servers say that they go by it; 0s for not at all
    #[arg(long, value_name = "D", value_parser = when::duration, default_value = "5s")]
    timeout: Duration,
}

/// What to change.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    order: OrderArgs,
    /// Tasks to work at once; what runs beyond that ends as it would have
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), required_unless_present = "queues")]
    concurrency: Option<u32>,
    /// Serve a queue, with this weight, whatever the server was started for; with 0 it takes no tasks from it; may be given many times
    #[arg(long = "queue", value_name = "NAME=WEIGHT", value_parser = weight)]
    queues: Vec<(String, u32)>,
}

fn weight(text: &str) -> Result<(String, u32), String> {
    let read = text.rsplit_once('=').and_then(|(name, weight)| Some((name, weight.parse().ok()?)));
    match read {
        Some((name, weight @ 0..=1_000_000)) if !name.is_empty() => Ok((name.to_owned(), weight)),
        _ => Err("write NAME=WEIGHT, like mail=3; a weight is a number from 0 to 1000000".to_owned()),
    }
}

/// What became of it at one server.
#[derive(Debug, Serialize)]
struct Row<'a> {
    id: &'a str,
    host: &'a str,
    pid: i32,
    name: Option<&'a str>,
    outcome: &'static str,
    refused: &'a [String],
    status: &'a str,
    concurrency: i32,
    queues: &'a BTreeMap<String, i32>,
}

pub(crate) async fn set(args: SetArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let order = Order { mode: None, concurrency: args.concurrency, queues: args.queues.into_iter().collect() };
    give(ServerVerb::Set, &args.order, &order, session, out).await
}

pub(crate) async fn run(verb: ServerVerb, args: OrderArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    give(verb, &args, &Order::default(), session, out).await
}

async fn give(
    verb: ServerVerb,
    args: &OrderArgs,
    order: &Order,
    session: &Session,
    out: &Output,
) -> Result<(), CliError> {
    let admin = session.admin("cli");
    let given = admin.order(verb, &args.whom, order).await?;
    if given.servers.is_empty() {
        if !out.json {
            out.line(&format!("the orders are taken back; no server is called {:?} now", args.whom))?;
        }
        return Ok(());
    }
    let until = Instant::now() + args.timeout;
    let heeded = loop {
        let heeded = admin.inspector().heeded(&given).await?;
        let all = heeded.iter().all(|(_, heeded)| *heeded != Heeded::NotYet);
        if all || Instant::now() >= until {
            break heeded;
        }
        sleep(LOOK).await;
    };
    let mut code = None;
    for (server, heeded) in &heeded {
        tell(verb, server, heeded, out)?;
        code = code.or(match heeded {
            Heeded::NotYet if args.timeout.is_zero() => None,
            Heeded::NotYet => Some((exit::TIMEOUT, "not all servers have said that they go by it; they may do so yet")),
            Heeded::Applied { refused } if refused.is_empty() => None,
            Heeded::Applied { .. } => Some((exit::REFUSED, "not all of it could be done")),
            Heeded::Ended if verb == ServerVerb::Stop => None,
            Heeded::Ended => Some((exit::GONE, "a server has ended meanwhile")),
        });
    }
    code.map_or(Ok(()), |(code, text)| Err(CliError::Coded(code, text.to_owned())))
}

fn tell(verb: ServerVerb, server: &ServerInfo, heeded: &Heeded, out: &Output) -> Result<(), CliError> {
    let (outcome, refused) = match heeded {
        Heeded::NotYet => ("waiting", &[][..]),
        Heeded::Applied { refused } => ("applied", &refused[..]),
        Heeded::Ended => ("ended", &[][..]),
    };
    if out.json {
        let ServerInfo { id, host, pid, status, concurrency, queues, .. } = server;
        let (pid, concurrency, name) = (*pid, *concurrency, server.name());
        return out.value(&Row { id, host, pid, name, outcome, refused, status, concurrency, queues });
    }
    let name = server.name().unwrap_or(&server.id);
    let queues: Vec<String> = server.queues.iter().map(|(queue, weight)| format!("{queue}={weight}")).collect();
    let now = format!("{}, concurrency {}, queues {}", server.status, server.concurrency, queues.join(" "));
    let text = match heeded {
        Heeded::NotYet => format!("it has not answered; at its last heartbeat: {now}"),
        Heeded::Applied { .. } if verb == ServerVerb::Stop => "it is ending".to_owned(),
        Heeded::Applied { .. } => now,
        Heeded::Ended => "it has ended".to_owned(),
    };
    out.line(&format!("{name} ({}:{}): {text}", server.host, server.pid))?;
    refused.iter().try_for_each(|refused| out.line(&format!("  refused: {refused}")))?;
    let all = server.entry.iter().flat_map(|entry| &entry.refused);
    // Of orders that stand, and of no weight for how this one ends.
    let mut earlier = all.filter(|one| matches!(heeded, Heeded::Applied { .. }) && !refused.contains(one));
    earlier.try_for_each(|one| out.line(&format!("  refused before: {one}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_may_be_zero_and_names_may_have_signs() {
        assert_eq!(weight("mail=0"), Ok(("mail".to_owned(), 0)));
        assert_eq!(weight("a=b=3"), Ok(("a=b".to_owned(), 3)));
        for text in ["", "mail", "=3", "mail=", "mail=-1", "mail=1000001"] {
            assert!(weight(text).is_err(), "{text}");
        }
    }
}

//! `queuectl server`.

use clap::Subcommand;
use queue_admin::payload::shorten;
use queue_admin::{ServerInfo, ServerVerb, view};

use super::now;
use super::order::{self, OrderArgs, SetArgs};
use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;
use crate::table::Rows;
use crate::watch::{WatchArgs, show};
use crate::when;

/// What to do with servers.
#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Show the servers that are alive, Rust's and Go's
    #[command(visible_alias = "list")]
    Ls(WatchArgs),
    /// Have servers take no more tasks; those in hand go on
    ///
    /// By name this is for all servers of the name, also those that start later, until `server resume` or `reset`.
    Quiet(OrderArgs),
    /// Have servers take tasks again
    Resume(OrderArgs),
    /// Have servers end, as after TERM: they let running tasks end, and requeue what does not in time
    ///
    /// Only those that run now. Whoever supervises them may start them again.
    Stop(OrderArgs),
    /// Have servers run more or fewer tasks at once, or give queues other weights
    ///
    /// By name this is for all servers of the name, also those that start later, until `server reset`; by id until the
    /// server ends.
    Set(SetArgs),
    /// Have servers go by their own configuration again
    ///
    /// What was ordered by name is taken back by name, and what was ordered by id by id.
    Reset(OrderArgs),
}

crate::command::simple!(ServerCommand);

async fn run(command: ServerCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    let (verb, args) = match command {
        ServerCommand::Ls(watch) => return show(&watch, out, async |out| list(session, out).await).await,
        ServerCommand::Set(args) => return order::set(args, session, out).await,
        ServerCommand::Quiet(args) => (ServerVerb::Quiet, args),
        ServerCommand::Resume(args) => (ServerVerb::Resume, args),
        ServerCommand::Stop(args) => (ServerVerb::Stop, args),
        ServerCommand::Reset(args) => (ServerVerb::Reset, args),
    };
    order::run(verb, args, session, out).await
}

async fn list(session: &Session, out: &Output) -> Result<String, CliError> {
    let servers = session.inspector().servers().await?;
    if out.json {
        return out.json(&servers.into_iter().map(view::Server::from).collect::<Vec<_>>());
    }
    if servers.is_empty() {
        return Ok("no server is running\n".to_owned());
    }
    let mut rows = Rows::new(out, &["NAME", "HOST", "#PID", "STATUS", "STARTED", "#BUSY", "QUEUES"]);
    for server in &servers {
        let mut queues: Vec<(&String, &i32)> = server.queues.iter().collect();
        queues.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        let mut queues: Vec<String> = queues.iter().map(|(name, weight)| format!("{name}={weight}")).collect();
        if server.strict_priority {
            queues.push("(strict)".to_owned());
        }
        rows.add_marked(
            server.status != "active",
            [
                name(server),
                server.host.clone(),
                server.pid.to_string(),
                server.status.clone(),
                when::ago(server.started, now()),
                format!("{}/{}", server.workers.len(), server.concurrency),
                shorten(&queues.join(" "), 200),
            ],
        );
    }
    Ok(rows.render())
}

/// Name and labels; `-` of Go's servers, and of those that were given none.
fn name(server: &ServerInfo) -> String {
    let labels = server.entry.iter().flat_map(|entry| &entry.labels).map(|label| format!("#{label}"));
    let words: Vec<String> = server.name().map(str::to_owned).into_iter().chain(labels).collect();
    if words.is_empty() { "-".to_owned() } else { shorten(&words.join(" "), 40) }
}

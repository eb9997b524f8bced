//! `queuectl server`.

use clap::Subcommand;
use queue_admin::payload::shorten;
use queue_admin::view;

use super::now;
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
}

crate::command::simple!(ServerCommand);

async fn run(command: ServerCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    let ServerCommand::Ls(watch) = command;
    show(&watch, out, async |out| list(session, out).await).await
}

async fn list(session: &Session, out: &Output) -> Result<String, CliError> {
    let servers = session.inspector().servers().await?;
    if out.json {
        return out.json(&servers.into_iter().map(view::Server::from).collect::<Vec<_>>());
    }
    if servers.is_empty() {
        return Ok("no server is running\n".to_owned());
    }
    let mut rows = Rows::new(out, &["HOST", "#PID", "STATUS", "STARTED", "#BUSY", "QUEUES"]);
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
                server.host.clone(),
                server.pid.to_string(),
                server.status.clone(),
                server.started.map_or_else(|| "-".to_owned(), |started| when::distance(started, now())),
                format!("{}/{}", server.workers.len(), server.concurrency),
                shorten(&queues.join(" "), 200),
            ],
        );
    }
    Ok(rows.render())
}

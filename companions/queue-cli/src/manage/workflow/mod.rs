//! `queuectl workflow`.

mod create;
mod look;

use clap::{Args, Subcommand};
use queue_core::flow::FlowId;
use serde_json::{Value, json};

#[cfg(feature = "full")]
pub(crate) use self::look::work_of;
pub(crate) use self::look::{edges, signal_of};

use crate::error::{CliError, exit};
use crate::output::Output;
use crate::session::Session;

/// What to do with workflows. They are batches, so that the commands of those wait for them, explain, cancel and retry them.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Make the workflow that a file describes, start it, and print its id
    Create(create::CreateArgs),
    /// Show the nodes of a workflow, how they stand, and what they wait for
    Show(look::ShowArgs),
    /// Give the signal that a node of a workflow waits for, or decline it
    Signal(SignalArgs),
    /// Run a node of a workflow again, and all that is behind it; what is before it keeps its results
    Rerun(RerunArgs),
}

/// From which node on to run again.
#[derive(Debug, Args)]
pub(crate) struct RerunArgs {
    /// Workflow id; of a workflow in it with a colon and its number
    #[arg(value_name = "ID")]
    id: FlowId,
    /// Name of the node, or its number, as `workflow show` has it
    #[arg(value_name = "NODE")]
    node: String,
}

/// Which signal to give.
#[derive(Debug, Args)]
pub(crate) struct SignalArgs {
    /// Workflow id; of a workflow in it with a colon and its number
    #[arg(value_name = "ID")]
    id: FlowId,
    /// Name of the node
    #[arg(value_name = "NAME")]
    name: String,
    /// What is said, as JSON, for the nodes that wait for this one [default: null]
    #[arg(long, value_name = "JSON", value_parser = said)]
    payload: Option<Value>,
    /// The node is skipped, as are those that wait for its success
    #[arg(long)]
    decline: bool,
}

fn said(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("this is no JSON ({error}); a text stands in quotes: '\"yes\"'"))
}

crate::command::simple!(WorkflowCommand);

async fn run(command: WorkflowCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    match command {
        WorkflowCommand::Create(args) => create::run(args, session, out).await,
        WorkflowCommand::Show(args) => look::show(args, session, out).await,
        WorkflowCommand::Signal(args) => signal(args, session, out).await,
        WorkflowCommand::Rerun(args) => rerun(args, session, out).await,
    }
}

async fn rerun(args: RerunArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let RerunArgs { id, node } = args;
    let done = session.admin("cli").rerun_batch(&id, &node).await?;
    if out.json {
        let (id, generation, nodes) = (id.to_string(), done.generation, done.nodes);
        return out.value(&json!({ "id": id, "node": node, "generation": generation, "nodes": nodes }));
    }
    let (noun, verb) = if done.nodes == 1 { ("node", "runs") } else { ("nodes", "run") };
    out.line(&format!("{} {noun} of workflow {id} {verb} again, from {node:?} on", done.nodes))
}

async fn signal(args: SignalArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let SignalArgs { id, name, payload, decline } = args;
    let said = payload.unwrap_or(Value::Null);
    if !session.admin("cli").signal_batch(&id, &name, &said, decline).await? {
        let what = format!("node {name:?} of workflow {id} has ended before; this signal changes nothing");
        return Err(CliError::Coded(exit::REFUSED, what));
    }
    let done = if decline { "declined" } else { "given" };
    out.told(
        &json!({ "id": id.to_string(), "node": name, "signal": done }),
        &format!("signal {name:?} of workflow {id} is {done}"),
    )
}

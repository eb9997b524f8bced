//! `queuectl explain`.

use clap::Args;
use queue_admin::payload::harmless;
use queue_admin::{Error, Explanation, view};

use crate::error::{CliError, exit};
use crate::output::Output;
use crate::session::Session;

/// Which task to explain.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Task id
    #[arg(value_name = "ID")]
    id: String,
    /// Queue name; without it, all queues that are listed are searched
    #[arg(short, long, value_name = "Q")]
    queue: Option<String>,
}

crate::command::simple!(ExplainArgs);

async fn run(args: ExplainArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
    let found = match &args.queue {
        Some(queue) => vec![inspector.explain(queue, &args.id).await?],
        None => inspector.explain_everywhere(&args.id).await?,
    };
    if out.json {
        out.value(&found.iter().map(view::Explanation::from).collect::<Vec<_>>())?;
    } else {
        for explanation in &found {
            out.text(&describe(explanation))?;
        }
    }
    let is_there = |explanation: &Explanation| explanation.task_type.is_some() || explanation.state.is_some();
    match args.queue {
        _ if found.iter().any(is_there) => Ok(()),
        Some(queue) => Err(Error::TaskNotFound { queue, id: args.id }.into()),
        None => {
            let text = format!("task {:?} not found in any queue that is listed; --queue names another", args.id);
            Err(CliError::Coded(exit::NOT_FOUND, text))
        }
    }
}

fn describe(explanation: &Explanation) -> String {
    let Explanation { queue, id, task_type, state, reasons, .. } = explanation;
    let task_type = task_type.as_ref().map(|task_type| format!(", type {task_type:?}")).unwrap_or_default();
    let state = state.map(|state| format!(", {state}")).unwrap_or_default();
    let mut text = harmless(&format!("task {id:?} in queue {queue:?}{task_type}{state}")) + "\n";
    for reason in reasons {
        text.push_str(&format!("  {}\n", harmless(&reason.to_string())));
    }
    text
}

//! `queuectl workflow create`.

use std::io::Read as _;
use std::path::PathBuf;

use clap::Args;
use queue_admin::flow::{self, Flow};
use serde::Serialize;

use super::super::batch::warn_if_existed;
use crate::enqueue::is_stdin;
use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;
use crate::toml_value::to_json;

/// Where the workflow is described.
#[derive(Debug, Args)]
#[command(after_help = CREATE_HELP)]
pub(crate) struct CreateArgs {
    /// File of the workflow: TOML, or JSON if its name ends so (`-`: JSON from standard input)
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Id of the workflow, instead of the one in the file [default: 16 random letters and digits]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

const CREATE_HELP: &str = "\
A file in TOML:

  description = \"release 42\"

  [[node]]
  name = \"build\"
  type = \"build\"
  payload = { revision = 42 }

  [[node]]
  name = \"test\"
  tasks = [{ type = \"test\", payload = \"unit\" }, { type = \"test\", payload = \"browser\" }]
  after = [\"build\"]

  [[node]]
  name = \"blame\"
  type = \"mail\"
  after_failure = [\"test\"]

A node is a task with the fields of a line of `queuectl enqueue --batch`, or has tasks,
and is a batch of them. With `signal = true` it waits for `queuectl workflow signal`,
with `within = \"24h\"` no longer than that, and is then what `otherwise` says: succeed,
skip or fail (the default). With `timer = \"10m\"` it lets that time pass. It waits for the success of those in `after`, for the death of
those in `after_failure`, and for those in `after_end` however they end. With
`may_fail = true` its death does no harm. A whole file may also have `id`, `tags`, `metadata` (texts by name), `deadline`,
`linger`, and `on_success`, `on_complete`, `on_death` and `on_settled`, each a task. With `tasks` instead of nodes it is a batch. Made again with
the same id, the workflow is the one that is there.";

/// What `--json` tells about a workflow that was made.
#[derive(Debug, Serialize)]
struct Created {
    id: String,
    nodes: usize,
    /// Whether the workflow was there before.
    existed: bool,
}

pub(crate) async fn run(args: CreateArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let mut flow = read(&args.from)?;
    flow.id = args.id.or(flow.id);
    let nodes = flow.members();
    let made = flow.make(&session.client()).await?;
    warn_if_existed("workflow", &made);
    let (id, existed) = (made.id().to_string(), made.existed());
    out.told(&Created { id: id.clone(), nodes, existed }, &id)
}

fn read(path: &PathBuf) -> Result<Flow, CliError> {
    let name = if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() };
    let mut text = String::new();
    let read = if is_stdin(path) {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    read.map_err(|error| CliError::failed(format!("cannot read {name}: {error}")))?;
    let is_json = is_stdin(path) || path.extension().is_some_and(|extension| extension == "json");
    let json = if is_json { Ok(text) } else { json_of(&text) };
    let flow = json.and_then(|json| flow::parse(json.as_bytes()));
    flow.map_err(|error| CliError::Misread(format!("{name} describes no workflow: {error}")))
}

fn json_of(toml: &str) -> Result<String, String> {
    let value = toml::from_str(toml).map_err(|error| error.to_string())?;
    Ok(to_json(value)?.to_string())
}

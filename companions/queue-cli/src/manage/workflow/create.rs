//! `queuectl workflow create`.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;

use clap::Args;
use queue_admin::line;
use queue_core::RawTask;
use queue_core::duration::parse;
use queue_core::flow::Otherwise;
use queue_redis::WorkflowBuilder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::batch::warn_if_existed;
use crate::enqueue::is_stdin;
use crate::error::CliError;
use crate::given::Given as _;
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
`may_fail = true` its death does no harm. A whole file may also have `id`, `tags`, `metadata` (texts by name), `on_success`, `on_complete`, `on_death` and `on_settled`, each a
task. Made again with the same id, the workflow is the one that is there.";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    id: Option<String>,
    description: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    on_success: Option<Value>,
    on_complete: Option<Value>,
    on_death: Option<Value>,
    on_settled: Option<Value>,
    #[serde(default, alias = "nodes")]
    node: Vec<Node>,
}

impl File {
    /// What is in its tasks.
    fn values(&mut self) -> impl Iterator<Item = &mut Value> {
        let outcomes = [&mut self.on_success, &mut self.on_complete, &mut self.on_death, &mut self.on_settled];
        let nodes = self.node.iter_mut();
        let nodes = nodes.flat_map(|node| node.tasks.iter_mut().flatten().chain(node.rest.values_mut()));
        outcomes.into_iter().flatten().chain(nodes)
    }
}

#[derive(Debug, Deserialize)]
struct Node {
    name: String,
    #[serde(default)]
    after: Vec<String>,
    #[serde(default)]
    after_failure: Vec<String>,
    #[serde(default)]
    after_end: Vec<String>,
    tasks: Option<Vec<Value>>,
    #[serde(default)]
    signal: bool,
    /// Of a signal.
    within: Option<String>,
    otherwise: Option<String>,
    timer: Option<String>,
    #[serde(default)]
    may_fail: bool,
    /// Those of its task.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// What `--json` tells about a workflow that was made.
#[derive(Debug, Serialize)]
struct Created {
    id: String,
    nodes: usize,
    /// Whether the workflow was there before.
    existed: bool,
}

pub(crate) async fn run(args: CreateArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let mut file = read(&args.from)?;
    file.id = args.id.or(file.id);
    let nodes = file.node.len();
    let made = builder(file, session.client().workflow())?.start().await?;
    warn_if_existed("workflow", &made);
    let (id, existed) = (made.id().to_string(), made.existed());
    out.told(&Created { id: id.clone(), nodes, existed }, &id)
}

fn read(path: &PathBuf) -> Result<File, CliError> {
    let name = if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() };
    let mut text = String::new();
    let read = if is_stdin(path) {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    read.map_err(|error| CliError::failed(format!("cannot read {name}: {error}")))?;
    let is_json = is_stdin(path) || path.extension().is_some_and(|extension| extension == "json");
    let file = if is_json {
        serde_json::from_str(&text).map_err(|error| error.to_string())
    } else {
        let file = toml::from_str(&text).map_err(|error| error.to_string());
        file.and_then(|mut file: File| {
            file.values().try_for_each(|value| to_json(value.take()).map(|json| *value = json))?;
            Ok(file)
        })
    };
    let file = file.and_then(|file: File| match &file.node[..] {
        [] => Err("it has no node".to_owned()),
        nodes if nodes.iter().any(|node| node.name.is_empty()) => Err("a node has an empty name".to_owned()),
        _ => Ok(file),
    });
    file.map_err(|error| CliError::Misread(format!("{name} describes no workflow: {error}")))
}

fn builder(file: File, mut flow: WorkflowBuilder) -> Result<WorkflowBuilder, CliError> {
    flow = file.tags.into_iter().fold(flow, WorkflowBuilder::tag);
    flow = file.metadata.into_iter().fold(flow, |flow, (name, text)| flow.metadata(name, text));
    let callback = |value: Option<Value>, place| value.map(|value| task(&value, place)).transpose();
    flow = flow
        .given(file.id, WorkflowBuilder::id)
        .given(file.description, WorkflowBuilder::description)
        .given(callback(file.on_success, "on_success")?, WorkflowBuilder::on_success)
        .given(callback(file.on_complete, "on_complete")?, WorkflowBuilder::on_complete)
        .given(callback(file.on_death, "on_death")?, WorkflowBuilder::on_death)
        .given(callback(file.on_settled, "on_settled")?, WorkflowBuilder::on_settled);
    for node in file.node {
        let place = format!("node {:?}", node.name);
        let wrong = |what: &str| CliError::failed(format!("{place} {what}"));
        let duration = |text: &str| parse(text).map_err(|error| wrong(&format!("has an {error}")));
        let is_task = node.rest.contains_key("type");
        if usize::from(is_task) + usize::from(node.tasks.is_some() || node.signal || node.timer.is_some()) != 1 {
            return Err(wrong(&format!(
                "is a task, with a `type`, or has `tasks`, `signal` or `timer`; it has none of them, or two{}",
                fields(&node.rest)
            )));
        }
        if !is_task && !node.rest.is_empty() {
            return Err(wrong(&format!(
                "is no task with a `type`, and has fields of one, or unknown ones{}",
                fields(&node.rest)
            )));
        }
        let is_signal = node.signal;
        flow = match (node.tasks, node.timer) {
            (Some(_), Some(_)) => return Err(wrong("has tasks, and is a timer")),
            (Some(_), _) | (_, Some(_)) if is_signal => return Err(wrong("is a signal, and has tasks or a timer")),
            (Some(tasks), None) => {
                let tasks: Result<Vec<RawTask>, CliError> = tasks.iter().map(|it| task(it, &place)).collect();
                flow.batch(node.name, tasks?)
            }
            (None, Some(delay)) => flow.timer(node.name, duration(&delay)?),
            (None, None) if is_signal => flow.signal(node.name),
            (None, None) => flow.task(node.name, task(&Value::Object(node.rest), &place)?),
        };
        flow = match (node.within, node.otherwise) {
            (None, None) => flow,
            (Some(within), otherwise) if is_signal => {
                let otherwise = otherwise.as_deref().unwrap_or("fail");
                let otherwise = Otherwise::from_name(otherwise)
                    .ok_or_else(|| wrong("has an `otherwise` that is none of succeed, skip and fail"))?;
                flow.within(duration(&within)?, otherwise)
            }
            _ => return Err(wrong("has `within` or `otherwise`, which a signal has: `within`, or both")),
        };
        flow = flow.after(node.after).after_failure(node.after_failure).after_end(node.after_end);
        if node.may_fail {
            flow = flow.may_fail();
        }
    }
    Ok(flow)
}

/// The names of these fields, behind a colon.
fn fields(rest: &Map<String, Value>) -> String {
    let names: Vec<String> = rest.keys().map(|name| format!("`{name}`")).collect();
    if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) }
}

/// A task as it stands on a line of tasks.
fn task(value: &Value, place: &str) -> Result<RawTask, CliError> {
    line::parse(value.to_string().as_bytes()).map_err(|error| CliError::failed(format!("{place}: {error}")))
}

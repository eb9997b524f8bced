//! A batch or a workflow as a JSON object: a file, the body of a request, or a row of the outbox.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use queue_core::RawTask;
use queue_core::duration::parse as parse_duration;
use queue_core::flow::{Event, Otherwise};
use queue_redis::{Batch, BatchBuilder, BatchError, Client, WorkflowBuilder};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{json, line};

/// A batch or a workflow that is to be made.
#[derive(Debug, Clone)]
pub struct Flow {
    /// The id that it is to have; a random one where there is none.
    pub id: Option<String>,
    /// How long it is to be kept when it is over; [`BatchBuilder::linger`].
    pub linger: Option<Duration>,
    head: Head,
    callbacks: Vec<(Event, RawTask)>,
    work: Work,
}

/// What stands as it is in the text.
#[derive(Debug, Clone)]
struct Head {
    description: Option<String>,
    tags: Vec<String>,
    metadata: BTreeMap<String, String>,
    deadline: Option<SystemTime>,
}

#[derive(Debug, Clone)]
enum Work {
    Tasks(Vec<RawTask>),
    Nodes(Vec<Node>),
}

#[derive(Debug, Clone)]
struct Node {
    edges: Edges,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Task(Box<RawTask>),
    Tasks(Vec<RawTask>),
    Timer(Duration),
    Signal(Option<(Duration, Otherwise)>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text<'a> {
    id: Option<String>,
    description: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "line::instant")]
    deadline: Option<SystemTime>,
    #[serde(default, deserialize_with = "line::duration")]
    linger: Option<Duration>,
    #[serde(borrow)]
    on_success: Option<&'a RawValue>,
    #[serde(borrow)]
    on_complete: Option<&'a RawValue>,
    #[serde(borrow)]
    on_death: Option<&'a RawValue>,
    #[serde(borrow)]
    on_settled: Option<&'a RawValue>,
    #[serde(borrow)]
    tasks: Option<Vec<&'a RawValue>>,
    // The name in TOML, where each node stands below `[[node]]`.
    #[serde(borrow, alias = "node")]
    nodes: Option<Vec<&'a RawValue>>,
}

/// What is said of a node beside its task.
#[derive(Debug, Clone, Deserialize)]
struct Edges {
    name: String,
    #[serde(default)]
    after: Vec<String>,
    #[serde(default)]
    after_failure: Vec<String>,
    #[serde(default)]
    after_end: Vec<String>,
    #[serde(default)]
    may_fail: bool,
}

/// What a node is that is no task.
#[derive(Deserialize)]
struct Other<'a> {
    #[serde(borrow)]
    tasks: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    signal: bool,
    within: Option<String>,
    otherwise: Option<String>,
    timer: Option<String>,
}

/// The fields of these two; all others are those of a task.
const OF_NODES: [&str; 10] =
    ["name", "after", "after_failure", "after_end", "may_fail", "tasks", "signal", "within", "otherwise", "timer"];

/// Reads a batch or a workflow: `id`, `description`, `tags`, `metadata` (texts by name), `deadline`, `linger`, the callbacks `on_success`,
/// `on_complete`, `on_death` and `on_settled`, each a [task](line::parse); and either `tasks`, or `nodes` (also `node`). A node has a `name`,
/// waits for those in `after`, `after_failure` and `after_end`, and `may_fail`. It is a task with the fields of one, a batch with `tasks`, a timer with
/// `timer`, or a signal with `signal`, and then has `within` and `otherwise`.
///
/// # Errors
/// The reason for refusing it.
pub fn parse(text: &[u8]) -> Result<Flow, String> {
    let text: Text<'_> = json::read(text).map_err(|wrong| wrong.of("it"))?;
    let callbacks = [
        (Event::Success, text.on_success),
        (Event::Complete, text.on_complete),
        (Event::Death, text.on_death),
        (Event::Settled, text.on_settled),
    ];
    let callbacks = callbacks.into_iter().filter_map(|(event, raw)| Some((event, raw?)));
    let callbacks: Result<_, String> =
        callbacks.map(|(event, raw)| Ok((event, task(raw.get(), &format!("on_{event}"))?))).collect();
    let work = match (text.tasks, text.nodes) {
        (Some(_), Some(_)) => {
            return Err("it has `tasks` and `nodes`; with tasks it is a batch, with nodes a workflow".to_owned());
        }
        (Some(list), None) => Work::Tasks(tasks(&list, "")?),
        (None, Some(list)) if !list.is_empty() => {
            Work::Nodes((1..).zip(list).map(|(at, raw)| node(raw.get(), at)).collect::<Result<_, String>>()?)
        }
        (None, _) => return Err("it has no node and no `tasks`".to_owned()),
    };
    let head =
        Head { description: text.description, tags: text.tags, metadata: text.metadata, deadline: text.deadline };
    Ok(Flow { id: text.id, linger: text.linger, head, callbacks: callbacks?, work })
}

fn task(text: &str, place: &str) -> Result<RawTask, String> {
    line::parse(text.as_bytes()).map_err(|error| format!("{place}: {error}"))
}

fn tasks(list: &[&RawValue], place: &str) -> Result<Vec<RawTask>, String> {
    list.iter().enumerate().map(|(at, raw)| task(raw.get(), &format!("{place}tasks[{at}]"))).collect()
}

fn node(text: &str, at: usize) -> Result<Node, String> {
    let misread = |wrong: json::Misread| format!("node {at}: {}", wrong.of("it"));
    let edges: Edges = json::read(text.as_bytes()).map_err(misread)?;
    if edges.name.is_empty() {
        return Err("a node has an empty name".to_owned());
    }
    let place = format!("node {:?}", edges.name);
    let misread = |wrong: json::Misread| format!("{place}: {}", wrong.of("it"));
    let other: Other<'_> = json::read(text.as_bytes()).map_err(misread)?;
    let mut rest: BTreeMap<String, &RawValue> = json::read(text.as_bytes()).map_err(misread)?;
    rest.retain(|name, _| !OF_NODES.contains(&&**name));
    let names: Vec<String> = rest.keys().map(|name| format!("`{name}`")).collect();
    let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    let is_task = rest.contains_key("type");
    let wrong = |what: &str| Err(format!("{place} {what}"));
    if usize::from(is_task) + usize::from(other.tasks.is_some() || other.signal || other.timer.is_some()) != 1 {
        return wrong(&format!(
            "is a task, with a `type`, or has `tasks`, `signal` or `timer`; it has none of them, or two{names}"
        ));
    }
    if !is_task && !rest.is_empty() {
        return wrong(&format!("is no task with a `type`, and has fields of one, or unknown ones{names}"));
    }
    let duration = |text: &str| parse_duration(text).map_err(|error| format!("{place} has an {error}"));
    let within = match (other.within, other.otherwise) {
        (None, None) => None,
        (Some(within), otherwise) if other.signal => match Otherwise::from_name(otherwise.as_deref().unwrap_or("fail"))
        {
            Some(otherwise) => Some((duration(&within)?, otherwise)),
            None => return wrong("has an `otherwise` that is none of succeed, skip and fail"),
        },
        _ => return wrong("has `within` or `otherwise`, which a signal has: `within`, or both"),
    };
    let kind = match (other.tasks, other.timer) {
        (Some(_), Some(_)) => return wrong("has tasks, and is a timer"),
        (Some(_), _) | (_, Some(_)) if other.signal => return wrong("is a signal, and has tasks or a timer"),
        (Some(list), None) => Kind::Tasks(tasks(&list, &format!("{place}: "))?),
        (None, Some(delay)) => Kind::Timer(duration(&delay)?),
        (None, None) if other.signal => Kind::Signal(within),
        // Texts of JSON by their names always can be written.
        (None, None) => Kind::Task(Box::new(task(&serde_json::to_string(&rest).unwrap_or_default(), &place)?)),
    };
    Ok(Node { edges, kind })
}

impl Flow {
    /// How many members it has: tasks, or nodes.
    pub fn members(&self) -> usize {
        match &self.work {
            Work::Tasks(tasks) => tasks.len(),
            Work::Nodes(nodes) => nodes.len(),
        }
    }

    /// All of its tasks: callbacks, members, and those of nodes.
    pub fn tasks_mut(&mut self) -> Vec<&mut RawTask> {
        let mut all: Vec<&mut RawTask> = self.callbacks.iter_mut().map(|(_, task)| task).collect();
        match &mut self.work {
            Work::Tasks(tasks) => all.extend(tasks),
            Work::Nodes(nodes) => {
                for node in nodes {
                    match &mut node.kind {
                        Kind::Task(task) => all.push(task),
                        Kind::Tasks(tasks) => all.extend(tasks),
                        Kind::Timer(_) | Kind::Signal(_) => {}
                    }
                }
            }
        }
        all
    }

    /// Makes it with this client, once by its id: [`BatchBuilder::add_all`], [`WorkflowBuilder::start`]. What cannot be made is found before
    /// anything is stored.
    ///
    /// # Errors
    /// As there.
    pub async fn make(self, client: &Client) -> Result<Batch, BatchError> {
        let Self { id, linger, head, callbacks, work } = self;
        let mut flow = client.batch();
        if let Some(id) = id {
            flow = flow.id(id);
        }
        if let Some(text) = head.description {
            flow = flow.description(text);
        }
        if let Some(at) = head.deadline {
            flow = flow.deadline(at);
        }
        if let Some(duration) = linger {
            flow = flow.linger(duration);
        }
        flow = head.tags.into_iter().fold(flow, BatchBuilder::tag);
        flow = head.metadata.into_iter().fold(flow, |flow, (name, text)| flow.metadata(name, text));
        flow = callbacks.into_iter().fold(flow, |flow, (event, task)| match event {
            Event::Success => flow.on_success(task),
            Event::Complete => flow.on_complete(task),
            Event::Death => flow.on_death(task),
            Event::Settled => flow.on_settled(task),
        });
        match work {
            Work::Tasks(tasks) => {
                client.check_members(tasks.clone())?;
                flow.add_all(tasks).await
            }
            Work::Nodes(nodes) => nodes.into_iter().fold(flow.into(), with_node).start().await,
        }
    }
}

fn with_node(flow: WorkflowBuilder, node: Node) -> WorkflowBuilder {
    let Edges { name, after, after_failure, after_end, may_fail } = node.edges;
    let flow = match node.kind {
        Kind::Task(task) => flow.task(name, *task),
        Kind::Tasks(tasks) => flow.batch(name, tasks),
        Kind::Timer(delay) => flow.timer(name, delay),
        Kind::Signal(None) => flow.signal(name),
        Kind::Signal(Some((within, otherwise))) => flow.signal(name).within(within, otherwise),
    };
    let flow = flow.after(after).after_failure(after_failure).after_end(after_end);
    if may_fail { flow.may_fail() } else { flow }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_taken_to_the_byte_and_all_tasks_are_handed_out() {
        let text = br#"{"on_death":{"type":"d"},"nodes":[
            {"name":"a","type":"t","payload":{"z":1, "a":1.10,"big":12345678901234567890123},"max_retry":3},
            {"name":"b","tasks":[{"type":"u","payload":"text"}],"after":["a"]},
            {"name":"c","signal":true,"within":"1h","otherwise":"skip"},
            {"name":"d","timer":"10m"}]}"#;
        let mut flow = parse(text).unwrap();
        assert_eq!(flow.members(), 4);
        let tasks = flow.tasks_mut();
        let told: Vec<(&str, Option<&[u8]>)> =
            tasks.iter().map(|task| (&*task.task_type, task.payload.as_deref())).collect();
        let json = &br#"{"z":1, "a":1.10,"big":12345678901234567890123}"#[..];
        assert_eq!(told, [("d", None), ("t", Some(json)), ("u", Some(&b"text"[..]))]);
        assert_eq!(tasks[1].options.max_retry, Some(3));
        let mut batch =
            parse(br#"{"id":"b","linger":"2h","deadline":1700000000,"tasks":[{"type":"t"},{"type":"u"}]}"#).unwrap();
        assert_eq!((batch.members(), batch.tasks_mut().len(), batch.id.as_deref()), (2, 2, Some("b")));
        assert_eq!(batch.linger, Some(Duration::from_secs(7_200)));
    }

    #[test]
    fn what_is_no_flow_is_refused_with_the_place_and_the_reason() {
        for (text, reason) in [
            (r#"{"id":"a"}"#, "it has no node and no `tasks`"),
            (r#"{"tasks":[],"node":[]}"#, "it has `tasks` and `nodes`"),
            (r#"{"tasks":[{"type":"t"},{"typ":"t"}]}"#, "tasks[1]: unknown field `typ`"),
            (r#"{"tasks":[5]}"#, "tasks[0]: it is the number 5; it must be an object"),
            (
                r#"{"tasks":[],"on_success":{"type":"t","timeout":"soon"}}"#,
                "on_success: `timeout`: invalid duration \"soon\"",
            ),
            (r#"{"tasks":[],"linger":"soon"}"#, "`linger`: invalid duration"),
            (r#"{"tasks":[],"tags":"a"}"#, "`tags` is the text \"a\"; it must be a list"),
            (r#"{"tasks":[],"on_sucess":{}}"#, "unknown field `on_sucess`"),
            (
                r#"{"nodes":[{"name":"a","type":"t"},{"name":"b","after":"a"}]}"#,
                "node 2: `after` is the text \"a\"; it must be a list",
            ),
            (
                r#"{"nodes":[{"name":"a","signal":"yes"}]}"#,
                "node \"a\": `signal` is the text \"yes\"; it must be true or false",
            ),
            (r#"{"nodes":[{"name":"a","tasks":[{"type":"t"},{}]}]}"#, "node \"a\": tasks[1]: missing field `type`"),
            (r#"{"nodes":[{"name":"a","type":"t","retries":3}]}"#, "node \"a\": unknown field `retries`"),
            ("[]", "it is a list; it must be an object"),
        ] {
            let refusal = parse(text.as_bytes()).unwrap_err();
            assert!(refusal.starts_with(reason), "{text}: {refusal}");
        }
    }
}

//! Making chains and graphs: what an application says, checked before anything is sent.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use queue_core::flow::{FlowId, Otherwise, RESULT_RETENTION, When};
use queue_core::limits::{FLOW_MAX_NODES, FLOW_MAX_PARENTS};
use queue_core::{EncodeError, IntoTask, RawTask, TaskMessage};

use super::batch::{Batch, BatchError};
use super::builder::BatchBuilder;
use super::chunk::{as_member, check};
use super::signal;
use crate::client::Client;

/// A chain or a graph of tasks that is about to be made; see [`Client::workflow`] and [`Client::chain`].
///
/// Each *node* has a name, and waits for the nodes that [`after`](Self::after) and its relatives name. A node is a task, a batch, a
/// workflow of its own, or a signal or timer, which has no task. Nodes may be given in any order.
#[derive(Debug, Clone)]
#[must_use = "a workflow is made by `start`"]
pub struct WorkflowBuilder {
    head: BatchBuilder,
    nodes: Vec<Node>,
    /// What was said where it says nothing.
    mistake: Option<&'static str>,
}

impl Batch {
    /// A workflow within this batch, which waits for it: nodes that become known only while a workflow runs. Within a
    /// [node](Self::node), what waits for that node waits for all of them. They run as soon as [`start`](WorkflowBuilder::start)
    /// has stored them. Give it an [id](WorkflowBuilder::id) in a handler, so that a second attempt finds the first one's.
    pub fn workflow(&self) -> WorkflowBuilder {
        self.child().into()
    }
}

#[derive(Debug, Clone)]
struct Node {
    /// Empty in a batch, where nobody asks for it.
    name: String,
    work: Work,
    before: Vec<(String, When)>,
    may_fail: bool,
}

#[derive(Debug, Clone)]
enum Work {
    Task(Box<Result<RawTask, Arc<EncodeError>>>),
    Flow(Box<WorkflowBuilder>),
    Signal(Option<(Duration, Otherwise)>),
}

impl From<BatchBuilder> for WorkflowBuilder {
    /// A workflow without nodes yet, of which is known what was said of the batch.
    fn from(head: BatchBuilder) -> Self {
        Self { head, nodes: Vec::new(), mistake: None }
    }
}

impl WorkflowBuilder {
    pub(crate) fn new(client: Client) -> Self {
        BatchBuilder::new(client).into()
    }

    fn with(mut self, change: impl FnOnce(BatchBuilder) -> BatchBuilder) -> Self {
        self.head = change(self.head);
        self
    }

    /// The id of the workflow: 1 to 64 of the characters `A-Z a-z 0-9 _ . -`. Made a second time by this id, the workflow is the one that is
    /// there; if its maker died half-way, it is completed. Defaults to 16 random characters.
    pub fn id(self, id: impl Into<String>) -> Self {
        self.with(|head| head.id(id))
    }

    /// What the workflow is for; shown by tools.
    pub fn description(self, text: impl Into<String>) -> Self {
        self.with(|head| head.description(text))
    }

    /// A word by which tools find the workflow among others; may be given more than once.
    pub fn tag(self, tag: impl Into<String>) -> Self {
        self.with(|head| head.tag(tag))
    }

    /// Something else to remember of it, under a name; see [`BatchBuilder::metadata`].
    pub fn metadata(self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.with(|head| head.metadata(name, text))
    }

    /// A task that is enqueued once, when every node has succeeded or was skipped, and the callback of
    /// [`on_complete`](Self::on_complete) has succeeded.
    pub fn on_success(self, task: impl IntoTask) -> Self {
        self.with(|head| head.on_success(task))
    }

    /// A task that is enqueued once, when every node was attempted or skipped.
    pub fn on_complete(self, task: impl IntoTask) -> Self {
        self.with(|head| head.on_complete(task))
    }

    /// A task that is enqueued when the first node dies or is removed; once more only if all was well in between.
    pub fn on_death(self, task: impl IntoTask) -> Self {
        self.with(|head| head.on_death(task))
    }

    /// A task that is enqueued when nothing is left to be done, however it ended; after all other callbacks.
    pub fn on_settled(self, task: impl IntoTask) -> Self {
        self.with(|head| head.on_settled(task))
    }

    /// Cancels the workflow if it is not over by then; to the second. Defaults to never.
    pub fn deadline(self, at: impl Into<SystemTime>) -> Self {
        self.with(|head| head.deadline(at))
    }

    /// How long the workflow is kept when it is over, with the results of its nodes; to the second. Defaults to an hour if all went
    /// well, else to 90 days.
    pub fn linger(self, duration: Duration) -> Self {
        self.with(|head| head.linger(duration))
    }

    fn node(mut self, name: String, work: Work) -> Self {
        self.nodes.push(Node { name, work, before: Vec::new(), may_fail: false });
        self
    }

    /// A node that is a task. It cannot have an id of its own, a group, a delay or a uniqueness lock.
    pub fn task(self, name: impl Into<String>, task: impl IntoTask) -> Self {
        self.node(name.into(), Work::Task(Box::new(task.into_task().map_err(Arc::new))))
    }

    /// A node that is a batch of tasks. They are kept with the workflow until their turn comes, so that a batch of many thousands is better
    /// made empty, and [filled](Batch::node) by a node before it.
    pub fn batch<T: IntoTask>(self, name: impl Into<String>, tasks: impl IntoIterator<Item = T>) -> Self {
        let mut batch = Self::new(self.head.client.clone());
        for task in tasks {
            batch = batch.task("", task);
        }
        self.node(name.into(), Work::Flow(Box::new(batch)))
    }

    /// A node that is a workflow of its own, with callbacks of its own. What it has as id, deadline and linger does not count.
    pub fn workflow(self, name: impl Into<String>, workflow: Self) -> Self {
        self.node(name.into(), Work::Flow(Box::new(workflow)))
    }

    /// A node without a task, which succeeds when somebody [gives the signal](Batch::signal) of its name: an approval, say. Those that wait
    /// for the node read what was said by [`Parents::get`](super::Parents::get). It waits for ever, unless [`within`](Self::within)
    /// says otherwise.
    pub fn signal(self, name: impl Into<String>) -> Self {
        self.node(name.into(), Work::Signal(None))
    }

    /// How long the signal given last waits, from the node's turn on, to the second; and what becomes of it then.
    pub fn within(mut self, duration: Duration, otherwise: Otherwise) -> Self {
        match self.nodes.last_mut().map(|node| &mut node.work) {
            Some(Work::Signal(within)) => *within = Some((duration, otherwise)),
            _ => self.mistake = Some("`within` comes behind a signal"),
        }
        self
    }

    /// A node without a task, which succeeds so long after its turn, to the second. A [signal](Batch::signal) of its name ends it at once.
    pub fn timer(self, name: impl Into<String>, delay: Duration) -> Self {
        self.signal(name).within(delay, Otherwise::Succeed)
    }

    fn edges<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>, when: When) -> Self {
        match self.nodes.last_mut() {
            Some(node) => node.before.extend(names.into_iter().map(|name| (name.into(), when))),
            None => self.mistake = Some("`after` comes behind the node that waits"),
        }
        self
    }

    /// The node given last waits until these have succeeded. If one of them dies, is removed, skipped or cancelled, it is
    /// *skipped*: it does not run, unless that one succeeds after all.
    pub fn after<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        self.edges(names, When::Succeeded)
    }

    /// The node given last waits until these have died or were removed, to clean up after them, say. If one of them succeeds or is
    /// skipped or cancelled, it is skipped.
    pub fn after_failure<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        self.edges(names, When::Failed)
    }

    /// The node given last waits until these have ended, whatever became of them.
    pub fn after_end<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        self.edges(names, When::Ended)
    }

    /// The node given last may die or be removed without harm: the workflow succeeds all the same, and its
    /// [`on_death`](Self::on_death) does not run. What waits for the node by [`after`](Self::after) is skipped; by
    /// [`after_end`](Self::after_end), it runs. A node that is cancelled alone has not failed.
    pub fn may_fail(mut self) -> Self {
        match self.nodes.last_mut() {
            Some(node) => node.may_fail = true,
            None => self.mistake = Some("`may_fail` comes behind the node that may"),
        }
        self
    }

    fn next_step(&self) -> (String, Option<String>) {
        (format!("step-{}", self.nodes.len() + 1), self.nodes.last().map(|node| node.name.clone()))
    }

    /// A task that waits for the success of the node given last; the first waits for nothing. Its name is `step-` and its
    /// position, from 1.
    pub fn then(self, task: impl IntoTask) -> Self {
        let (name, last) = self.next_step();
        let node = self.task(name, task);
        if let Some(last) = last { node.after([last]) } else { node }
    }

    /// The same for a batch of tasks.
    pub fn then_all<T: IntoTask>(self, tasks: impl IntoIterator<Item = T>) -> Self {
        let (name, last) = self.next_step();
        let node = self.batch(name, tasks);
        if let Some(last) = last { node.after([last]) } else { node }
    }

    /// Checks the workflow, stores it, and starts it. All of it starts or nothing: if this process dies on the way, the workflow is
    /// abandoned after half an hour, and none of its tasks has run; made once more with the same id, it is completed.
    ///
    /// # Errors
    /// [`BatchError::Graph`] when nodes wait for each other in a circle, or for one that is not there, when two have one name, or
    /// when there are too many; [`BatchError::Unsuitable`] and [`BatchError::Refused`] when a task cannot be a node. Then nothing
    /// was sent.
    pub async fn start(self) -> Result<Batch, BatchError> {
        let ready = self.ready("", false)?;
        ready.store().await
    }

    /// Checks the nodes, gives them their numbers, and makes messages of their tasks. `is_kept`: whether somebody reads the results
    /// of all of them.
    pub(super) fn ready(self, path: &str, is_kept: bool) -> Result<Ready, BatchError> {
        let client = self.head.client.clone();
        let now_ns = client.now_ns();
        let graph = |reason: String| BatchError::Graph { reason };
        if let Some(mistake) = self.mistake {
            return Err(graph(mistake.to_owned()));
        }
        if self.nodes.len() > FLOW_MAX_NODES {
            let text = format!("it has {} nodes, and {FLOW_MAX_NODES} is the most", self.nodes.len());
            return Err(graph(text + "; make nodes of it that are batches, and add to those while they run"));
        }
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        let is_named = |node: &Node| !node.name.is_empty() || !matches!(node.work, Work::Task(_));
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| is_named(node)) {
            FlowId::root_named(&node.name)
                .map_err(|_| graph(format!("{:?} cannot be the name of a node: {NAME}", node.name)))?;
            if by_name.insert(&node.name, at).is_some() {
                return Err(graph(format!("two nodes are named {:?}", node.name)));
            }
        }
        let mut before: Vec<BTreeMap<usize, When>> = Vec::with_capacity(self.nodes.len());
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            let mut edges = BTreeMap::new();
            for (name, when) in &node.before {
                let unknown = || graph(format!("node {:?} waits for {name:?}, which is no node", node.name));
                let parent = *by_name.get(name.as_str()).ok_or_else(unknown)?;
                if edges.insert(parent, *when).is_some() {
                    return Err(graph(format!("node {:?} waits for {name:?} twice", node.name)));
                }
                after[parent].push(at);
            }
            if edges.len() > FLOW_MAX_PARENTS {
                let text =
                    format!("node {:?} waits for {} nodes, and {FLOW_MAX_PARENTS} is the most", node.name, edges.len());
                return Err(graph(text + "; have it wait for a batch"));
            }
            before.push(edges);
        }
        if let Some(circle) = circle(&before) {
            let mut names: Vec<String> = circle.iter().map(|at| self.nodes[*at].name.clone()).collect();
            if let Some(others @ 1..) = names.len().checked_sub(CIRCLE_SHOWN) {
                names.splice(CIRCLE_SHOWN / 2..CIRCLE_SHOWN / 2 + others, [format!("({others} others)")]);
            }
            return Err(graph(format!("nodes wait for each other in a circle: {}", names.join(" -> "))));
        }

        let mut prepared = Vec::with_capacity(self.nodes.len());
        for (at, node) in self.nodes.into_iter().enumerate() {
            let place = match (path, &*node.name) {
                ("", "") => at.to_string(),
                ("", name) => name.to_owned(),
                (path, "") => format!("{path}/{at}"),
                (path, name) => format!("{path}/{name}"),
            };
            let is_read = is_kept || !after[at].is_empty();
            let work = match node.work {
                Work::Flow(flow) => ReadyWork::Flow(Box::new(flow.ready(&place, is_read)?)),
                Work::Signal(within) => ReadyWork::Task(Box::new(signal::message(within))),
                Work::Task(task) => ReadyWork::Task(Box::new(message(&client, *task, &place, is_read, now_ns)?)),
            };
            prepared.push((at, node.name, node.may_fail, work));
        }
        // Tasks by their queues, so that the ledger has to say a queue only where another one begins; what has none comes first.
        prepared.sort_by(|(.., a), (.., b)| a.queue().cmp(&b.queue()));
        let mut numbers = vec![0_u32; prepared.len()];
        for (number, (at, ..)) in (0..).zip(&prepared) {
            numbers[*at] = number;
        }
        let nodes = prepared.into_iter().map(|(at, name, may_fail, work)| ReadyNode {
            name,
            work,
            may_fail,
            before: before[at].iter().map(|(parent, when)| (numbers[*parent], *when)).collect(),
            after: after[at].iter().map(|child| numbers[*child]).collect(),
        });
        Ok(Ready { nodes: nodes.collect(), head: self.head })
    }
}

/// Of a longer circle the middle is left out.
const CIRCLE_SHOWN: usize = 20;

const NAME: &str = "that is 1 to 64 of the characters A-Z a-z 0-9 _ . -";

/// The message of a task that is a node; its id comes later.
fn message(
    client: &Client,
    task: Result<RawTask, Arc<EncodeError>>,
    place: &str,
    is_read: bool,
    now_ns: i64,
) -> Result<TaskMessage, BatchError> {
    let unsuitable = |reason| BatchError::Unsuitable { position: place.to_owned(), reason };
    let mut task = task.map_err(|_| unsuitable("its payload cannot be encoded"))?;
    check(&task, &unsuitable)?;
    if task.options.process.is_some() || task.options.unique.is_some() {
        return Err(unsuitable("it has a delay or a uniqueness lock; a node is enqueued as soon as its turn comes"));
    }
    if is_read {
        let kept = task.options.retention.unwrap_or_default().max(RESULT_RETENTION);
        task = task.retention(kept);
    }
    let refused = |source| BatchError::Unplaced { node: place.to_owned(), source };
    let mut composed = as_member(task, now_ns).map_err(refused)?;
    client.prepare(&mut composed).map_err(refused)?;
    Ok(composed.message)
}

/// A circle of nodes, each of which waits for the next, the first once more at its end; `None` if there is none.
fn circle(before: &[BTreeMap<usize, When>]) -> Option<Vec<usize>> {
    // 0: not seen; 1: on the way that is gone now; 2: waits for no circle.
    let mut seen = vec![0_u8; before.len()];
    for start in 0..before.len() {
        let mut way: Vec<(usize, Vec<usize>)> = Vec::new();
        let mut enter = Some(start).filter(|_| seen[start] == 0);
        loop {
            if let Some(node) = enter.take() {
                seen[node] = 1;
                way.push((node, before[node].keys().copied().collect()));
            }
            let Some((node, rest)) = way.last_mut() else { break };
            match rest.pop() {
                None => {
                    seen[*node] = 2;
                    way.pop();
                }
                Some(next) if seen[next] == 0 => enter = Some(next),
                Some(next) if seen[next] == 1 => {
                    let mut circle: Vec<usize> =
                        way.iter().map(|(node, _)| *node).skip_while(|node| *node != next).collect();
                    circle.push(next);
                    return Some(circle);
                }
                Some(_) => {}
            }
        }
    }
    None
}

/// A workflow that was checked, its nodes by number.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) head: BatchBuilder,
    pub(super) nodes: Vec<ReadyNode>,
}

#[derive(Debug)]
pub(super) struct ReadyNode {
    pub(super) name: String,
    pub(super) work: ReadyWork,
    pub(super) may_fail: bool,
    pub(super) before: Vec<(u32, When)>,
    pub(super) after: Vec<u32>,
}

#[derive(Debug)]
pub(super) enum ReadyWork {
    Task(Box<TaskMessage>),
    Flow(Box<Ready>),
}

impl ReadyWork {
    /// The queue of its task.
    pub(super) fn queue(&self) -> Option<&str> {
        match self {
            Self::Task(message) => Some(&message.queue),
            Self::Flow(_) => None,
        }
    }
}

impl Client {
    /// A workflow: tasks and batches that wait for each other, in any order but a circle.
    ///
    /// ```no_run
    /// # async fn example(client: queue_redis::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use queue_core::RawTask;
    ///
    /// let release = client
    ///     .workflow()
    ///     .task("build", RawTask::new("build"))
    ///     .batch("test", ["unit", "browser"].map(|suite| RawTask::new("test").payload(suite)))
    ///     .after(["build"])
    ///     .task("ship", RawTask::new("ship"))
    ///     .after(["build", "test"])
    ///     .task("apologize", RawTask::new("apologize"))
    ///     .after_failure(["test"])
    ///     .start()
    ///     .await?;
    /// println!("started {}", release.id());
    /// # Ok(()) }
    /// ```
    pub fn workflow(&self) -> WorkflowBuilder {
        WorkflowBuilder::new(self.clone())
    }

    /// A chain: a workflow each step of which waits for the success of the one before it.
    ///
    /// ```no_run
    /// # async fn example(client: queue_redis::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use queue_core::RawTask;
    ///
    /// let pages = (0..10).map(|page| RawTask::new("resize").payload(page.to_string()));
    /// client.chain().then(RawTask::new("fetch")).then_all(pages).then(RawTask::new("publish")).start().await?;
    /// # Ok(()) }
    /// ```
    pub fn chain(&self) -> WorkflowBuilder {
        self.workflow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(of: &[&[usize]]) -> Vec<BTreeMap<usize, When>> {
        of.iter().map(|parents| parents.iter().map(|parent| (*parent, When::Succeeded)).collect()).collect()
    }

    #[test]
    fn a_circle_is_found_wherever_it_is() {
        assert_eq!(circle(&edges(&[&[], &[0], &[0, 1]])), None);
        assert_eq!(circle(&edges(&[&[0]])), Some(vec![0, 0]));
        assert_eq!(circle(&edges(&[&[], &[0, 3], &[1], &[2]])), Some(vec![1, 3, 2, 1]));
        // Many ways to one node are no circle, and are gone once.
        let ladder: Vec<Vec<usize>> = (0..200).map(|n: usize| (n.saturating_sub(2)..n).collect()).collect();
        let ladder: Vec<&[usize]> = ladder.iter().map(|parents| &parents[..]).collect();
        assert_eq!(circle(&edges(&ladder)), None);
    }
}

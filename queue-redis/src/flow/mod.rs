//! Flows: batches of tasks, and what is enqueued when all of them have ended.
//!
//! A flow is a numbered list of members, with four bits of state for each in a *ledger*. The task id says which member a task is.
//! When a member's run ends, the script that ends it appends the outcome to a list of the process ([`Recorder`]); from
//! there it goes into the ledger, whose script applies the rules. What follows from them stands in the ledger's list of
//! things to be done until somebody has carried it out. `docs/flows.md` is the whole story.

mod addition;
mod audit;
mod batch;
mod broadcast;
mod builder;
pub(crate) mod cast;
mod chunk;
mod duty;
mod explain;
mod given;
mod keep;
mod node;
mod record;
mod report;
mod rerun;
mod signal;
mod status;
mod store;
mod whereabouts;
mod workflow;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use queue_core::exhausted::FollowUp;
use queue_core::flow::{self, FlowId, MemberId, MemberOutcome, Part};
use queue_core::limits;
use queue_core::{Clock, IntoTask, TaskMessage};

pub use self::batch::{Added, Batch, BatchError};
pub use self::broadcast::{Broadcast, BroadcastBuilder};
pub use self::builder::BatchBuilder;
pub use self::cast::TendCast;
pub use self::duty::{TendQueue, TendTree};
pub use self::explain::{Explanation, Standing};
pub use self::node::{Edge, NodeStatus, ParentError, Parents, SignalStatus};
pub use self::record::Recorder;
pub use self::report::{BroadcastStatus, WorkerReport, WorkerState};
pub use self::rerun::Rerun;
pub(crate) use self::status::miscounted;
pub use self::status::{BatchState, BatchStatus, CallbackState, CallbackStatus, Member};
pub use self::workflow::WorkflowBuilder;
pub(crate) use crate::broker::duties::TREE;
use crate::broker::{Broker, Claimed, Once, Record, StoredOnce};
use crate::client::Client;
use crate::error::Error;
use crate::log::{error, warn};

/// How many trees are written at the same time.
const TREES_AT_ONCE: usize = 16;

/// What can be done to flows by whoever has a Redis; cheap to clone.
#[derive(Debug, Clone)]
pub struct Flows {
    broker: Broker,
    clock: Arc<dyn Clock>,
}

/// What is known about tasks of flows.
pub(crate) type Outcomes = Vec<(MemberId, MemberOutcome)>;

/// A tree, as the ids of its tasks name it.
type Tree = (String, Option<i64>);

impl Flows {
    /// Flows on this Redis, by this clock; a server gives the one that it compares with Redis'.
    pub fn new(broker: Broker, clock: Arc<dyn Clock>) -> Self {
        Self { broker, clock }
    }

    /// Writes outcomes into the ledgers of their flows, and carries out what follows. Told again, an outcome changes nothing.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. All may be told again.
    pub async fn record(&self, outcomes: Outcomes) -> Result<(), Error> {
        let again = outcomes.iter().filter(|(_, outcome)| *outcome == MemberOutcome::Again);
        let again: BTreeSet<&str> = again.map(|(member, _)| member.flow.root()).collect();
        // A tree that is over is looked at once an hour, and a member may die again before it is recorded that it runs.
        if !again.is_empty() {
            self.look_soon(&again.into_iter().collect::<Vec<_>>()).await?;
        }
        let mut trees: Vec<(Tree, VecDeque<Vec<Record>>)> = sorted(outcomes).into_iter().collect();
        while !trees.is_empty() {
            // What one call cannot say of a tree, the next one does: outcomes of a member keep their order.
            for trees in trees.chunks_mut(TREES_AT_ONCE) {
                let calls: Vec<(Tree, Vec<Record>)> =
                    trees.iter_mut().filter_map(|(tree, calls)| Some((tree.clone(), calls.pop_front()?))).collect();
                let said: Vec<_> = calls.iter().map(|((root, born), records)| (&**root, *born, &records[..])).collect();
                let written = self.broker.flow_record(&said).await;
                let (mut claims, mut failed) = (Vec::new(), Ok(()));
                for ((tree, _), written) in calls.into_iter().zip(written) {
                    match written {
                        Ok((_, stray, claimed)) => {
                            if stray > 0 {
                                warn!(flow = tree.0, "outcomes of a batch that is gone were dropped");
                            }
                            claims.push((tree, claimed));
                        }
                        Err(error) => failed = failed.and(Err(error)),
                    }
                }
                Box::pin(self.carry_out_all(claims)).await?;
                failed?;
            }
            trees.retain(|(_, calls)| !calls.is_empty());
        }
        Ok(())
    }

    /// The same in groups: what Redis refuses to write into one ledger holds up no other one; nor does a node of a cluster that is away
    /// those of other nodes. Returns which groups are recorded.
    ///
    /// # Errors
    /// When Redis cannot be asked, or refuses to write into any of several ledgers.
    pub(crate) async fn record_apart(&self, groups: &[Outcomes]) -> Result<Vec<bool>, Error> {
        let is_cluster = self.broker.redis().is_cluster();
        let error = match self.record(groups.concat()).await {
            Ok(()) => return Ok(vec![true; groups.len()]),
            Err(error) if error.is_outage() && !is_cluster => return Err(error),
            Err(error) => error,
        };
        let (mut recorded, mut refused, mut away) = (Vec::with_capacity(groups.len()), HashMap::new(), HashSet::new());
        for group in groups {
            let roots = group.iter().map(|(id, _)| id.flow.root());
            if roots.clone().any(|root| away.contains(root)) {
                recorded.push(false);
                continue;
            }
            let done = self.record(group.clone()).await;
            match &done {
                Err(error) if error.is_outage() && !is_cluster => return done.map(|()| recorded),
                Err(error) if error.is_outage() => away.extend(roots),
                Err(error) => refused.extend(roots.map(|root| (root, error.clone()))),
                Ok(()) => {}
            }
            recorded.push(done.is_ok());
        }
        if away.is_empty() && refused.len() > 1 && !recorded.contains(&true) {
            return Err(error);
        }
        for (flow, error) in refused {
            warn!(flow, %error, "what became of tasks of a batch cannot be written down; it is tried again");
        }
        Ok(recorded)
    }

    /// Does what is to be done for the flows of a tree, see [`carry_out_all`](Self::carry_out_all).
    pub(crate) async fn carry_out(&self, root: &str, born: Option<i64>, claimed: Claimed) -> Result<(), Error> {
        self.carry_out_all(vec![((root.to_owned(), born), claimed)]).await
    }

    /// Does what is to be done for the flows of trees, until there is no more of it. What is not done in time is claimed by
    /// others.
    ///
    /// # Errors
    /// When Redis cannot be asked; or when it refuses something, after all else was done.
    async fn carry_out_all(&self, mut claims: Vec<(Tree, Claimed)>) -> Result<(), Error> {
        claims.retain(|(_, claimed)| !claimed.entries.is_empty());
        if claims.is_empty() {
            return Ok(());
        }
        // A process that dies from here on leaves entries that somebody has to find.
        let roots: Vec<&str> = claims.iter().map(|((root, _), _)| &**root).collect();
        self.look_soon(&roots).await?;
        let mut refused = Ok(());
        while !claims.is_empty() {
            let (mut next, mut stored, mut places) = (Vec::new(), Vec::new(), Vec::new());
            let mut carried: Vec<(Tree, Vec<String>)> = Vec::with_capacity(claims.len());
            for (tree, Claimed { not_after, entries }) in std::mem::take(&mut claims) {
                let (root, born, mut done) = (&*tree.0, tree.1, Vec::new());
                for (entry, message) in entries {
                    let words: Vec<&str> = entry.split(' ').collect();
                    let numbers: Vec<u32> = words.iter().filter_map(|word| word.parse().ok()).collect();
                    let task = match (&words[..], &numbers[..]) {
                        (["call", _, event, _], &[flow, generation]) => {
                            flow::Event::from_name(event).map(|event| (flow, Part::Callback(event, generation)))
                        }
                        (["run", ..], &[flow, number]) => Some((flow, Part::Member(number, 1))),
                        (["run", ..], &[flow, number, run]) => Some((flow, Part::Member(number, run))),
                        _ => None,
                    };
                    if let Some((flow, part)) = task {
                        stored.push((MemberId { flow: flow_of(root, flow), born, part }, message, not_after));
                        places.push((carried.len(), entry));
                        continue;
                    }
                    let looked_at = match (&words[..], &numbers[..]) {
                        (["stop", _], [flow]) => {
                            if or_refused(Box::pin(self.stop(root, born, *flow)).await, &mut refused)? {
                                done.push(entry);
                            }
                            continue;
                        }
                        (["late", ..], [flow, node]) => {
                            let late = self.is_late(root, (*flow, *node), message).await;
                            next.push((tree.clone(), or_refused(late, &mut refused)?));
                            continue;
                        }
                        (["rules", _], [flow]) => Record::Rules(*flow),
                        (["nodes", ..], [flow, from]) => Record::Nodes(*flow, *from),
                        (["after", ..], [flow, member, at]) => Record::After(*flow, *member, *at),
                        _ => {
                            error!(
                                flow = root,
                                entry, "a batch has something to be done that this version does not know"
                            );
                            continue;
                        }
                    };
                    let written = self.broker.flow_record_one(root, born, looked_at).await;
                    let written = written.map(|(.., claimed)| Some(claimed));
                    // The script has taken the entry out by itself, and may have put it in again.
                    if let Some(claimed) = or_refused(written, &mut refused)? {
                        next.push((tree.clone(), claimed));
                    }
                }
                carried.push((tree, done));
            }
            for ((claim, entry), is_done) in places.into_iter().zip(self.call_all(stored).await) {
                if or_refused(is_done, &mut refused)? {
                    carried[claim].1.push(entry);
                }
            }
            carried.retain(|(_, entries)| !entries.is_empty());
            let entries = carried.iter_mut().map(|((root, _), entries)| (&**root, std::mem::take(entries)));
            let more = self.broker.flow_carried(entries.collect()).await;
            for ((tree, _), claimed) in carried.into_iter().zip(more) {
                next.push((tree, or_refused(claimed, &mut refused)?));
            }
            claims = next;
            claims.retain(|(_, claimed)| !claimed.entries.is_empty());
        }
        refused
    }

    /// Enqueues the task that follows one that was archived.
    async fn follow_up(&self, follow_up: &FollowUp) -> Result<(), Error> {
        let (queue, id) = (&follow_up.queue, &follow_up.id);
        let message = match follow_up.message(self.clock.now_ns()) {
            Ok(message) => message,
            Err(error) => {
                error!(task = id, queue, %error, "there cannot be such a task as should follow one that was archived");
                return Ok(());
            }
        };
        // Nobody has claimed it, so that nobody is too late.
        self.store_once(queue, vec![Once::pending(message, i64::MAX >> 10)]).await.remove(0).map(drop)
    }

    /// Enqueues the task that follows one that was archived, if an entry tells of it, and says whether the entry is done with. Told again,
    /// nothing is enqueued again. One that Redis refuses stays in the list of this queue, for the leader, and does not keep the others from
    /// being recorded; nor are others tried for its queue, which is noted among those that are refusing.
    ///
    /// # Errors
    /// When Redis cannot be asked. It may be told again.
    pub(crate) async fn has_followed(
        &self,
        queue: &str,
        entry: &str,
        refusing: &mut HashSet<String>,
    ) -> Result<bool, Error> {
        let Some(follow_up) = FollowUp::from_entry(entry) else { return Ok(true) };
        if refusing.contains(&follow_up.queue) {
            return Ok(false);
        }
        match self.follow_up(&follow_up).await {
            Err(error) if error.is_outage() => Err(error),
            Err(error) => {
                warn!(queue, %error, "Redis refuses a task that should follow one that was archived");
                refusing.insert(follow_up.queue);
                Ok(false)
            }
            Ok(()) => Ok(true),
        }
    }

    /// Enqueues callbacks and nodes, each with the second by which; for each whether that is done, now or before.
    async fn call_all(&self, tasks: Vec<(MemberId, Bytes, i64)>) -> Vec<Result<bool, Error>> {
        let ready = join_all(tasks.into_iter().map(async |(id, message, not_after)| {
            Ok(self.ready(&id, message).await?.map(|message| (message, not_after)))
        }));
        let mut done: Vec<Result<bool, Error>> = Vec::new();
        let mut queues: BTreeMap<String, Vec<(usize, Once)>> = BTreeMap::new();
        for (at, ready) in ready.await.into_iter().enumerate() {
            done.push(match ready {
                Ok(Ok((message, not_after))) => {
                    let once = Once::pending(message, not_after);
                    queues.entry(once.task.message.queue.clone()).or_default().push((at, once));
                    Ok(false)
                }
                Ok(Err(is_done)) => Ok(is_done),
                Err(error) => Err(error),
            });
        }
        let stored = join_all(queues.into_iter().map(async |(queue, tasks)| {
            let (places, tasks): (Vec<usize>, Vec<Once>) = tasks.into_iter().unzip();
            let stored = self.store_once(&queue, tasks).await;
            places.into_iter().zip(stored).collect::<Vec<_>>()
        }));
        for (at, stored) in stored.await.into_iter().flatten() {
            done[at] = stored;
        }
        done
    }

    /// The message of a callback or a node, as it is enqueued; or, of what is no task, whether it is done.
    async fn ready(&self, id: &MemberId, message: Bytes) -> Result<Result<TaskMessage, bool>, Error> {
        let mut message = match TaskMessage::from_bytes(message) {
            Ok(message) if !message.r#type.is_empty() => message,
            _ => {
                error!(task = %id, "a task that a batch has to enqueue cannot be read; it is not enqueued");
                return Ok(Err(false));
            }
        };
        if message.r#type == flow::SIGNAL_TYPE {
            return self.begin_to_wait(id, &message).await.map(|()| Err(true));
        }
        message.id = id.to_string();
        if matches!(id.part, Part::Member(_, 2..)) {
            self.name_present_runs(&mut message).await?;
        }
        Ok(Ok(message))
    }

    /// Stores tasks of a queue once; for each whether it is stored, now or before.
    async fn store_once(&self, queue: &str, tasks: Vec<Once>) -> Vec<Result<bool, Error>> {
        let stored = self.broker.store_each_once(queue, tasks, self.clock.now_ns()).await;
        let done = stored.into_iter().map(|(once, stored)| {
            let is_late = stored? == StoredOnce::TooLate;
            if is_late {
                warn!(
                    task = once.task.message.id,
                    queue,
                    "a task of a batch was claimed too long ago to be enqueued; it is tried again. If this goes on, \
                    set the clocks: two nodes of the cluster are half an hour apart"
                );
            }
            Ok(!is_late)
        });
        done.collect()
    }
}

impl Client {
    /// A batch: tasks that belong together, and callbacks that are enqueued when they have ended.
    ///
    /// ```no_run
    /// # async fn example(client: queue_redis::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use queue_core::RawTask;
    ///
    /// let rows = (0..1_000).map(|row| RawTask::new("import:row").payload(row.to_string()));
    /// let batch = client.batch().on_success(RawTask::new("import:report")).add_all(rows).await?;
    /// let status = batch.wait(Duration::from_secs(600)).await?;
    /// println!("{} of {} succeeded", status.succeeded, status.total);
    /// # Ok(()) }
    /// ```
    pub fn batch(&self) -> BatchBuilder {
        BatchBuilder::new(self.clone())
    }

    /// The batch of this id.
    ///
    /// # Errors
    /// When there is none, or Redis cannot be asked or refuses.
    pub async fn batch_of(&self, id: &str) -> Result<Batch, BatchError> {
        Batch::named(self.clone(), id).await
    }

    /// Whether these tasks can be members of batches, without a question to Redis: what [`BatchBuilder::add_all`] and [`Batch::add_all`] refuse
    /// in the midst of a long list can be found before anything is added. Whoever holds the uniqueness lock of one is not looked for.
    ///
    /// # Errors
    /// [`BatchError::Unsuitable`] and [`BatchError::Refused`] name the first that cannot be one by its position, from 0.
    pub fn check_members<T: IntoTask>(&self, tasks: impl IntoIterator<Item = T>) -> Result<(), BatchError> {
        let now_ns = self.now_ns();
        (0..).zip(tasks).try_for_each(|(position, task)| {
            let task = task.into_task().map_err(|error| BatchError::Refused { position, source: error.into() })?;
            chunk::checked(self, task, position, now_ns).map(drop)
        })
    }

    /// What can be done to batches without a handle of one.
    pub fn flows(&self) -> Flows {
        Flows::new(self.broker().clone(), self.clock().clone())
    }
}

/// What was done, and nothing where Redis refuses it: that is noted, so that the rest can go on.
fn or_refused<T: Default>(done: Result<T, Error>, refused: &mut Result<(), Error>) -> Result<T, Error> {
    match done {
        Err(error) if !error.is_outage() => {
            *refused = Err(error);
            Ok(T::default())
        }
        done => done,
    }
}

fn flow_of(root: &str, number: u32) -> FlowId {
    // A name that stands in a key was checked when the flow was opened.
    FlowId::root_named(root).unwrap_or_else(|_| FlowId::default()).sibling(number)
}

/// Outcomes by tree, and for each the calls that write them, of at most [`limits::FLOW_MAX_RECORD`] numbers. Those of one member keep their order.
fn sorted(outcomes: Outcomes) -> BTreeMap<Tree, VecDeque<Vec<Record>>> {
    // The calls of each tree, and how many numbers the last one has.
    let mut trees: BTreeMap<Tree, (VecDeque<Vec<Record>>, usize)> = BTreeMap::new();
    for (id, outcome) in outcomes {
        let flow = id.flow.number();
        let (calls, size) = trees.entry((id.flow.into_root(), id.born)).or_default();
        if calls.is_empty() || *size >= limits::FLOW_MAX_RECORD {
            calls.push_back(Vec::new());
            *size = 0;
        }
        *size += 1;
        let Some(records) = calls.back_mut() else { continue };
        match id.part {
            Part::Member(number, run) => match records.last_mut() {
                Some(Record::Members(known, same, now, numbers)) if (*known, *same, *now) == (flow, outcome, run) => {
                    numbers.push(number)
                }
                _ => records.push(Record::Members(flow, outcome, run, vec![number])),
            },
            Part::Callback(event, generation) => match outcome {
                MemberOutcome::Ok => records.push(Record::Callback(flow, event, generation, true)),
                MemberOutcome::Dead | MemberOutcome::Removed | MemberOutcome::Cancelled => {
                    records.push(Record::Callback(flow, event, generation, false));
                }
                MemberOutcome::Failing | MemberOutcome::Again | MemberOutcome::Void => {}
            },
        }
    }
    trees.into_iter().map(|(tree, (calls, _))| (tree, calls)).collect()
}

/// The outcomes that an entry of a list tells, which `lua/lib/tell.lua` has written; `None` if it is no such entry.
fn told(entry: &str) -> Option<Outcomes> {
    let mut words = entry.split(' ');
    let (_, outcome) = (words.next()?, MemberOutcome::from_name(words.next()?)?);
    Some(words.filter_map(MemberId::of).map(|id| (id, outcome)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(texts: &[(&str, MemberOutcome)]) -> Outcomes {
        texts.iter().map(|(id, outcome)| (MemberId::of(id).unwrap(), *outcome)).collect()
    }

    #[test]
    fn outcomes_are_sorted_by_tree_and_keep_the_order_of_a_member() {
        use MemberOutcome::{Again, Dead, Ok};
        let trees = sorted(outcomes(&[
            ("flow:a:0:1", Ok),
            ("flow:b:0:1", Ok),
            ("flow:a:0:2", Ok),
            ("flow:a:0:3", Dead),
            ("flow:a:0:3", Again),
            ("flow:a:0:3.2", Again),
            ("flow:a:1:success", Ok),
        ]));
        let a: Vec<Record> = trees[&("a".to_owned(), None)].iter().flatten().cloned().collect();
        assert_eq!(
            a,
            [
                Record::Members(0, Ok, 1, vec![1, 2]),
                Record::Members(0, Dead, 1, vec![3]),
                Record::Members(0, Again, 1, vec![3]),
                Record::Members(0, Again, 2, vec![3]),
                Record::Callback(1, flow::Event::Success, 1, true),
            ]
        );
        assert_eq!(trees.len(), 2);
    }

    #[test]
    fn a_call_writes_no_more_outcomes_than_it_may() {
        let many = (0..250).map(|number| format!("flow:a:0:{number}"));
        let many = many.map(|id| (MemberId::of(&id).unwrap(), MemberOutcome::Ok)).collect();
        let trees = sorted(many);
        let sizes = trees[&("a".to_owned(), None)].iter().map(|records| match &records[..] {
            [Record::Members(.., numbers)] => numbers.len(),
            _ => 0,
        });
        assert_eq!(sizes.collect::<Vec<_>>(), [100, 100, 50]);
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let told = told("1700000000.7 dead flow:a:0:1 mine flow:a:0:death").unwrap();
        assert_eq!(told, outcomes(&[("flow:a:0:1", MemberOutcome::Dead), ("flow:a:0:death", MemberOutcome::Dead)]));
        assert_eq!(crate::broker::told_at("1700000000.7 dead flow:a:0:1"), Some(1_700_000_000));
        assert!(super::told("1700000000.7 what flow:a:0:1").is_none());
    }
}

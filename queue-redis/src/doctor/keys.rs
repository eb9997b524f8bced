//! Going through the names of all keys: their types, counters, locks, groups, and tasks in no list.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use queue_core::doctor::{Fault, Finding, Repair, Suspect, read_info};
use queue_core::keys::{KeyFamily, KeyRole, Owner, QueueKeys};
use queue_core::queue_name::base_of;
use queue_core::unique::holder_of;
use queue_core::{TaskMessage, TaskState};

use super::fleet::list_of_queues;
use super::flows;
use super::lanes::LaneSet;
use super::names::{Name, parse};
use super::{Examination, Holder, Round, Step, Trail, mark};
use crate::broker::MAX_BATCH;
use crate::connection::Connection;
use crate::error::Error;
use crate::link::server::read;

/// Keys that Redis looks at in one call.
const SCAN: usize = 500;

type Named = (Vec<u8>, Name);

/// Whether a key is a queue's list of groups.
fn lists_groups(name: &Name) -> bool {
    name.family.name == "groups"
}

impl Step {
    /// All keys of a node.
    pub(super) fn of_node(round: Round, node: String) -> Self {
        Self::Keys { round, node, cursor: 0, told_by: None }
    }
}

/// Who has told up to where the keys of a node were read.
#[derive(Debug, Clone)]
pub(super) struct Teller {
    /// The number of the connection.
    connection: Option<u64>,
    /// The process behind it, if the user may ask for it.
    process: Option<String>,
}

impl Examination {
    /// The next keys whose names we can read.
    pub(super) async fn keys(
        &mut self,
        connection: &mut Connection,
        round: Round,
        node: String,
        cursor: u64,
        told_by: Option<Teller>,
    ) -> Result<Vec<Finding>, Error> {
        let mut scan = redis::cmd("SCAN");
        // Batches belong to no queue, and the leader looks after them.
        let with_trees = matches!(round, Round::Names) && self.only.is_none() && !self.only_harmless;
        let pattern = if with_trees { "asynq:*{*" } else { "asynq:{*" };
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN);
        let redis = &self.doctor.redis;
        let mut reply = redis.query_near(&node, "SCAN", &scan).await;
        if let Err(Error::Disconnected { .. }) = reply {
            // It was closed while nobody used it.
            reply = redis.query_near(&node, "SCAN", &scan).await;
        }
        let (next, found): (u64, Vec<Vec<u8>>) = reply?;
        if cursor != 0 || next != 0 {
            let Some(told_by) = self.teller(&node, told_by).await? else {
                // It is another process, as after a failover: to that one the place says nothing.
                self.steps.push_front(Step::of_node(round, node));
                return Ok(Vec::new());
            };
            if next != 0 {
                self.steps.push_front(Step::Keys { round, node, cursor: next, told_by: Some(told_by) });
            }
        }
        let (of_trees, found) = found.into_iter().partition(|key| key.starts_with(flows::BEGINNING));
        let findings = self.trees(connection, of_trees).await?;
        let named = Vec::into_iter(found).filter_map(|key| {
            let name = parse(&key, |queue| self.listed.contains(queue))?;
            let is_wanted = !self.only_harmless
                || matches!(name.family.role, KeyRole::Task | KeyRole::Holder | KeyRole::Group)
                || lists_groups(&name)
                || LaneSet::of(name.family.name) == Some(LaneSet::Slots);
            (is_wanted && self.is_meant(&name.queue)).then_some((key, name))
        });
        let named = named.collect();
        let more = match round {
            Round::Names => self.names(connection, named).await?,
            Round::Hashes => self.hashes(connection, named).await?,
        };
        let of = |found: &Finding| {
            let Finding { fault, queue, subject, detail, .. } = found;
            mark(queue.as_deref().unwrap_or_default(), (fault.as_str(), subject, detail))
        };
        // Names that were told of a second time.
        Ok(findings.into_iter().chain(more).filter(|found| self.reported.insert(of(found))).collect())
    }

    /// Who has told where the names go on; `None` if that may be another process than `before`, who told where they went on before.
    async fn teller(&self, node: &str, before: Option<Teller>) -> Result<Option<Teller>, Error> {
        let redis = &self.doctor.redis;
        let connection = redis.generation(node);
        if let Some(before) =
            before.as_ref().filter(|before| before.connection.is_some() && before.connection == connection)
        {
            return Ok(Some(before.clone()));
        }
        let mut ask = redis::cmd("INFO");
        let process = match redis.query_near::<String>(node, "INFO", ask.arg("server")).await {
            Ok(text) => read_info(&text).remove("run_id"),
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => None,
        };
        let is_same = before.is_none_or(|before| process.is_some() && before.process == process);
        Ok((is_same && redis.generation(node) == connection).then_some(Teller { connection, process }))
    }

    async fn names(&mut self, connection: &mut Connection, named: Vec<Named>) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        for named in named.chunks(MAX_BATCH) {
            let mut look = redis::pipe();
            for (key, _) in named {
                look.cmd("TYPE").arg(key);
            }
            let types: Vec<String> = connection.pipeline("TYPE", &look).await?;
            let mut counters = Vec::new();
            for ((key, name), key_type) in named.iter().zip(types) {
                if key_type == "none" {
                    continue;
                }
                if key_type != name.family.key_type.as_str() {
                    findings.push(wrong_type(Some(&name.queue), key, &key_type, name.family));
                    continue;
                }
                if name.family.owner == Owner::Ours {
                    self.note_limits(name);
                    continue;
                }
                let facts = self.facts.entry(name.queue.clone()).or_default();
                match name.family.role {
                    KeyRole::Task => facts.has_tasks = true,
                    KeyRole::Holder => {
                        facts.has_tasks = true;
                        facts.holders.insert(name.family.name);
                    }
                    KeyRole::Group => {
                        facts.has_tasks = true;
                        facts.groups.push(name.rest.clone());
                    }
                    KeyRole::Counter => counters.push((key, name)),
                    KeyRole::Note if lists_groups(name) => facts.lists_groups = true,
                    KeyRole::Lock | KeyRole::Note => {}
                }
            }
            findings.extend(bad_counters(connection, &counters).await?);
        }
        Ok(findings)
    }

    /// What is to be done once the names of all keys are known.
    pub(super) fn plan(&mut self) {
        self.steps.push_back(Step::Listing);
        if self.only.is_none() && !self.only_harmless {
            self.steps.push_back(Step::ListedTrees { cursor: 0 });
        }
        for (queue, facts) in &self.facts {
            // Before the tasks, of which there may be too many for a server to look at all of them.
            for set in &facts.lanes {
                self.steps.push_back(Step::Lanes { queue: queue.clone(), set: *set, cursor: 0 });
            }
            // Groups first: which of them a task stands in can only be known by having seen it there.
            if !facts.groups.is_empty() || facts.holders.contains("aggregation_sets") {
                self.steps.push_back(Step::Groups { queue: queue.clone() });
            }
            if facts.lists_groups {
                self.steps.push_back(Step::ListedGroups { queue: queue.clone(), cursor: 0 });
            }
            // Against the way that tasks go: one that moves meanwhile is rather not seen than seen twice. Lists
            // that come into being meanwhile are left out; what is in them is met as a hash in no list.
            let states =
                [TaskState::Completed, TaskState::Archived, TaskState::Active, TaskState::Pending, TaskState::Retry];
            let states = states.into_iter().chain([TaskState::Scheduled]);
            let holders = states.filter(|state| facts.holders.contains(state.as_str())).map(Holder::State);
            for holder in holders.chain(facts.holders.contains("lease").then_some(Holder::Lease)) {
                self.steps.push_back(Step::Walk { queue: queue.clone(), holder, at: 0, trail: Trail::default() });
            }
        }
        self.steps.push_back(Step::Unhandled);
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        self.steps.extend(nodes.map(|node| Step::of_node(Round::Hashes, node)));
    }

    async fn hashes(&mut self, connection: &mut Connection, named: Vec<Named>) -> Result<Vec<Finding>, Error> {
        let mut unseen: HashMap<String, Vec<Bytes>> = HashMap::new();
        let mut findings = Vec::new();
        for (key, name) in named {
            match name.family.role {
                KeyRole::Task if !self.seen.contains(&mark(&name.queue, &name.rest[..])) => {
                    unseen.entry(name.queue).or_default().push(name.rest);
                }
                KeyRole::Lock => findings.extend(self.look_at_lock(connection, &key, &name.queue).await?),
                _ => {}
            }
        }
        for (queue, ids) in unseen {
            for ids in ids.chunks(MAX_BATCH) {
                let suspects = self.not_on_their_way(connection, &queue, ids).await?;
                findings.extend(self.confirm(&queue, suspects).await?);
            }
        }
        Ok(findings)
    }

    /// Whether a task holds this lock that lives, and knows of it. The locks of a family are those of its base; a task of Go's client has
    /// one of its own queue, and may have been moved into another since. All are looked at together, for a task can be moved meanwhile.
    async fn look_at_lock(
        &self,
        connection: &mut Connection,
        lock: &[u8],
        queue: &str,
    ) -> Result<Option<Finding>, Error> {
        let Some(found) = look_at_lock(connection, lock, queue, &[queue]).await? else { return Ok(None) };
        // Those that have tasks, too: they may not be listed. A queue is listed before a task of it takes a lock.
        let listed = list_of_queues(connection).await?;
        let known: BTreeSet<&String> = listed.iter().chain(&self.listed).chain(self.facts.keys()).collect();
        let others = known.into_iter().filter(|member| *member != queue && base_of(member) == base_of(queue));
        let members: Vec<&str> = [queue].into_iter().chain(others.map(String::as_str)).collect();
        match members.len() {
            1 => Ok(Some(found)),
            _ => look_at_lock(connection, lock, queue, &members).await,
        }
    }

    /// Those that cannot be found where their hashes say, or that would have to be searched for.
    async fn not_on_their_way(
        &self,
        connection: &mut Connection,
        queue: &str,
        ids: &[Bytes],
    ) -> Result<Vec<Suspect>, Error> {
        let keys = QueueKeys::new(queue);
        let mut look = redis::pipe();
        for id in ids {
            let task = [keys.task_prefix().as_bytes(), id].concat();
            look.cmd("HMGET").arg(task).arg("state").arg("pending_since").arg("group");
        }
        type Fields = (Option<String>, Option<i64>, Option<Vec<u8>>);
        let fields: Vec<Fields> = match connection.pipeline("reading tasks", &look).await {
            Err(error) if error.is_wrong_type() => vec![(None, None, None); ids.len()],
            fields => fields?,
        };
        let mut look = redis::pipe();
        for (id, (state, _, group)) in ids.iter().zip(&fields) {
            let state = state.as_deref().and_then(|state| state.parse::<TaskState>().ok());
            let set = match (state, group) {
                (Some(TaskState::Active), _) => keys.lease().into_bytes(),
                (Some(TaskState::Aggregating), Some(group)) => [keys.group_prefix().as_bytes(), group].concat(),
                (Some(state), _) if state != TaskState::Pending => {
                    keys.container(state).unwrap_or_default().into_bytes()
                }
                _ => keys.lease().into_bytes(),
            };
            look.cmd("ZSCORE").arg(set).arg(&id[..]);
        }
        look.ignore_errors();
        let scores: Vec<redis::RedisResult<Option<f64>>> = connection.pipeline("ZSCORE", &look).await?;
        let unplaced = ids.iter().zip(fields).zip(scores).filter(|((_, (state, since, _)), score)| {
            if state.as_deref() == Some("pending") {
                // It came while we looked elsewhere.
                return since.is_none_or(|since| since <= self.started_ns);
            }
            !matches!(score, Ok(Some(_)))
        });
        Ok(unplaced.map(|((id, _), _)| Suspect { id: id.clone(), groups: Vec::new() }).collect())
    }
}

/// That a key has another type than its family, and what mends that.
pub(super) fn wrong_type(queue: Option<&str>, key: &[u8], found: &str, family: &KeyFamily) -> Finding {
    let repair = Repair::Key { key: Bytes::copy_from_slice(key), holders: Vec::new() };
    let detail = format!("a {found} instead of a {}", family.key_type.as_str());
    Finding::new(Fault::WrongType, queue, key).detail(detail).repair(repair)
}

async fn bad_counters(connection: &mut Connection, counters: &[(&Vec<u8>, &Name)]) -> Result<Vec<Finding>, Error> {
    if counters.is_empty() {
        return Ok(Vec::new());
    }
    let mut look = redis::pipe();
    for (key, _) in counters {
        look.cmd("GET").arg(key);
    }
    let values: Vec<Option<Vec<u8>>> = connection.pipeline("reading counters", &look).await?;
    let is_number = |value: &[u8]| std::str::from_utf8(value).is_ok_and(|text| text.parse::<i64>().is_ok());
    let bad = counters.iter().zip(values).filter(|(_, value)| value.as_deref().is_some_and(|value| !is_number(value)));
    Ok(bad
        .map(|((key, name), _)| {
            let repair = Repair::Key { key: Bytes::copy_from_slice(key), holders: Vec::new() };
            Finding::new(Fault::BadCounter, Some(&name.queue), key).repair(repair)
        })
        .collect())
}

/// What is wrong with a lock of a queue whose holder is in one of these `members` of the queue's family.
async fn look_at_lock(
    connection: &mut Connection,
    lock: &[u8],
    queue: &str,
    members: &[&str],
) -> Result<Option<Finding>, Error> {
    const OPERATION: &str = "looking at a lock";
    let holder = match connection.command::<Option<Vec<u8>>>("GET", lock).await {
        Err(error) if error.is_wrong_type() => return Ok(None),
        holder => holder?,
    };
    let Some(holder) = holder.filter(|value| !holder_of(value).1) else { return Ok(None) };
    let task_in = |member: &&str| [QueueKeys::new(member).task_prefix().as_bytes(), &holder].concat();
    let tasks: Vec<Vec<u8>> = members.iter().map(task_in).collect();
    let mut look = redis::pipe();
    look.cmd("GET").arg(lock);
    for task in &tasks {
        look.cmd("HMGET").arg(task).arg("msg").arg("state").arg("unique_key");
    }
    let found: Result<Vec<redis::Value>, Error> = connection.read_at_once(OPERATION, &look).await;
    let mut replies = match found {
        // That the task's key has another type is a finding of its own, and comes first.
        Err(error) if error.is_wrong_type() => return Ok(None),
        found => found?.into_iter(),
    };
    let still: Option<Vec<u8>> = replies.next().map(|reply| read(OPERATION, reply)).transpose()?.flatten();
    if still.as_deref() != Some(&holder[..]) {
        return Ok(None);
    }
    let (mut wrong, mut holders) = ((Fault::DeadLock, "gone".to_owned()), Vec::new());
    for (task, reply) in tasks.into_iter().zip(replies) {
        type Fields = (Option<Vec<u8>>, Option<String>, Option<Vec<u8>>);
        let (message, state, noted): Fields = read(OPERATION, reply)?;
        let named = message.as_ref().and_then(|raw| TaskMessage::from_bytes(raw.clone().into()).ok());
        let knows = noted.as_deref() == Some(lock)
            // Go leaves the name out of the hash of a task that joins a group.
            || named.is_some_and(|message| message.unique_key.as_bytes() == lock);
        match (&message, state) {
            (None, _) => {}
            (Some(_), Some(state)) if state == "completed" => wrong = (Fault::DeadLock, state),
            (Some(_), state) if !knows => wrong = (Fault::ForeignLock, state.unwrap_or_default()),
            _ => return Ok(None),
        }
        holders.push((task.into(), message.unwrap_or_default().into()));
    }
    let (fault, state) = wrong;
    let detail = format!("it names task {:?}, which is {state}", String::from_utf8_lossy(&holder));
    let repair = Repair::Key { key: Bytes::copy_from_slice(lock), holders };
    Ok(Some(Finding::new(fault, Some(queue), lock).detail(detail).repair(repair)))
}

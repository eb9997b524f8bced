//! Batches: whether somebody looks after each, ledgers that are gone or in pieces, counters, members without tasks.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use queue_core::Clock as _;
use queue_core::broadcast::Plan;
use queue_core::doctor::{Fault, Finding, FlowRepair, Repair};
use queue_core::flow::FlowId;
use queue_core::keys::{DUTIES, FLOWS, family, flow_prefix};
use tokio::time::Instant;

use super::keys::wrong_type;
use super::{Doctor, Examination, Step, mark};
use crate::broker::MAX_BATCH;
use crate::connection::Connection;
use crate::error::Error;
use crate::flow::{Flows, TREE, miscounted};

/// What the keys of all trees begin with.
pub(super) const BEGINNING: &[u8] = b"asynq:x:{";

/// So many flows of a tree are looked at.
const MOST_FLOWS: u32 = 1_000;
/// So many members of a flow that should have tasks are looked for.
const MOST_MEMBERS: usize = 100;
/// States of so many members are counted, half as many bytes.
const COUNTED: usize = 20_000;
/// What has just changed is looked at again after so long.
const SETTLES_WITHIN: Duration = Duration::from_secs(2);
/// What is to be done is left undone if nobody looks within so many seconds.
const LOOKED_AT_WITHIN: i64 = 15;

/// What the key of a tree says: the name of its root, and what follows it.
fn parse(key: &[u8]) -> Option<(&str, &str)> {
    let (root, rest) = std::str::from_utf8(key.strip_prefix(BEGINNING)?).ok()?.split_once("}:")?;
    FlowId::root_named(root).is_ok().then_some((root, rest))
}

fn found(fault: Fault, id: &FlowId, repair: FlowRepair) -> Finding {
    let repair = Repair::Flow { root: id.root().to_owned(), flow: id.number(), repair };
    Finding::new(fault, None, id.to_string().as_bytes()).repair(repair)
}

impl Doctor {
    pub(super) fn flows(&self) -> Flows {
        Flows::new(self.broker(), Arc::clone(&self.clock) as _)
    }

    /// Puts a flow right; whether there was something to do.
    pub(super) async fn mend_flow(&self, root: &str, flow: u32, repair: FlowRepair) -> Result<bool, Error> {
        let flows = self.flows();
        let Ok(id) = FlowId::root_named(root).map(|id| id.sibling(flow)) else { return Ok(false) };
        match repair {
            FlowRepair::List => flows.list_again(&id).await,
            FlowRepair::LookAt => flows.look_now(root).await.map(|()| true),
            FlowRepair::Count => flows.recount(&id, flows.born(root).await?).await,
            FlowRepair::Probe => flows.probe(root, flow).await.map(|()| true),
        }
    }
}

impl Examination {
    /// Keys of trees, of which there may be several of the same.
    pub(super) async fn trees(
        &mut self,
        connection: &mut Connection,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        for keys in keys.chunks(MAX_BATCH) {
            let named: Vec<(&Vec<u8>, &str, &str)> =
                keys.iter().filter_map(|key| parse(key).map(|(root, rest)| (key, root, rest))).collect();
            let (mut types, mut there) = (redis::pipe(), redis::pipe());
            // Whether the root is there, and then the key: a root is deleted last, with all that is left of its tree.
            for (_, root, _) in &named {
                there.cmd("EXISTS").arg([&flow_prefix(root), "0:flow"].concat());
            }
            for (key, ..) in &named {
                types.cmd("TYPE").arg(key);
            }
            if named.is_empty() {
                continue;
            }
            let there: Vec<bool> = connection.pipeline("EXISTS", &there).await?;
            let types: Vec<String> = connection.pipeline("TYPE", &types).await?;
            for (((key, root, rest), has_root), found) in named.into_iter().zip(there).zip(types) {
                let Some(family) = family(key).filter(|_| found != "none") else { continue };
                if found != family.key_type.as_str() {
                    findings.push(wrong_type(None, key, &found, family));
                } else if !has_root && rest != "0:flow" {
                    let holders = vec![([&flow_prefix(root), "0:flow"].concat().into(), Bytes::new())];
                    let repair = Repair::Key { key: Bytes::copy_from_slice(key), holders };
                    findings.push(Finding::new(Fault::StrayLedger, None, key).repair(repair));
                } else if rest == "0:flow" && self.reported.insert(mark(FLOWS, root)) {
                    findings.extend(self.tree(connection, root, false).await?);
                }
            }
        }
        Ok(findings)
    }

    /// What is wrong with a tree. A key of another type among its own is found by its name.
    async fn tree(&mut self, connection: &mut Connection, root: &str, is_again: bool) -> Result<Vec<Finding>, Error> {
        match self.look_at_tree(connection, root, is_again).await {
            Err(error) if error.is_wrong_type() => Ok(Vec::new()),
            found => found,
        }
    }

    /// The same; what may only be on its way is looked at again.
    async fn look_at_tree(
        &mut self,
        connection: &mut Connection,
        root: &str,
        is_again: bool,
    ) -> Result<Vec<Finding>, Error> {
        let Ok(id) = FlowId::root_named(root) else { return Ok(Vec::new()) };
        let prefix = flow_prefix(root);
        let mut look = redis::pipe();
        look.cmd("ZSCORE").arg(FLOWS).arg(root).cmd("ZSCORE").arg(DUTIES).arg(format!("{TREE} {root}"));
        look.cmd("ZRANGE").arg([&prefix, "todo"].concat()).arg(0).arg(0).arg("WITHSCORES");
        look.cmd("HGET").arg([&prefix, "0:flow"].concat()).arg("flows");
        look.cmd("HEXISTS").arg([&prefix, "0:flow"].concat()).arg("forgotten");
        look.cmd("EXISTS").arg([&prefix, "0:flow"].concat());
        type Read = (Option<f64>, Option<f64>, Vec<(String, i64)>, Option<u32>, bool, bool);
        let (listed, duty_ms, todo, flows, is_forgotten, exists): Read = connection.pipeline("ZSCORE", &look).await?;
        if is_forgotten || !exists {
            return Ok(Vec::new());
        }
        let (mut findings, mut again) = (Vec::new(), false);
        if listed.is_none() || duty_ms.is_none() {
            findings.push(found(Fault::UnlistedBatch, &id, FlowRepair::List));
        }
        let now = self.doctor.clock.now_secs();
        if let (Some((entry, at)), Some(duty_ms)) = (todo.first(), duty_ms) {
            // Whoever looks after a tree looks again every second while something is to be done for it.
            let next = (duty_ms / 1_000.0) as i64 - now;
            if *at <= now && next.abs() > LOOKED_AT_WITHIN {
                let undone = match next > 0 {
                    true => found(Fault::UndoneBatch, &id, FlowRepair::LookAt),
                    // Who would look is missing.
                    false => Finding::new(Fault::UndoneBatch, None, root.as_bytes()),
                };
                let undone = undone.detail(format!("{entry:?}"));
                again = true;
                findings.extend(is_again.then_some(undone));
            }
        }
        let last = flows.unwrap_or(1).min(MOST_FLOWS);
        for first in (0..last).step_by(MAX_BATCH) {
            let numbers = first..last.min(first + MAX_BATCH as u32);
            let ids: Vec<FlowId> = numbers.map(|number| id.sibling(number)).collect();
            let (more, suspicious) = self.flows_of(connection, &ids, is_again).await?;
            findings.extend(more);
            again |= suspicious;
        }
        if again && !is_again {
            let not_before = Instant::now() + SETTLES_WITHIN;
            let waiting = self.steps.iter_mut().find_map(|step| match step {
                Step::TreesAgain { roots, not_before } => Some((roots, not_before)),
                _ => None,
            });
            match waiting {
                Some((roots, at)) => {
                    roots.insert(root.to_owned());
                    *at = not_before;
                }
                None => self.steps.push_back(Step::TreesAgain { roots: BTreeSet::from([root.to_owned()]), not_before }),
            }
            // What is wrong beyond doubt is told then, too.
            return Ok(Vec::new());
        }
        Ok(findings)
    }

    /// What is wrong with some flows of a tree, and whether that may only be on its way.
    async fn flows_of(
        &self,
        connection: &mut Connection,
        ids: &[FlowId],
        is_again: bool,
    ) -> Result<(Vec<Finding>, bool), Error> {
        let mut look = redis::pipe();
        for id in ids {
            let key = |name: &str| format!("{}{}:{name}", flow_prefix(id.root()), id.number());
            look.cmd("HGETALL").arg(key("flow")).cmd("GETRANGE").arg(key("states")).arg(0).arg(COUNTED / 2);
            look.cmd("HLEN").arg(key("names")).cmd("HLEN").arg(key("messages")).cmd("HLEN").arg(key("kids"));
            look.cmd("HEXISTS").arg(key("about")).arg(Plan::FIELD);
        }
        // A key of another type is found by its name.
        look.ignore_errors();
        type Read = (HashMap<String, String>, Vec<u8>, u64, u64, u64, bool);
        let values: Vec<redis::RedisResult<redis::Value>> = connection.pipeline("HGETALL", &look).await?;
        let values: Vec<redis::Value> = values.into_iter().map(|value| value.unwrap_or(redis::Value::Nil)).collect();
        let flows = self.doctor.flows();
        let (mut findings, mut again) = (Vec::new(), false);
        for (id, values) in ids.iter().zip(values.chunks(6)) {
            let read = redis::Value::Array(values.to_vec());
            let Ok((fields, states, names, messages, kids, is_broadcast)) = redis::from_redis_value::<Read>(read)
            else {
                continue;
            };
            let number = |field: &str| fields.get(field).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            if fields.is_empty() || fields.contains_key("over") || fields.contains_key("fired:success") {
                continue;
            }
            let nodes = number("nodes");
            if fields.contains_key("committed") && nodes > 0 {
                let detail = if messages + kids < nodes {
                    Some(format!("{} of {nodes} nodes have no task", nodes - messages - kids))
                } else if names > 0 && names < nodes && !is_broadcast {
                    Some(format!("{} of {nodes} nodes have no name", nodes - names))
                } else {
                    None
                };
                let broken = Finding::new(Fault::BrokenWorkflow, None, id.to_string().as_bytes());
                findings.extend(detail.map(|detail| broken.detail(detail)));
            }
            if states.len() <= COUNTED / 2 && !miscounted(&fields, &states).is_empty() {
                // Not read at one moment; this is.
                let wrong = flows.count(id).await?;
                let told = wrong.iter().map(|it| format!("{} is {:?} and not {}", it.field, it.found, it.count));
                let told: Vec<String> = told.collect();
                if !told.is_empty() {
                    findings.push(found(Fault::BatchCount, id, FlowRepair::Count).detail(told.join(", ")));
                }
            }
            let lost = if kids > 0 { flows.lost_children(id).await? } else { Vec::new() };
            let lost = lost.iter().map(|child| {
                found(Fault::LostBatch, id, FlowRepair::Probe).detail(format!("{child}, a child that it waits for"))
            });
            findings.extend(lost);
            if number("c2") + number("c3") > 0 {
                let missing = flows.without_task(id, self.doctor.clock.now_secs(), MOST_MEMBERS).await?;
                again |= !missing.is_empty();
                if is_again && !missing.is_empty() {
                    findings.extend(self.missing(id, missing).await?);
                }
            }
        }
        Ok((findings, again))
    }

    /// That members have no tasks, unless that may be told and not yet recorded.
    async fn missing(
        &self,
        id: &FlowId,
        missing: Vec<(String, queue_core::flow::MemberId)>,
    ) -> Result<Option<Finding>, Error> {
        let queues: BTreeSet<&String> = missing.iter().map(|(queue, _)| queue).collect();
        for queue in queues {
            if self.doctor.broker().oldest_outcome(queue).await?.is_some() {
                return Ok(None);
            }
        }
        let [(_, first), ..] = &missing[..] else { return Ok(None) };
        let detail = match missing.len() {
            1 => first.to_string(),
            MOST_MEMBERS => format!("{MOST_MEMBERS} members or more, the first is {first}"),
            many => format!("{many} members, the first is {first}"),
        };
        Ok(Some(found(Fault::MissingMember, id, FlowRepair::Probe).detail(detail)))
    }

    pub(super) async fn trees_again(
        &mut self,
        connection: &mut Connection,
        roots: BTreeSet<String>,
    ) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        for root in roots {
            findings.extend(self.tree(connection, &root, true).await?);
        }
        Ok(findings)
    }

    /// The next roots that are listed: whether each has a ledger.
    pub(super) async fn listed_trees(
        &mut self,
        connection: &mut Connection,
        cursor: u64,
    ) -> Result<Vec<Finding>, Error> {
        let (next, page): (u64, Vec<(String, i64)>) =
            connection.command("ZSCAN", (FLOWS, cursor, "COUNT", MAX_BATCH)).await?;
        if next != 0 {
            self.steps.push_front(Step::ListedTrees { cursor: next });
        }
        // Who makes a batch lists it first.
        let before = self.doctor.clock.now_secs() - 60;
        let page: Vec<String> = page.into_iter().filter(|(_, at)| *at <= before).map(|(root, _)| root).collect();
        let mut findings = Vec::new();
        for page in page.chunks(MAX_BATCH) {
            let mut look = redis::pipe();
            for root in page {
                look.cmd("EXISTS").arg([&flow_prefix(root), "0:flow"].concat());
            }
            let there: Vec<bool> = connection.pipeline("EXISTS", &look).await?;
            let mut look = redis::pipe();
            for root in page {
                // One that was just forgotten is not listed any more.
                look.cmd("ZSCORE").arg(FLOWS).arg(root);
            }
            let listed: Vec<Option<f64>> = connection.pipeline("ZSCORE", &look).await?;
            for ((root, is_there), listed) in page.iter().zip(there).zip(listed) {
                if !is_there && listed.is_some() {
                    let repair = Repair::Unlist { set: FLOWS, member: Bytes::copy_from_slice(root.as_bytes()) };
                    findings.push(Finding::new(Fault::LostBatch, None, root.as_bytes()).repair(repair));
                }
            }
        }
        Ok(findings)
    }
}

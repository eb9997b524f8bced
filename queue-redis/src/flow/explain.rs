//! What a batch waits for.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use queue_core::flow::{FlowId, MemberId, MemberState, Part};
use queue_core::keys::{DUTIES, QueueKeys, flow_prefix};
use queue_core::limits::MAX_BATCH;
use serde::Serialize;

use super::status::{BatchStatus, status_of};
use super::{Flows, NodeStatus, TREE};
use crate::error::Error;

/// How many members are looked at one by one.
const MOST: usize = 1_000;

/// Members or callbacks of a batch whose tasks stand in the same place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Standing {
    /// Their queue.
    pub queue: String,
    /// State of their tasks; `missing` where there is no task: it was deleted, or what became of it is not recorded yet.
    pub state: String,
    /// How many there are.
    pub tasks: u64,
    /// The id of the first of them.
    pub first: String,
    /// Whether their queue is paused.
    pub paused: bool,
}

/// Why a batch is not over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// How it stands.
    pub status: BatchStatus,
    /// Where the tasks of its members are from which something is still to come, and of those that died.
    pub members: Vec<Standing>,
    /// How many of those members were not looked at: there are more than a thousand.
    pub unseen: u64,
    /// Where its callbacks are that were enqueued and have not ended.
    pub callbacks: Vec<Standing>,
    /// Its children that are not over, or ended badly: their ids and states; the first hundred.
    pub children: Vec<(String, &'static str)>,
    /// Its nodes that wait for others or for a signal; the first hundred.
    pub nodes: Vec<NodeStatus>,
    /// What somebody has to carry out for its tree, as it stands in Redis.
    pub todo: Vec<String>,
    /// When the leader looks after its tree next.
    pub next_look: Option<DateTime<Utc>>,
}

impl Flows {
    /// What a batch or workflow waits for; `None` if there is none of this id. It costs a look at each live member, of a thousand at most.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn explain(&self, id: &FlowId) -> Result<Option<Explanation>, Error> {
        let Some(ledger) = self.ledger(id).await? else { return Ok(None) };
        let (status, born) = (status_of(id, &ledger), self.born(id.root()).await?);
        let task = |part| MemberId { flow: id.clone(), born, part };
        let is_wanted = |state| match state {
            MemberState::Sent | MemberState::Failing => true,
            MemberState::Dead | MemberState::Removed => !status.is_over() || status.succeeded < status.total,
            _ => false,
        };
        let wanted = || ledger.numbers(is_wanted).filter(|number| ledger.is_task(*number));
        let members: Vec<(String, MemberId)> =
            wanted().take(MOST).map(|number| (ledger.queue_of(number).to_owned(), task(ledger.part(number)))).collect();
        let unseen = wanted().skip(MOST).count() as u64;
        let callbacks = ledger.sent_callbacks().into_iter();
        let callbacks: Vec<(String, MemberId)> =
            callbacks.map(|(event, generation, queue)| (queue, task(Part::Callback(event, generation)))).collect();
        let is_open = |state: MemberState| state.is_live() || state == MemberState::Dead;
        let kids = ledger.numbers(is_open).filter_map(|number| ledger.kids.get(&number));
        let mut children = Vec::new();
        for kid in kids.take(MAX_BATCH) {
            let kid = id.sibling(*kid);
            children.extend(self.status(&kid).await?.map(|status| (status.id, status.state.as_str())));
        }
        let may_wait = ledger.nodes().is_some() && status.waiting + status.sent > 0;
        let mut nodes = if may_wait { self.nodes(id).await? } else { Vec::new() };
        nodes.retain(|node| {
            node.state == MemberState::Waiting || node.state == MemberState::Sent && node.signal.is_some()
        });
        nodes.truncate(MAX_BATCH);
        let mut look = redis::pipe();
        look.cmd("ZRANGE").arg([&flow_prefix(id.root()), "todo"].concat()).arg(0).arg(MAX_BATCH - 1);
        let (todo,): (Vec<String>,) = self.broker.redis().pipeline("ZRANGE", &look).await?;
        let duty = format!("{} {}", TREE, id.root());
        let next_ms: Option<i64> = self.broker.redis().command("ZSCORE", (DUTIES, duty)).await?;
        Ok(Some(Explanation {
            members: self.standings(&members).await?,
            callbacks: self.standings(&callbacks).await?,
            next_look: next_ms.and_then(DateTime::from_timestamp_millis),
            status,
            unseen,
            children,
            nodes,
            todo,
        }))
    }

    /// Where tasks stand, by queue and state.
    async fn standings(&self, tasks: &[(String, MemberId)]) -> Result<Vec<Standing>, Error> {
        let mut standings: BTreeMap<(String, String), Standing> = BTreeMap::new();
        let mut paused: HashMap<String, bool> = HashMap::new();
        for tasks in tasks.chunks(MAX_BATCH) {
            for ((queue, id), state) in tasks.iter().zip(self.states_of(tasks).await?) {
                let state = state.unwrap_or_else(|| "missing".to_owned());
                if !paused.contains_key(queue) {
                    let key = QueueKeys::new(queue).paused();
                    let is = self.broker.redis().command("EXISTS", key).await?;
                    paused.insert(queue.clone(), is);
                }
                let new = || Standing {
                    queue: queue.clone(),
                    state: state.clone(),
                    tasks: 0,
                    first: id.to_string(),
                    paused: paused[queue],
                };
                standings.entry((queue.clone(), state.clone())).or_insert_with(new).tasks += 1;
            }
        }
        Ok(standings.into_values().collect())
    }
}

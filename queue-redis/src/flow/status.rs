//! What stands in the ledger of a flow.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use queue_core::TaskMessage;
use queue_core::broadcast::{Plan, Verdict};
use queue_core::flow::{Event, FlowId, MemberId, MemberState, Part};
use queue_core::keys::{DUTIES, FLOWS, flow_prefix};
use serde::Serialize;

use super::Flows;
use super::TREE;
use crate::broker::Recount;
use crate::error::Error;

/// What its maker says of a flow, by the names of the fields.
pub(super) const DESCRIPTION: &str = "description";
pub(super) const TAGS: &str = "tags";
pub(super) const METADATA: &str = "metadata";

/// A flow as it was at one moment.
#[derive(Debug)]
pub(super) struct Ledger {
    numbers: HashMap<String, String>,
    about: HashMap<String, Bytes>,
    states: Bytes,
    /// The child flow that a member stands for.
    pub(super) kids: HashMap<u32, u32>,
    /// The queues of its members, by the first number of each.
    queues: BTreeMap<u32, String>,
    /// The runs of those that were run again.
    runs: HashMap<u32, u32>,
}

impl Ledger {
    pub(super) fn number<T: std::str::FromStr>(&self, field: &str) -> Option<T> {
        self.numbers.get(field)?.parse().ok()
    }

    fn at(&self, field: &str) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp(self.number(field)?, 0)
    }

    /// Whom it went to, if it is a broadcast.
    pub(super) fn plan(&self) -> Option<Plan> {
        Plan::parse(self.about.get(Plan::FIELD)?)
    }

    fn text(&self, field: &str) -> Option<String> {
        Some(String::from_utf8_lossy(self.about.get(field)?).into_owned())
    }

    /// What is there, or nothing where that cannot be read.
    fn json<T: serde::de::DeserializeOwned + Default>(&self, field: &str) -> T {
        self.about.get(field).and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default()
    }

    /// How a member stands.
    pub(super) fn state(&self, number: u32) -> MemberState {
        let byte = self.states.get((number / 2) as usize).copied().unwrap_or(0);
        let bits = if number.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
        MemberState::from_bits(bits).unwrap_or(MemberState::Void)
    }

    /// The number that the next member gets.
    pub(super) fn next(&self) -> u32 {
        self.number("next").unwrap_or(0)
    }

    /// Whether all members are there that its maker has given it.
    pub(super) fn is_committed(&self) -> bool {
        self.numbers.contains_key("committed")
    }

    /// Whether its counters disagree with the states of its members. It was not read at one moment, so that this may be an error.
    pub(super) fn seems_miscounted(&self) -> bool {
        !miscounted(&self.numbers, &self.states).is_empty()
    }

    /// The Unix second until which members may be on their way into their queues.
    pub(super) fn adding_until(&self) -> i64 {
        self.number("adding").unwrap_or(0)
    }

    /// Whether no more members can come.
    pub(super) fn is_closed(&self) -> bool {
        ["over", "cancelled", "abandoned", "fired:success"].iter().any(|field| self.numbers.contains_key(*field))
    }

    /// Of a broadcast that others may join or have joined, how many servers have to succeed, have, and may still.
    fn of_servers(&self, plan: &Plan) -> (u64, u64, u64) {
        let of = |is_so: fn(MemberState) -> bool| {
            plan.members().filter(|(number, _)| is_so(self.state(*number))).count() as u64
        };
        // Whoever comes has to succeed where all have to; else it may be anybody.
        let (more, others) = match (plan.until.is_some() && self.state(0).is_live(), plan.all) {
            (false, _) => (0, 0),
            (true, true) => (1, 1),
            (true, false) => (0, u64::from(u32::MAX)),
        };
        let quorum = u64::from(plan.quorum) + more;
        (quorum, of(|state| state == MemberState::Succeeded), of(MemberState::is_live) + others)
    }

    /// How many of its members are nodes; `None` of a batch that has none.
    pub(super) fn nodes(&self) -> Option<u32> {
        self.number("nodes")
    }

    /// The numbers of the members in certain states.
    pub(super) fn numbers(&self, is_wanted: impl Fn(MemberState) -> bool) -> impl Iterator<Item = u32> {
        (0..self.next()).filter(move |number| is_wanted(self.state(*number)))
    }

    /// Whether a member is a task, and not a flow or a signal; the latter lie in front of all queues.
    pub(super) fn is_task(&self, number: u32) -> bool {
        !self.kids.contains_key(&number) && !self.queue_of(number).is_empty()
    }

    /// What the id of the task of a member says: its number, and its present run.
    pub(super) fn part(&self, number: u32) -> Part {
        Part::Member(number, self.runs.get(&number).copied().unwrap_or(1))
    }

    /// The queue of a member.
    pub(super) fn queue_of(&self, number: u32) -> &str {
        self.queues.range(..=number).next_back().map_or("", |(_, queue)| queue)
    }

    /// The callbacks that are in a queue, with their generations and queues.
    pub(super) fn sent_callbacks(&self) -> Vec<(Event, u32, String)> {
        // One that comes once may have been called in an earlier generation.
        let generation = |event| self.number(&format!("called:{event}")).unwrap_or(1);
        let sent = Event::ALL
            .into_iter()
            .filter(|event| matches!(self.numbers.get(&format!("callback:{event}")).map(String::as_str), Some("sent")));
        sent.filter_map(|event| Some((event, generation(event), self.callback(event)?.queue))).collect()
    }

    fn callback(&self, event: Event) -> Option<TaskMessage> {
        TaskMessage::from_bytes(self.about.get(&format!("message:{event}"))?.clone()).ok()
    }
}

queue_core::words! {
    /// How a batch stands as a whole.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum BatchState with ALL {
        /// It is a node of a workflow, and its turn has not come.
        Waiting: "waiting",
        /// Members may still be added.
        Open: "open",
        /// It was committed, and members or callbacks are not over.
        Running: "running",
        /// The same, and it cannot succeed unless something dead is run again.
        Doomed: "doomed",
        /// Every member and callback has succeeded.
        Succeeded: "succeeded",
        /// It is over, and something died or was removed.
        Dead: "dead",
        /// It was cancelled; members may still be running.
        Cancelled: "cancelled",
        /// Nobody has committed it or added to it for half an hour.
        Abandoned: "abandoned",
    }
}

queue_core::words! {
    /// How a callback stands.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum CallbackState {
        /// Its event has not happened.
        Waiting: "waiting",
        /// It is about to be enqueued.
        Due: "due",
        /// It is in its queue, or runs.
        Sent: "sent",
        /// It succeeded.
        Succeeded: "succeeded",
        /// It is in the archive, or was deleted.
        Dead: "dead",
    }
}

/// A callback of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CallbackStatus {
    /// The event: `death`, `complete`, `success` or `settled`.
    pub event: &'static str,
    /// Type of its task.
    pub r#type: String,
    /// Queue of its task.
    pub queue: String,
    /// How it stands.
    pub state: CallbackState,
}

/// A member of a batch that is a task, and neither a child nor a signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Member {
    /// Its queue.
    pub queue: String,
    /// Id of its task.
    pub id: String,
    /// How it stands.
    pub state: MemberState,
}

/// A batch as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BatchStatus {
    /// Its id.
    pub id: String,
    /// The batch it is a child of.
    pub parent: Option<String>,
    /// How it stands.
    pub state: BatchState,
    /// What it is for, in the words of its maker.
    pub description: Option<String>,
    /// Words by which it is found.
    pub tags: BTreeSet<String>,
    /// What else its maker has written down.
    pub metadata: BTreeMap<String, String>,
    /// Members, those that were refused as duplicates not counted.
    pub total: u64,
    /// Nodes that wait for others; 0 in a batch without nodes.
    pub waiting: u64,
    /// Members that are in their queue or run.
    pub sent: u64,
    /// Members that have failed and will be tried again.
    pub failing: u64,
    /// Members that succeeded.
    pub succeeded: u64,
    /// Members in the archive, and children that ended badly.
    pub dead: u64,
    /// Members that were deleted, revoked or lost.
    pub removed: u64,
    /// Members that were cancelled with the batch.
    pub cancelled: u64,
    /// Nodes that do not run, because what they need did not come; 0 in a batch without nodes.
    pub skipped: u64,
    /// Children that run on and cannot succeed unless something is run again.
    pub doomed: u64,
    /// Of a broadcast, the type of its task.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    /// Of a broadcast, how many members have to succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<u32>,
    /// Of one that others may join, how many servers have to succeed, have, and may still.
    #[serde(skip)]
    of_servers: Option<(u64, u64, u64)>,
    /// When it was created.
    pub created: Option<DateTime<Utc>>,
    /// When it was committed.
    pub committed: Option<DateTime<Utc>>,
    /// When a member last moved.
    pub touched: Option<DateTime<Utc>>,
    /// When it was over, callbacks included.
    pub over: Option<DateTime<Utc>>,
    /// When it is cancelled if it is not over by then.
    pub deadline: Option<DateTime<Utc>>,
    /// The events that have happened, and when.
    pub fired: BTreeMap<&'static str, DateTime<Utc>>,
    /// Its callbacks.
    pub callbacks: Vec<CallbackStatus>,
    /// How many times it began anew, because something dead or a node was run again; from 1.
    pub generation: u32,
}

impl BatchStatus {
    /// Members from which something is still to come.
    pub fn live(&self) -> u64 {
        self.waiting + self.sent + self.failing + self.doomed
    }

    /// Of a broadcast, whether enough members have succeeded; `None` of other batches.
    pub fn verdict(&self) -> Option<Verdict> {
        let of_members = (self.quorum?.into(), self.succeeded, self.live());
        let (quorum, succeeded, live) = self.of_servers.unwrap_or(of_members);
        Some(Verdict::of(quorum, succeeded, live))
    }

    /// Whether nothing will happen any more by itself.
    pub fn is_over(&self) -> bool {
        self.over.is_some()
    }
}

impl Flows {
    /// How a batch stands; `None` if there is none of this id.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn status(&self, id: &FlowId) -> Result<Option<BatchStatus>, Error> {
        let prefix = flow_key(id);
        let mut look = redis::pipe();
        look.cmd("HGETALL").arg([&prefix, "flow"].concat()).cmd("HGETALL").arg([&prefix, "about"].concat());
        let (numbers, about): (HashMap<String, String>, HashMap<String, Vec<u8>>) =
            self.broker.redis().pipeline("HGETALL", &look).await?;
        let Some(ledger) = ledger(numbers, about, Bytes::new(), HashMap::new()) else { return Ok(None) };
        if ledger.plan().is_some_and(|plan| plan.until.is_some()) {
            // One of its members is no server.
            return Ok(self.ledger(id).await?.map(|ledger| status_of(id, &ledger)));
        }
        Ok(Some(status_of(id, &ledger)))
    }

    /// The ids of batches that are children of none, the newest first: `most` of them after the first `skip`. One that is just being
    /// made or was just forgotten may be among them, without a [`status`](Self::status).
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn roots(&self, skip: usize, most: usize) -> Result<Vec<FlowId>, Error> {
        // Of none, the last would be the one before the first: -1, which is all.
        let Some(last) = skip.saturating_add(most).checked_sub(1).filter(|_| most > 0) else { return Ok(Vec::new()) };
        let names: Vec<String> = self.broker.redis().command("ZREVRANGE", (FLOWS, skip, last)).await?;
        Ok(names.iter().filter_map(|name| FlowId::root_named(name).ok()).collect())
    }

    /// When the leader looks after a batch next: the Unix second at which a timer or the time of a signal may be over, say.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn next_look(&self) -> Result<Option<i64>, Error> {
        let duties: Vec<(String, i64)> = self.broker.redis().command("ZRANGE", (DUTIES, 0, -1, "WITHSCORES")).await?;
        let is_tree = |name: &str| name.split_once(' ').is_some_and(|(duty, _)| duty == TREE);
        let first = duties.into_iter().filter(|(name, _)| is_tree(name)).map(|(_, at_ms)| at_ms).min();
        Ok(first.map(|at_ms| at_ms.div_euclid(1_000).saturating_add(1)))
    }

    /// Members of a batch that are tasks, in the order of their numbers: `most` of them in this state, or in any, from this number on; and the
    /// number to go on from, if there are more. Whatever moves meanwhile, none comes twice. Reads the states of all of them.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn members(
        &self,
        id: &FlowId,
        state: Option<MemberState>,
        from: u32,
        most: usize,
    ) -> Result<(Vec<Member>, Option<u32>), Error> {
        let born = self.born(id.root()).await?;
        let Some(ledger) = self.ledger(id).await? else { return Ok((Vec::new(), None)) };
        let is_wanted = |it| state.map_or(it != MemberState::Void, |state| it == state);
        let mut numbers =
            ledger.numbers(is_wanted).filter(|number| *number >= from && ledger.is_task(*number)).peekable();
        let member = |number| {
            let task = MemberId { flow: id.clone(), born, part: ledger.part(number) };
            let (queue, state) = (ledger.queue_of(number).to_owned(), ledger.state(number));
            Member { queue, id: task.to_string(), state }
        };
        let members = numbers.by_ref().take(most).map(member).collect();
        Ok((members, numbers.peek().copied()))
    }

    /// The children of a batch.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn children(&self, id: &FlowId) -> Result<Vec<FlowId>, Error> {
        let key = [&flow_key(id), "kids"].concat();
        let kids: HashMap<u32, u32> = self.broker.redis().command("HGETALL", key).await?;
        let mut kids: Vec<u32> = kids.into_values().collect();
        kids.sort_unstable();
        Ok(kids.into_iter().map(|kid| id.sibling(kid)).collect())
    }

    /// All that stands in a ledger.
    pub(super) async fn ledger(&self, id: &FlowId) -> Result<Option<Ledger>, Error> {
        let prefix = flow_key(id);
        let key = |name: &str| [&prefix, name].concat();
        let mut look = redis::pipe();
        look.cmd("HGETALL").arg(key("flow")).cmd("HGETALL").arg(key("about"));
        look.cmd("GET").arg(key("states")).cmd("HGETALL").arg(key("kids"));
        type Read = (HashMap<String, String>, HashMap<String, Vec<u8>>, Option<Vec<u8>>, HashMap<u32, u32>);
        let (numbers, about, states, kids): Read = self.broker.redis().pipeline("HGETALL", &look).await?;
        let Some(mut ledger) = ledger(numbers, about, states.unwrap_or_default().into(), kids) else { return Ok(None) };
        if ledger.numbers.contains_key("rerun") {
            ledger.runs = self.broker.redis().command("HGETALL", key("runs")).await?;
        }
        Ok(Some(ledger))
    }
}

/// What the counters of a flow should be, where they are something else. The fields of its hash, and the bytes of `states`.
pub(crate) fn miscounted(fields: &HashMap<String, String>, states: &[u8]) -> Vec<Recount> {
    let mut counts = [0_u64; 16];
    for byte in states {
        counts[usize::from(byte >> 4)] += 1;
        counts[usize::from(byte & 15)] += 1;
    }
    let counters = MemberState::ALL.into_iter().filter(|state| *state != MemberState::Void);
    let counters = counters.map(|state| (format!("c{}", state as u8), counts[state as usize]));
    let wrong = counters.filter_map(|(field, count)| {
        let found = fields.get(&field).cloned().unwrap_or_default();
        let is_right = if found.is_empty() { count == 0 } else { found == count.to_string() };
        (!is_right).then_some(Recount { field, found, count })
    });
    wrong.collect()
}

/// What the keys of one flow begin with.
pub(super) fn flow_key(id: &FlowId) -> String {
    format!("{}{}:", flow_prefix(id.root()), id.number())
}

fn ledger(
    numbers: HashMap<String, String>,
    about: HashMap<String, Vec<u8>>,
    states: Bytes,
    kids: HashMap<u32, u32>,
) -> Option<Ledger> {
    if numbers.is_empty() {
        return None;
    }
    let queues =
        numbers.iter().filter_map(|(field, queue)| Some((field.strip_prefix("from:")?.parse().ok()?, queue.clone())));
    let queues = queues.collect();
    let about = about.into_iter().map(|(field, text)| (field, text.into())).collect();
    Some(Ledger { numbers, about, states, kids, queues, runs: HashMap::new() })
}

pub(super) fn status_of(id: &FlowId, ledger: &Ledger) -> BatchStatus {
    let count = |state: MemberState| ledger.number::<u64>(&format!("c{}", state as u8)).unwrap_or(0);
    let (dead, removed) = (count(MemberState::Dead), count(MemberState::Removed));
    let doomed = count(MemberState::Doomed) + count(MemberState::DoomedAttempted);
    let cancelled = count(MemberState::Cancelled);
    let has = |field: &str| ledger.numbers.contains_key(field);
    let callbacks: Vec<CallbackStatus> =
        Event::ALL.into_iter().filter_map(|event| callback_of(ledger, event)).collect();
    let is_bad = dead + removed + doomed > ledger.number("tolerated").unwrap_or(0)
        || (cancelled > 0 && !has("cancelled"))
        || callbacks.iter().any(|callback| callback.state == CallbackState::Dead);
    let state = match () {
        () if has("abandoned") => BatchState::Abandoned,
        () if has("cancelled") => BatchState::Cancelled,
        () if has("held") => BatchState::Waiting,
        () if has("over") && is_bad => BatchState::Dead,
        () if has("over") => BatchState::Succeeded,
        () if is_bad => BatchState::Doomed,
        () if has("committed") => BatchState::Running,
        () => BatchState::Open,
    };
    let plan = ledger.plan();
    let all = MemberState::ALL.into_iter().filter(|state| *state != MemberState::Void);
    let fired =
        Event::ALL.into_iter().filter_map(|event| Some((event.as_str(), ledger.at(&format!("fired:{event}"))?)));
    BatchStatus {
        id: id.to_string(),
        parent: ledger.number("parent").map(|parent| id.sibling(parent).to_string()),
        state,
        description: ledger.text(DESCRIPTION),
        tags: ledger.json(TAGS),
        metadata: ledger.json(METADATA),
        total: all.map(count).sum(),
        waiting: count(MemberState::Waiting),
        sent: count(MemberState::Sent),
        failing: count(MemberState::Failing),
        succeeded: count(MemberState::Succeeded),
        dead,
        removed,
        cancelled,
        skipped: count(MemberState::Skipped),
        doomed,
        of_servers: plan.as_ref().filter(|plan| plan.until.is_some()).map(|plan| ledger.of_servers(plan)),
        quorum: plan.as_ref().map(|plan| plan.quorum),
        task_type: plan.map(|plan| plan.r#type),
        created: ledger.at("created"),
        committed: ledger.at("committed"),
        touched: ledger.at("touched"),
        over: ledger.at("over"),
        deadline: ledger.at("deadline"),
        fired: fired.collect(),
        callbacks,
        generation: ledger.number("generation").unwrap_or(1),
    }
}

fn callback_of(ledger: &Ledger, event: Event) -> Option<CallbackStatus> {
    let state = match ledger.numbers.get(&format!("callback:{event}"))?.as_str() {
        "due" => CallbackState::Due,
        "sent" => CallbackState::Sent,
        "ok" => CallbackState::Succeeded,
        "dead" => CallbackState::Dead,
        _ => CallbackState::Waiting,
    };
    let message = ledger.callback(event).unwrap_or_default();
    Some(CallbackStatus { event: event.as_str(), r#type: message.r#type, queue: message.queue, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_what_the_states_say() {
        let fields = |fields: &[(&str, &str)]| {
            fields.iter().map(|(field, text)| ((*field).to_owned(), (*text).to_owned())).collect::<HashMap<_, _>>()
        };
        // Members 0 to 4: sent, succeeded, succeeded, void, doomed.
        let states = [0x24, 0x40, 0xa0];
        assert!(miscounted(&fields(&[("c2", "1"), ("c4", "2"), ("c10", "1"), ("c5", "0")]), &states).is_empty());
        let wrong = miscounted(&fields(&[("c2", "2"), ("c4", "x"), ("c5", "1")]), &states);
        let wrong: Vec<_> = wrong.iter().map(|it| (&it.field[..], &it.found[..], it.count)).collect();
        assert_eq!(wrong, [("c2", "2", 1), ("c4", "x", 2), ("c5", "1", 0), ("c10", "", 1)]);
        assert!(miscounted(&fields(&[]), &[]).is_empty());
    }
}

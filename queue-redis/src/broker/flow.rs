//! The ledgers of flows: `flow_open.lua`, `flow_reserve.lua`, `flow_nodes.lua`, `flow_mark.lua`, `flow_record.lua`, `flow_carried.lua`,
//! `flow_signal.lua`, `flow_join.lua`, `flow_rerun.lua`, `flow_tend.lua`, `flow_forget.lua`; and what crosses over from and to queues: `trim_outcomes.lua`, `store_once.lua`.

use std::time::Duration;

use bytes::Bytes;
use queue_core::flow::{Event, MemberOutcome, MemberState};
use queue_core::keys::{QueueKeys, flow_prefix};
use queue_core::limits::{self, BROADCAST_MAX_SERVERS};
use redis::{Cmd, Value};

use super::Broker;
use crate::error::Error;
use crate::script::{
    FLOW_CARRIED, FLOW_FORGET, FLOW_JOIN, FLOW_MARK, FLOW_NODES, FLOW_OPEN, FLOW_RECORD, FLOW_RERUN, FLOW_RESERVE,
    FLOW_SIGNAL, FLOW_TEND, STORE_ONCE, Script, TRIM_OUTCOMES, Word,
};

/// The list of what is to be done for a tree, behind its prefix.
const LIST: &str = "todo";

/// What is to be done for the flows of a tree, claimed by this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Claimed {
    /// The Unix second, by the clock of the tree's node, until which tasks may be stored because of it.
    pub(crate) not_after: i64,
    /// The entries, and the messages of the callbacks that they name.
    pub(crate) entries: Vec<(String, Bytes)>,
}

/// A flow to be created.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opening {
    pub(crate) parent: Option<u32>,
    pub(crate) name: String,
    pub(crate) behalf: String,
    pub(crate) count: u32,
    pub(crate) queue: String,
    pub(crate) commit: bool,
    pub(crate) has_chosen_name: bool,
    pub(crate) deadline: i64,
    pub(crate) linger: i64,
    /// Whether the numbers are those of nodes.
    pub(crate) has_nodes: bool,
    /// What it is in its parent, if it is a node there.
    pub(crate) at: Option<u32>,
    pub(crate) texts: Vec<(String, Bytes)>,
}

/// A node, as it is stored.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) message: Bytes,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) word: Word,
    pub(crate) number: u32,
    pub(crate) first: u32,
    pub(crate) born: Option<i64>,
    /// The Unix second that it is, by Redis' clock.
    pub(crate) now: i64,
    pub(crate) claimed: Claimed,
}

/// Numbers for new members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reserved {
    pub(crate) word: Word,
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// Whether all of them were enqueued before.
    pub(crate) is_added: bool,
    /// The states of numbers that were given out before, as they stand in the ledger from the byte of the first on.
    states: Bytes,
}

impl Reserved {
    /// Whether a number that was given out before still counts as sent.
    pub(crate) fn is_sent(&self, number: u32) -> bool {
        let byte = self.states.get((number / 2 - self.first / 2) as usize).copied().unwrap_or(0);
        let bits = if number.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
        bits == MemberState::Sent as u8
    }
}

/// What is known about some members or a callback of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Record {
    /// So ended this run of the members of these numbers.
    Members(u32, MemberOutcome, u32, Vec<u32>),
    /// A callback, its generation, and whether it succeeded or died.
    Callback(u32, Event, u32, bool),
    /// Nothing; the rules are to be applied.
    Rules(u32),
    /// The nodes are to be looked at, from this number on.
    Nodes(u32, u32),
    /// Those are to be looked at that wait for a member, from this place of their list on.
    After(u32, u32, u32),
    /// Counters that are to be put right.
    Counts(u32, Vec<Recount>),
}

/// A counter of a flow that is wrong: its field, what was found there, and what it should be.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Recount {
    pub(crate) field: String,
    pub(crate) found: String,
    pub(crate) count: u64,
}

/// What a look at a tree has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tended {
    pub(crate) is_to_be_forgotten: bool,
    /// The flow to go on with.
    pub(crate) go_on: Option<u32>,
    /// When to look again.
    pub(crate) next: Duration,
    /// The flows that stand still.
    pub(crate) standing: Vec<u32>,
    pub(crate) claimed: Claimed,
}

/// A server that is to have a part in a broadcast that has begun.
#[derive(Debug)]
pub(crate) struct Joining<'a> {
    pub(crate) server: &'a str,
    /// Its mailbox.
    pub(crate) queue: &'a str,
    /// The number of its member, which is the next.
    pub(crate) number: u32,
    pub(crate) message: Bytes,
    /// The name of its node; empty for none.
    pub(crate) name: &'a str,
    /// The member because of which it may join, and whether that one is lost.
    pub(crate) behalf: (u32, bool),
}

/// What became of the wish to run a node again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rerun {
    pub(crate) word: Word,
    pub(crate) generation: u32,
    pub(crate) nodes: u64,
    /// Members and callbacks because of which it cannot be, each as the number of its flow, and its own or its event.
    pub(crate) in_the_way: Vec<String>,
    pub(crate) claimed: Claimed,
}

/// How much of a tree was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forgotten {
    All,
    Part,
    /// It is not over.
    Nothing,
}

/// What a task is stored under once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredOnce {
    Stored,
    Before,
    TooLate,
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

fn number<T: std::str::FromStr>(value: &Value) -> Option<T> {
    text(value)?.parse().ok()
}

fn letter(value: &Value) -> Option<Word> {
    Word::of(*text(value)?.as_bytes().first()?)
}

fn claimed(value: &Value) -> Option<Claimed> {
    let Value::Array(parts) = value else { return None };
    let Some((first, entries)) = parts.split_first() else { return Some(Claimed::default()) };
    let entry = |pair: &[Value]| match pair {
        [entry, Value::BulkString(message)] => Some((text(entry)?, Bytes::copy_from_slice(message))),
        _ => None,
    };
    Some(Claimed { not_after: number(first)?, entries: entries.chunks(2).map(entry).collect::<Option<_>>()? })
}

fn marked(parts: &[Value]) -> Option<(Word, Claimed)> {
    let [word, todo] = parts else { return None };
    Some((letter(word)?, claimed(todo)?))
}

impl Broker {
    /// A call of a script on a tree, by one of its keys.
    async fn on_tree<T>(
        &self,
        script: &'static Script,
        (root, key): (&str, &str),
        with: impl FnOnce(&mut Cmd),
        parse: impl FnOnce(&[Value]) -> Option<T>,
    ) -> Result<T, Error> {
        let prefix = flow_prefix(root);
        let mut call = script.call(1);
        call.arg([&prefix, key].concat()).arg(prefix);
        with(&mut call);
        let reply = self.redis.run(script, &call).await?;
        let parsed = match &reply {
            Value::Array(parts) => parse(parts),
            single => parse(std::slice::from_ref(single)),
        };
        parsed.ok_or_else(|| Error::unexpected(script.name, &reply))
    }

    pub(crate) async fn flow_open(&self, root: &str, opening: &Opening) -> Result<Opened, Error> {
        let with = |call: &mut Cmd| {
            call.arg(opening.parent.map(|parent| parent.to_string()).unwrap_or_default());
            call.arg(&opening.name).arg(&opening.behalf).arg(opening.count).arg(&opening.queue);
            call.arg(if opening.commit { "1" } else { "" }).arg(if opening.has_chosen_name { "1" } else { "" });
            call.arg(opening.deadline).arg(opening.linger).arg(if opening.has_nodes { "1" } else { "" });
            call.arg(opening.at.map(|at| at.to_string()).unwrap_or_default());
            for (field, text) in &opening.texts {
                call.arg(field).arg(&text[..]);
            }
        };
        let parse = |parts: &[Value]| {
            let [word, flow, first, born, now, todo] = parts else { return None };
            let (flow, first, born, now) = (number(flow).unwrap_or(0), number(first)?, number(born), number(now)?);
            Some(Opened { word: letter(word)?, number: flow, first, born, now, claimed: claimed(todo)? })
        };
        self.on_tree(&FLOW_OPEN, (root, LIST), with, parse).await
    }

    pub(crate) async fn flow_reserve(
        &self,
        (root, flow): (&str, u32),
        count: u32,
        queue: &str,
        key: &str,
        behalf: &str,
    ) -> Result<Reserved, Error> {
        let with = |call: &mut Cmd| {
            call.arg(flow).arg(count).arg(queue).arg(key).arg(behalf);
        };
        let parse = |parts: &[Value]| {
            let [word, first, count, added, Value::BulkString(states)] = parts else { return None };
            let (states, is_added) = (Bytes::copy_from_slice(states), number::<u8>(added)? == 1);
            Some(Reserved { word: letter(word)?, first: number(first)?, count: number(count)?, is_added, states })
        };
        self.on_tree(&FLOW_RESERVE, (root, &format!("{flow}:keys")), with, parse).await
    }

    /// Describes nodes whose tasks are of this queue.
    pub(crate) async fn flow_nodes(
        &self,
        (root, flow): (&str, u32),
        queue: &str,
        nodes: &[Described],
    ) -> Result<Word, Error> {
        let with = |call: &mut Cmd| {
            call.arg(flow).arg(queue);
            for node in nodes {
                call.arg(node.number).arg(&node.name).arg(&node.message[..]).arg(&node.before).arg(&node.after);
            }
        };
        self.on_tree(&FLOW_NODES, (root, &format!("{flow}:messages")), with, |parts| letter(parts.first()?)).await
    }

    /// Notes that a flow is `committed` or `cancelled`, or that an addition with a key is complete (`added`).
    pub(crate) async fn flow_mark(
        &self,
        (root, flow): (&str, u32),
        what: &'static str,
        key: &str,
    ) -> Result<(Word, Claimed), Error> {
        let with = |call: &mut Cmd| {
            call.arg(flow).arg(what).arg(key);
        };
        self.on_tree(&FLOW_MARK, (root, LIST), with, marked).await
    }

    /// Writes what is known into a tree; returns how much of it was new, how much was of flows that are gone, and what
    /// is to be done now. At most [`limits::FLOW_MAX_RECORD`] numbers.
    pub(crate) async fn flow_record(
        &self,
        root: &str,
        born: Option<i64>,
        records: &[Record],
    ) -> Result<(u64, u64, Claimed), Error> {
        let with = |call: &mut Cmd| {
            call.arg(born.map(|born| born.to_string()).unwrap_or_default());
            for record in records {
                match record {
                    Record::Members(flow, outcome, 1, numbers) => {
                        call.arg(flow).arg(outcome.as_str()).arg(numbers.len()).arg(numbers)
                    }
                    Record::Members(flow, outcome, run, numbers) => {
                        call.arg(flow).arg(format!("{}.{run}", outcome.as_str())).arg(numbers.len()).arg(numbers)
                    }
                    Record::Callback(flow, event, generation, is_well) => {
                        let ended = if *is_well { "ok" } else { "dead" };
                        call.arg(flow).arg("callback").arg(3).arg(event.as_str()).arg(generation).arg(ended)
                    }
                    Record::Rules(flow) => call.arg(flow).arg("rules").arg(0),
                    Record::Nodes(flow, from) => call.arg(flow).arg("nodes").arg(1).arg(from),
                    Record::After(flow, member, at) => call.arg(flow).arg("after").arg(2).arg(member).arg(at),
                    Record::Counts(flow, counts) => {
                        let group = call.arg(flow).arg("counts").arg(3 * counts.len());
                        counts.iter().fold(group, |group, it| group.arg(&it.field).arg(&it.found).arg(it.count))
                    }
                };
            }
        };
        let parse = |parts: &[Value]| {
            let [new, stray, todo] = parts else { return None };
            Some((number(new)?, number(stray)?, claimed(todo)?))
        };
        self.on_tree(&FLOW_RECORD, (root, LIST), with, parse).await
    }

    /// What was claimed is done; returns what is to be done next.
    pub(crate) async fn flow_carried(&self, root: &str, entries: &[String]) -> Result<Claimed, Error> {
        let with = |call: &mut Cmd| {
            call.arg(entries);
        };
        self.on_tree(&FLOW_CARRIED, (root, LIST), with, |parts| claimed(parts.get(1)?)).await
    }

    /// What a node was told that waits for a signal, or that its time is over, or has begun; see `flow_signal.lua`.
    pub(crate) async fn flow_signal(
        &self,
        (root, flow, node): (&str, u32, u32),
        what: &'static str,
        text: &str,
    ) -> Result<(Word, Claimed), Error> {
        let with = |call: &mut Cmd| {
            call.arg(flow).arg(node).arg(what).arg(text);
        };
        self.on_tree(&FLOW_SIGNAL, (root, LIST), with, marked).await
    }

    /// Adds a server to a broadcast that has begun; see `flow_join.lua`.
    pub(crate) async fn flow_join(
        &self,
        (root, flow): (&str, u32),
        joining: &Joining<'_>,
    ) -> Result<(Word, Claimed), Error> {
        let with = |call: &mut Cmd| {
            let (behalf, is_lost) = joining.behalf;
            call.arg(flow).arg(joining.server).arg(joining.queue).arg(joining.number).arg(&joining.message[..]);
            call.arg(joining.name).arg(behalf).arg(if is_lost { "1" } else { "" }).arg(BROADCAST_MAX_SERVERS);
        };
        self.on_tree(&FLOW_JOIN, (root, LIST), with, marked).await
    }

    /// Has a node run again, and all that is behind it; see `flow_rerun.lua`.
    pub(crate) async fn flow_rerun(&self, (root, flow): (&str, u32), node: &str, seen: u32) -> Result<Rerun, Error> {
        let with = |call: &mut Cmd| {
            call.arg(flow).arg(node).arg(seen).arg(limits::FLOW_MAX_RERUN);
        };
        let parse = |parts: &[Value]| {
            let [word, generation, nodes, Value::Array(in_the_way), todo] = parts else { return None };
            let in_the_way = in_the_way.iter().map(text).collect::<Option<_>>()?;
            let (generation, nodes, claimed) = (number(generation)?, number(nodes)?, claimed(todo)?);
            Some(Rerun { word: letter(word)?, generation, nodes, in_the_way, claimed })
        };
        self.on_tree(&FLOW_RERUN, (root, LIST), with, parse).await
    }

    pub(crate) async fn flow_tend(&self, root: &str, from: u32) -> Result<Tended, Error> {
        let with = |call: &mut Cmd| {
            call.arg(from).arg(limits::FLOW_STANDS_STILL_AFTER.as_secs()).arg(limits::FLOW_ABANDONED_AFTER.as_secs());
            call.arg(limits::FLOW_LINGER.as_secs()).arg(limits::FLOW_LINGER_AFTER_DEATH.as_secs());
        };
        let parse = |parts: &[Value]| {
            let [forget, go_on, next, Value::Array(standing), todo] = parts else { return None };
            let go_on = number(go_on).filter(|flow| *flow > 0);
            let standing = standing.iter().map(number).collect::<Option<_>>()?;
            let is_to_be_forgotten = number::<u8>(forget)? == 1;
            Some(Tended {
                is_to_be_forgotten,
                go_on,
                next: Duration::from_secs(number(next)?),
                standing,
                claimed: claimed(todo)?,
            })
        };
        self.on_tree(&FLOW_TEND, (root, LIST), with, parse).await
    }

    /// Deletes a part of a tree that is over.
    pub(crate) async fn flow_forget(&self, root: &str) -> Result<Forgotten, Error> {
        let parse = |parts: &[Value]| match number(parts.first()?)? {
            0_u8 => Some(Forgotten::All),
            1 => Some(Forgotten::Part),
            _ => Some(Forgotten::Nothing),
        };
        self.on_tree(&FLOW_FORGET, (root, LIST), |_| {}, parse).await
    }

    /// Removes outcomes from a list of a queue, when they stand in their ledgers.
    pub(crate) async fn trim_outcomes(&self, queue: &str, list: &str, entries: &[String]) -> Result<(), Error> {
        let mut call = TRIM_OUTCOMES.call(2);
        call.arg(list).arg(QueueKeys::new(queue).outcome_lists()).arg(entries);
        self.redis.run(&TRIM_OUTCOMES, &call).await.map(drop)
    }

    /// Stores a pending task, unless that was done before within a day.
    pub(crate) async fn store_once(
        &self,
        queue: &str,
        id: &str,
        message: &[u8],
        not_after: i64,
    ) -> Result<StoredOnce, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = STORE_ONCE.call(3);
        call.arg(keys.pending()).arg(keys.stored_once()).arg(keys.task(id));
        call.arg(id).arg(message).arg(not_after).arg(limits::FLOW_MAX_STORED_ONCE);
        let reply = self.redis.run(&STORE_ONCE, &call).await?;
        match letter(&reply) {
            Some(Word::Applied) => Ok(StoredOnce::Stored),
            Some(Word::Same) => Ok(StoredOnce::Before),
            Some(Word::Changed) => Ok(StoredOnce::TooLate),
            _ => Err(Error::unexpected(STORE_ONCE.name, &reply)),
        }
    }
}

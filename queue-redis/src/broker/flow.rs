//! The ledgers of flows: `flow_open.lua`, `flow_reserve.lua`, `flow_nodes.lua`, `flow_mark.lua`, `flow_record.lua`, `flow_carried.lua`,
//! `flow_signal.lua`, `flow_join.lua`, `flow_rerun.lua`, `flow_tend.lua`, `flow_forget.lua`; and what crosses over from queues: `trim_outcomes.lua`.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use queue_core::flow::{Event, MemberOutcome, MemberState};
use queue_core::keys::{QueueKeys, flow_prefix};
use queue_core::limits::{self, BROADCAST_MAX_SERVERS};
use redis::{ToRedisArgs, Value};

use super::Broker;
use crate::error::Error;
use crate::script::{
    FLOW_CARRIED, FLOW_FORGET, FLOW_JOIN, FLOW_MARK, FLOW_NODES, FLOW_OPEN, FLOW_RECORD, FLOW_RERUN, FLOW_RESERVE,
    FLOW_SIGNAL, FLOW_TEND, Script, TRIM_OUTCOMES, Word,
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
    /// The state of a number that was given out before.
    pub(crate) fn state(&self, number: u32) -> Option<MemberState> {
        let byte = self.states.get((number / 2 - self.first / 2) as usize).copied().unwrap_or(0);
        MemberState::from_bits(if number.is_multiple_of(2) { byte >> 4 } else { byte & 15 })
    }

    /// Whether its task may never have been stored: it counts as sent, or as removed since somebody has missed it.
    pub(crate) fn may_be_unstored(&self, number: u32) -> bool {
        matches!(self.state(number), Some(MemberState::Sent | MemberState::Removed))
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

impl Record {
    /// Adds its words, and returns how many outcomes it tells of.
    fn write(&self, words: &mut Vec<String>) -> usize {
        let (flow, word, those) = match self {
            Self::Members(flow, outcome, run, numbers) => {
                let run = if *run == 1 { String::new() } else { format!(".{run}") };
                (flow, [outcome.as_str(), &run].concat(), spans(numbers))
            }
            Self::Callback(flow, event, generation, is_well) => {
                let ended = if *is_well { "ok" } else { "dead" };
                let those = vec![event.as_str().to_owned(), generation.to_string(), ended.to_owned()];
                (flow, "callback".to_owned(), those)
            }
            Self::Rules(flow) => (flow, "rules".to_owned(), Vec::new()),
            Self::Nodes(flow, from) => (flow, "nodes".to_owned(), vec![from.to_string()]),
            Self::After(flow, member, at) => (flow, "after".to_owned(), vec![member.to_string(), at.to_string()]),
            Self::Counts(flow, counts) => {
                let those = counts.iter().flat_map(|it| [it.field.clone(), it.found.clone(), it.count.to_string()]);
                (flow, "counts".to_owned(), those.collect())
            }
        };
        words.extend([flow.to_string(), word, those.len().to_string()]);
        words.extend(those);
        if let Self::Members(.., numbers) = self { numbers.len() } else { 1 }
    }
}

/// Numbers of members as `lua/lib/flow_move.lua` wants them: those in a row by the first and the last of them.
fn spans(numbers: &[u32]) -> Vec<String> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    let rows = numbers.chunk_by(|one, next| next - one == 1).map(|row| match row {
        [one] => one.to_string(),
        row => format!("{}-{}", row[0], row[row.len() - 1]),
    });
    rows.collect()
}

/// What a call says of one tree: words of its own, and then others, how many of which there are it says too.
struct Words<'a> {
    root: &'a str,
    head: Vec<String>,
    words: Vec<String>,
    /// How many outcomes or entries they tell of.
    weight: usize,
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
    pub(crate) tree: Tree,
    /// The flow to go on with.
    pub(crate) go_on: Option<u32>,
    /// When to look again.
    pub(crate) next: Duration,
    /// The flows that stand still.
    pub(crate) standing: Vec<u32>,
    pub(crate) claimed: Claimed,
}

/// What becomes of a tree that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tree {
    Stays,
    /// It is to be forgotten.
    Over,
    Forgotten,
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

/// A truth, as scripts are told it.
fn flag(is_so: bool) -> &'static str {
    if is_so { "1" } else { "" }
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
        args: impl ToRedisArgs,
        parse: impl FnOnce(&[Value]) -> Option<T>,
    ) -> Result<T, Error> {
        let prefix = flow_prefix(root);
        let mut call = script.call(1);
        call.arg([&prefix, key].concat()).arg(prefix).arg(args);
        let reply = self.redis.run(script, &call).await?;
        let parsed = match &reply {
            Value::Array(parts) => parse(parts),
            single => parse(std::slice::from_ref(single)),
        };
        parsed.ok_or_else(|| Error::unexpected(script.name, &reply))
    }

    pub(crate) async fn flow_open(&self, root: &str, opening: &Opening) -> Result<Opened, Error> {
        let or_empty = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        let texts: Vec<_> = opening.texts.iter().map(|(field, text)| (field, &text[..])).collect();
        let args = (
            or_empty(opening.parent),
            (&opening.name, &opening.behalf, opening.count, &opening.queue),
            (flag(opening.commit), flag(opening.has_chosen_name), opening.deadline, opening.linger),
            (flag(opening.has_nodes), or_empty(opening.at), texts),
        );
        let parse = |parts: &[Value]| {
            let [word, flow, first, born, now, todo] = parts else { return None };
            let (flow, first, born, now) = (number(flow).unwrap_or(0), number(first)?, number(born), number(now)?);
            Some(Opened { word: letter(word)?, number: flow, first, born, now, claimed: claimed(todo)? })
        };
        self.on_tree(&FLOW_OPEN, (root, LIST), args, parse).await
    }

    pub(crate) async fn flow_reserve(
        &self,
        (root, flow): (&str, u32),
        count: u32,
        queue: &str,
        key: &str,
        behalf: &str,
    ) -> Result<Reserved, Error> {
        let args = (flow, count, queue, key, behalf);
        let parse = |parts: &[Value]| {
            let [word, first, count, added, Value::BulkString(states)] = parts else { return None };
            let (states, is_added) = (Bytes::copy_from_slice(states), number::<u8>(added)? == 1);
            Some(Reserved { word: letter(word)?, first: number(first)?, count: number(count)?, is_added, states })
        };
        self.on_tree(&FLOW_RESERVE, (root, &format!("{flow}:keys")), args, parse).await
    }

    /// Describes nodes whose tasks are of this queue.
    pub(crate) async fn flow_nodes(
        &self,
        (root, flow): (&str, u32),
        queue: &str,
        nodes: &[Described],
    ) -> Result<Word, Error> {
        let nodes = nodes.iter().map(|node| (node.number, &node.name, &node.message[..], &node.before, &node.after));
        let args = (flow, queue, nodes.collect::<Vec<_>>());
        self.on_tree(&FLOW_NODES, (root, &format!("{flow}:messages")), args, |parts| letter(parts.first()?)).await
    }

    /// Notes that a flow is `committed` or `cancelled`, or that an addition with a key is complete (`added`).
    pub(crate) async fn flow_mark(
        &self,
        (root, flow): (&str, u32),
        what: &'static str,
        key: &str,
    ) -> Result<(Word, Claimed), Error> {
        self.on_tree(&FLOW_MARK, (root, LIST), (flow, what, key), marked).await
    }

    /// Calls a script on several trees, each with its words and what they weigh: with as many at once as one call may have. What Redis
    /// refuses is tried again tree by tree, so that one that cannot be written is not in the way of the others.
    async fn on_trees<T>(
        &self,
        script: &'static Script,
        trees: Vec<Words<'_>>,
        parse: fn(&[Value]) -> Option<T>,
    ) -> Vec<Result<T, Error>> {
        // Each has a slot of its own there.
        let most = if self.redis.cluster().is_some() { 1 } else { limits::FLOW_TREES };
        let (mut calls, mut weight): (Vec<Vec<Words<'_>>>, usize) = (Vec::new(), 0);
        for tree in trees {
            weight += tree.weight;
            match calls.last_mut().filter(|call| call.len() < most && weight <= limits::FLOW_MAX_RECORD) {
                Some(call) => call.push(tree),
                None => {
                    weight = tree.weight;
                    calls.push(vec![tree]);
                }
            }
        }
        let answers = calls.iter().map(async |trees| {
            let alone = async |tree: &Words<'_>| {
                let answer = self.on_trees_at_once(script, std::slice::from_ref(tree), parse).await?.pop().flatten();
                answer.ok_or_else(|| Error::unexpected(script.name, &"an answer of another form"))
            };
            match self.on_trees_at_once(script, trees, parse).await {
                Err(error) if trees.len() == 1 || error.is_outage() => {
                    trees.iter().map(|_| Err(error.clone())).collect()
                }
                answer => {
                    let answers = answer.unwrap_or_else(|_| trees.iter().map(|_| None).collect());
                    let each = trees.iter().zip(answers).map(async |(tree, answer)| match answer {
                        Some(answer) => Ok(answer),
                        None => alone(tree).await,
                    });
                    join_all(each).await
                }
            }
        });
        join_all(answers).await.into_iter().flatten().collect()
    }

    /// The answer for each tree; `None` for one of several that could not be written.
    async fn on_trees_at_once<T>(
        &self,
        script: &'static Script,
        trees: &[Words<'_>],
        parse: fn(&[Value]) -> Option<T>,
    ) -> Result<Vec<Option<T>>, Error> {
        let mut call = script.call(trees.len());
        let prefixes: Vec<String> = trees.iter().map(|tree| flow_prefix(tree.root)).collect();
        for prefix in &prefixes {
            call.arg([prefix, LIST].concat());
        }
        for (prefix, tree) in prefixes.into_iter().zip(trees) {
            call.arg(prefix).arg(&tree.head).arg(tree.words.len()).arg(&tree.words);
        }
        let reply = self.redis.run(script, &call).await?;
        let answer = |answer: &Value| if let Value::Array(parts) = answer { parse(parts) } else { None };
        match &reply {
            Value::Array(answers) if answers.len() == trees.len() => Ok(answers.iter().map(answer).collect()),
            _ => Err(Error::unexpected(script.name, &reply)),
        }
    }

    /// Writes what is known into trees; returns for each how much of it was new, how many of the records were of flows that are gone, and
    /// what is to be done now. Of each tree at most [`limits::FLOW_MAX_RECORD`] numbers.
    pub(crate) async fn flow_record(
        &self,
        trees: &[(&str, Option<i64>, &[Record])],
    ) -> Vec<Result<(u64, u64, Claimed), Error>> {
        let words = trees.iter().map(|(root, born, records)| {
            let mut words = Vec::with_capacity(4 * records.len());
            let mut weight = 0;
            for record in *records {
                weight += record.write(&mut words);
            }
            Words { root, head: vec![born.map(|born| born.to_string()).unwrap_or_default()], words, weight }
        });
        self.on_trees(&FLOW_RECORD, words.collect(), |parts| {
            let [new, stray, todo] = parts else { return None };
            Some((number(new)?, number(stray)?, claimed(todo)?))
        })
        .await
    }

    /// The same of one tree.
    pub(crate) async fn flow_record_one(
        &self,
        root: &str,
        born: Option<i64>,
        record: Record,
    ) -> Result<(u64, u64, Claimed), Error> {
        self.flow_record(&[(root, born, &[record])]).await.remove(0)
    }

    /// What was claimed of trees is done; returns for each what is to be done next.
    pub(crate) async fn flow_carried(&self, trees: Vec<(&str, Vec<String>)>) -> Vec<Result<Claimed, Error>> {
        let words = trees.into_iter().map(|(root, words)| {
            let weight = words.len();
            Words { root, head: Vec::new(), words, weight }
        });
        self.on_trees(&FLOW_CARRIED, words.collect(), |parts| claimed(parts.get(1)?)).await
    }

    /// What a node was told that waits for a signal, or that its time is over, or has begun; see `flow_signal.lua`.
    pub(crate) async fn flow_signal(
        &self,
        (root, flow, node): (&str, u32, u32),
        what: &'static str,
        text: &str,
    ) -> Result<(Word, Claimed), Error> {
        self.on_tree(&FLOW_SIGNAL, (root, LIST), (flow, node, what, text), marked).await
    }

    /// Adds a server to a broadcast that has begun; see `flow_join.lua`.
    pub(crate) async fn flow_join(
        &self,
        (root, flow): (&str, u32),
        joining: &Joining<'_>,
    ) -> Result<(Word, Claimed), Error> {
        let Joining { server, queue, number, message, name, behalf: (behalf, is_lost) } = joining;
        let of_member = (server, queue, number, &message[..], name);
        let args = (flow, of_member, behalf, flag(*is_lost), BROADCAST_MAX_SERVERS);
        self.on_tree(&FLOW_JOIN, (root, LIST), args, marked).await
    }

    /// Has a node run again, and all that is behind it; see `flow_rerun.lua`.
    pub(crate) async fn flow_rerun(&self, (root, flow): (&str, u32), node: &str, seen: u32) -> Result<Rerun, Error> {
        let args = (flow, node, seen, limits::FLOW_MAX_RERUN);
        let parse = |parts: &[Value]| {
            let [word, generation, nodes, Value::Array(in_the_way), todo] = parts else { return None };
            let in_the_way = in_the_way.iter().map(text).collect::<Option<_>>()?;
            let (generation, nodes, claimed) = (number(generation)?, number(nodes)?, claimed(todo)?);
            Some(Rerun { word: letter(word)?, generation, nodes, in_the_way, claimed })
        };
        self.on_tree(&FLOW_RERUN, (root, LIST), args, parse).await
    }

    pub(crate) async fn flow_tend(&self, root: &str, from: u32) -> Result<Tended, Error> {
        let waits = (limits::FLOW_STANDS_STILL_AFTER.as_secs(), limits::FLOW_ABANDONED_AFTER.as_secs());
        let lingers = (limits::FLOW_LINGER.as_secs(), limits::FLOW_LINGER_AFTER_DEATH.as_secs());
        let parse = |parts: &[Value]| {
            let [forget, go_on, next, Value::Array(standing), todo] = parts else { return None };
            let go_on = number(go_on).filter(|flow| *flow > 0);
            let standing = standing.iter().map(number).collect::<Option<_>>()?;
            let tree = match number::<u8>(forget)? {
                0 => Tree::Stays,
                1 => Tree::Over,
                _ => Tree::Forgotten,
            };
            Some(Tended { tree, go_on, next: Duration::from_secs(number(next)?), standing, claimed: claimed(todo)? })
        };
        self.on_tree(&FLOW_TEND, (root, LIST), (from, waits, lingers), parse).await
    }

    /// Deletes a part of a tree that is over: so many flows, the last ones.
    pub(crate) async fn flow_forget(&self, root: &str, count: u32) -> Result<Forgotten, Error> {
        let parse = |parts: &[Value]| match number(parts.first()?)? {
            0_u8 => Some(Forgotten::All),
            1 => Some(Forgotten::Part),
            _ => Some(Forgotten::Nothing),
        };
        self.on_tree(&FLOW_FORGET, (root, LIST), count, parse).await
    }

    /// Removes outcomes from a list of a queue, when they stand in their ledgers.
    pub(crate) async fn trim_outcomes(&self, queue: &str, list: &str, entries: &[String]) -> Result<(), Error> {
        let mut call = TRIM_OUTCOMES.call(2);
        call.arg(list).arg(QueueKeys::new(queue).outcome_lists()).arg(entries);
        self.redis.run(&TRIM_OUTCOMES, &call).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_are_told_by_their_ends() {
        for (numbers, expected) in [
            (&[][..], &[][..]),
            (&[7], &["7"]),
            (&[3, 4], &["3-4"]),
            (&[9, 0, 1, 2, 4, 6, 5, 8, 2, u32::MAX], &["0-2", "4-6", "8-9", "4294967295"]),
        ] {
            assert_eq!(spans(numbers), expected);
        }
    }
}

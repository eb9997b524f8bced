//! Running a node of a workflow again, with all that is behind it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use queue_core::TaskMessage;
use queue_core::flow::{INPUT_HEADER, MemberId, Part};
use queue_core::limits::FLOW_MAX_RERUN;
use serde::Serialize;

use super::Flows;
use super::batch::{Batch, BatchError};
use super::node::Place;
use super::status::flow_key;
use crate::error::Error;
use crate::script::Word;

/// How often a workflow is looked at again that changes between the look and the call.
const ATTEMPTS: usize = 5;

/// A node that runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Rerun {
    /// The generation of the workflow that has begun.
    pub generation: u32,
    /// How many nodes run again, those in batches that are nodes included. 0 if that was asked for before by a call whose answer was lost.
    pub nodes: u64,
}

impl Batch {
    /// Runs a node of this workflow again, and all that waits for it, whether by itself or by others; batches among them as a whole. What is
    /// before the node stays as it is, with its results. A node without a name goes by its number.
    ///
    /// The workflow opens again, with those it is in and what is behind it there, in a new generation: all their callbacks are enqueued once
    /// more, as in the first one. What the tasks of the run before still tell changes nothing; they stay where they are.
    ///
    /// # Errors
    /// [`BatchError::NotOver`] while the node, or something behind it, has not ended; [`BatchError::Rerun`] for all else that is in the way.
    /// Nothing has changed then.
    pub async fn rerun(&self, node: &str) -> Result<Rerun, BatchError> {
        let (flows, place) = (self.client.flows(), (self.id.root(), self.id.number()));
        let refused = |reason: String| Err(BatchError::Rerun { node: node.to_owned(), reason });
        for _ in 0..ATTEMPTS {
            let seen = self.status().await?.generation;
            // First, so that whoever dies in between leaves nothing that nobody looks for: of a tree that is over, the leader's next look may
            // be months away.
            flows.look_soon(&[self.id.root()]).await?;
            let done = flows.broker.flow_rerun(place, node, seen).await?;
            flows.carry_out(self.id.root(), self.born, done.claimed).await?;
            return match done.word {
                Word::Applied | Word::Same => Ok(Rerun { generation: done.generation, nodes: done.nodes }),
                Word::Changed => continue,
                Word::NotOver => {
                    let live = self.names_of(&done.in_the_way).await?;
                    Err(BatchError::NotOver { node: node.to_owned(), live })
                }
                Word::NotKept => refused(format!(
                    "these were added while it ran, and their tasks are not kept: {}",
                    self.names_of(&done.in_the_way).await?.join(", ")
                )),
                Word::Barred => {
                    refused("it would be skipped, since what it waits for has not come; run that again".to_owned())
                }
                Word::Beyond => refused(format!("that would be more than {FLOW_MAX_RERUN} nodes")),
                Word::Closed => {
                    refused("the workflow, or one that it is in, is open yet, or was cancelled or abandoned".to_owned())
                }
                _ => refused(format!("workflow {} has no such node", self.id)),
            };
        }
        refused("the workflow changes all the time".to_owned())
    }

    /// Members and callbacks by their names, as people read them.
    async fn names_of(&self, members: &[String]) -> Result<Vec<String>, Error> {
        let redis = self.client.redis();
        let mut known: HashMap<u32, HashMap<String, String>> = HashMap::new();
        let mut named = Vec::new();
        for member in members {
            let Some((flow, part)) = member.split_once(' ') else { continue };
            let flow = self.id.sibling(flow.parse().unwrap_or(0));
            let names = match known.entry(flow.number()) {
                Entry::Occupied(names) => names.into_mut(),
                Entry::Vacant(unread) => {
                    let names: HashMap<String, String> =
                        redis.command("HGETALL", [&flow_key(&flow), "names"].concat()).await?;
                    unread.insert(names.into_iter().map(|(name, number)| (number, name)).collect())
                }
            };
            let name = match names.get(part) {
                Some(name) => name.clone(),
                None if part.parse::<u32>().is_ok() => part.to_owned(),
                None => format!("callback of {part}"),
            };
            named.push(if flow == self.id { name } else { format!("{name} in {flow}") });
        }
        Ok(named)
    }
}

impl Flows {
    /// Tells a node where the results are of the present runs of those that it has waited for.
    pub(super) async fn name_present_runs(&self, message: &mut TaskMessage) -> Result<(), Error> {
        let Some(input) = message.headers.get(INPUT_HEADER) else { return Ok(()) };
        let Ok(mut places) = serde_json::from_str::<BTreeMap<String, Place>>(input) else { return Ok(()) };
        let (mut look, mut asked) = (redis::pipe(), Vec::new());
        for place in places.values_mut() {
            let Place::Task { id, .. } = place else { continue };
            if let Some(member) = MemberId::of(id)
                && let Part::Member(number, _) = member.part
            {
                look.cmd("HGET").arg([&flow_key(&member.flow), "runs"].concat()).arg(number);
                asked.push((id, member, number));
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        let runs: Vec<Option<u32>> = self.broker.redis().pipeline("HGET", &look).await?;
        for ((id, member, number), run) in asked.into_iter().zip(runs) {
            *id = MemberId { part: Part::Member(number, run.unwrap_or(1)), ..member }.to_string();
        }
        if let Ok(input) = serde_json::to_string(&places) {
            message.headers.insert(INPUT_HEADER.to_owned(), input);
        }
        Ok(())
    }
}

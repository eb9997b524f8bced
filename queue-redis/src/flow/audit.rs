//! Whether ledgers are what they should be, whoever has written into them, and what puts them right.

use std::collections::{HashMap, HashSet};

use queue_core::flow::{FlowId, MemberId, MemberState};
use queue_core::keys::{FLOWS, flow_prefix};

use super::Flows;
use super::TREE;
use super::status::{Ledger, flow_key, miscounted};
use crate::broker::{Record, Recount};
use crate::error::Error;

/// States of so many members are counted; of a larger flow they are not.
const MOST_STATES: usize = 2 * 1024 * 1024;

impl Flows {
    /// The counters of a flow that disagree with the states of its members, if nothing of it moves.
    pub(crate) async fn count(&self, id: &FlowId) -> Result<Vec<Recount>, Error> {
        let prefix = flow_key(id);
        let (flow, states) = ([&prefix, "flow"].concat(), [&prefix, "states"].concat());
        let mut look = redis::pipe();
        // Workers have no right to MULTI. What has moved meanwhile shows in the counters, and is looked at another time.
        look.cmd("HGETALL")
            .arg(&flow)
            .cmd("GETRANGE")
            .arg(states)
            .arg(0)
            .arg(MOST_STATES / 2)
            .cmd("HGETALL")
            .arg(&flow);
        type Fields = HashMap<String, String>;
        let (before, states, fields): (Fields, Vec<u8>, Fields) =
            self.broker.redis().pipeline("HGETALL", &look).await?;
        let is_whole = states.len() <= MOST_STATES / 2 && before == fields;
        Ok(if fields.is_empty() || !is_whole { Vec::new() } else { miscounted(&fields, &states) })
    }

    /// Lists a tree once more, so that it is looked at and shown; whether it is there.
    pub(crate) async fn list_again(&self, id: &FlowId) -> Result<bool, Error> {
        let key = [&flow_key(&id.sibling(0)), "flow"].concat();
        let redis = self.broker.redis();
        let created: Option<i64> = redis.command("HGET", (key, "created")).await?;
        let Some(created) = created else { return Ok(false) };
        redis.command::<()>("ZADD", (FLOWS, "NX", created, id.root())).await?;
        self.look_now(id.root()).await?;
        Ok(true)
    }

    /// Has a tree looked at by the leader as soon as there is one.
    pub(crate) async fn look_now(&self, root: &str) -> Result<(), Error> {
        self.broker.ask_for_duty(TREE, root, self.clock.now_ms()).await
    }

    /// Puts the counters of a flow right, and carries out what follows; whether any was wrong.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; it may be tried again.
    pub(crate) async fn recount(&self, id: &FlowId, born: Option<i64>) -> Result<bool, Error> {
        let wrong = self.count(id).await?;
        if wrong.is_empty() {
            return Ok(false);
        }
        let (new, _, claimed) =
            self.broker.flow_record_one(id.root(), born, Record::Counts(id.number(), wrong)).await?;
        self.carry_out(id.root(), born, claimed).await?;
        Ok(new > 0)
    }

    /// The children of a flow that are gone, and from which it still waits to hear.
    pub(crate) async fn lost_children(&self, id: &FlowId) -> Result<Vec<FlowId>, Error> {
        let Some(ledger) = self.ledger(id).await? else { return Ok(Vec::new()) };
        Ok(self.without_ledger(id, &ledger).await?.into_iter().map(|(_, kid)| id.sibling(kid)).collect())
    }

    /// Members that stand for flows which are gone, and from which the flow still waits to hear, and the numbers of those flows.
    pub(super) async fn without_ledger(&self, id: &FlowId, ledger: &Ledger) -> Result<Vec<(u32, u32)>, Error> {
        // A node whose turn has not come is found when that comes.
        let is_live = |number: &u32| ledger.state(*number).is_live() && ledger.state(*number) != MemberState::Waiting;
        let mut live: Vec<(u32, u32)> =
            ledger.kids.iter().filter(|(number, _)| is_live(number)).map(|(number, kid)| (*number, *kid)).collect();
        live.sort_unstable();
        if live.is_empty() {
            return Ok(Vec::new());
        }
        let mut look = redis::pipe();
        for (_, kid) in &live {
            look.cmd("EXISTS").arg([&flow_key(&id.sibling(*kid)), "flow"].concat());
        }
        let there: Vec<bool> = self.broker.redis().pipeline("EXISTS", &look).await?;
        Ok(live.into_iter().zip(there).filter(|(_, is_there)| !is_there).map(|(lost, _)| lost).collect())
    }

    /// Members of a flow that count as sent and have no tasks, of the first `most` that do: their queues and ids. What has still
    /// to be enqueued, or is just being added, is not missing.
    pub(crate) async fn without_task(
        &self,
        id: &FlowId,
        now_secs: i64,
        most: usize,
    ) -> Result<Vec<(String, MemberId)>, Error> {
        let Some(ledger) = self.ledger(id).await?.filter(|ledger| ledger.adding_until() < now_secs) else {
            return Ok(Vec::new());
        };
        let born = self.born_by(id, &ledger).await?;
        let to_run = self.to_run(id, &ledger).await?;
        let open = self.open_tasks(id, born, &ledger, &to_run, 0).take(most).collect::<Vec<_>>();
        let states = self.states_of(&open).await?;
        let gone: Vec<_> =
            open.into_iter().zip(states).filter(|(_, state)| state.is_none()).map(|(it, _)| it).collect();
        let moved = self.moved(&gone).await?;
        Ok(gone.into_iter().zip(moved).filter(|(_, moved)| moved.is_none()).map(|(it, _)| it).collect())
    }

    /// The nodes of a flow that have still to be enqueued. The ledger has to be older than this look.
    pub(super) async fn to_run(&self, id: &FlowId, ledger: &Ledger) -> Result<HashSet<u32>, Error> {
        if ledger.nodes().is_none() {
            return Ok(HashSet::new());
        }
        let todo = [&flow_prefix(id.root()), "todo"].concat();
        let todo: Vec<String> = self.broker.redis().command("ZRANGE", (todo, 0, -1)).await?;
        let run = format!("run {} ", id.number());
        let number = |rest: &str| rest.split(' ').next()?.parse().ok();
        Ok(todo.iter().filter_map(|entry| number(entry.strip_prefix(&run)?)).collect())
    }

    /// The members of a flow from this number on that should be in a queue: the queue and the id of each.
    pub(super) fn open_tasks<'a>(
        &self,
        id: &'a FlowId,
        born: Option<i64>,
        ledger: &'a Ledger,
        to_run: &'a HashSet<u32>,
        from: u32,
    ) -> impl Iterator<Item = (String, MemberId)> + use<'a> {
        let is_open = |state| matches!(state, MemberState::Sent | MemberState::Failing);
        let numbers = ledger.numbers(is_open).skip_while(move |number| *number < from);
        let numbers = numbers.filter(|number| ledger.is_task(*number) && !to_run.contains(number));
        numbers.map(move |number| {
            (ledger.queue_of(number).to_owned(), MemberId { flow: id.clone(), born, part: ledger.part(number) })
        })
    }
}

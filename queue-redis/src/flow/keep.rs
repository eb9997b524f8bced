//! What keeps flows going when nobody else does: looks at trees and at queues with members.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use queue_core::flow::{self, FlowId, MemberId, MemberOutcome, MemberState, Part};
use queue_core::keys::{self, QueueKeys};
use queue_core::limits::{self, CHANGE_BATCH, MAX_BATCH};
use queue_core::{TaskMessage, TaskState};

use super::status::Ledger;
use super::{Flows, Outcomes, TREE, flow_of, or_refused, told};
use crate::broker::{Change, Forgotten, Seen, Tree, told_at};
use crate::error::Error;

/// When what was claimed by somebody who has died is free again.
const CLAIM_MS: i64 = limits::FLOW_CLAIM.as_millis() as i64;

/// How many members one look for them goes through.
const PROBED_AT_ONCE: usize = MAX_BATCH;

/// How many flows of a tree are forgotten in one call.
const FORGOTTEN_AT_ONCE: u32 = 25;

/// When a tree is looked at again that something was done for.
const SOON: Duration = Duration::from_secs(1);

/// How many members that Go has completed are looked at in one go.
const COLLECTED_AT_ONCE: usize = 50;

/// What the state of a task tells of a member. One that waits to be tried again may have failed, or may not have been tried at all.
fn outcome_of(state: &str) -> Option<MemberOutcome> {
    match state.parse().ok()? {
        TaskState::Archived => Some(MemberOutcome::Dead),
        TaskState::Completed => Some(MemberOutcome::Ok),
        _ => None,
    }
}

/// How far a look at a tree has come, which goes through its flows and their members and, when it is over, through the results
/// of its nodes.
#[derive(Debug)]
pub(super) struct Walk {
    /// The flow to go on with, `None` when all were looked at.
    from: Option<u32>,
    /// Flows that were seen to stand still, and from which member on the first of them is to be probed.
    standing: VecDeque<u32>,
    probed: u32,
    next: Option<Duration>,
    has_done: bool,
    refused: Result<(), Error>,
    /// Of each flow, how many of its nodes have no results any more.
    results_gone: HashMap<u32, u32>,
}

impl Default for Walk {
    fn default() -> Self {
        Self {
            from: Some(0),
            standing: VecDeque::new(),
            probed: 0,
            next: None,
            has_done: false,
            refused: Ok(()),
            results_gone: HashMap::new(),
        }
    }
}

/// Notes what Redis refuses; only what stands in the way of all ends a look.
fn noted<T: Default>(walk: &Mutex<Walk>, done: Result<T, Error>) -> Result<T, Error> {
    let mut refused = Ok(());
    let done = or_refused(done, &mut refused);
    if refused.is_err() {
        lock(walk).refused = refused;
    }
    done
}

/// What became of tasks that were to be deleted.
#[derive(Default)]
struct Stopped {
    ended: Vec<MemberId>,
    active: Vec<MemberId>,
    /// They are not in the queue.
    gone: Vec<MemberId>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Flows {
    /// Looks after a tree; returns when to look again, or `None` if it is gone.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; the look may be repeated.
    pub async fn tend(&self, root: &str) -> Result<Option<Duration>, Error> {
        self.tend_for(root, &Mutex::default(), Duration::MAX).await
    }

    /// The same for so long, going on where the walk is. What it has come to is in the walk at any time, also when this is dropped.
    pub(super) async fn tend_for(
        &self,
        root: &str,
        walk: &Mutex<Walk>,
        long: Duration,
    ) -> Result<Option<Duration>, Error> {
        let begun = Instant::now();
        let is_time_over = || begun.elapsed() >= long;
        loop {
            let (from, is_probed) = {
                let walk = lock(walk);
                (walk.from, walk.standing.is_empty())
            };
            if let Some(from) = from.filter(|_| is_probed) {
                let tended = self.broker.flow_tend(root, from).await?;
                match tended.tree {
                    Tree::Stays => {}
                    Tree::Over => return self.forget(root, walk, begun, long).await,
                    Tree::Forgotten => return self.unlist(root).await,
                }
                let has_to_do = !tended.claimed.entries.is_empty();
                {
                    let mut walk = lock(walk);
                    walk.has_done |= has_to_do;
                    walk.next = Some(walk.next.map_or(tended.next, |next| next.min(tended.next)));
                    // The script will not name these again for a while.
                    walk.standing.extend(tended.standing);
                    walk.from = tended.go_on;
                }
                if has_to_do {
                    let born = self.born(root).await?;
                    noted(walk, self.carry_out(root, born, tended.claimed).await)?;
                }
            }
            while let Some(flow) = { lock(walk).standing.front().copied() } {
                if noted(walk, self.probe_for(root, flow, walk, &is_time_over).await)? {
                    return Ok(Some(Duration::ZERO));
                }
                let mut walk = lock(walk);
                walk.standing.pop_front();
                walk.probed = 0;
            }
            if lock(walk).from.is_none() {
                let Walk { next, has_done, refused, .. } = std::mem::take(&mut *lock(walk));
                // What others have asked for meanwhile, the next look finds.
                return refused.map(|()| next.map(|next| if has_done { next.min(SOON) } else { next }));
            }
            if is_time_over() {
                return Ok(Some(Duration::ZERO));
            }
        }
    }

    /// Deletes a tree that is over, and takes it off the list; returns when to look again, if it is not over any more. What was
    /// deleted is not looked at again by whoever goes on with it.
    async fn forget(
        &self,
        root: &str,
        walk: &Mutex<Walk>,
        begun: Instant,
        long: Duration,
    ) -> Result<Option<Duration>, Error> {
        loop {
            let flows: Option<u32> =
                self.broker.redis().command("HGET", (format!("{}0:flow", keys::flow_prefix(root)), "flows")).await?;
            let flows = flows.unwrap_or(1);
            for flow in flows.saturating_sub(FORGOTTEN_AT_ONCE)..flows {
                while self.delete_results(root, flow, walk).await? {
                    if begun.elapsed() >= long {
                        return Ok(Some(Duration::ZERO));
                    }
                }
            }
            match self.broker.flow_forget(root, FORGOTTEN_AT_ONCE).await? {
                Forgotten::Part if begun.elapsed() >= long => return Ok(Some(Duration::ZERO)),
                Forgotten::Part => {}
                Forgotten::All => return self.unlist(root).await,
                Forgotten::Nothing => return Ok(Some(SOON)),
            }
        }
    }

    /// Takes a tree that is gone off the list; returns when to look again, if there is one of the same name by now.
    async fn unlist(&self, root: &str) -> Result<Option<Duration>, Error> {
        let redis = self.broker.redis();
        redis.command::<()>("ZREM", (keys::FLOWS, root)).await?;
        let key = [&keys::flow_prefix(root), "0:flow"].concat();
        if !redis.command::<bool>("EXISTS", key).await? {
            return Ok(None);
        }
        redis.command::<()>("ZADD", (keys::FLOWS, "NX", self.clock.now_secs(), root)).await?;
        Ok(Some(SOON))
    }

    /// Deletes the tasks of the next hundred nodes of a flow that were kept for the results that others read; whether there were any nodes.
    async fn delete_results(&self, root: &str, flow: u32, walk: &Mutex<Walk>) -> Result<bool, Error> {
        let redis = self.broker.redis();
        let key = |name: &str| format!("{}{flow}:{name}", keys::flow_prefix(root));
        let from = lock(walk).results_gone.get(&flow).copied().unwrap_or(0);
        let count: Option<u32> = redis.command("HGET", (key("flow"), "nodes")).await?;
        let nodes: Vec<u32> = (from..count.unwrap_or(0)).take(MAX_BATCH).collect();
        let Some(last) = nodes.last() else { return Ok(false) };
        let mut look = redis::pipe();
        look.cmd("HMGET").arg(key("messages")).arg(&nodes).cmd("HMGET").arg(key("runs")).arg(&nodes);
        let (messages, runs): (Vec<Option<Vec<u8>>>, Vec<Option<u32>>) = redis.pipeline("HMGET", &look).await?;
        let kept = i64::try_from(flow::RESULT_RETENTION.as_secs()).unwrap_or(i64::MAX);
        let mut ids: HashMap<String, Vec<String>> = HashMap::new();
        for (message, run) in messages.into_iter().zip(runs) {
            let message = message.and_then(|raw| TaskMessage::from_bytes(raw.into()).ok());
            let Some(message) = message.filter(|message| flow::retention(message) == kept) else { continue };
            let ids = ids.entry(message.queue).or_default();
            // Those of all its runs up to the last one: each has had the number of a generation.
            ids.extend((2..=run.unwrap_or(1)).map(|run| format!("{}.{run}", message.id)));
            ids.push(message.id);
        }
        for (queue, ids) in ids {
            for ids in ids.chunks(CHANGE_BATCH) {
                self.broker.delete_tasks(&queue, Seen::In(TaskState::Completed), ids).await?;
            }
        }
        lock(walk).results_gone.insert(flow, last + 1);
        Ok(true)
    }

    /// The second that the ids of the tree's tasks name.
    pub(crate) async fn born(&self, root: &str) -> Result<Option<i64>, Error> {
        let key = [&keys::flow_prefix(root), "0:flow"].concat();
        self.broker.redis().command("HGET", (key, "born")).await
    }

    /// The same where the ledger of a flow is known; that of the root has it.
    pub(super) async fn born_by(&self, id: &FlowId, ledger: &Ledger) -> Result<Option<i64>, Error> {
        match id.number() {
            0 => Ok(ledger.number("born")),
            _ => self.born(id.root()).await,
        }
    }

    /// Looks where the members of a flow are that stands still, and records what nobody has told: the task was deleted, or lost,
    /// or somebody's program has moved it. Its counters are put right, if somebody has written into its ledger.
    pub(crate) async fn probe(&self, root: &str, flow: u32) -> Result<(), Error> {
        self.probe_for(root, flow, &Mutex::default(), &|| false).await.map(drop)
    }

    /// The same until the time is over, going on with the member that the walk names; whether it was broken off.
    async fn probe_for(
        &self,
        root: &str,
        flow: u32,
        walk: &Mutex<Walk>,
        is_time_over: &(dyn Fn() -> bool + Sync),
    ) -> Result<bool, Error> {
        let id = flow_of(root, flow);
        let Some(ledger) = self.ledger(&id).await? else { return Ok(false) };
        let born = self.born_by(&id, &ledger).await?;
        if ledger.seems_miscounted() && self.recount(&id, born).await? {
            // What follows from that may have ended it.
            lock(walk).has_done = true;
            return Ok(false);
        }
        let lost = self.without_ledger(&id, &ledger).await?.into_iter();
        let child = |(number, _)| MemberId { flow: id.clone(), born, part: ledger.part(number) };
        self.record_found(lost.map(|lost| (child(lost), MemberOutcome::Removed)).collect(), walk).await?;
        let to_run = self.to_run(&id, &ledger).await?;
        let from = lock(walk).probed;
        let mut open = self.open_tasks(&id, born, &ledger, &to_run, from).peekable();
        loop {
            let ids: Vec<(String, MemberId)> = open.by_ref().take(PROBED_AT_ONCE).collect();
            if ids.is_empty() {
                break;
            }
            let states = self.states_of(&ids).await?;
            let mut known = Outcomes::new();
            let (mut missing, mut completed, mut waiting) = (Vec::new(), HashSet::new(), Vec::new());
            for ((queue, id), state) in ids.into_iter().zip(states) {
                match state {
                    None => missing.push((queue, id)),
                    Some(state) if state == TaskState::Retry.as_str() => waiting.push((queue, id)),
                    Some(state) => {
                        let outcome = outcome_of(&state);
                        if outcome == Some(MemberOutcome::Ok) {
                            completed.insert(queue);
                        }
                        known.extend(outcome.map(|outcome| (id, outcome)));
                    }
                }
            }
            for queue in completed {
                // Go has completed it, and nobody collects there any more.
                self.list_queue(&queue, self.clock.now_ns()).await?;
            }
            if !missing.is_empty() {
                lock(walk).has_done = true;
                // What was told before it went is told first: success wins over a guess.
                let mut queues: Vec<&str> = missing.iter().map(|(queue, _)| &queue[..]).collect();
                queues.sort_unstable();
                queues.dedup();
                for queue in queues {
                    self.record_lists(queue, Duration::ZERO).await?;
                }
                let states = self.states_of(&missing).await?;
                let gone = missing.into_iter().zip(states).filter(|(_, state)| state.is_none());
                let gone: Vec<(String, MemberId)> = gone.map(|(task, _)| task).collect();
                let moved = self.moved(&gone).await?;
                for ((_, id), moved) in gone.into_iter().zip(moved) {
                    match moved {
                        None => known.push((id, MemberOutcome::Removed)),
                        Some((queue, state)) => {
                            // What a process there tells that is gone, somebody has to look for.
                            self.list_queue(&queue, self.clock.now_ns()).await?;
                            if state == TaskState::Retry.as_str() {
                                waiting.push((queue, id));
                                continue;
                            }
                            known.extend(outcome_of(&state).map(|outcome| (id, outcome)));
                        }
                    }
                }
            }
            known.extend(self.failing(waiting).await?.into_iter().map(|id| (id, MemberOutcome::Failing)));
            self.record_found(known, walk).await?;
            if let Some((_, MemberId { part: Part::Member(next, _), .. })) = open.peek() {
                lock(walk).probed = *next;
                if is_time_over() {
                    return Ok(true);
                }
            }
        }
        self.record_found(self.ended_callbacks(&id, born, &ledger).await?, walk).await.map(|()| false)
    }

    /// Records what a look has found, from which more may follow.
    async fn record_found(&self, found: Outcomes, walk: &Mutex<Walk>) -> Result<(), Error> {
        lock(walk).has_done |= !found.is_empty();
        self.record(found).await
    }

    /// What became of the callbacks of a flow that were enqueued, and have ended.
    async fn ended_callbacks(&self, id: &FlowId, born: Option<i64>, ledger: &Ledger) -> Result<Outcomes, Error> {
        let mut known = Outcomes::new();
        for (event, generation, queue) in ledger.sent_callbacks() {
            let task = MemberId { flow: id.clone(), born, part: Part::Callback(event, generation) };
            let task = [(queue, task)];
            let outcome = match self.states_of(&task).await?.pop().flatten().map(|state| state.parse().ok()) {
                Some(Some(TaskState::Archived)) => MemberOutcome::Dead,
                Some(Some(TaskState::Completed)) => {
                    self.list_queue(&task[0].0, self.clock.now_ns()).await?;
                    MemberOutcome::Ok
                }
                Some(_) => continue,
                None => {
                    self.record_lists(&task[0].0, Duration::ZERO).await?;
                    if self.states_of(&task).await?.pop().flatten().is_some() {
                        continue;
                    }
                    MemberOutcome::Removed
                }
            };
            let [(_, task)] = task;
            known.push((task, outcome));
        }
        Ok(known)
    }

    /// Looks after a queue that has members: records what processes have told that are gone, and collects what Go has
    /// completed. Returns whether there was any of it.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; the look may be repeated.
    pub async fn tend_queue(&self, queue: &str) -> Result<bool, Error> {
        let recorded = self.record_lists(queue, limits::FLOW_RECORD_FOR_OTHERS_AFTER).await?;
        Ok(self.collect(queue).await? || recorded)
    }

    /// Records the entries of a queue's lists that are so old, or all; whether there is any list.
    pub(super) async fn record_lists(&self, queue: &str, older_than: Duration) -> Result<bool, Error> {
        let redis = self.broker.redis();
        let lists = QueueKeys::new(queue).outcome_lists();
        let lists: Vec<String> = redis.command("SMEMBERS", lists).await?;
        let any = !lists.is_empty();
        let before = self.clock.now_secs() - i64::try_from(older_than.as_secs()).unwrap_or(i64::MAX);
        let mut refusing = HashSet::new();
        for list in lists {
            let mut skip = 0;
            loop {
                let mut entries: Vec<String> = redis.command("LRANGE", (&list, skip, skip + MAX_BATCH - 1)).await?;
                let found = entries.len();
                // All of them, whatever the clock says by which they were told.
                entries.retain(|entry| older_than.is_zero() || told_at(entry).is_none_or(|at| at <= before));
                let groups: Vec<Outcomes> = entries.iter().map(|entry| told(entry).unwrap_or_default()).collect();
                let recorded = self.record_apart(&groups).await?;
                let mut done = Vec::new();
                for (entry, _) in entries.iter().zip(recorded).filter(|(_, is_recorded)| *is_recorded) {
                    if self.has_followed(queue, entry, &mut refusing).await? {
                        done.push(entry.clone());
                    }
                }
                // Of a list that is gone, this takes the name off the set.
                self.broker.trim_outcomes(queue, &list, &done).await?;
                // What Redis refuses stays, and what is behind it is not to wait.
                skip += found - done.len();
                if found < MAX_BATCH || entries.is_empty() {
                    break;
                }
            }
        }
        Ok(any)
    }

    /// Records members that Go has completed, and deletes them; whether there were any.
    async fn collect(&self, queue: &str) -> Result<bool, Error> {
        let redis = self.broker.redis();
        let completed = QueueKeys::new(queue).completed();
        // Ten years and a second after their success: from five years on there is next to nothing else.
        let from = self.clock.now_secs() + i64::try_from(flow::MEMBER_RETENTION.as_secs()).unwrap_or(i64::MAX) / 2;
        let (mut skip, mut any) = (0, false);
        loop {
            let ids: Vec<Bytes> =
                redis.command("ZRANGEBYSCORE", (&completed, from, "+inf", "LIMIT", skip, COLLECTED_AT_ONCE)).await?;
            let found = ids.len();
            let members: Vec<MemberId> =
                ids.iter().filter_map(|id| MemberId::of(std::str::from_utf8(id).ok()?)).collect();
            let groups: Vec<Outcomes> = members.into_iter().map(|id| vec![(id, MemberOutcome::Ok)]).collect();
            let recorded = self.record_apart(&groups).await?;
            let ended = groups.iter().zip(recorded).filter(|(_, is_recorded)| *is_recorded);
            let mut ids: Vec<String> = ended.flat_map(|(group, _)| group).map(|(id, _)| id.to_string()).collect();
            skip += found - ids.len();
            let (leave, stay) = self.keep(queue, &mut ids, from).await?;
            skip += stay;
            any |= leave > 0 || !ids.is_empty();
            if !ids.is_empty() {
                // Somebody may have run one again meanwhile: it is where it is now.
                let changes = self.broker.delete_tasks(queue, Seen::In(TaskState::Completed), &ids).await?;
                skip += changes.iter().filter(|change| !change.is_done()).count();
            }
            if found < COLLECTED_AT_ONCE {
                return Ok(any);
            }
        }
    }

    /// Gives those members that Go has completed the retention that was asked for, and leaves the others in the list. Returns how many
    /// are kept until before this second, and how many until then or longer.
    async fn keep(&self, queue: &str, ids: &mut Vec<String>, from: i64) -> Result<(usize, usize), Error> {
        if ids.is_empty() {
            return Ok((0, 0));
        }
        let (redis, keys) = (self.broker.redis(), QueueKeys::new(queue));
        let mut look = redis::pipe();
        for id in &*ids {
            look.cmd("HGET").arg(keys.task(id)).arg("msg");
        }
        let messages: Vec<Option<Vec<u8>>> = redis.pipeline("HGET", &look).await?;
        let (mut shorten, mut kept, mut stay) = (redis::pipe(), 0, 0);
        let mut messages = messages.into_iter();
        ids.retain(|id| {
            let message = messages.next().flatten().and_then(|raw| TaskMessage::from_bytes(raw.into()).ok());
            let seconds = message.map_or(0, |message| flow::retention(&message));
            if seconds > 0 {
                // Only if it is there and not shorter: whoever ran it again has taken it out.
                let until = self.clock.now_secs().saturating_add(seconds);
                shorten.cmd("ZADD").arg(keys.completed()).arg("XX").arg("LT").arg(until).arg(id).ignore();
                kept += 1;
                stay += usize::from(until >= from);
            }
            seconds <= 0
        });
        if kept == 0 {
            return Ok((0, 0));
        }
        redis.pipeline::<()>("ZADD", &shorten).await?;
        Ok((kept - stay, stay))
    }

    /// Deletes what waits of a flow that is cancelled, and asks servers to stop what runs; likewise for the flows in it.
    /// Returns whether nothing is left.
    pub(super) async fn stop(&self, root: &str, born: Option<i64>, flow: u32) -> Result<bool, Error> {
        let id = flow_of(root, flow);
        let Some(ledger) = self.ledger(&id).await? else { return Ok(true) };
        for number in ledger.numbers(|state| state.is_live() || state == MemberState::Skipped) {
            let Some(kid) = ledger.kids.get(&number) else { continue };
            // Members of a batch that is skipped may run all the same, if they were added before; else it has never begun.
            if ledger.state(number) == MemberState::Skipped {
                let runs = |state: MemberState| state.is_live() && state != MemberState::Waiting;
                let skipped = self.ledger(&flow_of(root, *kid)).await?;
                if skipped.is_none_or(|skipped| skipped.numbers(runs).next().is_none()) {
                    continue;
                }
            }
            let (_, claimed) = self.broker.flow_mark((root, *kid), "cancelled", "").await?;
            Box::pin(self.carry_out(root, born, claimed)).await?;
        }
        let member = |number: u32| MemberId { flow: id.clone(), born, part: ledger.part(number) };
        let live: Vec<u32> = ledger.numbers(MemberState::is_live).collect();
        let is_enqueued = |number: &u32| ledger.state(*number) != MemberState::Waiting && ledger.is_task(*number);
        let waiting = live.iter().filter(|number| !is_enqueued(number) && !ledger.kids.contains_key(number));
        self.record(waiting.map(|number| (member(*number), MemberOutcome::Cancelled)).collect()).await?;
        let mut by_queue: HashMap<&str, Vec<MemberId>> = HashMap::new();
        // The youngest first: workers take the oldest meanwhile.
        for number in live.iter().rev().filter(|number| is_enqueued(number)) {
            by_queue.entry(ledger.queue_of(*number)).or_default().push(member(*number));
        }
        for (queue, members) in by_queue {
            let mut running = Vec::new();
            for members in members.chunks(CHANGE_BATCH) {
                let Stopped { mut ended, active, gone } = self.delete(queue, members).await?;
                running.extend(active);
                let gone: Vec<_> = gone.into_iter().map(|member| (queue.to_owned(), member)).collect();
                let moved = self.moved(&gone).await?;
                for ((_, member), moved) in gone.into_iter().zip(moved) {
                    let Some((queue, _)) = moved else { continue };
                    let there = self.delete(&queue, &[member]).await?;
                    ended.extend(there.ended);
                    self.cancel_running(&queue, &there.active).await?;
                }
                self.record(ended.into_iter().map(|member| (member, MemberOutcome::Cancelled)).collect()).await?;
            }
            self.cancel_running(queue, &running).await?;
        }
        Ok(live.is_empty())
    }

    /// Deletes tasks of a flow that is cancelled. Those that have succeeded stay: the flow is told so.
    async fn delete(&self, queue: &str, members: &[MemberId]) -> Result<Stopped, Error> {
        let ids: Vec<String> = members.iter().map(MemberId::to_string).collect();
        let mut stopped = Stopped::default();
        let changes = self.broker.delete_tasks(queue, Seen::Uncompleted, &ids).await?;
        for (member, change) in members.iter().cloned().zip(changes) {
            match change {
                change if change.is_done() => stopped.ended.push(member),
                Change::Active => stopped.active.push(member),
                Change::Gone => stopped.gone.push(member),
                _ => {}
            }
        }
        Ok(stopped)
    }

    /// Cancels what runs for good: a server that was only asked to stop it would have it tried again.
    async fn cancel_running(&self, queue: &str, members: &[MemberId]) -> Result<(), Error> {
        for members in members.chunks(MAX_BATCH) {
            let ids: Vec<String> = members.iter().map(MemberId::to_string).collect();
            let ids: Vec<&str> = ids.iter().map(|id| &id[..]).collect();
            let (by, now_ms) = (format!("its batch {}", members[0].flow), self.clock.now_ms());
            self.broker.request_cancels(queue, &ids, &by, now_ms).await?;
            for id in ids {
                self.broker.cancel(id).await?;
            }
        }
        Ok(())
    }

    /// Has trees, of which there has to be one, looked at soon by the leader, if whoever works on them now goes away.
    pub(super) async fn look_soon(&self, roots: &[&str]) -> Result<(), Error> {
        self.broker.ask_for_duties(TREE, roots, self.clock.now_ms() + CLAIM_MS).await
    }
}

//! Tasks that are added to a batch: they get numbers, and then they are enqueued.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use queue_core::flow::{MemberId, MemberOutcome, MemberState, Part};
use queue_core::limits::MAX_BATCH;
use queue_core::options::Composed;
use queue_core::{RawTask, TaskInfo};

use super::batch::{Added, Batch, BatchError};
use super::chunk::{Chunk, Group, Tasks, by_queue, erased};
use super::keep::lock;
use crate::broker::Reserved;
use crate::client::EnqueueError;
use crate::script::Word;

/// Members are stored so many at a time: a client takes less memory with small chunks, and Redis is asked for numbers seldom all the same.
const STORED_AT_ONCE: usize = 1_000;

/// No id of a member whose batch was given no name is longer.
const ID_BYTES: usize = 48;

/// A task that has got its number.
struct Numbered {
    number: u32,
    /// As which it came.
    position: u64,
    /// Still without an id.
    task: Composed,
}

/// What became of tasks that were to be added.
#[derive(Default)]
struct Tally {
    added: Added,
    /// Numbers of those that are no members.
    void: Vec<u32>,
    /// The first that was refused.
    refused: Option<BatchError>,
}

/// Where tasks come from that nobody else adds.
struct Source<'a> {
    batch: Batch,
    /// What was gathered.
    groups: VecDeque<Group>,
    tasks: Tasks<'a>,
    /// Of the next one of `tasks`.
    position: u64,
    /// What went wrong first. Nothing more is added then.
    failed: Arc<Mutex<Option<BatchError>>>,
}

impl Source<'_> {
    /// The next ones, with their numbers.
    async fn next(&mut self) -> Option<Vec<Numbered>> {
        if lock(&self.failed).is_some() {
            return None;
        }
        let numbered = self.numbered().await;
        numbered.unwrap_or_else(|error| {
            *lock(&self.failed) = Some(error);
            None
        })
    }

    async fn numbered(&mut self) -> Result<Option<Vec<Numbered>>, BatchError> {
        while self.groups.is_empty() && !self.tasks.is_done() {
            let chunk = Chunk::gather(&self.batch.client, &mut self.tasks, self.position, false).await?;
            self.groups = by_queue((self.position..).zip(chunk.tasks)).into();
            self.position += self.groups.iter().map(|(_, tasks)| tasks.len() as u64).sum::<u64>();
        }
        let Some((queue, tasks)) = self.groups.pop_front() else { return Ok(None) };
        self.batch.number(&queue, tasks).await.map(Some)
    }
}

impl Batch {
    pub(super) async fn add_chunks(&self, first: Chunk, tasks: Tasks<'_>) -> Result<Added, BatchError> {
        match &self.key {
            Some(key) => self.add_again(key, first, tasks).await,
            None => self.add_once(first, tasks).await,
        }
    }

    /// Adds what nobody else adds. While members are stored, those behind them get their numbers.
    async fn add_once(&self, first: Chunk, tasks: Tasks<'_>) -> Result<Added, BatchError> {
        let (mut added, position) = (Added::default(), first.tasks.len() as u64);
        let mut taken = self.add_from((0..).zip(first.tasks), tasks, position, &mut added).await?;
        while !taken.is_empty() {
            taken = self.add_from(taken, erased(stream::empty::<RawTask>()), position, &mut added).await?;
        }
        Ok(added)
    }

    /// Adds these tasks, and those of a stream behind them, which begin at this position. Returns those whose ids are taken: a Redis that has
    /// gone back since, as in a failover, had given their numbers to others. They are to get new ones.
    async fn add_from(
        &self,
        first: impl IntoIterator<Item = (u64, Composed)>,
        tasks: Tasks<'_>,
        position: u64,
        added: &mut Added,
    ) -> Result<Vec<(u64, Composed)>, BatchError> {
        let (sent, failed) = (Arc::new(Mutex::new(VecDeque::new())), Arc::default());
        let groups = by_queue(first).into();
        let source = Source { batch: self.clone(), groups, tasks, position, failed: Arc::clone(&failed) };
        let numbered = stream::unfold(source, |mut source| async move {
            let numbered = source.next().await?;
            Some((stream::iter(numbered), source))
        });
        let (mut id, sending) = (self.member(0), Arc::clone(&sent));
        let members = numbered.flatten().map(move |numbered: Numbered| {
            let member = with_id(&mut id, numbered.number, numbered.task.clone());
            lock(&sending).push_back(numbered);
            member
        });
        let mut outcomes = self.client.enqueue_composed_stream(members, STORED_AT_ONCE).boxed();
        let (mut tally, mut taken) = (Tally::default(), Vec::new());
        loop {
            let next = match outcomes.next().now_or_never() {
                Some(next) => next,
                None => {
                    self.void(&std::mem::take(&mut tally.void)).await?;
                    outcomes.next().await
                }
            };
            let Some((outcome, of)) = next.and_then(|outcome| Some((outcome, lock(&sent).pop_front()?))) else { break };
            if self.count(&mut tally, of.number, of.position, outcome).await? {
                taken.push((of.position, of.task));
            }
            if let Some(refused) = tally.refused.take() {
                lock(&failed).get_or_insert(refused);
            }
        }
        self.void(&tally.void).await?;
        added.members += tally.added.members;
        added.duplicates += tally.added.duplicates;
        let failed = lock(&failed).take();
        failed.map_or(Ok(taken), Err)
    }

    /// Gives numbers to tasks of one queue.
    async fn number(&self, queue: &str, tasks: Vec<(u64, Composed)>) -> Result<Vec<Numbered>, BatchError> {
        self.client.flows().list_queue(queue, self.client.now_ns()).await?;
        let mut numbered = Vec::with_capacity(tasks.len());
        let mut tasks = tasks.into_iter();
        while tasks.len() > 0 {
            let reserved = self.reserve(tasks.len(), queue, "").await?;
            let numbers = self.given_out.note(self.id.number(), reserved.first..reserved.first + reserved.count);
            let more = numbers.into_iter().zip(tasks.by_ref());
            numbered.extend(more.map(|(number, (position, task))| Numbered { number, position, task }));
        }
        Ok(numbered)
    }

    /// Has numbers given out; with a key, those that were given out for it before.
    async fn reserve(&self, count: usize, queue: &str, key: &str) -> Result<Reserved, BatchError> {
        let behalf = self.behalf.as_ref().map(MemberId::behalf).unwrap_or_default();
        let place = (self.id.root(), self.id.number());
        let reserved = self.client.flows().broker.flow_reserve(place, count as u32, queue, key, &behalf).await?;
        match reserved.word {
            Word::Applied | Word::Same => Ok(reserved),
            Word::Closed => Err(BatchError::Closed { id: self.id.to_string() }),
            _ => Err(BatchError::Unknown { id: self.id.to_string() }),
        }
    }

    /// Adds what somebody adds again who has the same key: each chunk is found again by it.
    async fn add_again(&self, key: &str, first: Chunk, mut tasks: Tasks<'_>) -> Result<Added, BatchError> {
        let addition = self.next_addition();
        let (mut added, mut chunk, mut position, mut part) = (Added::default(), first, 0, 0);
        loop {
            let (is_last, behind) = (chunk.is_last, position + chunk.tasks.len() as u64);
            for (queue, tasks) in by_queue((position..).zip(chunk.tasks)) {
                let more = self.add_part(&queue, tasks, format!("{key}#{addition}.{part}")).await?;
                part += 1;
                added.members += more.members;
                added.duplicates += more.duplicates;
            }
            if is_last {
                return Ok(added);
            }
            position = behind;
            chunk = Chunk::gather(&self.client, &mut tasks, position, true).await?;
        }
    }

    fn next_addition(&self) -> u32 {
        let mut additions = lock(&self.additions);
        let next = additions.entry(self.id.number()).or_default();
        *next += 1;
        *next - 1
    }

    /// Adds members, all of one queue and no more than one reservation gives out.
    async fn add_part(&self, queue: &str, tasks: Vec<(u64, Composed)>, mut key: String) -> Result<Added, BatchError> {
        let flows = self.client.flows();
        flows.list_queue(queue, self.client.now_ns()).await?;
        let (mut rest, mut added) = (tasks, Added::default());
        while !rest.is_empty() {
            let reserved = self.reserve(rest.len(), queue, &key).await?;
            let numbers = reserved.first..reserved.first + reserved.count;
            let mut numbers = match reserved.word {
                Word::Applied => self.given_out.note(self.id.number(), numbers),
                _ => numbers.collect(),
            };
            // Known from an attempt before, the addition may have been of other length.
            let count = numbers.len().min(rest.len());
            let more = rest.split_off(count);
            if reserved.is_added {
                added.members += count as u64;
            } else {
                let mut surplus = numbers.split_off(count);
                let missing = numbers.into_iter().zip(rest);
                let mut missing: Vec<Numbered> =
                    missing.map(|(number, (position, task))| Numbered { number, position, task }).collect();
                if reserved.word == Word::Same {
                    let absent = self.absent(queue, &reserved).await?;
                    let now = if absent.is_empty() {
                        reserved.clone()
                    } else {
                        flows.record_lists(queue, Duration::ZERO).await?;
                        self.reserve(count, queue, &key).await?
                    };
                    surplus.retain(|number| absent.contains(number));
                    missing.retain(|Numbered { number, .. }| absent.contains(number) && now.may_be_unstored(*number));
                    let given_up = missing.iter().filter(|it| now.state(it.number) == Some(MemberState::Removed));
                    let again = given_up.map(|it| (self.member(it.number), MemberOutcome::Again));
                    flows.record(again.collect()).await?;
                }
                let known = (count - missing.len()) as u64;
                let now = self.enqueue(missing).await?;
                added.members += known + now.members;
                added.duplicates += now.duplicates;
                self.void(&surplus).await?;
                let (_, claimed) = flows.broker.flow_mark((self.id.root(), self.id.number()), "added", &key).await?;
                flows.carry_out(self.id.root(), self.born, claimed).await?;
            }
            rest = more;
            key += "+";
        }
        Ok(added)
    }

    /// The members of an addition that was begun before that have no task, and may never have had one. Those of them that have
    /// run told so before their tasks went: once that is recorded, what still counts as sent was never stored. What counts as removed
    /// was not stored within a minute, or somebody has deleted it before it was known to be added: it is added.
    async fn absent(&self, queue: &str, reserved: &Reserved) -> Result<HashSet<u32>, BatchError> {
        let flows = self.client.flows();
        let numbers = (reserved.first..).take(reserved.count as usize);
        let asked: Vec<u32> = numbers.filter(|number| reserved.may_be_unstored(*number)).collect();
        let mut absent = HashSet::new();
        for asked in asked.chunks(MAX_BATCH) {
            let ids: Vec<_> = asked.iter().map(|number| (queue.to_owned(), self.member(*number))).collect();
            let states = flows.states_of(&ids).await?;
            absent.extend(asked.iter().zip(states).filter(|(_, state)| state.is_none()).map(|(number, _)| *number));
        }
        Ok(absent)
    }

    /// Enqueues the members with which the batch was made, from this number on.
    pub(super) async fn enqueue_from(&self, first: u32, tasks: Vec<Composed>) -> Result<Added, BatchError> {
        let numbered = (first..).zip(0..).zip(tasks);
        self.enqueue(numbered.map(|((number, position), task)| Numbered { number, position, task }).collect()).await
    }

    /// Enqueues members. An id that is taken is taken by the member, if somebody else adds it, too.
    async fn enqueue(&self, tasks: Vec<Numbered>) -> Result<Added, BatchError> {
        let places: Vec<(u32, u64)> = tasks.iter().map(|it| (it.number, it.position)).collect();
        let mut id = self.member(0);
        let members = tasks.into_iter().map(|it| with_id(&mut id, it.number, it.task));
        let outcomes = self.client.enqueue_composed(members.collect()).await;
        let mut tally = Tally::default();
        for ((number, position), outcome) in places.into_iter().zip(outcomes) {
            tally.added.members += u64::from(self.count(&mut tally, number, position, outcome).await?);
        }
        self.void(&tally.void).await?;
        tally.refused.map_or(Ok(tally.added), Err)
    }

    /// Counts what became of a member; returns whether its id is taken.
    async fn count(
        &self,
        tally: &mut Tally,
        number: u32,
        position: u64,
        outcome: Result<TaskInfo, EnqueueError>,
    ) -> Result<bool, BatchError> {
        match outcome {
            Ok(_) => tally.added.members += 1,
            Err(EnqueueError::TaskIdConflict { .. }) => return Ok(true),
            Err(EnqueueError::DuplicateTask { holder, queue, .. }) => {
                // The member itself may hold the lock: a call whose answer was lost has stored it, or somebody who adds the same.
                let own = self.member(number).to_string();
                let is_stored = match holder {
                    Some(holder) => holder == own,
                    None => self.client.broker().state_of(&queue, &own).await?.is_some(),
                };
                if is_stored {
                    tally.added.members += 1;
                } else {
                    tally.added.duplicates += 1;
                    tally.void.push(number);
                }
            }
            // It may have been stored: then its end will be told, and else somebody finds that it is missing.
            Err(EnqueueError::Redis(error)) => return Err(error.into()),
            Err(source) => {
                tally.void.push(number);
                tally.refused.get_or_insert(BatchError::Refused { position, source });
            }
        }
        Ok(false)
    }

    /// Numbers that were given out are no members.
    async fn void(&self, numbers: &[u32]) -> Result<(), BatchError> {
        if numbers.is_empty() {
            return Ok(());
        }
        let outcomes = numbers.iter().map(|number| (self.member(*number), MemberOutcome::Void));
        Ok(self.client.flows().record(outcomes.collect()).await?)
    }

    fn member(&self, number: u32) -> MemberId {
        MemberId { flow: self.id.clone(), born: self.born, part: Part::Member(number, 1) }
    }
}

/// A task as the member with this number; `id` is that of any member.
fn with_id(id: &mut MemberId, number: u32, mut task: Composed) -> Composed {
    id.part = Part::Member(number, 1);
    task.message.id = String::with_capacity(ID_BYTES);
    // Writing to a string does not fail.
    let _ = write!(task.message.id, "{id}");
    task
}

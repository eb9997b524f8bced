//! A maker of batches: trees of up to three levels, whose members do what their plans say; each fifth is a chain.
//!
//! Which members a tree has follows from the seed, its maker and its number. The number of a task says where it belongs, so
//! that the check needs nothing but the ledger.

use std::sync::Arc;
use std::time::{Duration, Instant};

use queue_redis::{Batch, BatchBuilder, BatchError, Client};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use crate::ledger::{Book, Step};
use crate::name::{Name, Plan, QUEUES};
use crate::{Failure, Seat};

/// How long a batch is kept when it is over. Who makes one a second time has to come earlier.
pub(crate) const LINGER: Duration = Duration::from_secs(40);
/// How long a maker tries.
pub(crate) const TRIES: Duration = Duration::from_secs(25);
/// How many batches are being made at once.
const AT_ONCE: u32 = 30;

/// Places of a level.
const PLACES: u32 = 1_024;
/// From this place on stand members that others have added.
const FIRST_ADDED: u32 = 500;
/// How many members an adder adds.
const ADDED: u32 = 3;
/// The place of the callbacks.
const CALLBACK: u32 = PLACES - 1;
const LEVELS: u32 = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    seat: Seat,
    #[arg(long)]
    seed: u64,
    /// Trees per minute.
    #[arg(long)]
    rate: u32,
}

/// A tree of batches, each but the first a child of the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree {
    maker: u16,
    number: u32,
    /// The members of each batch.
    levels: Vec<Vec<Name>>,
}

/// Where a task of a tree belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) maker: u16,
    pub(crate) tree: u32,
    pub(crate) level: u32,
}

impl Place {
    pub(crate) fn of(name: Name) -> Self {
        let batch = name.number / PLACES;
        Self { maker: name.producer, tree: batch / LEVELS, level: batch % LEVELS }
    }

    /// The id of the tree.
    pub(crate) fn root(self) -> String {
        format!("t{}-{}", self.maker, self.tree)
    }

    /// Whether the tree is a chain, whose members wait for each other in the order of their numbers.
    pub(crate) fn is_chain(self) -> bool {
        self.tree % 5 == 4
    }

    fn first(self) -> u32 {
        (self.tree * LEVELS + self.level) * PLACES
    }

    pub(crate) fn callback(self, plan: Plan) -> Name {
        Name { plan, queue: (self.tree % 4) as u8, producer: self.maker, number: self.first() + CALLBACK }
    }
}

/// The members that this one adds to its batch.
pub(crate) fn added_by(adder: Name) -> Vec<Name> {
    let first = adder.number / PLACES * PLACES;
    let place = (FIRST_ADDED + adder.number % PLACES * ADDED).min(CALLBACK - ADDED);
    let names = (0..ADDED).map(|n| Name { plan: Plan::Plain, number: first + place + n, ..adder });
    names.collect()
}

/// Whether a task was added by an adder.
pub(crate) fn is_added(name: Name) -> bool {
    (FIRST_ADDED..CALLBACK).contains(&(name.number % PLACES))
}

impl Tree {
    pub(crate) fn draw(seed: u64, maker: u16, number: u32) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0xba7c4 ^ (u64::from(maker) << 32) ^ u64::from(number));
        let is_chain = Place { maker, tree: number, level: 0 }.is_chain();
        let levels = if is_chain { 1 } else { [1, 1, 1, 2, 2, 3][random.usize(0..6)] };
        let levels = (0..levels).map(|level| {
            let count = if random.u8(0..30) == 0 { random.u32(60..160) } else { random.u32(0..9) };
            let first = Place { maker, tree: number, level }.first();
            let member = |at| {
                let plan = match random.u8(0..100) {
                    // A node has no delay of its own.
                    72..78 if is_chain => Plan::Plain,
                    0..68 => Plan::Plain,
                    68..72 => Plan::Slow,
                    72..78 => Plan::Scheduled,
                    78..88 => Plan::Flaky,
                    88..98 => Plan::Adder,
                    98 => Plan::Doomed,
                    _ => Plan::Exhausted,
                };
                let queue = if random.bool() { random.u8(0..4) } else { random.u8(0..QUEUES.len() as u8) };
                Name { plan, queue, producer: maker, number: first + at }
            };
            (0..count).map(member).collect()
        });
        Self { maker, number, levels: levels.collect() }
    }

    fn place(&self, level: usize) -> Place {
        Place { maker: self.maker, tree: self.number, level: level as u32 }
    }

    fn callbacks(&self, plan: Plan) -> Vec<Name> {
        (0..self.levels.len()).map(|level| self.place(level).callback(plan)).collect()
    }

    /// Makes the batch of this level and those in it, or what is missing of them.
    async fn make(&self, level: usize, builder: BatchBuilder) -> Result<(), BatchError> {
        let callback = |plan| self.place(level).callback(plan).task_of_batch();
        let builder = builder
            .on_success(callback(Plan::AfterSuccess))
            .on_complete(callback(Plan::AfterComplete))
            .on_death(callback(Plan::AfterDeath))
            .on_settled(callback(Plan::AfterAll));
        let members = self.levels[level].iter().map(|name| name.task_of_batch());
        if level + 1 == self.levels.len() {
            return builder.add_all(members).await.map(drop);
        }
        let batch = builder.open().await?;
        batch.clone().keyed("members").add_all(members).await?;
        Box::pin(self.make(level + 1, batch.child().id("child"))).await?;
        batch.commit().await
    }

    async fn make_chain(&self, client: &Client) -> Result<(), BatchError> {
        let callback = |plan| self.place(0).callback(plan).task_of_batch();
        let mut chain = client
            .chain()
            .id(self.place(0).root())
            .linger(LINGER)
            .on_success(callback(Plan::AfterSuccess))
            .on_complete(callback(Plan::AfterComplete))
            .on_death(callback(Plan::AfterDeath))
            .on_settled(callback(Plan::AfterAll));
        for member in &self.levels[0] {
            chain = chain.then(member.task_of_batch());
        }
        chain.start().await.map(drop)
    }

    async fn make_until_it_is_there(&self, client: &Client, book: &Book) {
        let members: Vec<Name> = self.levels.concat();
        let callbacks = Plan::CALLBACKS.map(|plan| self.callbacks(plan)).concat();
        book.note(Step::Intent, &[&members[..], &callbacks].concat());
        let begun = Instant::now();
        loop {
            let made = if self.place(0).is_chain() {
                self.make_chain(client).await
            } else {
                self.make(0, client.batch().id(self.place(0).root()).linger(LINGER)).await
            };
            match made {
                Ok(()) => {
                    // Behind a node that dies, others are never enqueued.
                    let sure = if self.place(0).is_chain() { &members[..members.len().min(1)] } else { &members };
                    book.note(Step::Stored, sure);
                    // These come whatever becomes of the members.
                    book.note(Step::Stored, &self.callbacks(Plan::AfterComplete));
                    return book.note(Step::Stored, &self.callbacks(Plan::AfterAll));
                }
                Err(error) if begun.elapsed() > TRIES => {
                    eprintln!("batch {} is left as it is: {error}", self.place(0).root());
                    return book.note(Step::Unknown, &members);
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }
}

/// Runs until it is told to end.
pub(crate) async fn run(settings: Settings) -> Result<(), Failure> {
    let mut end = signal(SignalKind::terminate())?;
    let (book, client) = settings.seat.take()?;
    let mut ticks = tokio::time::interval(Duration::from_secs(60) / settings.rate.max(1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let room = Arc::new(Semaphore::new(AT_ONCE as usize));
    for number in 0.. {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = end.recv() => break,
        }
        let permit = room.clone().acquire_owned().await?;
        let tree = Tree::draw(settings.seed, settings.seat.process, number);
        let (client, book) = (client.clone(), book.clone());
        tokio::spawn(async move {
            tree.make_until_it_is_there(&client, &book).await;
            drop(permit);
        });
    }
    let _all = room.acquire_many(AT_ONCE).await?;
    Ok(())
}

/// What the handler of an adder does.
pub(crate) async fn add_members(client: &Client, book: &Book, adder: Name, task_id: &str) -> Result<(), BatchError> {
    let names = added_by(adder);
    book.note(Step::Intent, &names);
    let batch = Batch::of_task(client.clone(), task_id)?;
    batch.add_all(names.iter().map(|name| name.task_of_batch())).await?;
    book.note(Step::Stored, &names);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_task_says_where_it_belongs_and_is_its_own() {
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..300 {
            let tree = Tree::draw(1, 7, number);
            for (level, members) in tree.levels.iter().enumerate() {
                let place = tree.place(level);
                let callbacks = Plan::CALLBACKS.map(|plan| place.callback(plan));
                let added = members.iter().filter(|name| name.plan == Plan::Adder).flat_map(|name| added_by(*name));
                for name in added.chain(members.iter().copied()).chain(callbacks) {
                    assert_eq!((Place::of(name), Name::parse(&name.to_string())), (place, Some(name)));
                    assert!(seen.insert(name), "{name} twice");
                }
            }
        }
    }
}

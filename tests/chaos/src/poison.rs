//! Tasks that kill whoever runs them, and the deaths that they cause.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use queue_redis::Client;
use tokio::sync::Mutex;

use crate::Failure;
use crate::fleet::Fleet;
use crate::happened::Happened;
use crate::ledger::{Book, Step, now_ns};
use crate::name::{Name, Plan, QUEUES};
use crate::node::Redis;
use crate::plan::Kind;

/// Enqueues them, over a connection that no fault meets.
pub(crate) struct Poisoner {
    number: u16,
    book: Book,
    count: u32,
}

impl Poisoner {
    pub(crate) fn of(fleet: &mut Fleet) -> Result<Self, Failure> {
        let (number, book) = fleet.take_part()?;
        Ok(Self { number, book, count: 0 })
    }

    pub(crate) async fn enqueue(&mut self, redis: &Redis, queue: usize) -> Result<(), Failure> {
        let queue = u8::try_from(queue % QUEUES.len())?;
        let name = Name { plan: Plan::Poison, queue, producer: self.number, number: self.count };
        self.count += 1;
        let url = format!("redis://127.0.0.1:{}", redis.upstream.load(Ordering::SeqCst));
        let client = Client::connect(&url).await?;
        self.book.note(Step::Intent, &[name]);
        client.enqueue(name.task()).await?;
        self.book.note(Step::Stored, &[name]);
        Ok(())
    }
}

/// Notes who has died of poison, and starts others in their places, for ever.
pub(crate) async fn watch(fleet: Arc<Mutex<Fleet>>, happened: Arc<StdMutex<Vec<Happened>>>) {
    let mut from = now_ns();
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut fleet = fleet.lock().await;
        let to = now_ns();
        for (slot, process) in fleet.poisoned() {
            let died = Happened { kind: Kind::Poison, process: Some(process), from, to };
            happened.lock().unwrap_or_else(PoisonError::into_inner).push(died);
            if let Err(error) = fleet.replace(slot, process) {
                eprintln!("cannot start a process again: {error}");
            }
        }
        from = to;
    }
}

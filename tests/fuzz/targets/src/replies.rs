//! A Redis that answers anything at all: what reads its replies gives an error or a value, and neither panics nor
//! goes on for ever.

mod answers;
mod calls;

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use queue_admin::Inspector;
use queue_redis::{Client, Redis, broker::Broker};
use tokio::runtime::Runtime;

use self::answers::Answers;
use crate::words::Words;

/// A Redis without a store behind it, and what asks it. Connections are kept from one run to the next.
struct World {
    runtime: Runtime,
    answers: Arc<Answers>,
    broker: Broker,
    inspector: Inspector,
    client: Client,
}

impl World {
    fn new() -> Self {
        let answers = Arc::new(Answers::default());
        let redis = Redis::in_process("answers", answers.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap_or_else(|error| unreachable!("no runtime: {error}"));
        let (broker, inspector) = (Broker::new(redis.clone()), Inspector::new(redis.clone()));
        Self { runtime, answers, broker, inspector, client: Client::new(redis) }
    }
}

/// Makes one call, whose replies are made of the bytes.
///
/// # Panics
/// When a reply makes the call panic.
pub fn run(data: &[u8]) {
    static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| Mutex::new(World::new()));
    let world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    let mut words = Words::new(data);
    let (call, seed) = (words.byte(), words.byte());
    world.answers.set(words.rest());
    world.runtime.block_on(calls::make(&world, call, seed));
}

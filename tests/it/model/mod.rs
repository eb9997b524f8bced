//! The testing kit's store against Redis: the same random operations on both, and after each of them the same
//! answer and the same key space.
//!
//! `QUEUE_MODEL_CASES` says how many sequences (64), `QUEUE_MODEL_SEED` which ones (1). A failure is made as
//! small as possible, and names the operations that lead to it.

mod disturbance;
mod groups;
mod manage;
mod operation;
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use queue_testing::Store;

pub(crate) use self::operation::Operation;
pub(crate) use self::world::World;
use crate::support::Fixture;

/// Longest sequence of operations.
const LONGEST: usize = 100;

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}")))
}

#[test]
fn redis_and_the_store_answer_alike_and_end_up_alike() {
    let (cases, seed) = (setting("QUEUE_MODEL_CASES", 64), setting("QUEUE_MODEL_SEED", 1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let redis = runtime.block_on(Fixture::start());
    let config = Config { cases: u32::try_from(cases).unwrap(), failure_persistence: None, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let effects = RefCell::new(BTreeMap::new());
    let sequences = proptest::collection::vec(Operation::any(), 1..=LONGEST);
    let outcome = runner.run(&sequences, |operations| {
        runtime.block_on(compare(&redis, &operations, &effects)).map_err(TestCaseError::fail)
    });
    if let Err(failure) = outcome {
        panic!("QUEUE_MODEL_SEED={seed}: {failure}");
    }
    // A suite in which nothing ever happens would hold too.
    if cases >= 64 {
        let effects = effects.into_inner();
        let idle: Vec<&&str> = Operation::CHANGING.iter().filter(|name| !effects.contains_key(**name)).collect();
        assert!(idle.is_empty(), "these never changed anything: {idle:?}; the others: {effects:?}");
    }
}

/// Does the same on both; says where they part.
async fn compare(
    redis: &Fixture,
    operations: &[Operation],
    effects: &RefCell<BTreeMap<&'static str, usize>>,
) -> Result<(), String> {
    redis.run("FLUSHALL").await;
    let store = Fixture::in_process(Store::new()).await;
    let (mut real, mut ours) = (World::new(redis), World::new(&store));
    let mut before = store.keyspace().await.without_relative_ttls();
    for (step, operation) in operations.iter().enumerate() {
        let (expected, found) = (real.apply(operation).await, ours.apply(operation).await);
        let parted = || format!("at step {step}, {operation:?}");
        if expected != found {
            return Err(format!("{}: Redis answers\n{expected}\nthe store\n{found}", parted()));
        }
        let wanted = redis.keyspace().await.without_relative_ttls();
        let after = store.keyspace().await.without_relative_ttls();
        if wanted != after {
            return Err(format!("{}: from Redis to the store\n{}", parted(), after.changes_since(&wanted)));
        }
        if after != before {
            *effects.borrow_mut().entry(operation.name()).or_default() += 1;
        }
        before = after;
    }
    Ok(())
}

/// Only to be sure that a seed means the same everywhere.
#[test]
fn a_seed_gives_the_same_sequences_again() {
    let first = |seed: u8| {
        use proptest::strategy::{Strategy as _, ValueTree as _};
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let tree = proptest::collection::vec(Operation::any(), LONGEST).new_tree(&mut runner).unwrap();
        format!("{:?}", tree.current())
    };
    assert_eq!(first(7), first(7));
    assert_ne!(first(7), first(8));
}

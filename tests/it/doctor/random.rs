//! Random work, then random damage: after the repair everything is in order, and no task that can be read is lost.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use queue_core::{TaskMessage, TaskState};
use queue_testing::Store;

use super::{fix, problems};
use crate::model::{Operation, World, setting};
use crate::support::{Fixture, NOW, QUEUE};

const HOLDERS: [&str; 11] =
    ["pending", "active", "lease", "scheduled", "retry", "archived", "completed", "g:g0", "g:g1", "g:g0:s", "g:g1:s"];
const KEYS: [&str; 8] =
    ["groups", "aggregation_sets", "processed", "failed", "paused", "x:aggregated", "t:1", "unique:kind-0:x"];

/// Something that breaks the order.
#[derive(Debug, Clone)]
enum Damage {
    DeleteTask(u8),
    DeleteHolder(usize),
    ReplaceKey(usize),
    ReplaceHolder(usize),
    Spoil(u8),
    Rename(u8, u8),
    SetField(u8, &'static str, &'static str),
    DropField(u8, &'static str),
    Expire(u8),
    List { id: u8, holder: usize, score: i64 },
    Unlist { id: u8, holder: usize },
    OddScore { id: u8, holder: usize },
    ForgetGroups,
    ForgetQueue,
    LoseSets,
    StageSet { group: u8 },
    Lock(u8),
}

fn damage() -> impl Strategy<Value = Damage> {
    let (id, holder) = (|| 0..12_u8, || 0..HOLDERS.len());
    let values = vec![
        ("state", "pending"),
        ("state", "active"),
        ("state", "archived"),
        ("state", "aggregating"),
        ("state", "nonsense"),
        ("group", "g0"),
        ("group", "elsewhere"),
        ("unique_key", "asynq:{q}:unique:x"),
    ];
    prop_oneof![
        1 => id().prop_map(Damage::DeleteTask),
        1 => holder().prop_map(Damage::DeleteHolder),
        1 => (0..KEYS.len()).prop_map(Damage::ReplaceKey),
        1 => holder().prop_map(Damage::ReplaceHolder),
        1 => id().prop_map(Damage::Spoil),
        1 => (id(), id()).prop_map(|(a, b)| Damage::Rename(a, b)),
        4 => (id(), prop::sample::select(values)).prop_map(|(id, (field, value))| Damage::SetField(id, field, value)),
        2 => (id(), prop::sample::select(vec!["state", "group", "msg"])).prop_map(|(id, f)| Damage::DropField(id, f)),
        1 => id().prop_map(Damage::Expire),
        8 => (id(), holder(), -100..100_i64).prop_map(|(id, holder, score)| Damage::List { id, holder, score }),
        8 => (id(), holder()).prop_map(|(id, holder)| Damage::Unlist { id, holder }),
        2 => (id(), holder()).prop_map(|(id, holder)| Damage::OddScore { id, holder }),
        1 => Just(Damage::ForgetGroups),
        1 => Just(Damage::ForgetQueue),
        1 => Just(Damage::LoseSets),
        1 => (0..2_u8).prop_map(|group| Damage::StageSet { group }),
        2 => id().prop_map(Damage::Lock),
    ]
}

impl Damage {
    async fn apply(&self, fixture: &Fixture) {
        let key = |name: &str| format!("asynq:{{{QUEUE}}}:{name}");
        let task = |id: &u8| key(&format!("t:{id}"));
        let kind = async |key: &str| fixture.cmd::<String>(&["TYPE", key]).await;
        let run = async |words: String| fixture.run(&words).await;
        match self {
            Self::DeleteTask(id) => run(format!("DEL {}", task(id))).await,
            Self::DeleteHolder(at) => run(format!("DEL {}", key(HOLDERS[*at]))).await,
            Self::ReplaceKey(at) | Self::ReplaceHolder(at) => {
                let name = if matches!(self, Self::ReplaceKey(_)) { KEYS[*at] } else { HOLDERS[*at] };
                run(format!("DEL {}", key(name))).await;
                run(format!("XADD {} 1-1 field stray", key(name))).await;
            }
            Self::Spoil(id) if kind(&task(id)).await == "hash" => run(format!("HSET {} msg spoiled", task(id))).await,
            Self::Rename(a, b) if kind(&task(a)).await == "hash" => {
                run(format!("RENAME {} {}", task(a), task(b))).await
            }
            Self::SetField(id, field, value) if kind(&task(id)).await == "hash" => {
                run(format!("HSET {} {field} {value}", task(id))).await;
            }
            Self::DropField(id, field) if kind(&task(id)).await == "hash" => {
                run(format!("HDEL {} {field}", task(id))).await;
            }
            Self::Expire(id) => run(format!("EXPIRE {} 1000", task(id))).await,
            Self::List { id, holder, score } => {
                let key = key(HOLDERS[*holder]);
                match (kind(&key).await.as_str(), HOLDERS[*holder]) {
                    ("none" | "list", "pending" | "active") => run(format!("LPUSH {key} {id}")).await,
                    ("none" | "zset", name) if !["pending", "active"].contains(&name) => {
                        run(format!("ZADD {key} {} {id}", NOW + score)).await;
                    }
                    _ => {}
                }
            }
            Self::Unlist { id, holder } => {
                let key = key(HOLDERS[*holder]);
                match kind(&key).await.as_str() {
                    "list" => run(format!("LREM {key} 0 {id}")).await,
                    "zset" => run(format!("ZREM {key} {id}")).await,
                    _ => {}
                }
            }
            Self::OddScore { id, holder } => {
                let key = key(HOLDERS[*holder]);
                if kind(&key).await == "zset" {
                    run(format!("ZADD {key} XX {NOW}.5 {id}")).await;
                }
            }
            Self::ForgetGroups => run(format!("DEL {}", key("groups"))).await,
            Self::ForgetQueue => run(format!("SREM asynq:queues {QUEUE}")).await,
            Self::LoseSets => run(format!("DEL {}", key("aggregation_sets"))).await,
            Self::StageSet { group } => {
                let (group, sets) = (key(&format!("g:g{group}")), key("aggregation_sets"));
                if kind(&group).await == "zset" && ["none", "zset"].contains(&&*kind(&sets).await) {
                    run(format!("RENAME {group} {group}:s")).await;
                    run(format!("ZADD {sets} {} {group}:s", NOW - 500)).await;
                }
            }
            Self::Lock(id) => run(format!("SET {} {id} EX 1000000", key(&format!("unique:kind-0:{id}")))).await,
            _ => {}
        }
    }
}

/// Everything in the store that concerns ids: where each stands, and what each hash says.
#[derive(Debug, Default)]
struct Picture {
    places: BTreeMap<String, Vec<String>>,
    leases: BTreeSet<String>,
    /// Id to state, group, and whether the message can be read and is its own.
    tasks: BTreeMap<String, (String, String, bool)>,
    staged: BTreeSet<String>,
    groups: BTreeSet<String>,
}

impl Picture {
    /// Looks at all keys by itself, without the code that is tested.
    async fn of(fixture: &Fixture) -> Self {
        let prefix = format!("asynq:{{{QUEUE}}}:");
        let mut picture = Self::default();
        for key in fixture.cmd::<Vec<String>>(&["KEYS", "asynq:*"]).await {
            let Some(name) = key.strip_prefix(&prefix) else { continue };
            let kind: String = fixture.cmd(&["TYPE", &key]).await;
            let ids: Vec<String> = match kind.as_str() {
                "list" => fixture.cmd(&["LRANGE", &key, "0", "-1"]).await,
                "zset" => fixture.cmd(&["ZRANGE", &key, "0", "-1"]).await,
                "set" => fixture.cmd(&["SMEMBERS", &key]).await,
                _ => Vec::new(),
            };
            if let Some(id) = name.strip_prefix("t:").filter(|_| kind == "hash") {
                type Fields = (Option<Vec<u8>>, Option<String>, Option<String>);
                let (msg, state, group): Fields = fixture.cmd(&["HMGET", &key, "msg", "state", "group"]).await;
                let message = msg.and_then(|raw| TaskMessage::from_bytes(raw.into()).ok());
                let is_own = message.is_some_and(|message| message.id == id && message.queue == QUEUE);
                let task = (state.unwrap_or_default(), group.unwrap_or_default(), is_own);
                picture.tasks.insert(id.to_owned(), task);
            }
            match name {
                "lease" => picture.leases.extend(ids),
                "aggregation_sets" => picture.staged.extend(ids),
                "groups" => picture.groups.extend(ids),
                _ if name.starts_with("g:") || name.parse::<TaskState>().is_ok() => {
                    for id in ids {
                        picture.places.entry(id).or_default().push(name.to_owned());
                    }
                }
                _ => {}
            }
        }
        picture
    }

    /// What breaks an invariant.
    fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (id, places) in &self.places {
            let Some((state, group, is_own)) = self.tasks.get(id) else {
                broken.push(format!("{id} is in {places:?} and has no task"));
                continue;
            };
            let expected = places.len() == 1
                && match places[0].strip_prefix("g:") {
                    Some(name) => {
                        let staged = self.staged.contains(&format!("asynq:{{{QUEUE}}}:g:{name}"));
                        let name = if staged { name.rsplit_once(':').unwrap().0 } else { name };
                        state == "aggregating" && name == group && (staged || self.groups.contains(group))
                    }
                    None => *state == places[0],
                };
            if !expected || (!is_own && state != "archived") {
                broken.push(format!("{id} is {state} of group {group:?}, in {places:?}, readable: {is_own}"));
            }
            if (state == "active") != self.leases.contains(id) {
                broken.push(format!("{id} is {state}, and its lease: {}", self.leases.contains(id)));
            }
        }
        broken.extend(self.tasks.keys().filter(|id| !self.places.contains_key(*id)).map(|id| format!("{id} is lost")));
        broken
            .extend(self.leases.iter().filter(|id| !self.places.contains_key(*id)).map(|id| format!("lease of {id}")));
        broken
    }

    fn readable(&self) -> BTreeSet<&String> {
        self.tasks.iter().filter(|(_, (.., is_own))| *is_own).map(|(id, _)| id).collect()
    }
}

async fn mend_all(operations: &[Operation], damages: &[Damage], harmed: &std::cell::Cell<u32>) -> Result<(), String> {
    let fixture = Fixture::in_process(Store::new()).await;
    let mut world = World::new(&fixture);
    // A task from before the clock was set back looks like one that came while the doctor looked: it leaves it for the next time.
    let is_back = |operation: &&Operation| matches!(operation, Operation::Wait { secs } if *secs < 0);
    for operation in operations.iter().filter(|operation| !is_back(operation)) {
        world.apply(operation).await;
    }
    for damage in damages {
        damage.apply(&fixture).await;
    }
    let before = Picture::of(&fixture).await;
    harmed.set(harmed.get() + u32::from(!before.broken().is_empty()));
    let inspector = world.inspector();
    fix(&inspector).await;
    let after = Picture::of(&fixture).await;
    let told = || format!("before:\n{before:?}\nafter:\n{after:?}");
    let left = problems(&inspector).await;
    if !left.is_empty() {
        return Err(format!("left after the repair: {left:?}\n{}", told()));
    }
    let broken = after.broken();
    if !broken.is_empty() {
        return Err(format!("broken after the repair: {broken:?}\n{}", told()));
    }
    let lost: Vec<_> = before.readable().difference(&after.readable()).map(|id| (*id).clone()).collect();
    if !lost.is_empty() {
        return Err(format!("lost by the repair: {lost:?}\n{}", told()));
    }
    Ok(())
}

#[test]
fn random_damage_is_mended_and_no_readable_task_lost() {
    let (cases, seed) = (setting("QUEUE_MODEL_CASES", 64), setting("QUEUE_MODEL_SEED", 1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases: u32::try_from(cases).unwrap(), failure_persistence: None, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let harmed = std::cell::Cell::new(0);
    let sequences = (prop::collection::vec(Operation::any(), 1..=60), prop::collection::vec(damage(), 1..=30));
    let outcome = runner.run(&sequences, |(operations, damages)| {
        runtime.block_on(mend_all(&operations, &damages, &harmed)).map_err(TestCaseError::fail)
    });
    if let Err(failure) = outcome {
        panic!("QUEUE_MODEL_SEED={seed}: {failure}");
    }
    // Without damage it would prove nothing.
    assert!(u64::from(harmed.get()) * 2 > cases, "only {} of {cases} were damaged", harmed.get());
}

//! Random takes, ends, crashes and doings of others, and after each step what must always hold.
//!
//! `QUEUE_LANES_SEEDS` says how many sequences (24).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use fastrand::Rng;
use queue_core::TaskState;
use queue_core::limit::{Breaker, Limit, LimitKey};
use queue_redis::broker::{Delivery, Freed, More};
use queue_testing::Store;

use super::of;
use crate::model::setting;
use crate::support::{Fixture, NOW_NS, QUEUE, report};

const TASKS: usize = 40;
const CAP: usize = 2;

#[tokio::test]
async fn caps_hold_and_nothing_is_lost_on_redis_and_on_the_store() {
    for seed in 0..setting("QUEUE_LANES_SEEDS", 24) {
        let redis = Fixture::start().await;
        run(&redis, seed).await;
        let store = Fixture::in_process(Store::new()).await;
        run(&store, seed).await;
    }
}

async fn run(fixture: &Fixture, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let is_strict = rng.bool();
    let mut is_fair = false;
    let mut cap = if is_strict { 1 } else { CAP };
    let limit = Limit::new("tenant", LimitKey::header("tenant"));
    fixture.limit(if is_strict { limit.clone().strict_order() } else { limit.clone().concurrency(CAP as u32) }).await;
    if !is_strict && rng.bool() {
        // Keys that take turns, with a cap or without one.
        (is_fair, cap) = (true, if rng.bool() { CAP } else { TASKS });
        fixture.limit(if cap == CAP { limit.fair().concurrency(CAP as u32) } else { limit.fair() }).await;
    }
    // All tasks are of one type and of one queue.
    let mut of_all = usize::MAX;
    if rng.bool() {
        fixture.limit(Limit::new("all", LimitKey::Queue).concurrency(6)).await;
        of_all = 6;
    }
    if rng.bool() {
        fixture.limit(Limit::new("type", LimitKey::Type).concurrency(5)).await;
        of_all = 5;
    }
    // How tasks end may shut the lane of a tenant for a moment; then one at a time starts there.
    let has_breaker = rng.u8(..3) == 0;
    if has_breaker {
        let moment = Duration::from_millis(1);
        let breaker = Breaker::failures(50).of(3).within(Duration::from_secs(3_600)).rest(moment, 2 * moment);
        fixture.limit(Limit::new("health", LimitKey::header("tenant")).breaker(breaker)).await;
    }
    let tenants: HashMap<String, String> =
        (0..TASKS).map(|n| (format!("{n:02}"), format!("t{}", rng.usize(..4)))).collect();
    let mut left: BTreeSet<String> = tenants.keys().cloned().collect();
    fixture.put(left.iter().map(|id| of(&tenants[id], id))).await;
    let mut running: Vec<Delivery> = Vec::new();
    for step in 0.. {
        assert!(step < 5_000, "seed {seed}: {left:?} never ended");
        match rng.u8(..12) {
            0..4 => {
                let taken = fixture.take_some(rng.usize(1..8)).await.0;
                for task in taken {
                    assert!(left.contains(&task.run.id), "seed {seed}: {task:?}");
                    let first = first_of(&tenants[&task.run.id], &tenants, &left);
                    assert!(!is_strict || *first == task.run.id, "seed {seed}: {} before {first}", task.run.id);
                    running.push(task);
                }
            }
            4..8 if !running.is_empty() => {
                let run = running.swap_remove(rng.usize(..running.len()));
                left.remove(&run.run.id);
                fixture.end_in_silence(std::slice::from_ref(&run)).await;
                if rng.u8(..4) > 0 {
                    let freed = [Freed { run: run.run, too_many: None, went_well: has_breaker.then(|| rng.bool()) }];
                    fixture.broker.free_slots(QUEUE, &freed).await.unwrap();
                }
            }
            8 if !running.is_empty() => {
                // It fails; or its worker dies, and the task is recovered; or it gives it back.
                let run = running.swap_remove(rng.usize(..running.len()));
                if rng.bool() {
                    fixture.fail(&run).await;
                    continue;
                }
                fixture.broker.requeue(&report(&run), NOW_NS).await.unwrap();
                if rng.bool() {
                    let freed = [Freed { run: run.run, too_many: None, went_well: None }];
                    fixture.broker.free_slots(QUEUE, &freed).await.unwrap();
                }
            }
            9 => {
                let mut waiting: Vec<String> = fixture.cmd(&["ZRANGE", "asynq:{q}:scheduled", "0", "-1"]).await;
                waiting.extend(retried(fixture).await);
                let Some(id) = rng.choice(&waiting) else { continue };
                match rng.u8(..4) {
                    0 => fixture.inspector().run_task(QUEUE, id).await.unwrap(),
                    1 => {
                        fixture.run(&format!("ZADD asynq:{{q}}:scheduled XX 1 {id}")).await;
                        fixture.broker.forward(QUEUE, TaskState::Scheduled, 2_000_000_000, 0).await.unwrap();
                        fixture.forward_retries().await;
                    }
                    2 => {
                        fixture.inspector().delete_task(QUEUE, id).await.unwrap();
                        left.remove(id);
                    }
                    _ => {
                        fixture.inspector().archive_task(QUEUE, id).await.unwrap();
                        fixture.inspector().run_task(QUEUE, id).await.unwrap();
                    }
                }
            }
            10 => {
                // A slot that was freed in silence is found when its lane is full, so a second look may find another.
                while take_all(fixture, &mut running).await {}
                let mut could_run = left.clone();
                let retried = retried(fixture).await;
                could_run.retain(|id| !retried.contains(id));
                could_run.retain(|id| !is_strict || first_of(&tenants[id], &tenants, &left) == id);
                if !has_breaker {
                    assert_no_room_is_left(seed, &tenants, &could_run, &running, (cap, of_all));
                }
            }
            _ if is_fair => drop(fixture.broker.park_unsorted(&QUEUE.into()).await.unwrap()),
            _ => tokio::time::sleep(Duration::ZERO).await,
        }
        check(fixture, seed, &tenants, &left, &running, cap).await;
        if left.is_empty() {
            break;
        }
    }
    // What is left of the tasks that others have deleted goes with the next looks.
    fixture.look_again().await;
    fixture.dequeue(10).await;
    assert_eq!(
        fixture.cmd::<usize>(&["EXISTS", "asynq:{q}:scheduled", "asynq:{q}:pending", "asynq:{q}:active"]).await,
        0
    );
}

/// The oldest task of a tenant that is not over.
fn first_of<'a>(tenant: &str, tenants: &HashMap<String, String>, left: &'a BTreeSet<String>) -> &'a String {
    left.iter().find(|id| tenants[*id] == tenant).unwrap()
}

async fn retried(fixture: &Fixture) -> Vec<String> {
    fixture.cmd(&["ZRANGE", "asynq:{q}:retry", "0", "-1"]).await
}

/// Each task is in one place; who is parked is in a lane that is looked at; no cap is exceeded.
async fn check(
    fixture: &Fixture,
    seed: u64,
    tenants: &HashMap<String, String>,
    left: &BTreeSet<String>,
    running: &[Delivery],
    cap: usize,
) {
    let mut places: BTreeMap<String, &str> = BTreeMap::new();
    let all = [("pending", "LRANGE"), ("active", "LRANGE"), ("scheduled", "ZRANGE"), ("retry", "ZRANGE")];
    for (state, command) in all {
        let ids: Vec<String> = fixture.cmd(&[command, &format!("asynq:{{q}}:{state}"), "0", "-1"]).await;
        for id in ids {
            assert_eq!(fixture.state(&id).await, state, "seed {seed}: {id}");
            assert_eq!(places.insert(id.clone(), state), None, "seed {seed}: {id} is in two places");
        }
    }
    assert_eq!(&places.keys().cloned().collect::<BTreeSet<_>>(), left, "seed {seed}");
    let waiting: BTreeSet<String> =
        fixture.cmd::<Vec<String>>(&["ZRANGE", "asynq:{q}:x:waiting", "0", "-1"]).await.into_iter().collect();
    let due: BTreeSet<String> =
        fixture.cmd::<Vec<String>>(&["ZRANGE", "asynq:{q}:x:due", "0", "-1"]).await.into_iter().collect();
    for (id, _) in places.iter().filter(|(_, state)| **state == "scheduled") {
        let waits: String = fixture.cmd(&["HGET", &format!("asynq:{{q}}:t:{id}"), "x_waits"]).await;
        assert!(waiting.contains(&format!("{waits} {id}")), "seed {seed}: {id} waits in {waits:?}, of {waiting:?}");
        assert!(due.contains(waits.split(' ').next().unwrap()), "seed {seed}: {waits:?} is not due, {due:?}");
    }
    let mut of_tenant: BTreeMap<&str, usize> = BTreeMap::new();
    for task in running {
        *of_tenant.entry(&tenants[&task.run.id]).or_default() += 1;
    }
    assert!(of_tenant.values().all(|count| *count <= cap), "seed {seed}: {of_tenant:?}");
}

/// Looks at all lanes, and takes until there is nothing more; whether there was something.
async fn take_all(fixture: &Fixture, running: &mut Vec<Delivery>) -> bool {
    fixture.look_again().await;
    let before = running.len();
    loop {
        let (taken, more) = fixture.take_some(10).await;
        let is_over = taken.is_empty() && more != More::Now;
        running.extend(taken);
        if is_over {
            return running.len() > before;
        }
    }
}

/// After all lanes were looked at, nobody waits beside a slot that is free.
fn assert_no_room_is_left(
    seed: u64,
    tenants: &HashMap<String, String>,
    could_run: &BTreeSet<String>,
    running: &[Delivery],
    (cap, of_all): (usize, usize),
) {
    let is_of = |task: &Delivery, tenant: &str| tenants[&task.run.id] == tenant;
    for id in could_run.iter().filter(|id| !running.iter().any(|task| task.run.id == **id)) {
        let of_tenant = running.iter().filter(|task| is_of(task, &tenants[id])).count();
        let has_room = of_tenant < cap && running.len() < of_all;
        assert!(!has_room, "seed {seed}: {id} could run beside {of_tenant} of {:?}", tenants[id]);
    }
}

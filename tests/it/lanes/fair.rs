//! Keys that take turns: who is served, how often, and that whatever happens in between, nothing is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use queue_core::TaskState;
use queue_core::limit::{LaneChange, Limit, LimitKey};
use queue_redis::broker::More;
use queue_testing::Store;
use queue_worker::{Job, Router};

use super::{ids, of};
use crate::support::{Events, Fixture, NOW_NS, QUEUE, eventually, job};

fn fair() -> Limit {
    Limit::new("tenant", LimitKey::header("tenant")).fair()
}

/// So many tasks of a tenant, in their order.
fn some_of(tenant: &str, count: usize) -> Vec<queue_core::RawTask> {
    (0..count).map(|n| of(tenant, &format!("{tenant}-{n:05}"))).collect()
}

/// How many of each tenant, by the ids of `some_of`.
fn by_tenant(ids: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for id in ids {
        *counts.entry(id.split_once('-').unwrap().0).or_default() += 1;
    }
    counts
}

/// 1 where all shares are equal.
fn jain(shares: &[f64]) -> f64 {
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    shares.iter().sum::<f64>().powi(2) / (shares.len() as f64 * squares)
}

impl Fixture {
    async fn weigh(&self, tenant: &str, weight: u32) {
        let mut change = LaneChange::default();
        change.weight = Some(weight);
        self.inspector().change_lane(QUEUE, "tenant", tenant, Some(&change)).await.unwrap();
    }

    /// What a server does beside its takes; how many calls it took.
    async fn sort(&self) -> usize {
        let mut calls = 1;
        while self.broker.park_unsorted(&QUEUE.into()).await.unwrap() {
            calls += 1;
        }
        calls
    }

    /// Takes so many, one call after another, each of which ends before the next one.
    async fn take_and_end(&self, count: usize, of_a_call: usize) -> Vec<String> {
        let mut order = Vec::new();
        while order.len() < count {
            let (taken, more) = self.take_some(of_a_call.min(count - order.len())).await;
            assert!(!taken.is_empty() || more == More::Now, "{} of {count}", order.len());
            order.extend(ids(&taken));
            self.end(&taken).await;
        }
        order
    }

    async fn exist(&self, kinds: &[&str]) -> usize {
        let keys = kinds.iter().map(|kind| format!("asynq:{{q}}:{kind}"));
        self.cmd(&[vec!["EXISTS".to_owned()], keys.collect()].concat()).await
    }
}

/// Ten tenants, of which three weigh 100 and three 10, all with more than can be taken.
async fn shares_follow_weights(fixture: &Fixture, of_a_call: usize) {
    fixture.limit(fair()).await;
    let weights: Vec<(String, u32)> = (0..10).map(|n| (format!("t{n}"), [1, 10, 100][n % 3])).collect();
    let sum: u32 = weights.iter().map(|(_, weight)| weight).sum();
    let rounds = 4;
    for (tenant, weight) in &weights {
        fixture.weigh(tenant, *weight).await;
        // One after another: as they came, the first would get all.
        fixture.put(some_of(tenant, *weight as usize * (rounds + 2))).await;
    }
    fixture.sort().await;
    let order = fixture.take_and_end(rounds * sum as usize, of_a_call).await;
    let counts = by_tenant(&order);
    let shares: Vec<f64> =
        weights.iter().map(|(tenant, weight)| counts[&**tenant] as f64 / f64::from(*weight)).collect();
    let index = jain(&shares);
    assert!(index >= 0.98, "{index} of {counts:?}");
    for (tenant, weight) in &weights {
        let (got, due) = (counts[&**tenant], *weight as usize * rounds);
        assert!(got.abs_diff(due) <= 1 + due / 50, "{got} of {tenant}, and not {due}");
        let own: Vec<&String> = order.iter().filter(|id| id.starts_with(&format!("{tenant}-"))).collect();
        assert!(own.is_sorted(), "those of a key come in their order: {own:?}");
    }
}

#[tokio::test]
async fn tenants_are_served_in_proportion_to_their_weights() {
    for of_a_call in [1, 10] {
        shares_follow_weights(&Fixture::start().await, of_a_call).await;
        shares_follow_weights(&Fixture::in_process(Store::new()).await, of_a_call).await;
    }
}

#[tokio::test]
async fn who_comes_behind_ten_thousand_of_another_is_served_at_once() {
    let fixture = Fixture::start().await;
    fixture.limit(fair()).await;
    fixture.put(some_of("big", 10_000)).await;
    fixture.put(some_of("small", 3)).await;
    // Without a look at what is pending, ten calls would not have come so far.
    assert!(fixture.take_and_end(100, 10).await.iter().all(|id| id.starts_with("big")));
    let calls = fixture.sort().await;
    assert!((450..=500).contains(&calls), "{calls}");
    let counts = by_tenant(&fixture.take_and_end(10, 10).await).get("small").copied();
    assert_eq!(counts, Some(3), "each has its turn after one of the other");
    // What comes now is seen by the first call.
    fixture.put(some_of("late", 1)).await;
    assert!(fixture.take_and_end(2, 1).await.contains(&"late-00000".to_owned()));
}

#[tokio::test]
async fn a_lone_tenant_gets_everything_and_leaves_nothing_behind() {
    let fixture = Fixture::start().await;
    fixture.limit(fair()).await;
    fixture.weigh("small", 1).await;
    // Where all that waits is taken, nothing is parked.
    fixture.put(some_of("small", 8)).await;
    let (taken, more) = fixture.take_some(10).await;
    assert_eq!((taken.len(), more), (8, More::Nothing));
    assert_eq!(fixture.exist(&["x:waiting", "x:due", "x:slots", "scheduled"]).await, 0);
    fixture.end(&taken).await;
    fixture.put(some_of("small", 120)).await;
    let order = fixture.take_and_end(120, 10).await;
    assert!(order.is_sorted(), "{order:?}");
    assert!(fixture.take_ids(10).await.is_empty());
    assert_eq!(fixture.exist(&["pending", "active", "scheduled", "x:waiting", "x:due", "x:slots"]).await, 0);
}

/// Who sends one task at a time gets no more than its weight allows: its turn is remembered while others wait.
#[tokio::test]
async fn who_comes_again_and_again_with_one_task_gets_its_share() {
    let fixture = Fixture::start().await;
    fixture.limit(fair()).await;
    fixture.weigh("big", 20).await;
    fixture.put(some_of("big", 400)).await;
    fixture.sort().await;
    let mut of_small = 0;
    for n in 0..210 {
        let waits: bool = fixture.exist(&[&format!("t:small-{of_small:05}")]).await == 1;
        if !waits {
            fixture.put([of("small", &format!("small-{of_small:05}"))]).await;
        }
        let id = fixture.take_and_end(1, 1).await.remove(0);
        of_small += usize::from(id.starts_with("small"));
        assert!(of_small <= 1 + n / 20, "{of_small} of {n}");
    }
    assert!((9..=11).contains(&of_small), "{of_small} of 210, and one of 21 is its share");
}

#[tokio::test]
async fn tasks_without_the_key_are_one_key_together() {
    let fixture = Fixture::start().await;
    fixture.limit(fair()).await;
    fixture.weigh("", 3).await;
    fixture.put((0..30).map(|n| job(&format!("none-{n:02}")))).await;
    fixture.put(some_of("a", 30)).await;
    fixture.sort().await;
    let order = fixture.take_and_end(20, 10).await;
    assert_eq!(by_tenant(&order), [("a", 5), ("none", 15)].into());
}

/// A call that parks is one step: a server that dies after it leaves what another one, or Go, goes on with.
#[tokio::test]
async fn what_was_parked_by_a_server_that_died_is_found_by_whoever_comes() {
    let fixture = Fixture::start().await;
    fixture.limit(fair().fallback(Duration::from_secs(60))).await;
    fixture.put([some_of("a", 60), some_of("b", 60)].concat()).await;
    assert!(fixture.broker.park_unsorted(&QUEUE.into()).await.unwrap());
    assert_eq!(
        (fixture.state("a-00000").await, fixture.state("b-00059").await),
        ("scheduled".into(), "pending".into())
    );
    // One dies with what it has taken, which comes back as pending.
    let (taken, _) = fixture.take_some(10).await;
    assert_eq!(fixture.broker.requeue_run(QUEUE, "run-1", taken[0].run.leased_until(), NOW_NS).await.unwrap(), 10);
    // The time of one is over, and somebody's forwarder makes it pending.
    fixture.run("ZADD asynq:{q}:scheduled XX 1 a-00030").await;
    fixture.broker.forward(QUEUE, TaskState::Scheduled, 2_000_000_000, 0).await.unwrap();
    assert_eq!(fixture.state("a-00030").await, "pending");
    let mut all = fixture.take_and_end(120, 10).await;
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 120);
    fixture.take_ids(10).await;
    assert_eq!(fixture.exist(&["pending", "active", "scheduled", "x:waiting", "x:due"]).await, 0);
}

#[tokio::test]
async fn a_key_that_is_full_or_stopped_passes_its_turn_and_starves_nobody() {
    let fixture = Fixture::start().await;
    fixture.limit(fair().concurrency(2)).await;
    fixture.weigh("a", 100).await;
    let mut paused = LaneChange::default();
    paused.paused = true;
    fixture.inspector().change_lane(QUEUE, "tenant", "off", Some(&paused)).await.unwrap();
    fixture.put([some_of("a", 30), some_of("b", 30), some_of("c", 30), some_of("off", 5)].concat()).await;
    fixture.sort().await;
    let (taken, more) = fixture.take_some(5).await;
    assert_eq!(by_tenant(&ids(&taken)), [("a", 2), ("b", 2), ("c", 1)].into());
    assert_eq!(more, More::Now);
    let (rest, more) = fixture.take_some(10).await;
    assert_eq!((ids(&rest), more), (vec!["c-00001".to_owned()], More::Nothing));
    // One slot at a time: whoever had to wait longest is not passed by those who come back.
    let mut running = [taken, rest].concat();
    let mut order = Vec::new();
    for _ in 0..24 {
        fixture.end(&[running.remove(0)]).await;
        let (taken, _) = fixture.take_some(10).await;
        assert_eq!(taken.len(), 1, "a slot is free, and each has tasks");
        order.extend(ids(&taken));
        running.extend(taken);
    }
    let counts = by_tenant(&order);
    assert!(counts.values().all(|count| *count >= 6) && counts.len() == 3, "{counts:?}");
    assert_eq!(fixture.inspector().limits(QUEUE).await.unwrap()[0].running, 6);
}

#[tokio::test]
async fn caps_of_other_limits_hold_beside_turns() {
    let fixture = Fixture::start().await;
    fixture.limit(fair()).await;
    for (other, cap) in
        [(Limit::new("all", LimitKey::Queue).concurrency(4), 4), (Limit::new("type", LimitKey::Type).concurrency(3), 3)]
    {
        fixture.limit(other).await;
        fixture.put([some_of("a", 30), some_of("b", 5)].concat()).await;
        fixture.sort().await;
        let (mut running, mut seen) = (Vec::new(), Vec::new());
        while seen.len() < 35 {
            let (taken, _) = fixture.take_some(10).await;
            seen.extend(ids(&taken));
            running.extend(taken);
            assert_eq!(running.len(), cap.min(35 - seen.len() + running.len()));
            let ended = running.remove(0);
            fixture.end(&[ended]).await;
        }
        fixture.end(&running).await;
        // What waits under a limit of a type waits in the order of its coming.
        assert!(cap < 4 || by_tenant(&seen[..8])["b"] == 4, "{seen:?}");
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 35);
    }
}

#[tokio::test]
async fn without_the_limit_all_that_waits_goes_in_the_order_in_which_it_came() {
    let fixture = Fixture::start().await;
    fixture.limit(fair()).await;
    let mixed = || (0..120).map(|n| of(["z", "b", "a"][n % 3], &format!("{n:03}")));
    fixture.put(mixed()).await;
    fixture.sort().await;
    assert_eq!(fixture.inspector().remove_limits(QUEUE).await.unwrap(), 120);
    let pending: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    assert!(pending.iter().rev().is_sorted(), "{pending:?}");
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}:x:*"]).await, [""; 0]);
    // Or the limit alone goes, and servers take what waits.
    fixture.limit(fair()).await;
    fixture.sort().await;
    fixture.inspector().remove_limit(QUEUE, "tenant").await.unwrap();
    let order = fixture.take_and_end(120, 10).await;
    let (first, tenants) = (&order[..30], ["z", "b", "a"]);
    let of_tenant = |tenant: usize| first.iter().filter(|id| id.parse::<usize>().unwrap() % 3 == tenant).count();
    assert!((0..tenants.len()).all(|tenant| of_tenant(tenant) == 10), "in turn: {first:?}");
}

/// Other tools move parked tasks; their entries are dropped when they are met.
#[tokio::test]
async fn what_others_do_to_tasks_that_wait_for_their_turn_is_done() {
    let fixture = Fixture::start().await;
    fixture.limit(fair()).await;
    fixture.put([some_of("a", 20), some_of("b", 20)].concat()).await;
    fixture.sort().await;
    let inspector = fixture.inspector();
    for n in 0..9 {
        inspector.delete_task(QUEUE, &format!("a-{n:05}")).await.unwrap();
    }
    inspector.archive_task(QUEUE, "b-00000").await.unwrap();
    inspector.run_task(QUEUE, "b-00001").await.unwrap();
    let mut order = fixture.take_and_end(30, 10).await;
    order.sort();
    order.dedup();
    assert_eq!((order.len(), by_tenant(&order)), (30, [("a", 11), ("b", 19)].into()));
    fixture.take_ids(1).await;
    assert_eq!(fixture.exist(&["pending", "scheduled", "x:waiting", "x:due"]).await, 0);
}

/// A server with one slot, a backlog of one tenant, and a task of another that comes last: it is among the next few.
#[tokio::test]
async fn a_server_parks_what_is_pending_while_its_slots_are_taken() {
    let (fixture, done) = (Fixture::start().await, Events::<String>::default());
    fixture.limit(fair()).await;
    fixture.put(some_of("big", 3_000)).await;
    fixture.put(some_of("late", 1)).await;
    let (open, gate) = tokio::sync::watch::channel(false);
    let tell = done.clone();
    let handler = move |job: Job| {
        let (tell, mut gate) = (tell.clone(), gate.clone());
        async move {
            gate.wait_for(|open| *open).await.unwrap();
            tell.tell(job.id().to_owned());
        }
    };
    let server = fixture.server(Router::new(()).fallback(handler)).concurrency(1);
    let server = server.start().await.unwrap();
    eventually("all is parked", async || fixture.exist(&["pending"]).await == 0).await;
    open.send(true).unwrap();
    let first = done.wait(5).await;
    assert!(first.contains(&"late-00000".to_owned()), "{first:?}");
    server.shutdown().await;
}

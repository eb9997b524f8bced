//! Servers that take part although they were not chosen: those that come later, and those that do the part of a lost one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use queue_core::flow::FlowId;
use queue_core::{Clock as _, RawTask, SystemClock};
use queue_redis::flow::Flows;
use queue_redis::{BatchError, BatchState, Broadcast, To, Verdict, WorkerReport, WorkerState};

use super::{Looks, Ran, decided, flush, pretend, serve, states, until, vanish};
use crate::support::{Fixture, PATIENCE, eventually};

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

fn in_an_hour() -> SystemTime {
    SystemTime::from(SystemClock.now()) + HOUR
}

/// What a server writes that has ended its part, and that somebody else records.
async fn tell(fixture: &Fixture, worker: &WorkerReport, outcome: &str) {
    let (list, lists) =
        (format!("asynq:{{{}}}:x:outcomes:test", worker.queue), format!("asynq:{{{}}}:x:outcome-lists", worker.queue));
    let _: i64 = fixture.cmd(&["SADD", &lists, &list]).await;
    let _: i64 = fixture.cmd(&["RPUSH", &list, &format!("1.0 {outcome} {}", worker.task)]).await;
    Flows::new(fixture.broker.clone(), Arc::new(SystemClock)).tend_queue(&worker.queue).await.unwrap();
}

async fn has_begun(sent: &Broadcast, until: SystemTime) {
    let status = sent.status().await.unwrap();
    let second = until.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert!(status.joins_until.unwrap().timestamp().abs_diff(second.cast_signed()) <= 1);
    assert_eq!(status.verdict, Verdict::Open);
}

#[tokio::test]
async fn servers_that_start_in_time_take_part_and_all_have_to_succeed() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let mut servers = vec![serve(&fixture, &ran, "b").await];
    let at = in_an_hour();
    let sent = flush(&fixture).late_joiners(at).send().await.unwrap();
    until(&sent, &[("b", WorkerState::Succeeded)]).await;
    has_begun(&sent, at).await;
    // One that has the name of the node, and one whose name comes first.
    for name in ["late-joiners", "a"] {
        servers.push(serve(&fixture, &ran, name).await);
        eventually("it takes part", async || {
            sent.status().await.unwrap().workers.iter().any(|worker| worker.server == name)
        })
        .await;
    }
    let all = [("b", WorkerState::Succeeded), ("late-joiners", WorkerState::Succeeded), ("a", WorkerState::Succeeded)];
    let status = until(&sent, &all).await;
    assert_eq!((status.quorum, status.verdict, status.over), (3, Verdict::Open, None), "others may come");
    // Somebody says that nobody else will come.
    assert!(sent.batch().signal("late-joiners", &()).await.unwrap());
    assert_eq!(decided(&sent).await.verdict, Verdict::Reached);
    assert_eq!(sent.batch().wait(PATIENCE).await.unwrap().state, BatchState::Succeeded);
    servers.push(serve(&fixture, &ran, "too-late").await);
    Looks::new(&fixture).pass(60).await;
    assert_eq!(ran.sorted(), ["a all", "b all", "late-joiners all"]);
    let results: Vec<_> =
        sent.status().await.unwrap().workers.iter().map(|worker| worker.read::<String>().unwrap()).collect();
    assert_eq!(results, ["b", "late-joiners", "a"].map(|name| Some(format!("done by {name}"))));
    for server in servers {
        server.shutdown().await;
    }
    // Nothing is left of those who have joined, either.
    let kept: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}@*:t:*"]).await;
    assert_eq!(kept.len(), 3, "{kept:?}");
    let _: i64 = fixture.cmd(&["HSET", &format!("asynq:x:{{{}}}:0:flow", sent.id()), "over", "1"]).await;
    assert_eq!(Flows::new(fixture.broker.clone(), Arc::new(SystemClock)).tend(sent.id().root()).await.unwrap(), None);
    for pattern in ["asynq:{q}@*:t:*", "asynq:x:{*"] {
        assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", pattern]).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_quorum_may_be_larger_than_what_is_there_and_is_missed_when_nobody_can_come_any_more() {
    let fixture = Fixture::start().await;
    pretend(&fixture, "a").await;
    assert!(flush(&fixture).quorum(0).late_joiners(in_an_hour()).send().await.is_err());
    let soon = SystemTime::from(SystemClock.now()) + Duration::from_secs(1);
    let sent = flush(&fixture).quorum(2).late_joiners(soon).send().await.unwrap();
    assert_eq!(sent.status().await.unwrap().verdict, Verdict::Open);
    let mut looks = Looks::new(&fixture);
    // The timer goes by the clock of Redis.
    let over = async {
        while sent.status().await.unwrap().verdict == Verdict::Open {
            looks.pass(2).await;
        }
    };
    tokio::time::timeout(PATIENCE, over).await.unwrap();
    let status = sent.status().await.unwrap();
    assert_eq!((status.verdict, states(&status)), (Verdict::Missed, vec![("a", WorkerState::Waiting)]));
    pretend(&fixture, "b").await;
    looks.pass(60).await;
    assert_eq!(sent.status().await.unwrap().workers.len(), 1);
    assert!(
        fixture
            .cmd::<Vec<String>>(&["ZRANGE", "asynq:x:duties", "0", "-1"])
            .await
            .iter()
            .all(|duty| !duty.starts_with("broadcast "))
    );
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_and_nothing_is_stored() {
    let fixture = Fixture::start().await;
    pretend(&fixture, "a").await;
    let broadcasts = [
        flush(&fixture).to(To::count(1)).late_joiners(in_an_hour()),
        flush(&fixture).to(To::servers(["a"])).late_joiners(in_an_hour()),
        flush(&fixture).replace_lost(MINUTE),
        flush(&fixture).to(To::count(1)).replace_lost(Duration::from_secs(9)),
        flush(&fixture).to(To::count(1)).replace_lost(25 * HOUR),
    ];
    for broadcast in broadcasts {
        assert!(matches!(broadcast.send().await.unwrap_err(), BatchError::Unsuitable { .. }));
    }
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "asynq:x:{*"]).await, Vec::<String>::new());
}

#[tokio::test]
async fn another_server_does_the_part_of_a_lost_one() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let a = serve(&fixture, &ran, "a").await;
    let (b, c) = (pretend(&fixture, "b").await, pretend(&fixture, "c").await);
    let sent = flush(&fixture).to(To::count(3)).replace_lost(MINUTE).send().await.unwrap();
    let mut looks = Looks::new(&fixture);
    looks.pass(4).await;
    // One before it has begun, one with the task in hand.
    let expires = SystemClock.now_secs() + 30;
    fixture.broker.dequeue(&"q}@c".into(), 1, &"c:7:id:1".into(), expires).await.unwrap();
    vanish(&fixture, &b).await;
    vanish(&fixture, &c).await;
    looks.pass(50).await;
    let d = serve(&fixture, &ran, "d").await;
    looks.pass(4).await;
    let gone = WorkerState::Gone;
    until(&sent, &[("a", WorkerState::Succeeded), ("b", gone), ("c", gone)]).await;
    // For one of them there is nobody yet.
    looks.pass(10).await;
    let (replaced, succeeded) = (WorkerState::Replaced, WorkerState::Succeeded);
    let status = until(&sent, &[("a", succeeded), ("b", replaced), ("c", gone), ("d", succeeded)]).await;
    assert_eq!((status.quorum, status.verdict, status.servers()), (3, Verdict::Open, 3));
    assert_eq!(
        fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}@b}:t:*"]).await,
        Vec::<String>::new(),
        "its task is gone"
    );
    let e = serve(&fixture, &ran, "e").await;
    looks.pass(4).await;
    let all = [("a", succeeded), ("b", replaced), ("c", replaced), ("d", succeeded), ("e", succeeded)];
    let status = until(&sent, &all).await;
    assert_eq!((status.verdict, status.servers()), (Verdict::Reached, 3));
    let batch = sent.batch().wait(PATIENCE).await.unwrap();
    assert_eq!((batch.state, batch.removed), (BatchState::Succeeded, 2));
    // What the second had in hand is recovered, and not run again.
    looks.pass(200).await;
    let c = serve(&fixture, &ran, "c").await;
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}@c}:t:*"]).await, Vec::<String>::new());
    assert_eq!(ran.sorted(), ["a all", "d all", "e all"]);
    for server in [a, c, d, e] {
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_lost_server_that_has_done_its_part_counts_and_one_that_is_back_in_time_is_not_replaced() {
    let fixture = Fixture::start().await;
    let (a, b) = (pretend(&fixture, "a").await, pretend(&fixture, "b").await);
    let sent = flush(&fixture).to(To::count(2)).quorum(2).replace_lost(MINUTE).send().await.unwrap();
    let mut looks = Looks::new(&fixture);
    looks.pass(4).await;
    for name in ["c", "d"] {
        pretend(&fixture, name).await;
    }
    vanish(&fixture, &a).await;
    looks.pass(50).await;
    pretend(&fixture, "a").await;
    looks.pass(4).await;
    vanish(&fixture, &a).await;
    looks.pass(50).await;
    assert_eq!(sent.status().await.unwrap().workers.len(), 2, "it was back");
    // Nobody looked for a while: then nobody knows that it was away.
    looks.clock.advance(MINUTE);
    looks.pass(2).await;
    assert_eq!(sent.status().await.unwrap().workers.len(), 2);
    looks.pass(60).await;
    assert_eq!(sent.status().await.unwrap().workers.len(), 3);
    // The outcome of the lost one comes late: two have succeeded then, and it was one of them.
    let status = sent.status().await.unwrap();
    for worker in [&status.workers[0], &status.workers[1]] {
        tell(&fixture, worker, "ok").await;
    }
    let status = sent.status().await.unwrap();
    assert_eq!((status.verdict, status.workers[0].state), (Verdict::Reached, WorkerState::Succeeded));
    vanish(&fixture, &b).await;
}

/// What becomes of a broadcast is right whatever its servers do: they come, go, succeed and die in any order, and the leader is lost
/// now and then.
#[tokio::test]
async fn the_verdict_is_right_whatever_servers_do() {
    const SEEDS: u64 = 40;
    let only: Option<u64> = std::env::var("QUEUE_CAST_SEED").ok().map(|seed| seed.parse().unwrap());
    let (mut joined, mut replaced, mut verdicts) = (0, 0, BTreeSet::new());
    for seed in only.map_or(0..SEEDS, |seed| seed..seed + 1) {
        let mut rng = Rng::with_seed(seed);
        let fixture = Fixture::start().await;
        let chosen = rng.usize(1..4);
        let mut alive = Vec::new();
        for n in 0..chosen {
            alive.push(pretend(&fixture, &format!("s{n}")).await);
        }
        let (is_count, quorum) = (rng.bool(), rng.u32(1..4));
        let task = RawTask::new("flush").payload("all");
        let mut broadcast = fixture.client().broadcast(task).queue("q");
        broadcast = match is_count {
            true => broadcast.to(To::count(chosen as u32)).replace_lost(MINUTE),
            false => broadcast.late_joiners(SystemTime::from(SystemClock.now()) + 20 * MINUTE),
        };
        let has_quorum = rng.bool() && (!is_count || quorum as usize <= chosen);
        if has_quorum {
            broadcast = broadcast.quorum(quorum);
        }
        let sent = broadcast.send().await.unwrap();
        let mut looks = Looks::new(&fixture);
        let (mut next, mut done, mut dead) = (chosen, BTreeSet::new(), BTreeSet::new());
        for _ in 0..40 {
            let status = sent.status().await.unwrap();
            if sent.batch().status().await.unwrap().fired.contains_key("success") {
                break;
            }
            match rng.u8(0..12) {
                0 | 1 if next < 9 => {
                    alive.push(pretend(&fixture, &format!("s{next}")).await);
                    next += 1;
                }
                2..=4 if !alive.is_empty() => {
                    let gone = alive.swap_remove(rng.usize(0..alive.len()));
                    vanish(&fixture, &gone).await;
                }
                // A task ends, or has ended before its server went, or after it came back unnoticed.
                5 => {
                    let open = |worker: &&WorkerReport| !done.contains(&worker.task) && !dead.contains(&worker.task);
                    let open: Vec<_> = status.workers.iter().filter(open).collect();
                    if let Some(worker) = rng.choice(&open) {
                        let is_well = rng.u8(0..4) > 0;
                        let is_lost = worker.state == WorkerState::Replaced;
                        tell(&fixture, worker, if is_well { "ok" } else { "dead" }).await;
                        match is_well {
                            true => done.insert(worker.task.clone()),
                            false if !is_lost => dead.insert(worker.task.clone()),
                            false => false,
                        };
                    }
                }
                6 => looks = looks.anew(&fixture),
                7 if !is_count && rng.u8(0..4) == 0 => drop(sent.batch().signal("late-joiners", &()).await.unwrap()),
                _ => looks.pass(rng.u64(2..100)).await,
            }
            check(&sent, seed, &done, &dead, has_quorum.then_some(quorum)).await;
        }
        let status = sent.status().await.unwrap();
        joined += usize::from(!is_count && status.workers.len() > chosen);
        replaced += usize::from(is_count && status.workers.len() > chosen);
        verdicts.insert(format!("{:?}", status.verdict));
    }
    if only.is_none() {
        assert!(joined > 5 && replaced > 5 && verdicts.len() == 3, "{joined} {replaced} {verdicts:?}");
    }
}

/// By what the test has done, and not by what the ledger says.
async fn check(sent: &Broadcast, seed: u64, done: &BTreeSet<String>, dead: &BTreeSet<String>, quorum: Option<u32>) {
    let status = sent.status().await.unwrap();
    let id: &FlowId = sent.id();
    let names: BTreeSet<&str> = status.workers.iter().map(|worker| &*worker.server).collect();
    assert_eq!(names.len(), status.workers.len(), "seed {seed}: one has two parts: {status:?}");
    let wanted = quorum.unwrap_or(status.servers() as u32);
    // A lost one that has succeeded after all has a part again, beside the one that does it.
    let late = status.workers.iter().filter(|worker| done.contains(&worker.task)).count();
    assert_eq!(status.succeeded(), late, "seed {seed}: {status:?}");
    for worker in &status.workers {
        assert_eq!(worker.state == WorkerState::Dead, dead.contains(&worker.task), "seed {seed}: {worker:?}");
        assert_eq!(worker.queue, format!("q}}@{}", worker.server), "seed {seed} of {id}");
    }
    // Without a quorum, all that have a part have to succeed; one that is replaced has none, and may have succeeded all the same.
    assert!(quorum.map_or(status.quorum <= wanted, |quorum| status.quorum == quorum), "seed {seed}: {status:?}");
    let batch = sent.batch().status().await.unwrap();
    let live = status
        .workers
        .iter()
        .filter(|worker| !matches!(worker.state, WorkerState::Succeeded | WorkerState::Dead | WorkerState::Replaced));
    let may_join = status.joins_until.is_some()
        && batch.state != BatchState::Cancelled
        && batch.live() > live.clone().count() as u64;
    // Where all have to succeed, one that may come is one more that has to.
    let (quorum, may) = match (may_join, quorum) {
        (false, _) => (u64::from(status.quorum), live.count() as u64),
        (true, Some(quorum)) => (u64::from(quorum), u64::from(u32::MAX)),
        (true, None) => (status.workers.len() as u64 + 1, live.count() as u64 + 1),
    };
    let verdict = match status.succeeded() as u64 {
        so_many if so_many >= quorum => Verdict::Reached,
        so_many if so_many + may >= quorum => Verdict::Open,
        _ => Verdict::Missed,
    };
    assert_eq!((status.verdict, batch.verdict()), (verdict, Some(verdict)), "seed {seed}: {status:?} {batch:?}");
}

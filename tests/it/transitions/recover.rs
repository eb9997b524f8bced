use queue_core::attempt::Attempt;
use queue_core::clock::UnixSecond;
use queue_redis::broker::Verdict::{self, Applied, Gone, Lost};
use queue_redis::broker::{ExpiredLease, Recovery};

use crate::support::{Fixture, NOW, QUEUE, is_wrong_type, job, report};

/// To be tried again in a minute.
fn again(lease: ExpiredLease) -> Recovery {
    let mut message = lease.message.clone().unwrap();
    message.error_msg = "silent".into();
    let crashes = Some(lease.crashes.clone().and(&lease.owner, lease.ended_at()));
    let attempt = Some(Attempt::lost(UnixSecond(lease.ended_at()), &lease.owner));
    Recovery { message: message.to_bytes(), retry_at: Some(NOW + 60), crashes, attempt, follow_up: None, lease }
}

/// For the archive.
fn over(lease: ExpiredLease) -> Recovery {
    Recovery { retry_at: None, ..again(lease) }
}

async fn expired(fixture: &Fixture) -> Vec<ExpiredLease> {
    fixture.broker.list_expired(QUEUE, NOW + 30, 0).await.unwrap().leases
}

async fn recover(fixture: &Fixture, recoveries: &[Recovery], at: usize) -> Vec<Verdict> {
    fixture.broker.recover(QUEUE, recoveries, at, NOW).await.unwrap()
}

#[tokio::test]
async fn recover_judges_each_task_by_itself() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch(["a", "done", "go", "keep", "late", "stub"].map(job)).await;
    let leases = expired(&fixture).await;
    fixture.broker.done(QUEUE, &[report(&tasks[1])], NOW).await.unwrap();
    // One was renewed, of one somebody deleted the hash, and one was made pending without its lease.
    fixture.run("ZADD asynq:{q}:lease 4000000031 late").await;
    fixture.run("DEL asynq:{q}:t:stub").await;
    fixture.run("HSET asynq:{q}:t:keep state pending").await;
    let before = fixture.keyspace().await;
    let recoveries: Vec<_> =
        leases.into_iter().map(|lease| if lease.id == "go" { over(lease) } else { again(lease) }).collect();
    let ids: Vec<&str> = recoveries.iter().map(|recovery| &*recovery.lease.id).collect();
    assert_eq!(ids, ["a", "done", "go", "keep", "late", "stub"]);
    assert_eq!(recover(&fixture, &recoveries, 0).await, [Applied, Gone, Applied, Lost, Lost, Gone]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:active: [stub late keep go a]
         + {q}:active: [stub late keep]
         + {q}:archived go: score 4000000000
         + {q}:failed: 2
         + {q}:failed:2096-10-02: 2
         + {q}:failed:2096-10-02 expires: at 4007776000
         - {q}:lease a: score 4000000030
         - {q}:lease go: score 4000000030
         - {q}:processed: 1
         + {q}:processed: 3
         - {q}:processed:2096-10-02: 1
         + {q}:processed:2096-10-02: 3
         + {q}:retry a: score 4000000060
         - {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800
         + {q}:t:a msg: type=job id=a queue=q retry=25 error_msg=silent timeout=1800
         - {q}:t:a owner: run-1
         - {q}:t:a state: active
         + {q}:t:a state: retry
         + {q}:t:a x_a0: 4000000030000 - lost run-1 asynq: task lease expired
         + {q}:t:a x_crashes: 1 4000000030@run-1
         + {q}:t:a x_n: 1
         - {q}:t:go msg: type=job id=go queue=q retry=25 timeout=1800
         + {q}:t:go msg: type=job id=go queue=q retry=25 error_msg=silent timeout=1800
         - {q}:t:go owner: run-1
         - {q}:t:go state: active
         + {q}:t:go state: archived
         + {q}:t:go x_a0: 4000000030000 - lost run-1 asynq: task lease expired
         + {q}:t:go x_n: 1",
    );
    assert_eq!(recover(&fixture, &recoveries, 0).await, [Lost, Gone, Lost, Lost, Lost, Gone]);
}

#[tokio::test]
async fn recover_takes_ids_out_of_the_active_list_wherever_they_are() {
    let fixture = Fixture::start().await;
    for from in 0..6 {
        fixture.active_batch((from * 100..(from + 1) * 100).map(|n| job(&n.to_string()))).await;
    }
    // Go may have left an id there twice.
    fixture.run("LPUSH asynq:{q}:active 1 500").await;
    for (at, chosen) in [(0, ["3", "4"]), (250, ["252", "10"]), (5_000, ["1", "0"]), (500, ["500", "190"])] {
        let found = fixture.broker.list_expired_in_order(QUEUE, NOW + 30, 0).await.unwrap();
        let later = fixture.broker.list_expired_in_order(QUEUE, NOW + 30, 200).await.unwrap();
        let last = fixture.broker.list_expired_in_order(QUEUE, NOW + 30, 490).await.unwrap();
        let all = found.leases.into_iter().chain(later.leases).chain(last.leases);
        let mut taken: Vec<Recovery> = Vec::new();
        for lease in all.chain(expired(&fixture).await) {
            let is_new = taken.iter().all(|recovery| recovery.lease.id != lease.id);
            if chosen.contains(&&*lease.id) && is_new {
                taken.push(again(lease));
            }
        }
        let missing = chosen.iter().filter(|id| taken.iter().all(|recovery| recovery.lease.id != **id));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new());
        assert_eq!(recover(&fixture, &taken, at).await, [Applied, Applied], "{at}");
    }
    let left: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:active", "0", "-1"]).await;
    let gone = [3, 4, 252, 10, 1, 0, 500, 190];
    let expected: Vec<String> = (0..600).rev().filter(|n| !gone.contains(n)).map(|n| n.to_string()).collect();
    assert_eq!(left, expected);
}

#[tokio::test]
async fn list_expired_in_order_goes_through_the_active_list_from_its_tail() {
    let fixture = Fixture::start().await;
    for from in [0, 100] {
        fixture.active_batch((from..from + 100).map(|n| job(&n.to_string()))).await;
    }
    fixture.run("ZADD asynq:{q}:lease 4000000090 0 4000000090 101").await;
    let pages = async |skip: usize| {
        let found = fixture.broker.list_expired_in_order(QUEUE, NOW + 30, skip).await.unwrap();
        assert_eq!((found.ended, found.active, found.next), (198, 200, Some(NOW + 90)));
        let ids: Vec<u32> = found.leases.iter().map(|lease| lease.id.parse().unwrap()).collect();
        (found.seen, found.more, ids)
    };
    assert_eq!(pages(0).await, (100, true, (1..100).collect()));
    assert_eq!(pages(100).await, (100, true, (100..200).filter(|n| *n != 101).collect()));
    assert_eq!(pages(150).await, (50, false, (150..200).collect()));
    assert_eq!(pages(200).await, (0, false, vec![]));
}

#[tokio::test]
async fn recover_fails_where_the_place_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.active(job("a")).await;
    for (place, recovery) in [("retry", again as fn(_) -> _), ("archived", over)] {
        let lease = expired(&fixture).await.remove(0);
        let recovery = [recovery(lease)];
        let act = async || fixture.broker.recover(QUEUE, &recovery, 0, NOW).await;
        let before = fixture.keyspace().await;
        let error = fixture.with_stray(&format!("asynq:{{q}}:{place}"), act).await.unwrap_err();
        assert!(is_wrong_type(&error), "{error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

/// A million bytes each: what is listed for recovery fits into memory, however large the tasks are.
#[tokio::test]
async fn list_expired_stops_when_it_has_enough_bytes() {
    let fixture = Fixture::start().await;
    for n in 0..9 {
        fixture.active(job(&n.to_string()).payload(vec![b'x'; 1_000_000])).await;
    }
    for order in ["lease", "active"] {
        let list = async |skip| match order {
            "lease" => fixture.broker.list_expired(QUEUE, NOW + 30, skip).await.unwrap(),
            _ => fixture.broker.list_expired_in_order(QUEUE, NOW + 30, skip).await.unwrap(),
        };
        let first = list(0).await;
        assert_eq!((first.leases.len(), first.seen, first.more), (5, 5, true), "{order}");
        let rest = list(5).await;
        assert_eq!((rest.leases.len(), rest.seen, rest.more), (4, 4, false), "{order}");
    }
}

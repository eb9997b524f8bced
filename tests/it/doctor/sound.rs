//! What is in order is not found fault with.

use std::time::Duration;

use queue_admin::Reason;
use queue_core::RawTask;
use queue_redis::{Fault, Severity};
use queue_scheduler::{Entry, Scheduler};

use super::{examine, fix, problems, start};
use crate::support::{QUEUE, READY, RULES, eventually, job};

#[tokio::test]
async fn tasks_in_every_state_with_locks_and_groups_are_sound() {
    let (fixture, inspector) = start().await;
    let lock = Duration::from_secs(600);
    fixture.put([job("unique").payload("1").unique(lock)]).await;
    fixture.put([job("unique-later").payload("2").unique(lock).process_in(lock)]).await;
    fixture.put([job("unique-group").payload("3").unique(lock).group("a:b")]).await;
    fixture.put([job("group-later").payload("4").group("later").process_in(lock)]).await;
    // As Go leaves it: the lock's name is in the message only.
    fixture.run("HDEL asynq:{q}:t:unique-group unique_key").await;
    // A lock that has ended, and that a twin has taken.
    fixture.run("DEL asynq:{q}:unique:job:c81e728d9d4c2f636f067f89cc14862c").await;
    fixture.put([job("twin").payload("2").unique(lock)]).await;
    fixture.put([job("staged").group("s:t")]).await;
    assert!(fixture.stage("s:t", "u", RULES, READY).await.is_some());
    fixture.run("SET asynq:{q}:paused 1").await;
    fixture.run("HSET asynq:{q}:x:cron:e upto 1").await;
    fixture.run("SET asynq:{q}:x:of-somebody-else 1").await;
    // What waits for its deletion after it was aggregated.
    fixture.put([job("remains").group("r")]).await;
    fixture.run("RENAME asynq:{q}:g:r asynq:{q}:x:aggregated:u").await;
    fixture.run("SREM asynq:{q}:groups r").await;
    fixture.run("SADD asynq:{q}:x:aggregated asynq:{q}:x:aggregated:u").await;
    let before = fixture.keyspace().await;
    assert_eq!(problems(&inspector).await, [""; 0]);
    let (mended, deleted) = fix(&inspector).await;
    assert_eq!((mended, deleted), (vec![], vec![]));
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn a_queue_without_a_server_is_told_of_whatever_its_tasks_wait_for() {
    let hour = Duration::from_secs(3_600);
    for (task, detail) in [
        (job("waits"), "1 pending"),
        (job("waits").process_in(hour), "1 scheduled"),
        (job("waits").group("g"), "1 groups"),
    ] {
        let fixture = crate::support::Fixture::start().await;
        fixture.broker.publish_queue("q").await.unwrap();
        fixture.put([task]).await;
        // Nothing waits there.
        fixture.run("SADD asynq:{q}:groups empty").await;
        for pause in [false, true] {
            if pause {
                fixture.run("SET asynq:{q}:paused 1").await;
            }
            let unserved: Vec<_> = examine(&fixture.inspector())
                .await
                .into_iter()
                .filter(|found| found.fault == Fault::Unserved)
                .collect();
            assert_eq!(unserved.len(), 1, "{detail}");
            assert_eq!((unserved[0].subject.as_str(), unserved[0].detail.as_str()), ("q", detail));
            let reasons = fixture.inspector().explain("q", "waits").await.unwrap().reasons;
            assert!(reasons.contains(&Reason::NoServer), "{detail}: {reasons:?}");
        }
    }
}

/// One of them tells of the entry. The other one was found fault with, and servers took it off the list every five minutes.
#[tokio::test]
async fn two_schedulers_of_one_entry_are_sound() {
    let fixture = crate::support::Fixture::start().await;
    let mut schedulers = Vec::new();
    for _ in 0..2 {
        let scheduler = Scheduler::new(fixture.another_redis());
        scheduler.register(Entry::new("@hourly", RawTask::new("job").queue(QUEUE)).name("e")).unwrap();
        scheduler.start().await.unwrap();
        schedulers.push(scheduler);
    }
    eventually("both are listed", async || fixture.cmd::<usize>(&["ZCARD", "asynq:schedulers"]).await == 2).await;
    assert_eq!(problems(&fixture.inspector()).await, [""; 0]);
    for scheduler in schedulers {
        scheduler.shutdown().await;
    }
}

#[tokio::test]
async fn an_empty_redis_is_sound() {
    let fixture = crate::support::Fixture::start().await;
    let found = examine(&fixture.inspector()).await;
    assert!(found.iter().all(|found| found.fault.severity() == Severity::Note), "{found:?}");
}

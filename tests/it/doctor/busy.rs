//! A fleet at work is no finding.

use std::sync::Arc;
use std::time::Duration;

use queue_admin::Inspector;
use queue_core::RawTask;
use queue_core::clock::ManualClock;
use queue_redis::{Severity, broker::Aggregated};
use queue_worker::{Failure, Group, Job, Router};

use super::problems;
use crate::support::{Fixture, NOW, NOW_NS, QUEUE, job};

const BATCHES: u64 = 240;
const BATCH: u64 = 50;
/// Tasks that may wait, so that they are worked while others come.
const BACKLOG: u64 = 100;

fn task(n: u64) -> RawTask {
    let task = RawTask::new("job").queue(QUEUE).task_id(n.to_string()).payload(n.to_string()).max_retry(2);
    match n % 6 {
        0 => task.unique(Duration::from_secs(60)),
        1 => task.retention(Duration::from_secs(1)),
        2 => task.group(format!("g{}", n % 3)),
        3 => task.process_in(Duration::from_secs(1)),
        _ => task,
    }
}

#[tokio::test]
async fn a_busy_fleet_is_sound() {
    let fixture = Fixture::start().await;
    let router = || {
        let count = async |_: Group, tasks: Vec<RawTask>| RawTask::new("digest").payload(tasks.len().to_string());
        Router::new(()).aggregate(count).fallback(async |job: Job| match job.id().as_bytes().last() {
            Some(b'0' | b'4') => Err(Failure::retry_in(Duration::from_millis(1), "again")),
            Some(b'5') => Err(Failure::archive("enough")),
            _ => Ok(()),
        })
    };
    let first = fixture.server(router()).group_max_size(20).start().await.unwrap();
    let second = fixture.server(router()).group_max_size(20).start().await.unwrap();
    let (client, inspector) = (fixture.client(), fixture.inspector());
    let feeder = tokio::spawn(async move {
        for batch in 0..BATCHES {
            let tasks = (batch * BATCH..(batch + 1) * BATCH).map(task);
            for outcome in client.enqueue_many(tasks).await {
                outcome.unwrap();
            }
            while inspector.queue(QUEUE).await.is_ok_and(|queue| queue.pending > BACKLOG) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    let inspector = fixture.inspector();
    let (mut rounds, mut looked_at) = (0, 0);
    while !feeder.is_finished() {
        let mut examination = inspector.doctor().examine();
        while let Some(findings) = examination.next().await.unwrap() {
            let problems: Vec<_> = findings.iter().filter(|found| found.fault.severity() > Severity::Note).collect();
            assert!(problems.is_empty(), "{problems:?}");
        }
        rounds += 1;
        looked_at += examination.tasks();
    }
    feeder.await.unwrap();
    // It would mean nothing if nothing had moved.
    let processed = fixture.count("processed").await;
    assert!(rounds > 1 && looked_at > 500 && processed > 500, "{rounds}: {looked_at} looked at, {processed} processed");
    first.shutdown().await;
    second.shutdown().await;
}

/// Locks, groups, and sets taken out of them, which go and come again while somebody looks at them twice.
#[tokio::test]
async fn a_fault_that_is_gone_at_the_second_look_is_no_finding() {
    let fixture = Fixture::start().await;
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    let inspector = Inspector::with_clock(fixture.redis(), Arc::new(ManualClock::at_secs(NOW)));
    let locks = async {
        for id in (0_u64..).map(|n| n.to_string()) {
            fixture.put([job(&id).unique(Duration::from_secs(60))]).await;
            inspector.delete_task(QUEUE, &id).await.unwrap();
        }
    };
    let groups = async {
        loop {
            let (set, tasks) = fixture.staged([job("grouped").group("g")]).await;
            let aggregated = fixture.broker.aggregate(&set, &tasks, None, NOW_NS).await.unwrap();
            assert_eq!(aggregated, Aggregated::Done);
        }
    };
    let looks = async {
        for _ in 0..300 {
            assert_eq!(problems(&inspector).await, [""; 0]);
        }
    };
    tokio::select! {
        () = locks => {}
        () = groups => {}
        () = looks => {}
    }
}

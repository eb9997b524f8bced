//! The statistics that transitions keep.

use queue_redis::broker::Verdict::Applied;

use crate::support::{Fixture, NOW, QUEUE, job, report};

const MOST: &str = "9223372036854775807"; // 2^63 - 1

async fn totals(fixture: &Fixture) -> (Option<String>, Option<String>) {
    (fixture.cmd(&["GET", "asynq:{q}:processed"]).await, fixture.cmd(&["GET", "asynq:{q}:failed"]).await)
}

fn numbers(processed: &str, failed: &str) -> (Option<String>, Option<String>) {
    let number = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    (number(processed), number(failed))
}

#[tokio::test]
async fn a_total_that_is_full_starts_again_as_in_asynq() {
    let fixture = Fixture::start().await;
    fixture.run(&format!("SET asynq:{{q}}:processed {MOST}")).await;
    let tasks = fixture.active_batch(["a", "b", "c"].map(job)).await;
    let reports: Vec<_> = tasks.iter().map(report).collect();
    assert_eq!(fixture.broker.done(QUEUE, &reports[..1], NOW).await.unwrap(), [Applied]);
    assert_eq!(totals(&fixture).await, numbers("1", ""));
    fixture.run(&format!("SET asynq:{{q}}:processed {MOST}")).await;
    assert_eq!(fixture.broker.done(QUEUE, &reports[1..], NOW).await.unwrap(), [Applied; 2]);
    assert_eq!(totals(&fixture).await, numbers("2", ""), "a batch counts all of its tasks");
}

#[tokio::test]
async fn a_full_total_of_processed_starts_both_totals_again_at_a_failure() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch(["a", "b"].map(job)).await;
    for (task, archives) in tasks.iter().zip([false, true]) {
        fixture.run(&format!("MSET asynq:{{q}}:processed {MOST} asynq:{{q}}:failed 41")).await;
        let message = queue_core::TaskMessage { last_failed_at: NOW, ..task.message.clone() }.to_bytes();
        let verdict = if archives {
            fixture.broker.archive(&report(task), &message, NOW).await.unwrap()
        } else {
            fixture.broker.retry(&report(task), &message, NOW, true, NOW).await.unwrap()
        };
        assert_eq!(verdict, Applied);
        assert_eq!(totals(&fixture).await, numbers("1", "1"));
    }
}

#[tokio::test]
async fn a_day_counter_lives_90_days_from_its_first_count() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch(["a", "b", "c"].map(job)).await;
    let reports: Vec<_> = tasks.iter().map(report).collect();
    let next_day = NOW + 24 * 60 * 60;
    fixture.broker.done(QUEUE, &reports[..1], NOW).await.unwrap();
    let first = fixture.keyspace().await;
    fixture.broker.done(QUEUE, &reports[1..2], NOW + 60).await.unwrap();
    let second = fixture.keyspace().await;
    assert_eq!(second.get("{q}:processed:2096-10-02"), Some("2"));
    for keyspace in [&first, &second] {
        assert_eq!(keyspace.get("{q}:processed:2096-10-02 expires"), Some("at 4007776000"));
    }
    fixture.broker.done(QUEUE, &reports[2..], next_day).await.unwrap();
    let third = fixture.keyspace().await;
    assert_eq!(third.get("{q}:processed:2096-10-03"), Some("1"));
    assert_eq!(third.get("{q}:processed:2096-10-03 expires"), Some("at 4007862400"));
    assert_eq!(third.get("{q}:processed"), Some("3"));
}

//! Servers that are no use, and say so only when one asks them the right thing.

use queue_redis::check::Severity;
use queue_redis::{Client, Error, Redis, RedisOptions, Role, Subject};

use crate::support::{RedisProcess, job};

#[tokio::test]
async fn a_redis_that_still_reads_its_data_is_named_and_may_be_tried_again() {
    let mut redis = RedisProcess::start(&["--appendonly", "no", "--rdbcompression", "no"]).await;
    let client = Client::connect(&redis.url()).await.unwrap();
    for outcome in client.enqueue_many((0..3_000).map(|n| job(&n.to_string()).payload("x".repeat(2_000)))).await {
        outcome.unwrap();
    }
    let mut raw = redis::Client::open(redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    redis::cmd("SAVE").exec_async(&mut raw).await.unwrap();
    // A hundredth of a second for each key, and answers in between: half a minute, however slow the machine.
    redis.restart_loading(&["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"]).await;
    let checked = Redis::lazy(&redis.url(), RedisOptions::default()).unwrap().check(Role::Worker).await.unwrap();
    let first = &checked.findings[0];
    assert_eq!((first.severity, first.subject), (Severity::Problem, Subject::Loading), "{checked:?}");
    assert!(first.message.contains("% read, about"), "{first}");
    assert!(checked.findings.iter().all(|found| found.subject != Subject::Rights), "it runs no scripts: {checked:?}");
    let error = Redis::connect(&redis.url()).await.unwrap_err();
    assert!(matches!(error, Error::Unusable { .. }), "{error:?}");
    assert!(error.is_transient() && error.to_string().contains("still reading its data"), "{error}");
}

#[tokio::test]
async fn a_sentinel_is_no_redis_and_is_told_from_one() {
    let sentinel = RedisProcess::start_sentinel().await;
    let error = Redis::connect(&sentinel.url()).await.unwrap_err();
    let Error::Unusable { problems, .. } = &error else { panic!("{error:?}") };
    assert_eq!(problems[0].subject, Subject::Role);
    assert!(error.to_string().contains("this is a Sentinel"), "{error}");
    let checked = Redis::lazy(&sentinel.url(), RedisOptions::default()).unwrap().check(Role::Worker).await.unwrap();
    assert!(checked.findings.iter().all(|found| found.subject != Subject::Rights), "it knows no scripts: {checked:?}");
}

//! Servers that are no use, and say so only when one asks them the right thing.

use queue_redis::check::Severity;
use queue_redis::{Client, Error, Fault, Redis, RedisOptions, Role};

use crate::support::{RedisProcess, job};

#[tokio::test]
async fn a_redis_that_still_reads_its_data_is_named_and_may_be_tried_again() {
    let mut redis = RedisProcess::start(&["--appendonly", "no", "--rdbcompression", "no"]).await;
    // Saving takes as long as the disk does.
    let patient = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let raw = redis::Client::open(redis.url()).unwrap();
    let mut raw = raw.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
    let interval = "loading-process-events-interval-bytes";
    let known: Vec<String> = redis::cmd("CONFIG").arg(&["GET", interval]).query_async(&mut raw).await.unwrap();
    // Some time for each key, and answers in between: many seconds, however slow the machine. Redis 6.2 answers after
    // every 2 MiB and cannot be told otherwise.
    let (interval, argument) = (format!("--{interval}"), "1024");
    let (tasks, bytes, settings) = if known.is_empty() {
        (500, 200_000, vec!["--key-load-delay", "20000"])
    } else {
        (3_000, 2_000, vec!["--key-load-delay", "10000", &interval, argument])
    };
    let client = Client::connect(&redis.url()).await.unwrap();
    for n in 0..tasks / 100 {
        let batch = (0..100).map(|m| job(&format!("{n}-{m}")).payload("x".repeat(bytes)));
        client.enqueue_many(batch).await.into_iter().for_each(|outcome| drop(outcome.unwrap()));
    }
    redis::cmd("SAVE").exec_async(&mut raw).await.unwrap();
    redis.restart_loading(&settings).await;
    let checked = Redis::lazy(&redis.url(), RedisOptions::default()).unwrap().check(Role::Worker).await.unwrap();
    let first = &checked.findings[0];
    assert_eq!((first.severity, first.fault), (Severity::Error, Fault::Loading), "{checked:?}");
    assert!(first.detail.contains("% read, about"), "{first}");
    assert!(checked.findings.iter().all(|found| found.fault != Fault::Rights), "it runs no scripts: {checked:?}");
    let error = Redis::connect(&redis.url()).await.unwrap_err();
    assert!(matches!(error, Error::Unusable { .. }), "{error:?}");
    assert!(error.is_transient() && error.to_string().contains("still reading its data"), "{error}");
}

#[tokio::test]
async fn a_sentinel_is_no_redis_and_is_told_from_one() {
    let sentinel = RedisProcess::start_sentinel().await;
    let error = Redis::connect(&sentinel.url()).await.unwrap_err();
    let Error::Unusable { problems, .. } = &error else { panic!("{error:?}") };
    assert_eq!(problems[0].fault, Fault::Sentinel);
    assert!(error.to_string().contains("this is a Sentinel"), "{error}");
    let checked = Redis::lazy(&sentinel.url(), RedisOptions::default()).unwrap().check(Role::Worker).await.unwrap();
    assert!(checked.findings.iter().all(|found| found.fault != Fault::Rights), "it knows no scripts: {checked:?}");
}

/// Only a program that looks at Redis first was told, and not how the address is written.
#[tokio::test]
async fn whoever_meets_a_sentinel_is_told_how_its_address_is_written() {
    let sentinel = RedisProcess::start_sentinel().await;
    let looked = Redis::connect(&sentinel.url()).await.unwrap_err();
    let enqueued = async |url: &str| {
        let client = Client::new(Redis::lazy(url, RedisOptions::default()).unwrap());
        client.enqueue(job("a")).await.unwrap_err().to_string()
    };
    let url = sentinel.url();
    for said in [looked.to_string(), enqueued(&url).await, enqueued(&format!("{url}?db=1")).await] {
        assert!(said.contains("Sentinel"), "{said}");
        assert!(said.contains("redis-sentinel://host:port,host:port/0?master=NAME"), "{said}");
    }
}

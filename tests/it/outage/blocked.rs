//! A Redis that is there, and busy with something else.

use super::trial::Trial;
use crate::support::{Fixture, Hanging, RedisProcess, occupy, plain_connection};

#[tokio::test]
async fn servers_and_clients_outlast_a_long_script() {
    let fixture = Fixture::start().await;
    fixture.run("CONFIG SET lua-time-limit 10").await;
    let mut trial = Trial::start(fixture.url()).await;
    trial.expect();
    let script = occupy(fixture.url());
    trial.during("a long script blocks Redis").await;
    fixture.run("SCRIPT KILL").await;
    trial.after().await;
    script.await.unwrap();
}

#[tokio::test]
async fn servers_and_clients_outlast_a_redis_that_reads_its_data() {
    let mut redis = RedisProcess::start(&["--appendonly", "no", "--rdbcompression", "no"]).await;
    let mut trial = Trial::start(&redis.url()).await;
    let mut raw = plain_connection(redis.url()).await;
    let fill = "for n = 1, 20000 do redis.call('SET', 'filler:' .. n, ARGV[1]) end";
    redis::cmd("EVAL").arg(fill).arg(0).arg("x".repeat(200)).exec_async(&mut raw).await.unwrap();
    redis::cmd("SAVE").exec_async(&mut raw).await.unwrap();
    trial.expect();
    // A hundredth of a second for each key, and answers in between.
    redis.restart_loading(&["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"]).await;
    trial.during("loading").await;
    let mut raw = plain_connection(redis.url()).await;
    redis::cmd("CONFIG").arg("SET").arg("key-load-delay").arg("0").exec_async(&mut raw).await.unwrap();
    trial.after().await;
}

#[tokio::test]
async fn servers_and_clients_outlast_a_redis_that_hangs() {
    let fixture = Fixture::start().await;
    let mut trial = Trial::start(fixture.url()).await;
    trial.expect();
    let hanging = Hanging::begin(fixture.url()).await;
    trial.during("").await;
    drop(hanging);
    trial.after().await;
}

//! A Redis that is not there.

use super::trial::Trial;
use crate::support::RedisProcess;

#[tokio::test]
async fn a_redis_that_ends_and_is_started_again() {
    let mut redis = RedisProcess::start(&[]).await;
    let mut trial = Trial::start(&redis.url()).await;
    trial.expect();
    redis.kill();
    trial.during("").await;
    redis.start_again().await;
    trial.after().await;
}

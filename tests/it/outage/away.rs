//! A Redis that is not there.

use super::trial::Trial;
use crate::support::RedisProcess;

#[tokio::test]
async fn servers_and_clients_outlast_a_restart_of_redis() {
    let mut redis = RedisProcess::start(&[]).await;
    let mut trial = Trial::start(&redis.url()).await;
    trial.expect();
    redis.kill();
    trial.during("").await;
    redis.start_again().await;
    trial.after().await;
}

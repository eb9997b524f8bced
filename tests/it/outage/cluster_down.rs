//! A cluster that misses a slot.

use super::trial::Trial;
use crate::support::{Process, QUEUE, eventually};

#[tokio::test]
async fn servers_and_clients_outlast_a_slot_that_nobody_serves() {
    let node = Process::cluster_of_one().await;
    let url = format!("redis+cluster://127.0.0.1:{}", node.port);
    let slot = queue_core::keys::QueueKeys::new(QUEUE).slot().to_string();
    let mut trial = Trial::start(&url).await;
    trial.expect();
    node.cmd::<()>(&["CLUSTER", "DELSLOTS", &slot]).await;
    trial.during("misses some of its slots").await;
    node.cmd::<()>(&["CLUSTER", "ADDSLOTS", &slot]).await;
    eventually("the cluster is well", async || {
        node.cmd::<String>(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok")
    })
    .await;
    trial.after().await;
}

//! The metrics of queues while a node is away that nobody replaces.

use std::time::Duration;

use queue_admin::Inspector;
use queue_core::RawTask;
use queue_core::limit::{Limit, LimitKey};
use queue_metrics::{QueueMetrics, text};
use queue_redis::Client;

use super::{connect, queues};
use crate::support::{Cluster, Hanging};

const PATIENCE: Duration = Duration::from_secs(2);

/// A cluster whose second node has no replica, with a task and a limit on each node, and a scrape before it goes.
async fn stage() -> (Cluster, [String; 3], QueueMetrics) {
    let mut cluster = Cluster::start().await;
    for node in &cluster.nodes {
        node.cmd::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    cluster.nodes[4].kill();
    let names = queues();
    let client = Client::new(connect(&cluster, PATIENCE));
    let inspector = Inspector::new(connect(&cluster, PATIENCE));
    for name in &names {
        client.enqueue(RawTask::new("job").queue(name.as_str())).await.unwrap();
        inspector.set_limit(name, Limit::new("api", LimitKey::Queue).concurrency(5)).await.unwrap();
    }
    let metrics = QueueMetrics::new(inspector);
    let all = text(&metrics.gather().await);
    assert_shown(&all, &names, [true, true, true]);
    (cluster, names, metrics)
}

/// Checks which queues are shown, with their limits.
#[track_caller]
fn assert_shown(text: &str, names: &[String; 3], expected: [bool; 3]) {
    for (name, shown) in names.iter().zip(expected) {
        let up = format!("asynq_queue_up{{queue=\"{name}\"}} {}", i32::from(shown));
        assert!(text.contains(&up), "{up} in:\n{text}");
        for series in [
            format!("asynq_queue_size{{queue=\"{name}\"}}"),
            format!("asynq_queue_memory_usage_approx_bytes{{queue=\"{name}\"}}"),
            format!("asynq_lane_running{{limit=\"api\",queue=\"{name}\"}}"),
        ] {
            assert_eq!(text.contains(&series), shown, "{series} in:\n{text}");
        }
    }
}

#[tokio::test]
async fn a_node_that_hangs_costs_a_scrape_only_its_own_queue() {
    queue_redis::log_to_stderr(false);
    let (cluster, names, metrics) = stage().await;
    let _hanging = Hanging::process(cluster.nodes[1].id());
    let rest = text(&metrics.gather().await);
    assert_shown(&rest, &names, [true, false, true]);
}

/// What is not known is not nothing.
#[tokio::test]
async fn the_slots_of_servers_that_cannot_be_listed_are_not_shown_as_none() {
    queue_redis::log_to_stderr(false);
    let (mut cluster, names, metrics) = stage().await;
    assert!(text(&metrics.gather().await).contains("asynq_server_slots 0"), "there are none");
    cluster.nodes[5].kill();
    // It has the list of servers.
    cluster.nodes[2].kill();
    let rest = text(&metrics.gather().await);
    assert_shown(&rest, &names, [true, true, false]);
    assert!(!rest.contains("asynq_server_slots"), "{rest}");
}

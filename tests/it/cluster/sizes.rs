//! Large batches over three masters: more than one call can carry, record, or go up.

use std::time::Duration;

use queue_core::RawTask;
use queue_core::keys::flow_prefix;
use queue_redis::{Batch, BatchState, Client};

use super::batches::id_on;
use super::{Counts, connect, queues, serve};
use crate::support::Cluster;

const PATIENCE: Duration = Duration::from_secs(90);

fn job(n: usize) -> RawTask {
    RawTask::new("job").queue(queues()[n % 3].as_str())
}

/// More members than one reservation gives out, in turn on all masters.
#[tokio::test]
async fn a_batch_of_thousands_over_three_masters_succeeds() {
    const MEMBERS: usize = 12_000;
    queue_redis::log_to_stderr(false);
    let (cluster, counts) = (Cluster::start().await, Counts::default());
    let client = Client::new(connect(&cluster, Duration::from_secs(30)));
    let names = queues();
    let members = (0..MEMBERS).map(|n| RawTask::new("job").queue(names[n % 3].as_str()));
    let batch = client.batch().id(id_on(1)).on_success(job(0)).add_all(members).await.unwrap();
    let status = batch.status().await.unwrap();
    assert_eq!((status.total, status.sent), (MEMBERS as u64, MEMBERS as u64));
    // Half a byte for each.
    let key = flow_prefix(batch.id().root()) + "0:states";
    let bytes: usize = cluster.nodes[cluster.master_of(&key).await].cmd(&["STRLEN", &key]).await;
    assert_eq!(bytes, MEMBERS / 2);
    let server = serve(connect(&cluster, Duration::from_secs(30)), &counts, &names).await;
    let end = batch.wait(PATIENCE).await.unwrap();
    server.shutdown().await;
    assert_eq!((end.state, end.succeeded), (BatchState::Succeeded, MEMBERS as u64), "{end:?}");
    // With the callback.
    assert_eq!(counts.distinct(), MEMBERS + 1);
}

/// One call goes up 16 levels; what is left over goes on by an entry of what is to be done.
#[tokio::test]
async fn batches_within_each_other_a_hundred_levels_deep_end_from_the_innermost() {
    const LEVELS: usize = 110;
    queue_redis::log_to_stderr(false);
    let (cluster, counts) = (Cluster::start().await, Counts::default());
    let client = Client::new(connect(&cluster, Duration::from_secs(30)));
    let mut levels: Vec<Batch> = vec![client.batch().id(id_on(2)).on_success(job(1)).open().await.unwrap()];
    for _ in 1..LEVELS {
        let child = levels[levels.len() - 1].child().open().await.unwrap();
        levels.push(child);
    }
    levels[LEVELS - 1].add_all([job(0)]).await.unwrap();
    for batch in &levels {
        batch.commit().await.unwrap();
    }
    let server = serve(connect(&cluster, Duration::from_secs(30)), &counts, &queues()).await;
    let end = levels[0].wait(PATIENCE).await.unwrap();
    server.shutdown().await;
    assert_eq!((end.state, counts.distinct()), (BatchState::Succeeded, 2), "{end:?}");
}

/// A node that waits for more than one call looks at, and as many that wait for it.
#[tokio::test]
async fn a_node_waits_for_hundreds_on_all_masters_and_hundreds_wait_for_it() {
    const WIDTH: usize = 600;
    queue_redis::log_to_stderr(false);
    let (cluster, counts) = (Cluster::start().await, Counts::default());
    let client = Client::new(connect(&cluster, Duration::from_secs(30)));
    let mut flow = client.workflow().id(id_on(0)).on_success(job(1));
    for n in 0..WIDTH {
        flow = flow.task(format!("before{n}"), job(n));
    }
    flow = flow.task("middle", job(2)).after((0..WIDTH).map(|n| format!("before{n}")));
    for n in 0..WIDTH {
        flow = flow.task(format!("after{n}"), job(n)).after(["middle"]);
    }
    let flow = flow.start().await.unwrap();
    let server = serve(connect(&cluster, Duration::from_secs(30)), &counts, &queues()).await;
    let end = flow.wait(PATIENCE).await.unwrap();
    server.shutdown().await;
    assert_eq!((end.state, end.succeeded), (BatchState::Succeeded, 2 * WIDTH as u64 + 1), "{end:?}");
    assert_eq!(counts.distinct(), 2 * WIDTH + 2);
}

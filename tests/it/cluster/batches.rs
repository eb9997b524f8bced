//! Batches whose members, callbacks and ledger are on different masters.

use std::time::Duration;

use queue_core::RawTask;
use queue_core::keys::{flow_prefix, slot_of};
use queue_redis::{Batch, BatchError, BatchState, Client};
use queue_worker::{Failure, Handle, Job, Router, Server, Task};
use serde::{Deserialize, Serialize};

use super::{connect, queues};
use crate::support::{Cluster, Events, eventually, wait_for, with};

/// Adds two members to its batch.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "grow")]
struct Grow;

async fn grow(_: Grow, batch: Batch) -> Result<(), Failure> {
    let queues = queues();
    batch.add_all([1, 2].map(|n: usize| RawTask::new("job").queue(queues[n].as_str()))).await?;
    Ok(())
}

/// Ids of batches whose ledgers the master of these slots has.
pub(super) fn ids_on(master: usize) -> impl Iterator<Item = String> {
    let slots = [0..=5461, 5462..=10922, 10923..=16383][master].clone();
    (0..).map(|n| format!("batch{n}")).filter(move |id| slots.contains(&slot_of(id.as_bytes())))
}

pub(super) fn id_on(master: usize) -> String {
    ids_on(master).next().unwrap()
}

async fn serve(cluster: &Cluster, ran: &Events, patience: Duration) -> Handle {
    let tell = with(ran, async |ran: Events, job: Job| ran.tell(job.task_type()));
    let router = ["job", "success", "settled", "death"]
        .into_iter()
        .fold(Router::new(()).task(grow), |router, task_type| router.route(task_type, tell.clone()));
    let queues = queues();
    let server = Server::new(connect(cluster, patience), router).queues(queues.iter().map(|queue| (queue.as_str(), 1)));
    server.concurrency(8).start().await.unwrap()
}

/// Makes a batch of so many members over all masters, with its callbacks on the second; again until it is there.
async fn make(client: &Client, id: &str, members: usize) -> Batch {
    let queues = queues();
    let callback = |task_type: &str| RawTask::new(task_type).queue(queues[1].as_str());
    wait_for("the batch is made", async || {
        let builder = client.batch().id(id).on_success(callback("success")).on_death(callback("death"));
        let tasks = (0..members).map(|n| RawTask::new("job").queue(queues[n % 3].as_str()));
        match builder.on_settled(callback("settled")).add_all(tasks).await {
            Ok(batch) => Some(batch),
            Err(BatchError::Redis(error)) if error.is_transient() => None,
            Err(BatchError::Refused { source: queue_redis::EnqueueError::Redis(error), .. })
                if error.is_transient() =>
            {
                None
            }
            Err(error) => panic!("{error}"),
        }
    })
    .await
}

#[tokio::test]
async fn members_callbacks_and_ledger_are_on_masters_of_their_own() {
    queue_redis::log_to_stderr(false);
    let (cluster, ran) = (Cluster::start().await, Events::default());
    let patience = Duration::from_secs(30);
    let client = Client::new(connect(&cluster, patience));
    let server = serve(&cluster, &ran, patience).await;
    for master in 0..3 {
        let batch = make(&client, &id_on(master), 30).await;
        let child = batch.status().await.unwrap();
        assert_eq!(child.total, 30);
        let end = batch.wait(patience).await.unwrap();
        assert_eq!((end.state, end.succeeded), (BatchState::Succeeded, 30), "ledger on master {master}");
    }
    // A handler adds members, which are on the other masters.
    let queues = queues();
    let whole = client.batch().on_success(RawTask::new("success").queue(queues[2].as_str())).open().await.unwrap();
    whole.child().add_all([Grow.queued(&queues[0])]).await.unwrap();
    whole.commit().await.unwrap();
    assert_eq!(whole.wait(patience).await.unwrap().state, BatchState::Succeeded);
    server.shutdown().await;
    let ran = ran.all();
    let count = |what: &str| ran.iter().filter(|ran| *ran == what).count();
    assert_eq!((count("job"), count("success"), count("settled"), count("death")), (92, 4, 3, 0));
    for key in cluster.keys().await {
        assert!(!key.contains("outcomes"), "{key} is left");
    }
}

impl Grow {
    fn queued(self, queue: &str) -> RawTask {
        let task = queue_core::IntoTask::into_task(self).unwrap();
        task.queue(queue)
    }
}

/// The master of the ledger dies while members run, and then that of a queue. What Redis kept is counted.
#[tokio::test]
async fn a_batch_outlives_the_masters_of_its_ledger_and_of_its_queue() {
    queue_redis::log_to_stderr(false);
    let (mut cluster, ran) = (Cluster::start().await, Events::default());
    let patience = Duration::from_secs(1);
    let client = Client::new(connect(&cluster, patience));
    // The ledger is on the first master, all members on the two others.
    let queues = queues();
    let tasks = (0..600).map(|n: usize| {
        let task = RawTask::new("job").queue(queues[1 + n % 2].as_str());
        task.process_in(Duration::from_millis(if n < 100 { 0 } else { 1_000 }))
    });
    let builder = client.batch().id(id_on(0)).on_settled(RawTask::new("settled").queue(queues[1].as_str()));
    let batch = builder.on_death(RawTask::new("death").queue(queues[1].as_str())).add_all(tasks).await.unwrap();
    let replicated: i64 = cluster.nodes[0].cmd(&["WAIT", "1", "10000"]).await;
    assert_eq!(replicated, 1);
    let server = serve(&cluster, &ran, patience).await;
    eventually("it works", async || ran.all().len() > 50).await;
    // What the ledger has from here on may be lost with its master: members that it has forgotten are looked for.
    cluster.nodes[0].kill();
    eventually("all members have run", async || ran.all().iter().filter(|ran| *ran == "job").count() >= 600).await;
    let root = batch.id().root().to_owned();
    let key = flow_prefix(&root) + "0:flow";
    wait_for("its replica is promoted", async || (cluster.master_of(&key).await == 3).then_some(())).await;
    let end = wait_for("the batch to be over", async || {
        let status = batch.status().await.ok()?;
        if !status.is_over() {
            // As if it had stood still for long.
            let _: i64 = cluster.nodes[3].cmd(&["HSET", &key, "touched", "1", "looked", "1", "adding", "1"]).await;
            let _ = client.flows().tend(&root).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        status.is_over().then_some(status)
    })
    .await;
    server.shutdown().await;
    assert_eq!(end.succeeded + end.removed, 600, "{end:?}");
    let ran = ran.all();
    assert!(ran.iter().filter(|ran| *ran == "job").count() >= 600);
    assert!(ran.contains(&"settled".to_owned()));
    // A member whose outcome was in the lost part is shown as removed, and nothing else may be.
    assert_eq!(ran.contains(&"death".to_owned()), end.removed > 0, "{end:?}");
}

/// What is known of a batch whose ledger cannot be written stays in its list; others are not behind it.
#[tokio::test]
async fn a_batch_ends_while_the_ledger_of_another_is_gone_for_good() {
    queue_redis::log_to_stderr(false);
    let mut cluster = Cluster::start().await;
    for node in &cluster.nodes {
        node.cmd::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    let (patience, [queue, ..]) = (Duration::from_secs(1), queues());
    let (ran, redis) = (Events::default(), connect(&cluster, patience));
    let inspector = queue_admin::Inspector::new(redis.clone());
    inspector.pause(&queue).await.unwrap();
    let server = serve(&cluster, &ran, patience).await;
    let task = |task_type: &str| RawTask::new(task_type).queue(queue.as_str());
    // More than are recorded at once stand before those of the other one.
    const MEMBERS: usize = 4_000;
    for (master, callback, members) in [(1, "death", MEMBERS), (2, "success", 10)] {
        let builder = Client::new(redis.clone()).batch().id(id_on(master)).on_success(task(callback));
        builder.add_all((0..members).map(|_| task("job"))).await.unwrap();
    }
    cluster.nodes[4].kill();
    cluster.nodes[1].kill();
    inspector.unpause(&queue).await.unwrap();
    eventually("the other batch calls back", async || ran.all().iter().any(|task_type| task_type == "success")).await;
    let mut told = ran.all();
    told.sort();
    assert_eq!(told, [["job"; MEMBERS + 10].as_slice(), &["success"]].concat());
    server.shutdown().await;
}

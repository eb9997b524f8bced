//! Batches, chains, graphs, batches in batches and broadcasts over three masters, one of which hands over to its replica while they run.

use std::time::Duration;

use queue_core::RawTask;
use queue_core::keys::flow_prefix;
use queue_redis::{Batch, BatchState, Client};
use queue_worker::{Failure, Handle, Job, Router, Server};

use super::batches::id_on;
use super::{connect, queues};
use crate::support::{Cluster, Events, eventually, wait_for, with};

const LAYERS: usize = 12;
const WIDTH: usize = 20;

/// The callbacks of each kind of flow have types of their own: `success:graph`, say.
async fn serve(cluster: &Cluster, ran: &Events, name: &str) -> Handle {
    let work = async |ran: Events, job: Job| {
        ran.tell(job.task_type());
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok::<(), Failure>(())
    };
    let work = with(ran, work);
    let router = ["job", "node", "step", "cast", "success:", "complete:", "settled:", "death:"]
        .into_iter()
        .fold(Router::new(()), |router, task_type| router.route(task_type, work.clone()));
    let queues = queues();
    let server = Server::new(connect(cluster, Duration::from_secs(1)), router);
    let server = server.name(name).queues(queues.iter().map(|queue| (queue.as_str(), 1)));
    server.concurrency(4).start().await.unwrap()
}

/// A task whose queue is on this master, of the three.
fn on(master: usize, task_type: &str) -> RawTask {
    RawTask::new(task_type).queue(queues()[master % 3].as_str()).max_retry(5)
}

/// Nodes in layers; each but the first waits for three of the layer before it, all of them on other masters than the node or its neighbours.
async fn graph(client: &Client) -> Batch {
    let mut flow = client.workflow().id(id_on(0));
    for layer in 0..LAYERS {
        for place in 0..WIDTH {
            flow = flow.task(format!("n{layer}-{place}"), on(layer + place, "node"));
            if layer > 0 {
                flow = flow.after((0..3).map(|n| format!("n{}-{}", layer - 1, (place + n) % WIDTH)));
            }
        }
    }
    let flow = flow.on_success(on(0, "success:graph")).on_complete(on(1, "complete:graph"));
    flow.on_settled(on(2, "settled:graph")).on_death(on(0, "death:graph")).start().await.unwrap()
}

/// A batch in a batch in a batch, each with members on all masters.
async fn nested(client: &Client) -> Batch {
    let whole = client.batch().id(format!("{}n", id_on(0))).on_success(on(1, "success:whole"));
    let whole = whole.on_settled(on(2, "settled:whole")).on_death(on(0, "death:whole")).open().await.unwrap();
    for n in 0..3 {
        let middle = whole.child().on_success(on(n, "success:middle")).open().await.unwrap();
        let inner = middle.child().on_success(on(n + 1, "success:inner")).on_settled(on(n, "settled:inner"));
        inner.add_all((0..10).map(|n| on(n, "job"))).await.unwrap();
        middle.add_all((0..5).map(|n| on(n, "job"))).await.unwrap();
        middle.commit().await.unwrap();
    }
    whole.commit().await.unwrap();
    whole
}

/// A master hands over to its replica without a loss, so that it can be asked for that every callback has come once. What follows where the last writes
/// are lost is in `batches.rs`.
#[tokio::test]
async fn flows_of_every_kind_come_to_their_end_and_call_back_once_while_a_master_is_replaced() {
    queue_redis::log_to_stderr(false);
    let (cluster, ran) = (Cluster::start().await, Events::default());
    let client = Client::new(connect(&cluster, Duration::from_secs(30)));
    let graph = graph(&client).await;
    let nested = nested(&client).await;
    let batch = client.batch().id(id_on(1)).on_success(on(0, "success:batch")).on_settled(on(1, "settled:batch"));
    let batch = batch.on_complete(on(2, "complete:batch")).add_all((0..150).map(|n| on(n, "job"))).await.unwrap();
    let chain = (0..8).fold(client.chain().id(id_on(2)), |chain, n| match n {
        4 => chain.then_all((0..6).map(|n| on(n, "step"))),
        n => chain.then(on(n, "step")),
    });
    let chain = chain.on_success(on(0, "success:chain")).on_settled(on(1, "settled:chain")).start().await.unwrap();
    let (first, second) = (serve(&cluster, &ran, "web-1").await, serve(&cluster, &ran, "web-2").await);
    let send = async || {
        let cast = client.broadcast(RawTask::new("cast")).queue(queues()[0].as_str()).quorum(2);
        cast.on_success(on(2, "success:cast")).on_settled(on(0, "settled:cast")).send().await.ok()
    };
    let cast = wait_for("both servers are listed", send).await;
    let done = |what: &str| ran.all().iter().filter(|ran| *ran == what).count();
    eventually("it is under way", async || done("node") > 2 * WIDTH && done("job") > 50).await;

    // The first master has a queue, and the ledgers of the graph and of one of the others.
    let key = flow_prefix(graph.id().root()) + "0:flow";
    let _: String = cluster.nodes[3].cmd(&["CLUSTER", "FAILOVER"]).await;
    wait_for("its replica is the master", async || (cluster.master_of(&key).await == 3).then_some(())).await;
    assert!(done("node") < LAYERS * WIDTH, "it was in the middle");

    for flow in [&graph, &nested, &batch, &chain, cast.batch()] {
        let over = async || flow.status().await.ok().filter(queue_redis::BatchStatus::is_over);
        let status = wait_for("the flow is over", over).await;
        assert_eq!((status.state, status.succeeded), (BatchState::Succeeded, status.total), "{status:?}");
    }
    first.shutdown().await;
    second.shutdown().await;
    let once = ["success:graph", "complete:graph", "settled:graph", "success:whole", "settled:whole"];
    let more = ["success:batch", "complete:batch", "settled:batch", "success:chain", "settled:chain"];
    for callback in [&once[..], &more[..], &["success:cast", "settled:cast"]].concat() {
        assert_eq!(done(callback), 1, "{callback}");
    }
    for callback in ["success:middle", "success:inner", "settled:inner"] {
        assert_eq!(done(callback), 3, "{callback}");
    }
    assert_eq!((done("death:graph"), done("death:whole")), (0, 0));
    // A run whose report was lost on the way may come twice.
    assert!(done("node") >= LAYERS * WIDTH && done("job") >= 195 && done("step") >= 13 && done("cast") >= 2);
}

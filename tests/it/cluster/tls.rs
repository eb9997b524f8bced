//! With TLS between all that speak, and certificates on both sides.

use queue_admin::Inspector;
use queue_core::RawTask;
use queue_core::keys::QueueKeys;
use queue_redis::{Client, EnqueueError, Error, Redis, RedisOptions, TlsOptions};

use super::features::every_feature_works;
use super::queues;
use crate::support::{Authority, Cluster, ServerTls, eventually};

/// The nodes' address, as they tell it.
const HOST: &str = "127.0.0.1";

/// Nodes that trust both authorities, and clients that trust the first.
struct World {
    ours: Authority,
    others: Authority,
}

impl World {
    fn new() -> Self {
        Self { ours: Authority::new("our authority"), others: Authority::new("another authority") }
    }

    fn client(&self) -> TlsOptions {
        let shown = self.ours.sign("worker");
        let client = Some((shown.certificate.into_bytes(), shown.key.into_bytes()));
        TlsOptions { ca: Some(self.ours.pem().into_bytes()), client }
    }

    fn node(&self, authority: &Authority, name: &str) -> ServerTls {
        let trusted = self.ours.pem() + &self.others.pem();
        ServerTls { shown: authority.sign(name), trusted, client: self.client() }
    }
}

/// A client that knows one node, with nothing kept from another.
fn client(cluster: &Cluster, options: &RedisOptions, fragment: &str) -> Client {
    let url = format!("rediss+cluster://{HOST}:{}{fragment}", cluster.nodes[0].port);
    Client::new(Redis::lazy(&url, options.clone()).unwrap())
}

async fn enqueue(client: &Client, queue: &str) -> Result<(), Error> {
    match client.enqueue(RawTask::new("t").queue(queue)).await {
        Ok(_) => Ok(()),
        Err(EnqueueError::Redis(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

fn is_about(error: &Error, node: u16, reason: &str) {
    assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&format!("{HOST}:{node}")) && text.contains(reason), "{text}");
}

#[tokio::test]
async fn every_feature_works_with_client_certificates() {
    queue_redis::log_to_stderr(false);
    let world = World::new();
    let cluster = Cluster::start_with_tls([(); 3].map(|()| world.node(&world.ours, HOST))).await;
    every_feature_works(&cluster).await;
    // Without a certificate, or with one that nobody there knows, there is nothing.
    let stranger = Authority::new("a third authority").sign("worker");
    let stranger = Some((stranger.certificate.into_bytes(), stranger.key.into_bytes()));
    for (shown, reason) in [(None, "wants a certificate"), (stranger, "does not accept the certificate")] {
        let mut options = cluster.options.clone();
        options.tls.client = shown;
        let error = enqueue(&client(&cluster, &options, ""), &queues()[0]).await.unwrap_err();
        is_about(&error, cluster.nodes[0].port, reason);
    }
}

/// The URL names one node, whose certificate is right; the others are known from its answers. `asynq:queues` is on the
/// first too.
#[tokio::test]
async fn nodes_that_the_url_does_not_name_have_to_show_a_right_certificate_too() {
    queue_redis::log_to_stderr(false);
    let world = World::new();
    let nodes =
        [world.node(&world.ours, HOST), world.node(&world.others, HOST), world.node(&world.ours, "elsewhere.example")];
    let cluster = Cluster::start_with_tls(nodes).await;
    let names = queues();
    let ports: Vec<u16> = cluster.nodes.iter().map(|node| node.port).collect();
    let checking = client(&cluster, &cluster.options, "");
    enqueue(&checking, &names[0]).await.unwrap();
    is_about(&enqueue(&checking, &names[1]).await.unwrap_err(), ports[1], "not signed by a root that is trusted");
    is_about(&enqueue(&checking, &names[2]).await.unwrap_err(), ports[2], "not for this host");
    // Nothing else is wrong with them.
    let trusting = client(&cluster, &cluster.options, "#insecure");
    for name in &names {
        enqueue(&trusting, name).await.unwrap();
    }

    // The same when a slot has moved, and the first node says to which.
    let slot = QueueKeys::new(&names[0]).slot();
    Inspector::new(checking.redis().clone()).remove_queue(&names[0], true).await.unwrap();
    let taker: String = cluster.nodes[1].cmd(&["CLUSTER", "MYID"]).await;
    for node in [1, 0, 2] {
        let words = ["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &taker];
        cluster.nodes[node].cmd::<()>(&words).await;
    }
    is_about(&enqueue(&checking, &names[0]).await.unwrap_err(), ports[1], "not signed by a root that is trusted");
    eventually("who checks nothing follows the slot", async || enqueue(&trusting, &names[0]).await.is_ok()).await;
}

//! Tasks for certain servers: by their name, or by what they have.
//!
//! `cargo run -p queue-examples --example targets`

use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue::{Job, RawTask, Router, Server};
use queue_examples::{Error, client};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let done = Arc::new(Mutex::new(Vec::new()));
    let start = async |name: &'static str, labels: &[&str]| {
        let seen = done.clone();
        let run = move |job: Job| {
            let seen = seen.clone();
            async move { seen.lock().unwrap().push(format!("{name} ran {}", job.id())) }
        };
        let server = Server::new(client.redis().clone(), Router::new(()).route("cache:", run));
        let server = labels.iter().fold(server.name(name), |server, label| server.label(*label));
        server.queues([("cache", 1)]).start().await
    };
    let servers = [start("web-1", &["eu"]).await?, start("web-2", &["eu", "gpu"]).await?];

    let task = |id: &str| RawTask::new("cache:flush").queue("cache").task_id(id);
    let stored = client.enqueue(task("flush-1").only("web-1")).await?;
    println!("{} waits in the queue {:?}", stored.id, stored.queue);
    client.enqueue(task("flush-2").only("web-2")).await?;
    let stored = client.enqueue(task("render").label("gpu").label("eu")).await?;
    println!("{} waits in the queue {:?}", stored.id, stored.queue);

    while done.lock().unwrap().len() < 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for server in servers {
        server.shutdown().await;
    }
    done.lock().unwrap().sort();
    println!("{:?}", done.lock().unwrap());
    assert_eq!(*done.lock().unwrap(), ["web-1 ran flush-1", "web-2 ran flush-2", "web-2 ran render"]);
    Ok(())
}

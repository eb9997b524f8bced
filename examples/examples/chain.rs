//! A chain: a page is fetched, its pictures are made smaller, all at the same time, and the page is published. Each step reads what the one
//! before it has left.
//!
//! `cargo run -p queue-examples --example chain`

use std::time::Duration;

use queue::{BatchState, Failure, Output, Parents, Router, Server, Task};
use queue_examples::{Error, client};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "page:fetch")]
struct Fetch {
    url: String,
}

#[derive(Serialize, Deserialize, Task)]
#[task(type = "page:resize")]
struct Resize {
    picture: u32,
}

/// The result of one step is there until the chain is forgotten.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "page:publish", retention = "1h")]
struct Publish;

async fn fetch(task: Fetch) -> Output<usize> {
    Output(task.url.len())
}

async fn resize(task: Resize, parents: Parents) -> Result<Output<String>, Failure> {
    let bytes: usize = parents.get("step-1")?;
    Ok(Output(format!("picture {} of a page of {bytes} bytes", task.picture)))
}

async fn publish(_: Publish, parents: Parents) -> Result<(), Failure> {
    let mut pictures: Vec<String> = parents.all("step-2")?;
    pictures.sort();
    assert_eq!(pictures.len(), 3);
    println!("published with {pictures:?}");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let router = Router::new(()).task(fetch).task(resize).task(publish);
    let server = Server::new(client.redis().clone(), router).start().await?;

    let chain = client
        .chain()
        .then(Fetch { url: "https://example.org/".to_owned() })
        .then_all((1..=3).map(|picture| Resize { picture }))
        .then(Publish)
        .start()
        .await?;
    let end = chain.wait(Duration::from_secs(30)).await?;
    println!("chain {}: {}", end.id, end.state.as_str());
    assert_eq!((end.state, end.succeeded), (BatchState::Succeeded, 3));
    server.shutdown().await;
    Ok(())
}

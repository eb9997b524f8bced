//! Encrypted payloads: one line at the client, one at the router, and a key that is replaced while tasks wait.
//!
//! `cargo run -p queue-examples --example encryption`

use queue::crypt::{Encryption, KeyRing};
use queue::{Router, Server, Task, TaskState};
use queue_examples::{Error, client, wait_for};
use serde::{Deserialize, Serialize};

/// Only the card is a secret; the rest stays readable for tools.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "order:pay", retention = "1h")]
struct Pay {
    order: u64,
    card: String,
}

/// All of it is.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "user:letter", retention = "1h")]
struct Letter {
    text: String,
}

// A program reads them from its environment or a vault; `openssl rand -base64 32` makes one.
const MAY: &str = "2026-05:BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=";
const NOVEMBER: &str = "2026-11:CwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCws=";

fn encryption(keys: &str) -> Result<Encryption, Error> {
    Ok(Encryption::new(KeyRing::parse(keys)?).fields("order:pay", ["card"]))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;

    let in_may = encryption(MAY)?.client(client.clone());
    let pay = in_may.enqueue(Pay { order: 7, card: "4242 4242".to_owned() }).await?;
    println!("Redis holds {}", String::from_utf8_lossy(&pay.payload));

    // In November there is a new key; the old one stays until its last task is done.
    let november = encryption(&format!("{NOVEMBER},{MAY}"))?;
    let letter = november.client(client.clone()).enqueue(Letter { text: "Dear Ada".to_owned() }).await?;
    println!("and {} bytes that nobody can read", letter.payload.len());

    let router = Router::new(())
        .task(async |task: Pay| println!("order {} is paid with {}", task.order, task.card))
        .task(async |task: Letter| println!("{} is sent", task.text));
    let server = Server::new(client.redis().clone(), november.router(router)).start().await?;
    wait_for(&client, &pay, TaskState::Completed).await?;
    wait_for(&client, &letter, TaskState::Completed).await?;
    server.shutdown().await;
    Ok(())
}

//! Steering a server while it runs: quiet for a while, fewer slots, and the end, all from elsewhere.
//!
//! `cargo run -p queue-examples --example steer`

use std::time::Duration;

use queue::admin::{Actor, Admin, Heeded, Inspector, Order, Role, ServerVerb};
use queue::{Job, RawTask, Router, Server, TaskState};
use queue_examples::{Error, client, wait_for};

async fn send(_: Job) {}

/// Gives an order, and waits until the server goes by it.
async fn order(admin: &Admin, verb: ServerVerb, set: Order) -> Result<(), Error> {
    let given = admin.order(verb, "mail-1", &set).await?;
    loop {
        for (server, heeded) in admin.inspector().heeded(&given).await? {
            match heeded {
                Heeded::NotYet => {}
                Heeded::Ended => {
                    println!("{verb:?}: it has ended");
                    return Ok(());
                }
                Heeded::Applied { refused } => {
                    let (status, slots) = (server.status, server.concurrency);
                    println!("{verb:?}: it is {status} with {slots} slots; refused: {refused:?}");
                    return Ok(());
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let router = Router::new(()).route("email:", send);
    let server = Server::new(client.redis().clone(), router).name("mail-1").label("eu").concurrency(8);
    let server = server.queues([("mail", 1)]).start().await?;

    let actor = Actor { name: "ann".to_owned(), role: Role::Admin, via: "example", address: None };
    let admin = Admin::new(Inspector::new(client.redis().clone()), actor);
    order(&admin, ServerVerb::Quiet, Order::default()).await?;
    let mail = RawTask::new("email:welcome").queue("mail").retention(Duration::from_secs(60));
    let sent = client.enqueue(mail).await?;
    println!("while it is quiet, the task is {}", admin.inspector().task("mail", &sent.id).await?.state);
    order(&admin, ServerVerb::Set, Order { concurrency: Some(2), ..Order::default() }).await?;
    order(&admin, ServerVerb::Resume, Order::default()).await?;
    wait_for(&client, &sent, TaskState::Completed).await?;
    order(&admin, ServerVerb::Stop, Order::default()).await?;
    server.ended().await;
    Ok(())
}

//! A workflow in which somebody has to approve: a signal with what was said, a deadline for it, and a timer.
//!
//! `cargo run -p queue-examples --example approval`

use std::time::Duration;

use queue::{BatchState, Failure, Otherwise, Parents, Router, Server, Task};
use queue_examples::{Error, client};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "release:build")]
struct Build {
    revision: u32,
}

#[derive(Serialize, Deserialize, Task)]
#[task(type = "release:ship")]
struct Ship;

#[derive(Serialize, Deserialize)]
struct Approval {
    by: String,
}

async fn build(task: Build) {
    println!("building {}", task.revision);
}

async fn ship(_: Ship, parents: Parents) -> Result<(), Failure> {
    let approval: Approval = parents.get("approve")?;
    println!("shipping: {} has approved", approval.by);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let router = Router::new(()).task(build).task(ship);
    let server = Server::new(client.redis().clone(), router).start().await?;

    for revision in [42, 43] {
        let release = client
            .workflow()
            .task("build", Build { revision })
            .signal("approve")
            .within(Duration::from_secs(24 * 60 * 60), Otherwise::Skip)
            .after(["build"])
            .timer("cool-down", Duration::from_secs(1))
            .after(["approve"])
            .task("ship", Ship)
            .after(["approve", "cool-down"])
            .start()
            .await?;
        // Whoever approves does so from another program, or by `queuectl workflow signal`.
        if revision == 42 {
            release.signal("approve", &Approval { by: "ada".to_owned() }).await?;
        } else {
            release.decline("approve", &"not on a Friday").await?;
        }
        let end = release.wait(Duration::from_secs(30)).await?;
        println!("release {revision}: {} succeeded, {} skipped", end.succeeded, end.skipped);
        let expected = if revision == 42 { (4, 0) } else { (1, 3) };
        assert_eq!((end.state, (end.succeeded, end.skipped)), (BatchState::Succeeded, expected));
    }
    server.shutdown().await;
    Ok(())
}

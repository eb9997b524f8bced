//! A workflow: nodes that wait for any others, one that runs only if another fails, and one that runs however it ends.
//!
//! `cargo run -p queue-examples --example workflow`

use std::time::Duration;

use queue::{BatchState, Failure, Output, Parents, Router, Server, Task};
use queue_examples::{Error, client};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "release:build")]
struct Build {
    revision: u32,
}

#[derive(Serialize, Deserialize, Task)]
#[task(type = "release:test", max_retry = 0)]
struct Test {
    suite: String,
}

#[derive(Serialize, Deserialize, Task)]
#[task(type = "release:ship")]
struct Ship;

#[derive(Serialize, Deserialize, Task)]
#[task(type = "release:roll-back")]
struct RollBack;

#[derive(Serialize, Deserialize, Task)]
#[task(type = "release:clean-up")]
struct CleanUp;

async fn build(task: Build) -> Output<String> {
    Output(format!("image-{}", task.revision))
}

async fn test(task: Test) -> Result<(), Failure> {
    if task.suite == "broken" { Err(Failure::archive("a test has failed")) } else { Ok(()) }
}

async fn ship(_: Ship, parents: Parents) -> Result<(), Failure> {
    println!("shipping {}", parents.get::<String>("build")?);
    Ok(())
}

async fn roll_back(_: RollBack) {
    println!("rolling back");
}

async fn clean_up(_: CleanUp) {
    println!("cleaning up");
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let router = Router::new(()).task(build).task(test).task(ship).task(roll_back).task(clean_up);
    let server = Server::new(client.redis().clone(), router).start().await?;

    for suite in ["unit", "broken"] {
        let release = client
            .workflow()
            .description(format!("release with the tests {suite}"))
            .task("build", Build { revision: 42 })
            .batch("test", ["browser", suite].map(|suite| Test { suite: suite.to_owned() }))
            .after(["build"])
            .task("ship", Ship)
            .after(["build", "test"])
            .task("roll-back", RollBack)
            .after_failure(["test"])
            .task("clean-up", CleanUp)
            .after_end(["ship", "roll-back"])
            .start()
            .await?;
        let end = release.wait(Duration::from_secs(30)).await?;
        println!("{}: {} succeeded, {} skipped", end.state.as_str(), end.succeeded, end.skipped);
        let expected = if suite == "unit" { (BatchState::Succeeded, 4, 1) } else { (BatchState::Dead, 3, 1) };
        assert_eq!((end.state, end.succeeded, end.skipped), expected);
    }
    server.shutdown().await;
    Ok(())
}

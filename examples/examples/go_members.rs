//! A workflow whose nodes a Go program works, which knows nothing of workflows: examples/go_members. A server of ours has to
//! run somewhere, for any queue: it looks after the workflow, and works the callback.
//!
//! `cd examples/go_members && go build -o /tmp/go_members .`, then
//! `GO_MEMBERS=/tmp/go_members cargo run -p queue-examples --example go_members`

use std::process::Command;
use std::time::Duration;

use queue::embedded::RedisServer;
use queue::{BatchState, Client, Job, RawTask, Router, Server};
use queue_examples::Error;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let program = std::env::var("GO_MEMBERS").map_err(|_| "GO_MEMBERS has to name the Go program")?;
    let redis = RedisServer::start().await?;
    let client = Client::new(redis.redis());
    let mut go = Command::new(program).arg(redis.socket()).spawn()?;

    let router = Router::new(()).route("picture:done", async |_: Job| println!("all pictures are done"));
    let server = Server::new(client.redis().clone(), router).start().await?;
    let picture =
        |task_type: &str, payload: &str| RawTask::new(task_type).payload(payload.to_owned()).queue("pictures");
    let flow = client
        .workflow()
        .task("fetch", picture("picture:fetch", "cat.png"))
        .batch("resize", ["640", "1280"].map(|width| picture("picture:resize", width)))
        .after(["fetch"])
        .on_success(RawTask::new("picture:done"));
    let end = flow.start().await?.wait(Duration::from_secs(60)).await?;
    println!("{}: {} of {} nodes", end.state.as_str(), end.succeeded, end.total);
    assert_eq!((end.state, end.succeeded), (BatchState::Succeeded, 2));

    server.shutdown().await;
    go.kill()?;
    go.wait()?;
    Ok(())
}

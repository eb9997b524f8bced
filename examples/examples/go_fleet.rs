//! A Rust worker for tasks that a Go program enqueues: the type and the JSON are Go's, nothing else is
//! needed. Here the "Go program" is an untyped enqueue with the same bytes.
//!
//! `cargo run -p queue-examples --example go_fleet`

use std::time::Duration;

use queue::{Headers, Job, RawTask, Router, Server, Task, TaskState, Unhandled};
use queue_examples::{Error, client, wait_for};
use serde::{Deserialize, Serialize};

/// In Go: `type ResizePayload struct { Path string; Width int }`, marshalled by encoding/json.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "image:resize")]
#[serde(rename_all = "PascalCase")]
struct Resize {
    path: String,
    width: u32,
}

async fn resize(task: Resize, Headers(headers): Headers) {
    println!("{} to {} px for {:?}", task.path, task.width, headers.get("tenant"));
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let router = Router::new(())
        .task(resize)
        // asynq's ServeMux patterns: whatever begins with "video:".
        .route("video:", async |job: Job| println!("{} has {} bytes", job.task_type(), job.payload().len()));
    let server = Server::new(client.redis().clone(), router)
        .queues([("media", 1)])
        // What only the Go workers know stays in the queue for them.
        .unhandled(Unhandled::Leave)
        .start()
        .await?;

    let keep = Duration::from_secs(60);
    let from_go =
        |task_type: &str, json: &'static str| RawTask::new(task_type).payload(json).queue("media").retention(keep);
    let resize = from_go("image:resize", r#"{"Path":"/cat.png","Width":640}"#).header("tenant", "acme");
    let resize = client.enqueue(resize).await?;
    let video = client.enqueue(from_go("video:cut", r#"{"From":3}"#)).await?;
    let others = client.enqueue(from_go("pdf:render", "{}")).await?;
    wait_for(&client, &resize, TaskState::Completed).await?;
    wait_for(&client, &video, TaskState::Completed).await?;
    wait_for(&client, &others, TaskState::Pending).await?;
    println!("{} waits for a worker that knows it", others.task_type);
    server.shutdown().await;
    Ok(())
}

//! Looking after a queue: what failed is found by its error and its payload, mended and run again; what nobody
//! wants is deleted; the queue is removed.
//!
//! `cargo run -p queue-examples --example inspector`

use std::time::Duration;

use queue::admin::{Filter, Inspector, Page};
use queue::{Failure, Job, RawTask, Router, Server, TaskState};
use queue_examples::{Error, client, wait_for};

/// Mail to the old server fails; everything else is sent.
async fn send(job: Job) -> Result<(), Failure> {
    if String::from_utf8_lossy(job.payload()).contains("old.example.com") {
        return Err(Failure::archive("dial tcp old.example.com:25: connection refused"));
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let (client, _redis) = client().await?;
    let router = Router::new(()).route("email:", send);
    let server = Server::new(client.redis().clone(), router).queues([("mail", 1)]).start().await?;
    let mail = |host: &str, user: u32| {
        let payload = format!(r#"{{"host":"{host}","user":{{"id":{user}}}}}"#);
        RawTask::new("email:send").queue("mail").payload(payload).retention(Duration::from_secs(60 * 60))
    };
    for user in 1..=3 {
        let sent = client.enqueue(mail("new.example.com", user)).await?;
        wait_for(&client, &sent, TaskState::Completed).await?;
        let failed = client.enqueue(mail("old.example.com", user)).await?;
        wait_for(&client, &failed, TaskState::Archived).await?;
    }

    let inspector = Inspector::new(client.redis().clone());
    let refused = Filter::new().state(TaskState::Archived).error_contains("connection refused");
    println!("{} tasks could not reach their server", inspector.count("mail", &refused).await?);

    // One is mended: another payload, and once more.
    let of_user_2 = refused.clone().payload("user.id", "2");
    for task in inspector.find("mail", &of_user_2, Page::default()).await? {
        inspector.update_payload("mail", &task.id, r#"{"host":"new.example.com","user":{"id":2}}"#).await?;
        inspector.run_task("mail", &task.id).await?;
        wait_for(&client, &task, TaskState::Completed).await?;
        println!("mail to user 2 was sent in the end");
    }

    // The others are given up.
    let deleted = inspector.delete_all("mail", &refused, |progress| {
        println!("looked at {} of {} tasks", progress.looked_at, progress.of);
    });
    println!("{} of them were deleted", deleted.await?.changed);

    let queue = inspector.queue("mail").await?;
    println!("{} completed, {} archived", queue.completed, queue.archived);
    if let Some(bytes) = inspector.queue_memory("mail").await? {
        println!("the queue takes {} of memory", if bytes > 0 { "some" } else { "no" });
    }
    for day in inspector.history("mail", 1).await? {
        println!("today {} attempts, {} of them failed", day.processed, day.failed);
    }

    server.shutdown().await;
    match inspector.remove_queue("mail", false).await {
        Err(queue::admin::Error::QueueNotEmpty { tasks, .. }) => println!("{tasks} tasks would be lost with the queue"),
        other => println!("{other:?}"),
    }
    println!("{} tasks are gone with the queue", inspector.remove_queue("mail", true).await?);
    Ok(())
}

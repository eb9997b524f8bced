//! Many notifications become one mail: tasks of a group are aggregated.
//!
//! `cargo run -p queue-examples --example digest`

use std::time::Duration;

use queue::{Failure, Group, Router, Server, State, Task, TaskOptions, TaskState};
use queue_examples::{Error, client, wait_for};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "notification", queue = "mail")]
struct Notification {
    text: String,
}

#[derive(Serialize, Deserialize, Task)]
#[task(type = "email:digest", retention = "1h")]
struct Digest {
    user: String,
    lines: Vec<String>,
}

#[derive(Clone)]
struct Limits {
    lines: usize,
}

/// Makes one task of those of a group. The tasks go away in the same step in which the digest is enqueued; after
/// an error they stay, and are aggregated later.
async fn digest(
    Group(user): Group,
    notifications: Vec<Notification>,
    State(limits): State<Limits>,
) -> Result<Digest, Failure> {
    if user == "user:nobody" {
        return Err(Failure::revoke("nobody reads these")); // the tasks are dropped
    }
    let lines = notifications.into_iter().map(|notification| notification.text).take(limits.lines).collect();
    Ok(Digest { user, lines })
}

async fn send(digest: Digest) {
    println!("to {}: {}", digest.user, digest.lines.join(", "));
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let group = |name: &str| TaskOptions::new().group(name);
    for text in ["Ada follows you", "Grace likes your post", "Edsger disagrees"] {
        client.enqueue_with(Notification { text: text.to_owned() }, group("user:7")).await?;
    }
    let ignored = client.enqueue_with(Notification { text: "hello?".to_owned() }, group("user:nobody")).await?;
    wait_for(&client, &ignored, TaskState::Aggregating).await?;

    let router = Router::new(Limits { lines: 10 }).aggregate(digest).task(send);
    let server = Server::new(client.redis().clone(), router)
        .queues([("mail", 1)])
        .group_grace_period(Duration::from_secs(1)) // aggregate when nothing has come for so long,
        .group_max_delay(Duration::from_secs(60)) // at the latest after so long,
        .group_max_size(100) // and at once when there are so many
        .start()
        .await?;
    let inspector = queue::admin::Inspector::new(client.redis().clone());
    let page = queue::admin::Page::default();
    while inspector.tasks("mail", TaskState::Completed, page).await?.is_empty()
        || !inspector.tasks("mail", TaskState::Aggregating, page).await?.is_empty()
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.shutdown().await;
    Ok(())
}

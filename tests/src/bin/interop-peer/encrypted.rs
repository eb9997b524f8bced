//! `interop-peer encrypt-enqueue` and `encrypt-work`: a task whose payload only these two can read.

use queue_core::RawTask;
use queue_crypt::{Encryption, KeyRing};
use queue_redis::{Client, Redis};
use queue_worker::{Job, Router, Server};
use serde_json::json;
use tokio::sync::mpsc;

use crate::Outcome;

#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    #[arg(long)]
    redis: String,
    #[arg(long)]
    queue: String,
    /// Id of the task to enqueue.
    #[arg(long)]
    task_id: String,
    /// Encrypts this field of the payload instead of all of it; repeated for each field.
    #[arg(long = "field")]
    fields: Vec<String>,
}

fn encryption(settings: &Settings) -> Result<Encryption, queue_crypt::KeyError> {
    let encryption = Encryption::new(KeyRing::new([("test-key", [7; 32])])?).required();
    Ok(if settings.fields.is_empty() { encryption } else { encryption.fields("secret", settings.fields.clone()) })
}

pub(crate) async fn enqueue(settings: Settings) -> Outcome {
    let client = encryption(&settings)?.client(Client::connect(&settings.redis).await?);
    let task = RawTask::new("secret").queue(&settings.queue).task_id(&settings.task_id);
    client.enqueue(task.payload(r#"{"card":"4242-4242","user":7}"#).header("tenant", "acme")).await?;
    Ok(())
}

pub(crate) async fn work(settings: Settings) -> Outcome {
    let (tell, mut worked) = mpsc::unbounded_channel();
    let router = Router::new(()).route("secret", move |job: Job| {
        let _ = tell.send(json!({
            "id": job.id(),
            "payload": String::from_utf8_lossy(job.payload()),
            "retried": job.retried(),
            "tenant": job.headers().get("tenant"),
        }));
        async {}
    });
    let router = encryption(&settings)?.router(router);
    let server = Server::new(Redis::connect(&settings.redis).await?, router).queues([(settings.queue, 1)]);
    let server = server.start().await?;
    let line = worked.recv().await.ok_or("the router is gone")?;
    server.shutdown().await;
    println!("{line}");
    Ok(())
}

//! Metrics of a worker and of its queues, served over HTTP beside the program's own, and read once.
//!
//! `cargo run -p queue-examples --example metrics`

use queue::admin::Inspector;
use queue::metrics::{Endpoint, QueueMetrics, Registry, WorkerMetrics, prometheus::IntCounter};
use queue::{CancellationToken, Failure, Job, RawTask, Router, Server, TaskState};
use queue_examples::{Error, client, wait_for};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let (client, _redis) = client().await?;

    // The program's own metrics, by the same library.
    let (own, mails) = (Registry::new(), IntCounter::new("shop_mails_total", "Mails sent")?);
    own.register(Box::new(mails.clone()))?;

    let worker = WorkerMetrics::new();
    worker.watch_calls(client.redis());
    let endpoint = Endpoint::new(client.redis().clone())
        .worker(worker.clone())
        .queues(QueueMetrics::new(Inspector::new(client.redis().clone())))
        .registry(own)
        .bind("127.0.0.1:0") // a fixed port in real life
        .await?;
    let (address, stop) = (endpoint.local_addr()?, CancellationToken::new());
    let served = tokio::spawn(endpoint.serve(stop.clone().cancelled_owned()));

    let router = Router::new(())
        .route("email:", move |_: Job| {
            let mails = mails.clone();
            async move { mails.inc() }
        })
        .route("import:", async |_: Job| Err::<(), Failure>("the file is not there yet".into()));
    let server = Server::new(client.redis().clone(), router).observe(worker.observer()).start().await?;

    let hour = Duration::from_secs(3_600);
    let mail = client.enqueue(RawTask::new("email:welcome").retention(hour)).await?;
    let import = client.enqueue(RawTask::new("import:prices")).await?;
    wait_for(&client, &mail, TaskState::Completed).await?;
    wait_for(&client, &import, TaskState::Retry).await?;
    server.shutdown().await;

    let text = get(address, "/metrics").await?;
    for line in [
        r#"asynq_tasks_enqueued_total{queue="default",state="completed"} 1"#,
        r#"asynq_tasks_failed_total{queue="default"} 1"#,
        r#"asynq_worker_attempts_total{outcome="succeeded",queue="default",type="email:welcome"} 1"#,
        r#"asynq_worker_attempts_total{outcome="retried",queue="default",type="import:prices"} 1"#,
        "shop_mails_total 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is missing in:\n{text}");
        println!("{line}");
    }
    print!("health: {}", get(address, "/healthz").await?);
    stop.cancel();
    served.await??;
    Ok(())
}

/// The body of an answer.
async fn get(address: std::net::SocketAddr, path: &str) -> Result<String, Error> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    Ok(body.to_owned())
}

//! A batch: files that are read, each by a task that adds a task for each of its rows, and a report when all of them have succeeded.
//!
//! `cargo run -p queue-examples --example batch`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use queue::{Batch, BatchState, Failure, Router, Server, State, Task};
use queue_examples::{Error, client};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "import:file")]
struct ImportFile {
    file: u64,
    rows: u64,
}

#[derive(Serialize, Deserialize, Task)]
#[task(type = "import:row")]
struct ImportRow {
    file: u64,
    row: u64,
}

#[derive(Serialize, Deserialize, Task)]
#[task(type = "import:report")]
struct Report {
    month: u32,
}

/// What has been imported.
#[derive(Clone, Default)]
struct Imported(Arc<AtomicU64>);

/// While it runs, the batch is open for it. What it adds, it adds once, however often it is tried.
async fn import_file(task: ImportFile, batch: Batch) -> Result<(), Failure> {
    batch.add_all((0..task.rows).map(|row| ImportRow { file: task.file, row })).await?;
    Ok(())
}

async fn import_row(_: ImportRow, State(imported): State<Imported>) {
    imported.0.fetch_add(1, Ordering::Relaxed);
}

async fn report(task: Report, State(imported): State<Imported>) {
    println!("month {}: {} rows are imported", task.month, imported.0.load(Ordering::Relaxed));
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let imported = Imported::default();
    let router = Router::new(imported.clone()).task(import_file).task(import_row).task(report);
    let server = Server::new(client.redis().clone(), router).start().await?;

    for month in 1..=3 {
        let batch = client
            .batch()
            .description(format!("import of month {month}"))
            .on_success(Report { month })
            .add_all((1..=4).map(|file| ImportFile { file, rows: 10 * file }))
            .await?;
        let end = batch.wait(Duration::from_secs(30)).await?;
        println!("batch {}: {} of {} members succeeded", end.id, end.succeeded, end.total);
        assert_eq!((end.state, end.total), (BatchState::Succeeded, 4 + 10 + 20 + 30 + 40));
    }
    server.shutdown().await;
    assert_eq!(imported.0.load(Ordering::Relaxed), 300);
    Ok(())
}

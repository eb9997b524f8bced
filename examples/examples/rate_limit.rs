//! At most two at a time, over all workers: a semaphore, the same as Go's `x/rate`.
//!
//! `cargo run -p queue-examples --example rate_limit`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use queue::{Clock as _, Failure, Job, Router, Semaphore, Server, State, SystemClock, Task, TaskState};
use queue_examples::{Error, client, wait_for};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "report:render", retention = "1h", max_retry = 3)]
struct Render {
    page: u32,
}

#[derive(Clone)]
struct App {
    printer: Semaphore,
    /// How many render now.
    busy: Arc<AtomicUsize>,
}

async fn render(task: Render, State(app): State<App>, job: Job) -> Result<(), Failure> {
    // Held in the name of the task until the deadline of this attempt, or until the permit is dropped.
    let Some(permit) = job.acquire(&app.printer).await? else {
        // Waits without spending a retry.
        return Err(Failure::snooze(Duration::from_secs(1), "the printer is busy"));
    };
    let busy = app.busy.fetch_add(1, Ordering::SeqCst) + 1;
    assert!(busy <= 2, "{busy} render at the same time");
    println!("page {} beside {}", task.page, busy - 1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    app.busy.fetch_sub(1, Ordering::SeqCst);
    permit.release().await?; // dropping it would do, too
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let printer = Semaphore::new(client.redis().clone(), "printer", 2);

    // Outside of handlers a token has any name.
    let maintenance = printer.acquire("maintenance", SystemClock.now() + Duration::from_secs(60)).await?;
    println!("{} of {} tokens are held", printer.held().await?, printer.tokens());
    drop(maintenance); // gives it back

    let router = Router::new(App { printer, busy: Arc::default() }).task(render);
    let server = Server::new(client.redis().clone(), router).concurrency(4).start().await?;
    let mut pages = Vec::new();
    for page in 1..=6 {
        pages.push(client.enqueue(Render { page }).await?);
    }
    for page in &pages {
        let done = wait_for(&client, page, TaskState::Completed).await?;
        assert_eq!(done.retried, 0);
    }
    server.shutdown().await;
    Ok(())
}

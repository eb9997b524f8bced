//! A great many tasks in constant memory: they come from an iterator, and what became of each goes as a stream.
//!
//! `cargo run -p queue-examples --example many`, or `… --example many 1000000`

use futures_util::{StreamExt as _, stream};
use queue::RawTask;
use queue::admin::Inspector;
use queue_examples::{Error, client};

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(|| queue::Stderr).init();
    let (client, _redis) = client().await?;
    let users = std::env::args().nth(1).map_or(Ok(20_000), |number| number.parse::<usize>())?;
    let payload = |user| format!(r#"{{"user":{user},"text":"{}"}}"#, "Good morning! ".repeat(8));
    let tasks = (0..users).map(|user| RawTask::new("email:news").queue("mail").payload(payload(user)));

    let mut outcomes = std::pin::pin!(client.enqueue_stream(stream::iter(tasks)));
    let mut enqueued = 0;
    while let Some(outcome) = outcomes.next().await {
        match outcome {
            Ok(_) => enqueued += 1,
            Err(error) => println!("refused: {error}"),
        }
    }
    let waiting = Inspector::new(client.redis().clone()).queue("mail").await?.pending;
    println!("{enqueued} tasks were enqueued, {waiting} wait in the queue");
    queue::Stderr.flush_within(std::time::Duration::from_secs(1));
    Ok(())
}

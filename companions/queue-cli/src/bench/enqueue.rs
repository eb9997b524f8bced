use std::time::Instant;

use futures_util::future::try_join_all;
use queue_redis::Client;

use super::{Calling, Speed, task};
use crate::error::CliError;
use crate::session::Session;

/// Enqueues as asked; the speed is that of all callers together.
pub(super) async fn run(session: &Session, queue: &str, calling: &Calling) -> Result<Speed, CliError> {
    let client = Client::new(session.redis().clone());
    client.redis().ping().await?;
    let started = Instant::now();
    let callers = (0..calling.callers).map(|caller| {
        let share = calling.tasks / calling.callers + u64::from(caller < calling.tasks % calling.callers);
        // Tasks of their own, as in a service that serves requests.
        let caller = tokio::spawn(call(client.clone(), queue.to_owned(), share, calling.batch, calling.payload));
        async move { caller.await.map_err(|error| CliError::failed(error.to_string()))? }
    });
    try_join_all(callers).await?;
    Ok(Speed::new(calling.tasks, started))
}

async fn call(client: Client, queue: String, mut left: u64, batch: u64, payload: usize) -> Result<(), CliError> {
    let payload = vec![b'x'; payload];
    while left > 0 {
        let count = left.min(batch);
        if count == 1 {
            client.enqueue(task(&queue, payload.clone())).await?;
        } else {
            for outcome in client.enqueue_many((0..count).map(|_| task(&queue, payload.clone()))).await {
                outcome?;
            }
        }
        left -= count;
    }
    Ok(())
}

//! `interop-peer batch`: makes a batch, and prints its id.

use std::time::Duration;

use queue_core::RawTask;
use queue_redis::{Client, Redis};

use crate::Outcome;

#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    #[arg(long)]
    redis: String,
    /// Queue of the members and callbacks.
    #[arg(long)]
    queue: String,
    /// Type of the members.
    #[arg(long, default_value = "ok")]
    r#type: String,
    #[arg(long)]
    members: usize,
    /// Makes the members due so much later.
    #[arg(long, default_value_t = 0)]
    in_secs: u64,
}

pub(crate) async fn run(settings: Settings) -> Outcome {
    let client = Client::new(Redis::connect(&settings.redis).await?);
    let task = |r#type: &str| RawTask::new(r#type).queue(&settings.queue);
    let member = |number: usize| task(&settings.r#type).payload(number.to_string()).max_retry(1);
    let delay = Duration::from_secs(settings.in_secs);
    let members = (0..settings.members).map(member).map(|it| if delay.is_zero() { it } else { it.process_in(delay) });
    let batch = client.batch().on_success(task("success")).on_death(task("death"));
    println!("{}", batch.add_all(members).await?.id());
    Ok(())
}

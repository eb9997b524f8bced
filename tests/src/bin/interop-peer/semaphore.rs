//! `interop-peer semaphore`: one call, the answer as `true` or `false`.

use std::time::Duration;

use queue_core::{Clock as _, SystemClock};
use queue_redis::{Redis, Semaphore};

use crate::Outcome;

#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    #[arg(long)]
    redis: String,
    #[arg(long)]
    scope: String,
    #[arg(long)]
    tokens: u32,
    #[command(subcommand)]
    call: Call,
}

#[derive(Debug, clap::Subcommand)]
enum Call {
    /// Takes a token and keeps it.
    Acquire { holder: String, secs: u64 },
    /// Gives it back.
    Release { holder: String },
}

pub(crate) async fn run(settings: Settings) -> Outcome {
    let semaphore = Semaphore::new(Redis::connect(&settings.redis).await?, settings.scope, settings.tokens);
    let answer = match settings.call {
        Call::Acquire { holder, secs } => {
            let permit = semaphore.acquire(&holder, SystemClock.now() + Duration::from_secs(secs)).await?;
            let taken = permit.is_some();
            // Whoever drops a permit gives the token back.
            std::mem::forget(permit);
            taken
        }
        Call::Release { holder } => semaphore.release(&holder).await?,
    };
    println!("{answer}");
    Ok(())
}

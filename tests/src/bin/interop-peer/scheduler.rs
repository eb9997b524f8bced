//! `interop-peer scheduler`: entries from the command line, until TERM.

use std::time::Duration;

use clap::Args;
use queue_core::RawTask;
use queue_redis::Redis;
use queue_scheduler::{Entry, Scheduler};

use crate::Outcome;

#[derive(Debug, Args)]
pub(crate) struct Settings {
    #[arg(long)]
    redis: String,
    /// `NAME=SPEC=TYPE=QUEUE`; the payload is the name, with some options.
    #[arg(long = "entry")]
    entries: Vec<String>,
}

pub(crate) async fn run(settings: Settings) -> Outcome {
    let scheduler = Scheduler::new(Redis::connect(&settings.redis).await?);
    for entry in &settings.entries {
        let [name, spec, task_type, queue] = entry.split('=').collect::<Vec<_>>()[..] else {
            return Err(format!("{entry:?} is not NAME=SPEC=TYPE=QUEUE").into());
        };
        let task = RawTask::new(task_type).queue(queue).payload(name.to_owned()).max_retry(3);
        let task = task.timeout(Duration::from_secs(90)).retention(Duration::from_secs(3_600));
        scheduler.register(Entry::new(spec, task).name(name))?;
    }
    scheduler.run().await?;
    Ok(())
}

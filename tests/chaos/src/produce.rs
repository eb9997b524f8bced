//! A producer: enqueues tasks at a steady rate with the public client, and notes what it was told.

use std::time::Duration;

use futures_util::future::join_all;
use queue_redis::broker::{Canceled, Change};
use queue_redis::{EnqueueError, TaskHandle};
use tokio::signal::unix::{SignalKind, signal};

use crate::ledger::{Book, Step};
use crate::name::{Name, Plan};
use crate::{Failure, Seat};

const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    seat: Seat,
    #[arg(long)]
    seed: u64,
    /// Tasks per second.
    #[arg(long)]
    rate: u32,
    /// Ends after so many.
    #[arg(long, default_value_t = u32::MAX)]
    tasks: u32,
}

/// Runs until it has enqueued all its tasks, or is told to end.
pub(crate) async fn run(settings: Settings) -> Result<(), Failure> {
    let mut end = signal(SignalKind::terminate())?;
    let (book, client) = settings.seat.take()?;
    let mut ticks = tokio::time::interval(TICK);
    // After an outage it goes on at its rate, and does not make up for what it missed.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let per_tick = (settings.rate / 10).max(1);
    let mut next = 0;
    while next < settings.tasks {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = end.recv() => return Ok(()),
        }
        let last = settings.tasks.min(next + per_tick);
        let names: Vec<Name> = (next..last).map(|n| Name::draw(settings.seed, settings.seat.process, n)).collect();
        // Every other time one by one, as a service does that has many callers.
        let one_by_one = (next / per_tick).is_multiple_of(2);
        next = last;
        book.note(Step::Intent, &names);
        let outcomes: Vec<_> = if one_by_one {
            join_all(names.iter().map(|name| client.enqueue(name.task()))).await
        } else {
            client.enqueue_many(names.iter().map(|name| name.task())).await
        };
        for (name, outcome) in names.iter().zip(&outcomes) {
            if let (Plan::Unwanted, Ok(task)) = (name.plan, outcome) {
                tokio::spawn(cancel(client.handle(name.queue_name(), &*task.id), book.clone(), *name));
            }
        }
        let steps = outcomes.iter().map(|outcome| match outcome {
            Ok(_) => Step::Stored,
            Err(error) => step(error),
        });
        book.write(steps.zip(names));
    }
    Ok(())
}

/// Cancels a task for good, and notes whether it is certain that it does not start any more.
async fn cancel(task: TaskHandle, book: Book, name: Name) {
    tokio::time::sleep(name.unwanted_after()).await;
    book.note(Step::Asked, &[name]);
    if matches!(task.cancel("chaos").await, Ok(Canceled::Archived(Change::Applied))) {
        book.note(Step::Cancelled, &[name]);
    }
}

fn step(error: &EnqueueError) -> Step {
    match error {
        EnqueueError::DuplicateTask { .. } | EnqueueError::TaskIdConflict { .. } => Step::Duplicate,
        EnqueueError::Redis(error) if error.is_ambiguous() => Step::Unknown,
        error => {
            eprintln!("refused: {error}");
            Step::Refused
        }
    }
}

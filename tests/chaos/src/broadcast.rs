//! A sender of broadcasts, to all live servers and to some of them.

use std::time::{Duration, Instant};

use queue_redis::{BatchError, Broadcast, Client, To};
use tokio::signal::unix::{SignalKind, signal};

use crate::batch::{LINGER, TRIES};
use crate::ledger::{Book, Step};
use crate::name::{Name, Plan};
use crate::{Failure, Seat};

/// How many servers some of them are for.
const SOME: u32 = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    seat: Seat,
    /// Broadcasts per minute.
    #[arg(long)]
    rate: u32,
}

/// The name of the server in this slot of the fleet.
pub(crate) fn server_name(slot: usize) -> String {
    format!("worker-{slot}")
}

/// The id of the broadcast that a task belongs to.
pub(crate) fn id(name: Name) -> String {
    format!("b{}-{}", name.producer, name.number)
}

fn callback(name: Name) -> Name {
    Name { plan: Plan::AfterEverywhere, ..name }
}

/// Runs until it is told to end.
pub(crate) async fn run(settings: Settings) -> Result<(), Failure> {
    let mut end = signal(SignalKind::terminate())?;
    let (book, client) = settings.seat.take()?;
    let mut ticks = tokio::time::interval(Duration::from_secs(60) / settings.rate.max(1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for number in 0.. {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = end.recv() => break,
        }
        let queue = (number % 4) as u8;
        let name = Name { plan: Plan::Everywhere, queue, producer: settings.seat.process, number };
        send_until_it_is_there(&client, &book, name).await;
    }
    Ok(())
}

async fn send_until_it_is_there(client: &Client, book: &Book, name: Name) {
    book.note(Step::Intent, &[name, callback(name)]);
    let begun = Instant::now();
    loop {
        match send(client, name).await {
            Ok(sent) => {
                book.note(Step::Chosen(mask(sent.servers())), &[name]);
                return book.note(Step::Stored, &[name, callback(name)]);
            }
            // For ten seconds after a kill, a server that was started again looks like two.
            Err(error) if begun.elapsed() > TRIES => {
                eprintln!("broadcast {} is left as it is: {error}", id(name));
                return book.note(Step::Unknown, &[name, callback(name)]);
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn send(client: &Client, name: Name) -> Result<Broadcast, BatchError> {
    let to = if name.number.is_multiple_of(2) { To::live() } else { To::count(SOME) };
    let broadcast = client.broadcast(name.task_of_batch()).to(to).id(id(name)).linger(LINGER);
    broadcast.on_settled(callback(name).task_of_batch()).send().await
}

/// A bit for each server.
fn mask(servers: &[String]) -> u16 {
    let is_one = |slot: &usize| servers.contains(&server_name(*slot));
    (0..16).filter(is_one).fold(0, |mask, slot| mask | 1 << slot)
}

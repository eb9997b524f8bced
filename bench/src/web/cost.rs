//! What an answer costs Redis, from its own books: what else the machine does changes none of it but the times.
//!
//! An answer is asked for nine times while Redis notes all commands, those within scripts too. Of every command the shortest of the
//! nine times counts, and of these the longest.

use std::fmt;
use std::time::Duration;

use super::quantile;
use super::site::Site;
use crate::Failure;
use crate::server::Server;

/// How often an answer is asked for.
const LOOKS: usize = 9;
/// No command takes so long, in microseconds.
const NEVER: u64 = 60_000_000;

pub(super) struct Cost {
    commands: usize,
    /// How often Redis has read from a connection: round trips, or more than one in the same.
    reads: f64,
    longest_micros: u64,
    longest: String,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commands, reads, longest_micros, longest } = self;
        write!(f, "{commands} commands in {reads} reads, {longest} {longest_micros} µs")
    }
}

/// What an answer costs Redis; it is asked for again after this pause.
pub(super) async fn cost(server: &mut Server, site: &mut Site, path: &str, pause: Duration) -> Result<Cost, Failure> {
    // Connections are made and scripts are loaded.
    site.timed(path).await?;
    let mut looks: Vec<Vec<(String, u64)>> = Vec::new();
    let mut reads = Vec::new();
    server.watch_slow_calls(0).await?;
    for _ in 0..LOOKS {
        tokio::time::sleep(pause).await;
        server.forget_slow_calls().await?;
        let before = server.info("stats", "total_reads_processed").await?;
        site.timed(path).await?;
        // What asks for the number is one of them.
        reads.push(server.info("stats", "total_reads_processed").await? - before - 1.0);
        looks.push(server.all_calls().await?);
    }
    server.watch_slow_calls(NEVER).await?;
    // A dashboard looks for operations now and then, too.
    let commands = looks.iter().map(Vec::len).min().unwrap_or(0);
    looks.retain(|look| look.len() == commands);
    let shortest = (0..commands).map(|at| {
        let of_all = looks.iter().map(|look| look[at].1).min().unwrap_or(0);
        (of_all, looks[0][at].0.clone())
    });
    let (longest_micros, longest) = shortest.max().unwrap_or_default();
    Ok(Cost { commands, reads: quantile(&mut reads, 0.0), longest_micros, longest })
}

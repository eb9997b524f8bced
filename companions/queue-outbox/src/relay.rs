//! Takes rows of an outbox to Redis, pass after pass.

use std::time::{Duration, Instant};

use queue_core::limits::OUTBOX_CLAIM;
use queue_redis::Client;
use tokio::time::sleep;
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::database::{Connection, Database, DatabaseError};
use crate::pass::Course;

/// How long a pass may go on when the relay is to end.
const LAST_PASS: Duration = Duration::from_secs(5);

/// How long to wait when nothing waits.
const POLL: Duration = Duration::from_millis(100);

/// Pauses after failures: the first, which doubles, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Takes what is committed in an outbox to Redis.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use queue_outbox::{CancellationToken, Database, Relay};
/// use queue_redis::Client;
///
/// let client = Client::connect("redis://127.0.0.1:6379").await?;
/// let relay = Relay::new(Database::new("postgres://shop@localhost/shop")?, client);
/// let quiet = CancellationToken::new();
/// relay.run(&quiet).await?; // until somebody cancels it
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Relay {
    pub(crate) database: Database,
    pub(crate) client: Client,
    poll: Duration,
    pub(crate) claim: Duration,
}

/// What a relay has done with some rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Passed {
    /// Enqueued, now or by somebody who did not come to delete the row.
    pub relayed: usize,
    /// Not enqueued, because another task holds the uniqueness lock; the rows are gone.
    pub duplicates: usize,
    /// Never to be enqueued; the rows stay, with the reason.
    pub refused: usize,
    /// Still to be relayed, because Redis refuses to change their queue, or they did not reach it in time.
    pub left: usize,
}

impl Passed {
    pub(crate) fn rows(self) -> usize {
        self.relayed + self.duplicates + self.refused + self.left
    }
}

impl std::ops::AddAssign for Passed {
    fn add_assign(&mut self, more: Self) {
        self.relayed += more.relayed;
        self.duplicates += more.duplicates;
        self.refused += more.refused;
        self.left += more.left;
    }
}

/// Why rows are not relayed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The database cannot be asked, or has no outbox.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Redis cannot be asked.
    #[error(transparent)]
    Redis(#[from] queue_redis::Error),
}

queue_core::debug_as_text!(RelayError);

impl Relay {
    /// A relay from there to the Redis of this client. Rows that were written in words go through the client's interceptors; those of an
    /// [`Outbox`](crate::Outbox) have gone through those of theirs.
    pub fn new(database: Database, client: Client) -> Self {
        Self { database, client, poll: POLL, claim: OUTBOX_CLAIM }
    }

    /// How long rows may be on their way, 30 s at the most. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn claim(mut self, within: Duration) -> Self {
        self.claim = within;
        self
    }

    /// How long it waits before it looks again when there was nothing; a row waits for half of this on average. Defaults to 100 ms.
    #[must_use]
    pub fn poll(mut self, interval: Duration) -> Self {
        self.poll = interval;
        self
    }

    /// Relays rows until it is told to be quiet; what is under way then ends, or is given up after 5 s. Outages of either side are waited for.
    ///
    /// # Errors
    /// When, at the start, the database cannot be reached or has no outbox that the user may relay.
    pub async fn run(&self, quiet: &CancellationToken) -> Result<(), RelayError> {
        self.database.check().await?;
        let (mut connection, mut course) = (None, Course::default());
        let (mut failures, mut outage) = (0_u32, None::<(Instant, String)>);
        while !quiet.is_cancelled() {
            // Wherever a pass is dropped, it loses and doubles nothing.
            let hurry = async {
                quiet.cancelled().await;
                sleep(LAST_PASS).await;
            };
            let passed = tokio::select! {
                passed = self.pass(&mut connection, &mut course, i64::MAX) => passed,
                () = hurry => break,
            };
            let pause = match passed {
                Ok(passed) => {
                    if let Some((since, _)) = outage.take() {
                        info!(seconds = since.elapsed().as_secs(), "relaying again");
                    }
                    failures = 0;
                    if passed.rows() > passed.left { Duration::ZERO } else { self.poll }
                }
                Err(failure) => {
                    connection = None;
                    let (since, told) = outage.get_or_insert_with(|| (Instant::now(), String::new()));
                    let why = failure.to_string();
                    if *told != why {
                        error!(error = why, seconds = since.elapsed().as_secs(), "cannot relay; it is tried again");
                        *told = why;
                    }
                    let ceiling = PAUSES.0.saturating_mul(1 << failures.min(16)).min(PAUSES.1);
                    failures = failures.saturating_add(1);
                    ceiling.mul_f64(0.5 + fastrand::f64() / 2.0)
                }
            };
            quiet.run_until_cancelled(sleep(pause)).await;
        }
        Ok(())
    }

    /// Relays what waits by now, and says what became of it. What is written meanwhile is left for later.
    ///
    /// # Errors
    /// When the database cannot be reached or has no outbox, or Redis cannot be asked.
    pub async fn run_once(&self) -> Result<Passed, RelayError> {
        self.database.check().await?;
        let client = self.database.connect().await?;
        let newest = "SELECT COALESCE(max(seq), 0)::bigint FROM queue_outbox";
        let last: i64 = self.database.told(client.query_typed_one(newest, &[])).await?.get(0);
        let (mut connection, mut course, mut all) = (Some(client), Course::default(), Passed::default());
        loop {
            let known = course.known();
            let passed = self.pass(&mut connection, &mut course, last).await?;
            all += passed;
            if passed.rows() == passed.left && course.known() == known {
                break;
            }
        }
        if all.left > 0 {
            // Not all of them were looked at, or some again and again.
            let waiting = "SELECT count(*) FROM queue_outbox WHERE refusal IS NULL AND seq <= $1";
            let client = self.connected(&mut connection).await?;
            let left = self.database.told(client.query_typed_one(waiting, &[(&last, Type::INT8)])).await?;
            all.left = usize::try_from(left.get::<_, i64>(0)).unwrap_or(0);
        }
        Ok(all)
    }

    pub(crate) async fn connected<'a>(
        &self,
        connection: &'a mut Option<Connection>,
    ) -> Result<&'a mut Connection, DatabaseError> {
        Ok(match connection {
            Some(connection) => connection,
            None => connection.insert(self.database.connect().await?),
        })
    }
}

//! Takes rows of an outbox to Redis.
//!
//! A pass locks rows in a transaction, so that any number of relays may run; stores their tasks in Redis, each once by the row's id
//! ([`Client::claim_once`]); deletes the rows, and commits. Whatever dies in between, the rows are still there, and Redis remembers what it has.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use queue_admin::line;
use queue_core::limits::OUTBOX_CLAIM;
use queue_core::options::{Composed, ProcessTime};
use queue_redis::{Client, EnqueueError, EnqueuedOnce};
use tokio::time::sleep;
use tokio_postgres::types::Type;
use tokio_postgres::{Client as Connection, Transaction};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::database::{Database, DatabaseError};
use crate::row;

/// How long a pass may go on when the relay is to end.
const LAST_PASS: Duration = Duration::from_secs(5);

/// How long to wait when nothing waits.
const POLL: Duration = Duration::from_millis(100);

/// The most rows of a pass.
const MOST: i64 = 500;

/// And bytes, but for a row that is larger alone.
const MOST_BYTES: i64 = 4 * 1024 * 1024;

/// How long the rows of a queue are left alone that Redis refuses to change, for example because one of its keys has a wrong type.
const REFUSED_FOR: Duration = Duration::from_secs(5);

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
    database: Database,
    client: Client,
    poll: Duration,
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
    /// Still to be relayed, because Redis refuses to change their queue.
    pub left: usize,
}

impl Passed {
    fn rows(self) -> usize {
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

/// A row that is locked.
struct Locked {
    seq: i64,
    id: String,
    text: String,
    /// Seconds since it was written.
    age: f64,
}

/// The queues that Redis refuses to change, as rows name them, and until when they are left alone.
type LeftAlone = HashMap<String, Instant>;

impl Relay {
    /// A relay from there to the Redis of this client. Rows that were written in words go through the client's interceptors; those of an
    /// [`Outbox`](crate::Outbox) have gone through those of theirs.
    pub fn new(database: Database, client: Client) -> Self {
        Self { database, client, poll: POLL }
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
    /// When, at the start, the database cannot be reached or has no outbox.
    pub async fn run(&self, quiet: &CancellationToken) -> Result<(), RelayError> {
        self.database.check().await?;
        let (mut connection, mut left_alone) = (None, LeftAlone::new());
        let (mut failures, mut outage) = (0_u32, None::<Instant>);
        while !quiet.is_cancelled() {
            // Wherever a pass is dropped, it loses and doubles nothing.
            let hurry = async {
                quiet.cancelled().await;
                sleep(LAST_PASS).await;
            };
            let passed = tokio::select! {
                passed = self.pass(&mut connection, &mut left_alone) => passed,
                () = hurry => break,
            };
            let pause = match passed {
                Ok(passed) => {
                    if let Some(since) = outage.take() {
                        info!(seconds = since.elapsed().as_secs(), "relaying again");
                    }
                    failures = 0;
                    if passed.rows() > passed.left { Duration::ZERO } else { self.poll }
                }
                Err(failure) => {
                    connection = None;
                    if outage.is_none() {
                        outage = Some(Instant::now());
                        error!(error = %failure, "cannot relay; it is tried again");
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

    /// Relays what waits by now, and says what became of it.
    ///
    /// # Errors
    /// When the database cannot be reached or has no outbox, or Redis cannot be asked.
    pub async fn run_once(&self) -> Result<Passed, RelayError> {
        let (mut connection, mut left_alone, mut all) = (None, LeftAlone::new(), Passed::default());
        loop {
            let passed = self.pass(&mut connection, &mut left_alone).await?;
            all += passed;
            if passed.rows() == 0 {
                return Ok(all);
            }
        }
    }

    /// Relays some rows.
    async fn pass(
        &self,
        connection: &mut Option<Connection>,
        left_alone: &mut LeftAlone,
    ) -> Result<Passed, RelayError> {
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(self.database.connect().await?),
        };
        let now = Instant::now();
        left_alone.retain(|_, until| *until > now);
        let transaction = self.database.told(connection.transaction().await)?;
        let names: Vec<&str> = left_alone.keys().map(String::as_str).collect();
        let rows = self.database.told(lock(&transaction, &names).await)?;
        if rows.is_empty() {
            return Ok(Passed::default());
        }
        // Its time begins after the rows were locked.
        let claim = self.client.claim_once(OUTBOX_CLAIM).await?;
        let (mut passed, mut settled, mut outage) = (Passed::default(), Settled::default(), None);
        let (mut tasks, mut named) = (Vec::new(), Vec::new());
        for row in rows {
            match self.composed(&row) {
                Ok(task) => {
                    named.push((row.seq, row.id.clone(), task.message.queue.clone(), name_of_queue(&row.text)));
                    tasks.push((row.id, task));
                }
                Err(why) => settled.refused.push((row.seq, why)),
            }
        }
        let mut keys = Vec::new();
        for ((seq, id, queue, name), outcome) in named.into_iter().zip(claim.enqueue(tasks).await) {
            match outcome {
                Ok(EnqueuedOnce::Now | EnqueuedOnce::Before) => {
                    passed.relayed += 1;
                    settled.gone.push(seq);
                    keys.push((queue, id));
                }
                Ok(EnqueuedOnce::TooLate) => passed.left += 1,
                Err(EnqueueError::DuplicateTask { .. }) => {
                    passed.duplicates += 1;
                    settled.gone.push(seq);
                }
                // Of a cluster, a node may be away: the queues of the others go on.
                Err(EnqueueError::Redis(error)) => {
                    passed.left += 1;
                    if left_alone.insert(name, now + REFUSED_FOR).is_none() && !error.is_outage() {
                        warn!(queue, %error, "Redis refuses to change a queue; its rows are left where they are, and tried again");
                    }
                    outage = outage.or(Some(error).filter(queue_redis::Error::is_outage));
                }
                Err(error) => settled.refused.push((seq, error.to_string())),
            }
        }
        passed.refused = settled.refused.len();
        if let Some(error) = outage.filter(|_| passed.rows() == passed.left) {
            left_alone.clear();
            return Err(error.into());
        }
        self.database.told(settled.write(&transaction).await)?;
        self.database.told(transaction.commit().await)?;
        for (seq, why) in settled.refused {
            warn!(row = seq, why, "a row can never be enqueued; it stays in the outbox");
        }
        if let Err(error) = claim.confirm(keys).await {
            warn!(%error, "Redis was not told that rows are gone; it remembers them for a day");
        }
        Ok(passed)
    }

    /// The task of a row, or why there can be none.
    fn composed(&self, row: &Locked) -> Result<Composed, String> {
        if let Some(written) = row::read(&row.text) {
            return written;
        }
        let mut task = line::parse(row.text.as_bytes())?;
        // A delay counts from when the row was written.
        if let Some(ProcessTime::In(delay)) = &mut task.options.process {
            *delay = delay.saturating_sub(Duration::try_from_secs_f64(row.age).unwrap_or_default());
        }
        task.options.task_id.get_or_insert_with(|| row.id.clone());
        self.client.compose(task).map_err(|error| error.to_string())
    }
}

/// The queue that a row names; as SQL sees it in [`lock`].
fn name_of_queue(text: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Named {
        queue: Option<String>,
    }
    let named = serde_json::from_str::<Named>(text).ok().and_then(|named| named.queue);
    named.unwrap_or_else(|| "default".to_owned())
}

/// Locks rows that wait and that nobody else has locked, but those of these queues, and reads as many of them as have so many bytes.
async fn lock(transaction: &Transaction<'_>, but: &[&str]) -> Result<Vec<Locked>, tokio_postgres::Error> {
    // Of a relay whose machine is gone, others would wait for these rows until TCP gives up.
    transaction.batch_execute("SET LOCAL idle_in_transaction_session_timeout = '60s'").await?;
    let lock = "SELECT seq::bigint, octet_length(task::text) FROM queue_outbox WHERE refusal IS NULL \
                AND (cardinality($1) = 0 OR COALESCE(task->>'queue', 'default') <> ALL ($1)) ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED";
    let locked = transaction.query_typed(lock, &[(&but, Type::TEXT_ARRAY), (&MOST, Type::INT8)]).await?;
    let (mut rows, mut bytes): (Vec<i64>, i64) = Default::default();
    for row in &locked {
        bytes += i64::from(row.get::<_, i32>(1));
        if bytes > MOST_BYTES && !rows.is_empty() {
            break;
        }
        rows.push(row.get(0));
    }
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    // An instant that is infinite cannot be subtracted.
    let read = "SELECT seq::bigint, id::text, task::text, \
                CASE WHEN isfinite(created_at) THEN extract(epoch FROM clock_timestamp() - created_at)::float8 ELSE 0 END \
                FROM queue_outbox WHERE seq = ANY ($1) ORDER BY seq";
    let rows = transaction.query_typed(read, &[(&rows, Type::INT8_ARRAY)]).await?;
    let locked = rows.iter().map(|row| Locked { seq: row.get(0), id: row.get(1), text: row.get(2), age: row.get(3) });
    Ok(locked.collect())
}

/// What becomes of rows that were locked.
#[derive(Default)]
struct Settled {
    /// They are done with.
    gone: Vec<i64>,
    /// Each with the reason.
    refused: Vec<(i64, String)>,
}

impl Settled {
    async fn write(&self, transaction: &Transaction<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.gone.is_empty() {
            let delete = "DELETE FROM queue_outbox WHERE seq = ANY ($1)";
            transaction.execute_typed(delete, &[(&self.gone, Type::INT8_ARRAY)]).await?;
        }
        if !self.refused.is_empty() {
            let (rows, why): (Vec<i64>, Vec<&str>) = self.refused.iter().map(|(row, why)| (*row, &**why)).unzip();
            let note = "UPDATE queue_outbox SET refusal = told.why, refused_at = now() \
                        FROM unnest($1::bigint[], $2::text[]) AS told (seq, why) WHERE queue_outbox.seq = told.seq";
            transaction.execute_typed(note, &[(&rows, Type::INT8_ARRAY), (&why, Type::TEXT_ARRAY)]).await?;
        }
        Ok(())
    }
}

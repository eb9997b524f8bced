//! Takes rows of an outbox to Redis.
//!
//! A pass claims 30 s of Redis ([`Client::claim_once`]); locks rows in a transaction, so that any number of relays may run; stores their tasks in
//! Redis, each once by the row's id; deletes the rows, and commits. Whatever dies in between, the rows are still there, and Redis remembers what it has.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use queue_admin::flow::{self, Flow};
use queue_admin::line;
use queue_core::RawTask;
use queue_core::limits::{OUTBOX_CLAIM, STORED_ONCE_AT_LEAST};
use queue_core::options::{Composed, ProcessTime};
use queue_redis::{BatchError, Client, EnqueueError, EnqueuedOnce};
use tokio::time::sleep;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{IsolationLevel, Transaction};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::database::{Connection, Database, DatabaseError, bytes_of};
use crate::row::{self, Form};

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

/// The same where a node of a cluster does not answer: each time, all others wait for as long as it may be silent.
const AWAY_FOR: Duration = Duration::from_secs(30);

/// How long a row is left alone that does not reach Redis in time: others would wait as long as each attempt takes.
const LATE_FOR: Duration = Duration::from_secs(300);

/// Most letters of a reason that stays with its row.
const MOST_REASON: usize = 1_000;

/// Pauses after failures: the first, which doubles, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Of a transaction. Rows of a relay whose machine is gone would be locked until TCP gives up; one that waits for a table that somebody has
/// locked would wait on when nobody waits for it any more, and then the next one beside it; and who has no statistics of the table yet would sort
/// all rows of a backlog at each pass, and not go by the index.
const SETTINGS: &str = "SET LOCAL idle_in_transaction_session_timeout = '60s'; SET LOCAL tcp_user_timeout = '60s'; \
                        SET LOCAL lock_timeout = '20s'; SET LOCAL enable_sort = off";

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
    claim: Duration,
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
    /// As the row names it; blank for a batch.
    queue: String,
}

/// What a row says.
struct Said {
    text: Result<String, &'static str>,
    /// Seconds since it was written.
    age: f64,
}

enum Content {
    Task(Box<Composed>),
    Flow(Box<Flow>),
}

/// What becomes of a row.
enum Fate {
    /// Its task is enqueued, in this queue, which remembers it; or its batch is made.
    Relayed(Option<String>),
    Duplicate,
    TooLate,
    Refused(String),
    Redis(queue_redis::Error),
}

impl Fate {
    fn of(stored: Result<EnqueuedOnce, EnqueueError>, queue: String) -> Self {
        match stored {
            Ok(EnqueuedOnce::Now | EnqueuedOnce::Before) => Self::Relayed(Some(queue)),
            Ok(EnqueuedOnce::TooLate) => Self::TooLate,
            Err(EnqueueError::DuplicateTask { .. }) => Self::Duplicate,
            Err(EnqueueError::Redis(error)) => Self::Redis(error),
            Err(error) => Self::Refused(error.to_string()),
        }
    }
}

impl From<BatchError> for Fate {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Redis(error) => Self::Redis(error),
            error => Self::Refused(error.to_string()),
        }
    }
}

/// What a pass has learnt for those after it.
struct Course {
    connection: Option<Connection>,
    /// The queues that Redis refuses to change or cannot be asked about, as rows name them, and until when they are left alone.
    queues: HashMap<String, Instant>,
    /// The same of rows that do not reach Redis in time.
    rows: HashMap<i64, Instant>,
    /// The most bytes of a pass, but for a row that is larger alone: fewer where the way to Redis is slow.
    most_bytes: i64,
}

impl Course {
    fn new(connection: Option<Connection>) -> Self {
        Self { connection, queues: HashMap::new(), rows: HashMap::new(), most_bytes: MOST_BYTES }
    }

    /// Changes when it has learnt something.
    fn known(&self) -> (usize, usize, i64) {
        (self.queues.len(), self.rows.len(), self.most_bytes)
    }
}

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
        let mut course = Course::new(None);
        let (mut failures, mut outage) = (0_u32, None::<(Instant, String)>);
        while !quiet.is_cancelled() {
            // Wherever a pass is dropped, it loses and doubles nothing.
            let hurry = async {
                quiet.cancelled().await;
                sleep(LAST_PASS).await;
            };
            let passed = tokio::select! {
                passed = self.pass(&mut course, i64::MAX) => passed,
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
                    course.connection = None;
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
        let (mut course, mut all) = (Course::new(Some(client)), Passed::default());
        loop {
            let known = course.known();
            let passed = self.pass(&mut course, last).await?;
            all += passed;
            if passed.rows() == passed.left && course.known() == known {
                break;
            }
        }
        if all.left > 0 {
            // Not all of them were looked at, or some again and again.
            let waiting = "SELECT count(*) FROM queue_outbox WHERE refusal IS NULL AND seq <= $1";
            let client = self.connected(&mut course.connection).await?;
            let left = self.database.told(client.query_typed_one(waiting, &[(&last, Type::INT8)])).await?;
            all.left = usize::try_from(left.get::<_, i64>(0)).unwrap_or(0);
        }
        Ok(all)
    }

    async fn connected<'a>(&self, connection: &'a mut Option<Connection>) -> Result<&'a mut Connection, DatabaseError> {
        Ok(match connection {
            Some(connection) => connection,
            None => connection.insert(self.database.connect().await?),
        })
    }

    /// Relays some rows, up to this one.
    async fn pass(&self, course: &mut Course, last: i64) -> Result<Passed, RelayError> {
        let Course { connection, queues, rows: late, most_bytes } = course;
        let connection = self.connected(connection).await?;
        let now = Instant::now();
        queues.retain(|_, until| *until > now);
        late.retain(|_, until| *until > now);
        let but = But { queues: queues.keys().cloned().collect(), rows: late.keys().copied().collect(), last };
        let transaction = connection.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        let transaction = self.database.told(transaction.start()).await?;
        self.database.told(transaction.batch_execute(SETTINGS)).await?;
        if !self.database.told(waits(&transaction, &but)).await? {
            self.database.told(transaction.rollback()).await?;
            return Ok(Passed::default());
        }
        // Before rows are locked: who stands still after that has lost this right before others can have his locks.
        let (began, claim) = (Instant::now(), self.client.claim_once(self.claim).await?);
        let rows = self.database.told(lock(&transaction, &but, *most_bytes)).await?;
        let (count, mut fates) = (rows.len(), Vec::with_capacity(rows.len()));
        let (mut tasks, mut of_tasks, mut flows) = (Vec::new(), Vec::new(), Vec::new());
        for (row, said) in rows {
            match self.read(&row.id, said) {
                Ok(Content::Task(task)) => {
                    let id = row.id.clone();
                    of_tasks.push((row, task.message.queue.clone()));
                    tasks.push((id, *task));
                }
                Ok(Content::Flow(flow)) => flows.push((row, flow)),
                Err(why) => fates.push((row, Fate::Refused(why))),
            }
        }
        let stored = claim.enqueue(tasks).await;
        fates.extend(of_tasks.into_iter().zip(stored).map(|((row, queue), stored)| (row, Fate::of(stored, queue))));
        for (row, flow) in flows {
            let fate = if began.elapsed() >= self.claim {
                Fate::TooLate
            } else {
                flow.make(&self.client).await.map_or_else(Fate::from, |_| Fate::Relayed(None))
            };
            fates.push((row, fate));
        }
        let (mut passed, mut settled, mut outage) = (Passed::default(), Settled::default(), None);
        let (mut keys, mut too_late) = (Vec::new(), Vec::new());
        for (row, fate) in fates {
            match fate {
                Fate::Relayed(queue) => {
                    passed.relayed += 1;
                    settled.gone.push(row.seq);
                    keys.extend(queue.map(|queue| (queue, row.id)));
                }
                Fate::Duplicate => {
                    passed.duplicates += 1;
                    settled.gone.push(row.seq);
                }
                Fate::Refused(why) => settled.refuse(row.seq, &why),
                Fate::TooLate => too_late.push(row.seq),
                Fate::Redis(error) => {
                    passed.left += 1;
                    let is_outage = error.is_outage();
                    let until = Instant::now() + if is_outage { AWAY_FOR } else { REFUSED_FOR };
                    if queues.insert(row.queue.clone(), until).is_none() {
                        let queue = row.queue;
                        warn!(queue, %error, "the rows of a queue are left where they are, and tried again");
                    }
                    outage = outage.or(Some(error).filter(|_| is_outage));
                }
            }
        }
        passed.refused = settled.refused.len();
        passed.left += too_late.len();
        match too_late[..] {
            [row] if count == 1 => {
                warn!(row, "a row does not reach Redis within {:?}; it is tried again after {LATE_FOR:?}", self.claim);
                late.insert(row, Instant::now() + LATE_FOR);
            }
            [_, ..] if too_late.len() == count => *most_bytes /= 2,
            _ => *most_bytes = (*most_bytes * 2).min(MOST_BYTES),
        }
        // Of a cluster, a node may be away: the queues of the others go on.
        if let Some(error) = outage.filter(|_| !self.client.redis().is_cluster()) {
            queues.clear();
            if passed.rows() == passed.left {
                return Err(error.into());
            }
        }
        self.database.told(settled.write(&transaction)).await?;
        self.database.told(transaction.commit()).await?;
        for (row, why) in settled.refused {
            warn!(row, why, "a row can never be enqueued; it stays in the outbox");
        }
        if let Err(error) = claim.confirm(keys).await {
            warn!(%error, "Redis was not told that rows are gone; it remembers them for longer");
        }
        Ok(passed)
    }

    /// What a row with this id asks for, or why that cannot be.
    fn read(&self, id: &str, said: Said) -> Result<Content, String> {
        let text = said.text?;
        // A delay counts from when the row was written.
        let age = Duration::try_from_secs_f64(said.age).unwrap_or_default();
        let since_written = |task: &mut RawTask| {
            if let Some(ProcessTime::In(delay)) = &mut task.options.process {
                *delay = delay.saturating_sub(age);
            }
        };
        let task = match row::form(&text) {
            Form::Message => row::read(&text)?,
            Form::Words => {
                let mut task = line::parse(text.as_bytes())?;
                since_written(&mut task);
                task.options.task_id.get_or_insert_with(|| id.to_owned());
                self.client.compose(task).map_err(|error| error.to_string())?
            }
            Form::Flow => {
                let mut flow = flow::parse(text.as_bytes())?;
                flow.id.get_or_insert_with(|| id.to_owned());
                // As long as the row may come once more.
                flow.linger = flow.linger.map(|time| time.max(STORED_ONCE_AT_LEAST));
                flow.tasks_mut().into_iter().for_each(since_written);
                return Ok(Content::Flow(flow.into()));
            }
        };
        Ok(Content::Task(task.into()))
    }
}

/// The rows that are left out.
struct But {
    queues: Vec<String>,
    rows: Vec<i64>,
    /// Those behind this one.
    last: i64,
}

/// Which rows wait, but those.
const WAIT: &str = "FROM queue_outbox WHERE refusal IS NULL AND queue <> ALL ($1) AND seq <> ALL ($2) AND seq <= $3";

impl But {
    fn arguments(&self) -> [(&(dyn ToSql + Sync), Type); 3] {
        [(&self.queues, Type::TEXT_ARRAY), (&self.rows, Type::INT8_ARRAY), (&self.last, Type::INT8)]
    }
}

/// Whether any wait.
async fn waits(transaction: &Transaction<'_>, but: &But) -> Result<bool, tokio_postgres::Error> {
    let found = transaction.query_typed_one(&format!("SELECT EXISTS (SELECT {WAIT})"), &but.arguments()).await?;
    Ok(found.get(0))
}

/// Locks them, but those that somebody else has locked, and reads as many as have so many bytes.
async fn lock(
    transaction: &Transaction<'_>,
    but: &But,
    most_bytes: i64,
) -> Result<Vec<(Locked, Said)>, tokio_postgres::Error> {
    let lock =
        format!("SELECT seq::bigint, octet_length(task::text) {WAIT} ORDER BY seq LIMIT {MOST} FOR UPDATE SKIP LOCKED");
    let locked = transaction.query_typed(&lock, &but.arguments()).await?;
    let (mut rows, mut bytes): (Vec<i64>, i64) = Default::default();
    for row in &locked {
        bytes += row.get::<_, Option<i32>>(1).map_or(0, i64::from);
        if bytes > most_bytes && !rows.is_empty() {
            break;
        }
        rows.push(row.get(0));
    }
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    // An instant that is infinite cannot be subtracted.
    let read = format!(
        "SELECT seq::bigint, COALESCE(id::text, ''), {}, {}, \
         CASE WHEN isfinite(created_at) THEN extract(epoch FROM clock_timestamp() - created_at)::float8 ELSE 0 END \
         FROM queue_outbox WHERE seq = ANY ($1) ORDER BY seq",
        bytes_of("queue::text"),
        bytes_of("task::text"),
    );
    let rows = transaction.query_typed(&read, &[(&rows, Type::INT8_ARRAY)]).await?;
    let locked = rows.iter().map(|row| {
        let text = String::from_utf8(row.get(3)).map_err(|_| "it is no text in UTF-8");
        let queue = String::from_utf8_lossy(row.get(2)).into_owned();
        (Locked { seq: row.get(0), id: row.get(1), queue }, Said { text, age: row.get(4) })
    });
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
    /// A database of another encoding may lack letters that stand in the reason.
    fn refuse(&mut self, row: i64, why: &str) {
        let ascii = |letter: char| if letter.is_ascii() { vec![letter] } else { letter.escape_unicode().collect() };
        self.refused.push((row, why.chars().take(MOST_REASON).flat_map(ascii).collect()));
    }

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

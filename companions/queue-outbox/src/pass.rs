//! One pass of a relay.
//!
//! It claims 30 s of Redis ([`Client::claim_once`](queue_redis::Client::claim_once)); locks rows in a transaction, so that any number of relays
//! may run; stores their tasks in Redis, each once by the row's id; deletes the rows, and commits. Whatever dies in between, the rows are still there,
//! and Redis remembers what it has.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use queue_admin::flow::{self, Flow};
use queue_admin::line;
use queue_core::RawTask;
use queue_core::limits::STORED_ONCE_AT_LEAST;
use queue_core::options::{Composed, ProcessTime};
use queue_redis::{BatchError, EnqueueError, EnqueuedOnce, OnceClaim};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{IsolationLevel, Transaction};
use tracing::warn;

use crate::database::{Connection, bytes_of};
use crate::relay::{Passed, Relay, RelayError};
use crate::row::{self, Form};

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

/// Of a transaction. Rows of a relay whose machine is gone would be locked until TCP gives up; one that waits for a table that somebody has
/// locked would wait on when nobody waits for it any more, and then the next one beside it; and who has no statistics of the table yet would sort
/// all rows of a backlog at each pass, and not go by the index.
const SETTINGS: &str = "SET LOCAL idle_in_transaction_session_timeout = '60s'; SET LOCAL tcp_user_timeout = '60s'; \
                        SET LOCAL lock_timeout = '20s'; SET LOCAL enable_sort = off";

/// What a pass has learnt for those after it.
pub(crate) struct Course {
    /// The queues that Redis refuses to change or cannot be asked about, as rows name them, and until when they are left alone.
    queues: HashMap<String, Instant>,
    /// The same of rows that do not reach Redis in time.
    rows: HashMap<i64, Instant>,
    /// The most bytes of a pass: fewer where the way to Redis is slow.
    most_bytes: i64,
}

impl Default for Course {
    fn default() -> Self {
        Self { queues: HashMap::new(), rows: HashMap::new(), most_bytes: MOST_BYTES }
    }
}

impl Course {
    /// Changes when it has learnt something.
    pub(crate) fn known(&self) -> (usize, usize, i64) {
        (self.queues.len(), self.rows.len(), self.most_bytes)
    }

    fn but(&mut self, last: i64) -> But {
        let now = Instant::now();
        self.queues.retain(|_, until| *until > now);
        self.rows.retain(|_, until| *until > now);
        But { queues: self.queues.keys().cloned().collect(), rows: self.rows.keys().copied().collect(), last }
    }

    fn settle(&mut self, fates: Vec<(Locked, Fate)>) -> Settled {
        let (count, mut settled, mut late) = (fates.len(), Settled::default(), Vec::new());
        for (row, fate) in fates {
            match fate {
                Fate::Relayed(queue) => {
                    settled.passed.relayed += 1;
                    settled.gone.push(row.seq);
                    settled.keys.extend(queue.map(|queue| (queue, row.id)));
                }
                Fate::Duplicate => {
                    settled.passed.duplicates += 1;
                    settled.gone.push(row.seq);
                }
                Fate::Refused(why) => settled.refuse(row.seq, &why),
                Fate::TooLate => late.push(row.seq),
                Fate::Forgotten => settled.passed.left += 1,
                Fate::Redis(error) => {
                    settled.passed.left += 1;
                    let is_outage = error.is_outage();
                    let until = Instant::now() + if is_outage { AWAY_FOR } else { REFUSED_FOR };
                    if self.queues.insert(row.queue.clone(), until).is_none() {
                        let queue = row.queue;
                        warn!(queue, %error, "the rows of a queue are left where they are, and tried again");
                    }
                    settled.outage = settled.outage.or(Some(error).filter(|_| is_outage));
                }
            }
        }
        settled.passed.left += late.len();
        match late[..] {
            [row] if count == 1 => {
                warn!(row, "a row does not reach Redis in time; it is tried again after {LATE_FOR:?}");
                self.rows.insert(row, Instant::now() + LATE_FOR);
            }
            [_, ..] if late.len() == count => self.most_bytes /= 2,
            _ => self.most_bytes = (self.most_bytes * 2).min(MOST_BYTES),
        }
        settled
    }
}

impl Relay {
    /// Relays some rows, up to this one.
    pub(crate) async fn pass(
        &self,
        connection: &mut Option<Connection>,
        course: &mut Course,
        last: i64,
    ) -> Result<Passed, RelayError> {
        let connection = self.connected(connection).await?;
        let but = course.but(last);
        let transaction = connection.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        let transaction = self.database.told(transaction.start()).await?;
        self.database.told(transaction.batch_execute(SETTINGS)).await?;
        if !self.database.told(waits(&transaction, &but)).await? {
            self.database.told(transaction.rollback()).await?;
            return Ok(Passed::default());
        }
        // Before rows are locked: who stands still after that has lost this right before others can have his locks.
        let (began, claim) = (Instant::now(), self.client.claim_once(self.claim).await?);
        let rows = self.database.told(lock(&transaction, &but, course.most_bytes)).await?;
        let mut settled = course.settle(self.store(rows, &claim, began).await);
        // Of a cluster, a node may be away: the queues of the others go on.
        if let Some(error) = settled.outage.take().filter(|_| !self.client.redis().is_cluster()) {
            course.queues.clear();
            if settled.passed.rows() == settled.passed.left {
                return Err(error.into());
            }
        }
        self.database.told(settled.write(&transaction)).await?;
        self.database.told(transaction.commit()).await?;
        for (row, why) in settled.refused {
            warn!(row, why, "a row can never be enqueued; it stays in the outbox");
        }
        if let Err(error) = claim.confirm(settled.keys).await {
            warn!(%error, "Redis was not told that rows are gone; it remembers them for longer");
        }
        Ok(settled.passed)
    }

    /// Enqueues what rows ask for.
    async fn store(&self, rows: Vec<(Locked, Said)>, claim: &OnceClaim, began: Instant) -> Vec<(Locked, Fate)> {
        let mut fates = Vec::with_capacity(rows.len());
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
        fates
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
    /// Redis has forgotten the batch half-way, as in a failover: it is made anew.
    Forgotten,
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
            BatchError::Unknown { .. } => Self::Forgotten,
            error => Self::Refused(error.to_string()),
        }
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
    passed: Passed,
    /// They are done with.
    gone: Vec<i64>,
    /// Each with the reason.
    refused: Vec<(i64, String)>,
    /// Queue and key of those that a queue remembers.
    keys: Vec<(String, String)>,
    /// The first error of a Redis that is away.
    outage: Option<queue_redis::Error>,
}

impl Settled {
    /// A database of another encoding may lack letters that stand in the reason.
    fn refuse(&mut self, row: i64, why: &str) {
        let ascii = |letter: char| if letter.is_ascii() { vec![letter] } else { letter.escape_unicode().collect() };
        self.passed.refused += 1;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Refused, the row would wait for somebody to look at it.
    #[test]
    fn a_batch_that_redis_has_forgotten_is_not_refused() {
        let row = || Locked { seq: 1, id: "7".to_owned(), queue: String::new() };
        let mut course = Course::default();
        let settled = course.settle(vec![(row(), BatchError::Unknown { id: "7".to_owned() }.into())]);
        assert_eq!((settled.passed.left, settled.gone.len(), settled.refused.len()), (1, 0, 0));
        let settled = course.settle(vec![(row(), BatchError::Closed { id: "7".to_owned() }.into())]);
        assert_eq!((settled.passed.refused, settled.refused.len()), (1, 1));
    }
}

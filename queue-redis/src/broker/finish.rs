//! The end of a run: `done.lua`, `complete.lua`, `retry.lua`, `archive.lua`, `requeue.lua`,
//! `write_fields.lua`, `extend_lease.lua`.

use std::borrow::Borrow;
use std::time::{Duration, Instant};

use bytes::Bytes;
use queue_core::Step;
use queue_core::attempt::Attempt;
use queue_core::crash::{CRASHES, Crashes};
use queue_core::exhausted::FollowUp;
use queue_core::flow::MemberOutcome;
use queue_core::keys::{QueueKeys, utc_day};
use queue_core::limits::{ARCHIVE_MAX, ARCHIVE_MAX_AGE_SECS, STATS_TTL_SECS};
use queue_core::progress::CURSOR;
use queue_core::task_log::{LOG, TaskLog};
use queue_core::unique::UniqueUntil;
use queue_core::wire::TaskMessage;
use redis::{Cmd, ToRedisArgs, Value};

use super::take::{Expiries, OURS_FOR, Run};
use super::tell::Telling;
use super::{Broker, verdicts};
use crate::connection::Connection;
use crate::error::Error;
use crate::script::{ARCHIVE, COMPLETE, DONE, EXTEND_LEASE, REQUEUE, RETRY, Script, TRIM_ARCHIVED, WRITE_FIELDS, Word};

/// A call that takes longer is overtaken by renewals again, which come every 5 s, or every sixth of a lease.
const SLOW: Duration = Duration::from_millis(500);
/// How many seconds ahead of renewals a lease is brought at once, and some to spare.
const GAINED_AT_ONCE: u64 = 30;

/// What became of a report on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was applied.
    Applied,
    /// It had been applied before: the answer to an earlier attempt was lost.
    AlreadyApplied,
    /// The run is no longer the caller's; somebody recovered the task. Nothing was written.
    Lost,
    /// The task no longer exists. Nothing was written.
    Gone,
}

pub(super) fn verdict(word: Word) -> Option<Verdict> {
    match word {
        Word::Applied => Some(Verdict::Applied),
        Word::Same => Some(Verdict::AlreadyApplied),
        Word::Others => Some(Verdict::Lost),
        Word::Missing => Some(Verdict::Gone),
        _ => None,
    }
}

/// The end of the active list at which a lone report looks first; reports in batches find out by themselves. A
/// wrong guess costs time, nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// Among the tasks taken last.
    Youngest,
    /// Among the tasks that run longest.
    #[default]
    Oldest,
}

impl Side {
    fn arg(self) -> i32 {
        match self {
            Side::Youngest => 1,
            Side::Oldest => -1,
        }
    }
}

/// A report on one run.
#[derive(Debug, Clone)]
pub struct Report {
    /// The run.
    pub run: Run,
    /// The lock the task holds; empty for none.
    pub unique_key: String,
    /// Whether archiving the task releases it too.
    pub lock_ends_in_archive: bool,
    /// Where to look for it.
    pub side: Side,
    /// Whether it may have been applied before: its answer was lost.
    pub resent: bool,
    /// What is remembered of the attempt where the task waits for another one, or is archived.
    pub attempt: Option<Box<Attempt>>,
    /// What is enqueued if the task is archived.
    pub follow_up: Option<Box<FollowUp>>,
}

impl Report {
    /// A report by the owner of a run.
    pub fn by_owner(run: Run, message: &TaskMessage, side: Side) -> Self {
        let unique_key = message.unique_key.clone();
        let lock_ends_in_archive = UniqueUntil::of(message).ends_in_archive();
        Self { run, unique_key, lock_ends_in_archive, side, resent: false, attempt: None, follow_up: None }
    }

    /// The attempt, from `started_ns` to `ended_ns`, came to this step; and failed there, if that is known.
    pub fn ended(&mut self, step: &Step, started_ns: i64, ended_ns: i64, backtrace: Option<&str>) {
        self.attempt = Attempt::of(step, started_ns, ended_ns, &self.run.token).map(Box::new);
        if let (Some(attempt), Some(backtrace)) = (&mut self.attempt, backtrace) {
            attempt.set_backtrace(backtrace);
        }
    }

    /// What `lua/lib/owns.lua` needs. The token costs Redis a look at the task, so that the hot scripts
    /// get it only where it makes a difference.
    fn fence(&self, call: &mut Cmd, with_token: bool) {
        let token = if with_token || self.run.is_uncertain() { &self.run.token[..] } else { "" };
        call.arg(self.run.raw_id());
        self.run.with_expiries(call);
        call.arg(token);
    }

    /// Whether a refusal may be due to a renewal, on another connection, that has overtaken the call: the
    /// call has to be made again, with what is known by now.
    fn was_overtaken(&self, verdict: Verdict, known: &Expiries) -> bool {
        verdict == Verdict::Lost && self.run.known() != *known
    }
}

/// A report on a success that is to be kept.
#[derive(Debug, Clone)]
pub struct Completion {
    /// The run.
    pub report: Report,
    /// The message with its time of completion.
    pub message: TaskMessage,
    /// The Unix second at which the retention ends.
    pub expires_at: i64,
    /// The result to store; `None` leaves one that is there.
    pub result: Option<Bytes>,
}

impl Broker {
    /// Deletes tasks that succeeded, all of this queue; 1 to [`MAX_BATCH`](super::MAX_BATCH).
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; the same reports may then be sent again.
    pub async fn done(&self, queue: &str, reports: &[impl Borrow<Report>], now: i64) -> Result<Vec<Verdict>, Error> {
        let reports: Vec<&Report> = reports.iter().map(Borrow::borrow).collect();
        let mut known: Vec<_> = reports.iter().map(|report| report.run.known()).collect();
        let mut verdicts = self.done_once(queue, &reports, MemberOutcome::Ok, now).await?;
        loop {
            let again = overtaken(reports.iter().copied(), &verdicts, &mut known);
            if again.is_empty() {
                return Ok(verdicts);
            }
            let subset: Vec<&Report> = again.iter().map(|at| reports[*at]).collect();
            for (at, verdict) in again.into_iter().zip(self.done_once(queue, &subset, MemberOutcome::Ok, now).await?) {
                verdicts[at] = verdict;
            }
        }
    }

    /// Deletes a task that its handler has dropped, which in a flow is no success.
    ///
    /// # Errors
    /// As [`done`](Self::done).
    pub async fn revoke(&self, report: &Report, now: i64) -> Result<Verdict, Error> {
        loop {
            let known = report.run.known();
            let verdict = self.done_once(&report.run.queue, &[report], MemberOutcome::Removed, now).await?[0];
            if !report.was_overtaken(verdict, &known) {
                return Ok(verdict);
            }
        }
    }

    async fn done_once(
        &self,
        queue: &str,
        reports: &[&Report],
        outcome: MemberOutcome,
        now: i64,
    ) -> Result<Vec<Verdict>, Error> {
        let keys = QueueKeys::new(queue);
        let ids = || reports.iter().map(|report| report.run.raw_id());
        let telling = self.telling(queue, ids(), outcome, now);
        let mut call = DONE.call(2 + telling.keys() + reports.len());
        call.arg(keys.active()).arg(keys.lease());
        telling.with_keys(&mut call);
        with_task_keys(&mut call, &keys, reports.iter().map(|report| &report.run));
        counted(&mut call, &keys, now);
        with_side(&mut call, reports.iter().copied());
        telling.with_entry(&mut call);
        for report in reports {
            report.fence(&mut call, report.resent);
            call.arg(&report.unique_key);
        }
        let verdicts = verdicts(DONE.name, &self.redis.run(&DONE, &call).await?, reports.len(), verdict)?;
        self.told(queue, telling, ids().zip(verdicts.iter().copied()));
        Ok(verdicts)
    }

    /// Keeps tasks that succeeded, all of this queue, until their retention ends; 1 to
    /// [`MAX_BATCH`](super::MAX_BATCH).
    ///
    /// # Errors
    /// As [`done`](Self::done).
    pub async fn complete(&self, queue: &str, reports: &[Completion], now: i64) -> Result<Vec<Verdict>, Error> {
        let mut known: Vec<_> = reports.iter().map(|completion| completion.report.run.known()).collect();
        let mut sent = Instant::now();
        let mut verdicts = self.complete_once(queue, reports, now).await?;
        loop {
            let again = overtaken(reports.iter().map(|completion| &completion.report), &verdicts, &mut known);
            if again.is_empty() {
                return Ok(verdicts);
            }
            let took = sent.elapsed();
            for at in &again {
                self.get_ahead(&reports[*at].report.run, took).await?;
                known[*at] = reports[*at].report.run.known();
            }
            sent = Instant::now();
            let subset: Vec<Completion> = again.iter().map(|at| reports[*at].clone()).collect();
            for (at, verdict) in again.into_iter().zip(self.complete_once(queue, &subset, now).await?) {
                verdicts[at] = verdict;
            }
        }
    }

    async fn complete_once(&self, queue: &str, reports: &[Completion], now: i64) -> Result<Vec<Verdict>, Error> {
        let keys = QueueKeys::new(queue);
        let ids = || reports.iter().map(|completion| completion.report.run.raw_id());
        let telling = self.telling(queue, ids(), MemberOutcome::Ok, now);
        let mut call = COMPLETE.call(3 + telling.keys() + reports.len());
        call.arg(keys.active()).arg(keys.lease()).arg(keys.completed());
        telling.with_keys(&mut call);
        with_task_keys(&mut call, &keys, reports.iter().map(|completion| &completion.report.run));
        counted(&mut call, &keys, now);
        with_side(&mut call, reports.iter().map(|completion| &completion.report));
        telling.with_entry(&mut call);
        for Completion { report, message, expires_at, result } in reports {
            report.fence(&mut call, report.resent);
            call.arg(&report.unique_key).arg(&message.to_bytes()[..]).arg(*expires_at);
            call.arg(result.as_ref().map_or("", |_| "result")).arg(result.as_deref().unwrap_or_default());
        }
        let verdicts = verdicts(COMPLETE.name, &self.redis.run(&COMPLETE, &call).await?, reports.len(), verdict)?;
        self.told(queue, telling, ids().zip(verdicts.iter().copied()));
        Ok(verdicts)
    }

    /// Lets a task wait for its next attempt at `retry_at` (Unix seconds). `counts` says whether this is
    /// a failure in the statistics.
    ///
    /// # Errors
    /// As [`done`](Self::done).
    pub async fn retry(
        &self,
        report: &Report,
        message: &[u8],
        retry_at: i64,
        counts: bool,
        now: i64,
    ) -> Result<Verdict, Error> {
        let telling = self.ending(report, counts.then_some(MemberOutcome::Failing), now);
        let verdict = self.one(&RETRY, report, || {
            let keys = QueueKeys::new(&report.run.queue);
            let mut call = RETRY.call(4 + telling.keys());
            call.arg(keys.active()).arg(keys.lease()).arg(keys.retry());
            telling.with_keys(&mut call);
            call.arg(report.run.task_key(&keys));
            counted(&mut call, &keys, now);
            call.arg(report.side.arg()).arg(if counts { "failed" } else { "none" });
            telling.with_entry(&mut call);
            report.fence(&mut call, true);
            call.arg("").arg(message).arg(retry_at);
            with_attempt(&mut call, None, report.attempt.as_deref());
            call
        });
        let verdict = verdict.await?;
        self.told(&report.run.queue, telling, std::iter::once((report.run.raw_id(), verdict)));
        Ok(verdict)
    }

    /// Gives up on a task and keeps it for inspection. `message` is stored as it is, so that a message
    /// nobody can read can be archived too.
    ///
    /// # Errors
    /// As [`done`](Self::done).
    pub async fn archive(&self, report: &Report, message: &[u8], now: i64) -> Result<Verdict, Error> {
        let (queue, id) = (&report.run.queue, report.run.raw_id());
        let telling = self.telling_of_last(queue, id, report.follow_up.as_deref(), now).await?;
        let verdict = self.one(&ARCHIVE, report, || {
            let keys = QueueKeys::new(&report.run.queue);
            let mut call = ARCHIVE.call(4 + telling.keys());
            call.arg(keys.active()).arg(keys.lease()).arg(keys.archived());
            telling.with_keys(&mut call);
            call.arg(report.run.task_key(&keys));
            counted(&mut call, &keys, now);
            call.arg(report.side.arg()).arg(now - ARCHIVE_MAX_AGE_SECS).arg(ARCHIVE_MAX);
            telling.with_entry(&mut call);
            report.fence(&mut call, true);
            let lock = if report.lock_ends_in_archive { &report.unique_key[..] } else { "" };
            call.arg(lock).arg(message).arg(now);
            with_attempt(&mut call, None, report.attempt.as_deref());
            call
        });
        let verdict = verdict.await?;
        self.told(&report.run.queue, telling, std::iter::once((report.run.raw_id(), verdict)));
        Ok(verdict)
    }

    /// What the end of one run has to bring, if a member of a flow ends like that.
    fn ending(&self, report: &Report, outcome: Option<MemberOutcome>, now: i64) -> Telling {
        let ids = std::iter::once(report.run.raw_id());
        outcome.map_or_else(Telling::default, |outcome| self.telling(&report.run.queue, ids, outcome, now))
    }

    /// Puts a task back in front of its queue without spending a retry.
    ///
    /// # Errors
    /// As [`done`](Self::done).
    pub async fn requeue(&self, report: &Report, now_ns: i64) -> Result<Verdict, Error> {
        self.one(&REQUEUE, report, || {
            let keys = QueueKeys::new(&report.run.queue);
            let mut call = REQUEUE.call(4);
            call.arg(keys.active()).arg(keys.lease()).arg(keys.pending()).arg(report.run.task_key(&keys));
            call.arg(keys.prefix()).arg(report.side.arg()).arg(now_ns);
            report.fence(&mut call, true);
            call
        })
        .await
    }

    /// Stores a result that a running task has to show so far; the last write wins.
    ///
    /// # Errors
    /// As [`done`](Self::done).
    pub async fn write_result(&self, run: &Run, result: &[u8]) -> Result<Verdict, Error> {
        self.write_fields(run, &[("result", result)]).await
    }

    /// Stores what a running task has to show so far: `result`, [`PROGRESS`](queue_core::progress::PROGRESS),
    /// [`CURSOR`], [`LOG`]; the last write of each wins. One at least.
    ///
    /// # Errors
    /// As [`done`](Self::done).
    pub async fn write_fields(&self, run: &Run, fields: &[(&str, &[u8])]) -> Result<Verdict, Error> {
        let report = Report::by_owner(run.clone(), &TaskMessage::default(), Side::Oldest);
        self.one(&WRITE_FIELDS, &report, || {
            let keys = QueueKeys::new(&run.queue);
            let mut call = WRITE_FIELDS.call(2);
            call.arg(keys.lease()).arg(run.task_key(&keys));
            call.arg(run.raw_id());
            run.with_expiries(&mut call);
            call.arg(&run.token[..]).arg(fields);
            call
        })
        .await
    }

    /// What a task has written down so far.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn log(&self, queue: &str, id: &str) -> Result<TaskLog, Error> {
        self.read_log(QueueKeys::new(queue).task(id)).await
    }

    /// The same of the task of a run.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn log_of(&self, run: &Run) -> Result<TaskLog, Error> {
        self.read_log(run.task_key(&QueueKeys::new(&run.queue))).await
    }

    async fn read_log(&self, task_key: impl ToRedisArgs) -> Result<TaskLog, Error> {
        let field: Option<Vec<u8>> = self.redis.command("HGET", (task_key, LOG)).await?;
        Ok(field.map(|field| TaskLog::parse(&String::from_utf8_lossy(&field))).unwrap_or_default())
    }

    /// Where an earlier attempt of a task has left off, as it was written; `None` if none has said.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn cursor(&self, run: &Run) -> Result<Option<Vec<u8>>, Error> {
        let key = run.task_key(&QueueKeys::new(&run.queue));
        self.redis.command("HGET", (key, CURSOR)).await
    }

    /// Prolongs the leases of runs, all of this queue, until `expires` (Unix seconds), on a connection
    /// of one's own. [`Verdict::Lost`] and [`Verdict::Gone`] name the runs that are no longer the
    /// caller's. 1 to [`MAX_BATCH`](super::MAX_BATCH).
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn extend_lease(
        &self,
        connection: &mut Connection,
        queue: &str,
        runs: &[Run],
        expires: i64,
    ) -> Result<Vec<Verdict>, Error> {
        let reply = connection.run(&EXTEND_LEASE, &renewal(queue, runs, expires)).await?;
        renewed(&reply, runs, expires)
    }

    /// The same for runs of any number of queues, each batch of one queue and 1 to [`MAX_BATCH`](super::MAX_BATCH) long.
    /// All calls are under way at the same time, so that they take no longer than one, however far away Redis is.
    pub async fn extend_leases(
        &self,
        connection: &mut Connection,
        batches: &[Vec<Run>],
        expires: i64,
    ) -> Vec<Result<Vec<Verdict>, Error>> {
        let renewal = |runs: &Vec<Run>| renewal(runs.first().map_or("", |run| &run.queue), runs, expires);
        let calls: Vec<Cmd> = batches.iter().map(renewal).collect();
        let replies = connection.run_all(&EXTEND_LEASE, &calls).await;
        batches.iter().zip(replies).map(|(runs, reply)| renewed(&reply?, runs, expires)).collect()
    }

    /// Makes a call on one run, and makes it again as long as renewals overtake it.
    async fn one(&self, script: &'static Script, report: &Report, call: impl Fn() -> Cmd) -> Result<Verdict, Error> {
        loop {
            let (known, sent) = (report.run.known(), Instant::now());
            let reply = self.redis.run(script, &call()).await?;
            let verdict = verdicts(script.name, &reply, 1, verdict)?[0];
            if !report.was_overtaken(verdict, &known) {
                return Ok(verdict);
            }
            self.get_ahead(&report.run, sent.elapsed()).await?;
        }
    }

    /// Prolongs the lease of a run so far that renewals change nothing while a call is under way that takes so long: a renewal would
    /// overtake it each time. Step by step, so that each expiry counts as ours although its answer is lost.
    async fn get_ahead(&self, run: &Run, took: Duration) -> Result<(), Error> {
        if took < SLOW {
            return Ok(());
        }
        for _ in 0..=took.as_secs() / GAINED_AT_ONCE {
            let expires = run.leased_until() + OURS_FOR - 1;
            let runs = std::slice::from_ref(run);
            let reply = self.redis.run(&EXTEND_LEASE, &renewal(&run.queue, runs, expires)).await?;
            if renewed(&reply, runs, expires)?[0] != Verdict::Applied {
                break;
            }
        }
        Ok(())
    }

    /// Trims the archive of a queue by age and number; returns how many tasks were deleted, at most
    /// [`SHORT_BATCH`](super::SHORT_BATCH) per call.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn trim_archived(&self, queue: &str, now: i64) -> Result<usize, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = TRIM_ARCHIVED.call(1);
        call.arg(keys.archived()).arg(keys.task_prefix()).arg(now - ARCHIVE_MAX_AGE_SECS);
        call.arg(ARCHIVE_MAX).arg(super::SHORT_BATCH);
        Ok(usize::try_from(self.integer(&TRIM_ARCHIVED, &call).await?).unwrap_or(0))
    }
}

/// A call that prolongs leases.
fn renewal(queue: &str, runs: &[Run], expires: i64) -> Cmd {
    let keys = QueueKeys::new(queue);
    let mut call = EXTEND_LEASE.call(1);
    call.arg(keys.lease()).arg(keys.prefix()).arg(expires);
    for run in runs {
        call.arg(run.raw_id());
        run.with_expiries(&mut call);
        call.arg(&run.token[..]);
        run.renewing(expires);
    }
    call
}

/// Takes note of its answer.
fn renewed(reply: &Value, runs: &[Run], expires: i64) -> Result<Vec<Verdict>, Error> {
    let verdicts = verdicts(EXTEND_LEASE.name, reply, runs.len(), verdict)?;
    for (run, verdict) in runs.iter().zip(&verdicts) {
        if *verdict == Verdict::Applied {
            run.renewed(expires);
        }
    }
    Ok(verdicts)
}

/// The positions of the reports that renewals have overtaken; `known` is brought up to date for these.
fn overtaken<'a>(
    reports: impl Iterator<Item = &'a Report>,
    verdicts: &[Verdict],
    known: &mut [Expiries],
) -> Vec<usize> {
    let mut again = Vec::new();
    for (at, report) in reports.enumerate() {
        if report.was_overtaken(verdicts[at], &known[at]) {
            known[at] = report.run.known();
            again.push(at);
        }
    }
    again
}

/// Adds the keys of the tasks.
fn with_task_keys<'a>(call: &mut Cmd, keys: &QueueKeys, runs: impl Iterator<Item = &'a Run>) {
    let mut key = keys.task_prefix().into_bytes();
    let prefix = key.len();
    for run in runs {
        key.truncate(prefix);
        key.extend_from_slice(run.raw_id());
        call.arg(&key[..]);
    }
}

/// What all calls begin with that count runs.
pub(super) fn counted(call: &mut Cmd, keys: &QueueKeys, now: i64) {
    call.arg(keys.prefix()).arg(utc_day(now)).arg(now + STATS_TTL_SECS);
}

/// Where a lone task is searched for first; several are found by themselves.
fn with_side<'a>(call: &mut Cmd, mut reports: impl ExactSizeIterator<Item = &'a Report>) {
    match (reports.next(), reports.len()) {
        (Some(report), 0) => call.arg(report.side.arg()),
        _ => call.arg(""),
    };
}

/// The field that a recoverer sets, its value, and what is remembered of the attempt.
pub(super) fn with_attempt(call: &mut Cmd, crashes: Option<&Crashes>, attempt: Option<&Attempt>) {
    match crashes {
        Some(crashes) => call.arg(CRASHES).arg(crashes.to_string()),
        None => call.arg("").arg(""),
    };
    call.arg(attempt.map(Attempt::to_string).unwrap_or_default());
}

//! What fails, grouped by its cause.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use queue_core::fingerprint::{Fingerprint, pattern};
use queue_core::{TaskInfo, TaskState};
use serde::Serialize;

use crate::error::Error;
use crate::{Cursor, Direction, Filter, Inspector};

/// Tasks that are read in one step.
const STEP: usize = 200;
/// Most groups, counted once in each queue.
const GROUPS: usize = 5_000;
/// Tasks that are named for a group.
const SAMPLES: usize = 3;
/// How much of an error is kept, in bytes.
const ERROR: usize = 1_024;

/// A way through the tasks in retry and in the archive, step by step, so that whoever goes it can rest in between. It reads, and keeps
/// nothing in Redis.
///
/// ```no_run
/// # async fn run(inspector: &queue_admin::Inspector) -> Result<(), queue_admin::Error> {
/// let (mut scan, mut failures) = (inspector.failures(None).await?, queue_admin::Failures::default());
/// while let Some(stretch) = scan.next().await? {
///     failures.add(&stretch);
/// }
/// for group in failures.groups(|_| true) {
///     println!("{} × {}: {}", group.tasks, group.r#type, group.pattern);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FailureScan {
    inspector: Inspector,
    /// Queues that are not gone through yet, and how many tasks there are to look at.
    queues: VecDeque<(String, u64)>,
    cursor: Option<Cursor>,
    unread: Vec<Unread>,
}

/// A queue that cannot be read, and costs no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Unread {
    /// The queue.
    pub queue: String,
    /// Why.
    pub detail: String,
}

/// What a step has read: tasks of one queue.
#[derive(Debug)]
#[non_exhaustive]
pub struct Stretch {
    /// The queue.
    pub queue: String,
    /// Its tasks, without their payloads and results.
    pub tasks: Vec<TaskInfo>,
    /// Tasks of the queue looked at so far, with those that could not be read.
    pub looked_at: u64,
}

impl Inspector {
    /// Goes through all that has failed, in one queue or in all. A task that fails and succeeds in between is not seen.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], or Redis cannot be asked or refuses.
    pub async fn failures(&self, queue: Option<&str>) -> Result<FailureScan, Error> {
        let (mut infos, mut unread) = (Vec::new(), Vec::new());
        match queue {
            Some(queue) => infos.push(self.queue(queue).await?),
            None => self.board().await?.rows.into_iter().for_each(|row| match row.queue {
                Ok(info) => infos.push(info),
                Err(reason) => unread.push(Unread { queue: row.name, detail: reason }),
            }),
        }
        let sizes = infos.into_iter().map(|info| (info.retry + info.archived, info.name));
        let queues = sizes.filter(|(size, _)| *size > 0).map(|(size, name)| (name, size)).collect();
        Ok(FailureScan { inspector: self.clone(), queues, cursor: None, unread })
    }
}

impl FailureScan {
    /// The queues that cannot be read, and why.
    pub fn unread(&self) -> &[Unread] {
        &self.unread
    }

    /// How many tasks there are to look at in each of the queues that are left.
    pub fn left(&self) -> impl Iterator<Item = (&str, u64)> {
        self.queues.iter().map(|(queue, size)| (queue.as_str(), *size))
    }

    /// The next step; `None` at the end. A step reads 200 tasks at the most.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; the same call tries that step again.
    pub async fn next(&mut self) -> Result<Option<Stretch>, Error> {
        let filter = Filter::new().state(TaskState::Retry).state(TaskState::Archived);
        while let Some((queue, _)) = self.queues.front() {
            // Those of 200 large tasks would be gigabytes.
            let keep = |mut task: TaskInfo| {
                (task.payload, task.result) = (Bytes::new(), None);
                task
            };
            let list =
                self.inspector.list_as(queue, &filter, Direction::Oldest, self.cursor.as_ref(), STEP, STEP, keep);
            let page = match list.await {
                Err(Error::QueueNotFound(_)) => None,
                page => Some(page?),
            };
            let queue = queue.clone();
            self.cursor = page.as_ref().and_then(|page| page.next.clone());
            if self.cursor.is_none() {
                self.queues.pop_front();
            }
            let Some(page) = page else { continue };
            return Ok(Some(Stretch { queue, tasks: page.tasks, looked_at: page.searched.looked_at }));
        }
        Ok(None)
    }
}

/// What was found so far.
#[derive(Debug, Clone, Default)]
pub struct Failures {
    groups: HashMap<(Fingerprint, String), Tally>,
    totals: BTreeMap<String, FailureTotals>,
}

/// A group in one queue.
#[derive(Debug, Clone)]
struct Tally {
    task_type: String,
    pattern: String,
    retry: u64,
    archived: u64,
    first: Option<DateTime<Utc>>,
    last: Option<DateTime<Utc>>,
    samples: Vec<FailureSample>,
}

/// How much was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailureTotals {
    /// Tasks looked at.
    pub looked_at: u64,
    /// Tasks there are to look at.
    pub of: u64,
    /// Tasks beyond the first 5,000 groups.
    pub other: u64,
    /// Tasks without the text of an error, such as those that somebody has archived.
    pub without_error: u64,
}

/// Failures of one cause.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct FailureGroup {
    /// Its name, for the condition `fingerprint` of a [`Filter`].
    pub fingerprint: String,
    /// The type of its tasks.
    pub r#type: String,
    /// What their errors have in common.
    pub pattern: String,
    /// How many there are.
    pub tasks: u64,
    /// Those of them that are retried.
    pub retry: u64,
    /// Those in the archive.
    pub archived: u64,
    /// The oldest of their last failures.
    pub first_failed_at: Option<DateTime<Utc>>,
    /// The newest.
    pub last_failed_at: Option<DateTime<Utc>>,
    /// How many are in which queue.
    pub queues: Vec<FailureQueue>,
    /// The three that failed last.
    pub samples: Vec<FailureSample>,
}

/// How many tasks of a group are in one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailureQueue {
    /// The queue.
    pub queue: String,
    /// Those that are retried.
    pub retry: u64,
    /// Those in the archive.
    pub archived: u64,
}

/// A task of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailureSample {
    /// Its queue.
    pub queue: String,
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: TaskState,
    /// When it failed last.
    pub failed_at: Option<DateTime<Utc>>,
    /// Its error, at most 1 KiB of it.
    pub error: String,
}

impl Failures {
    /// What is to be looked at, so that the totals tell how much is missing.
    pub fn expect(&mut self, scan: &FailureScan) {
        for (queue, size) in scan.left() {
            self.totals.entry(queue.to_owned()).or_default().of = size;
        }
    }

    /// Adds what a step has read.
    pub fn add(&mut self, stretch: &Stretch) {
        let totals = self.totals.entry(stretch.queue.clone()).or_default();
        totals.looked_at = stretch.looked_at;
        totals.of = totals.of.max(stretch.looked_at);
        for task in &stretch.tasks {
            let pattern = pattern(task.last_error.as_deref().unwrap_or_default());
            if pattern.is_empty() {
                totals.without_error += 1;
                continue;
            }
            let key = (Fingerprint::of_pattern(&task.task_type, &pattern), task.queue.clone());
            if self.groups.len() >= GROUPS && !self.groups.contains_key(&key) {
                totals.other += 1;
                continue;
            }
            let tally = self.groups.entry(key).or_insert_with(|| Tally::new(task.task_type.clone(), pattern));
            tally.add(task);
        }
    }

    /// The groups in queues that somebody may see, those of most tasks first.
    pub fn groups(&self, sees: impl Fn(&str) -> bool) -> Vec<FailureGroup> {
        let mut groups: HashMap<Fingerprint, FailureGroup> = HashMap::new();
        for ((fingerprint, queue), tally) in self.groups.iter().filter(|((_, queue), _)| sees(queue)) {
            let group = groups.entry(*fingerprint).or_insert_with(|| tally.group(*fingerprint));
            group.tasks += tally.retry + tally.archived;
            group.retry += tally.retry;
            group.archived += tally.archived;
            group.first_failed_at = [group.first_failed_at, tally.first].into_iter().flatten().min();
            group.last_failed_at = group.last_failed_at.max(tally.last);
            group.queues.push(FailureQueue { queue: queue.clone(), retry: tally.retry, archived: tally.archived });
            group.samples.extend(tally.samples.iter().cloned());
        }
        let mut groups: Vec<FailureGroup> = groups.into_values().collect();
        for group in &mut groups {
            group.queues.sort_by(|a, b| a.queue.cmp(&b.queue));
            group.samples.sort_by(|a, b| (b.failed_at, &a.queue, &a.id).cmp(&(a.failed_at, &b.queue, &b.id)));
            group.samples.truncate(SAMPLES);
        }
        groups.sort_by(|a, b| (b.tasks, &a.fingerprint).cmp(&(a.tasks, &b.fingerprint)));
        groups
    }

    /// How much was looked at, in queues that somebody may see.
    pub fn totals(&self, sees: impl Fn(&str) -> bool) -> FailureTotals {
        let seen = self.totals.iter().filter(|(queue, _)| sees(queue)).map(|(_, totals)| totals);
        seen.fold(FailureTotals::default(), |sum, it| FailureTotals {
            looked_at: sum.looked_at + it.looked_at,
            of: sum.of + it.of,
            other: sum.other + it.other,
            without_error: sum.without_error + it.without_error,
        })
    }
}

impl Tally {
    fn new(task_type: String, pattern: String) -> Self {
        Self { task_type, pattern, retry: 0, archived: 0, first: None, last: None, samples: Vec::new() }
    }

    fn add(&mut self, task: &TaskInfo) {
        match task.state {
            TaskState::Retry => self.retry += 1,
            _ => self.archived += 1,
        }
        let at = task.last_failed_at;
        self.first = [self.first, at].into_iter().flatten().min();
        self.last = self.last.max(at);
        let mut error = task.last_error.clone().unwrap_or_default();
        error.truncate(error.floor_char_boundary(ERROR));
        let (queue, id, state) = (task.queue.clone(), task.id.clone(), task.state);
        self.samples.push(FailureSample { queue, id, state, failed_at: at, error });
        if self.samples.len() > SAMPLES {
            self.samples.sort_by_key(|sample| std::cmp::Reverse(sample.failed_at));
            self.samples.truncate(SAMPLES);
        }
    }

    /// Nothing of it counted yet.
    fn group(&self, fingerprint: Fingerprint) -> FailureGroup {
        FailureGroup {
            fingerprint: fingerprint.to_string(),
            r#type: self.task_type.clone(),
            pattern: self.pattern.clone(),
            tasks: 0,
            retry: 0,
            archived: 0,
            first_failed_at: None,
            last_failed_at: None,
            queues: Vec::new(),
            samples: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use queue_core::TaskMessage;

    use super::*;

    fn task(queue: &str, n: i64, error: String) -> TaskInfo {
        let message = TaskMessage {
            id: n.to_string(),
            queue: queue.into(),
            r#type: "t".into(),
            error_msg: error,
            last_failed_at: 1_000 + n,
            ..TaskMessage::default()
        };
        TaskInfo::new(message, if n % 2 == 0 { TaskState::Retry } else { TaskState::Archived })
    }

    fn stretch(queue: &str, tasks: Vec<TaskInfo>) -> Stretch {
        Stretch { queue: queue.into(), looked_at: tasks.len() as u64, tasks }
    }

    #[test]
    fn groups_of_several_queues_are_one_and_nobody_sees_of_it_what_is_in_other_queues() {
        let mut failures = Failures::default();
        failures.add(&stretch("a", (0..9).map(|n| task("a", n, format!("order {n} is locked"))).collect()));
        failures.add(&stretch("b", vec![task("b", 20, "order 20 is locked".into()), task("b", 21, String::new())]));
        let all = failures.groups(|_| true);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].tasks, all[0].retry, all[0].archived), (10, 6, 4));
        assert_eq!(all[0].samples.iter().map(|sample| sample.id.as_str()).collect::<Vec<_>>(), ["20", "8", "7"]);
        assert_eq!(
            all[0].queues.iter().map(|it| (it.queue.as_str(), it.retry)).collect::<Vec<_>>(),
            [("a", 5), ("b", 1)]
        );
        assert_eq!(all[0].first_failed_at.unwrap().timestamp(), 1_000);
        assert_eq!(all[0].last_failed_at.unwrap().timestamp(), 1_020);
        let some = failures.groups(|queue| queue == "a");
        assert_eq!((some[0].tasks, some[0].queues.len(), some[0].last_failed_at.unwrap().timestamp()), (9, 1, 1_008));
        assert_eq!(failures.totals(|_| true), FailureTotals { looked_at: 11, of: 11, other: 0, without_error: 1 });
        assert_eq!(failures.totals(|queue| queue == "a").looked_at, 9);
    }

    #[test]
    fn beyond_so_many_groups_tasks_are_only_counted() {
        let mut failures = Failures::default();
        let word = |n: i64| n.to_string().bytes().map(|digit| char::from(digit + b'p' - b'0')).collect::<String>();
        failures.add(&stretch("a", (0..5_007).map(|n| task("a", n, word(n))).collect()));
        failures.add(&stretch("a", vec![task("a", 3, word(3))]));
        assert_eq!(failures.groups(|_| true).len(), GROUPS);
        assert_eq!(failures.groups(|_| true)[0].tasks, 2);
        assert_eq!(failures.totals(|_| true).other, 7);
    }
}

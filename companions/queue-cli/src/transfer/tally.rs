//! What an import did, and whether that is all.

use queue_admin::payload::shorten;
use queue_admin::{Inspector, QueueInfo};
use queue_core::TaskState;
use queue_redis::broker::RestoreNote;
use serde::Serialize;

use crate::error::CliError;
use crate::output::Output;
use crate::table::Rows;

/// What became of the tasks of one queue.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tally {
    pub(super) queue: String,
    /// Stored now.
    pub(super) stored: u64,
    /// There already: the same task.
    pub(super) present: u64,
    /// Dealt with by an earlier import of this file.
    pub(super) skipped: u64,
    /// Not stored, because another task has the id or the lock, or the archive is full.
    pub(super) conflicts: u64,
    /// Not stored, because the line is damaged or breaks a rule of the format.
    pub(super) invalid: u64,
    /// Whether the queue holds as many tasks more as were stored. Unknown for a queue that is not paused, and where
    /// what was stored is not known.
    pub(super) verified: Option<bool>,
    /// Whether the queue is paused now.
    pub(super) paused: bool,
    /// Whether nobody knows what the queue should hold: somebody else imports the same file at the same time, or the
    /// answer that said which tasks were refused was lost.
    #[serde(skip)]
    pub(super) is_unsure: bool,
    /// What Redis is to have noted by now.
    #[serde(skip)]
    pub(super) note: RestoreNote,
    #[serde(skip)]
    stored_by_state: [u64; TaskState::ALL.len()],
    #[serde(skip)]
    before: Option<QueueInfo>,
}

impl Tally {
    pub(super) fn new(queue: &str, note: RestoreNote, before: QueueInfo) -> Self {
        Self { queue: queue.to_owned(), note, before: Some(before), ..Self::default() }
    }

    pub(super) fn count_stored(&mut self, state: TaskState) {
        self.stored += 1;
        self.stored_by_state[place(state)] += 1;
    }

    /// So many tasks of the file all imports have left out; returns how many of them others than this one. They are no less missing for having
    /// been dealt with before.
    pub(super) fn were_left_out(&mut self, in_all: u64) -> u64 {
        let before = in_all.saturating_sub(self.conflicts).min(self.skipped);
        self.skipped -= before;
        self.conflicts += before;
        before
    }

    /// All lines of the queue that were seen.
    pub(super) fn seen(&self) -> u64 {
        self.stored + self.present + self.skipped + self.conflicts + self.invalid
    }

    /// Compares what the queue holds with what it held. Only a paused queue stands still enough for that; and
    /// even there what is due becomes pending, and what is completed or archived may come to the end of its time.
    pub(super) async fn verify(&mut self, inspector: &Inspector) -> Result<(), CliError> {
        let after = inspector.queue(&self.queue).await?;
        self.paused = after.paused;
        let stands_still = after.paused && after.active == 0 && !self.is_unsure;
        let Some(before) = self.before.as_ref().filter(|_| stands_still) else { return Ok(()) };
        let fleeting = |state: &TaskState| matches!(state, TaskState::Completed | TaskState::Archived);
        let expected = |state: TaskState| before.count(state) + self.stored_by_state[place(state)];
        let lasting = || TaskState::ALL.into_iter().filter(|state| !fleeting(state));
        let all_there = lasting().map(expected).sum::<u64>() == lasting().map(|state| after.count(state)).sum::<u64>();
        let none_more = TaskState::ALL.into_iter().filter(fleeting).all(|state| after.count(state) <= expected(state));
        self.verified = Some(all_there && none_more);
        Ok(())
    }
}

fn place(state: TaskState) -> usize {
    TaskState::ALL.iter().position(|other| *other == state).unwrap_or(0)
}

/// The tallies as a table.
pub(super) fn render(tallies: &[Tally], out: &Output) -> String {
    let mut rows = Rows::new(out, &["QUEUE", "#STORED", "#PRESENT", "#SKIPPED", "#CONFLICTS", "#INVALID", "VERIFIED"]);
    for tally in tallies {
        let verified = match tally.verified {
            Some(true) => "yes",
            Some(false) => "no",
            None if tally.is_unsure => "unsure",
            None => "in use",
        };
        let striking = tally.conflicts + tally.invalid > 0 || tally.verified == Some(false);
        let numbers = [tally.stored, tally.present, tally.skipped, tally.conflicts, tally.invalid];
        let cells = [shorten(&tally.queue, 40)].into_iter().chain(numbers.map(|number| number.to_string()));
        rows.add_marked(striking, cells.chain([verified.to_owned()]));
    }
    rows.render()
}

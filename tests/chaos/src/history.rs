//! What the ledgers of all processes say together, task by task.

use crate::fleet::{Process, Role};
use crate::ledger::{Entry, Step, Told, read};
use crate::name::Name;

/// One run of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) at: u64,
    pub(crate) process: u16,
    pub(crate) retried: u16,
    /// How it ended; `None` if it was killed, or told to stop.
    pub(crate) end: Option<(u64, Step)>,
}

/// All about one task.
#[derive(Debug, Clone)]
pub(crate) struct Story {
    pub(crate) name: Name,
    /// When the producer was about to enqueue it.
    pub(crate) intent: u64,
    /// What it was told, and when.
    pub(crate) answer: Option<(u64, Step)>,
    /// In the order in which they began.
    pub(crate) attempts: Vec<Attempt>,
    /// Whether somebody wanted to cancel it for good, and when that somebody was told that it does not start any more.
    pub(crate) asked: bool,
    pub(crate) cancelled: Option<u64>,
    /// Checkpoints: stored, and gone on from.
    pub(crate) checkpoints: Vec<(u64, Step)>,
    /// The slots of the servers that a broadcast is for, a bit for each.
    pub(crate) chosen: Option<u16>,
}

impl Story {
    pub(crate) fn succeeded(&self) -> bool {
        self.attempts.iter().any(|attempt| matches!(attempt.end, Some((_, Step::Success))))
    }

    pub(crate) fn first_success(&self) -> Option<u64> {
        let successes =
            self.attempts.iter().filter_map(|attempt| attempt.end).filter(|(_, step)| *step == Step::Success);
        successes.map(|(at, _)| at).min()
    }

    pub(crate) fn succeeded_before(&self, at: u64) -> bool {
        self.attempts.iter().any(|attempt| matches!(attempt.end, Some((end, Step::Success)) if end <= at))
    }

    /// How often it failed before this instant.
    pub(crate) fn failures_before(&self, at: u64) -> usize {
        let failed = |end: &(u64, Step)| matches!(end.1, Step::Failure | Step::Archive) && end.0 <= at;
        self.attempts.iter().filter_map(|attempt| attempt.end.as_ref()).filter(|end| failed(end)).count()
    }
}

/// The ledgers of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// By task and time.
    entries: Vec<Entry>,
    /// By process.
    pub(crate) roles: Vec<Option<Role>>,
    pub(crate) told: Told,
}

impl History {
    pub(crate) fn read(processes: &[Process]) -> std::io::Result<Self> {
        let mut history = Self::default();
        for process in processes {
            let told = read(&process.ledger, process.number, &mut history.entries)?;
            history.told.refused += told.refused;
            history.told.recovered += told.recovered;
            history.told.digests += told.digests;
            history.roles.push(Some(process.role));
        }
        history.entries.sort_unstable();
        Ok(history)
    }

    /// The same from entries.
    #[cfg(test)]
    pub(crate) fn of(mut entries: Vec<Entry>, roles: Vec<Option<Role>>) -> Self {
        entries.sort_unstable();
        Self { entries, roles, ..Self::default() }
    }

    pub(crate) fn is_go(&self, process: u16) -> bool {
        matches!(self.roles.get(usize::from(process)), Some(Some(Role::GoWorker)))
    }

    /// The stories of all tasks, one after the other.
    pub(crate) fn stories(&self) -> impl Iterator<Item = Story> {
        self.entries.chunk_by(|a, b| a.task == b.task).map(story)
    }

    /// The handlers that began, and that ended in one way or another.
    pub(crate) fn count(&self, wanted: impl Fn(Step) -> bool) -> u64 {
        self.entries.iter().filter(|entry| wanted(entry.step)).count() as u64
    }
}

fn story(entries: &[Entry]) -> Story {
    let mut story = Story {
        name: Name::of_key(entries[0].task),
        intent: 0,
        answer: None,
        attempts: Vec::new(),
        asked: false,
        cancelled: None,
        checkpoints: Vec::new(),
        chosen: None,
    };
    for entry in entries {
        match entry.step {
            Step::Intent => story.intent = entry.at,
            Step::Stored | Step::Duplicate | Step::Refused | Step::Unknown => {
                story.answer = Some((entry.at, entry.step));
            }
            Step::Start(retried) => {
                story.attempts.push(Attempt { at: entry.at, process: entry.process, retried, end: None });
            }
            Step::Asked => story.asked = true,
            Step::Cancelled => story.cancelled = Some(entry.at),
            Step::From(_) | Step::Kept(_) => story.checkpoints.push((entry.at, entry.step)),
            Step::Chosen(slots) => story.chosen = Some(slots),
            Step::Success | Step::Failure | Step::Archive => {
                // The one that this process began last and has not ended.
                let mut begun = story.attempts.iter_mut().rev();
                if let Some(attempt) = begun.find(|a| a.process == entry.process && a.end.is_none()) {
                    attempt.end = Some((entry.at, entry.step));
                }
            }
        }
    }
    story
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_belong_to_the_attempts_of_their_process() {
        let name = Name::draw(1, 0, 0);
        let entry = |at, step, process| Entry { task: name.key(), at, step, process };
        let entries = vec![
            entry(50, Step::Success, 1),
            entry(10, Step::Intent, 0),
            entry(12, Step::Stored, 0),
            entry(20, Step::Start(0), 1),
            entry(40, Step::Start(0), 2),
            entry(45, Step::Success, 2),
        ];
        let stories: Vec<Story> = History::of(entries, Vec::new()).stories().collect();
        let expected = [
            Attempt { at: 20, process: 1, retried: 0, end: Some((50, Step::Success)) },
            Attempt { at: 40, process: 2, retried: 0, end: Some((45, Step::Success)) },
        ];
        assert_eq!(stories.len(), 1);
        assert_eq!((stories[0].intent, stories[0].answer), (10, Some((12, Step::Stored))));
        assert_eq!(stories[0].attempts, expected);
    }
}

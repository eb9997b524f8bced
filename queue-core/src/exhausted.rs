//! What comes when a task is exhausted: a server archives it, because it cannot be or is not to be tried again. A task may name
//! the type of another one that is enqueued then, its follow-up.
//!
//! The script that archives the task writes down the follow-up with it, in the list in which members of batches tell how they
//! ended (`lua/lib/tell.lua`). From there whoever records these stores it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::attempt::cut;
use crate::budget::Budget;
use crate::clock::UnixSecond;
use crate::options::{OptionError, RawTask, check_queue_name, check_task_type, compose_for};
use crate::queue_name::base_of;
use crate::wire::TaskMessage;

/// A task that a server archives: what its follow-up has as its payload, in JSON, and what the hook of a server is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exhausted {
    /// Its queue.
    pub queue: String,
    /// Its id.
    pub id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub task_type: String,
    /// Why it is archived, in up to 512 bytes.
    pub error: String,
    /// How many of its retries it has spent.
    pub retried: u32,
    /// When that was.
    pub archived_at: UnixSecond,
}

impl Exhausted {
    /// What is told of a task that is archived at this Unix second with this message.
    pub fn of(archived: &TaskMessage, now: i64) -> Self {
        Self {
            queue: archived.queue.clone(),
            id: archived.id.clone(),
            task_type: archived.r#type.clone(),
            error: cut(&archived.error_msg),
            retried: u32::try_from(archived.retried).unwrap_or(0),
            archived_at: UnixSecond(now),
        }
    }
}

/// A task that is to be enqueued because another one is archived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowUp {
    /// Its id, by which it is stored once.
    pub id: String,
    #[serde(rename = "type")]
    task_type: String,
    /// Its queue.
    pub queue: String,
    of: Exhausted,
}

/// The second word of an entry that tells of a follow-up, where others have an outcome.
const WORD: &str = "exhausted";

impl FollowUp {
    /// What follows a task that is archived at this Unix second with this message, under a new id; `None` where its headers
    /// name nothing.
    pub fn of(archived: &TaskMessage, now: i64) -> Option<Self> {
        let Budget { on_exhausted, on_exhausted_queue, .. } = Budget::of(&archived.headers);
        Some(Self {
            id: Uuid::new_v4().to_string(),
            // Go's clients check no names.
            task_type: on_exhausted.filter(|task_type| check_task_type(task_type).is_ok())?,
            // The queue of a server or of a label may well be one that nobody serves any more.
            queue: on_exhausted_queue
                .filter(|queue| check_queue_name(queue).is_ok())
                .unwrap_or_else(|| base_of(&archived.queue).to_owned()),
            of: Exhausted::of(archived, now),
        })
    }

    /// The message that is stored.
    ///
    /// # Errors
    /// When there cannot be such a task; one that was made from headers has none.
    pub fn message(&self, now_ns: i64) -> Result<TaskMessage, OptionError> {
        // Texts and numbers.
        let payload = serde_json::to_vec(&self.of).unwrap_or_default();
        let task = RawTask::new(&self.task_type).payload(payload).task_id(&self.id);
        compose_for(&self.queue, task, now_ns).map(|composed| composed.message)
    }

    /// The entry with this stamp that tells of it, in one line.
    pub fn to_entry(&self, stamp: &str) -> String {
        format!("{stamp} {WORD} {}", serde_json::to_string(self).unwrap_or_default())
    }

    /// What an entry tells of; `None` if that is something else.
    pub fn from_entry(entry: &str) -> Option<Self> {
        let (_, told) = entry.split_once(' ')?;
        serde_json::from_str(told.strip_prefix(WORD)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{TaskOptions, compose};

    const NOW: i64 = 1_700_000_000;
    const NOW_NS: i64 = NOW * 1_000_000_000;

    fn archived(task: RawTask) -> TaskMessage {
        let message = compose(task, TaskOptions::new(), NOW_NS).unwrap().message;
        TaskMessage { error_msg: "boom\n".to_owned(), retried: 2, ..message }
    }

    fn task() -> RawTask {
        RawTask::new("pay").queue("payments").task_id("p 7")
    }

    #[test]
    fn a_follow_up_says_what_it_follows_and_is_an_ordinary_task() {
        let follow_up = FollowUp::of(&archived(task().on_exhausted("alert")), NOW).unwrap();
        let entry = follow_up.to_entry("5.1");
        assert!(entry.starts_with("5.1 exhausted {") && !entry.contains('\n'), "{entry}");
        assert_eq!(FollowUp::from_entry(&entry), Some(follow_up.clone()));
        let message = follow_up.message(NOW_NS).unwrap();
        assert_eq!((&*message.r#type, &*message.queue, &*message.id), ("alert", "payments", &*follow_up.id));
        assert_eq!((message.retry, message.timeout, message.headers.len()), (25, 1_800, 0));
        let told =
            r#"{"queue":"payments","id":"p 7","type":"pay","error":"boom\n","retried":2,"archived_at":1700000000}"#;
        assert_eq!(String::from_utf8_lossy(&message.payload), told);
    }

    #[test]
    fn it_goes_into_the_queue_that_is_named_or_else_into_one_that_all_servers_serve() {
        let queue = |task: RawTask| FollowUp::of(&archived(task.on_exhausted("alert")), NOW).unwrap().queue;
        assert_eq!(queue(task().on_exhausted_queue("ops")), "ops");
        assert_eq!(queue(task().only("web-1")), "payments");
        assert_eq!(queue(task().priority(9)), "payments");
    }

    #[test]
    fn without_a_name_nothing_follows() {
        assert_eq!(FollowUp::of(&archived(task()), NOW), None);
        // Go's clients check nothing.
        let mut by_go = archived(task().on_exhausted("alert"));
        by_go.headers.insert("x-on-exhausted-queue".to_owned(), "}x".to_owned());
        assert_eq!(FollowUp::of(&by_go, NOW).unwrap().queue, "payments");
        by_go.headers.insert("x-on-exhausted".to_owned(), "a\u{0}".to_owned());
        assert_eq!(FollowUp::of(&by_go, NOW), None);
    }

    #[test]
    fn a_follow_up_that_cannot_be_is_refused_by_the_name_of_the_header() {
        let refused = |task| compose(task, TaskOptions::new(), NOW_NS).unwrap_err().to_string();
        for (task, header) in [
            (task().on_exhausted(" "), "x-on-exhausted"),
            (task().on_exhausted("a").on_exhausted_queue("mail}p9"), "x-on-exhausted-queue"),
            (task().on_exhausted_queue("ops"), "x-on-exhausted-queue"),
        ] {
            let refused = refused(task);
            assert!(refused.contains(&format!("{header:?}")), "{refused}");
        }
    }

    #[test]
    fn other_entries_tell_of_no_follow_up() {
        for entry in ["", "5.1", "5.1 dead flow:a:0:1", "5.1 exhausted", "5.1 exhausted {}", "5.1 exhaustedx {}"] {
            assert_eq!(FollowUp::from_entry(entry), None, "{entry}");
        }
    }
}

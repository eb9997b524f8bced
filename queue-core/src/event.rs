//! What happens to tasks and servers, as it is told to those who listen.
//!
//! Processes write events only while somebody listens; the listeners stand in `asynq:x:watchers`. It is news and no ledger:
//! Go's programs tell nothing, and what a process could not tell is missing.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::clock::{UnixMilli, UnixSecond};
use crate::limits::MAX_NOTE_BYTES;

macro_rules! kinds {
    ($($(#[doc = $what:literal])+ $name:ident: $word:literal;)*) => {
        /// What has happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[doc = $what])+ $name,)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The word for it, as it stands in Redis and in JSON.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

kinds! {
    /// A program has stored the task: pending, scheduled or in a group.
    Enqueued: "enqueued";
    /// A server has begun an attempt.
    Started: "started";
    /// The handler has said how far it is.
    Progress: "progress";
    /// The task is done.
    Succeeded: "succeeded";
    /// An attempt has failed, and the task waits for another one.
    Failed: "failed";
    /// The task was given up.
    Archived: "archived";
    /// It is tried again, and no retry is spent.
    Snoozed: "snoozed";
    /// Its handler dropped it.
    Revoked: "revoked";
    /// Its server shuts down, and has put it in front of its queue.
    Requeued: "requeued";
    /// It ended because somebody had canceled it for good.
    Cancelled: "cancelled";
    /// Its server went silent; another one has taken it from that.
    Lost: "lost";
    /// So many tasks of a queue that were scheduled, or waited for a retry, became pending.
    Forwarded: "forwarded";
    /// A server has started.
    ServerStarted: "server_started";
    /// A server runs more tasks at once, or fewer.
    ServerResized: "server_resized";
    /// A server ends.
    ServerStopped: "server_stopped";
    /// Somebody is about to do something with our tools; it stands in the audit.
    Operator: "operator";
    /// A process had more to tell than it may, and left so many events out.
    Dropped: "dropped";
    /// This listener has missed events.
    Gap: "gap";
}

impl Kind {
    /// Whether there are as many of these as there are tasks: where not all can be told, the others come first.
    pub fn is_routine(self) -> bool {
        matches!(self, Self::Enqueued | Self::Started | Self::Progress | Self::Succeeded | Self::Forwarded)
    }

    /// Whether it tells what is missing. No listener can do without these.
    pub fn is_of_the_feed(self) -> bool {
        matches!(self, Self::Dropped | Self::Gap)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// There is no such kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no kind of event; there are {all}", all = Kind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", "))]
pub struct UnknownKind(pub String);

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(word: &str) -> Result<Self, UnknownKind> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == word).ok_or_else(|| UnknownKind(word.to_owned()))
    }
}

/// Something that has happened. What does not apply is `None`.
///
/// As JSON it always has `kind`, `queue`, `id`, `type` and `at`; the other fields are left out where they say nothing.
///
/// ```
/// use queue_core::clock::UnixMilli;
/// use queue_core::event::{Event, Kind};
///
/// let mut event = Event::new(Kind::Failed, UnixMilli(1_700_000_000_000));
/// event.queue = Some("mail".to_owned());
/// event.error = Some("no such host".to_owned());
/// let json = r#"{"kind":"failed","queue":"mail","id":null,"type":null,"at":1700000000000,"error":"no such host"}"#;
/// assert_eq!(event.to_json(), json);
/// assert_eq!(Event::parse(json), Some(event));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// What.
    pub kind: Kind,
    /// In which queue.
    #[serde(default)]
    pub queue: Option<String>,
    /// To which task; where an operator acts on several, the first of them.
    #[serde(default)]
    pub id: Option<String>,
    /// The type of the task.
    #[serde(default, rename = "type")]
    pub task_type: Option<String>,
    /// When, by the clock of whoever tells.
    pub at: UnixMilli,
    /// The server that tells it, `<host>:<pid>:<uuid>`; of a lost task the one that has found it, of an enqueued one nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Which attempt it is, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// How long the attempt took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<UnixSecond>,
    /// When it becomes pending, of one that was scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<UnixSecond>,
    /// Why it failed, cut to 512 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How far the task is, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// What the handler says to that; of a gap, how it came about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How many tasks, events or slots it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// What an operator does: `queue.pause`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Who does that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl Event {
    /// Of this kind, at this time.
    pub fn new(kind: Kind, at: UnixMilli) -> Self {
        Self {
            kind,
            queue: None,
            id: None,
            task_type: None,
            at,
            server: None,
            attempt: None,
            took_ms: None,
            retry_at: None,
            due_at: None,
            error: None,
            percent: None,
            note: None,
            count: None,
            action: None,
            by: None,
        }
    }

    /// Of a task.
    pub fn of_task(kind: Kind, at: UnixMilli, queue: &str, id: &str, task_type: &str) -> Self {
        let (queue, id, task_type) = (Some(queue.to_owned()), Some(id.to_owned()), Some(task_type.to_owned()));
        Self { queue, id, task_type, ..Self::new(kind, at) }
    }

    /// Because of this error.
    #[must_use]
    pub fn because(self, error: &str) -> Self {
        Self { error: Some(error[..error.floor_char_boundary(MAX_NOTE_BYTES)].to_owned()), ..self }
    }

    /// Reads one; `None` where it cannot be read, or is of a kind that this version does not know.
    pub fn parse(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// On one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Which events somebody wants: the JSON of a listener in `asynq:x:watchers`. An empty set is no restriction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Wanted {
    /// Until when, in Unix milliseconds by Redis' clock.
    pub until: i64,
    /// In these queues.
    pub queues: BTreeSet<String>,
    /// Of these kinds, by their words: a later version may know more of them.
    pub kinds: BTreeSet<String>,
    /// About tasks of these types.
    pub types: BTreeSet<String>,
}

impl Wanted {
    /// Reads one; `None` if it cannot be read.
    pub fn parse(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// As it is written.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether this event is wanted. What tells of missing events always is; what concerns no queue, or no type, is not
    /// where queues, or types, were named.
    pub fn wants(&self, event: &Event) -> bool {
        self.wants_of(event.kind, event.queue.as_deref(), event.task_type.as_deref())
    }

    /// The same of an event that was not made yet.
    pub fn wants_of(&self, kind: Kind, queue: Option<&str>, task_type: Option<&str>) -> bool {
        let has =
            |set: &BTreeSet<String>, word: Option<&str>| set.is_empty() || word.is_some_and(|word| set.contains(word));
        kind.is_of_the_feed()
            || has(&self.kinds, Some(kind.as_str())) && has(&self.queues, queue) && has(&self.types, task_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_kinds_are_those_of_the_json() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_string(kind).unwrap(), format!("{:?}", kind.as_str()));
            assert_eq!(kind.as_str().parse(), Ok(*kind));
        }
        assert!("Failed".parse::<Kind>().unwrap_err().to_string().contains("failed"));
    }

    #[test]
    fn a_filter_wants_what_fits_all_that_was_named_and_whatever_tells_of_missing_events() {
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
        let event = Event::of_task(Kind::Failed, UnixMilli(5), "mail", "7", "send");
        let wants = |queues: &[&str], kinds: &[&str], types: &[&str], event: &Event| {
            Wanted { until: 0, queues: set(queues), kinds: set(kinds), types: set(types) }.wants(event)
        };
        assert!(wants(&[], &[], &[], &event));
        assert!(wants(&["mail", "b"], &["failed"], &["send"], &event));
        assert!(!wants(&["b"], &["failed"], &["send"], &event));
        assert!(!wants(&[], &["archived"], &[], &event));
        assert!(!wants(&[], &[], &["other"], &event));
        assert!(!wants(&["mail"], &[], &[], &Event::new(Kind::ServerStarted, UnixMilli(5))));
        assert!(wants(&["mail"], &["failed"], &["send"], &Event::new(Kind::Dropped, UnixMilli(5))));
    }

    #[test]
    fn what_a_later_version_says_is_read_as_far_as_it_is_known() {
        assert_eq!(Event::parse(r#"{"kind":"failed","at":5,"new":1}"#), Some(Event::new(Kind::Failed, UnixMilli(5))));
        assert_eq!(Event::parse(r#"{"kind":"unheard_of","at":5}"#), None);
        let wanted = Wanted::parse(r#"{"until":7,"kinds":["unheard_of"],"new":1}"#).unwrap();
        assert!(!wanted.wants(&Event::new(Kind::Failed, UnixMilli(5))) && wanted.until == 7);
    }

    #[test]
    fn a_long_error_is_cut_between_letters() {
        let event = Event::new(Kind::Failed, UnixMilli(5)).because(&format!("x{}", "ü".repeat(MAX_NOTE_BYTES)));
        assert_eq!(event.error.unwrap().len(), MAX_NOTE_BYTES - 1);
    }
}

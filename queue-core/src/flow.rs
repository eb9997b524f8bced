//! Flows: the ids by which tasks belong to one, the states of its members, and the events that callbacks wait for.
//!
//! The rules by which states and events follow from outcomes stand in the scripts (`lua/lib/flow_rules.lua`), and in
//! words in `docs/flows.md`.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::wire::TaskMessage;

/// What the id of every task begins with that belongs to a flow. Clients refuse such an id from users.
pub const PREFIX: &str = "flow:";

/// The retention that members carry: ten years and a second. A Go worker so leaves a member that succeeded at the far end of
/// `completed`, where a server of ours finds it and nothing else; the odd second tells it from what users ask for.
pub const MEMBER_RETENTION: Duration = Duration::from_secs(315_360_001);

/// The retention of a node for which others wait: 90 days and a second. So its result is there for them; it is deleted with
/// the workflow. The odd second tells it from what users ask for.
pub const RESULT_RETENTION: Duration = Duration::from_secs(90 * 24 * 60 * 60 + 1);

/// The header that tells a node where the results are of those it has waited for: a JSON object of their names, each with `queue`
/// and `id` of a task, or with the id of a `batch`.
pub const INPUT_HEADER: &str = "x-flow-input";

/// The type of what stands in the ledger for a node that waits for a signal. No task of this type is ever enqueued.
pub const SIGNAL_TYPE: &str = "x:signal";

/// The header in which the retention travels that the user asked for, in seconds: `keep=60`.
pub const HEADER: &str = "x-flow";

crate::words! {
    /// What happens to a flow as a whole.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Event {
        /// All members have been attempted at least once.
        Complete: "complete",
        /// All members have succeeded.
        Success: "success",
        /// A member has died, for the first time.
        Death: "death",
        /// Nothing is left to be done, however it ended.
        Settled: "settled",
    }
}

impl Event {
    /// All of them, in the order in which they can happen.
    pub const ALL: [Self; 4] = [Self::Death, Self::Complete, Self::Success, Self::Settled];
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How one member stands, as the four bits in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum MemberState {
    /// Not a member: refused as a duplicate.
    Void = 0,
    /// A node of a workflow that waits for others.
    Waiting = 1,
    /// Its task is in its queue, or on its way there; of a child flow: it runs.
    Sent = 2,
    /// As sent, and one attempt has failed; of a child flow: all of it was attempted.
    Failing = 3,
    /// It succeeded, for good.
    Succeeded = 4,
    /// It is in the archive, and may be run again; of a child flow: it ended badly.
    Dead = 5,
    /// It was deleted, revoked or lost.
    Removed = 6,
    /// It was cancelled with its flow.
    Cancelled = 7,
    /// A node that does not run, because what it needs did not come.
    Skipped = 8,
    /// A child flow that runs on and cannot succeed unless somebody helps.
    Doomed = 10,
    /// The same, all of which was attempted.
    #[serde(rename = "doomed")]
    DoomedAttempted = 12,
}

impl MemberState {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Void,
        Self::Waiting,
        Self::Sent,
        Self::Failing,
        Self::Succeeded,
        Self::Dead,
        Self::Removed,
        Self::Cancelled,
        Self::Skipped,
        Self::Doomed,
        Self::DoomedAttempted,
    ];

    /// The state of these four bits; `None` for bits that nobody writes.
    pub fn from_bits(bits: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == bits)
    }

    /// Its name in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Void => "void",
            Self::Waiting => "waiting",
            Self::Skipped => "skipped",
            Self::Sent => "sent",
            Self::Failing => "failing",
            Self::Succeeded => "succeeded",
            Self::Dead => "dead",
            Self::Removed => "removed",
            Self::Cancelled => "cancelled",
            Self::Doomed | Self::DoomedAttempted => "doomed",
        }
    }

    /// Whether something is still to come from it.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Waiting | Self::Sent | Self::Failing | Self::Doomed | Self::DoomedAttempted)
    }
}

crate::words! {
    /// What a node of a workflow wants of another one before it runs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum When with ALL {
        /// That it succeeds.
        Succeeded: "succeeded",
        /// That it dies or is removed.
        Failed: "failed",
        /// That it ends, whatever becomes of it.
        Ended: "ended",
    }
}

/// What stands in the ledger before the edges of a node that may fail.
pub const MAY_FAIL: &str = "?";

impl When {
    /// What stands behind the number of the other node in the ledger.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Succeeded => "",
            Self::Failed => "!",
            Self::Ended => "*",
        }
    }

    /// Reads an edge, as it stands in the ledger: the number of the other node, and what is wanted of it.
    ///
    /// ```
    /// use queue_core::flow::When;
    ///
    /// assert_eq!(When::read("12!"), Some((12, When::Failed)));
    /// ```
    pub fn read(edge: &str) -> Option<(u32, Self)> {
        let number = edge.trim_end_matches(['!', '*']);
        let when = Self::ALL.into_iter().find(|when| when.sign() == &edge[number.len()..])?;
        Some((number.parse().ok()?, when))
    }
}

crate::words! {
    /// What becomes of a node that waits for a signal when its time is over.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Otherwise with ALL {
        /// It has succeeded, as if the signal had come, without anything said.
        Succeed: "succeed",
        /// It is skipped, as if the signal had been declined.
        Skip: "skip",
        /// It is dead; a signal that comes later lets it recover.
        Fail: "fail",
    }
}

crate::words! {
    /// What becomes known about a member.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum MemberOutcome with ALL {
        /// Its handler succeeded.
        Ok: "ok",
        /// An attempt failed, or its worker crashed, and it will be tried again.
        Failing: "failing",
        /// It was archived.
        Dead: "dead",
        /// It was revoked or deleted, or is nowhere to be found.
        Removed: "removed",
        /// It was deleted because its flow is cancelled.
        Cancelled: "cancelled",
        /// It is run again.
        Again: "again",
        /// It was never enqueued: refused as a duplicate.
        Void: "void",
    }
}

/// A flow of a tree.
///
/// ```
/// use queue_core::flow::FlowId;
///
/// let id: FlowId = "import:2".parse().unwrap();
/// assert_eq!((id.root(), id.number()), ("import", 2));
/// assert_eq!(id.to_string(), "import:2");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FlowId {
    root: String,
    number: u32,
}

impl FlowId {
    /// The root of a tree.
    ///
    /// # Errors
    /// When the name cannot be one.
    pub fn root_named(name: &str) -> Result<Self, FlowIdError> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if (1..=64).contains(&name.len()) && name.bytes().all(is_part) {
            Ok(Self { root: name.to_owned(), number: 0 })
        } else {
            Err(FlowIdError(name.chars().take(80).collect()))
        }
    }

    /// Another flow of the same tree.
    #[must_use]
    pub fn sibling(&self, number: u32) -> Self {
        Self { root: self.root.clone(), number }
    }

    /// The name of the tree: the id of its root.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The same, and the id is taken apart.
    pub fn into_root(self) -> String {
        self.root
    }

    /// Its number in the tree; 0 is the root.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)?;
        if self.number > 0 { write!(f, ":{}", self.number) } else { Ok(()) }
    }
}

impl std::str::FromStr for FlowId {
    type Err = FlowIdError;

    fn from_str(text: &str) -> Result<Self, FlowIdError> {
        let (root, number) = text.split_once(':').unwrap_or((text, "0"));
        let number = plain_number(number).ok_or_else(|| FlowIdError(text.chars().take(80).collect()))?;
        Ok(Self { number, ..Self::root_named(root)? })
    }
}

/// A text that is not the id of a flow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the id of a batch; that is 1 to 64 of the characters A-Z a-z 0-9 _ . -, and for a child \":\" and its number"
)]
pub struct FlowIdError(String);

/// What a task is in its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The member of this number, and its run: 1, or the generation of the flow in which it was run again with what is before it.
    Member(u32, u32),
    /// The callback of an event, and how many times the flow had begun anew by then, from 1.
    Callback(Event, u32),
}

/// What the id of a task says about its flow: `flow:<root>:<flow>:<number>`, with `.<run>` if that is not the first one, or
/// `flow:<root>:<flow>:<event>`, with `.<generation>` from the second generation on. Where the user has chosen the name of the root, `~<second>` follows it, so that what
/// is left of an earlier tree of that name is not taken for a part of this one.
///
/// ```
/// use queue_core::flow::{Event, MemberId, Part};
///
/// let id = MemberId::of("flow:import~1700000000:2:17").unwrap();
/// assert_eq!((id.flow.to_string(), id.born), ("import:2".to_owned(), Some(1_700_000_000)));
/// assert_eq!(id.part, Part::Member(17, 1));
/// let callback = MemberId::of("flow:k3v9:0:death.2").unwrap();
/// assert_eq!(callback.part, Part::Callback(Event::Death, 2));
/// assert_eq!(callback.to_string(), "flow:k3v9:0:death.2");
/// assert!(MemberId::of("mine").is_none());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId {
    /// The flow.
    pub flow: FlowId,
    /// The second at which a root with a chosen name was created.
    pub born: Option<i64>,
    /// What the task is in it.
    pub part: Part,
}

impl MemberId {
    /// What a task's id says; `None` for a task of no flow.
    pub fn of(id: &str) -> Option<Self> {
        let mut parts = id.strip_prefix(PREFIX)?.split(':');
        let (root, flow, part) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let (root, born) = match root.split_once('~') {
            Some((root, born)) => (root, Some(plain_number(born)?)),
            None => (root, None),
        };
        let (part, again) = part.split_once('.').map_or((part, None), |(part, again)| (part, Some(again)));
        let again = again.map_or(Some(1), plain_number)?;
        let part = match plain_number(part) {
            Some(number) => Part::Member(number, again),
            None => Part::Callback(Event::from_name(part)?, again),
        };
        Some(Self { flow: FlowId { number: plain_number(flow)?, ..FlowId::root_named(root).ok()? }, born, part })
    }

    /// Who adds to a flow, as the scripts want it.
    pub fn behalf(&self) -> String {
        match self.part {
            Part::Member(number, _) => format!("{} {number}", self.flow.number),
            Part::Callback(event, _) => format!("{} {event}", self.flow.number),
        }
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In pieces: a member's id is made for each task of a batch, and arguments of a format cost twice as much.
        f.write_str(PREFIX)?;
        f.write_str(&self.flow.root)?;
        if let Some(born) = self.born {
            write!(f, "~{born}")?;
        }
        f.write_str(":")?;
        fmt::Display::fmt(&self.flow.number, f)?;
        f.write_str(":")?;
        let (part, run): (&dyn fmt::Display, u32) = match &self.part {
            Part::Member(number, run) => (number, *run),
            Part::Callback(event, generation) => (event, *generation),
        };
        part.fmt(f)?;
        if run == 1 { Ok(()) } else { write!(f, ".{run}") }
    }
}

/// A number as it is printed: without sign, blanks or leading zeros.
fn plain_number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

/// Whether a task belongs to a flow, by its id.
pub fn is_member(id: &[u8]) -> bool {
    id.starts_with(PREFIX.as_bytes())
}

/// The seconds for which a task is to be kept after its success: its retention, and for the member of a flow, whose
/// retention is not for the user, what its header says. A task to which Go's client has given an id like that of a member has its own.
pub fn retention(message: &TaskMessage) -> i64 {
    let is_members = u64::try_from(message.retention) == Ok(MEMBER_RETENTION.as_secs());
    if !is_members || !is_member(message.id.as_bytes()) {
        return message.retention;
    }
    let keep = message.headers.get(HEADER).and_then(|header| header.strip_prefix("keep=")?.parse().ok());
    keep.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_nobody_writes_are_no_members() {
        for id in
            ["flow:", "flow:a", "flow:a:0", "flow:a:0:", "flow:a:00:1", "flow:a:0:01", "flow:a:0:1:2", "flow::0:1"]
        {
            assert_eq!(MemberId::of(id), None, "{id}");
        }
        for id in [
            "flow:a:0:boom",
            "flow:a:0:death.",
            "flow:a~:0:1",
            "flow:a b:0:1",
            "flow:a:0:-1",
            "flow:a:0:+1",
            "flow:a:+0:1",
            "flow:a~-5:0:1",
            "flow:a:0:1.",
            "flow:a:0:1.x",
            "flow:a:0:4294967296",
        ] {
            assert_eq!(MemberId::of(id), None, "{id}");
        }
    }

    #[test]
    fn ids_come_back_as_they_were_written() {
        for id in
            ["flow:a:0:0", "flow:a.b-c_D:7:4294967295", "flow:a:0:17.3", "flow:a~5:1:success", "flow:a:0:settled.9"]
        {
            assert_eq!(MemberId::of(id).unwrap().to_string(), id);
        }
    }

    #[test]
    fn a_member_is_kept_as_its_header_says() {
        let message = |id: &str, keep: Option<&str>| TaskMessage {
            id: id.to_owned(),
            retention: MEMBER_RETENTION.as_secs() as i64,
            headers: keep.map(|keep| (HEADER.to_owned(), keep.to_owned())).into_iter().collect(),
            ..TaskMessage::default()
        };
        assert_eq!(retention(&message("a", Some("keep=5"))), 315_360_001);
        // Of Go's client, which refuses no id.
        assert_eq!(retention(&TaskMessage { retention: 60, ..message("flow:a:0:1", None) }), 60);
        assert_eq!(retention(&message("flow:a:0:1", None)), 0);
        assert_eq!(retention(&message("flow:a:0:1", Some("keep=5"))), 5);
        assert_eq!(retention(&message("flow:a:0:1", Some("else"))), 0);
    }

    #[test]
    fn states_fit_into_four_bits_and_come_back() {
        for state in MemberState::ALL {
            assert!((state as u8) < 16);
            assert_eq!(MemberState::from_bits(state as u8), Some(state));
        }
        assert_eq!(MemberState::from_bits(9), None);
    }
}

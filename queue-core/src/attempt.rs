//! What is remembered of attempts that failed: the last five of a task, in fields of its hash.
//!
//! `x_n` counts them, and the n-th stands in the field `x_a<(n − 1) mod 5>`. Where the n-th had a backtrace, `x_trace` is
//! `<n> <backtrace>`; it stays when a later one has none, and is not shown then. Go's servers leave all of it alone and write
//! none: where they have worked on the task too, it was retried more often than there are entries.

use std::fmt;
use std::time::Duration;

use crate::clock::{UnixMilli, UnixSecond};
use crate::crash::LEASE_EXPIRED;
use crate::mask::mask_passwords;
use crate::outcome::Step;

/// So many attempts of a task are remembered, the last ones.
pub const REMEMBERED: usize = 5;

/// The longest error text of one, in bytes. The last error stands in full in the message.
const MAX_ERROR_LEN: usize = 512;

/// The longest backtrace, in bytes.
const MAX_BACKTRACE_LEN: usize = 4 * 1024;

/// What parts an entry from its backtrace, on the way to Redis. `lua/lib/finish.lua` has it too.
const BACKTRACE: char = '\0';

/// The fields of a task's hash that hold its attempts: their number, the ring, then the backtrace of the last.
pub const FIELDS: [&str; 2 + REMEMBERED] = ["x_n", "x_a0", "x_a1", "x_a2", "x_a3", "x_a4", "x_trace"];

crate::words! {
    /// How an attempt ended that did not succeed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AttemptEnd {
        /// It failed, and the task waits for another one.
        Failed: "failed",
        /// It failed, and the task was given up.
        Archived: "archived",
        /// Its worker went silent.
        Lost: "lost",
    }
}

/// One attempt that did not succeed. Attempts that were put back without spending a retry are not remembered.
///
/// In Redis: `<end, Unix milliseconds> <length, milliseconds or -> <word> <server> <error>`, the backtrace beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// When it ended.
    pub ended: UnixMilli,
    /// How long it took; `None` when nobody knows.
    pub took: Option<Duration>,
    /// How it ended.
    pub end: AttemptEnd,
    /// Where it ran, `<host>:<pid>:<uuid>`; `unknown` for a server of Go.
    pub server: String,
    /// Why it failed, cut to 512 bytes.
    pub error: String,
    /// Where, cut to 4 KiB; kept for the last one only, and where there is one.
    pub backtrace: Option<String>,
}

impl Attempt {
    /// An attempt that came to this step, from `started_ns` to `ended_ns`, by the token of its take. `None` when it is not
    /// remembered.
    pub fn of(step: &Step, started_ns: i64, ended_ns: i64, token: &str) -> Option<Self> {
        let (message, end) = match step {
            Step::Retry { message, is_failure: true, .. } => (message, AttemptEnd::Failed),
            Step::Archive { message } => (message, AttemptEnd::Archived),
            _ => return None,
        };
        let took = u64::try_from(ended_ns.saturating_sub(started_ns)).unwrap_or(0);
        Some(Self {
            ended: UnixMilli::of_ns(ended_ns),
            took: Some(Duration::from_nanos(took)),
            end,
            server: server(token),
            error: cut(&message.error_msg),
            backtrace: None,
        })
    }

    /// Adds where it failed.
    pub fn set_backtrace(&mut self, backtrace: &str) {
        let backtrace = mask_passwords(backtrace.to_owned());
        self.backtrace = Some(backtrace[..backtrace.floor_char_boundary(MAX_BACKTRACE_LEN)].to_owned());
    }

    /// An attempt whose worker went silent: its lease ended at this second, and this was the token of its take.
    pub fn lost(lease_ended: UnixSecond, token: &str) -> Self {
        Self {
            ended: lease_ended.into(),
            took: None,
            end: AttemptEnd::Lost,
            server: server(token),
            error: LEASE_EXPIRED.to_owned(),
            backtrace: None,
        }
    }

    /// Reads one entry.
    fn parse(entry: &str) -> Option<Self> {
        let mut words = entry.splitn(5, ' ');
        let mut word = || words.next();
        let ended = UnixMilli(word()?.parse().ok()?);
        let took = match word()? {
            "-" => None,
            took => Some(Duration::from_millis(took.parse().ok()?)),
        };
        let end = match word()? {
            "failed" => AttemptEnd::Failed,
            "archived" => AttemptEnd::Archived,
            "lost" => AttemptEnd::Lost,
            _ => return None,
        };
        Some(Self { ended, took, end, server: word()?.to_owned(), error: word()?.to_owned(), backtrace: None })
    }

    /// What the [`FIELDS`] of a task say: how many attempts there were, and the last of them, oldest first. What cannot be
    /// read is left out.
    pub fn read(fields: &[Option<String>; 2 + REMEMBERED]) -> (u64, Vec<Self>) {
        let [count, ring @ .., backtrace] = fields;
        let count: u64 = count.as_deref().and_then(|count| count.parse().ok()).unwrap_or(0);
        let places = count.saturating_sub(REMEMBERED as u64)..count;
        let entry = |n: u64| Self::parse(ring[usize::try_from(n % REMEMBERED as u64).unwrap_or(0)].as_deref()?);
        let mut attempts: Vec<_> = places.filter_map(entry).collect();
        if let (Some(last), Some((n, backtrace))) =
            (attempts.last_mut(), backtrace.as_deref().and_then(|field| field.split_once(' ')))
            && n.parse() == Ok(count)
        {
            last.backtrace = Some(backtrace.to_owned());
        }
        (count, attempts)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.ended.0)?;
        match self.took {
            Some(took) => write!(f, "{}", took.as_millis())?,
            None => f.write_str("-")?,
        }
        write!(f, " {} {} {}", self.end.as_str(), self.server, self.error.replace(BACKTRACE, " "))?;
        match &self.backtrace {
            Some(backtrace) => write!(f, "{BACKTRACE}{backtrace}"),
            None => Ok(()),
        }
    }
}

/// The server of a take: its token without the number.
fn server(token: &str) -> String {
    let name = token.rsplit_once(':').map_or(token, |(name, _)| name);
    if name.is_empty() { "unknown".to_owned() } else { name.replace(' ', "_") }
}

/// An error as it is told of a task, cut to 512 bytes.
pub(crate) fn cut(error: &str) -> String {
    error[..error.floor_char_boundary(MAX_ERROR_LEN)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::TaskMessage;

    fn attempt(error: &str) -> Attempt {
        let message = TaskMessage { error_msg: error.to_owned(), ..TaskMessage::default() };
        let step = Step::Retry { message, at: 0, is_failure: true };
        Attempt::of(&step, 1_000_000_000, 3_500_000_000, "h:7:u:42").unwrap()
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let entry = attempt("connection refused").to_string();
        assert_eq!(entry, "3500 2500 failed h:7:u connection refused");
        let mut fields: [Option<String>; 7] = Default::default();
        (fields[0], fields[1]) = (Some("1".to_owned()), Some(entry));
        assert_eq!(Attempt::read(&fields), (1, vec![attempt("connection refused")]));
        let lost = Attempt::lost(UnixSecond(7), "");
        assert_eq!(lost.to_string(), "7000 - lost unknown asynq: task lease expired");
        assert_eq!(Attempt::parse(&lost.to_string()), Some(lost));
        assert_eq!(attempt(&"ü".repeat(512)).error.len(), 512);
    }

    #[test]
    fn a_backtrace_is_of_the_last_attempt_alone() {
        let mut traced = attempt("a\0b");
        traced.set_backtrace(&"ä: redis://me:secret@host".repeat(400));
        assert_eq!(traced.backtrace.as_ref().map(String::len), Some(4096));
        traced.set_backtrace("0: main\n 1: at redis://me:secret@host");
        let sent = traced.to_string();
        let (entry, backtrace) = sent.split_once('\0').unwrap();
        assert_eq!(entry, "3500 2500 failed h:7:u a b");
        assert!(backtrace.starts_with("0: main\n 1: at ") && !backtrace.contains("secret"), "{backtrace}");

        let mut fields: [Option<String>; 7] = Default::default();
        (fields[0], fields[1], fields[2]) = (Some("2".to_owned()), Some(entry.to_owned()), Some(entry.to_owned()));
        let mut seen = |field: &str| {
            fields[6] = Some(field.to_owned());
            Attempt::read(&fields).1.into_iter().map(|one| one.backtrace).collect::<Vec<_>>()
        };
        assert_eq!(seen("2 0: main\n 1: b"), [None, Some("0: main\n 1: b".to_owned())]);
        for other in ["1 0: main", "2", "", "what 0: main"] {
            assert_eq!(seen(other), [None, None], "{other}");
        }
    }

    #[test]
    fn the_ring_is_read_from_the_oldest_on_and_nonsense_left_out() {
        let entry = |n: i64| Some(Attempt::lost(UnixSecond(n), "h:1:u:1").to_string());
        let fields = [Some("7".to_owned()), entry(6), entry(7), entry(3), Some("what".to_owned()), entry(5), None];
        let (count, attempts) = Attempt::read(&fields);
        assert_eq!(
            (count, attempts.iter().map(|one| one.ended.0).collect::<Vec<_>>()),
            (7, vec![3000, 5000, 6000, 7000])
        );
        assert_eq!(Attempt::read(&Default::default()), (0, vec![]));
        for nonsense in ["", "x - failed s e", "1 - won s e", "1 - failed s"] {
            assert_eq!(Attempt::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn only_what_failed_is_remembered() {
        let message = TaskMessage::default();
        let snoozed = Step::Retry { message: message.clone(), at: 0, is_failure: false };
        assert_eq!(Attempt::of(&snoozed, 0, 1, "h:7:u:42"), None);
        assert_eq!(Attempt::of(&Step::Done, 0, 1, "h:7:u:42"), None);
        let archived = Attempt::of(&Step::Archive { message }, 0, 1, "h:7:u:42").unwrap();
        assert_eq!(archived.end, AttemptEnd::Archived);
    }
}

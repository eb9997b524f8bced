//! What servers of ours say of themselves beside asynq's format, and what operators want of them.
//!
//! An entry is written by the server alone, orders by operators; a server goes by them and says in its entry which ones it
//! has seen. A server without an entry is Go's or an older one of ours: it takes no orders, and honours none of what only
//! entries tell ([`honours`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::limits::ENTRY_WRITTEN_WITHIN_SECS;

/// What servers of this version honour beyond asynq's format, by the words that stand in their entries.
pub const FEATURES: [&str; 6] = ["batches", "cancel", EVENTS, LIMITS, ORDERS, TARGETS];
/// The word for: it tells what happens while somebody listens.
pub const EVENTS: &str = "events";
/// The word for: it takes tasks by the [limits](crate::limit) of their queue.
pub const LIMITS: &str = "limits";
/// The word for: it takes orders.
pub const ORDERS: &str = "orders";
/// The word for: it serves the mailboxes of its name and the queues of its labels ([`queue_name`](crate::queue_name)).
pub const TARGETS: &str = "targets";
/// The most bytes of a server's name, or of one of its labels.
pub const MAX_NAME: usize = 100;

/// What a server says of itself: the JSON in `asynq:x:servers:{<host>:<pid>:<uuid>}`. It holds while the server is
/// listed in `asynq:servers`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ServerEntry {
    /// Its name, if it was given one. Several servers may have the same.
    pub name: Option<String>,
    /// Its labels.
    pub labels: BTreeSet<String>,
    /// The version of the library.
    pub version: String,
    /// What it honours beyond asynq's format.
    pub features: BTreeSet<String>,
    /// The task types that it has handlers for.
    pub types: BTreeSet<String>,
    /// The beginnings of task types that it has handlers for; the empty one is every type.
    pub prefixes: BTreeSet<String>,
    /// The revisions of the orders that it goes by.
    pub applied: BTreeSet<String>,
    /// What of them it cannot do, and why; all of it, of every order that stands ([`Order::is_refused_by`]).
    pub refused: Vec<String>,
}

impl ServerEntry {
    /// Reads one; `None` if it cannot be read.
    pub fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// Whether it has a handler for tasks of this type.
    pub fn handles(&self, task_type: &str) -> bool {
        self.types.contains(task_type) || self.prefixes.iter().any(|prefix| task_type.starts_with(prefix))
    }

    /// As it is written.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Whether a server with this entry, or none, honours a feature.
///
/// ```
/// use queue_core::registry::{ServerEntry, honours};
///
/// assert!(!honours(None, "orders"), "Go's servers have no entry");
/// let entry = ServerEntry::parse(br#"{"features": ["orders"]}"#);
/// assert!(honours(entry.as_ref(), "orders"));
/// assert!(!honours(entry.as_ref(), "limits"), "it is older than these");
/// ```
pub fn honours(entry: Option<&ServerEntry>, feature: &str) -> bool {
    entry.is_some_and(|entry| entry.features.contains(feature))
}

/// Whether a server that is listed since `started` (Unix seconds) does not honour a feature. It has a moment to say what it
/// is: a server of ours is listed before it has written its entry.
pub fn is_unaware(entry: Option<&ServerEntry>, feature: &str, started: i64, now: i64) -> bool {
    !honours(entry, feature) && (entry.is_some() || now >= started.saturating_add(ENTRY_WRITTEN_WITHIN_SECS))
}

/// Whether a server can have this name, or label: 1 to 100 letters, digits, `.`, `_` and `-`. It becomes part of a key, and
/// of commands.
pub fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(fits)
}

crate::words! {
    /// What somebody wants a server to be.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Mode {
        /// Taking tasks.
        Active: "active",
        /// Taking none; what it has goes on.
        Quiet: "quiet",
        /// Ending, as after TERM.
        Stop: "stop",
    }
}

/// One order: what is to be different from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// What the server is to be.
    pub mode: Option<Mode>,
    /// How many tasks it is to run at once.
    pub concurrency: Option<u32>,
    /// The weights of queues that it serves; of a queue of weight 0 it takes no tasks.
    pub queues: BTreeMap<String, u32>,
}

impl Order {
    /// The fields by which it is recorded, as of `at_ms` (Unix milliseconds).
    pub fn fields(&self, at_ms: i64) -> Vec<(String, String)> {
        let mode = self.mode.map(|mode| ("mode".to_owned(), mode.as_str().to_owned()));
        let concurrency = self.concurrency.map(|tasks| ("concurrency".to_owned(), tasks.to_string()));
        let queues = self.queues.iter().map(|(queue, weight)| (format!("{QUEUE}{queue}"), weight.to_string()));
        let fields = mode.into_iter().chain(concurrency).chain(queues);
        fields.map(|(field, value)| (field, format!("{at_ms} {value}"))).collect()
    }

    /// Whether this, which a server refuses, was wanted by this order, and not by one before it that still stands. A key
    /// that cannot be read may have been about anything.
    pub fn is_refused_by(&self, refusal: &str) -> bool {
        let begins = |subject: &str| refusal.starts_with(subject);
        let is_of_mode = match self.mode {
            Some(Mode::Stop) => begins("stop: "),
            Some(Mode::Active) => begins("resume: "),
            Some(Mode::Quiet) | None => false,
        };
        let is_of_queue = |queue: &String| begins(&format!("queue {queue}: "));
        is_of_mode
            || begins("the key of ")
            || self.concurrency.is_some() && begins("concurrency ")
            || !self.queues.is_empty() && begins("weights: ")
            || self.queues.keys().any(is_of_queue)
    }
}

const QUEUE: &str = "queue:";

/// All that is wanted of a server by one key: `asynq:x:want:{…}` or `asynq:x:want-name:<name>`. Each value has the Unix
/// millisecond at which it was ordered, so that of two keys the later counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Want {
    /// Names the last order of this key.
    pub revision: Option<String>,
    /// Names the last order that took back all before it.
    pub reset: Option<String>,
    /// What the server is to be.
    pub mode: Option<(i64, Mode)>,
    /// How many tasks it is to run at once.
    pub concurrency: Option<(i64, u32)>,
    /// The weights of queues.
    pub queues: BTreeMap<String, (i64, u32)>,
    /// Fields that cannot be read.
    pub unreadable: BTreeSet<String>,
}

impl Want {
    /// Nothing, of a key that cannot be read.
    pub fn unreadable(why: &str) -> Self {
        Self { unreadable: BTreeSet::from([why.to_owned()]), ..Self::default() }
    }

    /// Reads a hash; one without fields wants nothing.
    pub fn parse(fields: &HashMap<String, String>) -> Self {
        let mut want = Self::default();
        for (field, text) in fields {
            let value = text.split_once(' ').and_then(|(at, value)| Some((at.parse::<i64>().ok()?, value)));
            let number = value.and_then(|(at, value)| Some((at, value.parse().ok()?)));
            let is_read = match (&**field, field.strip_prefix(QUEUE)) {
                ("revision", _) => want.revision.replace(text.clone()).is_none(),
                ("reset", _) => want.reset.replace(text.clone()).is_none(),
                ("by", _) => true,
                ("mode", _) => {
                    want.mode = value.and_then(|(at, value)| Some((at, Mode::from_name(value)?)));
                    want.mode.is_some()
                }
                ("concurrency", _) => {
                    want.concurrency = number;
                    number.is_some()
                }
                (_, Some(queue)) => number.map(|number| want.queues.insert(queue.to_owned(), number)).is_some(),
                _ => false,
            };
            if !is_read {
                want.unreadable.insert(field.clone());
            }
        }
        want
    }

    /// What is wanted now that the key says this: what it does not say stays as it was, because Redis forgets the key while
    /// its server goes on, until a reset.
    #[must_use]
    pub fn renewed(&self, mut now: Self) -> Self {
        if now.reset.is_some() && now.reset != self.reset {
            return now;
        }
        for (queue, ordered) in &self.queues {
            now.queues.entry(queue.clone()).or_insert(*ordered);
        }
        let reset = self.reset.clone();
        Self { reset, mode: now.mode.or(self.mode), concurrency: now.concurrency.or(self.concurrency), ..now }
    }

    /// Of two keys that are about the same server, for each value the one that was ordered later.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        let mut queues = self.queues.clone();
        for (queue, ordered) in &other.queues {
            let known = queues.entry(queue.clone()).or_insert(*ordered);
            *known = later(Some(*known), Some(*ordered)).unwrap_or(*ordered);
        }
        Self {
            revision: None,
            reset: None,
            mode: later(self.mode, other.mode),
            concurrency: later(self.concurrency, other.concurrency),
            queues,
            unreadable: self.unreadable.union(&other.unreadable).cloned().collect(),
        }
    }
}

fn later<T>(one: Option<(i64, T)>, other: Option<(i64, T)>) -> Option<(i64, T)> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.0 >= one.0 { other } else { one }),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(at_ms: i64, order: &Order) -> Want {
        Want::parse(&order.fields(at_ms).into_iter().collect())
    }

    #[test]
    fn what_was_ordered_is_read_as_it_was() {
        let queues = BTreeMap::from([("mail".to_owned(), 3), ("a b:c".to_owned(), 0)]);
        let order = Order { mode: Some(Mode::Quiet), concurrency: Some(20), queues };
        let read = want(7, &order);
        assert_eq!((read.mode, read.concurrency), (Some((7, Mode::Quiet)), Some((7, 20))));
        assert_eq!(read.queues, BTreeMap::from([("mail".to_owned(), (7, 3)), ("a b:c".to_owned(), (7, 0))]));
        assert!(read.unreadable.is_empty());
        assert_eq!(want(7, &Order::default()), Want::default());
    }

    #[test]
    fn an_order_is_refused_by_what_is_about_its_own_values() {
        let queues = |name: &str| Order { queues: BTreeMap::from([(name.to_owned(), 1)]), ..Order::default() };
        let mode = |mode| Order { mode: Some(mode), ..Order::default() };
        let slots = Order { concurrency: Some(3), ..Order::default() };
        let refusals = ["stop: x", "resume: x", "concurrency 0: x", "weights: x", "queue mail: x", "the key of y: x"];
        for (order, own) in [
            (Order::default(), &[5][..]),
            (mode(Mode::Quiet), &[5]),
            (mode(Mode::Stop), &[0, 5]),
            (mode(Mode::Active), &[1, 5]),
            (slots, &[2, 5]),
            (queues("other"), &[3, 5]),
            (queues("mail"), &[3, 4, 5]),
        ] {
            let found: Vec<usize> = (0..6).filter(|n| order.is_refused_by(refusals[*n])).collect();
            assert_eq!(found, own, "{order:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_and_changes_nothing() {
        let fields = [("mode", "7 asleep"), ("concurrency", "20"), ("queue:mail", "7 -1"), ("colour", "7 red")];
        let fields: HashMap<_, _> = fields.map(|(field, value)| (field.to_owned(), value.to_owned())).into();
        let read = Want::parse(&fields);
        assert_eq!(read.unreadable, fields.keys().cloned().collect());
        assert_eq!(Want { unreadable: BTreeSet::new(), ..read }, Want::default());
    }

    #[test]
    fn of_two_keys_the_later_order_counts_value_by_value() {
        let mail = |weight| BTreeMap::from([("mail".to_owned(), weight)]);
        let older = want(1, &Order { mode: Some(Mode::Quiet), concurrency: Some(5), queues: mail(5) });
        let newer = want(2, &Order { mode: Some(Mode::Active), concurrency: None, queues: mail(1) });
        for merged in [older.merged(&newer), newer.merged(&older)] {
            assert_eq!((merged.mode, merged.concurrency), (Some((2, Mode::Active)), Some((1, 5))));
            assert_eq!(merged.queues["mail"], (2, 1));
        }
    }

    #[test]
    fn what_was_ordered_stands_until_a_reset_though_the_key_is_forgotten() {
        let mail = |weight| BTreeMap::from([("mail".to_owned(), weight)]);
        let reset = |name: &str| Want::parse(&HashMap::from([("reset".to_owned(), name.to_owned())]));
        let quiet = want(1, &Order { mode: Some(Mode::Quiet), concurrency: Some(5), queues: mail(5) });
        let known = Want::default().renewed(quiet.clone());
        assert_eq!(known, quiet);
        // By somebody whose clock is behind: of one key the last order counts.
        let known = known.renewed(want(0, &Order { concurrency: Some(9), ..Order::default() }));
        assert_eq!(
            (known.mode, known.concurrency, known.queues["mail"]),
            (Some((1, Mode::Quiet)), Some((0, 9)), (1, 5))
        );
        let known = known.renewed(reset("a"));
        assert_eq!(known, reset("a"));
        let known = known.renewed(Want { reset: reset("a").reset, ..quiet });
        assert_eq!(known.renewed(reset("a")).mode, Some((1, Mode::Quiet)), "seen before");
        assert_eq!(known.renewed(Want { reset: reset("b").reset, ..want(3, &Order::default()) }).mode, None);
    }

    #[test]
    fn an_entry_survives_newer_and_older_readers() {
        let entry = ServerEntry::parse(br#"{"name": "web-1", "future": {"x": 1}}"#).unwrap();
        assert_eq!(entry.name.as_deref(), Some("web-1"));
        assert_eq!(ServerEntry::parse(entry.to_json().as_bytes()), Some(entry));
        assert_eq!(ServerEntry::parse(b"nonsense"), None);
    }

    #[test]
    fn names_are_words_that_fit_into_keys() {
        for name in ["web-1", "GPU.eu_2", &"x".repeat(MAX_NAME)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a b", "{a}", "a:b", "ü", &"x".repeat(MAX_NAME + 1)] {
            assert!(!is_name(name), "{name}");
        }
    }
}

//! Which key belongs to what, by its name alone.

use bytes::Bytes;

/// The keys of a queue whose names have nothing after them, and the types they have.
const PLAIN: [(&str, &str); 13] = [
    ("pending", "list"),
    ("active", "list"),
    ("lease", "zset"),
    ("scheduled", "zset"),
    ("retry", "zset"),
    ("archived", "zset"),
    ("completed", "zset"),
    ("groups", "set"),
    ("aggregation_sets", "zset"),
    ("paused", "string"),
    ("processed", "string"),
    ("failed", "string"),
    ("x:aggregated", "set"),
];

/// The global keys and their types.
pub(super) const GLOBAL: [(&str, &str); 5] = [
    (queue_core::keys::QUEUES, "set"),
    (queue_core::keys::SERVERS, "zset"),
    (queue_core::keys::WORKERS, "zset"),
    (queue_core::keys::SCHEDULERS, "zset"),
    (queue_core::keys::CRON_ENTRIES, "zset"),
];

/// What a key of a queue is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// The hash of a task.
    Task(Bytes),
    /// A uniqueness lock.
    Lock,
    /// A group, or a set taken out of one; what follows `g:`.
    Group(Bytes),
    /// A list or set of tasks, by its name in the queue.
    Holder(&'static str),
    /// A counter.
    Counter,
    /// Anything else that we know.
    Other,
}

/// A key of a queue: the queue, what it is, and the type it has to be of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) queue: String,
    pub(super) part: Part,
    pub(super) kind: &'static str,
}

/// Reads a key's name; `None` for what is not asynq's and not ours. A queue's name may have braces and colons
/// in it, so that a key can be read in two ways: then a queue that is listed is meant, else the shorter name.
pub(super) fn parse(key: &[u8], is_listed: impl Fn(&str) -> bool) -> Option<Name> {
    let rest = std::str::from_utf8(key.strip_prefix(b"asynq:{")?);
    // A name that is not UTF-8 behind the queue is one of a task or a group; the queue itself is UTF-8.
    let valid = rest.map_or_else(|error| error.valid_up_to(), str::len);
    let bytes = &key["asynq:{".len()..];
    let mut first = None;
    for (at, _) in bytes[..valid].windows(2).enumerate().filter(|(_, pair)| *pair == b"}:") {
        let Ok(queue) = std::str::from_utf8(&bytes[..at]) else { continue };
        let Some((part, kind)) = part(&bytes[at + 2..]) else { continue };
        let name = Name { queue: queue.to_owned(), part, kind };
        if is_listed(queue) {
            return Some(name);
        }
        first = first.or(Some(name));
    }
    first
}

fn part(name: &[u8]) -> Option<(Part, &'static str)> {
    let after = |start: &str| name.strip_prefix(start.as_bytes()).map(Bytes::copy_from_slice);
    if let Some(id) = after("t:") {
        return Some((Part::Task(id), "hash"));
    }
    if let Some(group) = after("g:") {
        return Some((Part::Group(group), "zset"));
    }
    if after("unique:").is_some() {
        return Some((Part::Lock, "string"));
    }
    if after("processed:").is_some() || after("failed:").is_some() {
        return Some((Part::Counter, "string"));
    }
    let (found, kind) = PLAIN.iter().find(|(plain, _)| plain.as_bytes() == name)?;
    let part = match *found {
        "processed" | "failed" => Part::Counter,
        "groups" | "paused" | "x:aggregated" => Part::Other,
        name => Part::Holder(name),
    };
    Some((part, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &str, listed: &[&str]) -> Option<(String, Part)> {
        parse(key.as_bytes(), |queue| listed.contains(&queue)).map(|name| (name.queue, name.part))
    }

    #[test]
    fn a_key_is_read_by_its_name() {
        let task = |id: &'static str| Part::Task(id.into());
        assert_eq!(read("asynq:{q}:t:1", &[]), Some(("q".into(), task("1"))));
        assert_eq!(read("asynq:{q}:g:a:b", &[]), Some(("q".into(), Part::Group("a:b".into()))));
        assert_eq!(read("asynq:{q}:processed:2026-01-02", &[]), Some(("q".into(), Part::Counter)));
        assert_eq!(read("asynq:{q}:unique:t:", &[]), Some(("q".into(), Part::Lock)));
        assert_eq!(read("asynq:{q}:pending", &[]), Some(("q".into(), Part::Holder("pending"))));
        for other in ["asynq:queues", "asynq:servers:{h:1:u}", "asynq:{q}:x:cron:e", "asynq:{q}", "mine"] {
            assert_eq!(read(other, &[]), None, "{other}");
        }
    }

    #[test]
    fn of_two_readings_the_one_of_a_listed_queue_is_meant() {
        let key = "asynq:{a}:t:b}:pending";
        assert_eq!(read(key, &[]), Some(("a".into(), Part::Task("b}:pending".into()))));
        assert_eq!(read(key, &["a}:t:b"]), Some(("a}:t:b".into(), Part::Holder("pending"))));
    }

    #[test]
    fn an_id_may_be_no_text() {
        let name = parse(b"asynq:{q}:t:\xff", |_| false).unwrap();
        assert_eq!(name.part, Part::Task(Bytes::from_static(b"\xff")));
    }
}

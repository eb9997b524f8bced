//! Which queue and family a key belongs to, by its name alone.

use bytes::Bytes;
use queue_core::keys::{KeyFamily, queue_family};

/// A key of a queue, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) queue: String,
    pub(super) family: &'static KeyFamily,
    /// What follows the beginning of the family: the id of a task, the name of a group.
    pub(super) rest: Bytes,
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
        let name = &bytes[at + 2..];
        let Some(family) = queue_family(name) else { continue };
        let rest = Bytes::copy_from_slice(&name[family.beginning().len()..]);
        let name = Name { queue: queue.to_owned(), family, rest };
        if is_listed(queue) {
            return Some(name);
        }
        first = first.or(Some(name));
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &str, listed: &[&str]) -> Option<(String, &'static str, Bytes)> {
        parse(key.as_bytes(), |queue| listed.contains(&queue)).map(|name| (name.queue, name.family.name, name.rest))
    }

    fn name(queue: &str, family: &'static str, rest: &'static str) -> Option<(String, &'static str, Bytes)> {
        Some((queue.to_owned(), family, rest.into()))
    }

    #[test]
    fn a_key_is_read_by_its_name() {
        assert_eq!(read("asynq:{q}:t:1", &[]), name("q", "t:<id>", "1"));
        assert_eq!(read("asynq:{q}:g:a:b", &[]), name("q", "g:<group>", "a:b"));
        assert_eq!(read("asynq:{q}:processed:2026-01-02", &[]), name("q", "processed:<day>", "2026-01-02"));
        assert_eq!(read("asynq:{q}:pending", &[]), name("q", "pending", ""));
        assert_eq!(read("asynq:{q}:x:cron:e", &[]), name("q", "x:cron:<entry>", "e"));
        for other in ["asynq:queues", "asynq:servers:{h:1:u}", "asynq:{q}", "asynq:{q}:x:else", "mine"] {
            assert_eq!(read(other, &[]), None, "{other}");
        }
    }

    #[test]
    fn of_two_readings_the_one_of_a_listed_queue_is_meant() {
        let key = "asynq:{a}:t:b}:pending";
        assert_eq!(read(key, &[]), name("a", "t:<id>", "b}:pending"));
        assert_eq!(read(key, &["a}:t:b"]), name("a}:t:b", "pending", ""));
    }

    #[test]
    fn an_id_may_be_no_text() {
        let name = parse(b"asynq:{q}:t:\xff", |_| false).unwrap();
        assert_eq!(name.rest, Bytes::from_static(b"\xff"));
    }
}

//! A picture of everything in a Redis, to compare the whole of it.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use queue_core::TaskMessage;
use redis::aio::MultiplexedConnection;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// All facts in a Redis: a path (key and what is inside it) and a text for each. The prefix `asynq:`,
/// which every key has, is left out; a key without it is marked.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Keyspace(BTreeMap<String, String>);

impl Keyspace {
    pub(crate) async fn read(connection: &mut MultiplexedConnection) -> Self {
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(connection).await.unwrap();
        let mut facts = BTreeMap::new();
        // Looks at some keys travel together; those at thousands would take longer than anybody waits.
        for keys in keys.chunks(50) {
            let keys = keys.iter().map(|key| read_key(connection.clone(), key.clone()));
            facts.extend(futures_util::future::join_all(keys).await.into_iter().flatten());
        }
        Self(facts)
    }

    /// The same without what running servers tell about themselves.
    pub(crate) fn without_servers(mut self) -> Self {
        let told = ["servers", "workers", "x:servers"];
        self.0.retain(|path, _| !told.iter().any(|name| path.starts_with(name)));
        self
    }

    /// The same without the keys that begin like this.
    pub(crate) fn without(mut self, beginning: &str) -> Self {
        self.0.retain(|path, _| !path.starts_with(beginning));
        self
    }

    /// The same without how long keys live that end within a day, which depends on when one looks.
    pub(crate) fn without_relative_ttls(mut self) -> Self {
        let is_relative = |path: &str, text: &str| text.starts_with("in about ") || path.ends_with(" x_bin_lock");
        self.0
            .iter_mut()
            .filter(|(path, text)| is_relative(path, text))
            .for_each(|(_, text)| *text = "soon".to_owned());
        self
    }

    /// What is different since `before`, a line each: `-` for what was, `+` for what is.
    pub(crate) fn changes_since(&self, before: &Self) -> String {
        let mut lines = String::new();
        let paths: std::collections::BTreeSet<&String> = before.0.keys().chain(self.0.keys()).collect();
        for path in paths {
            let (was, is) = (before.0.get(path), self.0.get(path));
            if was != is {
                was.into_iter().for_each(|text| lines.push_str(&format!("- {path}: {text}\n")));
                is.into_iter().for_each(|text| lines.push_str(&format!("+ {path}: {text}\n")));
            }
        }
        lines
    }

    /// Fails unless exactly these lines are different since `before`; they may be indented.
    #[track_caller]
    pub(crate) fn assert_changes_since(&self, before: &Self, expected: &str) {
        let expected: String =
            expected.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect();
        let found = self.changes_since(before);
        assert!(found == expected, "the changes are\n{found}instead of\n{expected}");
    }

    #[track_caller]
    pub(crate) fn assert_unchanged_since(&self, before: &Self) {
        self.assert_changes_since(before, "");
    }

    /// The text at a path.
    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// The facts in which this word stands.
    pub(crate) fn about(&self, word: &str) -> Self {
        let has = |text: &str| text.split(|c: char| "[] :".contains(c)).any(|part| part == word);
        Self(self.0.clone().into_iter().filter(|(path, text)| has(path) || has(text)).collect())
    }

    /// The paths of the facts in which this word stands.
    pub(crate) fn paths_with(&self, word: &str) -> Vec<String> {
        self.about(word).0.into_keys().collect()
    }
}

impl fmt::Display for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(path, text)| writeln!(f, "{path}: {text}"))
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

async fn read_key(mut connection: MultiplexedConnection, key: String) -> BTreeMap<String, String> {
    let connection = &mut connection;
    let mut facts = BTreeMap::new();
    let path = key.strip_prefix("asynq:").map_or_else(|| format!("!{key}"), str::to_owned);
    let mut look = redis::pipe();
    look.cmd("TYPE").arg(&key).cmd("PTTL").arg(&key).cmd("TIME");
    let (kind, ttl_ms, (now, micros)): (String, i64, (i64, i64)) = look.query_async(connection).await.unwrap();
    if ttl_ms > DAY_MS {
        // Redis 6.2 does not know it.
        let told = redis::cmd("EXPIRETIME").arg(&key).query_async(connection).await;
        let expires_at: i64 = told.unwrap_or(now + (ttl_ms + micros / 1_000 + 500) / 1_000);
        facts.insert(format!("{path} expires"), format!("at {expires_at}"));
    } else if ttl_ms >= 0 {
        // Some time passes between writing and reading.
        facts.insert(format!("{path} expires"), format!("in about {} s", (ttl_ms + 5_000) / 10_000 * 10));
    }
    let cmd = |name: &str| {
        let mut cmd = redis::cmd(name);
        cmd.arg(&key);
        cmd
    };
    match kind.as_str() {
        "string" => {
            let value: Vec<u8> = cmd("GET").query_async(connection).await.unwrap();
            facts.insert(path, text(&value));
        }
        "list" => {
            let items: Vec<Vec<u8>> = cmd("LRANGE").arg(0).arg(-1).query_async(connection).await.unwrap();
            let items: Vec<String> = items.iter().map(|item| text(item)).collect();
            facts.insert(path, format!("[{}]", items.join(" ")));
        }
        "set" => {
            let members: Vec<Vec<u8>> = cmd("SMEMBERS").query_async(connection).await.unwrap();
            facts.extend(members.iter().map(|member| (format!("{path} {}", text(member)), "member".to_owned())));
        }
        "zset" => {
            let range = cmd("ZRANGE").arg(0).arg(-1).arg("WITHSCORES").to_owned();
            let members: Vec<(Vec<u8>, String)> = range.query_async(connection).await.unwrap();
            facts.extend(
                members.iter().map(|(member, score)| (format!("{path} {}", text(member)), format!("score {score}"))),
            );
        }
        "hash" => {
            let fields: Vec<(String, Vec<u8>)> = cmd("HGETALL").query_async(connection).await.unwrap();
            facts.extend(fields.iter().map(|(field, value)| {
                let value = if field == "msg" { message(value) } else { text(value) };
                (format!("{path} {field}"), value)
            }));
        }
        // What tests put in the place of another key.
        "stream" => {
            facts.insert(path, "a stream".to_owned());
        }
        // It has gone since it was listed.
        "none" => facts.clear(),
        other => panic!("the key {key:?} has the type {other:?}"),
    }
    facts
}

fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(|c: char| c.is_control()) => text.to_owned(),
        _ => format!("0x{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

/// The fields of a message which have a value.
fn message(bytes: &[u8]) -> String {
    let Ok(message) = TaskMessage::from_bytes(Bytes::copy_from_slice(bytes)) else {
        return format!("unreadable {}", text(bytes));
    };
    let TaskMessage { r#type, payload, id, queue, retry, retried, error_msg, timeout, deadline, .. } = &message;
    let TaskMessage { unique_key, last_failed_at, retention, completed_at, group_key, headers, .. } = &message;
    let fields = [
        ("type", r#type.clone()),
        ("payload", text(payload)),
        ("id", id.clone()),
        ("queue", queue.clone()),
        ("retry", number(i64::from(*retry))),
        ("retried", number(i64::from(*retried))),
        ("error_msg", error_msg.clone()),
        ("timeout", number(*timeout)),
        ("deadline", number(*deadline)),
        ("unique_key", unique_key.clone()),
        ("last_failed_at", number(*last_failed_at)),
        ("retention", number(*retention)),
        ("completed_at", number(*completed_at)),
        ("group_key", group_key.clone()),
        ("headers", headers.iter().map(|(key, value)| format!("{key}:{value}")).collect::<Vec<_>>().join(",")),
    ];
    let fields: Vec<String> =
        fields.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("{name}={value}")).collect();
    fields.join(" ")
}

fn number(value: i64) -> String {
    if value == 0 { String::new() } else { value.to_string() }
}

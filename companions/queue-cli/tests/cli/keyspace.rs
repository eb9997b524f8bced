//! All that is in a Redis, to compare two of them.

use std::collections::BTreeMap;

use redis::Value;
use redis::aio::MultiplexedConnection;

/// Each key with its value, as text, and when it expires, as far as that can be the same in two places. Without
/// what servers tell about themselves.
pub(crate) async fn keyspace(url: &str) -> BTreeMap<String, String> {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    let mut found = BTreeMap::new();
    for key in keys.into_iter().filter(|key| !key.starts_with("asynq:servers") && !key.starts_with("asynq:workers")) {
        let text = read(&mut connection, &key).await;
        found.insert(key, text);
    }
    found
}

async fn read(connection: &mut MultiplexedConnection, key: &str) -> String {
    let mut cmd = redis::cmd("TYPE");
    let kind: String = cmd.arg(key).query_async(connection).await.unwrap();
    let command: &[&str] = match kind.as_str() {
        "string" => &["GET"],
        "list" => &["LRANGE", "0", "-1"],
        "set" => &["SMEMBERS"],
        "zset" => &["ZRANGE", "0", "-1", "WITHSCORES"],
        "hash" => &["HGETALL"],
        other => panic!("{key} is a {other}"),
    };
    let mut cmd = redis::cmd(command[0]);
    let value: Value = cmd.arg(key).arg(&command[1..]).query_async(connection).await.unwrap();
    let mut items = match value {
        Value::Array(items) | Value::Set(items) => items.iter().map(text).collect(),
        Value::Map(pairs) => pairs.iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect(),
        single => vec![text(&single)],
    };
    if kind == "hash" && items.iter().all(|item| !item.contains('=')) {
        items = items.chunks(2).map(|pair| pair.join("=")).collect();
    }
    if kind == "set" || kind == "hash" {
        items.sort();
    }
    let mut cmd = redis::cmd("TTL");
    let ttl: i64 = cmd.arg(key).query_async(connection).await.unwrap();
    // Some seconds pass between one Redis and the other.
    let expires = if ttl < 0 { String::new() } else { format!(" for {} s", (ttl + 30) / 60 * 60) };
    format!("{kind}{expires} {items:?}")
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => bytes.escape_ascii().to_string(),
        other => format!("{other:?}"),
    }
}

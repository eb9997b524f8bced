//! How long bulk changes hold up Redis, by its own slow log. By hand:
//! `RUSTFLAGS="--cfg measure" cargo test -p queue-tests --test it -- --nocapture how_long_bulk_changes`.

use std::collections::BTreeMap;

use queue_admin::{Filter, Inspector};
use queue_core::TaskState;

use super::start;
use crate::support::{Fixture, QUEUE, job};

const TASKS: u64 = 100_000;
/// What is faster than this many microseconds is only counted.
const WORTH_TELLING_US: u64 = 250;

/// Copies the task `model` of a state into [`TASKS`] tasks.
async fn multiply(fixture: &Fixture, state: TaskState) {
    let model = job("model").payload(format!(r#"{{"user":7,"text":"{}"}}"#, "x".repeat(200)));
    fixture.put_in(state, model.header("odd", "no")).await;
    let copy = "local hash = redis.call('HGETALL', 'asynq:{q}:t:model')
    local source = 'asynq:{q}:' .. (ARGV[1] == 'aggregating' and 'g:g' or ARGV[1])
    if ARGV[2] == '1' then
        redis.call('DEL', source)
    end
    for n = ARGV[2], ARGV[2] + 999 do
        local id = string.format('0e9b1f2a-0000-4000-8000-%012d', n)
        redis.call('HSET', 'asynq:{q}:t:' .. id, unpack(hash))
        if ARGV[1] == 'pending' then
            redis.call('LPUSH', source, id)
        else
            redis.call('ZADD', source, 5000000000 + n, id)
        end
    end";
    for from in (1..=TASKS).step_by(1_000) {
        let _: redis::Value = fixture.cmd(&["EVAL", copy, "0", state.as_str(), &from.to_string()]).await;
    }
    fixture.run("DEL asynq:{q}:t:model").await;
    // Every third task is another one.
    let odd = job("odd").payload(r#"{"user":8}"#).header("odd", "yes");
    let odd = fixture.compose(odd).message.to_bytes();
    let mark = "for n = ARGV[2], ARGV[2] + 2999, 3 do
        local task = string.format('asynq:{q}:t:0e9b1f2a-0000-4000-8000-%012d', n)
        if redis.call('EXISTS', task) == 1 then
            redis.call('HSET', task, 'msg', ARGV[1])
        end
    end";
    for from in (1..=TASKS).step_by(3_000) {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(mark).arg(0).arg(&odd[..]).arg(from);
        fixture.raw_query::<redis::Value>(&cmd).await;
    }
    fixture.run(&format!("CONFIG SET slowlog-log-slower-than {WORTH_TELLING_US}")).await;
    fixture.run("CONFIG SET slowlog-max-len 10000").await;
    fixture.run("CONFIG RESETSTAT").await;
    fixture.run("SLOWLOG RESET").await;
}

/// The calls since the last time, by command: how many, how long in the middle, how many were longer than
/// certain times, and the longest.
async fn report(fixture: &Fixture, what: &str, took: std::time::Duration) {
    type Entry = (u64, i64, u64, Vec<String>, String, String);
    let entries: Vec<redis::Value> = fixture.cmd(&["SLOWLOG", "GET", "-1"]).await;
    let mut slow: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for entry in entries {
        let Ok((_, _, micros, words, ..)) = redis::from_redis_value::<Entry>(entry) else { continue };
        slow.entry(words[0].to_lowercase()).or_default().push(micros);
    }
    println!("{what}: {took:?}");
    let stats: String = fixture.cmd(&["INFO", "commandstats"]).await;
    for line in stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")) {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        if let Some(micros) = slow.get(name) {
            let over = |limit: u64| micros.iter().filter(|micros| **micros > limit).count();
            let numbers: Vec<&str> =
                numbers.split(',').filter(|n| n.starts_with("calls") || n.starts_with("usec_per")).collect();
            let longest = micros.iter().max().copied().unwrap_or(0);
            println!(
                "  {name:10} {numbers:?}, over 0.5 ms: {}, over 1 ms: {}, longest {longest} us",
                over(500),
                over(1000)
            );
        }
    }
    fixture.run("SLOWLOG RESET").await;
    fixture.run("CONFIG RESETSTAT").await;
}

#[tokio::test]
async fn how_long_bulk_changes_hold_up_redis() {
    let third = Filter::new().header_is("odd", "yes");
    for (state, verb, filter) in [
        (TaskState::Pending, "delete", &third),
        (TaskState::Pending, "archive", &Filter::new().header_is("odd", "yes").payload("user", "8")),
        (TaskState::Pending, "delete", &Filter::new()),
        (TaskState::Retry, "run", &Filter::new()),
        (TaskState::Retry, "archive", &Filter::new()),
        (TaskState::Retry, "delete", &third),
        (TaskState::Aggregating, "delete", &Filter::new()),
    ] {
        let (fixture, inspector) = start().await;
        multiply(&fixture, state).await;
        let filter = filter.clone().state(state);
        let began = std::time::Instant::now();
        let changed = match verb {
            "run" => inspector.run_all(QUEUE, &filter, |_| {}).await,
            "archive" => inspector.archive_all(QUEUE, &filter, |_| {}).await,
            _ => inspector.delete_all(QUEUE, &filter, |_| {}).await,
        };
        report(&fixture, &format!("{verb} {state}: {changed:?}"), began.elapsed()).await;
    }
    let (fixture, inspector) = start().await;
    multiply(&fixture, TaskState::Pending).await;
    one_by_one(&fixture, &inspector).await;
}

async fn one_by_one(fixture: &Fixture, inspector: &Inspector) {
    let began = std::time::Instant::now();
    for n in [1, TASKS / 2, TASKS] {
        inspector.delete_task(QUEUE, &format!("0e9b1f2a-0000-4000-8000-{n:012}")).await.unwrap();
    }
    report(fixture, "one oldest, one in the middle, one newest", began.elapsed()).await;
    let began = std::time::Instant::now();
    println!("{:?}", inspector.remove_queue(QUEUE, true).await);
    report(fixture, "remove the queue", began.elapsed()).await;
}

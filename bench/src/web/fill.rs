//! A queue with very many tasks of one state, as asynq keeps them.

use queue_core::clock::Clock as _;
use queue_core::wire::TaskMessage;
use queue_core::{SystemClock, TaskState};

use crate::Failure;
use crate::server::Server;

const DAY: i64 = 86_400;
/// Tasks in one call of the script.
const AT_ONCE: u64 = 1_000;
/// What stands for the number of a task, which has as many digits.
const NUMBER: &str = "999999999999";

/// A message has its number in its id and in its payload.
const SCRIPT: &str = "\
local list, prefix, state, now, message, marked, every = KEYS[1], KEYS[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7]) \
redis.call('SADD', 'asynq:queues', ARGV[8]) \
for n = ARGV[1], ARGV[2] do \
  local number = string.format('%012d', n) \
  local msg = string.gsub(n % every == every - 1 and marked or message, '999999999999', number) \
  local id = '00000000-0000-4000-8000-' .. number \
  redis.call('HSET', prefix .. id, 'msg', msg, 'state', state) \
  if state == 'pending' then \
    redis.call('HSET', prefix .. id, 'pending_since', now .. '000000000') \
    redis.call('LPUSH', list, id) \
  else redis.call('ZADD', list, now + 86400 + n, id) end \
end";

/// Puts so many tasks in this state into the queue, the first of which is the next one to be taken, due or gone.
pub(super) async fn fill(server: &mut Server, queue: &str, state: TaskState, count: u64) -> Result<(), Failure> {
    fill_and_mark(server, queue, state, count, 0).await
}

/// The same; so many of them, evenly, have `"marked": true` in their payload.
pub(super) async fn fill_and_mark(
    server: &mut Server,
    queue: &str,
    state: TaskState,
    count: u64,
    marked: u64,
) -> Result<(), Failure> {
    let now = SystemClock.now_secs();
    let [plain, with_mark] = [false, true].map(|is_marked| message(queue, state, now, is_marked).to_bytes());
    // With none to mark, the first one would be behind the last task.
    let every = count.checked_div(marked).unwrap_or(count + 1);
    for first in (0..count).step_by(AT_ONCE as usize) {
        let mut call = redis::cmd("EVAL");
        let prefix = format!("asynq:{{{queue}}}:");
        call.arg(SCRIPT).arg(2).arg(format!("{prefix}{state}")).arg(format!("{prefix}t:"));
        call.arg(first).arg(count.min(first + AT_ONCE) - 1).arg(state.as_str()).arg(now);
        call.arg(&plain[..]).arg(&with_mark[..]).arg(every).arg(queue);
        server.call(&call).await?;
    }
    Ok(())
}

fn message(queue: &str, state: TaskState, now: i64, is_marked: bool) -> TaskMessage {
    let text = "x".repeat(150);
    let mut message = TaskMessage {
        r#type: "email:send".into(),
        payload: format!(r#"{{"user":{{"id":1{NUMBER}}},"marked":{is_marked},"text":"{text}"}}"#).into(),
        id: format!("00000000-0000-4000-8000-{NUMBER}"),
        queue: queue.into(),
        retry: 25,
        timeout: 1_800,
        ..TaskMessage::default()
    };
    match state {
        TaskState::Retry => {
            message.retried = 1;
            message.last_failed_at = now;
            message.error_msg = "dial tcp 10.0.0.7:25: connect: connection refused".into();
        }
        TaskState::Completed => {
            message.retention = DAY;
            message.completed_at = now;
        }
        _ => {}
    }
    message
}

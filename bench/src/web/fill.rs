//! A queue with very many tasks of one state, as asynq keeps them.

use queue_core::clock::Clock as _;
use queue_core::wire::TaskMessage;
use queue_core::{SystemClock, TaskState};

use crate::Failure;
use crate::server::Server;

const DAY: i64 = 86_400;
/// Tasks in one pipeline.
const AT_ONCE: u64 = 1_000;

/// The id of a task by its number.
pub(super) fn id(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// Puts so many tasks in this state into the queue, the first of which is the next one to be taken, due or gone.
pub(super) async fn fill(server: &mut Server, queue: &str, state: TaskState, count: u64) -> Result<(), Failure> {
    let now = SystemClock.now_secs();
    let key = |suffix: &str| format!("asynq:{{{queue}}}:{suffix}");
    for first in (0..count).step_by(AT_ONCE as usize) {
        let mut pipe = redis::pipe();
        pipe.cmd("SADD").arg("asynq:queues").arg(queue).ignore();
        for number in first..count.min(first + AT_ONCE) {
            let mut message = TaskMessage {
                r#type: "email:send".into(),
                payload: format!(r#"{{"user":{{"id":{number}}},"text":"{}"}}"#, "x".repeat(170)).into(),
                id: id(number),
                queue: queue.into(),
                retry: 25,
                timeout: 1_800,
                ..TaskMessage::default()
            };
            let hash = key(&format!("t:{}", message.id));
            let (due, place) = (now + DAY + number.cast_signed(), key(state.as_str()));
            match state {
                TaskState::Pending => {
                    pipe.cmd("LPUSH").arg(place).arg(&message.id).ignore();
                    pipe.cmd("HSET").arg(&hash).arg("pending_since").arg(now * 1_000_000_000).ignore();
                }
                TaskState::Retry => {
                    message.retried = 1;
                    message.last_failed_at = now;
                    message.error_msg = "dial tcp 10.0.0.7:25: connect: connection refused".into();
                    pipe.cmd("ZADD").arg(place).arg(due).arg(&message.id).ignore();
                }
                TaskState::Completed => {
                    message.retention = DAY;
                    message.completed_at = now;
                    pipe.cmd("ZADD").arg(place).arg(due).arg(&message.id).ignore();
                }
                _ => {
                    pipe.cmd("ZADD").arg(place).arg(due).arg(&message.id).ignore();
                }
            }
            let encoded = message.to_bytes();
            pipe.cmd("HSET").arg(hash).arg("msg").arg(&encoded[..]).arg("state").arg(state.as_str()).ignore();
        }
        server.send(&pipe).await?;
    }
    Ok(())
}

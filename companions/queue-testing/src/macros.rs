//! Assertions about what is enqueued.

/// Fails unless a task waits in a [`TestQueue`](crate::TestQueue) that is as described: pending, scheduled, in
/// a group, or for another attempt. Gives the tasks that are. Has to stand where one can `await`.
///
/// After the queue comes the type, as a Rust type or as a text; then, in any order and each of them optional:
///
/// | | |
/// | --- | --- |
/// | `{"user": 7}` | the payload is JSON and has at least this |
/// | `\|task\| task.user == 7` | the decoded payload fulfils this |
/// | `queue = "mail"` | it is in this queue |
/// | `at = time` | it is due at this time, a `DateTime<Utc>` |
/// | `header = ("tenant", "a")` | it has this header |
/// | `times = 2` | there are exactly two such tasks |
///
/// ```
/// # use queue_testing::{TestQueue, assert_enqueued, refute_enqueued};
/// # use queue_worker::Task;
/// # use std::time::Duration;
/// #[derive(serde::Serialize, serde::Deserialize, Task)]
/// #[task(type = "email:welcome", queue = "mail")]
/// struct Welcome {
///     user: u64,
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let queue = TestQueue::new();
/// queue.enqueue(Welcome { user: 7 }).await;
///
/// assert_enqueued!(queue, Welcome);
/// assert_enqueued!(queue, Welcome, |task| task.user == 7);
/// assert_enqueued!(queue, "email:welcome", {"user": 7}, queue = "mail", at = queue.now(), times = 1);
/// refute_enqueued!(queue, Welcome, {"user": 8});
/// # }
/// ```
///
/// # Panics
/// When there is none, or another number than expected; the message says what there is.
#[macro_export]
macro_rules! assert_enqueued {
    ($queue:expr, $($what:tt)+) => {
        match $queue.find_enqueued(&$crate::expected!($($what)+)).await {
            Ok(found) => found,
            Err(text) => panic!("{text}"),
        }
    };
}

/// Fails if a task waits that is as described; the opposite of [`assert_enqueued!`].
///
/// # Panics
/// When there is one; the message lists them.
#[macro_export]
macro_rules! refute_enqueued {
    ($queue:expr, $($what:tt)+) => {
        if let Err(text) = $queue.find_none_enqueued(&$crate::expected!($($what)+)).await {
            panic!("{text}")
        }
    };
}

/// An [`Expected`](crate::Expected) out of the arguments of [`assert_enqueued!`].
#[macro_export]
macro_rules! expected {
    ($task_type:literal $(, $($rest:tt)*)?) => {
        $crate::expected!(@ (where_task) $crate::Expected::task_type($task_type); $($($rest)*)?)
    };
    ($task:ty $(, $($rest:tt)*)?) => {
        $crate::expected!(@ (matching::<$task>) $crate::Expected::of::<$task>(); $($($rest)*)?)
    };
    (@ $typed:tt $expected:expr;) => { $expected };
    (@ $typed:tt $expected:expr; {$($json:tt)*} $(, $($rest:tt)*)?) => {
        $crate::expected!(@ $typed $expected.json($crate::json!({$($json)*})); $($($rest)*)?)
    };
    (@ $typed:tt $expected:expr; queue = $name:expr $(, $($rest:tt)*)?) => {
        $crate::expected!(@ $typed $expected.queue($name); $($($rest)*)?)
    };
    (@ $typed:tt $expected:expr; at = $time:expr $(, $($rest:tt)*)?) => {
        $crate::expected!(@ $typed $expected.at($time); $($($rest)*)?)
    };
    (@ $typed:tt $expected:expr; header = ($name:expr, $value:expr) $(, $($rest:tt)*)?) => {
        $crate::expected!(@ $typed $expected.header($name, $value); $($($rest)*)?)
    };
    (@ $typed:tt $expected:expr; times = $times:expr $(, $($rest:tt)*)?) => {
        $crate::expected!(@ $typed $expected.times($times); $($($rest)*)?)
    };
    (@ ($($check:tt)+) $expected:expr; $condition:expr $(, $($rest:tt)*)?) => {
        $crate::expected!(@ ($($check)+) $expected.$($check)+($condition); $($($rest)*)?)
    };
}

//! Options and how they make a message.

use queue_core::options::{Placement, ProcessTime, check_queue_name, compose};
use queue_core::{RawTask, TaskMessage, TaskOptions, option_text};

use crate::words::Words;

const FARTHEST: i64 = 253_402_300_799;

/// Composes a task.
///
/// # Panics
/// When what was composed cannot be stored so that Go reads it.
pub fn run(data: &[u8]) {
    let mut words = Words::new(data);
    let task = RawTask {
        task_type: words.text(),
        payload: words.maybe(|words| words.bytes().to_vec().into()),
        options: options(&mut words),
    };
    let call = options(&mut words);
    for text in option_text::format(&task.options) {
        assert!(text.contains('('), "{text}");
    }
    let now_ns = words.number();
    match compose(task, call, now_ns) {
        Ok(composed) => {
            let message = &composed.message;
            assert!(!message.r#type.trim().is_empty() && !message.id.trim().is_empty());
            assert_eq!(check_queue_name(&message.queue), Ok(()));
            assert!(message.timeout != 0 || message.deadline != 0, "neither timeout nor deadline");
            for secs in [message.timeout, message.deadline, message.retention, composed.unique_ttl] {
                assert!(secs <= FARTHEST, "{secs}");
            }
            if let Placement::Scheduled { at } = composed.placement {
                assert!(at <= FARTHEST, "{at}");
            }
            assert_eq!(message.unique_key.is_empty(), composed.unique_ttl == 0);
            assert_eq!(TaskMessage::from_bytes(message.to_bytes()).as_ref(), Ok(message));
        }
        Err(error) => drop(error.to_string()),
    }
}

fn options(words: &mut Words<'_>) -> TaskOptions {
    let mut options = TaskOptions {
        queue: words.maybe(Words::text),
        max_retry: words.maybe(|words| words.number() as u32),
        timeout: words.maybe(Words::duration),
        deadline: words.maybe(Words::instant),
        process: words.maybe(|words| match words.flag() {
            true => ProcessTime::In(words.duration()),
            false => ProcessTime::At(words.instant()),
        }),
        task_id: words.maybe(Words::text),
        unique: words.maybe(Words::duration),
        retention: words.maybe(Words::duration),
        group: words.maybe(Words::text),
        ..TaskOptions::new()
    };
    for _ in 0..words.byte() % 3 {
        options.headers.insert(words.text(), words.text());
    }
    options
}

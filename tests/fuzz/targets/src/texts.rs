//! Durations, cron specs, and other short texts.

use queue_core::clock::UnixSecond;
use queue_core::limits::LAST_SECOND;
use queue_core::{TaskState, crash::Crashes, duration, option_text};
use queue_scheduler::{Spec, Zone};

use crate::words::Words;

/// Reads a text as each of them.
///
/// # Panics
/// When a duration does not read back, or a tick is not after the time it was asked for.
pub fn run(data: &[u8]) {
    let mut words = Words::new(data);
    let now = words.number();
    let text = String::from_utf8_lossy(words.rest());
    if let Ok(ns) = duration::parse_ns(&text) {
        assert_eq!(duration::parse_ns(&duration::format_ns(ns)), Ok(ns));
    }
    if let Err(error) = duration::parse(&text) {
        let _ = error.to_string();
    }
    assert_eq!(duration::parse_ns(&duration::format_ns(now)), Ok(now));
    match Spec::parse(&text, &Zone::UTC) {
        Ok(spec) => {
            // A year that a date can have; the scheduler's clock is in it.
            let mut at = UnixSecond(now.rem_euclid(LAST_SECOND));
            for _ in 0..3 {
                let Some(next) = spec.next(at) else { break };
                assert!(next > at, "{text:?}: {next} is not after {at}");
                at = next;
            }
        }
        Err(error) => drop(error.to_string()),
    }
    let _ = text.parse::<TaskState>();
    let _ = option_text::parse_queue(&text);
    let crashes = Crashes::parse(&text);
    assert_eq!(Crashes::parse(&crashes.to_string()), crashes);
}

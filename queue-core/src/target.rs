//! What becomes of a task for servers that are gone.

use std::time::Duration;

use crate::duration;
use crate::wire::TaskMessage;

/// The header that says how long no server may have been alive that may run the task, before any server of its queue may.
pub const FALLBACK: &str = "x-fallback";

/// What a message says; `None` where it says nothing, or nothing that can be read: then it waits for its servers.
pub fn fallback_of(message: &TaskMessage) -> Option<Duration> {
    read_fallback(message.headers.get(FALLBACK)?)
}

/// Reads the value of the header: a duration like `10m`.
pub fn read_fallback(text: &str) -> Option<Duration> {
    duration::parse(text).ok().filter(|fallback| !fallback.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fallback_that_cannot_be_read_is_none() {
        assert_eq!(read_fallback("10m"), Some(Duration::from_secs(600)));
        assert_eq!(read_fallback("1h0m0s"), Some(Duration::from_secs(3_600)));
        for text in ["", "600", "-1s", "0s", "soon"] {
            assert_eq!(read_fallback(text), None, "{text}");
        }
        assert_eq!(fallback_of(&TaskMessage::default()), None);
    }
}

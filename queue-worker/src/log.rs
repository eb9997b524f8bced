//! `tracing`'s macros, but for lines that are not lost while the program has no subscriber.

pub(crate) use queue_redis::log::{error, info, warn};

//! `queuectl export` and `import`: queues on their way from one Redis to another.

pub(crate) mod export;
pub(crate) mod import;
mod tally;

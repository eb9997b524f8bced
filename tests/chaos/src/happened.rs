//! What became of the plan.

use crate::plan::Kind;

/// A fault that has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Happened {
    pub(crate) kind: Kind,
    /// The process it met; none for those that meet all.
    pub(crate) process: Option<u16>,
    /// From when until when, in Unix nanoseconds.
    pub(crate) from: u64,
    pub(crate) to: u64,
}

//! Broadcasts: one task on several servers. Who is chosen, what is remembered of that, and when there have been enough successes.

mod audience;
mod plan;

pub use self::audience::{AudienceError, Candidate, Chosen, LeftOut, To, Unfit, choose};
pub use self::plan::{Plan, Verdict};

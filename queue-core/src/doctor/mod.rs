//! What is wrong with a task or a Redis, and what helps, decided without I/O. Servers go by it when they start and when
//! they put things right by themselves, and so do the tools of operators.

mod fault;
mod finding;
mod judge;
mod redis;
mod task;

pub use fault::{Fault, Severity};
pub use finding::{Finding, FlowRepair, LaneEntries, Repair};
pub use judge::{Judgement, judge};
pub use redis::{Fact, Identity, Info, RedisFacts, Role, judge_info, judge_start, read_info};
pub use task::{Entry, Remedy, Suspect, Target, Whereabouts};

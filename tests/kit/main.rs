//! The kit, used as its users do.

mod batches;
mod budgets;
mod drain;
mod expectations;
mod inline;
mod limits;
mod servers;
mod time;
mod workflows;

use queue_worker::{Failure, Job, Output, Router, Task};
use serde::{Deserialize, Serialize};

/// What the tests enqueue.
#[derive(Debug, Serialize, Deserialize, Task, PartialEq)]
#[task(type = "email:welcome", queue = "mail", max_retry = 2)]
struct Welcome {
    user: u64,
}

impl Welcome {
    /// Works, but for user 0 never, and for user 1 from the second retry on.
    fn router() -> Router {
        Router::new(()).task(async |task: Welcome, job: Job| -> Result<Output<String>, Failure> {
            match (task.user, job.retried()) {
                (0, _) => Err("no such user".into()),
                (1, ..2) => Err("mailbox is busy".into()),
                (user, _) => Ok(Output(format!("to {user}"))),
            }
        })
    }
}

//! Redis itself.

use crate::api::tasks::searching;
use crate::problem::Problem;
use crate::request::{Answer, Request, json};

/// Refuses who may not see all queues: what Redis tells is about all of them.
pub(crate) fn whole_redis(request: &Request) -> Result<(), Problem> {
    if request.who.sees_all() {
        return Ok(());
    }
    Err(Problem::forbidden("forbidden", "who may see some queues only is not told about all of Redis")
        .with("permission", "view"))
}

pub(crate) async fn look(request: Request) -> Answer {
    whole_redis(&request)?;
    let _looking = searching(&request).await?;
    json(&request.inspector().redis_health().await?)
}

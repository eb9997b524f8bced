//! The audit.

use serde_json::json as value;

use crate::request::{Answer, Request, json};

pub(crate) async fn list(request: Request) -> Answer {
    let limit = request.number("limit", 50, 200)?;
    let page = request.inspector().audit(request.param("cursor"), limit).await?;
    // Who is confined to some queues sees what was done in these alone.
    let sees = |queue: &Option<String>| {
        queue.as_deref().map_or(request.who.sees_all(), |queues| request.who.sees_each(queues))
    };
    let items: Vec<_> = page.entries.iter().filter(|entry| sees(&entry.queue)).collect();
    json(&value!({ "items": items, "next": page.next }))
}

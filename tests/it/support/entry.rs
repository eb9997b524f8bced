//! A periodic entry as schedulers tell of it.

use queue_core::TaskMessage;
use queue_redis::broker::{Broker, EntryDefinition, EntryStatus, Occasion, Overlap};

/// Registers the entry `e`; `None` where the scheduler's clock is ahead.
pub(crate) async fn register(
    broker: &Broker,
    queue: &str,
    spec: &str,
    scheduler: &str,
    fresh: bool,
    known: i64,
    now: i64,
) -> Option<EntryStatus> {
    let template = TaskMessage { r#type: "job".into(), queue: queue.into(), ..TaskMessage::default() };
    let definition = EntryDefinition {
        name: "e",
        spec,
        ends: None,
        template: &template,
        unique_ttl: 0,
        overlap: Overlap::Allow,
        policy: r#"{"spec":"@daily"}"#,
    };
    let occasion = if fresh { Occasion::Register } else { Occasion::Beat(0) };
    broker.register_entry(definition, scheduler, occasion, known, now).await.unwrap()
}

//! Tasks as rows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use queue_core::IntoTask;
use queue_core::options::{Composed, Placement};
use queue_core::wire::TaskMessage;
use queue_redis::{Client, EnqueueError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
#[cfg(feature = "tokio-postgres")]
use tokio_postgres::types::Type;

/// The statement that writes a row. Its only parameter is the [text](Row::text).
pub const INSERT: &str = "INSERT INTO queue_outbox (task) VALUES ($1::text::json)";

/// Makes rows of tasks, as this client would enqueue them: its interceptors see them, so that payloads are encrypted and traces go on. Redis is
/// not asked, and need not be reachable: [`Redis::lazy`](queue_redis::Redis::lazy).
#[derive(Debug, Clone)]
pub struct Outbox {
    client: Client,
}

impl Outbox {
    /// An outbox of what this client enqueues.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The row of a task. A delay ([`process_in`](queue_core::TaskOptions::process_in)) counts from now, a uniqueness lock from when the row is
    /// relayed.
    ///
    /// # Errors
    /// Where an option cannot be honoured, the payload cannot be encoded, or the task is too large; never because of Redis.
    pub fn row(&self, task: impl IntoTask) -> Result<Row, EnqueueError> {
        let task = self.client.compose(task)?;
        Ok(Row { text: written(&task), task_id: task.message.id, queue: task.message.queue })
    }
}

/// A row that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    text: String,
    task_id: String,
    queue: String,
}

impl Row {
    /// The text that [`INSERT`] takes.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The id that the task will have.
    pub fn task_id(&self) -> &str {
        &self.task_id
    }

    /// The queue it will be in.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Writes it, within the transaction.
    ///
    /// # Errors
    /// When PostgreSQL cannot be asked or refuses.
    #[cfg(feature = "tokio-postgres")]
    pub async fn insert(&self, transaction: &impl tokio_postgres::GenericClient) -> Result<(), tokio_postgres::Error> {
        // In one round trip: other calls have the statement prepared first.
        transaction.execute_typed(INSERT, &[(&self.text, Type::TEXT)]).await.map(drop)
    }
}

/// A composed task in a row. The first three are for people; what counts is the message.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    r#type: String,
    queue: String,
    task_id: String,
    /// asynq's protobuf message, in base64.
    message: String,
    /// The Unix second at which it is to be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<i64>,
    /// Seconds its uniqueness lock lives; below 0 for a window.
    #[serde(default, skip_serializing_if = "is_zero")]
    unique: i64,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn written(task: &Composed) -> String {
    let Composed { message, placement, unique_ttl, .. } = task;
    let written = Written {
        r#type: message.r#type.clone(),
        queue: message.queue.clone(),
        task_id: message.id.clone(),
        message: STANDARD.encode(message.to_bytes()),
        at: placement.due(),
        unique: *unique_ttl,
    };
    // A struct of texts and numbers.
    serde_json::to_string(&written).unwrap_or_default()
}

/// What the text of a row holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A task as [`Outbox::row`] writes it.
    Message,
    /// A task in words.
    Words,
    /// A batch or a workflow.
    Flow,
}

#[cfg_attr(not(feature = "relay"), expect(dead_code, reason = "rows are read by relays"))]
pub(crate) fn form(text: &str) -> Form {
    #[derive(Deserialize)]
    struct Fields<'a> {
        #[serde(borrow)]
        message: Option<&'a RawValue>,
        #[serde(borrow)]
        r#type: Option<&'a RawValue>,
    }
    match serde_json::from_str(text) {
        Ok(Fields { message: Some(_), .. }) => Form::Message,
        Ok(Fields { r#type: None, .. }) => Form::Flow,
        _ => Form::Words,
    }
}

/// The task in the text of a row that is a message.
#[cfg_attr(not(feature = "relay"), expect(dead_code, reason = "rows are read by relays"))]
pub(crate) fn read(text: &str) -> Result<Composed, String> {
    let told = |why: &dyn std::fmt::Display| format!("its message cannot be read: {why}");
    let written: Written = serde_json::from_str(text).map_err(|error| told(&error))?;
    let bytes = STANDARD.decode(written.message).map_err(|error| told(&error))?;
    let message = TaskMessage::from_bytes(bytes.into()).map_err(|error| told(&error))?;
    let placement = match written.at {
        Some(at) => Placement::Scheduled { at },
        None if message.group_key.is_empty() => Placement::Pending,
        None => Placement::Aggregating,
    };
    for (what, text) in [("type", &message.r#type), ("queue", &message.queue), ("id", &message.id)] {
        if text.is_empty() {
            return Err(told(&format_args!("it has no {what}")));
        }
    }
    Ok(Composed { message, placement, unique_ttl: written.unique, generated_id: true, has_own_lock: false })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use queue_core::RawTask;
    use queue_redis::{Redis, RedisOptions};

    use super::*;

    fn client() -> Client {
        // Nobody listens there.
        Client::new(Redis::lazy("redis://127.0.0.1:1", RedisOptions::default()).unwrap())
    }

    #[tokio::test]
    async fn a_row_holds_all_of_its_task_and_needs_no_redis() {
        let hour = Duration::from_secs(3_600);
        let task = || RawTask::new("email:welcome").payload(vec![0, 159, 255]).queue("mail");
        let client = client().intercept(|task: &mut queue_redis::Outgoing<'_>| task.set_header("tenant", "acme"));
        let outbox = Outbox::new(client.clone());
        for task in [
            task(),
            task().process_in(hour).group("g"),
            task().group("g"),
            task().unique(hour),
            task().unique_key("k").unique(hour).unique_until(queue_core::UniqueUntil::Window).priority(9),
        ] {
            let composed = client.compose(task.clone().task_id("7")).unwrap();
            let row = outbox.row(task.task_id("7")).unwrap();
            assert_eq!(form(row.text()), Form::Message);
            let read = read(row.text()).unwrap();
            assert_eq!(
                (&read.message, &read.placement, read.unique_ttl),
                (&composed.message, &composed.placement, composed.unique_ttl)
            );
            assert_eq!((row.task_id(), row.queue()), ("7", &*composed.message.queue));
            assert!(
                row.text().starts_with(r#"{"type":"email:welcome","queue":"mail"#),
                "people can read it: {}",
                row.text()
            );
        }
        assert!(outbox.row(task().front()).is_err() && outbox.row(task().queue(" ")).is_err());
    }

    #[test]
    fn what_is_no_row_of_ours_is_told() {
        assert_eq!(form(r#"{"type":"t","payload":"message"}"#), Form::Words);
        assert_eq!(form(r#"{"type":null,"tasks":[{"type":"t"}]}"#), Form::Flow);
        for text in [
            r#"{"message":5}"#,
            r#"{"type":"t","queue":"q","task_id":"i","message":"%%"}"#,
            r#"{"type":"t","queue":"q","task_id":"i","message":"/////w=="}"#,
            r#"{"type":"t","queue":"q","task_id":"i","message":""}"#,
        ] {
            assert_eq!(form(text), Form::Message);
            let error = read(text).unwrap_err();
            assert!(error.starts_with("its message cannot be read: "), "{text}: {error}");
        }
    }
}

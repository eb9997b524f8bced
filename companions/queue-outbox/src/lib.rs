//! Enqueueing inside SQL transactions: an *outbox*.
//!
//! A task that is enqueued beside a change in a database is lost when the program dies in between, or runs although the change was rolled back. So
//! it is written as a row of a table, [`queue_outbox`](SCHEMA), in the same transaction. A relay (`queuectl outbox relay`, or a `Relay` in
//! any process, with the feature `relay`) takes what is committed to Redis, each row once, in the order of the table.
//!
//! A row is one text in one column, so that every client of PostgreSQL can write it:
//!
//! ```no_run
//! # async fn example(client: queue_redis::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use queue_core::RawTask;
//! use queue_outbox::{INSERT, Outbox};
//!
//! let outbox = Outbox::new(client);
//! let row = outbox.row(RawTask::new("email:welcome").payload(r#"{"user":7}"#).queue("mail"))?;
//! // sqlx: sqlx::query(INSERT).bind(row.text()).execute(&mut *transaction).await?;
//! println!("{} is enqueued with the transaction: {INSERT}", row.task_id());
//! # Ok(()) }
//! ```
//!
//! Programs that are not written in Rust write the same table by hand; `docs/outbox.md` is the guide.

#[cfg(feature = "relay")]
mod database;
#[cfg(feature = "relay")]
mod relay;
mod row;

#[cfg(feature = "relay")]
pub use database::{Database, DatabaseError, Refused, Waiting};
#[cfg(feature = "relay")]
pub use relay::{Passed, Relay, RelayError};
pub use row::{INSERT, Outbox, Row};

/// The table and its index. Running it again changes nothing.
pub const SCHEMA: &str = include_str!("schema.sql");

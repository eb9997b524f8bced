#![doc = include_str!("../README.md")]

#[cfg(feature = "relay")]
mod database;
#[cfg(feature = "relay")]
mod pass;
#[cfg(feature = "relay")]
mod relay;
mod row;

#[cfg(feature = "relay")]
pub use database::{Database, DatabaseError, Refused, Waiting};
#[cfg(feature = "relay")]
pub use relay::{Passed, Relay, RelayError};
pub use row::{INSERT, Outbox, Row};
#[cfg(feature = "relay")]
#[doc(no_inline)]
pub use tokio_util::sync::CancellationToken;

/// The table and its index. Running it again changes nothing.
pub const SCHEMA: &str = include_str!("schema.sql");

//! Who carries out an operation, a change of many tasks, and how far it has come: `write_operation.lua`.

use queue_core::keys;
use queue_core::limits::{OPERATION_KEPT_SECS, OPERATION_LEASE};
use redis::Value;

use super::Broker;
use crate::error::Error;
use crate::script::WRITE_OPERATION;

/// What somebody who has written down how far an operation is learns of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It may go on.
    Run,
    /// It is to pause.
    Pause,
    /// It is to end.
    Cancel,
    /// Another process has it; nothing was written.
    Others,
    /// It has ended, or is not there; nothing was written.
    Over,
}

impl Broker {
    /// Writes these fields of an operation in the name of a process, which has it from now on, or with `keeps` false has it no
    /// longer.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; it may have been written all the same.
    pub async fn write_operation(
        &self,
        id: &str,
        who: &str,
        keeps: bool,
        fields: &[(&str, String)],
    ) -> Result<Wish, Error> {
        let lease_ms = if keeps { OPERATION_LEASE.as_millis() } else { 0 };
        let mut call = WRITE_OPERATION.call(2);
        call.arg(keys::operation(id)).arg(keys::operation_lease(id));
        call.arg(who).arg(lease_ms.to_string()).arg(OPERATION_KEPT_SECS);
        for (field, value) in fields {
            call.arg(field).arg(value);
        }
        let reply = self.redis.run(&WRITE_OPERATION, &call).await?;
        match &reply {
            Value::BulkString(word) => match &word[..] {
                b"pause" => Ok(Wish::Pause),
                b"cancel" => Ok(Wish::Cancel),
                b"others" => Ok(Wish::Others),
                b"over" => Ok(Wish::Over),
                _ => Ok(Wish::Run),
            },
            _ => Err(Error::unexpected(WRITE_OPERATION.name, &reply)),
        }
    }
}

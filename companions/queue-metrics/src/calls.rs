//! Calls to Redis.

use queue_redis::{Call, Error};

use crate::families::Families;

pub(crate) fn count(families: &Families, call: &Call<'_>) {
    families.call_seconds.with_label_values(&[call.operation]).observe(call.took.as_secs_f64());
    if let Some(error) = call.error {
        families.call_errors.with_label_values(&[call.operation, reason(error)]).inc();
    }
}

fn reason(error: &Error) -> &'static str {
    match error {
        Error::Unreachable { .. } => "unreachable",
        Error::PoolInUse { .. } => "pool_in_use",
        Error::Timeout { .. } => "timeout",
        Error::Disconnected { .. } => "disconnected",
        Error::Refused { .. } => "refused",
        _ => "other",
    }
}

//! Numbers by which several crates go, so that they agree.

/// Seconds that a task is leased for, as in asynq. Its worker renews the lease every 5 s.
pub const LEASE_SECS: i64 = 30;

/// Seconds after the end of a lease before anybody takes the task over, as in asynq. They cover clocks that differ
/// between hosts.
pub const RECOVERY_MARGIN_SECS: i64 = 30;

/// The same for a task that no server says it works on. A server that has the task says so every 5 s.
pub const SILENT_MARGIN_SECS: i64 = 7;

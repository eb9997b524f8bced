//! What the routes do. Each function is named in the table of routes.

pub(crate) mod audit;
pub(crate) mod batches;
pub(crate) mod cron;
pub(crate) mod doctor;
pub(crate) mod enqueue;
pub(crate) mod failures;
pub(crate) mod limits;
pub(crate) mod operations;
pub(crate) mod queues;
pub(crate) mod redis;
pub(crate) mod servers;
pub(crate) mod tasks;
pub(crate) mod whole;

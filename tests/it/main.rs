//! Tests across the crates, against real Redis servers of their own.

mod abandoned;
mod bad_input;
mod client;
mod cluster;
mod clocks;
mod conformance;
mod crash;
mod embedded;
mod encryption;
mod golden;
mod groups;
mod inspector;
mod listener;
mod metrics;
mod model;
mod outage;
mod races;
mod refusals;
mod scheduler;
mod semaphore;
mod sentinel;
mod server;
mod stranded;
mod support;
mod survive;
mod transitions;

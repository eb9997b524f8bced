//! Runs the built binary against private Redis servers.

mod batch;
mod bench;
mod demo;
mod enqueue;
mod exec;
mod exec_end;
mod http;
mod look;
mod session;
mod support;
mod worker;

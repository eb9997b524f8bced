//! Runs the built binary against private Redis servers.

#[path = "../common/as_go.rs"]
mod as_go;
mod batch;
mod bench;
mod broadcast;
mod bulk;
mod demo;
mod doctor;
mod enqueue;
mod events;
mod exec;
mod exec_end;
mod explain;
mod failures;
mod flows;
mod guide;
mod hostile;
mod http;
mod keyspace;
mod limit;
mod look;
mod manage;
mod manual;
mod metrics;
mod notes;
mod outbox;
#[expect(dead_code, reason = "the tests of the outbox itself use all of it")]
#[path = "../../../queue-outbox/tests/outbox/postgres.rs"]
mod postgres;
mod priorities;
mod scheduler;
mod secrets;
mod session;
#[cfg(target_os = "linux")]
mod shortage;
mod steer;
mod support;
mod targets;
mod terminal;
mod transfer;
mod wait;
mod watch;
mod web;
mod worker;

//! What the tests share.

mod connection;
mod entry;
mod fixture;
mod go;
mod groups;
mod hanging;
mod http;
mod keyspace;
mod lines;
mod live;
mod proxy;
mod redis_process;
mod servers;
mod states;
mod tls;
mod wait;
mod worker_process;

pub(crate) use connection::plain_connection;
pub(crate) use entry::register;
pub(crate) use fixture::{Fixture, NOW, NOW_NS, QUEUE, is_wrong_type, job, of_redis, recovered, report};
pub(crate) use go::Go;
pub(crate) use groups::{DEADLINE, READY, RULES};
pub(crate) use hanging::{Hanging, occupy};
pub(crate) use http::get;
pub(crate) use keyspace::Keyspace;
pub(crate) use lines::Lines;
pub(crate) use live::{Events, Gauge, with};
pub(crate) use proxy::Proxy;
pub(crate) use redis_process::RedisProcess;
pub(crate) use servers::{Cluster, Process, Watched};
pub(crate) use states::{GROUP, by_path};
pub(crate) use tls::{Authority, ServerTls};
pub(crate) use wait::{PATIENCE, eventually, wait_for};
pub(crate) use worker_process::WorkerProcess;

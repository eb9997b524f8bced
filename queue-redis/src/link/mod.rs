//! What is behind a handle: one server, the master that Sentinel names, or the nodes of a cluster.
//!
//! `wire` is a connection, `dial` opens one on the network, `source` pools them, `server` keeps those of one
//! server, and `sentinel` and `cluster` say which server a call is for. `joint` does once what many wait for.

pub(crate) mod cluster;
mod dial;
mod joint;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod source;
pub(crate) mod wire;

//! What is behind a handle: one server, the master that Sentinel names, or the nodes of a cluster.
//!
//! `source` opens connections, `server` keeps those of one server, and `sentinel` and `cluster` say which server a call is for.

pub(crate) mod cluster;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod source;

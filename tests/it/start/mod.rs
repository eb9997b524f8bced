//! What is said at the start about a Redis that cannot hold queues.

mod acl;
mod check;
mod pretender;
mod unfit;

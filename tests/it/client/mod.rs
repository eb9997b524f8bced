//! What a client can ask for, and what it is told.

mod addresses;
mod batch;
mod merge;
mod once;
mod options;
mod publish;
mod resend;
mod unique;
mod waiting;
mod waits;

//! What the fuzz targets do with the bytes they get; see `docs/fuzzing.md`.
//!
//! * [`wire`]: the protobuf messages, and what is done with one that was read.
//! * [`steps`]: what becomes of a task, whatever its message says.
//! * [`options`]: options and how they make a message.
//! * [`address`]: URLs of Redis, and passwords in them.
//! * [`texts`]: durations, cron specs, and other short texts.
//! * [`lines`]: what `queuectl` reads from files and from the command line.
//! * [`replies`]: a Redis that answers anything at all.

pub mod address;
pub mod lines;
pub mod options;
pub mod replies;
pub mod steps;
pub mod texts;
pub mod wire;
mod words;

// Of queuectl; see `lines`.
#[path = "../../../../companions/queue-cli/src/given.rs"]
mod given;
#[path = "../../../../companions/queue-cli/src/when.rs"]
mod when;

/// What a target does with an input.
pub type Target = fn(&[u8]);

/// The targets by name, for the test that replays the corpus.
pub const TARGETS: [(&str, Target); 7] = [
    ("address", address::run),
    ("lines", lines::run),
    ("options", options::run),
    ("replies", replies::run),
    ("steps", steps::run),
    ("texts", texts::run),
    ("wire", wire::run),
];

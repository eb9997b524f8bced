#![doc = include_str!("../README.md")]
//!
//! `docs/encryption.md` says what is protected and what is not, how keys are rotated, and what the format is.

mod encryption;
mod error;
mod fields;
mod headers;
mod keys;
mod seal;
mod task;

pub use encryption::Encryption;
pub use error::{OpenError, SealError};
pub use keys::{KeyError, KeyRing};
pub use task::SealedTask;

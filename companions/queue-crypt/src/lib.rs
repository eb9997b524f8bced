//! Encrypted payloads: Redis, its backups, and whoever looks at a queue see only what they should.
//!
//! A client encrypts the payload of each task, or some fields of it, and names the key in the task's headers; a
//! worker decrypts it before the handler is called. Go's workers, schedulers and tools carry such tasks like any
//! other: they store, retry, archive and run them again, and do not know what is in them.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use queue_crypt::{Encryption, KeyRing};
//! use queue_redis::Client;
//! use queue_worker::{Router, Server};
//!
//! let keys = KeyRing::parse(&std::env::var("QUEUE_KEYS")?)?; // 2026-11:<base64 of 32 bytes>,2026-05:<base64>
//! let encryption = Encryption::new(keys);
//!
//! let client = encryption.client(Client::connect("redis://127.0.0.1:6379").await?);
//! let router = encryption.router(Router::new(()));
//! let server = Server::new(client.redis().clone(), router);
//! # Ok(()) }
//! ```
//!
//! `docs/encryption.md` has what is protected and what is not, how keys are rotated, and the format.

mod encryption;
mod fields;
mod headers;
mod keys;
mod seal;
mod task;

pub use encryption::Encryption;
pub use keys::{KeyError, KeyRing};
pub use seal::{OpenError, SealError};
pub use task::SealedTask;

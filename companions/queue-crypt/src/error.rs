//! What can go wrong with an encrypted payload.

use crate::headers::HOW;

/// Why a payload was not encrypted. Nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// Fields can only be encrypted in a JSON object.
    #[error("the field {path:?} cannot be encrypted: {reason}")]
    Field {
        /// The path of the field.
        path: String,
        /// What is in the way.
        reason: String,
    },
    /// The task says that it is encrypted already, by a key that the ring does not have or in another format.
    #[error(
        "the task is encrypted already, as its headers say: {0}; if they were copied from another task, leave out those that \
         begin with {HOW:?}"
    )]
    Foreign(#[source] OpenError),
    /// The operating system gave no random numbers, or the payload is beyond all measure.
    #[error("the payload cannot be encrypted: {0}")]
    Cipher(String),
}

/// Why a payload could not be decrypted. Another attempt would meet the same bytes, so that such a task is archived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The ring lacks the key.
    #[error(
        "the payload is encrypted with the key {id:?}, which this key ring does not have; add it, then run the task again"
    )]
    UnknownKey {
        /// The id in the header.
        id: String,
    },
    /// A newer format, or a header that was changed.
    #[error("the payload is encrypted in a way that is not known here (header {name} is {value:?})")]
    UnknownFormat {
        /// Name of the header.
        name: &'static str,
        /// Its value; empty if it is missing.
        value: String,
    },
    /// The bytes, the headers, or what the task is called were changed; or the key of this id is another one.
    #[error("the payload was not encrypted with the key {id:?} for this task, or was changed since")]
    Tampered {
        /// The id in the header.
        id: String,
    },
    /// The worker takes only encrypted tasks of this type.
    #[error("the payload is not encrypted, and tasks of this type have to be")]
    NotEncrypted,
}

//! What a client hands in, and what the tasks of a group come out as.

use crate::codec::{Codec, DecodeError, EncodeError};
use crate::options::{RawTask, TaskOptions};
use crate::wire::{ENCRYPTED, TaskMessage};

/// A type whose values are tasks: it names its type, its codec and its default options.
///
/// Usually derived:
///
/// ```text
/// #[derive(Serialize, Deserialize, Task)]
/// #[task(type = "email:welcome", queue = "mail", max_retry = 5, timeout = "30s", unique = "10m")]
/// struct Welcome { user: u64 }
/// ```
///
/// By hand it is as short:
///
/// ```
/// use queue_core::{Json, Task, TaskOptions};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Welcome { user: u64 }
///
/// impl Task for Welcome {
///     const TYPE: &'static str = "email:welcome";
///     type Codec = Json;
///     fn options() -> TaskOptions {
///         TaskOptions::new().queue("mail").max_retry(5)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a task",
    label = "not a task type",
    note = "a task is a type of yours with `#[derive(Task)]`, `#[task(type = \"email:welcome\")]` and serde's derives; a handler takes it as \
            its first argument, and `Router::route` takes payloads without a type"
)]
pub trait Task: Sized + Send + 'static {
    /// The task type as it stands in the message, for example `email:welcome`.
    const TYPE: &'static str;

    /// How the payload is written and read.
    type Codec: Codec<Self>;

    /// The options of every task of this type; what is given when enqueueing wins over them.
    fn options() -> TaskOptions {
        TaskOptions::default()
    }
}

/// Anything that can be enqueued: a [`RawTask`], or a value of a [`Task`] type.
pub trait IntoTask {
    /// Encodes the payload and gathers the options.
    ///
    /// # Errors
    /// When the payload has no form in its codec.
    fn into_task(self) -> Result<RawTask, EncodeError>;
}

impl IntoTask for RawTask {
    fn into_task(self) -> Result<RawTask, EncodeError> {
        Ok(self)
    }
}

impl<T: Task> IntoTask for T {
    fn into_task(self) -> Result<RawTask, EncodeError> {
        Ok(RawTask { task_type: T::TYPE.to_owned(), payload: Some(T::Codec::encode(&self)?), options: T::options() })
    }
}

/// Anything that the tasks of a group can be read as: a [`RawTask`], or a [`Task`] type.
pub trait FromMessage: Sized + Send + 'static {
    /// Reads a task.
    ///
    /// # Errors
    /// When it is of another type, or its payload cannot be decoded.
    fn from_message(message: &TaskMessage) -> Result<Self, FromMessageError>;
}

/// Why a task cannot be read as what is asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FromMessageError {
    /// The task has another type.
    #[error("the task type is {found:?} and not {expected:?}")]
    Type {
        /// The type asked for.
        expected: &'static str,
        /// The type of the task.
        found: String,
    },
    /// The payload cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The payload is encrypted. Once it were part of another task, nobody could decrypt it.
    #[error("the payload is encrypted; an aggregator of encrypted tasks takes Vec<SealedTask>, and opens each")]
    Encrypted,
}

fn require_plain(message: &TaskMessage) -> Result<(), FromMessageError> {
    if message.headers.contains_key(ENCRYPTED) { Err(FromMessageError::Encrypted) } else { Ok(()) }
}

/// Type, payload and headers, as Go's aggregators get them.
impl FromMessage for RawTask {
    fn from_message(message: &TaskMessage) -> Result<Self, FromMessageError> {
        require_plain(message)?;
        let options = TaskOptions { headers: message.headers.clone(), ..TaskOptions::default() };
        Ok(RawTask { task_type: message.r#type.clone(), payload: Some(message.payload.clone()), options })
    }
}

impl<T: Task> FromMessage for T {
    fn from_message(message: &TaskMessage) -> Result<Self, FromMessageError> {
        if message.r#type != T::TYPE {
            return Err(FromMessageError::Type { expected: T::TYPE, found: message.r#type.clone() });
        }
        require_plain(message)?;
        Ok(T::Codec::decode(&message.payload)?)
    }
}

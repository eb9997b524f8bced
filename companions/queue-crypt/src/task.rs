use queue_core::{FromMessage, FromMessageError, TaskMessage};

/// A task of a group as it is stored, for aggregators: [`Encryption::open`](crate::Encryption::open) makes a
/// [`RawTask`](queue_core::RawTask) of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SealedTask {
    pub(crate) message: TaskMessage,
}

impl FromMessage for SealedTask {
    fn from_message(message: &TaskMessage) -> Result<Self, FromMessageError> {
        Ok(Self { message: message.clone() })
    }
}

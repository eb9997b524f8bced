//! By what the tasks of a queue are told apart.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::LimitError;

/// By what the tasks of a queue are told apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[non_exhaustive]
pub enum LimitKey {
    /// Not at all: the limit holds for all of them together. Of a limit for all types nothing is parked; less is taken.
    Queue,
    /// By their type.
    Type,
    /// By this header. A task without it is not limited.
    Header(String),
    /// By this field of a JSON payload of up to 4 KiB, `/account/id`. A task without it is not limited, nor is one whose
    /// payload is encrypted.
    Payload(String),
}

impl LimitKey {
    /// By this header.
    pub fn header(name: impl Into<String>) -> Self {
        Self::Header(name.into())
    }

    /// By this field of the payload.
    pub fn payload(path: impl Into<String>) -> Self {
        Self::Payload(path.into())
    }
}

impl fmt::Display for LimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue => f.write_str("queue"),
            Self::Type => f.write_str("type"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Payload(path) => write!(f, "payload:{path}"),
        }
    }
}

impl From<LimitKey> for String {
    fn from(key: LimitKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for LimitKey {
    type Error = LimitError;

    fn try_from(text: String) -> Result<Self, LimitError> {
        text.parse()
    }
}

impl FromStr for LimitKey {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        match text.split_once(':') {
            None if text == "queue" => Ok(Self::Queue),
            None if text == "type" => Ok(Self::Type),
            Some(("header", name)) if !name.is_empty() => Ok(Self::header(name)),
            Some(("payload", path)) if path.len() > 1 && path.starts_with('/') => Ok(Self::payload(path)),
            _ => Err(LimitError::Key(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_as_it_is_read() {
        for text in ["queue", "type", "header:tenant", "payload:/account/id"] {
            assert_eq!(text.parse::<LimitKey>().unwrap().to_string(), text);
        }
        for text in ["", "header", "header:", "payload:id", "payload:/", "tenant", "queue:x"] {
            assert!(text.parse::<LimitKey>().is_err(), "{text:?}");
        }
    }
}

//! What an encrypted task says about itself.

use std::collections::BTreeMap;

/// How it is encrypted: the version of the format, and what it is bound to.
pub(crate) use queue_core::wire::ENCRYPTED as HOW;
/// The id of the key.
pub(crate) const KEY: &str = "x-encrypted-key";
/// The fields that are encrypted, as a JSON list of paths; absent when the whole payload is.
pub(crate) const FIELDS: &str = "x-encrypted-fields";
/// Where only fields are encrypted: what holds the whole payload together.
pub(crate) const TAG: &str = "x-encrypted-tag";

/// All of them.
pub(crate) const ALL: [&str; 4] = [HOW, KEY, FIELDS, TAG];

/// What a ciphertext belongs to. Anywhere else it cannot be decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    /// This task: its type, queue and id.
    Task,
    /// Any task of the type.
    Type,
}

impl Binding {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Binding::Task => "1 task",
            Binding::Type => "1 type",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Binding::Task, Binding::Type].into_iter().find(|binding| binding.as_str() == text)
    }
}

/// Whether the headers say that the payload is encrypted. One of them is enough: who removes the other must not
/// turn ciphertext into a payload.
pub(crate) fn claim(headers: &BTreeMap<String, String>) -> bool {
    ALL.iter().any(|name| headers.contains_key(*name))
}

//! Bytes in, bytes out: what a payload becomes, and back.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use queue_core::publish::TWIN_ENDS;
use queue_core::queue_name::base_of;

use crate::error::{OpenError, SealError};
use crate::fields;
use crate::headers::{self, Binding};
use crate::keys::KeyRing;

const NONCE_LEN: usize = 24;

/// What a payload belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    pub(crate) task_type: &'a str,
    pub(crate) queue: &'a str,
    pub(crate) id: &'a str,
}

impl Place<'_> {
    /// The same, with the queue of which its queue is a priority, a label or a mailbox: within it tasks are moved. And with the key of
    /// which it is the other task: what follows is sealed before it is known under which of the two ids it runs.
    fn in_family(self) -> Self {
        Self { queue: base_of(self.queue), id: self.id.strip_suffix(TWIN_ENDS).unwrap_or(self.id), ..self }
    }
}

/// What is encrypted of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// All of it.
    Whole,
    /// These fields of a JSON object.
    Fields(Vec<String>),
}

/// An encrypted payload, and the headers that say so.
pub(crate) type Sealed = (Vec<u8>, BTreeMap<&'static str, String>);

/// Encrypts a payload with the newest key.
pub(crate) fn seal(
    keys: &KeyRing,
    binding: Binding,
    place: Place<'_>,
    what: &What,
    payload: &[u8],
) -> Result<Sealed, SealError> {
    let id = keys.newest();
    let cipher = keys.cipher(id).ok_or_else(|| SealError::Cipher("the key ring is empty".to_owned()))?;
    let mut said = BTreeMap::from([(headers::HOW, binding.as_str().to_owned()), (headers::KEY, id.to_owned())]);
    let list = match what {
        What::Whole => String::new(),
        What::Fields(paths) => serde_json::to_string(paths).map_err(|error| SealError::Cipher(error.to_string()))?,
    };
    let bound = Bound { binding, id, place: place.in_family(), list: &list };
    let sealed = match what {
        What::Whole => encrypt(cipher, payload, &bound.data(""))?,
        What::Fields(paths) => {
            let sealed = fields::seal(payload, paths, |path, value| encrypt(cipher, value, &bound.data(path)))?;
            said.insert(headers::FIELDS, list.clone());
            said.insert(headers::TAG, STANDARD.encode(encrypt(cipher, b"", &bound.data_with(&sealed))?));
            sealed
        }
    };
    Ok((sealed, said))
}

/// Decrypts a payload; `None` if its headers do not say that it is encrypted.
pub(crate) fn open(
    keys: &KeyRing,
    place: Place<'_>,
    said: &BTreeMap<String, String>,
    payload: &[u8],
) -> Result<Option<Vec<u8>>, OpenError> {
    match open_at(keys, place.in_family(), said, payload) {
        // As it was bound before tasks moved within families.
        Err(OpenError::Tampered { .. }) if place.in_family() != place => open_at(keys, place, said, payload),
        opened => opened,
    }
}

fn open_at(
    keys: &KeyRing,
    place: Place<'_>,
    said: &BTreeMap<String, String>,
    payload: &[u8],
) -> Result<Option<Vec<u8>>, OpenError> {
    if !headers::claim(said) {
        return Ok(None);
    }
    let text = |name| said.get(name).map_or("", String::as_str);
    let unknown = |name| OpenError::UnknownFormat { name, value: text(name).chars().take(80).collect() };
    let binding = Binding::parse(text(headers::HOW)).ok_or_else(|| unknown(headers::HOW))?;
    let id = text(headers::KEY);
    let cipher = keys.cipher(id).ok_or_else(|| OpenError::UnknownKey { id: id.chars().take(80).collect() })?;
    let list = text(headers::FIELDS);
    let tampered = || OpenError::Tampered { id: id.to_owned() };
    let bound = Bound { binding, id, place, list };
    if !said.contains_key(headers::FIELDS) {
        return decrypt(cipher, payload, &bound.data("")).map(Some).ok_or_else(tampered);
    }
    // Otherwise fields could be taken out of the list, and others be put in the place of those that are plain.
    let tag = STANDARD.decode(text(headers::TAG)).map_err(|_| tampered())?;
    decrypt(cipher, &tag, &bound.data_with(payload)).ok_or_else(tampered)?;
    let paths: Vec<String> = serde_json::from_str(list).map_err(|_| unknown(headers::FIELDS))?;
    let opened = fields::open(payload, &paths, |path, value| decrypt(cipher, value, &bound.data(path)));
    opened.map(Some).ok_or_else(tampered)
}

/// What a ciphertext is bound to, besides its key.
struct Bound<'a> {
    binding: Binding,
    id: &'a str,
    place: Place<'a>,
    list: &'a str,
}

impl Bound<'_> {
    /// The associated data. Each part has its length before it, so that no two of them run into each other.
    fn data(&self, path: &str) -> Vec<u8> {
        let Place { task_type, queue, id } = self.place;
        let (queue, id) = if self.binding == Binding::Task { (queue, id) } else { ("", "") };
        let mut data = Vec::new();
        for part in ["queue-crypt", self.binding.as_str(), self.id, task_type, queue, id, self.list, path] {
            data.extend((part.len() as u64).to_le_bytes());
            data.extend(part.as_bytes());
        }
        data
    }

    /// The same with the payload, its encrypted fields included.
    fn data_with(&self, payload: &[u8]) -> Vec<u8> {
        let mut data = self.data("");
        data.extend((payload.len() as u64).to_le_bytes());
        data.extend(payload);
        data
    }
}

/// A random nonce and the ciphertext after it.
fn encrypt(cipher: &XChaCha20Poly1305, text: &[u8], bound: &[u8]) -> Result<Vec<u8>, SealError> {
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).map_err(|error| SealError::Cipher(error.to_string()))?;
    let sealed = cipher.encrypt(&XNonce::from(nonce), Payload { msg: text, aad: bound });
    let sealed = sealed.map_err(|_| SealError::Cipher("it is too large".to_owned()))?;
    Ok([&nonce[..], &sealed].concat())
}

fn decrypt(cipher: &XChaCha20Poly1305, sealed: &[u8], bound: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
    cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: bound }).ok()
}

#[cfg(test)]
mod tests;

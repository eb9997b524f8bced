use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Bytes of a key.
pub(crate) const KEY_LEN: usize = 32;

/// What is wrong with keys. No error ever repeats a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There is none.
    #[error("there is no key; write them like ID:BASE64, the newest first, with commas between them")]
    Empty,
    /// An id that does not fit a header.
    #[error("the id of key number {0} is not 1 to 64 letters, digits, dots, dashes or underscores")]
    Id(usize),
    /// Two keys of one id.
    #[error("two keys have the id {0:?}")]
    TwoOfOneId(String),
    /// It is too short, too long, or not base64.
    #[error("the key {0:?} is not 32 bytes in base64; make one with: openssl rand -base64 32")]
    Key(String),
}

/// Keys by their ids. The newest encrypts; all of them decrypt. Cheap to clone.
///
/// The keys are wiped from memory when the last clone is dropped, and never shown.
#[derive(Clone)]
pub struct KeyRing {
    inner: Arc<Inner>,
}

struct Inner {
    newest: String,
    ciphers: BTreeMap<String, XChaCha20Poly1305>,
    /// Names locks; made of the newest key, so that a name tells nothing about the payload.
    lock_key: Zeroizing<[u8; KEY_LEN]>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<&String> = self.inner.ciphers.keys().collect();
        f.debug_struct("KeyRing").field("newest", &self.inner.newest).field("ids", &ids).finish()
    }
}

impl KeyRing {
    /// A ring of keys, the newest first. An id is what tasks name their key by: 1 to 64 letters, digits, dots,
    /// dashes or underscores, and never used for another key.
    ///
    /// # Errors
    /// When there is no key, or an id is given twice or does not fit a header.
    pub fn new<I: Into<String>>(keys: impl IntoIterator<Item = (I, [u8; 32])>) -> Result<Self, KeyError> {
        let mut ciphers = BTreeMap::new();
        let mut newest = None;
        for (place, (id, key)) in keys.into_iter().enumerate() {
            let (id, key) = (id.into(), Zeroizing::new(key));
            let fits = |c: u8| c.is_ascii_alphanumeric() || b".-_".contains(&c);
            if id.is_empty() || id.len() > 64 || !id.bytes().all(fits) {
                return Err(KeyError::Id(place + 1));
            }
            newest.get_or_insert_with(|| (id.clone(), derived(&key)));
            if ciphers.insert(id.clone(), XChaCha20Poly1305::new((&*key).into())).is_some() {
                return Err(KeyError::TwoOfOneId(id));
            }
        }
        let (newest, lock_key) = newest.ok_or(KeyError::Empty)?;
        Ok(Self { inner: Arc::new(Inner { newest, ciphers, lock_key }) })
    }

    /// A ring from a text, as it may stand in an environment variable: `ID:BASE64`, the newest first, with
    /// commas between them.
    ///
    /// ```
    /// use queue_crypt::KeyRing;
    ///
    /// let keys = KeyRing::parse("new:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=,old:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=")?;
    /// assert_eq!(keys.newest(), "new");
    /// # Ok::<(), queue_crypt::KeyError>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new), and when a key is not 32 bytes in base64.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let keys = words.enumerate().map(|(place, word)| {
            // What stands before the first colon may be a key whose id was forgotten: it is not repeated.
            let (id, key) = word.split_once(':').ok_or(KeyError::Id(place + 1))?;
            let bytes = Zeroizing::new(STANDARD.decode(key.trim()).map_err(|_| KeyError::Key(id.to_owned()))?);
            let key = <[u8; KEY_LEN]>::try_from(&bytes[..]).map_err(|_| KeyError::Key(id.to_owned()))?;
            Ok((id.trim().to_owned(), key))
        });
        Self::new(keys.collect::<Result<Vec<_>, KeyError>>()?)
    }

    /// The id of the key that encrypts.
    pub fn newest(&self) -> &str {
        &self.inner.newest
    }

    /// The ids of all keys.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.inner.ciphers.keys().map(String::as_str)
    }

    pub(crate) fn cipher(&self, id: &str) -> Option<&XChaCha20Poly1305> {
        self.inner.ciphers.get(id)
    }

    /// What a lock is named after instead of the payload: the payload under a secret key, so that nobody can
    /// find out the payload by trying.
    pub(crate) fn lock_name(&self, payload: &[u8]) -> [u8; 32] {
        digest(&self.inner.lock_key, payload)
    }
}

/// A key of its own for another purpose.
fn derived(key: &[u8; KEY_LEN]) -> Zeroizing<[u8; KEY_LEN]> {
    Zeroizing::new(digest(key, b"queue-crypt 1: names of locks"))
}

fn digest(key: &[u8; KEY_LEN], text: &[u8]) -> [u8; 32] {
    // HMAC fills shorter keys up to a block with zeros itself; so no length can be wrong.
    let mut block = Zeroizing::new([0; 64]);
    block[..KEY_LEN].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new((&*block).into());
    mac.update(text);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_keys_are_refused_without_being_repeated() {
        let key = STANDARD.encode([7; 32]);
        for (text, error) in [
            (String::new(), KeyError::Empty),
            (key.clone(), KeyError::Id(1)),
            (format!("a:{key},a:{key}"), KeyError::TwoOfOneId("a".into())),
            (format!("a b:{key}"), KeyError::Id(1)),
            (format!("a:{key},{}:{key}", "x".repeat(65)), KeyError::Id(2)),
            (format!("a:{key}x"), KeyError::Key("a".into())),
            (format!("a:{}", STANDARD.encode([7; 31])), KeyError::Key("a".into())),
        ] {
            let found = KeyRing::parse(&text).unwrap_err();
            assert_eq!(found, error, "{text}");
            assert!(!found.to_string().contains(&key[..10]), "{found}");
        }
    }

    #[test]
    fn a_ring_shows_its_ids_and_no_key() {
        let keys = KeyRing::new([("new", [65; 32]), ("old", [66; 32])]).unwrap();
        assert_eq!(format!("{keys:?}"), r#"KeyRing { newest: "new", ids: ["new", "old"] }"#);
        assert_eq!(keys.ids().collect::<Vec<_>>(), ["new", "old"]);
        assert_ne!(keys.lock_name(b"a"), keys.lock_name(b"b"));
    }
}

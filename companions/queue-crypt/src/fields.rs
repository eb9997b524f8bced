//! Fields of a JSON object, replaced by others while all around them stays as it is, to the byte but for white
//! space between fields.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::value::RawValue;

use crate::error::SealError;

/// Encrypts the values at these paths (`card.number`), each on its own: in its place comes a text. A field that
/// is not there is none to encrypt.
pub(crate) fn seal(
    payload: &[u8],
    paths: &[String],
    encrypt: impl Fn(&str, &[u8]) -> Result<Vec<u8>, SealError>,
) -> Result<Vec<u8>, SealError> {
    let mut json = payload.to_vec();
    for path in paths {
        let refuse = |reason: &str| SealError::Field { path: path.clone(), reason: reason.to_owned() };
        let replace = |value: &RawValue| {
            let sealed = encrypt(path, value.get().as_bytes())?;
            raw(format!("\"{}\"", STANDARD.encode(sealed))).ok_or_else(|| refuse("its ciphertext is no JSON"))
        };
        json = at(&json, path, &replace, &refuse)?.into_bytes();
    }
    Ok(json)
}

/// Decrypts what [`seal`] has encrypted; `None` if one of the fields cannot be.
pub(crate) fn open(
    payload: &[u8],
    paths: &[String],
    decrypt: impl Fn(&str, &[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let mut json = payload.to_vec();
    // The other way round: a field may be a part of one that was encrypted after it.
    for path in paths.iter().rev() {
        let replace = |value: &RawValue| {
            let sealed = STANDARD.decode(serde_json::from_str::<String>(value.get()).ok().ok_or(())?).map_err(drop)?;
            let text = decrypt(path, &sealed).and_then(|text| String::from_utf8(text).ok());
            text.and_then(raw).ok_or(())
        };
        json = at(&json, path, &replace, &|_| ()).ok()?.into_bytes();
    }
    Some(json)
}

fn raw(json: String) -> Option<Box<RawValue>> {
    RawValue::from_string(json).ok()
}

/// The JSON text with the value at a path replaced.
fn at<E>(
    json: &[u8],
    path: &str,
    replace: &impl Fn(&RawValue) -> Result<Box<RawValue>, E>,
    refuse: &impl Fn(&str) -> E,
) -> Result<String, E> {
    let mut object: Object =
        serde_json::from_slice(json).map_err(|_| refuse("what should hold it is no JSON object"))?;
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let mut fields = object.0.iter_mut().filter(|(field, _)| field == name);
    if let Some((_, value)) = fields.next() {
        if fields.next().is_some() {
            // Readers differ in which of the two counts.
            return Err(refuse("there are two fields of this name"));
        }
        *value = match rest {
            None => replace(value)?,
            Some(rest) => {
                let inner = at(value.get().as_bytes(), rest, replace, refuse)?;
                raw(inner).ok_or_else(|| refuse("what should hold it is no JSON object"))?
            }
        };
    }
    serde_json::to_string(&object).map_err(|error| refuse(&error.to_string()))
}

/// A JSON object whose values are kept as they are written, in their order.
struct Object(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

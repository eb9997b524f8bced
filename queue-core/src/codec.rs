//! How a payload becomes bytes and back.
//!
//! The codec is a property of the task type ([`Task::Codec`](crate::Task::Codec)), not of the message:
//! nothing is added to the bytes, so a Go producer's JSON is read as it is, and Go reads ours.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A payload that could not be encoded. Nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error("failed to encode the payload as {codec}: {source}")]
pub struct EncodeError {
    codec: &'static str,
    source: BoxError,
}

/// A payload that could not be decoded. The worker archives such a task at once: another attempt would
/// meet the same bytes.
#[derive(Debug, thiserror::Error)]
#[error("failed to decode the payload of {len} bytes as {codec}: {source}")]
pub struct DecodeError {
    codec: &'static str,
    len: usize,
    source: BoxError,
}

impl DecodeError {
    /// For a codec of your own: the codec's name, the length of the payload and the cause.
    pub fn new(codec: &'static str, len: usize, source: impl Into<BoxError>) -> Self {
        Self { codec, len, source: source.into() }
    }

    /// The same without the value that does not fit, which `serde` quotes: for a payload that only the handler is to read, since errors
    /// are stored with the task and logged. Of JSON, the place is still told.
    #[must_use]
    pub fn without_values(self) -> Self {
        use serde_json::error::Category;
        let source = match self.source.downcast_ref::<serde_json::Error>() {
            Some(error) => {
                let what = match error.classify() {
                    Category::Syntax => "it is none",
                    Category::Eof | Category::Io => "it ends too soon",
                    Category::Data => "its data do not fit",
                };
                format!("{what}, at line {} column {}", error.line(), error.column())
            }
            None => "it does not fit".to_owned(),
        };
        Self { source: format!("{source}; no more is told of a payload that was encrypted").into(), ..self }
    }
}

impl EncodeError {
    /// For a codec of your own: the codec's name and the cause.
    pub fn new(codec: &'static str, source: impl Into<BoxError>) -> Self {
        Self { codec, source: source.into() }
    }
}

/// Turns values of `T` into payload bytes and back.
pub trait Codec<T> {
    /// The payload bytes of a value.
    ///
    /// # Errors
    /// When the value has no form in this codec (for JSON, a map with keys that are not text).
    fn encode(value: &T) -> Result<Bytes, EncodeError>;

    /// The value of payload bytes.
    ///
    /// # Errors
    /// When the bytes do not hold a `T`.
    fn decode(payload: &Bytes) -> Result<T, DecodeError>;
}

/// JSON by `serde_json`; the default, and what most Go producers send.
#[derive(Debug, Clone, Copy)]
pub struct Json;

impl<T: Serialize + DeserializeOwned> Codec<T> for Json {
    fn encode(value: &T) -> Result<Bytes, EncodeError> {
        serde_json::to_vec(value).map(Bytes::from).map_err(|error| EncodeError::new("JSON", error))
    }

    fn decode(payload: &Bytes) -> Result<T, DecodeError> {
        serde_json::from_slice(payload).map_err(|error| DecodeError::new("JSON", payload.len(), error))
    }
}

/// MessagePack by `rmp-serde`, with structs written as maps by field name, which is the form Go's
/// MessagePack libraries expect.
#[derive(Debug, Clone, Copy)]
pub struct MessagePack;

impl<T: Serialize + DeserializeOwned> Codec<T> for MessagePack {
    fn encode(value: &T) -> Result<Bytes, EncodeError> {
        rmp_serde::to_vec_named(value).map(Bytes::from).map_err(|error| EncodeError::new("MessagePack", error))
    }

    fn decode(payload: &Bytes) -> Result<T, DecodeError> {
        rmp_serde::from_slice(payload).map_err(|error| DecodeError::new("MessagePack", payload.len(), error))
    }
}

/// Protobuf by prost, for payloads that are prost messages.
#[derive(Debug, Clone, Copy)]
pub struct Protobuf;

impl<T: prost::Message + Default> Codec<T> for Protobuf {
    fn encode(value: &T) -> Result<Bytes, EncodeError> {
        Ok(value.encode_to_vec().into())
    }

    fn decode(payload: &Bytes) -> Result<T, DecodeError> {
        T::decode(payload.clone()).map_err(|error| DecodeError::new("protobuf", payload.len(), error))
    }
}

/// The bytes as they are, for payload types that convert from and to [`Bytes`].
#[derive(Debug, Clone, Copy)]
pub struct Raw;

impl<T> Codec<T> for Raw
where
    T: TryFrom<Bytes> + Clone + Into<Bytes>,
    T::Error: Into<BoxError>,
{
    fn encode(value: &T) -> Result<Bytes, EncodeError> {
        Ok(value.clone().into())
    }

    fn decode(payload: &Bytes) -> Result<T, DecodeError> {
        T::try_from(payload.clone()).map_err(|error| DecodeError::new("raw bytes", payload.len(), error))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Mail {
        to: String,
        id: u64,
    }

    #[test]
    fn json_reads_what_a_go_producer_writes() {
        let mail: Mail = Json::decode(&Bytes::from_static(br#"{"id":7,"to":"a@b","extra":null}"#)).unwrap();
        assert_eq!(mail, Mail { to: "a@b".into(), id: 7 });
    }

    #[test]
    fn an_error_without_values_tells_the_place_alone() {
        let told = |error: Option<DecodeError>| error.unwrap().without_values().to_string();
        let of_json =
            |text: &'static str| told(<Json as Codec<Mail>>::decode(&Bytes::from_static(text.as_bytes())).err());
        for (text, expected) in [
            (r#"{"id":"secret","to":""}"#, "as JSON: its data do not fit, at line 1 column 14;"),
            (r#"{"secret""#, "it ends too soon, at line 1 column 9;"),
            ("secret", "it is none, at line 1 column 1;"),
        ] {
            let error = of_json(text);
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
        let packed = rmp_serde::to_vec_named(&("to", "secret")).unwrap();
        let error = told(<MessagePack as Codec<Mail>>::decode(&packed.into()).err());
        assert!(error.contains("as MessagePack: it does not fit;") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn message_pack_writes_structs_as_maps() {
        let bytes = MessagePack::encode(&Mail { to: "a".into(), id: 1 }).unwrap();
        assert_eq!(bytes[0], 0x82, "a map of two entries");
        assert_eq!(<MessagePack as Codec<Mail>>::decode(&bytes).unwrap().id, 1);
    }

    #[test]
    fn raw_is_the_bytes_themselves() {
        let bytes = Bytes::from_static(&[0, 255]);
        assert_eq!(Raw::encode(&bytes).unwrap(), bytes);
        assert_eq!(<Raw as Codec<Bytes>>::decode(&bytes).unwrap(), bytes);
    }

    #[test]
    fn protobuf_carries_prost_messages() {
        let stamp = crate::wire::Timestamp { seconds: 5, nanos: 6 };
        let bytes = Protobuf::encode(&stamp).unwrap();
        assert_eq!(<Protobuf as Codec<crate::wire::Timestamp>>::decode(&bytes).unwrap(), stamp);
    }

    #[test]
    fn a_bad_payload_says_which_codec_refused_it() {
        let error = <Json as Codec<Mail>>::decode(&Bytes::from_static(b"{")).unwrap_err();
        assert!(error.to_string().starts_with("failed to decode the payload of 1 bytes as JSON: "), "{error}");
    }
}

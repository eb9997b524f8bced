//! Replies that hold what anybody may have written: read as far as they make sense.

use redis::{FromRedisValue, ParsingError, Value};

/// Text to be shown; what is not UTF-8 in it is replaced.
pub(crate) struct Text(pub(crate) String);

impl FromRedisValue for Text {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let bytes = Vec::<u8>::from_redis_value(value)?;
        Ok(Self(
            String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        ))
    }
}

/// The texts themselves, sorted.
pub(crate) fn sorted(texts: Vec<Text>) -> Vec<String> {
    let mut texts: Vec<String> = texts.into_iter().map(|Text(text)| text).collect();
    texts.sort();
    texts
}

/// The sum of numbers that no Redis could have; they stop at the largest.
pub(crate) fn total<'a>(counts: impl IntoIterator<Item = &'a u64>) -> u64 {
    counts.into_iter().fold(0, |sum, count| sum.saturating_add(*count))
}

/// A number; `None` where there is none, or something that is not a number.
pub(crate) struct Number(pub(crate) Option<i64>);

impl FromRedisValue for Number {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        Ok(Self(match value {
            Value::Nil | Value::SimpleString(_) | Value::BulkString(_) => i64::from_redis_value(value).ok(),
            value => Some(i64::from_redis_value(value)?),
        }))
    }
}

impl Number {
    /// The number of things that this counts.
    pub(crate) fn count(&self) -> u64 {
        self.0.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the fuzz target `replies`: the sum was a panic.
    #[test]
    fn sizes_that_cannot_be_add_up_to_the_largest_number() {
        assert_eq!(total(&[1, 2, 3]), 6);
        assert_eq!(total(&[u64::MAX, 2, u64::MAX]), u64::MAX);
    }

    #[test]
    fn text_that_is_no_number_counts_as_nothing() {
        let number = |text: &str| Number::from_redis_value(Value::BulkString(text.as_bytes().to_vec())).unwrap();
        assert_eq!((number("7").count(), number("-7").count(), number("x").count()), (7, 0, 0));
        assert_eq!(number("-7").0, Some(-7));
        assert!(Number::from_redis_value(Value::Array(Vec::new())).is_err());
    }
}

//! Values that TOML has and JSON has not.

use serde_json::Value;

/// Makes JSON of a value that was read from TOML: dates become texts.
///
/// # Errors
/// With `nan` and `inf`, which JSON has not.
pub(crate) fn to_json(value: Value) -> Result<Value, String> {
    match value {
        Value::Array(items) => items.into_iter().map(to_json).collect(),
        // As this the library hands on a date.
        Value::Object(mut fields) => match fields.remove("$__toml_private_datetime") {
            Some(date) => Ok(date),
            None => fields.into_iter().map(|(key, value)| Ok((key, to_json(value)?))).collect(),
        },
        // TOML has no null: serde_json makes it of a number that it cannot hold.
        Value::Null => Err("nan and inf cannot be written as JSON; write a number, or a text".to_owned()),
        value => Ok(value),
    }
}

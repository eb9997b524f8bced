//! Numbers as Redis reads and writes them.

use super::reply::Refusal;

/// A whole number, in Redis' strict form: no sign `+`, no spaces, no leading zeros.
pub(crate) fn integer(text: &[u8]) -> Result<i64, Refusal> {
    let parsed =
        std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok().filter(|n| n.to_string() == text));
    parsed.ok_or_else(Refusal::not_an_integer)
}

/// A number of things.
pub(crate) fn count(text: &[u8]) -> Result<usize, Refusal> {
    usize::try_from(integer(text)?).map_err(|_| Refusal("ERR value is out of range, must be positive".to_owned()))
}

/// A score.
pub(crate) fn score(text: &[u8]) -> Result<f64, Refusal> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    parsed.filter(|score| !score.is_nan()).ok_or_else(|| Refusal("ERR value is not a valid float".to_owned()))
}

/// A score as text: whole numbers as such, others with 17 digits (`%.17g`), as Redis 7 has it.
pub(crate) fn show(number: f64) -> String {
    const WHOLE_UP_TO: f64 = 4_503_599_627_370_496.0;
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number.abs() < WHOLE_UP_TO && number.fract() == 0.0 {
        return (number as i64).to_string();
    }
    general(number)
}

/// A Lua number that a script hands to a command.
pub(crate) fn from_lua(number: f64) -> String {
    const EXACT_UP_TO: f64 = 1e17;
    if number.abs() < EXACT_UP_TO && number.fract() == 0.0 { (number as i64).to_string() } else { general(number) }
}

/// C's `%.17g`.
fn general(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..17).contains(&exponent) {
        let digits = usize::try_from(16 - exponent).unwrap_or(0);
        return trimmed(&format!("{number:.digits$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_in_redis() {
        // Answers of ZSCORE and of redis.call('ECHO', number) of Redis 7.0.
        for (number, text) in [
            (1_700_000_000.0, "1700000000"),
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (-3.0, "-3"),
            (1e100, "1e+100"),
            (1e-7, "9.9999999999999995e-08"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(show(number), text);
        }
        assert_eq!((from_lua(1e16), from_lua(1e17)), ("10000000000000000".to_owned(), "1e+17".to_owned()));
    }

    #[test]
    fn integers_are_strict() {
        assert_eq!(integer(b"-12"), Ok(-12));
        for wrong in ["", "+1", "01", " 1", "1.0", "9223372036854775808", "x"] {
            assert!(integer(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        assert!(score(b"nan").is_err() && score(b"1e3") == Ok(1000.0) && score(b"-inf") == Ok(f64::NEG_INFINITY));
    }
}

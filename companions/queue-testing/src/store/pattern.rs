//! Redis' patterns: `*`, `?`, `[a-c]`, `[^x]`, and `\` before a character that is meant as it is.

/// Whether the pattern stands for the whole text.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return text.is_empty() };
    match first {
        b'*' => (0..=text.len()).any(|skipped| matches(rest, &text[skipped..])),
        b'?' => !text.is_empty() && matches(rest, &text[1..]),
        b'[' => {
            let Some((&byte, after)) = text.split_first() else { return false };
            let (fits, rest) = class(rest, byte);
            fits && matches(rest, after)
        }
        b'\\' if !rest.is_empty() => text.first() == Some(&rest[0]) && matches(&rest[1..], &text[1..]),
        _ => text.first() == Some(&first) && matches(rest, &text[1..]),
    }
}

/// Whether a byte is in the class that begins here; and what follows the class.
fn class(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (negated, mut rest) = pattern.strip_prefix(b"^").map_or((false, pattern), |rest| (true, rest));
    let mut fits = false;
    loop {
        match rest {
            [] => break,
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [b'\\', literal, after @ ..] => {
                fits |= *literal == byte;
                rest = after;
            }
            [from, b'-', to, after @ ..] if *to != b']' => {
                fits |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest = after;
            }
            [literal, after @ ..] => {
                fits |= *literal == byte;
                rest = after;
            }
        }
    }
    (fits != negated, rest)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_stand_for_the_whole_text() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("asynq:{*}:t:*", "asynq:{q}:t:1", true),
            ("asynq:{*}:t:*", "asynq:{q}:retry", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c][^x]", "by", true),
            ("[a-c][^x]", "bx", false),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("abc", "abcd", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} {text}");
        }
    }
}

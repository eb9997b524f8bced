//! Passwords in texts that were not meant to hold any.

/// Replaces the passwords of URLs in a text by `***`: in `scheme://user:password@host`, and in a query
/// (`?pass=…`, `&password=…`), where Unix sockets have theirs.
///
/// Error texts of connection libraries like to repeat the URL; they end up in log lines, in Redis, and on
/// dashboards.
///
/// ```
/// use queue_core::mask::mask_passwords;
///
/// let text = mask_passwords("cannot reach redis://app:s3cret@db:6379/0".to_owned());
/// assert_eq!(text, "cannot reach redis://app:***@db:6379/0");
/// ```
pub fn mask_passwords(text: String) -> String {
    if !text.contains("://") {
        return text;
    }
    let mut masked = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        masked.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "\"'`<>".contains(c)).unwrap_or(after.len());
        // A text may hold several URLs without a space between them.
        let end = after[..end].find("://").map_or(end, |next| next.min(end));
        let (url, beyond) = after.split_at(end);
        mask_url(url, &mut masked);
        rest = beyond;
    }
    masked.push_str(rest);
    masked
}

/// Writes a URL without its scheme and its password.
fn mask_url(url: &str, masked: &mut String) {
    let authority = url.find(['/', '?', '#']).unwrap_or(url.len());
    let at = match url[..authority].rfind('@') {
        // A password that is not escaped may hold these signs. A port is not the beginning of one.
        None if url[..authority].split_once(':').is_some_and(|(_, port)| !port.bytes().all(|b| b.is_ascii_digit())) => {
            url.rfind('@')
        }
        found => found,
    };
    let rest = match at {
        Some(at) if url[..at].contains(':') => {
            masked.push_str(url.split(':').next().unwrap_or_default());
            masked.push_str(":***");
            &url[at..]
        }
        _ => url,
    };
    let Some((path, query)) = rest.split_once('?') else {
        masked.push_str(rest);
        return;
    };
    masked.push_str(path);
    for (number, pair) in query.split('&').enumerate() {
        masked.push(if number == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((name @ ("pass" | "password"), _)) => {
                masked.push_str(name);
                masked.push_str("=***");
            }
            _ => masked.push_str(pair),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_of_urls_are_masked_wherever_they_stand() {
        for (text, masked) in [
            ("redis://:secret@h", "redis://:***@h"),
            ("(rediss://u:secret@h:1/2), twice: redis://u:secret@h", "(rediss://u:***@h:1/2), twice: redis://u:***@h"),
            ("\"amqp://u:se%40cret@h\"", "\"amqp://u:***@h\""),
            ("redis://u:sec@ret@h", "redis://u:***@h"),
            ("redis://u:sec/re@t@h/1", "redis://u:***@h/1"),
            ("redis+unix:///run/r.sock?db=1&pass=secret&x=y", "redis+unix:///run/r.sock?db=1&pass=***&x=y"),
            ("redis://u:secret@ä", "redis://u:***@ä"),
            ("redis://u:secret@", "redis://u:***@"),
        ] {
            assert_eq!(mask_passwords(text.to_owned()), masked);
        }
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in [
            "",
            "a:b@c",
            "ratio 3:4 @ noon",
            "http://host:8080/path",
            "http://host:8080/a@b:c",
            "https://example.com/@user?x=1&y",
            "ssh://git@host/x",
            "://",
            "see http://host, mail a:b@c",
        ] {
            assert_eq!(mask_passwords(text.to_owned()), text);
        }
    }
}

//! Which failures have the same cause, as far as their texts tell.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// What failures of the same cause have in common: the type of the task and the [`pattern`] of its error, as a short text such as
/// `v1-0b5c6a2f9d41`. Its beginning is the version of the rules: after a change of them, the same failure has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 6]);

/// A text that is no fingerprint of these rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is written like v1-0b5c6a2f9d41, as `queuectl failures` does")]
pub struct NoFingerprint;

/// The version of the rules.
const VERSION: &str = "v1-";

impl Fingerprint {
    /// The fingerprint of a failure of a task of this type; `None` where there is no text to tell it by.
    pub fn new(task_type: &str, error: &str) -> Option<Self> {
        let pattern = pattern(error);
        Some(Self::of_pattern(task_type, &pattern)).filter(|_| !pattern.is_empty())
    }

    /// The same for a text that is the pattern already.
    pub fn of_pattern(task_type: &str, pattern: &str) -> Self {
        // Nobody gains anything by two texts of one fingerprint.
        let digest = md5::compute([task_type, "\n", pattern].concat()).0;
        let mut short = [0; 6];
        short.copy_from_slice(&digest[..6]);
        Self(short)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VERSION)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        let digits = text.strip_prefix(VERSION).filter(|digits| digits.len() == 12).ok_or(NoFingerprint)?;
        let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let number = u64::from_str_radix(digits, 16).ok().filter(|_| is_hex).ok_or(NoFingerprint)?;
        let mut short = [0; 6];
        short.copy_from_slice(&number.to_be_bytes()[2..]);
        Ok(Self(short))
    }
}

/// How much of an error is looked at, in bytes.
const MOST: usize = 1_024;
/// Words behind which a number says what went wrong, and not to whom: `status 503`, `os error 111`, `SQLSTATE 23505`.
const BEFORE_CODES: [&str; 9] =
    ["status", "statuscode", "code", "http", "sqlstate", "errno", "error", "exit", "signal"];
/// What may stand between such a word and its number.
const BETWEEN: &[char] = &[' ', '=', ':', '(', '/', '#'];
/// Longest code. What is longer is an id.
const CODE: usize = 5;

/// The first line of an error (at most 1 KiB) in which what differs from task to task is replaced: quoted texts, addresses of mail,
/// UUIDs, addresses of the net, times, ids, and numbers, but for those that are codes of errors. White space is one space.
///
/// ```
/// use queue_core::fingerprint::pattern;
///
/// let pattern = pattern("user 42: dial tcp 10.0.0.7:5432: connect: connection refused");
/// assert_eq!(pattern, "user <n>: dial tcp <address>: connect: connection refused");
/// ```
pub fn pattern(error: &str) -> String {
    let line = error.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line = &line[..line.floor_char_boundary(MOST)];
    let mut pattern = String::with_capacity(line.len());
    // The word before, in small letters, and what follows it.
    let (mut word, mut between) = (String::new(), String::new());
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let (told, length): (Cow<'_, str>, usize) = if first.is_whitespace() {
            (" ".into(), rest.len() - rest.trim_start().len())
        } else if let Some(length) = quoted(rest, &pattern) {
            ("\"…\"".into(), length)
        } else if let Some((told, length)) = known(rest) {
            (told.into(), length)
        } else if is_part(first) {
            let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let whole = &rest[..length];
            if first.is_ascii_digit() {
                let length = number(rest);
                // `error: 3 of 5 tasks` counts.
                let most = if word == "error" { 1 } else { 3 };
                let is_code = length <= CODE && (1..=most).contains(&between.len()) && BEFORE_CODES.contains(&&*word);
                if is_code {
                    // `HTTP/1.1 502`: what follows is a part of the code.
                    pattern.push_str(&rest[..length]);
                    between.clear();
                    rest = &rest[length..];
                    continue;
                }
                // The sign of a number is a part of it, and that of a name is not.
                let has_sign = pattern
                    .strip_suffix('-')
                    .is_some_and(|before| before.is_empty() || before.ends_with([' ', '=', '(', '[']));
                if has_sign {
                    pattern.pop();
                }
                ("<n>".into(), length)
            } else {
                let told = name(whole);
                word = whole.to_ascii_lowercase();
                pattern.push_str(&told);
                between.clear();
                rest = &rest[length..];
                continue;
            }
        } else {
            (rest[..first.len_utf8()].into(), first.len_utf8())
        };
        let is_between = told.chars().all(|c| BETWEEN.contains(&c));
        if is_between {
            between.push_str(&told);
        } else {
            word.clear();
        }
        pattern.push_str(&told);
        rest = &rest[length..];
    }
    pattern
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric()
}

/// How long a quoted text at the beginning is. An apostrophe within a word, and a quotation mark that is never closed, quote nothing.
fn quoted(rest: &str, before: &str) -> Option<usize> {
    let first = rest.chars().next()?;
    let end = match first {
        '"' | '\'' | '`' => first,
        '“' => '”',
        '‘' => '’',
        '«' => '»',
        _ => return None,
    };
    if first == '\'' && before.ends_with(is_part) {
        return None;
    }
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        let behind = at + c.len_utf8();
        if c == '\\' {
            characters.next();
        } else if c == end && !(first == '\'' && rest[behind..].starts_with(is_part)) {
            return Some(behind);
        }
    }
    None
}

/// What has a form of its own at the beginning, and how long it is.
fn known(rest: &str) -> Option<(&'static str, usize)> {
    let is_ours = |c: char| is_part(c) || matches!(c, '-' | '.' | '_' | '+' | '%');
    let local = rest.find(|c| !is_ours(c)).filter(|at| *at > 0 && rest[*at..].starts_with('@'));
    if let Some(at) = local {
        let host =
            rest[at + 1..].find(|c| !(is_part(c) || matches!(c, '-' | '.'))).map_or(rest.len(), |end| at + 1 + end);
        let host = rest[..host].trim_end_matches(['.', '-']).len();
        if host > at + 1 {
            return Some(("<mail>", host));
        }
    }
    const UUID: usize = 36;
    if rest.get(..UUID).is_some_and(|text| uuid::Uuid::try_parse(text).is_ok()) && !rest[UUID..].starts_with(is_part) {
        return Some(("<uuid>", UUID));
    }
    address(rest).map(|length| ("<address>", length)).or_else(|| time(rest).map(|length| ("<time>", length)))
}

/// How long a time at the beginning is: a date, a time of day, or both, with fractions and an offset.
fn time(rest: &str) -> Option<usize> {
    let date = ["dddd-dd-dd", "dddd/dd/dd", "dd/dd/dddd", "dd.dd.dddd"].into_iter().find_map(|form| fits(rest, form));
    let begin = match date {
        Some(at) if rest[at..].starts_with(['T', 't', ' ']) => at + 1,
        Some(at) => at,
        None => 0,
    };
    let day =
        ["dd:dd:dd", "dd:dd"].into_iter().find_map(|form| fits(&rest[begin..], form)).map(|length| begin + length);
    let Some(mut end) = day else { return date.filter(|end| !rest[*end..].starts_with(is_part)) };
    if rest[end..].starts_with(['.', ',']) {
        let digits = rest[end + 1..].bytes().take_while(u8::is_ascii_digit).count();
        end += if digits > 0 { 1 + digits } else { 0 };
    }
    let offset = rest[end..].trim_start();
    let gap = rest.len() - end - offset.len();
    let zone = ["Z", "+dd:dd", "-dd:dd", "+dddd", "-dddd"].into_iter().find_map(|form| fits(offset, form));
    end += zone.map_or(0, |length| gap + length);
    Some(end).filter(|end| !rest[*end..].starts_with(is_part))
}

/// How long a beginning of this form is, in which `d` is a digit.
fn fits(text: &str, form: &str) -> Option<usize> {
    let bytes = text.as_bytes().get(..form.len())?;
    let fits = bytes.iter().zip(form.bytes()).all(|(byte, form)| match form {
        b'd' => byte.is_ascii_digit(),
        form => *byte == form,
    });
    fits.then_some(form.len())
}

/// How long an address of the net at the beginning is, with its port.
fn address(rest: &str) -> Option<usize> {
    let is_ours = |c: char| c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '[' | ']');
    let end = rest.find(|c| !is_ours(c)).unwrap_or(rest.len());
    let text = rest[..end].trim_end_matches([':', '.']);
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let is_address = |text: &str| text.parse::<SocketAddr>().is_ok() || text.parse::<IpAddr>().is_ok();
    // `::` and the like are not meant as addresses in errors; most likely they are a path of Rust.
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    let is_address = has_digit && (is_address(text) || is_address(bare));
    (is_address && !rest[text.len()..].starts_with(is_part)).then_some(text.len())
}

/// How long a number at the beginning is, with its fractions and unit: `5`, `1.5ms`, `1m30s`, `10MB`, `1,204`.
fn number(rest: &str) -> usize {
    let mut end = 0;
    loop {
        end += rest[end..].find(|c| !is_part(c)).unwrap_or(rest.len() - end);
        let goes_on = rest[end..].starts_with(['.', ',']) && rest[end + 1..].starts_with(|c: char| c.is_ascii_digit());
        if !goes_on {
            return end;
        }
        end += 1;
    }
}

/// A word that begins with a letter, as it stands in the pattern. What looks like an id is a number too: some ids begin with a digit.
fn name(word: &str) -> Cow<'_, str> {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_mixed = word.chars().skip(1).any(char::is_uppercase) && word.chars().any(char::is_lowercase);
    let is_hex = word.len() >= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    // `NffrFeUfNV2Hib`, `k3j9d8s7f6`, but not `sha256`.
    let is_id = word.len() >= 10 && (digits >= 2 || (digits == 1 && is_mixed));
    // `E0308`, `P2002`.
    let is_code = word.starts_with(char::is_uppercase) && word.len() == digits + 1 && digits < CODE;
    if is_hex || is_id {
        return "<n>".into();
    }
    if digits == 0 || is_code {
        return word.into();
    }
    let mut told = String::with_capacity(word.len() + 2);
    for c in word.chars() {
        match c.is_ascii_digit() {
            false => told.push(c),
            true if !told.ends_with("<n>") => told.push_str("<n>"),
            true => {}
        }
    }
    told.into()
}

#[cfg(test)]
mod tests;

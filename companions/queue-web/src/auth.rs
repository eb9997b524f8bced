//! Who sends a request.

use std::fmt;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use queue_admin::Role;
use sha2::{Digest as _, Sha256};

use crate::session::Session;

/// Who sends a request, and what this one may do.
#[derive(Debug, Clone)]
pub struct Identity {
    name: String,
    role: Role,
    /// Patterns of queues; empty for all.
    queues: Vec<String>,
    /// Where this one has logged in.
    session: Option<Arc<Session>>,
}

impl Identity {
    /// Somebody who may do this in all queues.
    pub fn new(name: impl Into<String>, role: Role) -> Self {
        Self { name: name.into(), role, queues: Vec::new(), session: None }
    }

    /// Confines this one to queues of these names, with a `*` at the end of those that begin like this. Others do not exist for
    /// this one, and neither does what belongs to no queue but servers.
    #[must_use]
    pub fn queues(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.queues = patterns.into_iter().map(Into::into).collect();
        self
    }

    pub(crate) fn in_session(mut self, session: Arc<Session>) -> Self {
        self.session = Some(session);
        self
    }

    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// Whether all of these queues are there for this one.
    pub(crate) fn sees_all_of(&self, queues: &[String]) -> bool {
        queues.iter().all(|queue| self.sees(queue))
    }

    /// The same for queues as the audit names them: those of one change in one text.
    pub(crate) fn sees_each(&self, queues: &str) -> bool {
        queues.split(", ").all(|queue| self.sees(queue))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Whether a queue exists for this one.
    pub(crate) fn sees(&self, queue: &str) -> bool {
        self.sees_all() || self.queues.iter().any(|pattern| queue_core::fits(pattern, queue))
    }

    pub(crate) fn sees_all(&self) -> bool {
        self.queues.is_empty()
    }

    pub(crate) fn patterns(&self) -> &[String] {
        &self.queues
    }
}

/// A token, and its line for a file of tokens. Nobody guesses it, so a plain hash suffices.
pub fn new_token(name: &str, role: Role) -> (String, String) {
    let token = random();
    let line = format!("{name}:{}:{}", role.as_str(), hex(&digest(&token)));
    (token, line)
}

/// A text of 256 random bits.
pub(crate) fn random() -> String {
    let bits =
        [uuid::Uuid::new_v4().into_bytes(), uuid::Uuid::new_v4().into_bytes(), uuid::Uuid::new_v4().into_bytes()]
            .concat();
    URL_SAFE_NO_PAD.encode(Sha256::digest(bits))
}

pub(crate) fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Tokens from a file. Each line is `name:role:hash` or `name:role:hash:queues`: the role is `viewer`, `operator` or `admin`, the
/// hash is the SHA-256 of the token in hexadecimal digits, and the queues are names with commas between them, with a `*` at the
/// end of those that begin like this. Blank lines and those that begin with `#` do not count.
///
/// A token is sent as `Authorization: Bearer TOKEN`, or as the password of HTTP's Basic, with the name as the user.
#[derive(Clone, Default)]
pub struct Tokens {
    known: Vec<([u8; 32], Identity)>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.known.iter().map(|(_, identity)| identity)).finish()
    }
}

/// A line that is no token.
#[derive(Debug, thiserror::Error)]
#[error(
    "line {line}: {reason}; a line is written name:viewer|operator|admin:SHA-256 in hexadecimal digits[:queue,queue*]"
)]
pub struct TokenError {
    line: usize,
    reason: &'static str,
}

impl Tokens {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// When a line is none of those, a name stands there twice, or there is no token at all.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let hash = |text: &str| from_hex(text).ok_or("the hash has not 64 hexadecimal digits");
        let known = lines(text, hash).map_err(|(line, reason)| TokenError { line, reason })?;
        Ok(Self { known })
    }

    pub(crate) fn find(&self, headers: &HeaderMap) -> Option<Identity> {
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, rest) = value.split_once(' ')?;
        let (name, token) = match scheme.to_ascii_lowercase().as_str() {
            "bearer" => (None, rest.trim().to_owned()),
            "basic" => {
                let pair = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
                let (name, token) = pair.split_once(':')?;
                (Some(name.to_owned()), token.to_owned())
            }
            _ => return None,
        };
        let hash = digest(&token);
        // The time this takes tells nothing but how many hashes there are.
        let same = |known: &[u8; 32]| known.iter().zip(hash).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0;
        let found =
            self.known.iter().fold(None, |found, (known, identity)| if same(known) { Some(identity) } else { found });
        found.filter(|identity| name.is_none_or(|name| name == identity.name)).cloned()
    }
}

/// Reads a file of lines `name:role:secret` or `name:role:secret:queues`, or says which line is none and why. What stands for the secret
/// is not repeated.
pub(crate) fn lines<T>(
    text: &str,
    read: impl Fn(&str) -> Result<T, &'static str>,
) -> Result<Vec<(T, Identity)>, (usize, &'static str)> {
    let mut known: Vec<(T, Identity)> = Vec::new();
    for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fail = |reason| (at, reason);
        let mut parts = line.splitn(4, ':');
        let (Some(name), Some(role), Some(secret)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(fail("a part is missing"));
        };
        let role = Role::from_name(role).ok_or_else(|| fail("no such role"))?;
        let secret = read(secret).map_err(fail)?;
        if name.is_empty() || known.iter().any(|(_, known)| known.name == name) {
            return Err(fail("the name is empty or stands there twice"));
        }
        let patterns = parts.next().map(|queues| queues.split(',').map(str::trim).collect::<Vec<_>>());
        if patterns.as_ref().is_some_and(|patterns| patterns.iter().any(|pattern| pattern.is_empty())) {
            return Err(fail("the name of a queue is empty"));
        }
        known.push((secret, Identity::new(name, role).queues(patterns.unwrap_or_default())));
    }
    if known.is_empty() {
        Err((text.lines().count(), "there is no line but blank ones and comments"))
    } else {
        Ok(known)
    }
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn a_token_is_known_by_its_hash_as_bearer_and_as_password_of_its_name() {
        let (token, line) = new_token("ada", Role::Operator);
        assert!(!line.contains(&token));
        let (other, other_line) = new_token("bob", Role::Viewer);
        assert_ne!(token, other);
        let tokens = Tokens::parse(&format!("# who may\n\n{line}\n{other_line}:mail*,low\n")).unwrap();
        let found = tokens.find(&with(&format!("Bearer {token}"))).unwrap();
        assert_eq!((found.name(), found.role(), found.sees("anything")), ("ada", Role::Operator, true));
        let basic = |name: &str, token: &str| with(&format!("Basic {}", STANDARD.encode(format!("{name}:{token}"))));
        let bob = tokens.find(&basic("bob", &other)).unwrap();
        assert_eq!((bob.sees("mail:fast"), bob.sees("low"), bob.sees("lower")), (true, true, false));
        for headers in
            [basic("ada", &other), with("Bearer "), with("Bearer x"), with("Digest x"), with("Basic !"), with("Bearer")]
        {
            assert!(tokens.find(&headers).is_none(), "{headers:?}");
        }
    }

    #[test]
    fn a_file_with_a_line_that_is_no_token_is_refused() {
        let (_, line) = new_token("ada", Role::Admin);
        for text in [
            "",
            "# nothing",
            "ada",
            "ada:root:00",
            "ada:admin:00",
            &format!("{line}\n{line}"),
            &format!("{line}:a,,b"),
            &format!(":{line}"),
        ] {
            assert!(Tokens::parse(text).is_err(), "{text}");
        }
    }
}

//! How far a listener has come in all its streams.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use queue_core::keys::{self, QueueKeys};

/// A stream that is listened to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Source {
    Audit,
    Servers,
    Queue(String),
}

impl Source {
    pub(super) fn key(&self) -> String {
        match self {
            Self::Audit => keys::AUDIT.to_owned(),
            Self::Servers => keys::EVENTS.to_owned(),
            Self::Queue(queue) => QueueKeys::new(queue).events(),
        }
    }
}

/// What was heard last of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    /// The id of the entry.
    pub(super) id: String,
    /// How many of its events were heard; `None` for all.
    pub(super) heard: Option<usize>,
}

pub(super) type Positions = BTreeMap<Source, Position>;

/// How far a listener has come: an opaque text, which [`Events::since`](super::Events::since) goes on from.
///
/// It names each queue of which something was heard in the last hour, so it is as long as these are many.
#[derive(Debug, Clone)]
pub struct Cursor {
    /// The name of the listener.
    pub(super) who: Arc<str>,
    /// Where streams begin that it has heard nothing of, in Unix milliseconds.
    pub(super) began: i64,
    pub(super) base: Arc<Positions>,
    /// What came behind that, of which this is the last one that counts.
    pub(super) steps: Arc<[(Source, String)]>,
    pub(super) last: usize,
    /// Of that, so many events; `None` for all.
    pub(super) heard: Option<usize>,
}

impl Cursor {
    pub(super) fn positions(&self) -> Positions {
        let mut positions = (*self.base).clone();
        for (at, (source, id)) in self.steps.iter().enumerate().take(self.last.saturating_add(1)) {
            let heard = if at == self.last { self.heard } else { None };
            positions.insert(source.clone(), Position { id: id.clone(), heard });
        }
        positions
    }
}

impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        (&self.who, self.began, self.positions()) == (&other.who, other.began, other.positions())
    }
}

impl Eq for Cursor {}

/// `<who>~<began>`, and for each stream `~<name>=<id>` or `~<name>=<id>+<events>`, where a queue's name has `q` in front.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", self.who, self.began)?;
        for (source, Position { id, heard }) in self.positions() {
            match source {
                Source::Audit => write!(f, "~a={id}")?,
                Source::Servers => write!(f, "~s={id}")?,
                Source::Queue(queue) => write!(f, "~q{}={id}", utf8_percent_encode(&queue, NON_ALPHANUMERIC))?,
            }
            if let Some(heard) = heard {
                write!(f, "+{heard}")?;
            }
        }
        Ok(())
    }
}

/// The text is no cursor of events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is no cursor of events: it is taken from the field `cursor` of one, as a whole")]
pub struct CursorError;

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let mut parts = text.split('~');
        let who = parts.next().filter(|who| is_name(who)).ok_or(CursorError)?.into();
        let began = parts.next().and_then(|began| began.parse().ok()).filter(|ms| *ms >= 0).ok_or(CursorError)?;
        let base = parts.map(position).collect::<Option<Positions>>().ok_or(CursorError)?;
        let steps = Arc::from(Vec::new());
        Ok(Self { who, began, base: Arc::new(base), steps, last: 0, heard: None })
    }
}

fn is_name(who: &str) -> bool {
    (1..=64).contains(&who.len()) && who.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn position(part: &str) -> Option<(Source, Position)> {
    let (name, position) = part.split_once('=')?;
    let source = match name {
        "a" => Source::Audit,
        "s" => Source::Servers,
        _ => Source::Queue(percent_decode_str(name.strip_prefix('q')?).decode_utf8().ok()?.into_owned()),
    };
    let (id, heard) = match position.split_once('+') {
        Some((id, heard)) => (id, Some(heard.parse().ok()?)),
        None => (position, None),
    };
    order(id)?;
    Some((source, Position { id: id.to_owned(), heard }))
}

/// The numbers of an id, by which entries are in order.
pub(super) fn order(id: &str) -> Option<(u64, u64)> {
    let (ms, number) = id.split_once('-')?;
    Some((ms.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_says_in_a_text_how_far_each_stream_was_heard() {
        let base = Positions::from([
            (Source::Queue("a b~=+".to_owned()), Position { id: "5-0".to_owned(), heard: None }),
            (Source::Audit, Position { id: "4-1".to_owned(), heard: None }),
        ]);
        let step = |queue: &str, id: &str| (Source::Queue(queue.to_owned()), id.to_owned());
        let steps = Arc::from([step("mail", "6-0"), step("a b~=+", "7-0"), step("mail", "8-0")]);
        let mut cursor = Cursor { who: "w".into(), began: 3, base: Arc::new(base), steps, last: 1, heard: Some(2) };
        assert_eq!(cursor.to_string(), "w~3~a=4-1~qa%20b%7E%3D%2B=7-0+2~qmail=6-0");
        assert_eq!(cursor.to_string().parse::<Cursor>().as_ref(), Ok(&cursor));
        (cursor.last, cursor.heard) = (2, None);
        assert_eq!(
            cursor.to_string().parse::<Cursor>().unwrap().to_string(),
            "w~3~a=4-1~qa%20b%7E%3D%2B=7-0~qmail=8-0"
        );
    }

    #[test]
    fn other_texts_are_no_cursors() {
        for text in
            ["", "0", "w", "w~x", "w~-1", "w w~3", "w~3~", "w~3~a=5", "w~3~x=5-0", "w~3~a=5-0+x", "~3", "w~3~qa%ff=5-0"]
        {
            assert_eq!(text.parse::<Cursor>(), Err(CursorError), "{text}");
        }
    }
}

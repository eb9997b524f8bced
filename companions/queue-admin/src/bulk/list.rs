//! Lists that are read page by page, each page by a call of its own.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::try_join3;
use queue_core::keys::QueueKeys;
use queue_core::{TaskInfo, TaskState};
use serde::{Deserialize, Serialize};

use super::super::Inspector;
use super::{Filter, PAGE};
use crate::error::{BadCursor, Error};
use crate::lenient::total;

/// Which end of a state a list begins at. Pending and active tasks are in the order in which they came, the others in that of
/// their time: when a scheduled or retried task is due, when an archived task failed, when a completed one expires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// At the oldest, or the one whose time comes first.
    #[default]
    Oldest,
    /// At the newest.
    Newest,
}

/// Where a list goes on. It is text for users, and not secret; it names no keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Hash of what was asked for.
    question: u64,
    state: TaskState,
    group: Option<String>,
    /// The place at which the next page begins.
    next: usize,
    /// The last ids, in base64, and the bits of their scores.
    anchors: Vec<(String, Option<u64>)>,
    looked_at: u64,
}

/// Longest text of a cursor, in bytes. The ids of three tasks are in it.
const MAX_CURSOR: usize = 8_192;

impl Cursor {
    /// A place in a list that others only take from, and of what else it is one.
    pub(crate) fn plain(question: u64, of: &str, next: usize, looked_at: u64) -> Self {
        let (state, anchors) = (TaskState::Pending, Vec::new());
        Self { question, state, group: Some(of.to_owned()), next, anchors, looked_at }
    }

    /// What such a one says, if it is of the same list.
    pub(crate) fn as_plain(&self, question: u64) -> Result<(&str, usize, u64), BadCursor> {
        let of = self.group.as_deref().filter(|_| self.question == question);
        Ok((of.ok_or(BadCursor)?, self.next, self.looked_at))
    }

    pub(super) fn state(&self) -> TaskState {
        self.state
    }

    pub(super) fn group(&self) -> &Option<String> {
        &self.group
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_vec(self).map_err(|_| fmt::Error)?;
        f.write_str(&URL_SAFE_NO_PAD.encode(json))
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let json = URL_SAFE_NO_PAD.decode(Some(text).filter(|text| text.len() <= MAX_CURSOR).ok_or(BadCursor)?);
        let cursor: Self = serde_json::from_slice(&json.map_err(|_| BadCursor)?).map_err(|_| BadCursor)?;
        let is_sound = cursor.anchors.len() <= 3 && cursor.anchors.iter().all(|anchor| anchor_of(anchor).is_some());
        is_sound.then_some(cursor).ok_or(BadCursor)
    }
}

fn anchor_of((id, score): &(String, Option<u64>)) -> Option<(Vec<u8>, Option<f64>)> {
    let score = score.map(f64::from_bits);
    score.is_none_or(|score| !score.is_nan()).then_some((URL_SAFE_NO_PAD.decode(id).ok()?, score))
}

/// How far a search has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Searched {
    /// Tasks looked at, those for earlier pages included.
    pub looked_at: u64,
    /// Tasks there are to look at now.
    pub of: u64,
    /// Whether all were looked at.
    pub complete: bool,
}

/// A page of a list.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Listing<T = TaskInfo> {
    /// The tasks, or what was made of them, in order.
    pub tasks: Vec<T>,
    /// Ids that are listed, of which no message could be read: it is damaged, or has just gone.
    pub unread: Vec<String>,
    /// Where the list goes on; `None` at its end.
    pub next: Option<Cursor>,
    /// How much was looked at.
    pub searched: Searched,
    /// Whether so many tasks have come or gone since the page before that this one may leave some out, or repeat some. Only
    /// lists of pending and active tasks can move like that.
    pub moved: bool,
}

impl Inspector {
    /// The next page of the tasks to which a filter applies, in all seven states unless it names some: at most `limit` of
    /// them, and after looking at no more than about `look_at`. A page costs the same at any depth. While others add and take
    /// tasks, a task of a set that stays where it is is neither missed nor given twice, but that after a heavy change some come
    /// twice; for lists see [`Listing::moved`].
    ///
    /// # Errors
    /// When there is no such queue ([`Error::QueueNotFound`]), the cursor is of another list ([`Error::BadCursor`]), or
    /// Redis cannot be asked or refuses.
    pub async fn list(
        &self,
        queue: &str,
        filter: &Filter,
        direction: Direction,
        cursor: Option<&Cursor>,
        limit: usize,
        look_at: usize,
    ) -> Result<Listing, Error> {
        self.list_as(queue, filter, direction, cursor, limit, look_at, |task| task).await
    }

    /// As [`list`](Self::list), with what `keep` makes of each task as soon as it is read: see [`tasks_as`](Self::tasks_as).
    ///
    /// # Errors
    /// As [`list`](Self::list).
    #[expect(clippy::too_many_arguments, reason = "those of `list`, and one")]
    pub async fn list_as<T>(
        &self,
        queue: &str,
        filter: &Filter,
        direction: Direction,
        cursor: Option<&Cursor>,
        limit: usize,
        look_at: usize,
        mut keep: impl FnMut(TaskInfo) -> T,
    ) -> Result<Listing<T>, Error> {
        let question = question(queue, filter, direction);
        if cursor.is_some_and(|cursor| cursor.question != question) {
            return Err(BadCursor.into());
        }
        let (keys, states) = (QueueKeys::new(queue), filter.states_of(&TaskState::ALL));
        let places = self.places(&keys, &states).await?;
        let own = async { Ok(self.redis.pooled().await?) };
        let ((), sizes, mut connection) = try_join3(self.require_queue(queue), self.sizes(&places), own).await?;
        let of = total(&sizes);
        let started = self.started(queue, filter, &states).await?;
        let is_plain = !filter.needs_hash() && filter.ids.is_empty();
        let size = if is_plain { limit.max(1) } else { PAGE };
        // Whether anything follows is seen by one more.
        let ahead = size.saturating_add(1);
        let mut looked_at = cursor.map_or(0, |cursor| cursor.looked_at);
        let until = looked_at.saturating_add(look_at.max(1) as u64);
        let (mut tasks, mut unread, mut moved) = (Vec::new(), Vec::new(), false);
        // A group that is gone is passed over; its successors by name are not.
        let position = |cursor: &Cursor| {
            let state = states.iter().position(|state| *state == cursor.state);
            places.iter().position(|place| {
                let at = states.iter().position(|state| *state == place.state);
                (at, &place.group) >= (state, &cursor.group)
            })
        };
        let first = cursor.map_or(Some(0), position).unwrap_or(places.len());
        for (n, place) in places.iter().enumerate().skip(first) {
            let mut walk = place.read(direction);
            let mut resumed = None;
            if let Some(cursor) = cursor.filter(|cursor| n == first && place.is_at(cursor)) {
                walk.next = cursor.next;
                walk.anchors = cursor.anchors.iter().filter_map(anchor_of).collect();
                resumed = walk.resume_list(&mut connection, ahead).await?;
            }
            loop {
                let mut page = match resumed.take() {
                    Some((found, page)) => {
                        moved |= !found;
                        page
                    }
                    None => walk.next(&mut connection, ahead).await?.entries,
                };
                let more = page.len() > size;
                page.truncate(size);
                if page.is_empty() {
                    break;
                }
                let mut matching = self.select(&mut connection, &keys, place, filter, &started, &page).await?;
                let room = limit.saturating_sub(tasks.len() + unread.len());
                let last = if matching.len() > room { matching.get(room).map(|(id, _)| id.clone()) } else { None };
                matching.truncate(room);
                // What follows the last one that fits is looked at again next time.
                let seen = last.and_then(|last| page.iter().position(|(id, _)| *id == last)).unwrap_or(page.len());
                walk.go_on(&page[..seen], |_| false);
                looked_at = looked_at.saturating_add(seen as u64);
                let ids: Vec<Vec<u8>> = matching.iter().map(|(id, _)| id.clone()).collect();
                let read = self.read(&mut connection, &keys, place.state, matching, &mut keep).await?;
                for (id, task) in ids.iter().zip(read) {
                    match task {
                        Some(task) => tasks.push(task),
                        None => unread.push(String::from_utf8_lossy(id).into_owned()),
                    }
                }
                if tasks.len() + unread.len() >= limit || looked_at >= until {
                    let next = Cursor {
                        question,
                        state: place.state,
                        group: place.group.clone(),
                        next: walk.next,
                        anchors: walk
                            .anchors
                            .iter()
                            .map(|(id, score)| (URL_SAFE_NO_PAD.encode(id), score.map(f64::to_bits)))
                            .collect(),
                        looked_at,
                    };
                    // A page that ends with the last task of all needs no other one.
                    let at_end = n + 1 == places.len() && seen == page.len() && !more;
                    let searched = Searched { looked_at, of: of.max(looked_at), complete: at_end };
                    let next = (!at_end).then_some(next);
                    return Ok(Listing { tasks, unread, next, searched, moved });
                }
                if !more {
                    break;
                }
            }
        }
        let searched = Searched { looked_at, of: of.max(looked_at), complete: true };
        Ok(Listing { tasks, unread, next: None, searched, moved })
    }
}

/// What a cursor belongs to.
pub(crate) fn question(queue: &str, filter: &Filter, direction: Direction) -> u64 {
    let mut hasher = DefaultHasher::new();
    (queue, filter.to_string(), direction).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is() {
        let cursor = Cursor {
            question: u64::MAX,
            state: TaskState::Retry,
            group: Some("a \"b\"".to_owned()),
            next: 7,
            anchors: vec![
                (URL_SAFE_NO_PAD.encode(b"\xff\0"), Some(1_700_000_000.5_f64.to_bits())),
                ("YQ".to_owned(), None),
            ],
            looked_at: 3,
        };
        let text = cursor.to_string();
        assert_eq!(text.parse(), Ok(cursor.clone()));
        let nan = Cursor { anchors: vec![(String::new(), Some(f64::NAN.to_bits()))], ..cursor.clone() };
        let many = Cursor { anchors: vec![(String::new(), None); 4], ..cursor };
        for text in ["", "x", "!!", &text[1..], &nan.to_string(), &many.to_string(), &"A".repeat(MAX_CURSOR + 1)] {
            assert_eq!(text.parse::<Cursor>(), Err(BadCursor), "{text}");
        }
    }
}

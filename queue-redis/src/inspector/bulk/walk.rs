//! Going through a list or set of ids page by page while others change it.

use super::super::tasks::range;
use super::super::{Page, tasks::Entry};
use crate::connection::Connection;
use crate::error::Error;

/// How many of the last ids that stayed are remembered, to find the way on.
const ANCHORS: usize = 3;

/// In which order ids come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// A sorted set, lowest score first.
    Score,
    /// A list from its head, newest first. What is pushed meanwhile moves the others towards us, so that none
    /// is missed; some come twice.
    Newest,
    /// A list from its tail, oldest first. What is taken meanwhile makes us miss some.
    Oldest,
}

/// A way through a list or set.
pub(super) struct Walk {
    key: String,
    order: Order,
    /// The place at which the next page begins.
    next: usize,
    /// The last ids of the pages so far that were not taken out, the very last first.
    anchors: Vec<Entry>,
}

/// A page, and the place of its first id.
pub(super) struct Stretch {
    pub(super) at: usize,
    pub(super) entries: Vec<Entry>,
}

impl Walk {
    pub(super) fn new(key: String, order: Order) -> Self {
        Self { key, order, next: 0, anchors: Vec::new() }
    }

    /// The next ids, at most `size`; none at the end.
    pub(super) async fn next(&mut self, connection: &mut Connection, size: usize) -> Result<Stretch, Error> {
        if self.order == Order::Score {
            self.find_place(connection).await?;
        }
        let at = self.next;
        let page = Page { skip: at, size };
        let entries = match self.order {
            Order::Score => range(connection, &self.key, page).await?,
            Order::Newest | Order::Oldest => list(connection, &self.key, self.order, page).await?,
        };
        Ok(Stretch { at, entries })
    }

    /// Goes on behind a page of which `gone` ids have been taken out.
    pub(super) fn go_on(&mut self, page: &[Entry], gone: impl Fn(&[u8]) -> bool) {
        let stayed: Vec<&Entry> = page.iter().filter(|(id, _)| !gone(id)).collect();
        self.next += stayed.len();
        if !stayed.is_empty() {
            self.anchors = stayed.into_iter().rev().take(ANCHORS).cloned().collect();
        }
    }

    /// Others may have taken ids out in front of us, or put some in; so the place is reckoned anew from the
    /// ids seen last. Where these are gone too, it is that of the first id with the last score: some may come
    /// twice, none is missed.
    async fn find_place(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let Some((_, Some(last_score))) = self.anchors.first() else { return Ok(()) };
        let mut look = redis::pipe();
        look.cmd("ZCOUNT").arg(&self.key).arg("-inf").arg(format!("({last_score}"));
        for (id, _) in &self.anchors {
            look.cmd("ZRANK").arg(&self.key).arg(id).cmd("ZSCORE").arg(&self.key).arg(id);
        }
        let replies: Vec<Option<f64>> = connection.pipeline("looking for the place in a set", &look).await?;
        let (before, places) =
            replies.split_first().map_or((0.0, &[][..]), |(first, rest)| (first.unwrap_or(0.0), rest));
        // One that has left and come back since is somewhere else.
        let still = self.anchors.iter().zip(places.chunks_exact(2)).find(|((_, score), place)| place[1] == *score);
        self.next = still.and_then(|(_, place)| place[0]).map_or(before, |rank| rank + 1.0) as usize;
        Ok(())
    }
}

/// A part of a list: from the head as it is, or from the tail, turned round.
pub(super) async fn list(
    connection: &mut Connection,
    key: &str,
    order: Order,
    page: Page,
) -> Result<Vec<Entry>, Error> {
    let (first, last) = (as_index(page.skip), as_index(page.skip + page.size) - 1);
    let (from, to) = if order == Order::Oldest { (-last - 1, -first - 1) } else { (first, last) };
    let mut ids: Vec<Vec<u8>> = connection.query("LRANGE", redis::cmd("LRANGE").arg(key).arg(from).arg(to)).await?;
    if order == Order::Oldest {
        ids.reverse();
    }
    Ok(ids.into_iter().map(|id| (id, None)).collect())
}

fn as_index(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

//! Going through a list or set of ids page by page while others change it.

use super::super::tasks::range;
use super::super::{Page, tasks::Entry};
use crate::error::Error;
use queue_redis::Connection;

/// How many of the last ids that stayed are remembered, to find the way on.
const ANCHORS: usize = 3;
/// How often the place in a set that changes all the time is looked for, before the way that always works,
/// but may give many ids twice, is taken.
const ATTEMPTS: usize = 5;

/// How many ids on either side of its old place an id of a list is looked for. `LPOS` would look through all that is before
/// it: 9.7 ms in a list of a million.
const WINDOW: usize = 200;

/// In which order ids come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// A sorted set, lowest score first.
    Score,
    /// A sorted set, highest score first.
    ScoreDown,
    /// A list from its head, newest first. What is pushed meanwhile moves the others towards us, so that none
    /// is missed; some come twice. What others take out of the part that we have seen makes us miss as many.
    Newest,
    /// A list from its tail, oldest first. What is taken meanwhile makes us miss some.
    Oldest,
}

/// A way through a list or set.
pub(super) struct Walk {
    key: String,
    order: Order,
    /// The place at which the next page begins.
    pub(super) next: usize,
    /// The last ids of the pages so far that were not taken out, the very last first.
    pub(super) anchors: Vec<Entry>,
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
        let at = self.next;
        let entries = match self.order {
            Order::Score | Order::ScoreDown => self.next_of_set(connection, size).await?,
            Order::Newest | Order::Oldest => list(connection, &self.key, self.order, Page { skip: at, size }).await?,
        };
        Ok(Stretch { at, entries })
    }

    /// Others may take ids out in front of us, or put some in. So each page begins with the id that we saw last:
    /// what follows it is what comes next. If it is not there, the place is looked for anew.
    async fn next_of_set(&mut self, connection: &mut Connection, size: usize) -> Result<Vec<Entry>, Error> {
        for _ in 0..ATTEMPTS {
            let Some(last) = self.anchors.first() else {
                return self.range(connection, Page { skip: 0, size }).await;
            };
            let page = Page { skip: self.next.saturating_sub(1), size: size + 1 };
            let mut entries = self.range(connection, page).await?;
            if entries.first() == Some(last) {
                entries.remove(0);
                return Ok(entries);
            }
            if !self.find_place(connection).await? {
                break;
            }
        }
        self.again_from_last_score(connection, size).await
    }

    async fn range(&self, connection: &mut Connection, page: Page) -> Result<Vec<Entry>, Error> {
        if self.order == Order::Score {
            return range(connection, &self.key, page).await;
        }
        let (first, last) = page.places();
        let members: Vec<(Vec<u8>, f64)> =
            connection.command("ZREVRANGE", (&self.key, first, last, "WITHSCORES")).await?;
        Ok(members.into_iter().map(|(id, score)| (id, Some(score))).collect())
    }

    /// Finds the way on in a list whose ids have moved since the last page, and reads on; `None` where there is nothing to look
    /// for. Tells `false` if none of the last ids is near the place where it was: then this page may leave ids out, or repeat
    /// some.
    pub(super) async fn resume_list(
        &mut self,
        connection: &mut Connection,
        size: usize,
    ) -> Result<Option<(bool, Vec<Entry>)>, Error> {
        if self.anchors.is_empty() || !matches!(self.order, Order::Newest | Order::Oldest) {
            return Ok(None);
        }
        let skip = self.next.saturating_sub(WINDOW);
        let mut near =
            list(connection, &self.key, self.order, Page { skip, size: size.saturating_add(2 * WINDOW) }).await?;
        let found =
            self.anchors.iter().find_map(|(id, _)| near.iter().take(2 * WINDOW).position(|(near, _)| near == id));
        let at = found.map_or(self.next - skip, |at| at + 1);
        self.next = skip.saturating_add(at);
        let mut page = near.split_off(at.min(near.len()));
        page.truncate(size);
        Ok(Some((found.is_some(), page)))
    }

    /// Goes on behind a page of which `gone` ids have been taken out.
    pub(super) fn go_on(&mut self, page: &[Entry], gone: impl Fn(&[u8]) -> bool) {
        let stayed: Vec<&Entry> = page.iter().filter(|(id, _)| !gone(id)).collect();
        // Redis has told a place in the set; not every number is one.
        self.next = self.next.saturating_add(stayed.len());
        if !stayed.is_empty() {
            self.anchors = stayed.into_iter().rev().take(ANCHORS).cloned().collect();
        }
    }

    /// Where the last of the ids is that are still where they were. Returns whether there is one.
    async fn find_place(&mut self, connection: &mut Connection) -> Result<bool, Error> {
        let mut look = redis::pipe();
        for (id, _) in &self.anchors {
            look.cmd("ZRANK").arg(&self.key).arg(id).cmd("ZSCORE").arg(&self.key).arg(id);
        }
        look.cmd("ZCARD").arg(&self.key);
        let mut places: Vec<Option<f64>> = connection.pipeline("looking for the place in a set", &look).await?;
        let size = places.pop().flatten().map_or(0, |size| size as usize);
        // One that has left and come back since is somewhere else.
        let still = self.anchors.iter().zip(places.chunks_exact(2)).position(|((_, score), place)| place[1] == *score);
        let Some(still) = still else { return Ok(false) };
        let rank = places[2 * still].map_or(0, |rank| rank as usize);
        self.next = if self.order == Order::Score { rank.saturating_add(1) } else { size.saturating_sub(rank) };
        self.anchors.drain(..still);
        Ok(true)
    }

    /// The ids from the first with the score seen last: some may come twice, none is missed.
    async fn again_from_last_score(&mut self, connection: &mut Connection, size: usize) -> Result<Vec<Entry>, Error> {
        let Some((_, Some(score))) = self.anchors.first() else { return Ok(Vec::new()) };
        let mut look = redis::pipe();
        if self.order == Order::Score {
            look.cmd("ZCOUNT").arg(&self.key).arg("-inf").arg(format!("({score}"));
            look.cmd("ZRANGEBYSCORE").arg(&self.key).arg(score).arg("+inf");
        } else {
            look.cmd("ZCOUNT").arg(&self.key).arg(format!("({score}")).arg("+inf");
            look.cmd("ZRANGE").arg(&self.key).arg(score).arg("-inf").arg("BYSCORE").arg("REV");
        }
        look.arg("LIMIT").arg(0).arg(size).arg("WITHSCORES");
        let (before, members): (usize, Vec<(Vec<u8>, f64)>) =
            connection.pipeline("looking for the place in a set", &look).await?;
        self.next = before;
        Ok(members.into_iter().map(|(id, score)| (id, Some(score))).collect())
    }
}

/// A part of a list: from the head as it is, or from the tail, turned round.
pub(super) async fn list(
    connection: &mut Connection,
    key: &str,
    order: Order,
    page: Page,
) -> Result<Vec<Entry>, Error> {
    let (first, last) = page.places();
    let (from, to) = if order == Order::Oldest { (-last - 1, -first - 1) } else { (first, last) };
    let mut ids: Vec<Vec<u8>> = connection.command("LRANGE", (key, from, to)).await?;
    if order == Order::Oldest {
        ids.reverse();
    }
    Ok(ids.into_iter().map(|id| (id, None)).collect())
}

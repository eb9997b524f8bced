//! Ranges of sorted sets, by place, by score and by name.

use super::lists::span;
use super::{Args, is};
use crate::store::data::Data;
use crate::store::number::{integer, score};
use crate::store::reply::{Answer, Refusal, Reply};
use crate::store::value::SortedSet;

/// A range of scores; `(` in front of a bound leaves that score out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    from: (f64, bool),
    to: (f64, bool),
}

impl Bounds {
    pub(super) fn parse(from: &[u8], to: &[u8]) -> Result<Self, Refusal> {
        let bound = |text: &[u8]| {
            let (text, open) = text.strip_prefix(b"(").map_or((text, false), |rest| (rest, true));
            let score = score(text).map_err(|_| Refusal("ERR min or max is not a float".to_owned()))?;
            Ok((score, open))
        };
        Ok(Self { from: bound(from)?, to: bound(to)? })
    }

    pub(super) fn members(self, set: &SortedSet) -> impl DoubleEndedIterator<Item = (&[u8], f64)> {
        let ((from, open), (to, open_end)) = (self.from, self.to);
        let inside = move |score: f64| {
            (if open { score > from } else { score >= from }) && (if open_end { score < to } else { score <= to })
        };
        set.starting_at(from).filter(move |(_, score)| inside(*score))
    }
}

/// What a range command is asked for.
#[derive(Debug, Default)]
struct Query {
    by_score: bool,
    by_name: bool,
    backwards: bool,
    with_scores: bool,
    limit: Option<(i64, i64)>,
}

impl Query {
    fn read(mut self, mut options: Args<'_>) -> Result<Self, Refusal> {
        while let Some((word, rest)) = options.split_first() {
            options = rest;
            match () {
                () if is(word, "WITHSCORES") => self.with_scores = true,
                () if is(word, "REV") => self.backwards = true,
                () if is(word, "BYSCORE") => self.by_score = true,
                () if is(word, "BYLEX") => self.by_name = true,
                () if is(word, "LIMIT") && options.len() >= 2 => {
                    self.limit = Some((integer(&options[0])?, integer(&options[1])?));
                    options = &options[2..];
                }
                () => return Err(Refusal::syntax()),
            }
        }
        if self.limit.is_some() && !self.by_score && !self.by_name {
            let text = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
            return Err(Refusal(text.to_owned()));
        }
        Ok(self)
    }

    fn run(&self, data: &mut Data, key: &[u8], first: &[u8], second: &[u8]) -> Answer {
        let (from, to) = if self.backwards { (second, first) } else { (first, second) };
        let members = if self.by_name {
            let between = Names::parse(from, to)?;
            let Some(set) = data.read::<SortedSet>(key)? else { return Ok(Reply::Array(Vec::new())) };
            self.limited(self.ordered(set.iter().filter(move |(member, _)| between.has(member))))
        } else if self.by_score {
            let bounds = Bounds::parse(from, to)?;
            let Some(set) = data.read::<SortedSet>(key)? else { return Ok(Reply::Array(Vec::new())) };
            self.limited(self.ordered(bounds.members(set)))
        } else {
            let set = data.read::<SortedSet>(key)?;
            let span = span(first, second, set.map_or(0, SortedSet::len))?;
            let all = set.into_iter().flat_map(SortedSet::iter);
            self.ordered(all).skip(span.start).take(span.len()).collect()
        };
        let member = |member: &[u8]| Reply::text(member);
        Ok(match self.with_scores {
            true => Reply::Pairs(members.iter().map(|(name, score)| (member(name), Reply::Double(*score))).collect()),
            false => Reply::Array(members.iter().map(|(name, _)| member(name)).collect()),
        })
    }

    fn ordered<'a>(
        &self,
        members: impl DoubleEndedIterator<Item = (&'a [u8], f64)> + 'a,
    ) -> Box<dyn Iterator<Item = (&'a [u8], f64)> + 'a> {
        if self.backwards { Box::new(members.rev()) } else { Box::new(members) }
    }

    /// A negative offset gives nothing, a negative count everything.
    fn limited<'a>(&self, members: impl Iterator<Item = (&'a [u8], f64)>) -> Vec<(&'a [u8], f64)> {
        let Some((offset, count)) = self.limit else { return members.collect() };
        let Ok(offset) = usize::try_from(offset) else { return Vec::new() };
        members.skip(offset).take(usize::try_from(count).unwrap_or(usize::MAX)).collect()
    }
}

pub(super) fn zrange(data: &mut Data, args: Args<'_>) -> Answer {
    Query::default().read(&args[3..])?.run(data, &args[0], &args[1], &args[2])
}

pub(super) fn zrevrange(data: &mut Data, args: Args<'_>) -> Answer {
    Query { backwards: true, ..Query::default() }.read(&args[3..])?.run(data, &args[0], &args[1], &args[2])
}

pub(super) fn zrangebyscore(data: &mut Data, args: Args<'_>) -> Answer {
    Query { by_score: true, ..Query::default() }.read(&args[3..])?.run(data, &args[0], &args[1], &args[2])
}

/// A range of names, in a set of one score; a bound begins with `[` or, to leave that name out, with `(`.
#[derive(Debug)]
struct Names {
    from: (Vec<u8>, bool),
    to: (Vec<u8>, bool),
}

impl Names {
    fn parse(from: &[u8], to: &[u8]) -> Result<Self, Refusal> {
        let bound = |text: &[u8]| match text.split_first() {
            Some((b'[', name)) => Ok((name.to_vec(), true)),
            Some((b'(', name)) => Ok((name.to_vec(), false)),
            _ => Err(Refusal("ERR min or max not valid string range item".to_owned())),
        };
        Ok(Self { from: bound(from)?, to: bound(to)? })
    }

    fn has(&self, member: &[u8]) -> bool {
        let ((from, with_from), (to, with_to)) = (&self.from, &self.to);
        (if *with_from { member >= &from[..] } else { member > &from[..] })
            && (if *with_to { member <= &to[..] } else { member < &to[..] })
    }
}

fn between<'a>(data: &'a mut Data, args: Args<'_>) -> Result<impl Iterator<Item = &'a [u8]> + use<'a>, Refusal> {
    let names = Names::parse(&args[1], &args[2])?;
    let members = data.read::<SortedSet>(&args[0])?.into_iter().flat_map(SortedSet::iter).map(|(member, _)| member);
    Ok(members.filter(move |member| names.has(member)))
}

pub(super) fn zlexcount(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(between(data, args)?.count()))
}

/// Knows the option `LIMIT`.
pub(super) fn zrangebylex(data: &mut Data, args: Args<'_>) -> Answer {
    let (skip, most) = match &args[3..] {
        [] => (0, usize::MAX),
        [word, skip, most] if is(word, "LIMIT") => {
            let most = usize::try_from(integer(most)?).unwrap_or(usize::MAX);
            (usize::try_from(integer(skip)?).map_err(|_| Refusal::syntax())?, most)
        }
        _ => return Err(Refusal::syntax()),
    };
    Ok(Reply::Array(between(data, args)?.skip(skip).take(most).map(Reply::text).collect()))
}

pub(super) fn zremrangebyscore(data: &mut Data, args: Args<'_>) -> Answer {
    let bounds = Bounds::parse(&args[1], &args[2])?;
    remove(data, &args[0], |set| bounds.members(set).map(|(member, _)| member.to_vec()).collect())
}

pub(super) fn zremrangebyrank(data: &mut Data, args: Args<'_>) -> Answer {
    let length = data.read::<SortedSet>(&args[0])?.map_or(0, SortedSet::len);
    let span = span(&args[1], &args[2], length)?;
    remove(data, &args[0], |set| {
        set.iter().skip(span.start).take(span.len()).map(|(member, _)| member.to_vec()).collect()
    })
}

fn remove(data: &mut Data, key: &[u8], choose: impl FnOnce(&SortedSet) -> Vec<Vec<u8>>) -> Answer {
    Ok(Reply::count(data.edit(key, |set: &mut SortedSet| {
        let chosen = choose(set);
        chosen.iter().filter(|member| set.remove(member).is_some()).count()
    })?))
}

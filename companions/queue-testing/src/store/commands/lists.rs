//! Lists.

use std::ops::Range;

use super::{Args, is};
use crate::store::data::Data;
use crate::store::number::{count, integer};
use crate::store::reply::{Answer, Refusal, Reply};
use crate::store::value::List;

pub(super) fn lpush(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(data.edit(&args[0], |list: &mut List| {
        args[1..].iter().for_each(|item| list.push_front(item.clone()));
        list.len()
    })?))
}

pub(super) fn rpush(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(data.edit(&args[0], |list: &mut List| {
        list.extend(args[1..].iter().cloned());
        list.len()
    })?))
}

pub(super) fn lpop(data: &mut Data, args: Args<'_>) -> Answer {
    pop(data, args, List::pop_front)
}

pub(super) fn rpop(data: &mut Data, args: Args<'_>) -> Answer {
    pop(data, args, List::pop_back)
}

fn pop(data: &mut Data, args: Args<'_>, take: fn(&mut List) -> Option<Vec<u8>>) -> Answer {
    let many = args.get(1).map(|text| count(text)).transpose()?;
    if data.read::<List>(&args[0])?.is_none() {
        return Ok(Reply::Nil);
    }
    data.edit(&args[0], |list: &mut List| match many {
        None => Reply::or_nil(take(list)),
        Some(many) => Reply::bulks(std::iter::from_fn(|| take(list)).take(many)),
    })
}

pub(super) fn rpoplpush(data: &mut Data, args: Args<'_>) -> Answer {
    move_one(data, args, List::pop_back, List::push_front)
}

pub(super) fn lmove(data: &mut Data, args: Args<'_>) -> Answer {
    let side = |word: &[u8]| match () {
        () if is(word, "LEFT") => Ok(true),
        () if is(word, "RIGHT") => Ok(false),
        () => Err(Refusal::syntax()),
    };
    let take = if side(&args[2])? { List::pop_front } else { List::pop_back };
    let give = if side(&args[3])? { List::push_front } else { List::push_back };
    move_one(data, args, take, give)
}

fn move_one(
    data: &mut Data,
    args: Args<'_>,
    take: fn(&mut List) -> Option<Vec<u8>>,
    give: fn(&mut List, Vec<u8>),
) -> Answer {
    if data.read::<List>(&args[0])?.is_none() {
        return Ok(Reply::Nil);
    }
    data.read::<List>(&args[1])?;
    let Some(item) = data.edit(&args[0], take)? else { return Ok(Reply::Nil) };
    data.edit(&args[1], |list: &mut List| give(list, item.clone()))?;
    Ok(Reply::Bulk(item))
}

pub(super) fn llen(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(data.read::<List>(&args[0])?.map_or(0, List::len)))
}

/// The positions that Redis means by two indexes, both included, of which negative ones count from the end.
pub(super) fn span(start: &[u8], stop: &[u8], length: usize) -> Result<Range<usize>, Refusal> {
    let size = i64::try_from(length).unwrap_or(i64::MAX);
    let from_end = |index: i64| if index < 0 { index.saturating_add(size) } else { index };
    let (start, stop) = (from_end(integer(start)?).max(0), from_end(integer(stop)?).min(size - 1));
    let at = |index: i64| usize::try_from(index).unwrap_or(0);
    Ok(if start > stop { 0..0 } else { at(start)..at(stop) + 1 })
}

pub(super) fn lrange(data: &mut Data, args: Args<'_>) -> Answer {
    let Some(list) = data.read::<List>(&args[0])? else {
        span(&args[1], &args[2], 0)?;
        return Ok(Reply::Array(Vec::new()));
    };
    let span = span(&args[1], &args[2], list.len())?;
    Ok(Reply::bulks(list.range(span).cloned()))
}

pub(super) fn ltrim(data: &mut Data, args: Args<'_>) -> Answer {
    let length = data.read::<List>(&args[0])?.map_or(0, List::len);
    let span = span(&args[1], &args[2], length)?;
    data.edit(&args[0], |list: &mut List| {
        list.truncate(span.end);
        list.drain(..span.start.min(list.len()));
    })?;
    Ok(Reply::OK)
}

pub(super) fn lrem(data: &mut Data, args: Args<'_>) -> Answer {
    let wanted = integer(&args[1])?;
    let most = if wanted == 0 { usize::MAX } else { usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX) };
    Ok(Reply::count(data.edit(&args[0], |list: &mut List| {
        let mut found: Vec<usize> = (0..list.len()).filter(|at| list[*at] == args[2]).collect();
        if wanted < 0 {
            found.reverse();
        }
        found.truncate(most);
        found.sort_unstable();
        found.iter().rev().for_each(|at| drop(list.remove(*at)));
        found.len()
    })?))
}

fn position(index: &[u8], length: usize) -> Result<Option<usize>, Refusal> {
    let index = integer(index)?;
    let size = i64::try_from(length).unwrap_or(i64::MAX);
    let index = if index < 0 { index.saturating_add(size) } else { index };
    Ok(usize::try_from(index).ok().filter(|at| *at < length))
}

pub(super) fn lset(data: &mut Data, args: Args<'_>) -> Answer {
    let length = data.read::<List>(&args[0])?.ok_or_else(|| Refusal("ERR no such key".to_owned()))?.len();
    let at = position(&args[1], length)?.ok_or_else(|| Refusal("ERR index out of range".to_owned()))?;
    data.edit(&args[0], |list: &mut List| list[at] = args[2].clone())?;
    Ok(Reply::OK)
}

/// The first position, of the whole list or among the first `MAXLEN`, of which 0 means all; with `COUNT`, so many of
/// them, of which 0 means all. With a negative `RANK` the first ones are those at the tail.
pub(super) fn lpos(data: &mut Data, args: Args<'_>) -> Answer {
    let (mut most, mut wanted, mut from_tail) = (0, None, false);
    for option in args[2..].chunks(2) {
        match option {
            [word, number] if is(word, "MAXLEN") => most = count(number)?,
            [word, number] if is(word, "COUNT") => wanted = Some(count(number)?),
            [word, number] if is(word, "RANK") && matches!(integer(number)?, 1 | -1) => {
                from_tail = integer(number)? < 0
            }
            _ => {
                let text = "ERR the in-process store knows no options of LPOS but MAXLEN, COUNT, RANK 1 and RANK -1";
                return Err(Refusal(text.to_owned()));
            }
        }
    }
    let most = if most == 0 { usize::MAX } else { most };
    let Some(list) = data.read::<List>(&args[0])? else {
        return Ok(wanted.map_or(Reply::Nil, |_| Reply::Array(Vec::new())));
    };
    let place = |nth: usize| if from_tail { list.len() - 1 - nth } else { nth };
    let mut found = (0..list.len().min(most)).map(place).filter(|at| list[*at] == args[1]);
    match wanted {
        None => Ok(found.next().map_or(Reply::Nil, Reply::count)),
        Some(0) => Ok(Reply::Array(found.map(Reply::count).collect())),
        Some(wanted) => Ok(Reply::Array(found.take(wanted).map(Reply::count).collect())),
    }
}

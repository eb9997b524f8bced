//! Strings.

use super::{Args, is};
use crate::store::data::Data;
use crate::store::number::integer;
use crate::store::reply::{Answer, Refusal, Reply};
use crate::store::value::{Text, Value};

pub(super) fn get(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::or_nil(data.read::<Text>(&args[0])?.cloned()))
}

pub(super) fn mget(data: &mut Data, args: Args<'_>) -> Answer {
    let text = |key: &Vec<u8>| Reply::or_nil(data.read::<Text>(key).ok().flatten().cloned());
    Ok(Reply::Array(args.iter().map(text).collect()))
}

pub(super) fn mset(data: &mut Data, args: Args<'_>) -> Answer {
    if !args.len().is_multiple_of(2) {
        return Err(Refusal("ERR wrong number of arguments for 'mset' command".to_owned()));
    }
    args.chunks_exact(2).for_each(|pair| data.put(&pair[0], Value::Text(pair[1].clone()), None));
    Ok(Reply::OK)
}

pub(super) fn setnx(data: &mut Data, args: Args<'_>) -> Answer {
    if data.get(&args[0]).is_some() {
        return Ok(Reply::Integer(0));
    }
    data.put(&args[0], Value::Text(args[1].clone()), None);
    Ok(Reply::Integer(1))
}

/// Knows the options `NX`, `EX`, `PX` and `KEEPTTL`.
pub(super) fn set(data: &mut Data, args: Args<'_>) -> Answer {
    let invalid = || Refusal("ERR invalid expire time in 'set' command".to_owned());
    let (mut end, mut only_new) = (None, false);
    let mut options = args[2..].iter();
    while let Some(option) = options.next() {
        let unit = match option {
            word if is(word, "NX") => {
                only_new = true;
                continue;
            }
            word if is(word, "KEEPTTL") => {
                end = data.expiry(&args[0]).flatten();
                continue;
            }
            word if is(word, "EX") => 1_000,
            word if is(word, "PX") => 1,
            _ => return Err(Refusal::syntax()),
        };
        let time = integer(options.next().ok_or_else(Refusal::syntax)?)?.checked_mul(unit).filter(|ms| *ms > 0);
        end = Some(time.and_then(|ms| ms.checked_add(data.now_ms())).ok_or_else(invalid)?);
    }
    if only_new && data.get(&args[0]).is_some() {
        return Ok(Reply::Nil);
    }
    data.put(&args[0], Value::Text(args[1].clone()), end);
    Ok(Reply::OK)
}

pub(super) fn incr(data: &mut Data, args: Args<'_>) -> Answer {
    add(data, &args[0], 1)
}

pub(super) fn incrby(data: &mut Data, args: Args<'_>) -> Answer {
    add(data, &args[0], integer(&args[1])?)
}

pub(super) fn getrange(data: &mut Data, args: Args<'_>) -> Answer {
    let (first, last) = (integer(&args[1])?, integer(&args[2])?);
    let text = data.read::<Text>(&args[0])?.map_or(&[][..], |text| &text[..]);
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let place = |at: i64| usize::try_from(if at < 0 { at + length } else { at }.clamp(0, length)).unwrap_or(0);
    let (first, end) = (place(first), place(last).saturating_add(1).min(text.len()));
    Ok(Reply::Bulk(text.get(first..end).unwrap_or_default().to_vec()))
}

pub(super) fn setrange(data: &mut Data, args: Args<'_>) -> Answer {
    let at = usize::try_from(integer(&args[1])?).map_err(|_| Refusal("ERR offset is out of range".to_owned()))?;
    let part = &args[2];
    if part.is_empty() {
        let length = data.read::<Text>(&args[0])?.map_or(0, Vec::len);
        return Ok(Reply::Integer(i64::try_from(length).unwrap_or(i64::MAX)));
    }
    data.edit(&args[0], |text: &mut Text| {
        text.resize(text.len().max(at + part.len()), 0);
        text[at..at + part.len()].copy_from_slice(part);
        Ok(Reply::Integer(i64::try_from(text.len()).unwrap_or(i64::MAX)))
    })?
}

/// Knows `GET u4 #n` and `SET u4 #n value`, by which flows keep the states of their members.
pub(super) fn bitfield(data: &mut Data, args: Args<'_>) -> Answer {
    let mut text = data.read::<Text>(&args[0])?.cloned().unwrap_or_default();
    let (mut words, mut answers, mut is_changed) = (args[1..].iter(), Vec::new(), false);
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or_else(Refusal::syntax);
        if !is(next()?, "u4") {
            return Err(Refusal::syntax());
        }
        let number = next()?.strip_prefix(b"#").ok_or_else(Refusal::syntax)?.to_vec();
        let number = usize::try_from(integer(&number)?).map_err(|_| Refusal::syntax())?;
        let (at, is_high) = (number / 2, number.is_multiple_of(2));
        let byte = text.get(at).copied().unwrap_or(0);
        answers.push(Reply::Integer(i64::from(if is_high { byte >> 4 } else { byte & 15 })));
        match word {
            word if is(word, "GET") => {}
            word if is(word, "SET") => {
                let bits = u8::try_from(integer(next()?)?).map_err(|_| Refusal::syntax())? & 15;
                text.resize(text.len().max(at + 1), 0);
                text[at] = if is_high { byte & 15 | bits << 4 } else { byte & 240 | bits };
                is_changed = true;
            }
            _ => return Err(Refusal::syntax()),
        }
    }
    if is_changed {
        data.edit(&args[0], |known: &mut Text| *known = text)?;
    }
    Ok(Reply::Array(answers))
}

fn add(data: &mut Data, key: &[u8], by: i64) -> Answer {
    let old = data.read::<Text>(key)?.map_or(Ok(0), |text| integer(text))?;
    let sum = old.checked_add(by).ok_or_else(overflow)?;
    data.edit(key, |text: &mut Text| *text = sum.to_string().into_bytes())?;
    Ok(Reply::Integer(sum))
}

pub(super) fn overflow() -> Refusal {
    Refusal("ERR increment or decrement would overflow".to_owned())
}

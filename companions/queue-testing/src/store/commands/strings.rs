//! Strings.

use super::{Args, is};
use crate::store::data::Data;
use crate::store::number::integer;
use crate::store::reply::{Answer, Refusal, Reply};
use crate::store::value::{Text, Value};

pub(super) fn get(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::or_nil(data.read::<Text>(&args[0])?.cloned()))
}

pub(super) fn getdel(data: &mut Data, args: Args<'_>) -> Answer {
    let value = data.read::<Text>(&args[0])?.cloned();
    data.remove(&args[0]);
    Ok(Reply::or_nil(value))
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

pub(super) fn strlen(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(data.read::<Text>(&args[0])?.map_or(0, Vec::len)))
}

pub(super) fn append(data: &mut Data, args: Args<'_>) -> Answer {
    let length = data.edit(&args[0], |text: &mut Text| {
        text.extend_from_slice(&args[1]);
        text.len()
    })?;
    Ok(Reply::count(length))
}

pub(super) fn setnx(data: &mut Data, args: Args<'_>) -> Answer {
    if data.get(&args[0]).is_some() {
        return Ok(Reply::Integer(0));
    }
    data.put(&args[0], Value::Text(args[1].clone()), None);
    Ok(Reply::Integer(1))
}

pub(super) fn setex(data: &mut Data, args: Args<'_>) -> Answer {
    let end = end_after(data, &args[1], 1_000)?;
    data.put(&args[0], Value::Text(args[2].clone()), Some(end));
    Ok(Reply::OK)
}

pub(super) fn psetex(data: &mut Data, args: Args<'_>) -> Answer {
    let end = end_after(data, &args[1], 1)?;
    data.put(&args[0], Value::Text(args[2].clone()), Some(end));
    Ok(Reply::OK)
}

/// The end of something that begins to count now, in Unix milliseconds.
fn end_after(data: &Data, time: &[u8], unit: i64) -> Result<i64, Refusal> {
    valid(integer(time)?.checked_mul(unit)).and_then(|ms| valid(ms.checked_add(data.now_ms())))
}

fn valid(time: Option<i64>) -> Result<i64, Refusal> {
    time.filter(|time| *time > 0).ok_or_else(|| Refusal("ERR invalid expire time in 'set' command".to_owned()))
}

pub(super) fn set(data: &mut Data, args: Args<'_>) -> Answer {
    let (mut end, mut keeps, mut answers) = (None, false, false);
    let mut condition = None;
    let mut options = args[2..].iter();
    while let Some(option) = options.next() {
        let mut time = |unit| Ok((options.next().ok_or_else(Refusal::syntax)?, unit));
        match option {
            word if is(word, "NX") => condition = Some(false),
            word if is(word, "XX") => condition = Some(true),
            word if is(word, "GET") => answers = true,
            word if is(word, "KEEPTTL") => keeps = true,
            word if is(word, "EX") => end = Some(time(1_000).and_then(|(text, unit)| end_after(data, text, unit))?),
            word if is(word, "PX") => end = Some(time(1).and_then(|(text, unit)| end_after(data, text, unit))?),
            word if is(word, "EXAT") => {
                end = Some(time(1_000).and_then(|(text, unit)| valid(integer(text)?.checked_mul(unit)))?);
            }
            word if is(word, "PXAT") => end = Some(time(1).and_then(|(text, _)| valid(Some(integer(text)?)))?),
            _ => return Err(Refusal::syntax()),
        }
    }
    let old = if answers { data.read::<Text>(&args[0])?.cloned() } else { None };
    let applies = condition.is_none_or(|exists| data.get(&args[0]).is_some() == exists);
    if applies {
        if keeps {
            end = data.expiry(&args[0]).flatten();
        }
        data.put(&args[0], Value::Text(args[1].clone()), end);
    }
    Ok(match (answers, applies) {
        (true, _) => Reply::or_nil(old),
        (false, true) => Reply::OK,
        (false, false) => Reply::Nil,
    })
}

pub(super) fn incr(data: &mut Data, args: Args<'_>) -> Answer {
    add(data, &args[0], 1)
}

pub(super) fn decr(data: &mut Data, args: Args<'_>) -> Answer {
    add(data, &args[0], -1)
}

pub(super) fn incrby(data: &mut Data, args: Args<'_>) -> Answer {
    add(data, &args[0], integer(&args[1])?)
}

pub(super) fn decrby(data: &mut Data, args: Args<'_>) -> Answer {
    let by = integer(&args[1])?.checked_neg().ok_or_else(|| Refusal("ERR decrement would overflow".to_owned()))?;
    add(data, &args[0], by)
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

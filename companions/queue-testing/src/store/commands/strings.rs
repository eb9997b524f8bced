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

fn add(data: &mut Data, key: &[u8], by: i64) -> Answer {
    let old = data.read::<Text>(key)?.map_or(Ok(0), |text| integer(text))?;
    let sum = old.checked_add(by).ok_or_else(overflow)?;
    data.edit(key, |text: &mut Text| *text = sum.to_string().into_bytes())?;
    Ok(Reply::Integer(sum))
}

pub(super) fn overflow() -> Refusal {
    Refusal("ERR increment or decrement would overflow".to_owned())
}

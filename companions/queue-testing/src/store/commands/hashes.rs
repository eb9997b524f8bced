//! Hashes.

use super::Args;
use super::strings::overflow;
use crate::store::data::Data;
use crate::store::number::integer;
use crate::store::reply::{Answer, Refusal, Reply};
use crate::store::value::Hash;

/// Returns how many fields are new.
pub(super) fn hset(data: &mut Data, args: Args<'_>) -> Answer {
    if args.len().is_multiple_of(2) {
        return Err(Refusal("ERR wrong number of arguments for 'hset' command".to_owned()));
    }
    Ok(Reply::count(data.edit(&args[0], |hash: &mut Hash| {
        let pairs = args[1..].chunks_exact(2);
        pairs.filter(|pair| hash.insert(pair[0].clone(), pair[1].clone()).is_none()).count()
    })?))
}

pub(super) fn hsetnx(data: &mut Data, args: Args<'_>) -> Answer {
    let is_new = data.read::<Hash>(&args[0])?.is_none_or(|hash| !hash.contains_key(&args[1]));
    if is_new {
        data.edit(&args[0], |hash: &mut Hash| hash.insert(args[1].clone(), args[2].clone()))?;
    }
    Ok(Reply::Integer(i64::from(is_new)))
}

pub(super) fn hdel(data: &mut Data, args: Args<'_>) -> Answer {
    let fields = &args[1..];
    Ok(Reply::count(
        data.edit(&args[0], |hash: &mut Hash| fields.iter().filter(|field| hash.remove(*field).is_some()).count())?,
    ))
}

pub(super) fn hget(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::or_nil(data.read::<Hash>(&args[0])?.and_then(|hash| hash.get(&args[1])).cloned()))
}

pub(super) fn hmget(data: &mut Data, args: Args<'_>) -> Answer {
    let hash = data.read::<Hash>(&args[0])?;
    let value = |field| Reply::or_nil(hash.and_then(|hash| hash.get(field)).cloned());
    Ok(Reply::Array(args[1..].iter().map(value).collect()))
}

pub(super) fn hexists(data: &mut Data, args: Args<'_>) -> Answer {
    let has = data.read::<Hash>(&args[0])?.is_some_and(|hash| hash.contains_key(&args[1]));
    Ok(Reply::Integer(i64::from(has)))
}

pub(super) fn hlen(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(data.read::<Hash>(&args[0])?.map_or(0, Hash::len)))
}

pub(super) fn hstrlen(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(data.read::<Hash>(&args[0])?.and_then(|hash| hash.get(&args[1])).map_or(0, Vec::len)))
}

pub(super) fn hgetall(data: &mut Data, args: Args<'_>) -> Answer {
    let hash = data.read::<Hash>(&args[0])?.into_iter().flatten();
    Ok(Reply::Map(hash.map(|(field, value)| (Reply::text(field.clone()), Reply::text(value.clone()))).collect()))
}

pub(super) fn hkeys(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::bulks(data.read::<Hash>(&args[0])?.into_iter().flat_map(|hash| hash.keys().cloned())))
}

pub(super) fn hvals(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::bulks(data.read::<Hash>(&args[0])?.into_iter().flat_map(|hash| hash.values().cloned())))
}

pub(super) fn hincrby(data: &mut Data, args: Args<'_>) -> Answer {
    let by = integer(&args[2])?;
    let old = data
        .read::<Hash>(&args[0])?
        .and_then(|hash| hash.get(&args[1]))
        .map_or(Ok(0), |text| integer(text).map_err(|_| Refusal("ERR hash value is not an integer".to_owned())))?;
    let sum = old.checked_add(by).ok_or_else(overflow)?;
    data.edit(&args[0], |hash: &mut Hash| hash.insert(args[1].clone(), sum.to_string().into_bytes()))?;
    Ok(Reply::Integer(sum))
}

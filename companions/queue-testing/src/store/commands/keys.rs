//! Keys as such, whatever they hold.

use super::Args;
use crate::store::data::Data;
use crate::store::number::integer;
use crate::store::pattern;
use crate::store::reply::{Answer, Refusal, Reply};
use crate::store::value::Stream;

pub(super) fn del(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(args.iter().filter(|key| data.remove(key).is_some()).count()))
}

pub(super) fn exists(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(args.iter().filter(|key| data.get(key).is_some()).count()))
}

pub(super) fn type_name(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::Status(data.get(&args[0]).map_or("none", |value| value.type_name())))
}

pub(super) fn keys(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::bulks(data.keys().into_iter().filter(|key| pattern::matches(&args[0], key))))
}

pub(super) fn rename(data: &mut Data, args: Args<'_>) -> Answer {
    let (value, expiry) = data.remove(&args[0]).ok_or_else(|| Refusal("ERR no such key".to_owned()))?;
    data.put(&args[1], value, expiry);
    Ok(Reply::OK)
}

/// Something that is the same for equal values, and otherwise of no use: nothing restores it.
pub(super) fn dump(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(data.get(&args[0]).map_or(Reply::Nil, |value| Reply::text(format!("{value:?}"))))
}

/// Writes a stream, which nothing here reads. Tests put one in the place of another key.
pub(super) fn xadd(data: &mut Data, args: Args<'_>) -> Answer {
    data.edit(&args[0], |stream: &mut Stream| stream.0.push(args[1..].to_vec()))?;
    Ok(Reply::text(args[1].clone()))
}

pub(super) fn expire(data: &mut Data, args: Args<'_>) -> Answer {
    let from = data.now_ms();
    set_expiry(data, args, 1_000, from)
}

pub(super) fn pexpire(data: &mut Data, args: Args<'_>) -> Answer {
    let from = data.now_ms();
    set_expiry(data, args, 1, from)
}

pub(super) fn expireat(data: &mut Data, args: Args<'_>) -> Answer {
    set_expiry(data, args, 1_000, 0)
}

/// `unit`: milliseconds in a unit of the argument.
fn set_expiry(data: &mut Data, args: Args<'_>, unit: i64, from_ms: i64) -> Answer {
    let too_far = || Refusal("ERR invalid expire time in 'expire' command".to_owned());
    let at = integer(&args[1])?.checked_mul(unit).and_then(|ms| ms.checked_add(from_ms)).ok_or_else(too_far)?;
    Ok(Reply::Integer(i64::from(data.set_expiry(&args[0], Some(at)))))
}

pub(super) fn persist(data: &mut Data, args: Args<'_>) -> Answer {
    let has_end = data.expiry(&args[0]).flatten().is_some();
    Ok(Reply::Integer(i64::from(has_end && data.set_expiry(&args[0], None))))
}

/// -2 when there is no such key, -1 when it has no end.
fn end_of(data: &mut Data, args: Args<'_>, show: impl FnOnce(i64) -> i64) -> Answer {
    Ok(Reply::Integer(match data.expiry(&args[0]) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => show(at),
    }))
}

pub(super) fn ttl(data: &mut Data, args: Args<'_>) -> Answer {
    let now = data.now_ms();
    end_of(data, args, |at| (at - now + 500).div_euclid(1_000))
}

pub(super) fn pttl(data: &mut Data, args: Args<'_>) -> Answer {
    let now = data.now_ms();
    end_of(data, args, |at| at - now)
}

pub(super) fn expiretime(data: &mut Data, args: Args<'_>) -> Answer {
    end_of(data, args, |at| (at + 500).div_euclid(1_000))
}

//! Sets.

use super::Args;
use crate::store::data::Data;
use crate::store::number::integer;
use crate::store::reply::{Answer, Reply};
use crate::store::value::Set;

pub(super) fn sadd(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(
        data.edit(&args[0], |set: &mut Set| args[1..].iter().filter(|member| set.insert((*member).clone())).count())?,
    ))
}

pub(super) fn srem(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(
        data.edit(&args[0], |set: &mut Set| args[1..].iter().filter(|member| set.remove(*member)).count())?,
    ))
}

pub(super) fn smembers(data: &mut Data, args: Args<'_>) -> Answer {
    let members = data.read::<Set>(&args[0])?.into_iter().flatten();
    Ok(Reply::Set(members.map(|member| Reply::text(member.clone())).collect()))
}

pub(super) fn scard(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(data.read::<Set>(&args[0])?.map_or(0, Set::len)))
}

pub(super) fn sismember(data: &mut Data, args: Args<'_>) -> Answer {
    let has = data.read::<Set>(&args[0])?.is_some_and(|set| set.contains(&args[1]));
    Ok(Reply::Integer(i64::from(has)))
}

pub(super) fn smismember(data: &mut Data, args: Args<'_>) -> Answer {
    let set = data.read::<Set>(&args[0])?;
    let has = |member| Reply::Integer(i64::from(set.is_some_and(|set| set.contains(member))));
    Ok(Reply::Array(args[1..].iter().map(has).collect()))
}

fn any(set: &Set) -> Option<Vec<u8>> {
    set.iter().nth(fastrand::usize(..set.len().max(1))).cloned()
}

pub(super) fn spop(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::or_nil(data.edit(&args[0], |set: &mut Set| any(set).inspect(|member| drop(set.take(member))))?))
}

/// Without a count: one member; with one: so many different ones, or with repetitions if it is negative.
pub(super) fn srandmember(data: &mut Data, args: Args<'_>) -> Answer {
    let count = args.get(1).map(|text| integer(text)).transpose()?;
    let Some(set) = data.read::<Set>(&args[0])? else {
        return Ok(count.map_or(Reply::Nil, |_| Reply::Array(Vec::new())));
    };
    let Some(count) = count else { return Ok(Reply::or_nil(any(set))) };
    let most = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count < 0 {
        return Ok(Reply::bulks(std::iter::repeat_with(|| any(set)).take(most).flatten()));
    }
    let mut members: Vec<Vec<u8>> = set.iter().cloned().collect();
    fastrand::shuffle(&mut members);
    members.truncate(most);
    Ok(Reply::bulks(members))
}

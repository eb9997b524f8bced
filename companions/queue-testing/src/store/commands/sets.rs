//! Sets.

use super::Args;
use crate::store::data::Data;
use crate::store::number::count;
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

/// So many different members.
pub(super) fn srandmember(data: &mut Data, args: Args<'_>) -> Answer {
    let most = count(&args[1])?;
    let mut members: Vec<Vec<u8>> = data.read::<Set>(&args[0])?.into_iter().flatten().cloned().collect();
    fastrand::shuffle(&mut members);
    members.truncate(most);
    Ok(Reply::bulks(members))
}

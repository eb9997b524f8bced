//! Sorted sets, but for their ranges.

use super::{Args, is};
use crate::store::data::Data;
use crate::store::number::score;
use crate::store::reply::{Answer, Refusal, Reply};
use crate::store::value::SortedSet;

/// Knows the options `NX`, `XX`, `GT` and `LT`.
pub(super) fn zadd(data: &mut Data, args: Args<'_>) -> Answer {
    let words = args[1..].iter().take_while(|arg| ["NX", "XX", "GT", "LT"].iter().any(|word| is(arg, word)));
    let (options, entries) = args[1..].split_at(words.count());
    let has = |word| options.iter().any(|option| is(option, word));
    let (only_new, only_old, only_greater, only_less) = (has("NX"), has("XX"), has("GT"), has("LT"));
    if only_new && (only_old || only_greater || only_less) || only_greater && only_less {
        return Err(Refusal("ERR GT, LT, and/or NX options at the same time are not compatible".to_owned()));
    }
    if entries.is_empty() || !entries.len().is_multiple_of(2) {
        return Err(Refusal::syntax());
    }
    let pairs = entries.chunks_exact(2).map(|pair| Ok((score(&pair[0])?, &pair[1])));
    let pairs = pairs.collect::<Result<Vec<_>, Refusal>>()?;
    let allowed = |old: Option<f64>, new| match old {
        None => !only_old,
        Some(old) => !only_new && (!only_greater || new > old) && (!only_less || new < old),
    };
    data.edit(&args[0], |set: &mut SortedSet| {
        let mut added = 0;
        for (score, member) in pairs {
            let old = set.score(member);
            if allowed(old, score) {
                added += usize::from(old.is_none());
                set.insert(member, score);
            }
        }
        Reply::count(added)
    })
}

pub(super) fn zincrby(data: &mut Data, args: Args<'_>) -> Answer {
    let by = score(&args[1])?;
    data.edit(&args[0], |set: &mut SortedSet| {
        let sum = set.score(&args[2]).unwrap_or(0.0) + by;
        set.insert(&args[2], sum);
        Reply::Double(sum)
    })
}

pub(super) fn zrem(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(data.edit(&args[0], |set: &mut SortedSet| {
        args[1..].iter().filter(|member| set.remove(member).is_some()).count()
    })?))
}

pub(super) fn zcard(data: &mut Data, args: Args<'_>) -> Answer {
    Ok(Reply::count(data.read::<SortedSet>(&args[0])?.map_or(0, SortedSet::len)))
}

pub(super) fn zscore(data: &mut Data, args: Args<'_>) -> Answer {
    let score = data.read::<SortedSet>(&args[0])?.and_then(|set| set.score(&args[1]));
    Ok(score.map_or(Reply::Nil, Reply::Double))
}

pub(super) fn zmscore(data: &mut Data, args: Args<'_>) -> Answer {
    let set = data.read::<SortedSet>(&args[0])?;
    let score = |member: &Vec<u8>| set.and_then(|set| set.score(member)).map_or(Reply::Nil, Reply::Double);
    Ok(Reply::Array(args[1..].iter().map(score).collect()))
}

pub(super) fn zcount(data: &mut Data, args: Args<'_>) -> Answer {
    let bounds = super::zrange::Bounds::parse(&args[1], &args[2])?;
    let set = data.read::<SortedSet>(&args[0])?;
    Ok(Reply::count(set.map_or(0, |set| bounds.members(set).count())))
}

pub(super) fn zrank(data: &mut Data, args: Args<'_>) -> Answer {
    let set = data.read::<SortedSet>(&args[0])?;
    let rank = set.and_then(|set| set.iter().position(|(member, _)| member == args[1]));
    Ok(rank.map_or(Reply::Nil, Reply::count))
}

//! Sorted sets, but for their ranges.

use super::{Args, is};
use crate::store::data::Data;
use crate::store::number::{count, score};
use crate::store::reply::{Answer, Refusal, Reply};
use crate::store::value::SortedSet;

/// What may keep `ZADD` from writing.
#[derive(Debug, Default, Clone, Copy)]
struct Conditions {
    only_new: bool,
    only_old: bool,
    only_greater: bool,
    only_less: bool,
}

impl Conditions {
    fn allow(self, old: Option<f64>, new: f64) -> bool {
        match old {
            None => !self.only_old,
            Some(old) => !self.only_new && (!self.only_greater || new > old) && (!self.only_less || new < old),
        }
    }
}

pub(super) fn zadd(data: &mut Data, args: Args<'_>) -> Answer {
    let (mut conditions, mut counts_changes, mut adds) = (Conditions::default(), false, false);
    let mut rest = &args[1..];
    while let Some((word, after)) = rest.split_first() {
        match () {
            () if is(word, "NX") => conditions.only_new = true,
            () if is(word, "XX") => conditions.only_old = true,
            () if is(word, "GT") => conditions.only_greater = true,
            () if is(word, "LT") => conditions.only_less = true,
            () if is(word, "CH") => counts_changes = true,
            () if is(word, "INCR") => adds = true,
            () => break,
        }
        rest = after;
    }
    let Conditions { only_new, only_old, only_greater, only_less } = conditions;
    if only_new && (only_old || only_greater || only_less) || only_greater && only_less {
        return Err(Refusal("ERR GT, LT, and/or NX options at the same time are not compatible".to_owned()));
    }
    if rest.is_empty() || !rest.len().is_multiple_of(2) || adds && rest.len() > 2 {
        return Err(Refusal::syntax());
    }
    let mut entries = Vec::with_capacity(rest.len() / 2);
    for pair in rest.chunks_exact(2) {
        entries.push((score(&pair[0])?, &pair[1]));
    }
    data.edit(&args[0], |set: &mut SortedSet| {
        let (mut added, mut changed, mut sum) = (0, 0, None);
        for (mut score, member) in entries {
            let old = set.score(member);
            if adds {
                score += old.unwrap_or(0.0);
            }
            if !conditions.allow(old, score) {
                continue;
            }
            added += usize::from(old.is_none());
            changed += usize::from(old.is_some_and(|old| old != score));
            set.insert(member, score);
            sum = Some(score);
        }
        match adds {
            true => sum.map_or(Reply::Nil, Reply::Double),
            false => Reply::count(if counts_changes { added + changed } else { added }),
        }
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

pub(super) fn zrevrank(data: &mut Data, args: Args<'_>) -> Answer {
    let set = data.read::<SortedSet>(&args[0])?;
    let rank = set.and_then(|set| set.iter().rev().position(|(member, _)| member == args[1]));
    Ok(rank.map_or(Reply::Nil, Reply::count))
}

pub(super) fn zpopmin(data: &mut Data, args: Args<'_>) -> Answer {
    pop(data, args, |set| set.iter().next().map(|(member, _)| member.to_vec()))
}

pub(super) fn zpopmax(data: &mut Data, args: Args<'_>) -> Answer {
    pop(data, args, |set| set.iter().next_back().map(|(member, _)| member.to_vec()))
}

fn pop(data: &mut Data, args: Args<'_>, choose: fn(&SortedSet) -> Option<Vec<u8>>) -> Answer {
    let most = args.get(1).map_or(Ok(1), |text| count(text))?;
    data.edit(&args[0], |set: &mut SortedSet| {
        let next = || {
            let member = choose(set)?;
            let score = set.remove(&member)?;
            Some((Reply::Bulk(member), Reply::Double(score)))
        };
        Reply::Pairs(std::iter::from_fn(next).take(most).collect())
    })
}

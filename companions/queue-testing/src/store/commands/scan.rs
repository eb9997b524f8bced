//! Walking over what may change on the way.
//!
//! The order is that of a hash of the names, and a cursor is a place in it. So whatever is there during
//! the whole walk is met exactly once, whatever comes and goes meanwhile, and the store has nothing to
//! remember.

use std::hash::{DefaultHasher, Hasher as _};

use super::{Args, is};
use crate::store::data::Data;
use crate::store::number::{count, integer};
use crate::store::pattern;
use crate::store::reply::{Answer, Refusal, Reply};
use crate::store::value::{Set, SortedSet};

/// A place in the order; never 0, which is the cursor of the beginning and of the end. Redis' cursors fit
/// into an i64 as well.
fn place(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    (hasher.finish() >> 1) | 1
}

struct Walk {
    cursor: u64,
    count: usize,
    pattern: Option<Vec<u8>>,
    kind: Option<Vec<u8>>,
}

impl Walk {
    fn parse(args: Args<'_>) -> Result<Self, Refusal> {
        let cursor = integer(&args[0]).ok().and_then(|cursor| u64::try_from(cursor).ok());
        let cursor = cursor.ok_or_else(|| Refusal("ERR invalid cursor".to_owned()))?;
        let mut walk = Walk { cursor, count: 10, pattern: None, kind: None };
        for option in args[1..].chunks(2) {
            let [word, value] = option else { return Err(Refusal::syntax()) };
            match () {
                () if is(word, "MATCH") => walk.pattern = Some(value.clone()),
                () if is(word, "COUNT") => walk.count = count(value)?.max(1),
                () if is(word, "TYPE") => walk.kind = Some(value.to_ascii_lowercase()),
                () => return Err(Refusal::syntax()),
            }
        }
        Ok(walk)
    }

    /// The next names, and the cursor to go on from.
    fn step<T>(&self, items: impl Iterator<Item = (Vec<u8>, T)>) -> (u64, Vec<(Vec<u8>, T)>) {
        let mut ahead: Vec<(u64, (Vec<u8>, T))> =
            items.map(|item| (place(&item.0), item)).filter(|(place, _)| *place >= self.cursor).collect();
        ahead.sort_by(|(a, (name_a, _)), (b, (name_b, _))| (a, name_a).cmp(&(b, name_b)));
        let next = ahead.get(self.count).map_or(0, |(place, _)| *place);
        // Two names at one place go together, or the cursor would lose one.
        let taken = ahead.into_iter().take_while(|(place, _)| next == 0 || *place < next).map(|(_, item)| item);
        let wanted = taken.filter(|(name, _)| self.pattern.as_ref().is_none_or(|text| pattern::matches(text, name)));
        (next, wanted.collect())
    }
}

fn reply(next: u64, items: Vec<Reply>) -> Answer {
    Ok(Reply::Array(vec![Reply::text(next.to_string()), Reply::Array(items)]))
}

pub(super) fn scan(data: &mut Data, args: Args<'_>) -> Answer {
    let walk = Walk::parse(args)?;
    let (next, keys) = walk.step(data.keys().into_iter().map(|key| (key, ())));
    let mut found = Vec::new();
    for (key, ()) in keys {
        let kind = data.get(&key).map(|value| value.type_name());
        if walk.kind.as_ref().is_none_or(|wanted| kind.map(str::as_bytes) == Some(wanted.as_slice())) {
            found.push(Reply::Bulk(key));
        }
    }
    reply(next, found)
}

pub(super) fn sscan(data: &mut Data, args: Args<'_>) -> Answer {
    let walk = Walk::parse(&args[1..])?;
    let set = data.read::<Set>(&args[0])?.into_iter().flatten();
    let (next, members) = walk.step(set.map(|member| (member.clone(), ())));
    reply(next, members.into_iter().map(|(member, ())| Reply::Bulk(member)).collect())
}

pub(super) fn zscan(data: &mut Data, args: Args<'_>) -> Answer {
    let walk = Walk::parse(&args[1..])?;
    let set = data.read::<SortedSet>(&args[0])?.into_iter().flat_map(SortedSet::iter);
    let (next, members) = walk.step(set.map(|(member, score)| (member.to_vec(), score)));
    let text = |score| Reply::text(crate::store::number::show(score));
    reply(next, members.into_iter().flat_map(|(member, score)| [Reply::Bulk(member), text(score)]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_meets_keys_that_stay_once_although_others_come_and_go() {
        let mut names: Vec<Vec<u8>> = (0..100).map(|n| format!("stays-{n}").into_bytes()).collect();
        names.extend((0..100).map(|n| format!("goes-{n}").into_bytes()));
        let (mut cursor, mut met) = (0, Vec::new());
        loop {
            let walk = Walk { cursor, count: 7, pattern: Some(b"stays-*".to_vec()), kind: None };
            let (next, found) = walk.step(names.iter().map(|name| (name.clone(), ())));
            met.extend(found.into_iter().map(|(name, ())| name));
            if let Some(at) = names.iter().position(|name| name.starts_with(b"goes")) {
                names.remove(at);
            }
            names.push(format!("comes-{next}").into_bytes());
            if next == 0 {
                break;
            }
            cursor = next;
        }
        met.sort();
        let mut expected: Vec<Vec<u8>> = (0..100).map(|n| format!("stays-{n}").into_bytes()).collect();
        expected.sort();
        assert_eq!(met, expected);
    }
}

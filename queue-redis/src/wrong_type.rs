//! Which key it was that holds another type than it should.
//!
//! Redis only says that one of the keys of a call does. So after such an error the handle looks at their types, once,
//! and names them in it.

use std::collections::BTreeSet;

use queue_core::keys;
use redis::{Arg, Cmd};

/// The most keys that are looked at.
const MOST: usize = 300;

/// Those of the keys whose type, as Redis tells it, is not the one of their family; in words.
pub(crate) fn named(keys: &BTreeSet<Vec<u8>>, types: Vec<String>) -> Vec<String> {
    let wrong = keys.iter().zip(types).filter_map(|(key, found)| {
        let expected = keys::family(key)?.key_type.as_str();
        let key = String::from_utf8_lossy(key);
        (found != "none" && found != expected).then(|| format!("{key:?} is a {found} and should be a {expected}"))
    });
    wrong.collect()
}

/// The keys that a call may have touched: those it names, and then those of the queue that it does not.
pub(crate) fn candidates(call: &Cmd) -> BTreeSet<Vec<u8>> {
    let named = call.args_iter().filter_map(|arg| match arg {
        Arg::Simple(arg) if arg.starts_with(b"asynq:") && keys::family(arg).is_some() => Some(arg.to_vec()),
        _ => None,
    });
    let named: BTreeSet<Vec<u8>> = named.take(MOST).collect();
    let queues: BTreeSet<&[u8]> = named.iter().filter_map(|key| keys::queue_prefix(key)).take(1).collect();
    let single = || keys::queue_families().iter().filter(|family| family.is_single());
    let others = queues.iter().flat_map(|prefix| single().map(|family| [prefix, family.name.as_bytes()].concat()));
    let others: Vec<Vec<u8>> = others.collect();
    named.into_iter().chain(others).collect()
}

//! The keys, and who wants to know about their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use queue_core::Clock;

use super::clients::Clients;
use super::reply::Refusal;
use super::value::{Kind, Value};

#[derive(Debug)]
struct Entry {
    value: Value,
    expires_at_ms: Option<i64>,
}

/// Everything a store holds.
#[derive(Debug)]
pub(crate) struct Data {
    entries: BTreeMap<Vec<u8>, Entry>,
    pub(crate) clients: Clients,
    clock: Arc<dyn Clock>,
    /// The microsecond of the clock that was told last, and how often since.
    told: (i64, i64),
    /// Keys that the command at work has changed.
    changed: BTreeSet<Vec<u8>>,
}

impl Data {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { entries: BTreeMap::new(), clients: Clients::default(), clock, told: (0, 0), changed: BTreeSet::new() }
    }

    /// The time, in Unix milliseconds.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// The time, in Unix microseconds: another one at each call, also while the clock stands still, as scripts find it on
    /// Redis, who order by it. It does not leave the clock's millisecond for that.
    pub(crate) fn next_us(&mut self) -> i64 {
        let now = self.clock.now_ns().div_euclid(1_000);
        let before = if self.told.0 == now { self.told.1 + 1 } else { 0 };
        self.told = (now, before);
        now + before.min(999 - now.rem_euclid(1_000))
    }

    fn mark(&mut self, key: &[u8]) {
        self.changed.insert(key.to_vec());
    }

    /// Removes the key if its time is over.
    fn expire(&mut self, key: &[u8]) {
        let now = self.now_ms();
        if self.entries.get(key).is_some_and(|entry| entry.expires_at_ms.is_some_and(|end| end <= now)) {
            self.entries.remove(key);
            self.mark(key);
        }
    }

    /// Removes all keys whose time is over.
    pub(crate) fn expire_all(&mut self) {
        let now = self.now_ms();
        let over = |entry: &Entry| entry.expires_at_ms.is_some_and(|end| end <= now);
        let keys: Vec<Vec<u8>> =
            self.entries.iter().filter(|(_, entry)| over(entry)).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.expire(key));
    }

    /// All keys, in order.
    pub(crate) fn keys(&mut self) -> Vec<Vec<u8>> {
        self.expire_all();
        self.entries.keys().cloned().collect()
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Option<&Value> {
        self.expire(key);
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// What a key holds, if it holds something of this type.
    pub(crate) fn read<K: Kind>(&mut self, key: &[u8]) -> Result<Option<&K>, Refusal> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => K::of(value).map(Some).ok_or_else(Refusal::wrong_type),
        }
    }

    /// Changes what a key holds; a new key begins empty, and one that ends empty is deleted.
    pub(crate) fn edit<K: Kind, T>(&mut self, key: &[u8], change: impl FnOnce(&mut K) -> T) -> Result<T, Refusal> {
        self.expire(key);
        let existed = self.entries.contains_key(key);
        let fresh = || Entry { value: K::default().wrap(), expires_at_ms: None };
        let entry = self.entries.entry(key.to_vec()).or_insert_with(fresh);
        let kind = K::of_mut(&mut entry.value).ok_or_else(Refusal::wrong_type)?;
        let answer = change(kind);
        let void = kind.is_void();
        if void {
            self.entries.remove(key);
        }
        if existed || !void {
            self.mark(key);
        }
        Ok(answer)
    }

    /// Puts a value in the place of whatever was there.
    pub(crate) fn put(&mut self, key: &[u8], value: Value, expires_at_ms: Option<i64>) {
        self.entries.insert(key.to_vec(), Entry { value, expires_at_ms });
        self.mark(key);
        self.expire(key);
    }

    /// Deletes a key; returns what it held, and until when.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<(Value, Option<i64>)> {
        self.expire(key);
        let entry = self.entries.remove(key)?;
        self.mark(key);
        Some((entry.value, entry.expires_at_ms))
    }

    /// Deletes all keys.
    pub(crate) fn clear(&mut self) {
        for key in self.keys() {
            self.remove(&key);
        }
    }

    /// When a key ends, in Unix milliseconds: `None` if there is no such key, `Some(None)` if it stays.
    pub(crate) fn expiry(&mut self, key: &[u8]) -> Option<Option<i64>> {
        self.expire(key);
        self.entries.get(key).map(|entry| entry.expires_at_ms)
    }

    /// Sets or removes the end of a key; returns whether there is such a key.
    pub(crate) fn set_expiry(&mut self, key: &[u8], at_ms: Option<i64>) -> bool {
        self.expire(key);
        let Some(entry) = self.entries.get_mut(key) else { return false };
        entry.expires_at_ms = at_ms;
        self.mark(key);
        self.expire(key);
        true
    }

    /// Tells clients which of the keys they looked at have changed.
    pub(crate) fn tell_changes(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        self.clients.invalidate(changed.iter());
    }
}

#[cfg(test)]
mod tests {
    use queue_core::clock::ManualClock;

    use super::*;

    #[test]
    fn the_time_is_another_microsecond_each_time_and_stays_within_the_millisecond() {
        let clock = Arc::new(ManualClock::at_ns(1_700_000_000_123_997_000));
        let mut data = Data::new(clock.clone());
        let micros: Vec<i64> = (0..4).map(|_| data.next_us() % 1_000).collect();
        assert_eq!(micros, [997, 998, 999, 999]);
        clock.advance(std::time::Duration::from_millis(1));
        assert_eq!(data.next_us() % 10_000, 4_997);
    }
}

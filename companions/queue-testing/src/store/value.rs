//! What a key can hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A string.
pub(crate) type Text = Vec<u8>;
/// Fields with their values. In the order of their names, which Redis does not promise, but which makes
/// tests repeatable.
pub(crate) type Hash = BTreeMap<Vec<u8>, Vec<u8>>;
/// A list; the head is the front.
pub(crate) type List = VecDeque<Vec<u8>>;
/// Members, in order.
pub(crate) type Set = BTreeSet<Vec<u8>>;
/// The fields of each entry of a stream. Streams can be written and not read: they serve as keys of a
/// type that no queue has.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Stream(pub(crate) Vec<Vec<Vec<u8>>>);

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(Text),
    Hash(Hash),
    List(List),
    Set(Set),
    SortedSet(SortedSet),
    Stream(Stream),
}

impl Value {
    /// The name of the type, as `TYPE` says it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Text(_) => "string",
            Value::Hash(_) => "hash",
            Value::List(_) => "list",
            Value::Set(_) => "set",
            Value::SortedSet(_) => "zset",
            Value::Stream(_) => "stream",
        }
    }

    /// The bytes of everything in it.
    pub(crate) fn size(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Hash(hash) => hash.iter().map(|(field, value)| field.len() + value.len()).sum(),
            Value::List(list) => list.iter().map(Vec::len).sum(),
            Value::Set(set) => set.iter().map(Vec::len).sum(),
            Value::SortedSet(set) => set.iter().map(|(member, _)| member.len() + size_of::<f64>()).sum(),
            Value::Stream(stream) => stream.0.iter().flatten().map(Vec::len).sum(),
        }
    }
}

/// One of the types.
pub(crate) trait Kind: Default {
    fn of(value: &Value) -> Option<&Self>;
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    fn wrap(self) -> Value;
    /// Whether a key that holds this is to be deleted. Redis has no empty collections.
    fn is_void(&self) -> bool;
}

macro_rules! kinds {
    ($($kind:ident: $void:expr;)*) => {$(
        impl Kind for $kind {
            fn of(value: &Value) -> Option<&Self> {
                match value {
                    Value::$kind(inner) => Some(inner),
                    _ => None,
                }
            }
            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                match value {
                    Value::$kind(inner) => Some(inner),
                    _ => None,
                }
            }
            fn wrap(self) -> Value {
                Value::$kind(self)
            }
            fn is_void(&self) -> bool {
                let void: fn(&Self) -> bool = $void;
                void(self)
            }
        }
    )*};
}

kinds! {
    Text: |_| false;
    Hash: Hash::is_empty;
    List: List::is_empty;
    Set: Set::is_empty;
    SortedSet: |set| set.scores.is_empty();
    Stream: |_| false;
}

/// A score with the order of numbers; never NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Score(f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialEq for SortedSet {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

/// Members by score, and then by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct SortedSet {
    order: BTreeSet<(Score, Vec<u8>)>,
    scores: BTreeMap<Vec<u8>, f64>,
}

impl SortedSet {
    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    pub(crate) fn insert(&mut self, member: &[u8], score: f64) {
        // Minus zero equals zero, and must not be sorted before it.
        let score = score + 0.0;
        if let Some(old) = self.scores.insert(member.to_vec(), score) {
            self.order.remove(&(Score(old), member.to_vec()));
        }
        self.order.insert((Score(score), member.to_vec()));
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.scores.remove(member)?;
        self.order.remove(&(Score(score), member.to_vec()));
        Some(score)
    }

    /// All members, the lowest score first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], f64)> {
        self.order.iter().map(|(score, member)| (member.as_slice(), score.0))
    }

    /// The members whose score is at least `from`.
    pub(crate) fn starting_at(&self, from: f64) -> impl DoubleEndedIterator<Item = (&[u8], f64)> {
        self.order.range((Score(from + 0.0), Vec::new())..).map(|(score, member)| (member.as_slice(), score.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sorted_set_is_ordered_by_score_and_then_by_name() {
        let mut set = SortedSet::default();
        for (member, score) in [("b", 2.0), ("a", 2.0), ("z", -0.0), ("c", 1.0), ("z", 3.0), ("y", -0.0), ("x", 0.0)] {
            set.insert(member.as_bytes(), score);
        }
        let members = |set: &SortedSet| -> String { set.iter().map(|(member, _)| char::from(member[0])).collect() };
        assert_eq!(members(&set), "xycabz");
        assert_eq!((set.remove(b"a"), set.remove(b"a"), set.len()), (Some(2.0), None, 5));
        assert_eq!(set.starting_at(2.0).count(), 2);
    }
}

//! The letters by which scripts answer, each with the same meaning in all of them; `lua/README.md` has the same table.

macro_rules! words {
    ($($letter:literal $word:ident $meaning:literal)*) => {
        /// What became of a task, or of a call.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Word {
            $(#[doc = $meaning] $word,)*
        }

        impl Word {
            #[cfg(test)]
            pub(super) const TABLE: &[(char, &str)] = &[$(($letter, $meaning)),*];

            pub(crate) fn of(letter: u8) -> Option<Self> {
                match char::from(letter) {
                    $($letter => Some(Self::$word),)*
                    _ => None,
                }
            }
        }
    };
}

words! {
    'a' Applied "applied: what was asked for is done"
    's' Same "the same was done before, by a call whose reply was lost: this very message is there"
    'i' IdTaken "another task has the id"
    'l' Locked "another task holds the uniqueness lock"
    'o' Others "the run belongs to others by now"
    'm' Missing "missing: there is no such task or entry, or not where it was looked for"
    'w' WorkedOn "a worker has it"
    't' AlreadyThere "it is so already: pending, archived, in the bin, or paused as asked"
    'c' Changed "changed: it is no longer as the caller saw it"
    'p' Misplaced "misplaced: it is not where its state says"
    'r' Remains "the remains of a task, an id or a hash, were deleted"
    'e' Elsewhere "elsewhere: pending, but not near the place where it was seen"
    'u' Unwanted "of a type that is unwanted"
    'd' Closed "the flow is closed: over, committed, cancelled or abandoned"
    'h' Paused "the queue is on hold: paused"
    'g' Governed "governed: the queue has limits"
    'f' Free "free: the queue has no limits any more"
    'n' NotOver "not over: some of it has not ended"
    'y' Barred "barred: what it waits for has not come"
    'k' NotKept "not kept: the ledger does not have what is needed for it"
    'b' Beyond "beyond what one call may change"
    'x' Full "beyond what the archive keeps: it is full"
}

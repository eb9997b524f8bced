//! Builders that are told what was given on the command line, or in a file, and keep their defaults for the rest.

pub(crate) trait Given: Sized {
    /// Hands on a value if there is one.
    fn given<T>(self, value: Option<T>, set: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => set(self, value),
            None => self,
        }
    }
}

impl<B> Given for B {}

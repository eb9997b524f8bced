use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arbitrary::Unstructured;

/// Values from the fuzzer's bytes; when they are used up, simple ones.
pub(crate) struct Words<'a>(Unstructured<'a>);

impl<'a> Words<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or_default()
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Numbers near the ends are as likely as those in between.
    pub(crate) fn number(&mut self) -> i64 {
        match self.byte() % 6 {
            0 => i64::MIN.wrapping_add(i64::from(self.byte())),
            1 => i64::MAX - i64::from(self.byte()),
            2 => i64::from(self.byte()) - 128,
            3 => 1_700_000_000 + i64::from(self.byte()),
            _ => self.0.arbitrary().unwrap_or_default(),
        }
    }

    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        self.0.bytes(length).unwrap_or_default()
    }

    pub(crate) fn text(&mut self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0.take_rest()
    }

    pub(crate) fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| value(self))
    }

    pub(crate) fn duration(&mut self) -> Duration {
        Duration::new(self.number().unsigned_abs(), u32::from(self.byte()) * 3_900_000)
    }

    pub(crate) fn instant(&mut self) -> SystemTime {
        let (distance, before) = (self.duration(), self.flag());
        let instant = if before { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
        instant.unwrap_or(UNIX_EPOCH)
    }
}

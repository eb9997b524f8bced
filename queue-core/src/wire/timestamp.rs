use chrono::{DateTime, Utc};

/// `google.protobuf.Timestamp`: seconds and nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Timestamp {
    /// Unix seconds, rounded down.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds within the second.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Timestamp {
    /// Go's zero time, the first instant of the year 1: "never" (rule R14).
    pub const NEVER: Timestamp = Timestamp { seconds: -62_135_596_800, nanos: 0 };

    /// The end of the year 9999, the last second that Go's tools can read: the next tick of an entry that has none.
    /// They take [`NEVER`](Self::NEVER) for "now" there.
    pub const NO_MORE: Timestamp = Timestamp { seconds: 253_402_300_799, nanos: 0 };

    /// From Unix nanoseconds.
    pub fn from_unix_ns(ns: i64) -> Self {
        Self {
            seconds: ns.div_euclid(1_000_000_000),
            nanos: i32::try_from(ns.rem_euclid(1_000_000_000)).unwrap_or_default(),
        }
    }

    /// As a date; `None` for [`Timestamp::NEVER`], [`Timestamp::NO_MORE`], and values outside chrono's range.
    pub fn to_date(self) -> Option<DateTime<Utc>> {
        if [Self::NEVER, Self::NO_MORE].contains(&self) {
            return None;
        }
        DateTime::from_timestamp(self.seconds, u32::try_from(self.nanos).ok()?)
    }
}

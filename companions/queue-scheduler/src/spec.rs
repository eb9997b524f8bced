//! Cron specs with the answers of Go's robfig/cron v3.0.1 (its standard parser), which asynq uses.
//!
//! No crate on offer gives these answers: they differ in which days match, in `N/step`, or over changes of
//! the clock. So the rules of that parser and the steps of its search are kept here, over the time zones
//! of jiff; a table of 2,615 answers of the Go library stands in the tests.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use queue_core::clock::UnixSecond;
use queue_core::duration;

/// A time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Universal time.
    pub const UTC: Zone = Zone(TimeZone::UTC);

    /// The zone with this name in the time zone database, for example `Europe/Berlin`; `Local` is the one
    /// of this machine.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &str) -> Result<Self, SpecError> {
        match name {
            "" | "UTC" => Ok(Self::UTC),
            "Local" => Ok(Self(TimeZone::system())),
            name => TimeZone::get(name).map(Self).map_err(|_| SpecError {
                part: format!("time zone {name:?}"),
                problem: "there is none of this name; write it like Europe/Berlin".to_owned(),
            }),
        }
    }

    /// Its name in the time zone database, or `Local` where that is not known.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("Local")
    }

    fn offset(&self, unix: i64) -> i64 {
        Timestamp::from_second(unix).map_or(0, |at| i64::from(self.0.to_offset(at).seconds()))
    }

    /// The wall clock at a Unix second.
    fn local(&self, unix: i64) -> DateTime {
        Timestamp::from_second(unix + self.offset(unix)).map_or(DateTime::MAX, |at| Offset::UTC.to_datetime(at))
    }

    /// A Unix second at which the wall clock shows this, as Go chooses it where there is none or two.
    fn unix(&self, local: DateTime) -> i64 {
        let as_utc = Offset::UTC.to_timestamp(local).map_or(i64::MAX / 2, Timestamp::as_second);
        match self.offset(as_utc) {
            0 => as_utc,
            offset => as_utc - self.offset(as_utc - offset),
        }
    }
}

/// What is wrong with a spec, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part}: {problem}")]
pub struct SpecError {
    part: String,
    problem: String,
}

/// A field of a spec: the values it allows as bits, and [`STAR`].
type Bits = u64;

/// Set when a field leaves all open; then the other field for days decides alone.
const STAR: Bits = 1 << 63;

/// Name, lowest, highest value, and names for values from the lowest on.
type Field = (&'static str, u32, u32, &'static [&'static str]);

const FIELDS: [Field; 5] = [
    ("minute", 0, 59, &[]),
    ("hour", 0, 23, &[]),
    ("day of month", 1, 31, &[]),
    ("month", 1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    ("day of week", 0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Minute, hour, day of month, month, day of week.
    Fields([Bits; 5]),
    /// Seconds between two ticks.
    Every(i64),
}

/// A parsed spec: five fields (`*/5 8-18 * * mon-fri`), `@daily` and the like, or `@every 90s`; each may have
/// a time zone in front (`CRON_TZ=Europe/Berlin 0 9 * * *`).
///
/// ```
/// use queue_scheduler::{Spec, UnixSecond, Zone};
///
/// let spec = Spec::parse("CRON_TZ=Europe/Berlin 30 9 * * mon-fri", &Zone::UTC)?;
/// assert_eq!(spec.next(UnixSecond(1_772_360_130)), Some(UnixSecond(1_772_440_200))); // Monday, 2026-03-02 08:30 UTC
/// let error = Spec::parse("0 25 * * *", &Zone::UTC).unwrap_err();
/// assert_eq!(error.to_string(), r#"hour "25": 25 is not in 0-23"#);
/// # Ok::<(), queue_scheduler::SpecError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    rule: Rule,
    zone: Zone,
}

impl Spec {
    /// Reads a spec; `zone` counts where it names none itself.
    ///
    /// # Errors
    /// When it is no spec; the error names the field.
    pub fn parse(text: &str, zone: &Zone) -> Result<Self, SpecError> {
        let prefix = ["TZ=", "CRON_TZ="].iter().find_map(|prefix| text.strip_prefix(prefix));
        let (zone, rest) = match prefix {
            None => (zone.clone(), text),
            Some(rest) => match rest.split_once(' ') {
                Some((name, rest)) => (Zone::named(name)?, rest.trim()),
                // Go's parser crashes here.
                None => return Err(fail("spec", text, "after the time zone come a space and five fields")),
            },
        };
        let fields = match rest {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => match rest.strip_prefix("@every ") {
                Some(delay) => return Ok(Self { rule: every(delay)?, zone }),
                None if rest.starts_with('@') => {
                    let known = "there are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and \
                                 @every followed by a duration";
                    return Err(fail("descriptor", rest, known));
                }
                None => rest,
            },
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        if fields.len() != 5 {
            let problem =
                format!("it has {} fields instead of 5: minute, hour, day of month, month, day of week", fields.len());
            return Err(fail("spec", text, problem));
        }
        let mut bits = [0; 5];
        for ((bits, text), field) in bits.iter_mut().zip(fields).zip(&FIELDS) {
            *bits = parse_field(text, field).map_err(|problem| fail(field.0, text, problem))?;
        }
        Ok(Self { rule: Rule::Fields(bits), zone })
    }

    /// The time zone in which it is read.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The first tick after this one; `None` when there is none within five years. Times that a change
    /// of the clock leaves out have no tick, those that it repeats have two. `@every` counts from `after`.
    pub fn next(&self, after: UnixSecond) -> Option<UnixSecond> {
        let next = match self.rule {
            Rule::Every(delay) => after.0.checked_add(delay),
            Rule::Fields(fields) => later(&fields, &self.zone, after.0),
        };
        next.map(UnixSecond)
    }

    /// The same, with the ticks of `@every` at whole multiples of it from `origin` on: so all schedulers of a
    /// fleet agree on them, and a restart does not move them (in Go it does).
    pub fn next_from(&self, UnixSecond(origin): UnixSecond, UnixSecond(after): UnixSecond) -> Option<UnixSecond> {
        let next = match self.rule {
            Rule::Every(delay) if after < origin => Some(origin).filter(|_| delay > 0),
            Rule::Every(delay) => after.checked_add(delay - (after - origin).rem_euclid(delay)),
            Rule::Fields(fields) => later(&fields, &self.zone, after.max(origin.saturating_sub(1))),
        };
        next.map(UnixSecond)
    }
}

fn fail(part: &str, text: &str, problem: impl Into<String>) -> SpecError {
    let shown: String = text.chars().take(80).collect();
    SpecError { part: format!("{part} {shown:?}"), problem: problem.into() }
}

fn every(delay: &str) -> Result<Rule, SpecError> {
    // Our durations know days, Go's do not, and a Go scheduler may have to read this.
    match duration::parse_ns(delay) {
        Ok(ns) if !delay.contains('d') => Ok(Rule::Every((ns / 1_000_000_000).max(1))),
        Ok(_) => Err(fail("@every", delay, "the longest unit is h; write 24h for a day")),
        Err(reason) => Err(fail("@every", delay, format!("{reason}; write it like 90s, 10m or 1h30m"))),
    }
}

fn parse_field(text: &str, field: &Field) -> Result<Bits, String> {
    text.split(',').filter(|item| !item.is_empty()).try_fold(0, |bits, item| Ok(bits | parse_item(item, field)?))
}

/// `*`, `5`, `5-10`, each perhaps with `/step`; `5/15` runs to the end of the range.
fn parse_item(item: &str, field: &Field) -> Result<Bits, String> {
    let (_, lowest, highest, _) = *field;
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, Some(number(step)?)),
        None => (item, None),
    };
    let (from, to) = match range.split_once('-') {
        Some((from, to)) => (from, Some(to)),
        None => (range, None),
    };
    let mut bits = 0;
    let (first, last) = if from == "*" || from == "?" {
        // Every second day is a choice like any other, every day is none.
        bits = if step.unwrap_or(1) > 1 { 0 } else { STAR };
        (lowest, highest)
    } else {
        let first = value(from, field)?;
        let last = match to {
            Some(to) => value(to, field)?,
            None if step.is_some() => highest,
            None => first,
        };
        (first, last)
    };
    for bound in [first, last] {
        if !(lowest..=highest).contains(&bound) {
            return Err(format!("{bound} is not in {lowest}-{highest}"));
        }
    }
    if first > last {
        return Err(format!("the range begins after its end, {first} > {last}"));
    }
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err("the step must be at least 1".to_owned());
    }
    Ok((first..=last).step_by(step as usize).fold(bits, |bits, value| bits | 1 << value))
}

fn value(text: &str, field: &Field) -> Result<u32, String> {
    let (_, lowest, highest, names) = *field;
    let named = names.iter().zip(lowest..).find(|(name, _)| name.eq_ignore_ascii_case(text));
    named.map_or_else(
        || {
            number(text).map_err(|problem| match names {
                [] => format!("{problem} in {lowest}-{highest}"),
                names => format!("{problem} in {lowest}-{highest} or one of {}", names.join(", ")),
            })
        },
        |(_, value)| Ok(value),
    )
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

/// Where a zone sets its clock back over a midnight, the search of robfig/cron may end before it began, and Go's
/// scheduler fires again and again. Then it is begun anew a minute later, until its answer is one.
fn later(fields: &[Bits; 5], zone: &Zone, after: i64) -> Option<i64> {
    const DAY_MINUTES: i64 = 24 * 60;
    let found = (0..DAY_MINUTES).map(|minute| search(fields, zone, after.saturating_add(minute * 60)));
    found.take_while(Option::is_some).flatten().find(|tick| *tick > after)
}

/// The search of robfig/cron: field by field from the months down, from the top again when a field turns
/// over. What it does near changes of the clock follows from its steps, so they are its steps, but where they pass over ticks: months and
/// days on the wall clock, hours and minutes in real time.
fn search(&[minutes, hours, days, months, weekdays]: &[Bits; 5], zone: &Zone, after: i64) -> Option<i64> {
    let has = |bits: Bits, value: i8| bits & 1 << value != 0;
    let is_day = |at: DateTime| {
        let (day, weekday) = (has(days, at.day()), has(weekdays, at.weekday().to_sunday_zero_offset()));
        if (days | weekdays) & STAR == 0 { day || weekday } else { day && weekday }
    };
    // A list of nothing but commas is allowed, and means never.
    if minutes == 0 || hours == 0 || months == 0 || days | weekdays == 0 {
        return None;
    }
    let mut unix = after.checked_add(1)?;
    let farthest = zone.local(unix).year().checked_add(5).filter(|year| *year < 9_000)?;
    // Whether the fields below the one that moves are at their lowest already.
    let mut moved = false;
    'top: loop {
        let mut at = zone.local(unix);
        if at.year() > farthest {
            return None;
        }
        if !has(months, at.month()) {
            // Go adds a month to the time at which it is. After a first day without a midnight that is 01:00, and Go passes over the
            // hour before it in later months.
            moved = true;
            let (year, month) = if at.month() == 12 { (at.year() + 1, 1) } else { (at.year(), at.month() + 1) };
            let first = at.date().with().day(1).year(year).month(month).build().ok()?;
            let midnight = zone.unix(first.to_datetime(Time::midnight()));
            if midnight > unix {
                unix = midnight;
            } else {
                // The clock was set back over that midnight, or the zone has left the day out.
                unix -= i64::from(at.minute()) * 60 + i64::from(at.second());
                while zone.local(unix).month() == at.month() {
                    unix += 3_600;
                }
            }
            continue 'top;
        }
        while !is_day(at) {
            let tomorrow = at.date().tomorrow().ok()?;
            let begun = first_hour(zone, tomorrow);
            if std::mem::replace(&mut moved, true) && begun <= unix {
                // The clock was set back over that midnight, and the search has been there.
                while zone.local(unix).date() == at.date() {
                    unix += 3_600;
                }
            } else {
                unix = begun;
            }
            if zone.local(unix).date() <= at.date() {
                // The zone has left out a whole day, as Apia did on 2011-12-30: Go stays on the day before for ever.
                unix = first_hour(zone, tomorrow.tomorrow().ok()?);
            }
            at = zone.local(unix);
            if at.day() == 1 {
                continue 'top;
            }
        }
        let day = at.day();
        while !has(hours, at.hour()) {
            if !std::mem::replace(&mut moved, true) {
                unix = zone.unix(at.date().at(at.hour(), 0, 0, 0));
            }
            unix += 3_600;
            at = zone.local(unix);
            if at.minute() != 0 {
                // The clock was set by half an hour since. Go stays half an hour off, and passes over ticks at the full hour.
                let begun = unix - i64::from(at.minute()) * 60;
                if (zone.local(begun).hour(), zone.local(begun).minute()) == (at.hour(), 0) {
                    unix = begun;
                    at = zone.local(unix);
                }
            }
            // Go looks for hour 0, and does not see a day that has none.
            if at.day() != day {
                continue 'top;
            }
        }
        while !has(minutes, at.minute()) {
            if !std::mem::replace(&mut moved, true) {
                unix -= i64::from(at.second());
            }
            unix += 60;
            at = zone.local(unix);
            // Half an hour that a zone leaves out may end in the middle of the next hour.
            if at.minute() == 0 || !has(hours, at.hour()) {
                continue 'top;
            }
        }
        if at.second() != 0 {
            moved = true;
            unix += 60 - i64::from(at.second());
            if zone.local(unix).minute() == 0 || !has(minutes, zone.local(unix).minute()) {
                continue 'top;
            }
        }
        return Some(unix);
    }
}

/// The first hour of a day, also of one without a midnight. Go takes the last hour of the day before then, and passes over the day where only some days
/// have ticks.
fn first_hour(zone: &Zone, day: Date) -> i64 {
    let unix = zone.unix(day.to_datetime(Time::midnight()));
    let hour = i64::from(zone.local(unix).hour());
    unix + if hour > 12 { 24 - hour } else { 0 } * 3_600
}

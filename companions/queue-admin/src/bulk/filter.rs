use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::clock::{UnixSecond, date_from_secs};
use queue_core::fingerprint::Fingerprint;
use queue_core::{TaskMessage, TaskState, fits};

use super::payload;

/// Which tasks are meant: those to which everything that is said here applies. One that says nothing means
/// all of them; see each operation for the states it then goes through.
///
/// ```
/// use std::time::Duration;
///
/// use queue_core::TaskState;
/// use queue_admin::Filter;
///
/// let stuck = Filter::new()
///     .state(TaskState::Archived)
///     .task_type("email:*")
///     .error_contains("connection refused")
///     .older_than(Duration::from_secs(60 * 60))
///     .payload("user.id", "7");
/// # let _ = stuck;
/// ```
///
/// A message that cannot be read matches only a filter that asks for nothing in it. It is on the client that
/// tasks are compared, page by page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub(super) states: BTreeSet<TaskState>,
    pub(super) ids: BTreeSet<String>,
    pub(super) group: Option<String>,
    pub(super) task_type: Option<String>,
    pub(super) older_than: Option<Duration>,
    pub(super) error: Option<String>,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) headers: BTreeMap<String, Option<String>>,
    pub(super) payload: Vec<(String, String)>,
    pub(super) texts: Vec<String>,
    pub(super) not: Vec<Self>,
    /// No text says it: it is of one operation alone.
    ended_by: Option<UnixSecond>,
}

impl Filter {
    /// All tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tasks in this state; said several times, in one of them.
    #[must_use]
    pub fn state(mut self, state: TaskState) -> Self {
        self.states.insert(state);
        self
    }

    /// The task with this id; said several times, one of them.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.ids.insert(id.into());
        self
    }

    /// Tasks of this group, in whatever state; add [`TaskState::Aggregating`] for those that wait in it.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Tasks of this type; with a `*` at the end, of types that begin like this.
    #[must_use]
    pub fn task_type(mut self, task_type: impl Into<String>) -> Self {
        self.task_type = Some(task_type.into());
        self
    }

    /// Tasks that have been in their state for longer than this: pending since they became so, active since
    /// the attempt began, retry since the last failure, archived and completed since they became so,
    /// aggregating since they joined the group; scheduled: whose time has been over for so long. Where the
    /// beginning is not known (Go does not always write it), a task does not match.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Self {
        self.older_than = Some(age);
        self
    }

    /// Tasks whose last error contains this text; case counts.
    #[must_use]
    pub fn error_contains(mut self, text: impl Into<String>) -> Self {
        self.error = Some(text.into());
        self
    }

    /// Tasks whose last failure has this fingerprint: a group of [`Inspector::failures`](crate::Inspector::failures).
    #[must_use]
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// Tasks with this header, whatever its value.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>) -> Self {
        self.headers.insert(name.into(), None);
        self
    }

    /// Tasks with this header and value.
    #[must_use]
    pub fn header_is(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), Some(value.into()));
        self
    }

    /// Tasks whose payload, JSON or MessagePack, has this value at this path: field names and places in
    /// lists with dots between them (`user.roles.0`), or a JSON pointer (`/user/roles/0`). A text is
    /// compared as it is, everything else as JSON.
    #[must_use]
    pub fn payload(mut self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.payload.push((path.into(), value.into()));
        self
    }

    /// Tasks with this text in their id, type, last error or the first 4 KiB of their payload; case does not count.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.texts.push(text.into());
        self
    }

    /// Tasks to which another filter does not apply. Its states and ids do not count. An operation knows filters as text, and
    /// refuses a `not` of several conditions.
    #[must_use]
    pub fn not(mut self, filter: Self) -> Self {
        self.not.push(Self { states: BTreeSet::new(), ids: BTreeSet::new(), ..filter });
        self
    }

    /// Tasks that have neither failed nor succeeded after this second.
    #[must_use]
    pub(crate) fn ended_by(mut self, second: UnixSecond) -> Self {
        self.ended_by = Some(second);
        self
    }

    /// Whether it names states.
    pub fn has_states(&self) -> bool {
        !self.states.is_empty()
    }

    /// Whether tasks have to be looked at one by one. A list of states alone is read without that.
    pub fn is_search(&self) -> bool {
        self.needs_hash() || !self.ids.is_empty()
    }

    /// Whether it asks for nothing at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The names of the headers, and the paths into the payload, of which it asks; and whether it looks for text anywhere.
    /// Who hides parts of tasks must not tell by finding them. A fingerprint tells nothing but what is shown of errors anyway.
    pub fn looks_into(&self) -> (Vec<&str>, Vec<&str>, bool) {
        let mut looks = (Vec::new(), Vec::new(), false);
        for filter in std::iter::once(self).chain(&self.not) {
            looks.0.extend(filter.headers.keys().map(String::as_str));
            looks.1.extend(filter.payload.iter().map(|(path, _)| path.as_str()));
            looks.2 |= !filter.texts.is_empty() || filter.error.is_some();
        }
        looks
    }

    /// The states to go through, of those an operation can deal with.
    pub(crate) fn states_of(&self, all: &[TaskState]) -> Vec<TaskState> {
        if self.states.is_empty() { all.to_vec() } else { self.states.iter().copied().collect() }
    }

    /// Whether a task cannot be judged by where it is alone.
    pub(super) fn needs_hash(&self) -> bool {
        self.older_than.is_some()
            || self.ended_by.is_some()
            || self.needs_message()
            || self.not.iter().any(Self::needs_hash)
    }

    fn needs_message(&self) -> bool {
        self.group.is_some()
            || self.task_type.is_some()
            || self.error.is_some()
            || self.fingerprint.is_some()
            || !self.headers.is_empty()
            || !self.payload.is_empty()
            || !self.texts.is_empty()
    }

    /// Whether it applies to a task that is in no list of its state, whose score there was this.
    pub(crate) fn applies(
        &self,
        state: TaskState,
        message: &TaskMessage,
        score: Option<i64>,
        now: DateTime<Utc>,
    ) -> bool {
        let task = Candidate { state, message: Some(message), score, pending_since: None, started: None };
        (self.states.is_empty() || self.states.contains(&state))
            && self.may_be(message.id.as_bytes())
            && self.matches(&task, now)
    }

    /// Whether an id may be one of those meant.
    pub(super) fn may_be(&self, id: &[u8]) -> bool {
        self.ids.is_empty() || std::str::from_utf8(id).is_ok_and(|id| self.ids.contains(id))
    }

    /// Whether everything applies but the id and the state.
    pub(super) fn matches(&self, task: &Candidate<'_>, now: DateTime<Utc>) -> bool {
        if let Some(age) = self.older_than {
            // A time ahead has no age.
            let been = task.since().and_then(|since| (now - since).to_std().ok());
            if been.is_none_or(|been| been <= age) {
                return false;
            }
        }
        if self.not.iter().any(|not| not.matches(task, now)) {
            return false;
        }
        if let (Some(UnixSecond(second)), Some(message)) = (self.ended_by, task.message)
            && message.last_failed_at.max(message.completed_at) > second
        {
            return false;
        }
        let Some(message) = task.message else { return !self.needs_message() };
        self.group.as_ref().is_none_or(|group| message.group_key == *group)
            && self.task_type.as_ref().is_none_or(|pattern| fits(pattern, &message.r#type))
            && self.error.as_ref().is_none_or(|text| message.error_msg.contains(text))
            && self.fingerprint.is_none_or(|it| Fingerprint::new(&message.r#type, &message.error_msg) == Some(it))
            && self.headers.iter().all(|(name, value)| {
                message.headers.get(name).is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
            })
            && self.payload.iter().all(|(path, value)| payload::has(&message.payload, path, value))
            && self.texts.iter().all(|text| has_text(message, text))
    }
}

/// How much of a payload is searched for text.
const TEXT_BYTES: usize = 4_096;

fn has_text(message: &TaskMessage, text: &str) -> bool {
    let text = text.to_lowercase();
    let payload = String::from_utf8_lossy(&message.payload[..message.payload.len().min(TEXT_BYTES)]);
    [&message.id, &message.r#type, &message.error_msg, &*payload].iter().any(|part| part.to_lowercase().contains(&text))
}

/// What is known of a task that may match.
pub(super) struct Candidate<'a> {
    pub(super) state: TaskState,
    pub(super) message: Option<&'a TaskMessage>,
    /// Its score in the set of its state.
    pub(super) score: Option<i64>,
    /// Since when it is pending, in Unix nanoseconds.
    pub(super) pending_since: Option<i64>,
    /// When the attempt began.
    pub(super) started: Option<DateTime<Utc>>,
}

impl Candidate<'_> {
    fn since(&self) -> Option<DateTime<Utc>> {
        match self.state {
            TaskState::Pending => self.pending_since.map(DateTime::from_timestamp_nanos),
            TaskState::Active => self.started,
            TaskState::Retry => date_from_secs(self.message?.last_failed_at),
            TaskState::Completed => date_from_secs(self.message?.completed_at),
            TaskState::Scheduled | TaskState::Archived | TaskState::Aggregating => {
                DateTime::from_timestamp(self.score?, 0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn candidate(state: TaskState, message: Option<&TaskMessage>) -> Candidate<'_> {
        Candidate {
            state,
            message,
            score: Some(NOW - 100),
            pending_since: Some((NOW - 100) * 1_000_000_000),
            started: DateTime::from_timestamp(NOW - 100, 0),
        }
    }

    fn matches(filter: &Filter, candidate: &Candidate<'_>) -> bool {
        filter.matches(candidate, DateTime::from_timestamp(NOW, 0).unwrap())
    }

    #[test]
    fn a_filter_wants_all_its_conditions() {
        let message = TaskMessage {
            r#type: "email:send".into(),
            payload: r#"{"to":"ada"}"#.into(),
            error_msg: "dial tcp: connection refused".into(),
            group_key: "g".into(),
            headers: BTreeMap::from([("tenant".to_owned(), "7".to_owned())]),
            ..TaskMessage::default()
        };
        let task = candidate(TaskState::Retry, Some(&message));
        let all = Filter::new()
            .task_type("email:*")
            .group("g")
            .error_contains("refused")
            .header("tenant")
            .payload("to", "ada");
        assert!(matches(&Filter::new(), &task) && matches(&all, &task));
        for filter in [
            all.clone().task_type("email:"),
            all.clone().group("h"),
            all.clone().error_contains("Refused"),
            all.clone().fingerprint(Fingerprint::new("email:other", "dial tcp: connection refused").unwrap()),
            all.clone().header("user"),
            all.clone().header_is("tenant", "8"),
            all.clone().payload("to", "bob"),
        ] {
            assert!(!matches(&filter, &task), "{filter:?}");
        }
        let same = Fingerprint::new("email:send", "dial tcp: connection refused\nmore").unwrap();
        assert!(matches(&all.task_type("email:send").header_is("tenant", "7").fingerprint(same), &task));
    }

    #[test]
    fn text_is_found_anywhere_and_what_is_left_out_is_not() {
        let message = TaskMessage {
            id: "Seven".into(),
            r#type: "email:send".into(),
            payload: r#"{"to":"Ada"}"#.into(),
            error_msg: "connection refused".into(),
            ..TaskMessage::default()
        };
        let task = candidate(TaskState::Archived, Some(&message));
        for text in ["seven", "MAIL", "\"ada", "Refused"] {
            assert!(matches(&Filter::new().text(text), &task), "{text}");
            assert!(!matches(&Filter::new().not(Filter::new().text(text)), &task), "{text}");
        }
        assert!(!matches(&Filter::new().text("bob"), &task));
        assert!(matches(&Filter::new().not(Filter::new().older_than(Duration::from_secs(200))), &task));
        assert!(!matches(&Filter::new().not(Filter::new().older_than(Duration::from_secs(50))), &task));
    }

    #[test]
    fn age_counts_from_when_a_task_came_into_its_state() {
        let message = TaskMessage { last_failed_at: NOW - 100, completed_at: NOW - 100, ..TaskMessage::default() };
        let (younger, older) = (Duration::from_secs(99), Duration::from_secs(100));
        for state in TaskState::ALL {
            let task = candidate(state, Some(&message));
            assert!(matches(&Filter::new().older_than(younger), &task), "{state}");
            assert!(!matches(&Filter::new().older_than(older), &task), "{state}");
            let unknown = TaskMessage::default();
            let task = Candidate { state, message: Some(&unknown), score: None, pending_since: None, started: None };
            assert!(!matches(&Filter::new().older_than(Duration::ZERO), &task), "{state}");
        }
        let future = Candidate { score: Some(NOW + 1), ..candidate(TaskState::Scheduled, Some(&message)) };
        assert!(!matches(&Filter::new().older_than(Duration::ZERO), &future));
    }

    #[test]
    fn a_message_that_cannot_be_read_matches_what_asks_for_nothing_in_it() {
        let task = candidate(TaskState::Archived, None);
        assert!(matches(&Filter::new(), &task));
        assert!(matches(&Filter::new().older_than(Duration::from_secs(5)), &task));
        assert!(!matches(&Filter::new().task_type("*"), &task));
        assert!(!matches(&Filter::new().older_than(Duration::from_secs(5)).task_type("*"), &task));
    }
}

//! Cancelations that are not forgotten: `asynq:x:cancels`, `forget_cancel.lua`.

use std::collections::HashMap;

use queue_core::clock::UnixMilli;
use queue_core::keys;

use super::Broker;
use crate::error::Error;
use crate::script::FORGET_CANCEL;

/// The duty that sees to it that tasks which are to be canceled are.
pub(crate) const CANCEL: &str = "cancel";

/// How long the leader waits for a record that was announced, and may have been lost on its way.
const ANNOUNCED_MS: i64 = 10_000;

/// That somebody wants a task to end, and not to be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRequest {
    /// When it was asked for.
    pub at: UnixMilli,
    /// By whom.
    pub by: String,
    /// The value of the record.
    text: String,
    /// How many bytes of the record's name are the task's id: it may have spaces, and so may the queue's name.
    id_bytes: usize,
}

impl CancelRequest {
    fn parse(value: &str) -> Option<Self> {
        let mut words = value.splitn(3, ' ');
        let mut word = || words.next();
        let (at, id_bytes) = (UnixMilli(word()?.parse().ok()?), word()?.parse().ok()?);
        Some(Self { at, id_bytes, by: word()?.to_owned(), text: value.to_owned() })
    }

    /// Id and queue of the task.
    pub(crate) fn task<'a>(&self, record: &'a str) -> Option<(&'a str, &'a str)> {
        let (id, queue) = record.split_at_checked(self.id_bytes)?;
        Some((id, queue.strip_prefix(' ')?))
    }
}

/// What a record is called.
pub(crate) fn record(queue: &str, id: &str) -> String {
    format!("{id} {queue}")
}

impl Broker {
    /// Records that a task is to end, whoever has it, and is not to be tried again. Servers of this project hear of it by
    /// client tracking; the leader applies it where others have put the task back meanwhile, and removes the record when
    /// the task has ended.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. It may have been recorded all the same.
    pub async fn request_cancel(&self, queue: &str, id: &str, by: &str, now_ms: i64) -> Result<(), Error> {
        self.request_cancels(queue, &[id], by, now_ms).await
    }

    /// The same for each of these tasks.
    ///
    /// # Errors
    /// As there; some may have been recorded.
    pub async fn request_cancels(&self, queue: &str, ids: &[&str], by: &str, now_ms: i64) -> Result<(), Error> {
        if ids.is_empty() {
            return Ok(());
        }
        let records: Vec<String> = ids.iter().map(|id| record(queue, id)).collect();
        // Before it: should this process die in between, the leader looks all the same. And behind it: a look that
        // found nothing has ended the duty.
        self.ask_for_duties(CANCEL, &records, now_ms.saturating_add(ANNOUNCED_MS)).await?;
        let fields = records.iter().zip(ids).map(|(record, id)| (record, format!("{now_ms} {} {by}", id.len())));
        self.redis.command::<()>("HSET", (keys::CANCELS, fields.collect::<Vec<_>>())).await?;
        self.ask_for_duties(CANCEL, &records, now_ms).await
    }

    /// Whether a task is to be canceled.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn cancel_request(&self, queue: &str, id: &str) -> Result<Option<CancelRequest>, Error> {
        let record = record(queue, id);
        Ok(self.cancel_recorded(&record).await?.filter(|request| request.task(&record) == Some((id, queue))))
    }

    pub(crate) async fn cancel_recorded(&self, record: &str) -> Result<Option<CancelRequest>, Error> {
        let value: Option<String> = self.redis.command("HGET", (keys::CANCELS, record)).await?;
        Ok(value.and_then(|value| CancelRequest::parse(&value)))
    }

    /// Removes the record `<id> <queue>` of a task that has ended; returns false where it was asked for again since it was seen.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn forget_cancel(&self, record: &str, seen: &CancelRequest) -> Result<bool, Error> {
        let mut call = FORGET_CANCEL.call(1);
        call.arg(keys::CANCELS).arg(record).arg(&seen.text);
        Ok(self.integer(&FORGET_CANCEL, &call).await? == 1)
    }

    /// All tasks that are to be canceled.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn cancel_requests(&self) -> Result<CancelRequests, Error> {
        Ok(CancelRequests::read(self.redis.pipeline("HGETALL", &CancelRequests::look()).await?))
    }
}

/// All tasks that are to be canceled, as they were recorded at some time.
#[derive(Debug, Clone, Default)]
pub struct CancelRequests(HashMap<String, CancelRequest>);

impl CancelRequests {
    pub(crate) fn look() -> redis::Pipeline {
        let mut look = redis::pipe();
        look.cmd("HGETALL").arg(keys::CANCELS);
        look
    }

    /// What is no record costs no other.
    pub(crate) fn read((found,): (HashMap<Vec<u8>, Vec<u8>>,)) -> Self {
        let read = |(record, value): (Vec<u8>, Vec<u8>)| {
            let (record, value) = (String::from_utf8(record).ok()?, String::from_utf8(value).ok()?);
            Some((record, CancelRequest::parse(&value)?))
        };
        Self(found.into_iter().filter_map(read).collect())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// That for a task.
    pub fn of(&self, queue: &str, id: &str) -> Option<&CancelRequest> {
        let record = record(queue, id);
        self.0.get(&record).filter(|request| request.task(&record) == Some((id, queue)))
    }

    /// Whether a task of this id is to be canceled, in whichever queue.
    pub fn has_id(&self, id: &str) -> bool {
        self.0.iter().any(|(record, request)| request.task(record).is_some_and(|(named, _)| named == id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_the_task_also_where_names_have_blanks() {
        let request = CancelRequest::parse("5 3 ann of the night shift").unwrap();
        assert_eq!((request.at, &*request.by), (UnixMilli(5), "ann of the night shift"));
        assert_eq!(request.task("a b c d"), Some(("a b", "c d")));
        for record in ["ab", "abcd e", "aüb c"] {
            assert_eq!(request.task(record), None, "{record}");
        }
        let bytes = |text: &[u8]| text.to_vec();
        let found = [(bytes(b"a b c"), bytes(b"5 3 ann")), (bytes(b"\xff q"), bytes(b"5 1 ann"))];
        let requests = CancelRequests::read((HashMap::from(found),));
        assert!(requests.of("c", "a b").is_some() && requests.of("b c", "a").is_none());
        assert!(requests.has_id("a b") && !requests.has_id("a"));
        for nonsense in ["", "x 3 ann", "5 ann"] {
            assert_eq!(CancelRequest::parse(nonsense), None);
        }
    }
}

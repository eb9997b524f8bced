//! Who did what: a stream in Redis.

use std::collections::HashMap;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use queue_core::keys::AUDIT;
use serde::Serialize;

use super::Inspector;
use crate::error::{BadCursor, Error};
use crate::role::Role;
use crate::verb::ActionInfo;
use queue_redis::Error as RedisError;

/// Entries that are kept. Each action writes two.
const MOST: usize = 100_000;
/// How long they are kept.
const KEPT: TimeDelta = TimeDelta::days(90);
/// Ids of tasks that are written down.
const MAX_IDS: usize = 20;
/// Bytes of a text that are written down.
const MAX_TEXT: usize = 1_000;
/// How many newer entries are searched for the outcomes of those on a page.
const NEWER: usize = 200;

/// Who does something.
#[derive(Debug, Clone)]
pub struct Actor {
    /// Name.
    pub name: String,
    /// What this one may do.
    pub role: Role,
    /// By which tool: `cli`, `dash`, `web`.
    pub via: &'static str,
    /// From which address.
    pub address: Option<String>,
}

/// What an action is about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target<'a> {
    pub(crate) queue: Option<&'a str>,
    pub(crate) ids: &'a [&'a str],
    pub(crate) entry: Option<&'a str>,
    pub(crate) filter: Option<String>,
}

queue_core::words! {
    /// How an action ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Outcome {
        /// It was done.
        Done: "done",
        /// It was refused, or failed; the error says why.
        Failed: "failed",
        /// Nothing was written about its end: it is still going on, or its process died.
        Unknown: "unknown",
    }
}

/// An action in the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AuditEntry {
    /// Id of the entry in the stream.
    pub id: String,
    /// When it was about to be done, by Redis' clock.
    pub at: Option<DateTime<Utc>>,
    /// Who did it.
    pub actor: String,
    /// In which role.
    pub role: String,
    /// By which tool: `cli`, `dash`, `web`.
    pub via: String,
    /// From which address, if the tool knows.
    pub address: Option<String>,
    /// What: the name of an [`Action`](crate::Action), such as `task.run`.
    pub action: String,
    /// In which queue.
    pub queue: Option<String>,
    /// To which tasks, the first 20 of them.
    pub ids: Vec<String>,
    /// To which periodic entry.
    pub entry: Option<String>,
    /// To all tasks that fit this.
    pub filter: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// How many tasks were changed, where that is a number.
    pub changed: Option<u64>,
    /// Why it failed.
    pub error: Option<String>,
}

/// A part of the audit, newest first.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// Where it goes on; `None` at the end.
    pub next: Option<String>,
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

impl Inspector {
    /// Writes down that this is about to be done. Returns the id of the entry.
    pub(crate) async fn audit_intent(
        &self,
        actor: &Actor,
        action: &ActionInfo,
        target: &Target<'_>,
    ) -> Result<String, RedisError> {
        let mut add = redis::cmd("XADD");
        add.arg(AUDIT).arg("MAXLEN").arg("~").arg(MOST).arg("*");
        add.arg("action").arg(action.name).arg("actor").arg(cut(&actor.name)).arg("role").arg(actor.role.as_str());
        add.arg("via").arg(actor.via);
        let filter = target.filter.as_deref();
        let more = [
            ("address", actor.address.as_deref()),
            ("queue", target.queue),
            ("entry", target.entry),
            ("filter", filter),
        ];
        for (field, value) in more.into_iter().filter_map(|(field, value)| Some((field, value?))) {
            add.arg(field).arg(cut(value));
        }
        if !target.ids.is_empty() {
            let ids: Vec<&str> = target.ids.iter().take(MAX_IDS).map(|id| cut(id)).collect();
            add.arg("ids").arg(serde_json::to_string(&ids).unwrap_or_default());
        }
        self.redis.query("XADD", &add).await
    }

    /// Writes down how it ended, and lets go what is too old.
    pub(crate) async fn audit_outcome(
        &self,
        of: &str,
        changed: Option<u64>,
        error: Option<&str>,
    ) -> Result<(), RedisError> {
        // Ids are the time by Redis' clock, in milliseconds.
        let now: i64 = of.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or(0);
        let mut add = redis::cmd("XADD");
        add.arg(AUDIT).arg("MINID").arg("~").arg((now - KEPT.num_milliseconds()).max(0)).arg("*");
        add.arg("of").arg(of).arg("outcome").arg(if error.is_none() { "done" } else { "failed" });
        if let Some(changed) = changed {
            add.arg("changed").arg(changed);
        }
        if let Some(error) = error {
            add.arg("error").arg(cut(error));
        }
        self.redis.query::<String>("XADD", &add).await.map(drop)
    }

    /// Writes down how an action ended that has an entry, if that can be written.
    pub(crate) async fn has_acted(&self, entry: Option<&str>, changed: Option<u64>, error: Option<&str>) {
        let Some(entry) = entry else { return };
        if let Err(error) = self.audit_outcome(entry, changed, error).await {
            tracing::warn!(target: "queue_audit", %error, entry, "the outcome cannot be written down");
        }
    }

    /// What operators did with our tools, newest first; up to 100,000 entries are kept, for 90 days. `before` is the
    /// [`next`](AuditPage::next) of the page before. Go's tools write nothing here, and whoever may write to Redis can change
    /// it.
    ///
    /// # Errors
    /// [`Error::BadCursor`] if `before` comes from nowhere; or Redis cannot be asked or refuses.
    pub async fn audit(&self, before: Option<&str>, count: usize) -> Result<AuditPage, Error> {
        let is_number = |text: &str| !text.starts_with('+') && text.parse::<u64>().is_ok();
        let is_id = |text: &str| text.split_once('-').map_or(is_number(text), |(ms, n)| is_number(ms) && is_number(n));
        if before.is_some_and(|before| !is_id(before)) {
            return Err(BadCursor.into());
        }
        let mut outcomes = Outcomes::new();
        if let Some(before) = before {
            // What happened on this page may have ended on the one before.
            let range = (AUDIT, format!("({before}"), "+", "COUNT", NEWER);
            let newer: Vec<Raw> = self.redis.command("XRANGE", range).await?;
            newer.iter().for_each(|raw| note(raw, &mut outcomes));
        }
        let (mut entries, mut end) = (Vec::new(), before.map_or("+".to_owned(), |before| format!("({before}")));
        loop {
            let page: Vec<Raw> = self.redis.command("XREVRANGE", (AUDIT, &end, "-", "COUNT", 2 * count.max(1))).await?;
            let Some(last) = page.last() else { return Ok(AuditPage { entries, next: None }) };
            end = format!("({}", last.0);
            for raw in &page {
                note(raw, &mut outcomes);
                if let Some(entry) = entry(raw, &mut outcomes) {
                    entries.push(entry);
                    if entries.len() >= count.max(1) {
                        return Ok(AuditPage { next: Some(raw.0.clone()), entries });
                    }
                }
            }
        }
    }
}

type Outcomes = HashMap<String, (Outcome, Option<u64>, Option<String>)>;

/// An entry of the stream: its id, and its fields.
type Raw = (String, HashMap<String, Bytes>);

fn text((_, fields): &Raw, field: &str) -> Option<String> {
    fields.get(field).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Takes down how an action ended, if the entry tells that.
fn note(raw: &Raw, outcomes: &mut Outcomes) {
    let Some(of) = text(raw, "of") else { return };
    let outcome = if text(raw, "outcome").as_deref() == Some("done") { Outcome::Done } else { Outcome::Failed };
    let changed = text(raw, "changed").and_then(|changed| changed.parse().ok());
    outcomes.insert(of, (outcome, changed, text(raw, "error")));
}

fn entry(raw: &Raw, outcomes: &mut Outcomes) -> Option<AuditEntry> {
    let action = text(raw, "action")?;
    let (outcome, changed, error) = outcomes.remove(&raw.0).unwrap_or((Outcome::Unknown, None, None));
    let ms = raw.0.split('-').next().and_then(|ms| ms.parse().ok());
    Some(AuditEntry {
        at: ms.and_then(DateTime::from_timestamp_millis),
        actor: text(raw, "actor").unwrap_or_default(),
        role: text(raw, "role").unwrap_or_default(),
        via: text(raw, "via").unwrap_or_default(),
        address: text(raw, "address"),
        queue: text(raw, "queue"),
        ids: text(raw, "ids").map(|ids| serde_json::from_str(&ids).unwrap_or_default()).unwrap_or_default(),
        entry: text(raw, "entry"),
        filter: text(raw, "filter"),
        id: raw.0.clone(),
        action,
        outcome,
        changed,
        error,
    })
}

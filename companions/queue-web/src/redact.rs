//! What nobody sees: parts of tasks that are hidden before anything is written.

use std::collections::BTreeMap;

use queue_admin::{Explanation, Filter, LimitInfo, Reason, ServerInfo, payload};
use queue_core::event::{Event, Kind};
use queue_core::flow::SIGNAL_TYPE;
use queue_core::limit::LimitKey;
use queue_core::option_text;
use queue_core::task_log::LogLine;
use queue_core::{TaskInfo, fits};
use queue_redis::flow::NodeStatus;
use serde::Deserialize;
use serde_json::Value;

use crate::problem::Problem;

/// What stands in the place of what is hidden.
pub(crate) const HIDDEN: &str = "[redacted]";

/// Headers whose values are hidden unless other names are given.
const HEADERS: [&str; 6] = ["authorization", "cookie", "*token*", "*secret*", "*password*", "*api-key*"];

/// Hides parts of tasks from everybody: values of headers, and values in payloads and results.
///
/// ```
/// let redact = queue_web::Redact::from_toml(
///     r#"
///     headers = ["authorization", "*token*"]
///     [payload]
///     "email:*" = ["/to", "/cards/*/number"]
///     "login" = ["*"]
///     [result]
///     "report:*" = ["*"]
///     "#,
/// )?;
/// # Ok::<(), queue_web::RedactError>(())
/// ```
///
/// A name has `*` at its beginning, its end, or both. A path is a JSON pointer in which `*` is any field or place; `"*"` alone
/// is everything. A payload for which there are paths and that is neither JSON nor MessagePack is hidden as a whole.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Redact {
    headers: Vec<String>,
    payload: BTreeMap<String, Vec<String>>,
    result: BTreeMap<String, Vec<String>>,
}

impl Default for Redact {
    fn default() -> Self {
        Self { headers: HEADERS.map(str::to_owned).into(), payload: BTreeMap::new(), result: BTreeMap::new() }
    }
}

/// A text that says nothing about what to hide.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RedactError(String);

impl Redact {
    /// Reads the rules.
    ///
    /// # Errors
    /// When the text is no TOML, has a name that means nothing, or a path that is none.
    pub fn from_toml(text: &str) -> Result<Self, RedactError> {
        let rules: Self = toml::from_str(text).map_err(|error| RedactError(error.to_string()))?;
        let mut paths = rules.payload.values().chain(rules.result.values()).flatten();
        match paths.find(|path| *path != "*" && !path.starts_with('/')) {
            Some(path) => Err(RedactError(format!("the path {path:?} does not begin with /"))),
            None => Ok(rules),
        }
    }

    fn hides_header(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.headers.iter().any(|pattern| {
            let pattern = pattern.to_lowercase();
            match pattern.strip_prefix('*') {
                Some(rest) => match rest.strip_suffix('*') {
                    Some(inner) => name.contains(inner),
                    None => name.ends_with(rest),
                },
                None => fits(&pattern, &name),
            }
        })
    }

    /// Refuses to look for what is hidden: what is found would tell what it is.
    pub(crate) fn check(&self, filter: &Filter) -> Result<(), Problem> {
        let (headers, paths, anywhere) = filter.looks_into();
        let refuse = |what: String| {
            Err(Problem::forbidden("redacted", format!("{what} is hidden here, so it cannot be searched")))
        };
        if let Some(name) = headers.iter().find(|name| self.hides_header(name)) {
            return refuse(format!("header {name:?}"));
        }
        if !self.payload.is_empty() && (anywhere || !paths.is_empty()) {
            return refuse("a part of some payloads".to_owned());
        }
        Ok(())
    }

    /// Whether anything of the payloads of this type is hidden.
    pub(crate) fn hides_payload(&self, kind: &str) -> bool {
        self.payload.keys().any(|pattern| fits(pattern, kind))
    }

    /// Whether the keys of a limit are values that are hidden: of tasks of any type, since a limit may hold for all.
    pub(crate) fn hides_key(&self, key: &LimitKey) -> bool {
        match key {
            LimitKey::Header(name) => self.hides_header(name),
            LimitKey::Payload(path) => {
                let steps: Vec<&str> = path[1..].split('/').collect();
                let is_above = |rule: &str| {
                    let mut steps = steps.iter();
                    rule == "*"
                        || rule[1..].split('/').all(|step| steps.next().is_some_and(|it| step == "*" || step == *it))
                };
                self.payload.values().flatten().any(|rule| is_above(rule))
            }
            _ => false,
        }
    }

    /// A text without the hashes of payloads that names of uniqueness locks end with: whoever can guess a payload would know it by that. Of tasks
    /// of any type, as soon as anything of payloads is hidden.
    pub(crate) fn lock(&self, text: String) -> String {
        if self.payload.is_empty() || !text.contains(":unique:") {
            return text;
        }
        let parts = text.split(':').map(|part| match part.split_at_checked(32) {
            Some((hash, rest)) if hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => format!("{HIDDEN}{rest}"),
            _ => part.to_owned(),
        });
        parts.collect::<Vec<_>>().join(":")
    }

    /// Why a task is not running, without the key of its lane if that is hidden in the task, and without hashes of payloads.
    pub(crate) fn explanation(&self, mut explanation: Explanation, limits: &[LimitInfo]) -> Explanation {
        for reason in &mut explanation.reasons {
            if let Reason::LockLeft { lock, .. } = reason {
                *lock = self.lock(std::mem::take(lock));
            }
            let Reason::Lane { lane, .. } = reason else { continue };
            let name = lane.split(':').next().unwrap_or_default();
            let limit = limits.iter().find(|info| info.limit.name == name);
            if limit.is_none_or(|info| self.hides_key(&info.limit.key)) {
                *lane = format!("{name}:{HIDDEN}");
            }
        }
        explanation
    }

    /// What a handler says to its progress, or writes down, may tell of the payload and of the result.
    fn hides_note(&self, kind: &str) -> bool {
        self.hides_payload(kind) || self.result.keys().any(|pattern| fits(pattern, kind))
    }

    /// The options of a periodic entry, as text, without the values of headers that are hidden.
    pub(crate) fn options(&self, options: &[String]) -> Vec<String> {
        let shown = |option: &String| match option_text::parse_header(option) {
            Some((name, _)) if self.hides_header(&name) => format!("Header({})", serde_json::json!([name, HIDDEN])),
            None if option.starts_with("Header(") => format!("Header({HIDDEN})"),
            _ => option.clone(),
        };
        options.iter().map(shown).collect()
    }

    /// A line of the log of a task of this type, without its text where that may tell what is hidden.
    pub(crate) fn log_line(&self, kind: &str, mut line: LogLine) -> LogLine {
        if self.hides_note(kind) {
            HIDDEN.clone_into(&mut line.text);
        }
        line
    }

    /// The event without what is hidden.
    pub(crate) fn event(&self, mut event: Event) -> Event {
        if event.kind == Kind::Progress && event.task_type.as_deref().is_some_and(|kind| self.hides_note(kind)) {
            event.note = event.note.map(|_| HIDDEN.to_owned());
        }
        event
    }

    /// The task without what is hidden.
    pub(crate) fn task(&self, mut task: TaskInfo) -> TaskInfo {
        for (name, value) in &mut task.headers {
            if self.hides_header(name) {
                HIDDEN.clone_into(value);
            }
        }
        task.payload = hide(&self.payload, &task.task_type, &task.payload).unwrap_or(task.payload);
        if let Some(hidden) = task.result.as_deref().and_then(|result| hide(&self.result, &task.task_type, result)) {
            task.result = Some(hidden);
        }
        if self.hides_note(&task.task_type) {
            task.progress.iter_mut().for_each(|progress| HIDDEN.clone_into(&mut progress.note));
        }
        task
    }

    /// The node of a workflow without what is hidden of what was said with its signal: the rules for payloads of the type `x:signal`.
    pub(crate) fn node(&self, mut node: NodeStatus) -> NodeStatus {
        if let Some(said) = node.signal.as_mut().and_then(|signal| signal.said.as_mut())
            && let Some(hidden) = hide(&self.payload, SIGNAL_TYPE, said.to_string().as_bytes())
        {
            *said = serde_json::from_slice(&hidden).unwrap_or_else(|_| HIDDEN.into());
        }
        node
    }

    /// The server without what is hidden of its tasks.
    pub(crate) fn server(&self, mut server: ServerInfo) -> ServerInfo {
        for worker in &mut server.workers {
            if let Some(hidden) = hide(&self.payload, &worker.task_type, &worker.payload) {
                worker.payload = hidden;
            }
        }
        server
    }
}

/// The bytes without the values at the paths for this type; `None` where there are no paths.
fn hide(rules: &BTreeMap<String, Vec<String>>, kind: &str, bytes: &[u8]) -> Option<bytes::Bytes> {
    let mut paths = rules.iter().filter(|(pattern, _)| fits(pattern, kind)).flat_map(|(_, paths)| paths).peekable();
    paths.peek()?;
    let value = serde_json::from_slice(bytes).ok().or_else(|| payload::message_pack(bytes));
    let Some(mut value) = value else { return Some(HIDDEN.into()) };
    for path in paths {
        if path == "*" {
            return Some(HIDDEN.into());
        }
        let steps: Vec<String> = path[1..].split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        blank(&mut value, &steps);
    }
    Some(value.to_string().into())
}

fn blank(value: &mut Value, steps: &[String]) {
    let Some((step, rest)) = steps.split_first() else {
        *value = HIDDEN.into();
        return;
    };
    match value {
        Value::Object(fields) if step == "*" => fields.values_mut().for_each(|field| blank(field, rest)),
        Value::Array(items) if step == "*" => items.iter_mut().for_each(|item| blank(item, rest)),
        Value::Object(fields) => fields.get_mut(step).into_iter().for_each(|field| blank(field, rest)),
        Value::Array(items) => {
            step.parse().ok().and_then(|at: usize| items.get_mut(at)).into_iter().for_each(|item| blank(item, rest));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Redact {
        Redact::from_toml(
            r#"
            headers = ["Authorization", "x-*", "*key"]
            [payload]
            "email:*" = ["/to", "/cards/*/number", "/a~1b"]
            "login" = ["*"]
            "#,
        )
        .unwrap()
    }

    fn hidden(kind: &str, payload: &str) -> String {
        let hidden = hide(&rules().payload, kind, payload.as_bytes());
        hidden.map_or_else(|| payload.to_owned(), |hidden| String::from_utf8(hidden.to_vec()).unwrap())
    }

    #[test]
    fn options_of_entries_hide_the_values_of_headers_that_are_hidden() {
        let options =
            ["Queue(\"q\")", "Header([\"X-Token\",\"s3cr3t\"])", "Header([\"lang\",\"de\"])", "Header(s3cr3t)"];
        let expected =
            ["Queue(\"q\")", "Header([\"X-Token\",\"[redacted]\"])", "Header([\"lang\",\"de\"])", "Header([redacted])"];
        assert_eq!(rules().options(&options.map(str::to_owned)), expected);
    }

    #[test]
    fn values_are_hidden_by_type_and_path() {
        let seen = hidden("email:send", r#"{"to":"ada","cards":[{"number":1,"n":2},{"number":[3]}],"a/b":4,"rest":5}"#);
        let expected = r#"{"a/b":"[redacted]","cards":[{"n":2,"number":"[redacted]"},{"number":"[redacted]"}],"rest":5,"to":"[redacted]"}"#;
        assert_eq!(serde_json::from_str::<Value>(&seen).unwrap(), serde_json::from_str::<Value>(expected).unwrap());
        assert_eq!(hidden("email:send", "to=ada"), HIDDEN);
        assert_eq!(hidden("login", "{}"), HIDDEN);
        assert_eq!(hidden("other", r#"{"to":  1.10}"#), r#"{"to":  1.10}"#);
    }

    #[test]
    fn headers_are_hidden_by_name() {
        let redact = rules();
        for (name, is_hidden) in [("AUTHORIZATION", true), ("x-token", true), ("api-key", true), ("tenant", false)] {
            assert_eq!(redact.hides_header(name), is_hidden, "{name}");
        }
        assert!(Redact::default().hides_header("X-Auth-Token"));
    }

    #[test]
    fn what_is_hidden_cannot_be_searched() {
        let redact = rules();
        for (filter, allowed) in [
            ("type:email:*", true),
            ("header.tenant:7", true),
            ("header.x-a", false),
            ("-header.x-a:7", false),
            ("payload.to:ada", false),
            ("ada", false),
            ("error:ada", false),
            ("fingerprint:v1-0b5c6a2f9d41", true),
        ] {
            assert_eq!(redact.check(&filter.parse().unwrap()).is_ok(), allowed, "{filter}");
        }
        assert!(Redact::default().check(&"ada payload.to:x".parse().unwrap()).is_ok());
    }

    #[test]
    fn keys_of_limits_are_hidden_where_they_are_in_tasks() {
        let some = Redact::from_toml("[payload]\n'email:*' = ['/to', '/cards/*/number']").unwrap();
        let hidden = |key: &str| some.hides_key(&key.parse().unwrap());
        assert!(hidden("payload:/to/name") && hidden("payload:/cards/0/number") && hidden("header:x-token"));
        assert!(rules().hides_key(&"payload:/any".parse().unwrap()), "a type is hidden as a whole");
        assert!(!hidden("payload:/cards") && !hidden("payload:/tone") && !hidden("type") && !hidden("queue"));
    }

    #[test]
    fn names_of_locks_do_not_tell_hashes_of_payloads() {
        let lock = "asynq:{q}:unique:login:9e107d9d372bb6826bd81d3542a419d6";
        assert_eq!(rules().lock(format!("{lock} is left")), "asynq:{q}:unique:login:[redacted] is left");
        assert_eq!(rules().lock("asynq:{q}:unique:é:".to_owned()), "asynq:{q}:unique:é:", "no payload has no hash");
        assert_eq!(Redact::default().lock(lock.to_owned()), lock);
    }

    #[test]
    fn rules_that_say_nothing_are_refused() {
        for text in ["header = []", "[payload]\nx = ['to']", "x"] {
            assert!(Redact::from_toml(text).is_err(), "{text}");
        }
    }
}

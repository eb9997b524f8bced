//! Which tasks a command is about.

use std::time::Duration;

use clap::Args;
use queue_admin::{Filter, FilterError};
use queue_core::TaskState;

use crate::given::Given as _;
use crate::when;

/// What tasks must be like. What is given must all be so.
#[derive(Debug, Clone, Default, Args)]
#[group(skip)]
#[command(next_help_heading = "Which tasks")]
pub(crate) struct FilterArgs {
    /// Only tasks that fit this text: type:email:* error:"timed out" header.tenant:acme payload.user.id:7 -older:1h word
    #[arg(long, value_name = "TEXT", value_parser = text)]
    filter: Option<Filter>,
    /// Only tasks of this group
    #[arg(short, long, value_name = "G")]
    group: Option<String>,
    /// Only tasks of this type; with a `*` at the end, of types that begin like this
    #[arg(long = "type", value_name = "TYPE")]
    task_type: Option<String>,
    /// Only tasks that have been in their state for longer than this; scheduled ones, that are overdue by so much
    #[arg(long, value_name = "D", value_parser = when::duration)]
    older_than: Option<Duration>,
    /// Only tasks whose last error contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only tasks with this header, and this value if one is given
    #[arg(long = "header", value_name = "K[=V]", value_parser = header)]
    headers: Vec<(String, Option<String>)>,
    /// Only tasks whose payload, JSON or MessagePack, has this value at this path: user.id=7, tags.0=new
    #[arg(long = "where", value_name = "PATH=VALUE", value_parser = pair)]
    payload: Vec<(String, String)>,
}

/// Which states are meant is said elsewhere, and must not be said twice.
fn text(text: &str) -> Result<Filter, String> {
    let filter: Filter = text.parse().map_err(|error: FilterError| error.to_string())?;
    if filter.has_states() { Err("states are named by --state".to_owned()) } else { Ok(filter) }
}

fn header(text: &str) -> Result<(String, Option<String>), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("a header is written NAME or NAME=VALUE".to_owned()),
        Some((name, value)) => Ok((name.to_owned(), Some(value.to_owned()))),
        None => Ok((text.to_owned(), None)),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("it is written PATH=VALUE".to_owned()),
    }
}

impl FilterArgs {
    /// All tasks of a group, or of none in particular.
    pub(super) fn group(group: Option<String>) -> Self {
        Self { group, ..Self::default() }
    }

    /// Whether nothing was asked for.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { filter, group, task_type, older_than, error, headers, payload } = self;
        let none = filter.as_ref().is_none_or(Filter::is_empty)
            && group.is_none()
            && task_type.is_none()
            && older_than.is_none()
            && error.is_none();
        none && headers.is_empty() && payload.is_empty()
    }

    /// The group, if that is all that was asked for.
    pub(crate) fn only_group(&self) -> Option<&str> {
        let rest = Self { group: None, ..self.clone() };
        self.group.as_deref().filter(|_| rest.is_empty())
    }

    /// The same for the library, over tasks in these states.
    pub(crate) fn filter(&self, states: &[TaskState]) -> Filter {
        let begin = self.filter.clone().unwrap_or_default();
        let mut filter = states
            .iter()
            .fold(begin, |filter, state| filter.state(*state))
            .given(self.group.as_ref(), Filter::group)
            .given(self.task_type.as_ref(), Filter::task_type)
            .given(self.older_than, Filter::older_than)
            .given(self.error.as_ref(), Filter::error_contains);
        for (name, value) in &self.headers {
            filter = match value {
                Some(value) => filter.header_is(name, value),
                None => filter.header(name),
            };
        }
        for (path, value) in &self.payload {
            filter = filter.payload(path, value);
        }
        filter
    }
}

//! `--http-header`: what else goes with the requests of some types.

use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};

use super::http::Target;
use super::rule::{Pattern, Rule};
use crate::error::CliError;

/// Headers for the types that fit their patterns. Where two have the same name, that of the longer pattern goes.
#[derive(Debug, Clone, Default)]
pub(super) struct Headers(Vec<Header>);

#[derive(Debug, Clone)]
struct Header {
    pattern: Pattern,
    name: HeaderName,
    value: HeaderValue,
}

impl Headers {
    /// Reads `PATTERN=NAME: VALUE` and `PATTERN=@FILE`, a file of such lines. Not done by clap, which repeats in its
    /// messages what it refuses: here, that may be a password.
    pub(super) fn read(texts: &[String], rules: &[Rule<Target>]) -> Result<Self, CliError> {
        let mut headers = Vec::new();
        for text in texts {
            // Where the pattern was forgotten, what stands in its place may be half of a password.
            let (pattern, header) = text
                .split_once('=')
                .and_then(|(pattern, header)| Some((Pattern::parse(pattern).ok()?, header)))
                .ok_or_else(|| wrong("there is no PATTERN=; write PATTERN=NAME: VALUE or PATTERN=@FILE"))?;
            // Not sent anywhere, a password would be thought to protect something.
            if !rules.iter().any(|rule| rule.pattern.overlaps(&pattern)) {
                return Err(wrong(
                    "what stands before the = goes with no --http; write PATTERN=NAME: VALUE or PATTERN=@FILE",
                ));
            }
            let lines = match header.strip_prefix('@') {
                None => header.to_owned(),
                Some(file) => std::fs::read_to_string(file)
                    .map_err(|error| CliError::failed(format!("--http-header: cannot read {file}: {error}")))?,
            };
            for line in lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
                let (name, value) = parse(line).map_err(|reason| wrong(&reason))?;
                headers.push(Header { pattern: pattern.clone(), name, value });
            }
        }
        headers.sort_by_key(|header| header.pattern.rank());
        Ok(Self(headers))
    }

    /// Adds those that go with tasks of this type.
    pub(super) fn apply(&self, task_type: &str, to: &mut HeaderMap) {
        for Header { name, value, .. } in self.0.iter().filter(|header| header.pattern.fits(task_type)) {
            to.insert(name, value.clone());
        }
    }
}

fn wrong(reason: &str) -> CliError {
    CliError::Usage(format!("--http-header: {reason}"))
}

fn parse(line: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = line.split_once(':').ok_or("a header has no colon; write PATTERN=NAME: VALUE")?;
    let Ok(parsed) = HeaderName::try_from(name) else {
        return Err("what stands before the colon is no name of a header; write PATTERN=NAME: VALUE".to_owned());
    };
    if parsed.as_str().starts_with("x-task-") || parsed == CONTENT_LENGTH || parsed == TRANSFER_ENCODING {
        return Err(format!("the header {parsed} is set by the worker"));
    }
    let mut value = HeaderValue::try_from(value.trim()).map_err(|_| format!("the value of {parsed} is not text"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

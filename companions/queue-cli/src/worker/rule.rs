//! `PATTERN=…`: which tasks go where.

use std::fmt;

/// Which task types a rule is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pattern {
    /// This type.
    Exact(String),
    /// Every type that begins like this.
    Prefix(String),
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (start, is_prefix) = match text.strip_suffix('*') {
            Some(start) => (start, true),
            None => (text, false),
        };
        if start.contains('*') {
            return Err(format!(
                "the pattern {text:?} has a * that is not its end; a pattern is a task type, or a beginning followed by *"
            ));
        }
        if start.trim().is_empty() && (!is_prefix || !start.is_empty()) {
            return Err("the pattern is blank; write PATTERN=…, like email:*=…, or *=… for all types".to_owned());
        }
        Ok(if is_prefix { Self::Prefix(start.to_owned()) } else { Self::Exact(start.to_owned()) })
    }

    pub(super) fn fits(&self, task_type: &str) -> bool {
        match self {
            Self::Exact(exact) => task_type == exact,
            Self::Prefix(prefix) => task_type.starts_with(prefix),
        }
    }

    /// Whether there can be a type that fits both.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(exact), pattern) | (pattern, Self::Exact(exact)) => pattern.fits(exact),
            (Self::Prefix(one), Self::Prefix(other)) => one.starts_with(other) || other.starts_with(one),
        }
    }

    /// Of the patterns that a type fits, the greatest rank is that of the one that says most about it.
    pub(super) fn rank(&self) -> (bool, usize) {
        match self {
            Self::Exact(exact) => (true, exact.len()),
            Self::Prefix(prefix) => (false, prefix.len()),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(task_type) => write!(f, "{task_type:?}"),
            Self::Prefix(prefix) => write!(f, "{:?}", format!("{prefix}*")),
        }
    }
}

/// Tasks that fit the pattern go to the target.
#[derive(Debug, Clone)]
pub(super) struct Rule<T> {
    pub(super) pattern: Pattern,
    pub(super) target: T,
}

impl<T> Rule<T> {
    /// Reads `PATTERN=TARGET`. The first `=` separates them, so that commands and URLs may have more.
    pub(super) fn parse(text: &str, what: &str, target: impl Fn(&str) -> Result<T, String>) -> Result<Self, String> {
        let (pattern, rest) = text
            .split_once('=')
            .ok_or_else(|| format!("there is no =; write PATTERN={what}, like 'email:*={what}'"))?;
        Ok(Self { pattern: Pattern::parse(pattern)?, target: target(rest)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_type_or_a_beginning() {
        assert_eq!(Pattern::parse("email:send"), Ok(Pattern::Exact("email:send".to_owned())));
        assert_eq!(Pattern::parse("email:*"), Ok(Pattern::Prefix("email:".to_owned())));
        assert_eq!(Pattern::parse("*"), Ok(Pattern::Prefix(String::new())));
        for text in ["", " ", " *", "a*b", "**", "*a"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_overlap_where_a_type_can_fit_both() {
        let overlap = |one, other| {
            let (one, other) = (Pattern::parse(one).unwrap(), Pattern::parse(other).unwrap());
            assert_eq!(one.overlaps(&other), other.overlaps(&one));
            one.overlaps(&other)
        };
        assert!(overlap("*", "a") && overlap("a", "a") && overlap("a*", "ab*") && overlap("ab*", "abc"));
        assert!(!overlap("a", "ab") && !overlap("ab*", "ac*") && !overlap("ab*", "a"));
    }

    #[test]
    fn the_first_equals_sign_separates() {
        let rule = Rule::parse("a=env X=1 run", "COMMAND", |text| Ok(text.to_owned())).unwrap();
        assert_eq!((rule.pattern.to_string(), rule.target.as_str()), ("\"a\"".to_owned(), "env X=1 run"));
        let refused = Rule::parse("run", "COMMAND", |text| Ok(text.to_owned())).unwrap_err();
        assert!(refused.contains("PATTERN=COMMAND"), "{refused}");
    }
}

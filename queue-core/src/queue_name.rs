//! Names of queues, and what those mean that belong to a family.
//!
//! A family is a queue and its relatives: the levels of its priorities, mailboxes of servers, and queues for servers with
//! certain labels. Each of them is a queue of asynq with a name of its own, `<base>}<suffix>`: what Redis Cluster hashes of its
//! keys (`asynq:{mail}p9}:pending`) ends at the first closing brace, so that a family is in one slot.

use std::collections::BTreeSet;
use std::fmt;

use crate::limits::{HIGHEST_PRIORITY, MIDDLE_PRIORITY};
use crate::registry::is_name;

/// Which member of a family a queue is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Family {
    /// The tasks of one priority, 0 to 9. Those of 5 are in the base queue.
    Level(u8),
    /// The tasks that only servers of this name may take.
    Mailbox(String),
    /// The tasks that only servers with all of these labels may take.
    Labels(BTreeSet<String>),
}

/// A queue of a family that there cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FamilyError {
    /// A priority above the highest.
    #[error("the priority is {0}; 0 is the lowest and {max} the highest", max = HIGHEST_PRIORITY)]
    PriorityTooHigh(u8),
    /// A name of servers, or a label, that no server can have.
    #[error("the {what} {name:?} is none; it has 1 to 100 letters, digits, '.', '_' and '-'")]
    NoName {
        /// `server name` or `label`.
        what: &'static str,
        /// What was given, shortened.
        name: String,
    },
    /// More than one of them: a task is in one queue.
    #[error("a task has a priority, a server, or labels: not two of these")]
    MoreThanOne,
}

impl Family {
    /// Of the ways to say which queue of a family a task goes to, the one that is used; `None` where none is.
    ///
    /// # Errors
    /// When more than one is used.
    pub fn choose(
        priority: Option<u8>,
        only: Option<String>,
        labels: impl IntoIterator<Item = String>,
    ) -> Result<Option<Self>, FamilyError> {
        let labels = Some(labels.into_iter().collect::<BTreeSet<_>>()).filter(|labels| !labels.is_empty());
        let used = [priority.map(Self::Level), only.map(Self::Mailbox), labels.map(Self::Labels)];
        let mut used = used.into_iter().flatten();
        let chosen = used.next();
        if used.next().is_some() { Err(FamilyError::MoreThanOne) } else { Ok(chosen) }
    }

    /// Whether the tasks of such a queue are for certain servers alone.
    pub fn is_target(&self) -> bool {
        matches!(self, Self::Mailbox(_) | Self::Labels(_))
    }

    /// Whether a server of this name with these labels may run its tasks. Any server may serve priorities.
    pub fn admits(&self, name: Option<&str>, labels: &BTreeSet<String>) -> bool {
        match self {
            Self::Level(_) => true,
            Self::Mailbox(only) => name == Some(only),
            Self::Labels(needed) => needed.is_subset(labels),
        }
    }

    /// Who may run its tasks, for people: `servers named gpu-3`, `servers labelled eu and gpu`.
    pub fn whom(&self) -> String {
        match self {
            Self::Level(_) => "servers with priorities".to_owned(),
            Self::Mailbox(name) => format!("servers named {name}"),
            Self::Labels(labels) => {
                let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                format!("servers labelled {}", labels.join(" and "))
            }
        }
    }

    /// Whether there can be such a queue.
    ///
    /// # Errors
    /// When a priority is above 9, or a name or label is none.
    pub fn check(&self) -> Result<(), FamilyError> {
        let refuse = |what, name: &str| Err(FamilyError::NoName { what, name: name.chars().take(80).collect() });
        match self {
            Self::Level(level) if *level > HIGHEST_PRIORITY => Err(FamilyError::PriorityTooHigh(*level)),
            Self::Level(_) => Ok(()),
            Self::Mailbox(name) if !is_name(name) => refuse("server name", name),
            Self::Mailbox(_) => Ok(()),
            Self::Labels(labels) if labels.is_empty() => refuse("label", ""),
            Self::Labels(labels) => {
                labels.iter().find(|label| !is_name(label)).map_or(Ok(()), |label| refuse("label", label))
            }
        }
    }

    fn parse(suffix: &str) -> Option<Self> {
        let mut letters = suffix.chars();
        let family = match (letters.next()?, letters.as_str()) {
            ('p', level) if level.len() == 1 => Self::Level(level.parse().ok()?),
            ('@', name) => Self::Mailbox(name.to_owned()),
            ('#', labels) => Self::Labels(labels.split('+').map(str::to_owned).collect()),
            _ => return None,
        };
        // One member has one name.
        let is_one = family != Self::Level(MIDDLE_PRIORITY) && family.check().is_ok() && family.to_string() == suffix;
        is_one.then_some(family)
    }
}

/// As it stands in the queue's name: `p9`, `@gpu-3`, `#eu+gpu`.
impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => write!(f, "p{level}"),
            Self::Mailbox(name) => write!(f, "@{name}"),
            Self::Labels(labels) => {
                f.write_str("#")?;
                for (number, label) in labels.iter().enumerate() {
                    write!(f, "{}{label}", if number > 0 { "+" } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

/// The name of a queue, taken apart.
///
/// ```
/// use queue_core::queue_name::{Family, QueueName};
///
/// let name = QueueName::parse("mail}p9");
/// assert_eq!((name.base, &name.family), ("mail", &Some(Family::Level(9))));
/// assert_eq!(name.to_string(), "mail}p9");
/// assert_eq!(QueueName::parse("mail").family, None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName<'a> {
    /// The queue of the family that has the plain name.
    pub base: &'a str,
    /// `None` for that one, and for queues without a family.
    pub family: Option<Family>,
}

impl<'a> QueueName<'a> {
    /// The name of a member of a queue's family. Priority 5 is the queue itself.
    pub fn new(base: &'a str, family: Family) -> Self {
        Self { base, family: Some(family).filter(|family| *family != Family::Level(MIDDLE_PRIORITY)) }
    }

    /// Reads a name. One that is not written as those of members are is that of a queue without a family.
    pub fn parse(name: &'a str) -> Self {
        let member = name.rsplit_once('}').filter(|(base, _)| !base.trim().is_empty());
        let member = member.and_then(|(base, suffix)| Some((base, Family::parse(suffix)?)));
        member.map_or(Self { base: name, family: None }, |(base, family)| Self { base, family: Some(family) })
    }

    /// For people: `mail p9`.
    pub fn shown(&self) -> String {
        self.family.as_ref().map_or_else(|| self.base.to_owned(), |family| format!("{} {family}", self.base))
    }
}

/// As keys and messages have it.
impl fmt::Display for QueueName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.base)?;
        self.family.as_ref().map_or(Ok(()), |family| write!(f, "}}{family}"))
    }
}

/// The base queue of a queue's family; the queue itself if it has none.
pub fn base_of(queue: &str) -> &str {
    // Most names have no brace.
    if queue.contains('}') { QueueName::parse(queue).base } else { queue }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(labels: &[&str]) -> Family {
        Family::Labels(labels.iter().map(|label| (*label).to_owned()).collect())
    }

    #[test]
    fn names_of_members_are_read_as_they_are_written() {
        for (text, base, family) in [
            ("mail}p9", "mail", Family::Level(9)),
            ("mail}p0", "mail", Family::Level(0)),
            ("mail}@gpu-3", "mail", Family::Mailbox("gpu-3".into())),
            ("mail}#gpu", "mail", labels(&["gpu"])),
            ("mail}#eu+gpu", "mail", labels(&["gpu", "eu"])),
            ("a}b}p1", "a}b", Family::Level(1)),
        ] {
            let name = QueueName::parse(text);
            assert_eq!((name.base, name.family.as_ref()), (base, Some(&family)), "{text}");
            assert_eq!(name.to_string(), text);
            assert_eq!(QueueName::new(base, family).to_string(), text);
            assert_eq!(base_of(text), base);
        }
        assert_eq!(QueueName::new("mail", Family::Level(5)).to_string(), "mail", "the middle is the base queue");
        assert_eq!(QueueName::parse("mail}#eu+gpu").shown(), "mail #eu+gpu");
    }

    #[test]
    fn a_target_admits_servers_of_its_name_or_with_all_its_labels() {
        let has = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<BTreeSet<_>>();
        let mailbox = Family::Mailbox("web-1".into());
        assert!(mailbox.admits(Some("web-1"), &has(&[])) && mailbox.is_target());
        assert!(!mailbox.admits(Some("web-10"), &has(&["web-1"])) && !mailbox.admits(None, &has(&[])));
        let both = labels(&["gpu", "eu"]);
        assert!(both.admits(None, &has(&["eu", "gpu", "big"])) && both.is_target());
        assert!(!both.admits(Some("gpu"), &has(&["gpu"])));
        assert!(Family::Level(9).admits(None, &has(&[])) && !Family::Level(9).is_target());
        assert_eq!(both.whom(), "servers labelled eu and gpu");
    }

    #[test]
    fn a_task_is_in_one_queue_of_a_family() {
        let none = Vec::new;
        assert_eq!(Family::choose(None, None, none()), Ok(None));
        assert_eq!(Family::choose(Some(9), None, none()), Ok(Some(Family::Level(9))));
        assert_eq!(Family::choose(None, Some("a".into()), none()), Ok(Some(Family::Mailbox("a".into()))));
        assert_eq!(Family::choose(None, None, ["b".to_owned(), "a".into()]), Ok(Some(labels(&["a", "b"]))));
        assert_eq!(Family::choose(Some(5), None, ["a".to_owned()]), Err(FamilyError::MoreThanOne));
        assert_eq!(Family::choose(None, Some("a".into()), ["a".to_owned()]), Err(FamilyError::MoreThanOne));
    }

    #[test]
    fn other_names_have_no_family() {
        for text in [
            "mail",
            "",
            "}p9",
            " }p9",
            "mail}",
            "mail}p",
            "mail}p5",
            "mail}p10",
            "mail}p-1",
            "mail}px",
            "mail}x9",
            "mail}@",
            "mail}@a b",
            "mail}#",
            "mail}#gpu+",
            "mail}#gpu+eu",
            "mail}#a+a",
            "mail}p9 ",
            "p9",
            "a}b",
        ] {
            assert_eq!(QueueName::parse(text), QueueName { base: text, family: None }, "{text:?}");
            assert_eq!(base_of(text), text);
        }
    }
}

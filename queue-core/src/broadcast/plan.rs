//! What is remembered of a broadcast, and when there have been enough successes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::audience::{Candidate, To, Unfit};
use crate::queue_name::{Family, QueueName};

/// What is remembered of a broadcast, in its batch: the member of number n is the task of the n-th server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Plan {
    /// Type of the task.
    pub r#type: String,
    /// The queue whose servers were chosen; each task is in the mailbox of its server beside it.
    pub queue: String,
    /// The names of the servers.
    pub servers: Vec<String>,
    /// How many have to succeed.
    pub quorum: u32,
    /// Whether that is all of them, also of those that come later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Whom it is for, as it is written; only where others may have a part in it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The Unix second until which servers that start have a part in it, too. Then the first member is the timer that waits until
    /// then, and the servers' members have the numbers behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
    /// After how many seconds in which no server of a name was alive another one does its part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_after: Option<u64>,
    /// The numbers of the members whose parts others do, because their servers were lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<u32>,
}

impl Plan {
    /// The field of the batch in which it stands.
    pub const FIELD: &'static str = "broadcast";
    /// The name of the node that waits for servers which come later.
    pub const JOINS: &'static str = "late-joiners";

    /// A broadcast to these servers; without a quorum, all of them have to succeed.
    pub fn new(task_type: &str, queue: &str, servers: Vec<String>, quorum: Option<u32>) -> Self {
        let quorum = quorum.unwrap_or(u32::try_from(servers.len()).unwrap_or(u32::MAX));
        Self {
            r#type: task_type.to_owned(),
            queue: queue.to_owned(),
            servers,
            quorum,
            all: false,
            to: None,
            until: None,
            replace_after: None,
            lost: Vec::new(),
        }
    }

    /// The number of the first server's member.
    pub fn first(&self) -> u32 {
        u32::from(self.until.is_some())
    }

    /// The servers, and the numbers of their members.
    pub fn members(&self) -> impl Iterator<Item = (u32, &str)> {
        (self.first()..).zip(self.servers.iter().map(String::as_str))
    }

    /// Which of these servers would have a part in it, if they had come earlier; those with the most free slots first.
    pub fn others(&self, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
        // A server of another queue has another mailbox for its name.
        let is_here = |one: &&Candidate| !matches!(one.unfit, Some(Unfit::Nameless | Unfit::OtherQueues));
        let mut known: BTreeMap<String, u32> = BTreeMap::new();
        for candidate in candidates.iter().filter(is_here) {
            *known.entry(candidate.server.clone()).or_default() += 1;
        }
        let to = self.to.as_deref().and_then(|to| to.parse::<To>().ok());
        let is_meant = |candidate: &Candidate| match &to {
            Some(To::Labelled(label)) => candidate.labels.contains(label),
            Some(To::Live | To::Count(_)) => true,
            Some(To::Servers(_)) | None => false,
        };
        candidates.retain(|candidate| {
            let is_one = known.get(&candidate.server) == Some(&1);
            candidate.unfit.is_none() && is_one && is_meant(candidate) && !self.servers.contains(&candidate.server)
        });
        candidates.sort_by_key(|candidate| -i64::from(candidate.free));
        candidates
    }

    /// Reads one; `None` if it cannot be read.
    pub fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// As it is stored.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The mailbox of one of its servers.
    pub fn mailbox(&self, server: &str) -> String {
        QueueName::new(&self.queue, Family::Mailbox(server.to_owned())).to_string()
    }
}

crate::words! {
    /// Whether enough servers have succeeded.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Verdict {
        /// That may still be; or not.
        Open: "open",
        /// As many as the quorum have.
        Reached: "reached",
        /// So many cannot any more, unless somebody runs again what is dead.
        Missed: "missed",
    }
}

impl Verdict {
    /// By how many have to succeed, how many have, and how many may still.
    pub fn of(quorum: u64, succeeded: u64, live: u64) -> Self {
        match () {
            () if succeeded >= quorum => Self::Reached,
            () if succeeded + live >= quorum => Self::Open,
            () => Self::Missed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::audience::tests::{live, unfit};
    use super::*;

    #[test]
    fn a_verdict_is_passed_as_soon_as_it_is_sure() {
        for (quorum, succeeded, live, verdict) in [
            (2, 0, 3, Verdict::Open),
            (2, 1, 1, Verdict::Open),
            (2, 2, 1, Verdict::Reached),
            (2, 3, 0, Verdict::Reached),
            (2, 1, 0, Verdict::Missed),
            (3, 0, 2, Verdict::Missed),
        ] {
            assert_eq!(Verdict::of(quorum, succeeded, live), verdict, "{quorum} {succeeded} {live}");
        }
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let plan = Plan::new("cache:flush", "mail", vec!["a".to_owned(), "b".to_owned()], None);
        assert_eq!(plan.to_json(), r#"{"type":"cache:flush","queue":"mail","servers":["a","b"],"quorum":2}"#);
        assert_eq!(Plan::parse(plan.to_json().as_bytes()), Some(plan.clone()));
        assert_eq!((plan.mailbox("a"), Plan::parse(b"{}")), ("mail}@a".to_owned(), None));
        let joined = Plan { until: Some(9), lost: vec![1], ..plan.clone() };
        let numbers = |plan: &Plan| plan.members().map(|(number, name)| format!("{number}{name}")).collect::<Vec<_>>();
        assert_eq!(
            (numbers(&plan), numbers(&joined)),
            (vec!["0a".to_owned(), "1b".into()], vec!["1a".into(), "2b".into()])
        );
        assert_eq!(Plan::parse(joined.to_json().as_bytes()), Some(joined));
    }

    #[test]
    fn others_have_a_part_if_they_are_meant_and_have_none() {
        let plan = |to: &To| Plan { to: Some(to.to_string()), ..Plan::new("t", "mail", vec!["a".to_owned()], None) };
        let gpu = Candidate { labels: ["gpu".to_owned()].into(), ..live("g", 2) };
        let servers = [
            live("a", 9),
            live("b", 1),
            gpu,
            live("twin", 9),
            unfit("twin", Unfit::Quiet),
            unfit("q", Unfit::Quiet),
            unfit("b", Unfit::OtherQueues),
        ];
        let others = |plan: Plan| -> Vec<String> {
            plan.others(servers.to_vec()).into_iter().map(|candidate| candidate.server).collect()
        };
        assert_eq!(
            (others(plan(&To::live())), others(plan(&To::count(1)))),
            (vec!["g".into(), "b".into()], vec!["g".into(), "b".into()])
        );
        assert_eq!(
            (others(plan(&To::labelled("gpu"))), others(plan(&To::labelled("tpu")))),
            (vec!["g".to_owned()], vec![])
        );
        assert_eq!(others(plan(&To::servers(["b"]))), Vec::<String>::new());
        assert_eq!(
            others(Plan::new("t", "mail", vec!["a".to_owned()], None)),
            Vec::<String>::new(),
            "of an older release"
        );
    }
}

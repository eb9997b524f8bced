//! Broadcasts: one task on several servers. Who is chosen, what is remembered of that, and when there have been enough successes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::BROADCAST_MAX_SERVERS;
use crate::queue_name::{Family, QueueName};
use crate::registry::{ServerEntry, TARGETS, honours};
use crate::wire::ServerInfo;

/// Whom a broadcast is for.
///
/// ```
/// use queue_core::broadcast::To;
///
/// assert_eq!("label:gpu".parse(), Ok(To::labelled("gpu")));
/// assert_eq!("server:web-1,web-2".parse(), Ok(To::servers(["web-2", "web-1"])));
/// assert_eq!(To::count(3).to_string(), "count:3");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum To {
    /// All servers of the queue that are alive.
    Live,
    /// Those of them that have this label.
    Labelled(String),
    /// So many of them, those with the most free slots.
    Count(u32),
    /// The servers of these names.
    Servers(BTreeSet<String>),
}

impl To {
    /// All servers of the queue that are alive.
    pub fn live() -> Self {
        Self::Live
    }

    /// Those of them that have this label.
    pub fn labelled(label: impl Into<String>) -> Self {
        Self::Labelled(label.into())
    }

    /// So many of them, those with the most free slots.
    pub fn count(servers: u32) -> Self {
        Self::Count(servers)
    }

    /// The servers of these names.
    pub fn servers<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self::Servers(names.into_iter().map(Into::into).collect())
    }
}

/// As it stands on the command line.
impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live => f.write_str("live"),
            Self::Labelled(label) => write!(f, "label:{label}"),
            Self::Count(count) => write!(f, "count:{count}"),
            Self::Servers(names) => {
                write!(f, "server:{}", names.iter().map(String::as_str).collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl FromStr for To {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, of) = text.split_once(':').unwrap_or((text, ""));
        match (kind, of) {
            ("live", "") => Ok(Self::Live),
            ("label", label) if !label.is_empty() => Ok(Self::labelled(label)),
            ("count", count) => count.parse().map(Self::Count).map_err(|_| format!("{count:?} is not a number")),
            ("server", names) if !names.is_empty() => Ok(Self::servers(names.split(','))),
            _ => Err("it is live, label:L, count:N or server:S[,S]".to_owned()),
        }
    }
}

/// Why a live server cannot take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unfit {
    /// It does not serve the queue.
    OtherQueues,
    /// It serves no mailboxes: it is Go's, an older one of ours, or has begun this very moment.
    NoMailboxes,
    /// It was started without a name.
    Nameless,
    /// Another live server has the same name, and one of the two would do the work of both.
    SharedName,
    /// It takes no tasks: it is quiet, or about to end.
    Quiet,
    /// It has no handler for this type of task.
    NoHandler,
}

impl Unfit {
    /// For people: `it has no name`.
    pub fn why(self) -> &'static str {
        match self {
            Self::OtherQueues => "it does not serve the queue",
            Self::NoMailboxes => "it serves no mailboxes, as Go's servers and older ones",
            Self::Nameless => "it has no name",
            Self::SharedName => "another live server has its name",
            Self::Quiet => "it takes no tasks",
            Self::NoHandler => "it has no handler for this type of task",
        }
    }
}

/// A live server, and whether it can take part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name; of one without, `<host>:<pid>`.
    pub server: String,
    /// Its labels.
    pub labels: BTreeSet<String>,
    /// Tasks that it could begin now.
    pub free: i32,
    /// Why it cannot.
    pub unfit: Option<Unfit>,
}

impl Candidate {
    /// What a server says of itself, looked at for a task of this queue and type.
    pub fn new(info: &ServerInfo, entry: Option<&ServerEntry>, queue: &str, task_type: &str) -> Self {
        let name = entry.and_then(|entry| entry.name.clone());
        let handles = |entry: &ServerEntry| {
            entry.types.contains(task_type) || entry.prefixes.iter().any(|prefix| task_type.starts_with(&**prefix))
        };
        let unfit = match () {
            () if !info.queues.contains_key(queue) => Some(Unfit::OtherQueues),
            () if !honours(entry, TARGETS) => Some(Unfit::NoMailboxes),
            () if name.is_none() => Some(Unfit::Nameless),
            () if info.status != "active" => Some(Unfit::Quiet),
            () if !entry.is_some_and(handles) => Some(Unfit::NoHandler),
            () => None,
        };
        Self {
            server: name.unwrap_or_else(|| format!("{}:{}", info.host, info.pid)),
            labels: entry.map(|entry| entry.labels.clone()).unwrap_or_default(),
            free: info.concurrency.saturating_sub(info.active_worker_count),
            unfit,
        }
    }
}

/// A server that was left out, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Its name; of one without, `<host>:<pid>`.
    pub server: String,
    /// Why.
    pub why: Unfit,
}

/// `web-1 (it takes no tasks)`.
impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.server, self.why.why())
    }
}

/// Who was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chosen {
    /// Their names, sorted.
    pub servers: Vec<String>,
    /// Servers of the queue that would have been, if they could take part.
    pub left_out: Vec<LeftOut>,
}

/// Why nobody was chosen. Nothing was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AudienceError {
    /// Nobody is there who could take part.
    #[error("no live server of queue {queue:?} can take part{}", listed(left_out))]
    Nobody {
        /// The queue.
        queue: String,
        /// Those that are there.
        left_out: Vec<LeftOut>,
    },
    /// No live server has these names.
    #[error("no live server is called {}", names.join(", "))]
    Unknown {
        /// The names.
        names: Vec<String>,
    },
    /// A server that was named cannot take part.
    #[error("{} cannot take part", listed_first(.0))]
    Unfit(Vec<LeftOut>),
    /// Two live servers have one name.
    #[error(
        "two live servers are called {0}, and either might do the work of both; give each a name of its own. One that has crashed \
         counts as alive for 10 s"
    )]
    SharedName(String),
    /// There are fewer servers than were asked for.
    #[error("{found} live servers of queue {queue:?} can take part, and {wanted} are wanted{}", listed(left_out))]
    TooFew {
        /// The queue.
        queue: String,
        /// How many were asked for.
        wanted: u32,
        /// How many there are.
        found: usize,
        /// Those that are there and cannot.
        left_out: Vec<LeftOut>,
    },
    /// There are more servers than one broadcast can have.
    #[error(
        "there are {0} servers, and a broadcast goes to {BROADCAST_MAX_SERVERS} at the most; send several, by label say"
    )]
    TooMany(usize),
    /// More successes are wanted than there are servers.
    #[error("a quorum of {quorum} is not to be had of {servers} servers")]
    QuorumTooLarge {
        /// The quorum.
        quorum: u32,
        /// The servers that were chosen.
        servers: usize,
    },
    /// A count or a quorum of 0.
    #[error("the {0} is 0; it is at least 1")]
    Zero(&'static str),
}

/// `; left out: a (it has no name), b (it takes no tasks)`.
fn listed(left_out: &[LeftOut]) -> String {
    if left_out.is_empty() { String::new() } else { format!("; left out: {}", listed_first(left_out)) }
}

/// The first ten of them.
fn listed_first(left_out: &[LeftOut]) -> String {
    let mut texts: Vec<String> = left_out.iter().take(10).map(ToString::to_string).collect();
    texts.extend(left_out.len().checked_sub(10).filter(|more| *more > 0).map(|more| format!("and {more} more")));
    texts.join(", ")
}

/// Who of these servers is chosen, and whether a quorum of them is possible. Where a count leaves a choice, those with the most free slots are;
/// of equals, those that come first.
///
/// # Errors
/// See [`AudienceError`].
pub fn choose(
    to: &To,
    queue: &str,
    quorum: Option<u32>,
    mut candidates: Vec<Candidate>,
) -> Result<Chosen, AudienceError> {
    let mut known: BTreeMap<String, u32> = BTreeMap::new();
    for candidate in candidates.iter().filter(|candidate| candidate.unfit != Some(Unfit::Nameless)) {
        *known.entry(candidate.server.clone()).or_default() += 1;
    }
    let is_meant = |candidate: &Candidate| match to {
        To::Servers(names) => names.contains(&candidate.server),
        To::Labelled(label) if !candidate.labels.contains(label) => false,
        _ => candidate.unfit != Some(Unfit::OtherQueues),
    };
    candidates.retain(is_meant);
    let shared = |candidate: &Candidate| known.get(&candidate.server).is_some_and(|servers| *servers > 1);
    if let To::Count(_) = to {
        candidates.sort_by_key(|candidate| -i64::from(candidate.free));
        for candidate in candidates.iter_mut().filter(|candidate| shared(candidate)) {
            candidate.unfit = candidate.unfit.or(Some(Unfit::SharedName));
        }
    } else if let Some(shared) = candidates.iter().find(|candidate| candidate.unfit.is_none() && shared(candidate)) {
        return Err(AudienceError::SharedName(shared.server.clone()));
    }
    if let To::Servers(names) = to {
        let names: Vec<String> = names.iter().filter(|name| !known.contains_key(*name)).cloned().collect();
        if !names.is_empty() {
            return Err(AudienceError::Unknown { names });
        }
    }
    let left_out = |candidate: &Candidate| Some(LeftOut { server: candidate.server.clone(), why: candidate.unfit? });
    let mut left_out: Vec<LeftOut> = candidates.iter().filter_map(left_out).collect();
    left_out.sort_by(|a, b| a.server.cmp(&b.server));
    let fit = candidates.into_iter().filter(|candidate| candidate.unfit.is_none());
    let mut servers: Vec<String> = fit.map(|candidate| candidate.server).collect();
    match to {
        To::Servers(_) if !left_out.is_empty() => return Err(AudienceError::Unfit(left_out)),
        To::Count(0) => return Err(AudienceError::Zero("count")),
        To::Count(wanted) => {
            let (wanted, found) = (*wanted, servers.len());
            if found < wanted as usize {
                return Err(AudienceError::TooFew { queue: queue.to_owned(), wanted, found, left_out });
            }
            servers.truncate(wanted as usize);
        }
        _ => {}
    }
    match servers.len() {
        0 => return Err(AudienceError::Nobody { queue: queue.to_owned(), left_out }),
        many if many > BROADCAST_MAX_SERVERS => return Err(AudienceError::TooMany(many)),
        _ => {}
    }
    match quorum {
        Some(0) => return Err(AudienceError::Zero("quorum")),
        Some(quorum) if quorum as usize > servers.len() => {
            return Err(AudienceError::QuorumTooLarge { quorum, servers: servers.len() });
        }
        _ => {}
    }
    servers.sort();
    Ok(Chosen { servers, left_out })
}

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
        let mut known: BTreeMap<String, u32> = BTreeMap::new();
        for candidate in candidates.iter().filter(|candidate| candidate.unfit != Some(Unfit::Nameless)) {
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

/// Whether enough servers have succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// That may still be; or not.
    Open,
    /// As many as the quorum have.
    Reached,
    /// So many cannot any more, unless somebody runs again what is dead.
    Missed,
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

    /// `open`, `reached` or `missed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Reached => "reached",
            Self::Missed => "missed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(name: &str, free: i32) -> Candidate {
        Candidate { server: name.to_owned(), labels: BTreeSet::new(), free, unfit: None }
    }

    fn unfit(name: &str, why: Unfit) -> Candidate {
        Candidate { unfit: Some(why), ..live(name, 9) }
    }

    fn chosen(to: &To, candidates: &[Candidate]) -> Result<Vec<String>, AudienceError> {
        choose(to, "mail", None, candidates.to_vec()).map(|chosen| chosen.servers)
    }

    #[test]
    fn a_server_takes_part_if_it_could_take_the_task() {
        let info = |status: &str, queue: &str| ServerInfo {
            host: "h".to_owned(),
            pid: 7,
            status: status.to_owned(),
            queues: [(queue.to_owned(), 1)].into(),
            concurrency: 10,
            active_worker_count: 3,
            ..ServerInfo::default()
        };
        let mut entry = ServerEntry { name: Some("web-1".to_owned()), ..ServerEntry::default() };
        entry.features.insert(TARGETS.to_owned());
        entry.prefixes.insert("cache:".to_owned());
        let of = |status: &str, queue: &str, entry: Option<&ServerEntry>, task_type: &str| {
            let candidate = Candidate::new(&info(status, queue), entry, "mail", task_type);
            (candidate.server, candidate.free, candidate.unfit)
        };
        let named = |why| ("web-1".to_owned(), 7, why);
        assert_eq!(of("active", "mail", Some(&entry), "cache:flush"), named(None));
        assert_eq!(of("active", "mail", Some(&entry), "mail"), named(Some(Unfit::NoHandler)));
        assert_eq!(of("stopped", "mail", Some(&entry), "cache:flush"), named(Some(Unfit::Quiet)));
        assert_eq!(of("active", "news", Some(&entry), "cache:flush"), named(Some(Unfit::OtherQueues)));
        let go = of("active", "mail", None, "cache:flush");
        assert_eq!(go, ("h:7".to_owned(), 7, Some(Unfit::NoMailboxes)));
        entry.name = None;
        assert_eq!(of("active", "mail", Some(&entry), "cache:flush").2, Some(Unfit::Nameless));
        entry.features.clear();
        assert_eq!(of("active", "mail", Some(&entry), "cache:flush").2, Some(Unfit::NoMailboxes));
    }

    #[test]
    fn all_live_servers_of_the_queue_are_chosen_and_those_left_out_are_named() {
        let servers = [
            live("b", 0),
            live("a", 5),
            unfit("h:1", Unfit::NoMailboxes),
            unfit("news", Unfit::OtherQueues),
            unfit("c", Unfit::Quiet),
        ];
        let all = choose(&To::live(), "mail", None, servers.to_vec()).unwrap();
        assert_eq!(all.servers, ["a", "b"]);
        let left_out: Vec<String> = all.left_out.iter().map(ToString::to_string).collect();
        assert_eq!(left_out, ["c (it takes no tasks)", "h:1 (it serves no mailboxes, as Go's servers and older ones)"]);
        let error = chosen(&To::live(), &servers[2..]).unwrap_err().to_string();
        assert!(error.starts_with("no live server of queue \"mail\" can take part; left out: c ("), "{error}");
        assert!(!error.contains("news"), "{error}");
        let labelled = Candidate { labels: ["gpu".to_owned()].into(), ..live("g", 1) };
        let servers = [live("a", 1), labelled, unfit("h:1", Unfit::NoMailboxes)];
        let gpu = choose(&To::labelled("gpu"), "mail", None, servers.to_vec()).unwrap();
        assert_eq!((gpu.servers, gpu.left_out), (vec!["g".to_owned()], Vec::new()));
        assert!(matches!(chosen(&To::labelled("tpu"), &servers), Err(AudienceError::Nobody { .. })));
    }

    #[test]
    fn a_count_takes_those_with_the_most_free_slots_and_is_not_met_by_fewer() {
        let servers = [live("a", 1), live("b", 3), live("c", 1), live("d", 2)];
        assert_eq!(chosen(&To::count(3), &servers).unwrap(), ["a", "b", "d"]);
        let error = chosen(&To::count(5), &servers).unwrap_err();
        assert!(matches!(error, AudienceError::TooFew { wanted: 5, found: 4, .. }), "{error}");
        assert_eq!(chosen(&To::count(0), &servers), Err(AudienceError::Zero("count")));
        // Two of one name are none.
        let twins = [live("a", 9), live("a", 9), live("b", 1), live("c", 1)];
        assert_eq!(chosen(&To::count(2), &twins).unwrap(), ["b", "c"]);
        let error = chosen(&To::count(3), &twins).unwrap_err().to_string();
        assert!(error.contains("a (another live server has its name)"), "{error}");
    }

    #[test]
    fn two_servers_of_one_name_are_refused_where_both_are_meant() {
        let twins = [live("a", 9), unfit("a", Unfit::Quiet), live("b", 1)];
        let shared = Err(AudienceError::SharedName("a".to_owned()));
        assert_eq!(chosen(&To::live(), &twins), shared);
        assert_eq!(chosen(&To::servers(["a"]), &twins), shared);
        assert_eq!(chosen(&To::servers(["b"]), &twins).unwrap(), ["b"]);
        // Also if the other one serves another queue: the mailbox is that of the name.
        let elsewhere = [live("a", 9), unfit("a", Unfit::OtherQueues)];
        assert_eq!(chosen(&To::live(), &elsewhere), Err(AudienceError::SharedName("a".to_owned())));
    }

    #[test]
    fn servers_that_are_named_have_to_be_there_and_to_fit() {
        let servers = [live("a", 1), unfit("b", Unfit::Quiet), live("c", 1)];
        assert_eq!(chosen(&To::servers(["c", "a"]), &servers).unwrap(), ["a", "c"]);
        let names = vec!["x".to_owned(), "y".to_owned()];
        assert_eq!(chosen(&To::servers(["x", "a", "y"]), &servers), Err(AudienceError::Unknown { names }));
        let error = chosen(&To::servers(["a", "b"]), &servers).unwrap_err().to_string();
        assert_eq!(error, "b (it takes no tasks) cannot take part");
        assert!(matches!(chosen(&To::Servers(BTreeSet::new()), &servers), Err(AudienceError::Nobody { .. })));
    }

    #[test]
    fn a_quorum_is_possible_or_refused_and_there_is_an_end_of_servers() {
        let servers = [live("a", 1), live("b", 1)];
        let with = |quorum| choose(&To::live(), "mail", quorum, servers.to_vec()).map(|_| ());
        assert_eq!((with(None), with(Some(2))), (Ok(()), Ok(())));
        assert_eq!(with(Some(3)), Err(AudienceError::QuorumTooLarge { quorum: 3, servers: 2 }));
        assert_eq!(with(Some(0)), Err(AudienceError::Zero("quorum")));
        let many: Vec<Candidate> = (0..=BROADCAST_MAX_SERVERS).map(|n| live(&n.to_string(), 1)).collect();
        assert_eq!(chosen(&To::live(), &many), Err(AudienceError::TooMany(BROADCAST_MAX_SERVERS + 1)));
        assert_eq!(chosen(&To::live(), &many[1..]).unwrap().len(), BROADCAST_MAX_SERVERS);
    }

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
        let servers =
            [live("a", 9), live("b", 1), gpu, live("twin", 9), unfit("twin", Unfit::Quiet), unfit("q", Unfit::Quiet)];
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

    #[test]
    fn an_audience_is_read_as_it_is_written() {
        for text in ["live", "label:gpu", "count:3", "server:a,b"] {
            assert_eq!(text.parse::<To>().unwrap().to_string(), text);
        }
        for text in ["", "all", "live:x", "label", "label:", "count", "count:x", "count:-1", "server:"] {
            assert!(text.parse::<To>().is_err(), "{text:?}");
        }
    }
}

//! Whom a broadcast is for, and who of those that are alive takes part.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::limits::BROADCAST_MAX_SERVERS;
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
        let unfit = match () {
            () if !info.queues.contains_key(queue) => Some(Unfit::OtherQueues),
            () if !honours(entry, TARGETS) => Some(Unfit::NoMailboxes),
            () if name.is_none() => Some(Unfit::Nameless),
            () if info.status != "active" => Some(Unfit::Quiet),
            () if !entry.is_some_and(|entry| entry.handles(task_type)) => Some(Unfit::NoHandler),
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
    // How many servers of the queue have this name: each queue has a mailbox of its own for it.
    let mut known: BTreeMap<String, u32> = BTreeMap::new();
    for candidate in candidates.iter().filter(|candidate| candidate.unfit != Some(Unfit::Nameless)) {
        let here = candidate.unfit != Some(Unfit::OtherQueues);
        *known.entry(candidate.server.clone()).or_default() += u32::from(here);
    }
    let of_name = |candidate: &Candidate| known.get(&candidate.server).copied().unwrap_or(0);
    let is_meant = |candidate: &Candidate| match (to, candidate.unfit == Some(Unfit::OtherQueues)) {
        (To::Servers(names), is_elsewhere) => {
            names.contains(&candidate.server) && !(is_elsewhere && of_name(candidate) > 0)
        }
        (To::Labelled(label), _) if !candidate.labels.contains(label) => false,
        (_, is_elsewhere) => !is_elsewhere,
    };
    candidates.retain(is_meant);
    let shared = |candidate: &Candidate| of_name(candidate) > 1;
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn live(name: &str, free: i32) -> Candidate {
        Candidate { server: name.to_owned(), labels: BTreeSet::new(), free, unfit: None }
    }

    pub(crate) fn unfit(name: &str, why: Unfit) -> Candidate {
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
        // A server of another queue has another mailbox.
        let elsewhere = [unfit("a", Unfit::OtherQueues), live("a", 9)];
        assert_eq!(chosen(&To::live(), &elsewhere).unwrap(), ["a"]);
        assert_eq!(chosen(&To::servers(["a"]), &elsewhere).unwrap(), ["a"]);
        let error = chosen(&To::servers(["a"]), &elsewhere[..1]).unwrap_err().to_string();
        assert_eq!(error, "a (it does not serve the queue) cannot take part");
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
    fn an_audience_is_read_as_it_is_written() {
        for text in ["live", "label:gpu", "count:3", "server:a,b"] {
            assert_eq!(text.parse::<To>().unwrap().to_string(), text);
        }
        for text in ["", "all", "live:x", "label", "label:", "count", "count:x", "count:-1", "server:"] {
            assert!(text.parse::<To>().is_err(), "{text:?}");
        }
    }
}

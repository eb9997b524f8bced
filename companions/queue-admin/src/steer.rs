//! Orders to servers, and what became of them.

use std::collections::BTreeMap;

use queue_core::Clock as _;
use queue_core::registry::{Mode, ORDERS, Order, honours};
use queue_redis::broker::Ordered;

use super::Inspector;
use crate::admin::Admin;
use crate::audit::Target;
use crate::error::Error;
use crate::servers::ServerInfo;
use crate::verb::{Action, ServerVerb};

/// So much of an id is enough to name a server.
const ID_BEGINNING: usize = 8;

/// An order that was recorded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Given {
    /// What servers that have seen it say.
    pub revision: String,
    /// The servers that it is for, as they were before.
    pub servers: Vec<ServerInfo>,
    /// The name that it was given by.
    name: Option<String>,
    /// What was ordered; nothing, if all was taken back.
    order: Order,
}

/// What a server has made of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heeded {
    /// It has not said anything yet.
    NotYet,
    /// It goes by it, but for what it refuses.
    Applied {
        /// What of this order it cannot do, and why. What it refuses of earlier ones stands in its entry.
        refused: Vec<String>,
    },
    /// It is no longer there.
    Ended,
}

impl Inspector {
    /// The servers that are alive and meant by this: all of a name, or one by its id, the first 8 letters of that, or
    /// `<host>:<pid>`, which may be several in one process. Whether that is a name.
    ///
    /// # Errors
    /// [`Error::ServerNotFound`]; or Redis cannot be asked or refuses.
    pub async fn find_servers(&self, whom: &str) -> Result<(Vec<ServerInfo>, bool), Error> {
        let all = self.servers().await?;
        let is_called = |server: &ServerInfo| server.name() == Some(whom);
        let is_name = all.iter().any(is_called);
        let is_meant = |server: &ServerInfo| match is_name {
            true => is_called(server),
            false => {
                let begins = whom.len() >= ID_BEGINNING && server.id.starts_with(whom);
                begins || whom == server.key() || whom == format!("{}:{}", server.host, server.pid)
            }
        };
        let meant: Vec<ServerInfo> = all.into_iter().filter(is_meant).collect();
        if meant.is_empty() {
            return Err(Error::ServerNotFound(whom.to_owned()));
        }
        Ok((meant, is_name))
    }

    /// What the servers have made of an order, with what they say of themselves now.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn heeded(&self, given: &Given) -> Result<Vec<(ServerInfo, Heeded)>, Error> {
        let mut now: BTreeMap<String, ServerInfo> =
            self.servers().await?.into_iter().map(|server| (server.id.clone(), server)).collect();
        let of_name = match &given.name {
            Some(name) => self.broker().last_order(Ordered::Name(name)).await?,
            None => None,
        };
        let mut heeded = Vec::with_capacity(given.servers.len());
        for before in &given.servers {
            let Some(server) = now.remove(&before.id) else {
                heeded.push((before.clone(), Heeded::Ended));
                continue;
            };
            let applied = match &server.entry {
                None => None,
                Some(entry) if entry.applied.contains(&given.revision) => Some(entry),
                // Of orders that are given at one moment a server sees the last, and goes by them all.
                Some(entry) => {
                    let last = match &given.name {
                        Some(_) => of_name.clone(),
                        None => self.broker().last_order(Ordered::Server(&server.key())).await?,
                    };
                    last.is_some_and(|last| entry.applied.contains(&last)).then_some(entry)
                }
            };
            let refused = |all: &[String]| all.iter().filter(|one| given.order.is_refused_by(one)).cloned().collect();
            let applied = applied.map(|entry| Heeded::Applied { refused: refused(&entry.refused) });
            heeded.push((server, applied.unwrap_or(Heeded::NotYet)));
        }
        Ok(heeded)
    }
}

impl Admin {
    /// Orders servers to be quiet, to resume, to stop, to change what `set` says, or takes all orders back. What is ordered by
    /// name is for all servers of that name, also those that start later; but stop is only for those that are there. See
    /// [`Inspector::heeded`] for what they make of it, and [`Inspector::find_servers`] for who is meant.
    ///
    /// # Errors
    /// [`Error::ServerNotFound`]; [`Error::TakesNoOrders`] if one of them is Go's or an older one of ours; then nothing was
    /// ordered. [`Error::Forbidden`], [`Error::Unaudited`]; or Redis cannot be asked or refuses.
    pub async fn order(&self, verb: ServerVerb, whom: &str, set: &Order) -> Result<Given, Error> {
        let text = (verb == ServerVerb::Set).then(|| text(set));
        let target = Target { ids: &[whom], filter: text, ..Target::default() };
        let work = self.give(verb, whom, set);
        self.audited(Action::Server(verb), target, work, |given| Some(given.servers.len() as u64)).await
    }

    async fn give(&self, verb: ServerVerb, whom: &str, set: &Order) -> Result<Given, Error> {
        let inspector = self.inspector();
        let found = inspector.find_servers(whom).await;
        let (servers, is_name) = match found {
            // Those that have the order are gone, and the next of this name is not to go by it.
            Err(Error::ServerNotFound(_)) if verb == ServerVerb::Reset => (Vec::new(), true),
            found => found?,
        };
        if let Some(server) = servers.iter().find(|server| !honours(server.entry.as_ref(), ORDERS)) {
            return Err(Error::TakesNoOrders { host: server.host.clone(), pid: server.pid });
        }
        let mode = |mode| Order { mode: Some(mode), ..Order::default() };
        let order = match verb {
            ServerVerb::Quiet => Some(mode(Mode::Quiet)),
            ServerVerb::Resume => Some(mode(Mode::Active)),
            ServerVerb::Stop => Some(mode(Mode::Stop)),
            ServerVerb::Set => Some(set.clone()),
            ServerVerb::Reset => None,
        };
        let now_ms = inspector.clock.now_ms();
        let revision = uuid::Uuid::new_v4().to_string();
        let (broker, by) = (inspector.broker(), &*self.actor().name);
        let name = (is_name && verb != ServerVerb::Stop).then(|| whom.to_owned());
        if name.is_some() {
            // A name without a server is one only if somebody has given it orders.
            if servers.is_empty() && !broker.has_orders(whom).await? {
                return Err(Error::ServerNotFound(whom.to_owned()));
            }
            broker.order(Ordered::Name(whom), order.as_ref(), &revision, by, now_ms).await?;
        } else {
            for server in &servers {
                broker.order(Ordered::Server(&server.key()), order.as_ref(), &revision, by, now_ms).await?;
            }
        }
        Ok(Given { revision, servers, name, order: order.unwrap_or_default() })
    }
}

/// What was set, for the audit.
fn text(set: &Order) -> String {
    let concurrency = set.concurrency.map(|tasks| format!("concurrency={tasks}"));
    let queues = set.queues.iter().map(|(queue, weight)| format!("{queue}={weight}"));
    concurrency.into_iter().chain(queues).collect::<Vec<_>>().join(" ")
}

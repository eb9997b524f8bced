//! A Redis Cluster: every call goes to the node that has its keys.
//!
//! Each node is a [`Server`] with connections of its own, so that what holds for one server (every wait has an end,
//! a node that hangs is noticed, what may have run is not sent again) holds for each node. The cluster connection
//! of the redis crate was rejected for that: it sends again, up to 16 times, what may have run; it goes on waiting
//! for a node that hangs; and it refuses a pipeline whose keys are on several nodes.
//!
//! What is sent again here is only what certainly did not run: after `MOVED`, `ASK` and `TRYAGAIN`, and when no
//! connection could be made.

mod slots;
mod way;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, select_ok};
use queue_core::keys::slot_of;
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisFuture, RedisResult, Value};

pub(crate) use self::way::{Lents, Way};
use crate::address::{NodeAddress, Nodes};
use crate::error::Error;
use crate::link::joint::Joint;
use crate::link::server::{Lent, Request, Server};
use crate::link::source::Source;
use crate::options::RedisOptions;
use crate::script::{Dialect, Script, word};

/// Pauses while a slot moves from one node to another.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How often a call may be sent elsewhere before something is wrong with the cluster.
const MOST_REDIRECTS: u32 = 8;

/// How long one look at which node has which slots serves everybody who wants one.
const LOOK_SERVES: Duration = Duration::from_millis(100);

/// The nodes of a cluster.
pub(crate) struct Cluster {
    address: Nodes,
    options: RedisOptions,
    /// The nodes that the user named.
    seeds: Vec<Node>,
    /// A std mutex: it is held for a look-up, never across an await.
    known: Mutex<Known>,
    /// Which node has which slots is asked once, and not by every caller.
    looking: Joint<()>,
    /// Whether somebody does so in the background.
    behind: AtomicBool,
}

#[derive(Clone)]
pub(crate) struct Node {
    address: NodeAddress,
    pub(crate) server: Arc<Server>,
}

/// Who serves what, as far as we know.
#[derive(Default)]
struct Known {
    masters: Vec<Node>,
    /// For each slot, which of the masters has it; empty until it was asked for.
    owners: Vec<Option<u16>>,
    looked_at: Option<Instant>,
}

impl Cluster {
    pub(crate) fn new(address: Nodes, options: RedisOptions) -> Result<Arc<Self>, Error> {
        let mut cluster = Self {
            seeds: Vec::new(),
            address,
            options,
            known: Mutex::default(),
            looking: Joint::default(),
            behind: AtomicBool::default(),
        };
        let named = cluster.address.named().to_vec();
        cluster.seeds = named.into_iter().map(|address| cluster.node(address)).collect::<Result<_, _>>()?;
        Ok(Arc::new(cluster))
    }

    fn node(&self, address: NodeAddress) -> Result<Node, Error> {
        let source = Source::network(&self.address.at(&address)?, &self.options)?;
        let server = Server::new(source, address.to_string(), self.options.clone(), Dialect::Guarded);
        Ok(Node { address, server: Arc::new(server) })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        // Nothing panics while it is held; a poisoned lock is still consistent.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a call of a script, or a command, to the node that has its keys.
    pub(crate) async fn send(
        self: &Arc<Self>,
        way: Way<'_>,
        operation: &'static str,
        request: Request<'_>,
    ) -> Result<Value, Error> {
        let (Request::Script(_, command, _) | Request::Command(command) | Request::Asking(command)) = request;
        match (slot_of_command(command), request) {
            (None, _) => self.send_anywhere(way, operation, request).await,
            (Some(slot), Request::Script(script, call, deadline)) => match script.guard(call) {
                Some(guarded) => {
                    self.send_to_slot(way, slot, operation, Request::Script(script, &guarded, deadline)).await
                }
                None => Err(Error::unexpected(operation, &"a call without keys")),
            },
            (Some(slot), _) => self.send_to_slot(way, slot, operation, request).await,
        }
    }

    /// Sends something that any node can answer.
    async fn send_anywhere(
        self: &Arc<Self>,
        mut way: Way<'_>,
        operation: &'static str,
        request: Request<'_>,
    ) -> Result<Value, Error> {
        self.look_first().await?;
        let masters = self.lock().masters.clone();
        let mut failed = self.nobody_serves(operation, None);
        for node in masters {
            match way.send(&node, operation, request).await {
                Err(error) if error.is_transient() => failed = error,
                answered => return answered,
            }
        }
        self.look_behind();
        Err(failed)
    }

    /// Sends something to the node that has this slot.
    pub(crate) async fn send_to_slot(
        self: &Arc<Self>,
        mut way: Way<'_>,
        slot: u16,
        operation: &'static str,
        request: Request<'_>,
    ) -> Result<Value, Error> {
        let deadline = Instant::now() + self.options.response_timeout;
        let (mut redirects, mut moves, mut pause) = (0, 0, FIRST_PAUSE);
        let mut asked: Option<Node> = None;
        loop {
            let (node, sent) = match (asked.take(), request) {
                (Some(node), Request::Command(command)) => (node, Request::Asking(command)),
                _ => (self.owner(slot, operation).await?, request),
            };
            let error = match way.send(&node, operation, sent).await {
                Err(error) => error,
                answered => return answered,
            };
            let code = code_of(&error);
            match code {
                Some("MOVED") if moves < 2 || is_patient(request) && Instant::now() + pause < deadline => {
                    self.moved(&error, &node)?;
                    if moves >= 2 {
                        // Two nodes that name each other agree in a moment.
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    moves += 1;
                }
                Some("ASK") if redirects < MOST_REDIRECTS && matches!(request, Request::Command(_)) => {
                    redirects += 1;
                    asked = self.redirected(&error, &node)?.map(|(_, node)| node);
                }
                // Who takes tasks looks at other queues meanwhile, and comes back.
                Some("TRYAGAIN" | "ASK") if is_patient(request) && Instant::now() + pause < deadline => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                _ if matches!(error, Error::Unreachable { .. }) && redirects < MOST_REDIRECTS => {
                    // Nothing was sent. If another node has the slot by now, it is for that one.
                    redirects += 1;
                    self.look().await?;
                    if self.known_owner(slot).is_none_or(|owner| owner.address == node.address) {
                        return Err(error);
                    }
                }
                Some("ASK" | "MOVED") => return Err(moving(operation)),
                _ => {
                    if error.is_transient() || error.is_wrong_server() {
                        self.look_behind();
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Makes calls of a script, all of them at the same time, on connections of one's own; returns the replies in
    /// order. A node that does not answer does not keep the calls from the others.
    pub(crate) async fn send_all(
        self: &Arc<Self>,
        lents: &mut Lents,
        script: &'static Script,
        calls: &[Cmd],
    ) -> Vec<Result<Value, Error>> {
        let usage = lents.usage;
        let deadline = Instant::now() + self.options.response_timeout;
        let mut pause = FIRST_PAUSE;
        let unsent = || Err(Error::unexpected(script.name, &"a call without keys"));
        let mut replies: Vec<Result<Value, Error>> = calls.iter().map(|_| unsent()).collect();
        let mut open: Vec<usize> = (0..calls.len()).collect();
        while !open.is_empty() {
            let mut parts: HashMap<NodeAddress, (Node, Vec<usize>, Vec<Cmd>)> = HashMap::new();
            for at in open.drain(..) {
                let (Some(slot), Some(guarded)) = (slot_of_command(&calls[at]), script.guard(&calls[at])) else {
                    continue;
                };
                match self.owner(slot, script.name).await {
                    Ok(node) => {
                        let part = parts.entry(node.address.clone()).or_insert((node, Vec::new(), Vec::new()));
                        part.1.push(at);
                        part.2.push(guarded);
                    }
                    Err(error) => replies[at] = Err(error),
                }
            }
            let flights = parts.into_values().map(|(node, positions, calls)| {
                let lent = lents.by_node.remove(&node.address).filter(|lent| !lent.is_broken());
                async move {
                    let lent = match lent {
                        Some(lent) => Ok(lent),
                        None => Lent::of(&node.server, usage).await,
                    };
                    let answers = match lent {
                        Ok(mut lent) => (lent.send_all(script, &calls).await, Some(lent)),
                        Err(error) => (calls.iter().map(|_| Err(error.clone())).collect(), None),
                    };
                    (node, positions, answers)
                }
            });
            for (node, positions, (answers, lent)) in join_all(flights).await {
                lents.by_node.extend(lent.map(|lent| (node.address.clone(), lent)));
                for (at, answer) in positions.into_iter().zip(answers) {
                    if let Err(error) = &answer {
                        let code = code_of(error);
                        if code == Some("MOVED") {
                            // Where it says nothing that can be used, the next look does.
                            let _ = self.moved(error, &node);
                        } else if error.is_transient() || error.is_wrong_server() {
                            self.look_behind();
                        }
                        if code.is_some_and(|code| ["MOVED", "ASK", "TRYAGAIN"].contains(&code))
                            && Instant::now() + pause < deadline
                        {
                            open.push(at);
                        }
                    }
                    replies[at] = answer.map_err(|error| match code_of(&error) {
                        Some("ASK" | "MOVED") => moving(script.name),
                        _ => error,
                    });
                }
            }
            if !open.is_empty() {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        replies
    }

    /// Sends each command of a pipeline to the node that has its keys; returns the replies in order.
    pub(crate) async fn pipeline(
        self: &Arc<Self>,
        mut way: Way<'_>,
        operation: &'static str,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, Error> {
        if pipeline.is_transaction() {
            return self.transaction(way, operation, pipeline).await;
        }
        let commands: Vec<&Cmd> = pipeline.cmd_iter().collect();
        let mut parts: Vec<(Node, Pipeline, Vec<usize>)> = Vec::new();
        for (position, command) in commands.iter().enumerate() {
            let node = self.owner(slot_of_command(command).unwrap_or(0), operation).await?;
            let part = match parts.iter().position(|(other, ..)| other.address == node.address) {
                Some(part) => part,
                None => {
                    parts.push((node, redis::pipe(), Vec::new()));
                    parts.len() - 1
                }
            };
            parts[part].1.add_command((*command).clone());
            parts[part].2.push(position);
        }
        let answers = match &mut way {
            Way::Shared => join_all(parts.iter().map(|(node, part, _)| node.server.replies(operation, part))).await,
            way => {
                let mut answers = Vec::with_capacity(parts.len());
                for (node, part, _) in &parts {
                    answers.push(way.replies(node, operation, part).await);
                }
                answers
            }
        };
        let mut replies = vec![Value::Nil; commands.len()];
        let alone = answers.len() == 1;
        for ((_, _, positions), answer) in parts.into_iter().zip(answers) {
            match answer {
                Ok(answers) => positions.iter().zip(answers).for_each(|(position, reply)| replies[*position] = reply),
                Err(error) => {
                    self.look_behind();
                    if alone {
                        return Err(error);
                    }
                    // The other nodes' answers are worth having.
                    positions.iter().for_each(|position| replies[*position] = unanswered(&error.to_string()));
                }
            }
        }
        for (position, command) in commands.into_iter().enumerate() {
            if !is_redirect(&replies[position]) {
                continue;
            }
            let Some(slot) = slot_of_command(command) else { continue };
            let own = match &mut way {
                Way::Shared => Way::Shared,
                Way::Own(lents) => Way::Own(lents),
            };
            replies[position] = match self.send_to_slot(own, slot, operation, Request::Command(command)).await {
                Ok(reply) => reply,
                Err(error) if alone => return Err(error),
                Err(error) => unanswered(&error.to_string()),
            };
        }
        Ok(replies)
    }

    /// All commands of a transaction have the same key.
    async fn transaction(
        self: &Arc<Self>,
        mut way: Way<'_>,
        operation: &'static str,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, Error> {
        let slot = pipeline.cmd_iter().find_map(slot_of_command).unwrap_or(0);
        let deadline = Instant::now() + self.options.response_timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            let node = self.owner(slot, operation).await?;
            let error = match way.replies(&node, operation, pipeline).await {
                Err(error) => error,
                answered => return answered,
            };
            // Refused as a whole because a command of it was refused: nothing of it ran.
            let refused = code_of(&error).is_some_and(|code| ["MOVED", "ASK", "TRYAGAIN", "EXECABORT"].contains(&code));
            if !refused || Instant::now() + pause >= deadline {
                if error.is_transient() {
                    self.look_behind();
                }
                return Err(error);
            }
            self.look().await?;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The nodes that have slots.
    pub(crate) async fn masters(self: &Arc<Self>) -> Result<Vec<Arc<Server>>, Error> {
        self.look().await?;
        Ok(self.lock().masters.iter().map(|node| node.server.clone()).collect())
    }

    /// The node that has the keys of a command, as far as is known.
    pub(crate) fn server_of_command(&self, command: &Cmd) -> Option<Arc<Server>> {
        self.known_owner(slot_of_command(command)?).map(|node| node.server)
    }

    /// Takes note of what a node answered: that a slot is elsewhere.
    pub(crate) fn heard(self: &Arc<Self>, message: &str, from: &Arc<Server>) {
        let from = self.lock().masters.iter().find(|node| Arc::ptr_eq(&node.server, from)).cloned();
        if let Some((slot, address)) = from.and_then(|from| slots::redirect(message, &from.address)) {
            if let Ok(node) = self.node_at(address) {
                self.lock().assign(slot, node);
            }
            self.look_behind();
        }
    }

    async fn owner(self: &Arc<Self>, slot: u16, operation: &'static str) -> Result<Node, Error> {
        if let Some(owner) = self.known_owner(slot) {
            return Ok(owner);
        }
        self.look().await?;
        self.known_owner(slot).ok_or_else(|| self.nobody_serves(operation, Some(slot)))
    }

    pub(crate) fn known_owner(&self, slot: u16) -> Option<Node> {
        let known = self.lock();
        let owner = (*known.owners.get(usize::from(slot))?)?;
        known.masters.get(usize::from(owner)).cloned()
    }

    fn nobody_serves(&self, operation: &'static str, slot: Option<u16>) -> Error {
        let message =
            slot.map_or("no node of the cluster has slots".to_owned(), |slot| format!("no node serves slot {slot}"));
        Error::Refused { operation, code: "CLUSTERDOWN".to_owned(), message, hint: crate::error::hint("CLUSTERDOWN") }
    }

    fn moved(self: &Arc<Self>, error: &Error, from: &Node) -> Result<(), Error> {
        if let Some((slot, node)) = self.redirected(error, from)? {
            self.lock().assign(slot, node);
        }
        // One slot seldom moves alone.
        self.look_behind();
        Ok(())
    }

    fn redirected(&self, error: &Error, from: &Node) -> Result<Option<(u16, Node)>, Error> {
        let Error::Refused { message, .. } = error else { return Ok(None) };
        let Some((slot, address)) = slots::redirect(message, &from.address) else { return Err(error.clone()) };
        Ok(Some((slot, self.node_at(address)?)))
    }

    fn node_at(&self, address: NodeAddress) -> Result<Node, Error> {
        let known = self.lock();
        let found = known.masters.iter().chain(&self.seeds).find(|node| node.address == address).cloned();
        drop(known);
        found.map_or_else(|| self.node(address), Ok)
    }

    async fn look_first(self: &Arc<Self>) -> Result<(), Error> {
        let known = !self.lock().masters.is_empty();
        if known { Ok(()) } else { self.look().await }
    }

    /// Asks which node has which slots; whoever answers first is believed.
    async fn look(self: &Arc<Self>) -> Result<(), Error> {
        let cluster = self.clone();
        self.looking.ask(&self.address, &self.options, async move { cluster.look_once().await }).await
    }

    async fn look_once(&self) -> Result<(), Error> {
        if self.lock().looked_at.is_some_and(|at| at.elapsed() < LOOK_SERVES) {
            return Ok(());
        }
        let mut candidates = self.lock().masters.clone();
        for seed in &self.seeds {
            if !candidates.iter().any(|node| node.address == seed.address) {
                candidates.push(seed.clone());
            }
        }
        let ask = |node: Node| async move {
            let reply = node.server.send("CLUSTER SLOTS", Request::Command(redis::cmd("CLUSTER").arg("SLOTS"))).await?;
            let ranges = slots::read(&reply, &node.address)?;
            if ranges.is_empty() { Err(self.nobody_serves("CLUSTER SLOTS", None)) } else { Ok(ranges) }
        };
        let (ranges, _) = select_ok(candidates.into_iter().map(|node| Box::pin(ask(node)))).await?;
        let mut fresh = Known { looked_at: Some(Instant::now()), ..Known::default() };
        for range in ranges {
            let node = self.node_at(range.master)?;
            for slot in range.first..=range.last {
                fresh.assign(slot, node.clone());
            }
        }
        *self.lock() = fresh;
        Ok(())
    }

    /// Does so in the background, if nobody does already.
    fn look_behind(self: &Arc<Self>) {
        if self.behind.swap(true, Ordering::AcqRel) {
            return;
        }
        let cluster = self.clone();
        tokio::spawn(async move {
            // A failure is met again by the next call that needs to know.
            let _ = cluster.look().await;
            tokio::time::sleep(LOOK_SERVES).await;
            cluster.behind.store(false, Ordering::Release);
        });
    }
}

impl Known {
    fn assign(&mut self, slot: u16, node: Node) {
        let owner = match self.masters.iter().position(|known| known.address == node.address) {
            Some(owner) => owner,
            None => {
                self.masters.push(node);
                self.masters.len() - 1
            }
        };
        self.owners.resize(usize::from(slots::SLOTS), None);
        self.owners[usize::from(slot)] = u16::try_from(owner).ok();
    }
}

/// Whether a call waits while its slot moves. A take does not: there are other queues.
fn is_patient(request: Request<'_>) -> bool {
    !matches!(request, Request::Script(script, ..) if script.name.starts_with("dequeue"))
}

/// The slot moves, and not all of its keys are where they will be.
fn moving(operation: &'static str) -> Error {
    let (code, message) = ("TRYAGAIN".to_owned(), "the slot is moving".to_owned());
    let hint = crate::error::hint(&code);
    Error::Refused { operation, code, message, hint }
}

fn code_of(error: &Error) -> Option<&str> {
    match error {
        Error::Refused { code, .. } => Some(code),
        _ => None,
    }
}

/// Whether a node says that the key is, or may be, elsewhere.
fn is_redirect(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if ["MOVED", "ASK", "TRYAGAIN"].contains(&error.code()))
}

/// Stands for the answer of a node that gave none.
pub(crate) fn unanswered(why: &str) -> Value {
    let line = format!("-CLUSTERDOWN {}\r\n", why.replace(['\r', '\n'], " "));
    redis::parse_redis_value(line.as_bytes()).unwrap_or(Value::Nil)
}

/// The slot of the first key of a command; none where it has no key. All keys of a command are in one slot.
fn slot_of_command(command: &Cmd) -> Option<u16> {
    let mut words = command.args_iter().filter_map(word);
    let name = words.next()?;
    let key = match name.to_ascii_uppercase().as_slice() {
        b"PING" | b"INFO" | b"TIME" | b"CLUSTER" | b"PUBLISH" | b"SCAN" => None,
        b"EVALSHA" => words.nth(2),
        b"MEMORY" => words.nth(1),
        _ => words.next(),
    };
    key.map(slot_of)
}

/// Reads replies as the pipeline would that they answer.
pub(crate) async fn replay(pipeline: &Pipeline, replies: Vec<Value>) -> RedisResult<Value> {
    pipeline.query_async(&mut Replay(replies)).await
}

struct Replay(Vec<Value>);

impl ConnectionLike for Replay {
    fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(std::future::ready(Ok(self.0.pop().unwrap_or(Value::Nil))))
    }

    fn req_packed_commands<'a>(&'a mut self, _: &'a Pipeline, _: usize, _: usize) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(std::future::ready(Ok(std::mem::take(&mut self.0))))
    }

    fn get_db(&self) -> i64 {
        0
    }
}

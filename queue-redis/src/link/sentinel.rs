//! The master that Sentinel names.
//!
//! The redis crate's client for Sentinel was rejected: it asks once, when a connection is made, so that a connection
//! that is held stays with a master that is one no longer. Here the Sentinels are asked again whenever a call shows
//! that something is wrong, and one of them is listened to, who tells of a failover at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::{RedisResult, Value};

use crate::address::{NodeAddress, Watched};
use crate::error::Error;
use crate::link::dial::Dialer;
use crate::link::joint::Joint;
use crate::link::server::{Lent, Server};
use crate::link::source::{Source, Use};
use crate::options::RedisOptions;
use crate::script::Dialect;

/// How much longer than the first Sentinel the others may take to answer: one that was cut off may be behind.
const OTHERS_WITHIN: Duration = Duration::from_millis(200);

/// How often a Sentinel that tells nothing is asked for a sign of life, and how long before another is tried.
const SILENCE: Duration = Duration::from_secs(5);
const NEXT_AFTER: Duration = Duration::from_millis(500);

/// Sentinels, and the master they name.
pub(crate) struct Sentinel {
    address: Watched,
    sentinels: Arc<[Dialer]>,
    target: String,
    options: RedisOptions,
    /// A std mutex: it is held for a look, never across an await.
    known: Mutex<Known>,
    /// They are asked once, and not by every caller.
    asking: Joint<Arc<Server>>,
    listening: AtomicBool,
}

#[derive(Default)]
struct Known {
    master: Option<(NodeAddress, Arc<Server>)>,
    /// Whether there is no reason to ask again.
    settled: bool,
}

/// What a Sentinel says of the master; the higher epoch is the younger word.
struct Word {
    epoch: u64,
    address: NodeAddress,
}

impl Sentinel {
    pub(crate) fn new(address: Watched, options: RedisOptions) -> Arc<Self> {
        let target = address.to_string();
        let sentinels = address.sentinels.iter().map(|sentinel| Dialer::new(sentinel, &options)).collect();
        let (known, asking, listening) = Default::default();
        Arc::new(Self { address, sentinels, target, options, known, asking, listening })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        // Nothing panics while it is held; a poisoned lock is still consistent.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The master, while there is no reason to ask for it.
    pub(crate) fn settled(&self) -> Option<Arc<Server>> {
        let known = self.lock();
        known.master.as_ref().filter(|_| known.settled).map(|(_, server)| server.clone())
    }

    /// The master.
    pub(crate) async fn master(self: &Arc<Self>) -> Result<Arc<Server>, Error> {
        if let Some(server) = self.settled() {
            return Ok(server);
        }
        let sentinel = self.clone();
        self.asking.ask(&self.target, &self.options, async move { sentinel.find_master().await }).await
    }

    async fn find_master(self: Arc<Self>) -> Result<Arc<Server>, Error> {
        // Another search may have ended since we looked.
        if let Some(server) = self.settled() {
            return Ok(server);
        }
        self.listen();
        // Whatever shows from here on that something is wrong counts.
        self.lock().settled = true;
        let found = self.ask_all().await.and_then(|address| self.settle(address));
        if found.is_err() {
            self.lock().settled = false;
        }
        found
    }

    /// A pooled connection to it.
    pub(crate) async fn lend(self: &Arc<Self>, usage: Use) -> Result<Lent, Error> {
        let server = self.master().await?;
        self.judge(&server, Lent::of(&server, usage).await)
    }

    /// Passes on a reply; one that shows that the server may not be the master any more has the Sentinels asked.
    pub(crate) fn judge<T>(&self, server: &Arc<Server>, reply: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &reply {
            let mut known = self.lock();
            let is_current = known.master.as_ref().is_some_and(|(_, current)| Arc::ptr_eq(current, server));
            if is_current && (error.is_transient() || error.is_wrong_server()) {
                known.settled = false;
            }
        }
        reply
    }

    fn settle(&self, address: NodeAddress) -> Result<Arc<Server>, Error> {
        let mut known = self.lock();
        if let Some((current, server)) = &known.master {
            if *current == address {
                return Ok(server.clone());
            }
            crate::log::info!(master = %self.address.master, from = %current, to = %address, "the master has moved");
            server.abandon();
        }
        let source = Source::network(&self.address.master_at(&address)?, &self.options)?;
        let target = format!("{address}, {}", self.target);
        let server = Arc::new(Server::new(source, target, self.options.clone(), Dialect::Plain));
        known.master = Some((address, server.clone()));
        Ok(server)
    }

    /// Asks all Sentinels where the master is, and believes the youngest word.
    async fn ask_all(&self) -> Result<NodeAddress, Error> {
        let asked = self.sentinels.iter();
        let mut answers: FuturesUnordered<_> = asked.map(|sentinel| self.ask(sentinel)).collect();
        let (mut youngest, mut failed): (Option<Word>, Option<Error>) = (None, None);
        loop {
            let answer = match &youngest {
                None => answers.next().await,
                Some(_) => tokio::time::timeout(OTHERS_WITHIN, answers.next()).await.unwrap_or(None),
            };
            match answer {
                None => break,
                Some(Ok(word)) if youngest.as_ref().is_none_or(|known| known.epoch < word.epoch) => {
                    youngest = Some(word)
                }
                Some(Ok(_)) => {}
                // Why one that is there refuses says more than that another is not there.
                Some(Err(error)) if failed.as_ref().is_none_or(Error::is_transient) => failed = Some(error),
                Some(Err(_)) => {}
            }
        }
        match (youngest, failed) {
            (Some(word), _) => Ok(word.address),
            (None, Some(error)) => Err(error),
            (None, None) => Err(self.unknown()),
        }
    }

    async fn ask(&self, sentinel: &Dialer) -> Result<Word, Error> {
        let connected = sentinel.connect().await;
        let mut connection =
            connected.map_err(|error| Error::from_connecting(&error, &format!("Sentinel {}", sentinel.address())))?;
        let mut question = redis::pipe();
        question.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.address.master);
        question.cmd("SENTINEL").arg("MASTER").arg(&self.address.master);
        question.ignore_errors();
        let answers: RedisResult<Vec<RedisResult<Value>>> = question.query_async(&mut connection).await;
        let explain = |error| Error::from_redis(error, "SENTINEL", &self.target, self.options.response_timeout);
        let mut answers = answers.map_err(explain)?.into_iter();
        let address = answers.next().unwrap_or(Ok(Value::Nil)).map_err(explain)?;
        let unexpected = || Error::unexpected("SENTINEL GET-MASTER-ADDR-BY-NAME", &address);
        let told: Option<(String, u16)> = redis::from_redis_value_ref(&address).map_err(|_| unexpected())?;
        let (host, port) = told.ok_or_else(|| self.unknown())?;
        // What is younger can be told only by those who may say so.
        let epoch = answers.next().and_then(Result::ok).map_or(0, |master| epoch_of(&master));
        Ok(Word { epoch, address: NodeAddress { host: host.into(), port } })
    }

    fn unknown(&self) -> Error {
        let reason = format!("no Sentinel of {} knows a master with this name", self.target);
        Error::Unreachable { target: self.target.clone(), source: Arc::new(std::io::Error::other(reason)) }
    }

    /// Listens to a Sentinel in the background for as long as somebody uses this.
    fn listen(self: &Arc<Self>) {
        if !self.listening.swap(true, Ordering::AcqRel) {
            tokio::spawn(listen(
                Arc::downgrade(self),
                self.sentinels.clone(),
                self.address.master.clone(),
                self.options.clone(),
            ));
        }
    }

    /// Somebody says that another is master now.
    fn unsettle(&self) {
        let mut known = self.lock();
        known.settled = false;
        if let Some((_, server)) = &known.master {
            server.abandon();
        }
    }
}

fn epoch_of(master: &Value) -> u64 {
    let fields: Vec<(String, String)> = redis::from_redis_value_ref(master).unwrap_or_default();
    fields.iter().find(|(name, _)| name == "config-epoch").and_then(|(_, epoch)| epoch.parse().ok()).unwrap_or(0)
}

/// Listens to one Sentinel after the other, until nobody is interested any more.
async fn listen(sentinel: Weak<Sentinel>, sentinels: Arc<[Dialer]>, master: String, options: RedisOptions) {
    for dialer in sentinels.iter().cycle() {
        if listen_to(&sentinel, dialer, &master, &options).await.is_err() && sentinel.strong_count() == 0 {
            return;
        }
        tokio::time::sleep(NEXT_AFTER).await;
    }
}

/// Ends when this Sentinel is of no use, or nobody is interested any more; both are errors.
async fn listen_to(
    sentinel: &Weak<Sentinel>,
    dialer: &Dialer,
    master: &str,
    options: &RedisOptions,
) -> RedisResult<()> {
    let ended = || redis::RedisError::from(std::io::Error::other("nothing more to hear"));
    let connect = async {
        let mut pubsub = dialer.pubsub().await?;
        pubsub.subscribe("+switch-master").await?;
        Ok::<_, redis::RedisError>(pubsub)
    };
    let pubsub = tokio::time::timeout(options.connect_timeout, connect).await.map_err(|_| ended())??;
    let (mut sink, mut messages) = pubsub.split();
    // What was told before we listened was not heard.
    if let Some(known) = sentinel.upgrade() {
        known.lock().settled = false;
    }
    loop {
        let heard = tokio::time::timeout(SILENCE, messages.next()).await;
        let known = sentinel.upgrade().ok_or_else(ended)?;
        match heard {
            Ok(Some(message)) => {
                let text = String::from_utf8_lossy(message.get_payload_bytes());
                // name, old address, new address
                if text.split(' ').next() == Some(master) {
                    known.unsettle();
                }
            }
            Ok(None) => return Err(ended()),
            Err(_) => {
                tokio::time::timeout(options.response_timeout, sink.ping::<Value>()).await.map_err(|_| ended())??;
            }
        }
    }
}

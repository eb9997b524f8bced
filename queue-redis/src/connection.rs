//! How this process is connected to Redis.
//!
//! Two ways, for two needs, both measured before they were chosen (see `docs/design.md`):
//!
//! * One multiplexed connection carries the many small calls: calls that meet travel together, which
//!   gives 2.8 times the throughput of a pooled connection per call.
//! * A pool serves calls that need a connection of their own: the leases, which must be
//!   renewed while the shared connection is busy, and large replies of the inspector.
//!
//! Both exist once per server; of which servers there are, and which one a call is for, the handle takes care.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use queue_core::keys::slot_of;
use queue_core::limits::MAX_BATCH;
use redis::{Cmd, FromRedisValue, ToRedisArgs, Value};
use tokio::time::Instant;

use crate::address::{self, Address};
use crate::calls::{Call, Calls};
use crate::error::Error;
use crate::link::cluster::{self, Cluster};
use crate::link::sentinel::Sentinel;
use crate::link::server::{Lent, Request, Server, read};
use crate::link::source::{InProcess, Source, Use};
use crate::options::RedisOptions;
use crate::script::{Dialect, READ_TASKS, Script};
use crate::wrong_type;

/// A handle on Redis: one server, the master that Sentinel names, or a cluster; clones share the connections.
#[derive(Clone)]
pub struct Redis {
    inner: Arc<Inner>,
}

struct Inner {
    place: Place,
    target: String,
    options: RedisOptions,
    calls: Calls,
}

/// Where the tasks are.
enum Place {
    Server(Arc<Server>),
    Sentinel(Arc<Sentinel>),
    Cluster(Arc<Cluster>),
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("target", &self.inner.target).finish_non_exhaustive()
    }
}

impl Redis {
    /// Connects to `redis://`, `rediss://`, a Unix socket (`redis+unix:///path?db=1`, `unix:///path`), a cluster
    /// (`redis+cluster://host:port,host:port`), or the master that Sentinel names
    /// (`redis-sentinel://host:port,host:port/db?master=name`). `docs/deployment.md` has all forms.
    ///
    /// # Errors
    /// When the URL is not one of these, or Redis cannot be reached.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let redis = Self::lazy(url, RedisOptions::default())?;
        redis.answers().await?;
        Ok(redis)
    }

    /// A handle that connects when it is first used.
    ///
    /// # Errors
    /// When the URL is not one of a Redis, or an option makes no sense.
    pub fn lazy(url: &str, options: RedisOptions) -> Result<Self, Error> {
        options.check()?;
        let address = address::parse(url, &options.tls)?;
        let target = address.to_string();
        let place = match address {
            Address::Server(info) => {
                let source = Source::network(&info, &options)?;
                Place::Server(Arc::new(Server::new(source, target.clone(), options.clone(), Dialect::Plain)))
            }
            Address::Sentinel(address) => Place::Sentinel(Sentinel::new(address, options.clone())),
            Address::Cluster(address) => Place::Cluster(Cluster::new(address, options.clone())?),
        };
        Ok(Self { inner: Arc::new(Inner { place, target, options, calls: Calls::default() }) })
    }

    /// A handle on a store inside this process, for tests. `name` takes the place of the address.
    pub fn in_process(name: impl Into<String>, store: Arc<dyn InProcess>) -> Self {
        let (target, options) = (name.into(), RedisOptions::default());
        let server = Server::new(Source::InProcess(store), target.clone(), options.clone(), Dialect::Plain);
        Self {
            inner: Arc::new(Inner { place: Place::Server(Arc::new(server)), target, options, calls: Calls::default() }),
        }
    }

    /// The address, without credentials.
    pub fn target(&self) -> &str {
        &self.inner.target
    }

    /// How long Redis may be silent while an answer is waited for.
    pub fn response_timeout(&self) -> Duration {
        self.inner.options.response_timeout
    }

    /// Asks Redis for a sign of life.
    ///
    /// # Errors
    /// When there is none.
    pub async fn ping(&self) -> Result<(), Error> {
        self.query::<()>("PING", &redis::cmd("PING")).await
    }

    /// Has a function called after every call to Redis, by this handle and all its clones, with how it
    /// went. It should return quickly. A panic in it is logged. More than one may be added; none can be removed.
    /// While there is none, nothing is measured.
    pub fn on_call(&self, observer: impl Fn(&Call<'_>) + Send + Sync + 'static) {
        self.inner.calls.add(Box::new(observer));
    }

    /// Calls a script on the shared connection.
    pub(crate) async fn run(&self, script: &'static Script, call: &Cmd) -> Result<Value, Error> {
        self.ask(script.name, call, Request::Script(script, call, None)).await
    }

    /// The same for a call that is given up after so long in all.
    pub(crate) async fn run_within(
        &self,
        limit: Duration,
        script: &'static Script,
        call: &Cmd,
    ) -> Result<Value, Error> {
        self.ask(script.name, call, Request::Script(script, call, Some(Instant::now() + limit))).await
    }

    /// Sends the command of this name with these arguments on the shared connection.
    #[doc(hidden)]
    pub fn command<T: FromRedisValue>(
        &self,
        name: &'static str,
        args: impl ToRedisArgs,
    ) -> impl Future<Output = Result<T, Error>> {
        self.query_owned(name, redis::cmd(name).arg(args).take())
    }

    /// Apart from [`command`](Self::command), so that there is one future of it for all kinds of arguments.
    async fn query_owned<T: FromRedisValue>(&self, operation: &'static str, cmd: Cmd) -> Result<T, Error> {
        self.query(operation, &cmd).await
    }

    /// Sends a command on the shared connection.
    #[doc(hidden)]
    pub async fn query<T: FromRedisValue>(&self, operation: &'static str, cmd: &Cmd) -> Result<T, Error> {
        read(operation, self.ask(operation, cmd, Request::Command(cmd)).await?)
    }

    /// Sends a command that names no key, such as SCAN, to where this key is.
    pub(crate) async fn query_near<T: FromRedisValue>(
        &self,
        key: &str,
        operation: &'static str,
        cmd: &Cmd,
    ) -> Result<T, Error> {
        let Place::Cluster(cluster) = &self.inner.place else { return self.query(operation, cmd).await };
        let watched = self.inner.calls.begin(operation);
        let slot = slot_of(key.as_bytes());
        let reply = cluster.send_to_slot(cluster::Way::Shared, slot, operation, Request::Command(cmd)).await;
        read(operation, watched.end(reply)?)
    }

    async fn ask(&self, operation: &'static str, call: &Cmd, request: Request<'_>) -> Result<Value, Error> {
        let watched = self.inner.calls.begin(operation);
        let reply = watched.end(match &self.inner.place {
            Place::Server(server) => server.send(operation, request).await,
            other => Box::pin(other.send(operation, request)).await,
        });
        match reply {
            Err(error) => Err(self.name_keys(call, error).await),
            reply => reply,
        }
    }

    /// Sends a pipeline on the shared connection; in a cluster, a part of it to each node it concerns.
    pub(crate) async fn pipeline<T: FromRedisValue>(
        &self,
        operation: &'static str,
        pipeline: &redis::Pipeline,
    ) -> Result<T, Error> {
        let watched = self.inner.calls.begin(operation);
        match watched.end(self.send_pipeline(operation, pipeline).await) {
            Err(error) => Err(self.name_keys_of(pipeline, error).await),
            Ok(replies) => read(operation, replies),
        }
    }

    async fn name_keys_of(&self, pipeline: &redis::Pipeline, error: Error) -> Error {
        if error.is_wrong_type() { self.name_keys(&keys_of(pipeline), error).await } else { error }
    }

    /// The error of a call; if it is about the type of a key, with the name of that key.
    async fn name_keys(&self, call: &Cmd, error: Error) -> Error {
        if error.is_wrong_type() { Box::pin(self.look_at_types(call, error)).await } else { error }
    }

    async fn look_at_types(&self, call: &Cmd, error: Error) -> Error {
        let keys = wrong_type::candidates(call);
        let mut look = redis::pipe();
        for key in &keys {
            look.cmd("TYPE").arg(key);
        }
        // Who may not look is told what Redis said.
        let Ok(types) = self.send_pipeline("TYPE", &look).await.and_then(|types| read("TYPE", types)) else {
            return error;
        };
        error.with_keys(&wrong_type::named(&keys, types))
    }

    /// An error about a command that was sent with others.
    pub(crate) async fn explain_one(&self, operation: &'static str, cmd: &Cmd, error: redis::RedisError) -> Error {
        self.name_keys(cmd, self.explain(operation, error)).await
    }

    async fn send_pipeline(&self, operation: &'static str, pipeline: &redis::Pipeline) -> Result<Value, Error> {
        match &self.inner.place {
            Place::Server(server) => server.pipeline(operation, pipeline).await,
            Place::Sentinel(sentinel) => {
                let server = sentinel.master().await?;
                sentinel.judge(&server, server.pipeline(operation, pipeline).await)
            }
            Place::Cluster(cluster) => {
                let replies = Box::pin(cluster.pipeline(cluster::Way::Shared, operation, pipeline)).await?;
                cluster::replay(pipeline, replies).await.map_err(|error| self.explain(operation, error))
            }
        }
    }

    /// A connection of one's own, from the pool; in a cluster one per node, as they are needed.
    ///
    /// # Errors
    /// When none can be made, or none becomes free in time ([`Error::PoolInUse`]).
    pub async fn pooled(&self) -> Result<Connection, Error> {
        self.own(Use::Any).await
    }

    /// The same for what keeps the tasks of a server its own, leases and heartbeats: two connections that nobody else uses, however
    /// many calls wait for those of the pool.
    ///
    /// # Errors
    /// As [`pooled`](Self::pooled).
    pub async fn reserved(&self) -> Result<Connection, Error> {
        self.own(Use::Upkeep).await
    }

    async fn own(&self, usage: Use) -> Result<Connection, Error> {
        let connecting = self.inner.calls.begin("connecting");
        let held = match &self.inner.place {
            Place::Server(server) => Lent::of(server, usage).await.map(Held::One),
            Place::Sentinel(sentinel) => {
                Box::pin(sentinel.lend(usage)).await.map(|lent| Held::Master(lent, sentinel.clone()))
            }
            Place::Cluster(cluster) => Ok(Held::Nodes(cluster::Lents::new(usage), cluster.clone())),
        };
        match held {
            Ok(held) => Ok(Connection { held, redis: self.clone() }),
            Err(error) => connecting.end(Err(error)),
        }
    }

    /// The servers that write: one, but in a cluster.
    pub(crate) async fn masters(&self) -> Result<Vec<Arc<Server>>, Error> {
        match &self.inner.place {
            Place::Server(server) => Ok(vec![server.clone()]),
            Place::Sentinel(sentinel) => Ok(vec![sentinel.master().await?]),
            Place::Cluster(cluster) => cluster.masters().await,
        }
    }

    /// The number of the shared connection to the server that has this key; `None` while there is none. What was written by one of
    /// another number may be lost: it was to a server that has crashed, or that is master no longer.
    pub(crate) fn generation(&self, key: &str) -> Option<u64> {
        match &self.inner.place {
            Place::Server(server) => server.generation(),
            Place::Sentinel(sentinel) => sentinel.settled()?.generation(),
            Place::Cluster(cluster) => cluster.known_owner(slot_of(key.as_bytes()))?.server.generation(),
        }
    }

    pub(crate) fn options(&self) -> &RedisOptions {
        &self.inner.options
    }

    pub(crate) fn is_in_process(&self) -> bool {
        matches!(&self.inner.place, Place::Server(server) if server.is_in_process())
    }

    /// Whether it is a cluster: of several nodes, of which one alone may be away.
    pub fn is_cluster(&self) -> bool {
        self.cluster().is_some()
    }

    /// The cluster, if it is one.
    pub(crate) fn cluster(&self) -> Option<&Arc<Cluster>> {
        match &self.inner.place {
            Place::Cluster(cluster) => Some(cluster),
            _ => None,
        }
    }

    pub(crate) fn explain(&self, operation: &'static str, error: redis::RedisError) -> Error {
        Error::from_redis(error, operation, &self.inner.target, self.inner.options.response_timeout)
    }
}

impl Place {
    async fn send(&self, operation: &'static str, request: Request<'_>) -> Result<Value, Error> {
        match self {
            Self::Server(server) => server.send(operation, request).await,
            Self::Sentinel(sentinel) => {
                let server = sentinel.master().await?;
                sentinel.judge(&server, server.send(operation, request).await)
            }
            Self::Cluster(cluster) => cluster.send(cluster::Way::Shared, operation, request).await,
        }
    }
}

/// A connection of one's own; goes back to the pool when it is dropped.
pub struct Connection {
    held: Held,
    redis: Redis,
}

enum Held {
    One(Lent),
    Master(Lent, Arc<Sentinel>),
    Nodes(cluster::Lents, Arc<Cluster>),
}

queue_core::debug_some!(Connection, redis);

impl Connection {
    pub(crate) async fn run(&mut self, script: &'static Script, call: &Cmd) -> Result<Value, Error> {
        self.ask(script.name, call, Request::Script(script, call, None)).await
    }

    /// The same for a call that is given up after so long in all.
    pub(crate) async fn run_within(
        &mut self,
        limit: Duration,
        script: &'static Script,
        call: &Cmd,
    ) -> Result<Value, Error> {
        self.ask(script.name, call, Request::Script(script, call, Some(Instant::now() + limit))).await
    }

    async fn ask(&mut self, operation: &'static str, call: &Cmd, request: Request<'_>) -> Result<Value, Error> {
        let watched = self.redis.inner.calls.begin(operation);
        match watched.end(self.held.send(operation, request).await) {
            Err(error) => Err(self.redis.name_keys(call, error).await),
            reply => reply,
        }
    }

    /// Makes calls of a script that are all under way at the same time.
    pub(crate) async fn run_all(&mut self, script: &'static Script, calls: &[Cmd]) -> Vec<Result<Value, Error>> {
        let watched: Vec<_> = calls.iter().map(|_| self.redis.inner.calls.begin(script.name)).collect();
        let replies = match &mut self.held {
            Held::One(lent) => lent.send_all(script, calls).await,
            Held::Master(lent, sentinel) => {
                let replies = lent.send_all(script, calls).await;
                replies.into_iter().map(|reply| sentinel.judge(lent.server(), reply)).collect()
            }
            Held::Nodes(lents, cluster) => Box::pin(cluster.send_all(lents, script, calls)).await,
        };
        let mut named = Vec::with_capacity(calls.len());
        for ((watched, reply), call) in watched.into_iter().zip(replies).zip(calls) {
            named.push(match watched.end(reply) {
                Err(error) => Err(self.redis.name_keys(call, error).await),
                reply => reply,
            });
        }
        named
    }

    /// Sends the command of this name with these arguments.
    #[doc(hidden)]
    pub fn command<T: FromRedisValue>(
        &mut self,
        name: &'static str,
        args: impl ToRedisArgs,
    ) -> impl Future<Output = Result<T, Error>> {
        self.query_owned(name, redis::cmd(name).arg(args).take())
    }

    async fn query_owned<T: FromRedisValue>(&mut self, operation: &'static str, cmd: Cmd) -> Result<T, Error> {
        self.query(operation, &cmd).await
    }

    /// Sends a command.
    #[doc(hidden)]
    pub async fn query<T: FromRedisValue>(&mut self, operation: &'static str, cmd: &Cmd) -> Result<T, Error> {
        read(operation, self.ask(operation, cmd, Request::Command(cmd)).await?)
    }

    /// Sends a command that names no key, such as SCAN, to where this key is.
    #[doc(hidden)]
    pub async fn query_near<T: FromRedisValue>(
        &mut self,
        key: &str,
        operation: &'static str,
        cmd: &Cmd,
    ) -> Result<T, Error> {
        let Held::Nodes(lents, cluster) = &mut self.held else { return self.query(operation, cmd).await };
        let watched = self.redis.inner.calls.begin(operation);
        let slot = slot_of(key.as_bytes());
        let reply = cluster.send_to_slot(cluster::Way::Own(lents), slot, operation, Request::Command(cmd)).await;
        read(operation, watched.end(reply)?)
    }

    /// Sends a pipeline.
    #[doc(hidden)]
    pub async fn pipeline<T: FromRedisValue>(
        &mut self,
        operation: &'static str,
        pipeline: &redis::Pipeline,
    ) -> Result<T, Error> {
        let watched = self.redis.inner.calls.begin(operation);
        match watched.end(self.held.send_pipeline(&self.redis, operation, pipeline).await) {
            Err(error) => Err(self.redis.name_keys_of(pipeline, error).await),
            Ok(replies) => read(operation, replies),
        }
    }

    /// Some fields, `msg` before others, of the first of these tasks of a queue, at most [`MAX_BATCH`], in their order: no more than some megabytes travel at once, so
    /// there may be fewer than tasks, but at least one. The prefix stands before the ids in their keys. `None` where such a key has another type.
    #[doc(hidden)]
    pub async fn read_tasks<T: FromRedisValue>(
        &mut self,
        prefix: &str,
        ids: impl ExactSizeIterator<Item = &[u8]>,
        fields: &[&str],
    ) -> Result<Vec<Option<T>>, Error> {
        let count = ids.len().min(MAX_BATCH);
        let mut call = READ_TASKS.call(count);
        for id in ids.take(count) {
            call.arg([prefix.as_bytes(), id].concat());
        }
        call.arg(fields);
        read(READ_TASKS.name, self.run(&READ_TASKS, &call).await?)
    }

    /// Reads all of it at one moment, in a transaction. A Redis that is full takes no commands for one, also none that read: there they
    /// are sent without, one right behind the other.
    #[doc(hidden)]
    pub async fn read_at_once<T: FromRedisValue>(
        &mut self,
        operation: &'static str,
        look: &redis::Pipeline,
    ) -> Result<T, Error> {
        let mut transaction = look.clone();
        transaction.atomic();
        match self.pipeline(operation, &transaction).await {
            Err(error) if error.is_out_of_memory() => self.pipeline(operation, look).await,
            read => read,
        }
    }
}

impl Held {
    async fn send(&mut self, operation: &'static str, request: Request<'_>) -> Result<Value, Error> {
        match self {
            Self::One(lent) => lent.send(operation, request).await,
            Self::Master(lent, sentinel) => {
                let reply = lent.send(operation, request).await;
                sentinel.judge(lent.server(), reply)
            }
            Self::Nodes(lents, cluster) => Box::pin(cluster.send(cluster::Way::Own(lents), operation, request)).await,
        }
    }

    async fn send_pipeline(
        &mut self,
        redis: &Redis,
        operation: &'static str,
        pipeline: &redis::Pipeline,
    ) -> Result<Value, Error> {
        match self {
            Self::One(lent) => lent.pipeline(operation, pipeline).await,
            Self::Master(lent, sentinel) => {
                let reply = lent.pipeline(operation, pipeline).await;
                sentinel.judge(lent.server(), reply)
            }
            Self::Nodes(lents, cluster) => {
                let replies = Box::pin(cluster.pipeline(cluster::Way::Own(lents), operation, pipeline)).await?;
                cluster::replay(pipeline, replies).await.map_err(|error| redis.explain(operation, error))
            }
        }
    }
}

/// All that the commands of a pipeline name, as one command.
fn keys_of(pipeline: &redis::Pipeline) -> Cmd {
    let mut all = Cmd::new();
    for arg in pipeline.cmd_iter().flat_map(Cmd::args_iter) {
        if let redis::Arg::Simple(arg) = arg {
            all.arg(arg);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_never_show() {
        let redis = Redis::lazy("redis://user:secret@localhost:6380/3", RedisOptions::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _guard = runtime.enter();
        let redis = redis.unwrap();
        assert_eq!(redis.target(), "localhost:6380/3");
        assert!(!format!("{redis:?}").contains("secret"));
        for url in ["redis://:secret@[bad", "ftp://:secret@host", "secret", "redis://:secret@host/x"] {
            let error = Redis::lazy(url, RedisOptions::default()).unwrap_err();
            if url != "secret" {
                assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
            }
        }
    }
}

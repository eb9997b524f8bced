//! A small Redis inside this process.
//!
//! It has the commands that the queue uses, speaks Redis' protocol over pipes in memory, and runs the very
//! scripts that Redis runs, in the same Lua. So there is no second implementation of what a queue does:
//! only one of what `ZADD` and its like do, which the tests compare with Redis.

mod clients;
mod commands;
mod data;
mod engine;
mod number;
mod pattern;
mod reply;
mod script;
mod session;
mod show;
mod value;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use queue_core::{Clock, SystemClock};
use queue_redis::{InProcess, Redis};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};

use self::engine::Engine;

/// Bytes that a pipe holds before whoever writes has to wait.
const PIPE: usize = 64 * 1024;

/// A store in this process that the queue takes for a Redis; clones are the same store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use queue_core::RawTask;
/// use queue_admin::Inspector;
/// use queue_redis::Client;
/// use queue_testing::Store;
///
/// let redis = Store::new().redis();
/// let task = Client::new(redis.clone()).enqueue(RawTask::new("email:welcome")).await?;
/// assert_eq!(Inspector::new(redis).task("default", &task.id).await?.task_type, "email:welcome");
/// # Ok(()) }
/// ```
///
/// Commands that the queue does not use are refused by name. What it lacks besides: other databases than 0,
/// persistence, memory limits, users, replicas, clusters, `WATCH`.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    // A std mutex: held for one command, never across an await.
    engine: Mutex<Engine>,
}

impl Inner {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys that a command only looks at.
fn looks_at(words: &[Vec<u8>]) -> Option<&[Vec<u8>]> {
    let (name, args) = words.split_first()?;
    Some(commands::find(name)?.looks_at(args))
}

impl Store {
    /// An empty store whose keys expire by the clock of this machine.
    #[expect(clippy::new_without_default, reason = "every store is another one; a default would hide that")]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty store whose keys expire by this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { inner: Arc::new(Inner { engine: Mutex::new(Engine::new(clock)) }) }
    }

    /// A handle for clients, servers and inspectors.
    pub fn redis(&self) -> Redis {
        Redis::in_process("a store inside this process", Arc::new(self.clone()))
    }

    /// Serves one more connection, for example one of a Unix socket that `redis-cli` has opened. Has to be
    /// called within a tokio runtime.
    pub fn serve(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        session::serve(self.inner.clone(), stream);
    }

    /// Runs a command and returns the answer as `redis-cli` would show it: for a look into the store.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let store = queue_testing::Store::new();
    /// assert_eq!(store.command(&["ZADD", "asynq:{q}:retry", "60", "id"]), "(integer) 1");
    /// assert_eq!(store.command(&["ZRANGE", "asynq:{q}:retry", "0", "-1", "WITHSCORES"]), "1) \"id\"\n2) \"60\"");
    /// # }
    /// ```
    pub fn command(&self, words: &[impl AsRef<[u8]>]) -> String {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_ref().to_vec()).collect();
        let mut engine = self.inner.lock();
        let answer = engine.execute(&words);
        engine.data().tell_changes();
        show::show(&answer.into())
    }

    /// Makes servers look at their queues again, because the time has changed by which tasks are due. Also
    /// deletes the keys whose time is over.
    pub fn time_has_changed(&self) {
        let engine = self.inner.lock();
        let mut data = engine.data();
        data.expire_all();
        data.tell_changes();
        data.clients.invalidate_all();
    }
}

impl InProcess for Store {
    fn open(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        self.serve(ours);
        theirs
    }
}

queue_core::debug_some!(Store);

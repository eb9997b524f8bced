//! A connection, and how long it may be silent.
//!
//! The redis crate can give up a call after a time. A large answer over a slow way takes longer than any time that
//! finds out soon enough that Redis hangs, and with it all answers behind it. So the time is counted from when a byte
//! last moved: this is why the stream under a connection is opened here.

use std::collections::BTreeSet;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redis::aio::{AsyncStream, ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, RedisFuture, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::has_budget_remaining;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::script::Loads;

/// A connection to a server; its clones share it, and their calls are under way at the same time. It is closed when the
/// last of them is dropped.
#[derive(Clone)]
pub(crate) struct Wire {
    calls: MultiplexedConnection,
    life: Arc<Life>,
    silence: Duration,
    deadline: Option<Instant>,
}

struct Life {
    moved: Arc<Moved>,
    loaded: Mutex<BTreeSet<&'static str>>,
    _driver: AbortOnDropHandle<()>,
}

impl Wire {
    /// Begins to speak on a stream. A call on it is given up when nothing has moved for so long.
    pub(crate) async fn over(
        stream: Stream,
        settings: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
        silence: Duration,
    ) -> RedisResult<Self> {
        let Stream { bytes, moved } = stream;
        let (calls, driver) = MultiplexedConnection::new_with_config(settings, bytes, config).await?;
        let driver = AbortOnDropHandle::new(tokio::spawn(driver));
        let life = Life { moved, loaded: Mutex::default(), _driver: driver };
        Ok(Self { calls, life: Arc::new(life), silence, deadline: None })
    }

    /// The same connection, for calls that are given up then, and not before, however silent it is.
    pub(crate) fn until(&self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self.clone() }
    }

    /// Whether nothing has moved for so long that a call would be given up.
    pub(crate) fn is_silent(&self) -> bool {
        self.life.moved.last().elapsed() >= self.silence
    }
}

impl Loads for Wire {
    fn loaded(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.life.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionLike for Wire {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        let Self { calls, life, silence, deadline } = self;
        Box::pin(life.moved.await_answer(*silence, *deadline, calls.send_packed_command(cmd)))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let Self { calls, life, silence, deadline } = self;
        Box::pin(life.moved.await_answer(*silence, *deadline, calls.send_packed_commands(pipeline, offset, count)))
    }

    fn get_db(&self) -> i64 {
        self.calls.get_db()
    }
}

/// When a byte last moved on a connection.
pub(crate) struct Moved {
    begin: Instant,
    /// Nanoseconds since the beginning.
    last: AtomicU64,
}

impl Moved {
    fn note(&self) {
        let since = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last.store(since, Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.begin + Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }

    /// Waits until the deadline, or without one until nothing has moved for so long.
    async fn await_answer<T>(
        &self,
        silence: Duration,
        deadline: Option<Instant>,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> RedisResult<T> {
        let mut answer = pin!(answer);
        let asked = Instant::now();
        let mut end = deadline.unwrap_or(asked + silence);
        loop {
            if let Ok(answer) = tokio::time::timeout_at(end, answer.as_mut()).await {
                return answer;
            }
            end = deadline.unwrap_or(self.last().max(asked) + silence);
            if Instant::now() >= end {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
    }
}

/// What carries a connection, and when a byte last moved there.
pub(crate) struct Stream {
    pub(crate) bytes: Pin<Box<dyn AsyncStream + Send + Sync>>,
    pub(crate) moved: Arc<Moved>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static> From<Watched<S>> for Stream {
    fn from(watched: Watched<S>) -> Self {
        Self { moved: watched.moved(), bytes: Box::pin(watched) }
    }
}

/// A stream of which it is known when a byte last moved.
pub(crate) struct Watched<S> {
    bytes: S,
    moved: Arc<Moved>,
    /// What was to be sent had to wait. What need not wait only fills the buffers of this machine, which a Redis that
    /// hangs does not hinder.
    is_held_up: bool,
}

impl<S> Watched<S> {
    pub(crate) fn new(bytes: S) -> Self {
        let moved = Arc::new(Moved { begin: Instant::now(), last: AtomicU64::new(0) });
        Self { bytes, moved, is_held_up: false }
    }

    pub(crate) fn moved(&self) -> Arc<Moved> {
        self.moved.clone()
    }

    /// What became of a write.
    fn wrote(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        // A task that has done enough for now has to wait as well, where there is room.
        let is_held_up = std::mem::replace(&mut self.is_held_up, polled.is_pending() && has_budget_remaining());
        let written = ready!(polled);
        if is_held_up && written.is_ok() {
            self.moved.note();
        }
        Poll::Ready(written)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.bytes).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.moved.note();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.bytes).poll_write(cx, bytes);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.bytes).poll_write_vectored(cx, bytes);
        self.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.bytes.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(cx)
    }
}

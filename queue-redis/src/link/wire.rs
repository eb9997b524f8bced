//! A connection, and how long it may be silent.
//!
//! The redis crate can give up a call after a time. A large answer over a slow way takes longer than any time that
//! finds out soon enough that Redis hangs, and with it all answers behind it. So the time is counted from when a byte
//! last moved: this is why the stream under a connection is opened here.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redis::aio::{AsyncStream, ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, RedisFuture, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// What carries a connection.
pub(crate) type Stream = Pin<Box<dyn AsyncStream + Send + Sync>>;

/// A connection to a server; its clones share it, and their calls are under way at the same time. It is closed when the
/// last of them is dropped.
#[derive(Clone)]
pub(crate) struct Wire {
    calls: MultiplexedConnection,
    life: Arc<Life>,
    silence: Duration,
    limit: Option<Duration>,
}

struct Life {
    moved: Arc<Moved>,
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
        let moved = Arc::new(Moved { begin: Instant::now(), last: AtomicU64::new(0) });
        let watched = Watched { stream, moved: moved.clone(), is_held_up: false };
        let (calls, driver) = MultiplexedConnection::new_with_config(settings, watched, config).await?;
        let driver = AbortOnDropHandle::new(tokio::spawn(driver));
        Ok(Self { calls, life: Arc::new(Life { moved, _driver: driver }), silence, limit: None })
    }

    /// The same connection, for calls that are also given up after so long in all.
    pub(crate) fn within(&self, limit: Duration) -> Self {
        Self { limit: Some(limit), ..self.clone() }
    }

    /// Whether nothing has moved for so long that a call would be given up.
    pub(crate) fn is_silent(&self) -> bool {
        self.life.moved.last().elapsed() >= self.silence
    }
}

impl ConnectionLike for Wire {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        let Self { calls, life, silence, limit } = self;
        Box::pin(life.moved.await_answer(*silence, *limit, calls.send_packed_command(cmd)))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let Self { calls, life, silence, limit } = self;
        Box::pin(life.moved.await_answer(*silence, *limit, calls.send_packed_commands(pipeline, offset, count)))
    }

    fn get_db(&self) -> i64 {
        self.calls.get_db()
    }
}

/// When a byte last moved on a connection.
struct Moved {
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

    /// Waits until nothing has moved for so long, and no longer than the limit in all.
    async fn await_answer<T>(
        &self,
        silence: Duration,
        limit: Option<Duration>,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> RedisResult<T> {
        let mut answer = pin!(answer);
        let asked = Instant::now();
        let until = |heard: Instant| limit.map_or(heard + silence, |limit| (asked + limit).min(heard + silence));
        let mut end = until(asked);
        loop {
            if let Ok(answer) = tokio::time::timeout_at(end, answer.as_mut()).await {
                return answer;
            }
            end = until(self.last().max(asked));
            if Instant::now() >= end {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
    }
}

/// A stream of which it is known when something last moved.
struct Watched {
    stream: Stream,
    moved: Arc<Moved>,
    /// What was to be sent had to wait. What need not wait only fills the buffers of this machine, which a Redis that
    /// hangs does not hinder.
    is_held_up: bool,
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = self.stream.as_mut().poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.moved.note();
        }
        polled
    }
}

impl Watched {
    /// What became of a write.
    fn wrote(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let is_held_up = std::mem::replace(&mut self.is_held_up, polled.is_pending());
        let written = ready!(polled);
        if is_held_up && written.is_ok() {
            self.moved.note();
        }
        Poll::Ready(written)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = self.stream.as_mut().poll_write(cx, bytes);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = self.stream.as_mut().poll_write_vectored(cx, bytes);
        self.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(cx)
    }
}

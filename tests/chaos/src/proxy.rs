//! The way from one process to Redis, which can be cut, slowed, or made to lose what it carries.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// A proxy of one process.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// The port of the Redis that new connections lead to; shared by all proxies.
    upstream: Arc<AtomicU16>,
    accepted: AtomicU64,
    /// Connections up to this number lose what Redis answers.
    unanswered: AtomicU64,
    /// Connections up to this number lose all that is sent on them, both ways.
    swallowed: AtomicU64,
    /// Milliseconds by which answers are held up.
    delay_ms: AtomicU64,
    /// Bytes that answers may have in a second, on all connections together; 0 for any number.
    bandwidth: AtomicU64,
    /// When the last answer that was let through has passed the thin link.
    passed: Mutex<Instant>,
    /// After how many bytes the next answer is cut off; negative for none.
    cut_after: AtomicI64,
    /// How long the answer was that was cut off last.
    cut: Mutex<Option<usize>>,
    cut_done: Notify,
}

impl Proxy {
    pub(crate) async fn start(host: Ipv4Addr, upstream: Arc<AtomicU16>) -> std::io::Result<Self> {
        let listener = TcpListener::bind((host, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            upstream,
            accepted: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            swallowed: AtomicU64::new(0),
            delay_ms: AtomicU64::new(0),
            bandwidth: AtomicU64::new(0),
            passed: Mutex::new(Instant::now()),
            cut_after: AtomicI64::new(-1),
            cut: Mutex::new(None),
            cut_done: Notify::new(),
        });
        tokio::spawn(accept(listener, state.clone()));
        Ok(Self { address, state })
    }

    /// Cuts the connection on which the next answer comes after this many of its bytes (at the most all but
    /// one). Returns how long that answer was; nothing when none came in time.
    pub(crate) async fn cut_next_answer(&self, after: usize, patience: Duration) -> Option<usize> {
        *self.state.cut.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.state.cut_after.store(i64::try_from(after).unwrap_or(0), Ordering::SeqCst);
        let _ = tokio::time::timeout(patience, self.state.cut_done.notified()).await;
        self.state.cut_after.store(-1, Ordering::SeqCst);
        *self.state.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Redis still does what it is asked on the connections that exist, and no answer arrives.
    pub(crate) fn lose_answers(&self) {
        self.state.unanswered.store(self.state.accepted.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Nothing arrives, either way, on any connection, until [`heal`](Self::heal).
    pub(crate) fn partition(&self) {
        self.state.swallowed.store(u64::MAX, Ordering::SeqCst);
    }

    /// Answers arrive so much later; zero ends it.
    pub(crate) fn delay(&self, by: Duration) {
        self.state.delay_ms.store(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Answers on all connections share this many bytes in a second; 0 ends it.
    pub(crate) fn narrow(&self, bytes_per_second: u64) {
        self.state.bandwidth.store(bytes_per_second, Ordering::SeqCst);
    }

    /// New connections work; those that a partition has met stay as they are.
    pub(crate) fn heal(&self) {
        self.state.swallowed.store(self.state.accepted.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

impl State {
    /// Waits until so many bytes have passed a link that is thin.
    async fn pass(&self, bytes: usize) {
        let bandwidth = self.bandwidth.load(Ordering::SeqCst);
        if bandwidth == 0 {
            return;
        }
        let until = {
            let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
            *passed = (*passed).max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / bandwidth as f64);
            *passed
        };
        tokio::time::sleep_until(until.into()).await;
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let number = state.accepted.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::spawn(carry(state.clone(), number, client));
    }
}

async fn carry(state: Arc<State>, number: u64, client: TcpStream) {
    let upstream = state.upstream.load(Ordering::SeqCst);
    let Ok(redis) = TcpStream::connect(("127.0.0.1", upstream)).await else { return };
    let _ = (client.set_nodelay(true), redis.set_nodelay(true));
    let ((from_client, to_client), (from_redis, to_redis)) = (client.into_split(), redis.into_split());
    // The end of one direction ends both.
    tokio::select! {
        () = ask(&state, number, from_client, to_redis) => {}
        () = answer(&state, number, from_redis, to_client) => {}
    }
}

async fn ask(state: &State, number: u64, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if number > state.swallowed.load(Ordering::SeqCst) && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn answer(state: &State, number: u64, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let delay = state.delay_ms.load(Ordering::SeqCst);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        state.pass(read).await;
        let lost = state.swallowed.load(Ordering::SeqCst).max(state.unanswered.load(Ordering::SeqCst));
        if number <= lost {
            continue;
        }
        let after = state.cut_after.swap(-1, Ordering::SeqCst);
        if let Ok(after) = usize::try_from(after) {
            let after = after % read;
            let _ = to.write_all(&buffer[..after]).await;
            *state.cut.lock().unwrap_or_else(PoisonError::into_inner) = Some(after);
            state.cut_done.notify_one();
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers `0123456789` to whatever it reads.
    async fn digits() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut buffer = [0; 64];
                    while let Ok(1..) = stream.read(&mut buffer).await {
                        stream.write_all(b"0123456789").await.unwrap();
                    }
                });
            }
        });
        port
    }

    #[tokio::test]
    async fn an_answer_is_cut_at_each_of_its_bytes_and_the_next_one_is_whole() {
        let proxy = Proxy::start(Ipv4Addr::LOCALHOST, Arc::new(AtomicU16::new(digits().await))).await.unwrap();
        for after in 0..10 {
            let mut client = TcpStream::connect(proxy.address).await.unwrap();
            let mut got = Vec::new();
            let (cut, ()) = tokio::join!(proxy.cut_next_answer(after, Duration::from_secs(30)), async {
                tokio::task::yield_now().await;
                client.write_all(b"?").await.unwrap();
                client.read_to_end(&mut got).await.unwrap();
            });
            assert_eq!((cut, &got[..]), (Some(after), &b"0123456789"[..after]));
        }
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        let mut got = [0; 10];
        client.write_all(b"?").await.unwrap();
        client.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"0123456789");
    }
}

//! A way to Redis that can go wrong: it stands between, and loses what it should hand on.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::io::tcp::socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::Instant;

/// A TCP address that leads to the socket of a Redis.
pub(crate) struct Proxy {
    port: u16,
    state: Arc<State>,
    accepting: tokio::task::JoinHandle<()>,
}

struct State {
    upstream: Mutex<PathBuf>,
    /// Connections up to this number lose all that is sent on them, both ways, and stay open.
    swallowed: watch::Sender<u64>,
    /// The same for what Redis sends alone.
    unanswered: watch::Sender<u64>,
    /// A connection gets no more answers once it has sent this.
    unanswerable: Mutex<Option<&'static str>>,
    /// A connection that has sent this gets no more answers until it has sent it so many times.
    held: Mutex<Option<(String, usize)>>,
    accepted: watch::Sender<u64>,
    answers: Way,
    requests: Way,
}

/// What goes in one direction.
#[derive(Default)]
struct Way {
    /// Bytes a second that it carries, all connections together; 0 for any number.
    rate: AtomicU64,
    /// When the last of them will have passed.
    passed: Mutex<Option<Instant>>,
}

impl Way {
    /// Waits until so many bytes have passed.
    async fn pass(&self, bytes: usize) {
        let rate = self.rate.load(Relaxed);
        if rate == 0 {
            return;
        }
        let until = {
            let mut passed = self.passed.lock().unwrap();
            let begin = passed.unwrap_or_else(Instant::now).max(Instant::now());
            *passed.insert(begin + Duration::from_secs_f64(bytes as f64 / rate as f64))
        };
        tokio::time::sleep_until(until).await;
    }
}

impl Proxy {
    pub(crate) async fn start(socket: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // What is on its way should not all fit into the buffers between.
        SockRef::from(&listener).set_recv_buffer_size(64 * 1024).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            upstream: Mutex::new(socket.to_owned()),
            swallowed: watch::Sender::new(0),
            unanswered: watch::Sender::new(0),
            unanswerable: Mutex::default(),
            held: Mutex::default(),
            accepted: watch::Sender::new(0),
            answers: Way::default(),
            requests: Way::default(),
        });
        let accepting = tokio::spawn({
            let state = state.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    state.accepted.send_modify(|number| *number += 1);
                    let number = *state.accepted.borrow();
                    tokio::spawn(carry(state.clone(), number, stream));
                }
            }
        });
        Self { port, state, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// From now on, all connections that exist lose what is sent on them, without a sign. New ones work.
    pub(crate) fn cut_silently(&self) {
        let accepted = *self.state.accepted.borrow();
        self.state.swallowed.send_replace(accepted);
    }

    /// From now on, Redis still does what it is asked on the connections that exist, and no answer arrives.
    pub(crate) fn lose_answers(&self) {
        let accepted = *self.state.accepted.borrow();
        self.state.unanswered.send_replace(accepted);
    }

    /// While this is set, a connection that sends this text gets no answer to it, and none to anything afterwards.
    pub(crate) fn lose_answers_to(&self, text: Option<&'static str>) {
        *self.state.unanswerable.lock().unwrap() = text;
    }

    /// From now on, a connection that sends this text gets no answers until it has sent it so many times: what waits
    /// for one answer before it goes on, waits for ever.
    pub(crate) fn hold_answers_to(&self, text: &str, times: usize) {
        *self.state.held.lock().unwrap() = Some((text.to_owned(), times));
    }

    /// From now on, what Redis sends shares so many bytes a second.
    pub(crate) fn make_thin(&self, bytes_per_second: u64) {
        self.state.answers.rate.store(bytes_per_second, Relaxed);
    }

    /// The same for what is sent to Redis.
    pub(crate) fn make_thin_to_redis(&self, bytes_per_second: u64) {
        self.state.requests.rate.store(bytes_per_second, Relaxed);
    }

    /// From now on, all connections lose what is sent on them, new ones too.
    pub(crate) fn swallow_everything(&self) {
        self.state.swallowed.send_replace(u64::MAX);
    }

    /// How many connections there have been.
    pub(crate) fn accepted(&self) -> u64 {
        *self.state.accepted.borrow()
    }

    /// New connections lead elsewhere; those that exist stay where they are.
    pub(crate) fn lead_to(&self, socket: &Path) {
        *self.state.upstream.lock().unwrap() = socket.to_owned();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn carry(state: Arc<State>, number: u64, stream: TcpStream) {
    let upstream = state.upstream.lock().unwrap().clone();
    let Ok(redis) = UnixStream::connect(upstream).await else { return };
    let ((mut from_client, mut to_client), (mut from_redis, mut to_redis)) = (stream.into_split(), redis.into_split());
    let muted = AtomicBool::new(false);
    // What was sent since answers may be held.
    let since = Mutex::new(Vec::new());
    let (held, never) = (watch::Sender::new(false), watch::Sender::new(false));
    let cut = || number <= *state.swallowed.borrow();
    let there = |sent: &[u8]| {
        let unanswerable = *state.unanswerable.lock().unwrap();
        let names = |text: &str| sent.windows(text.len()).any(|part| part == text.as_bytes());
        muted.fetch_or(unanswerable.is_some_and(names), Relaxed);
        if let Some((text, times)) = &*state.held.lock().unwrap() {
            let mut since = since.lock().unwrap();
            since.extend_from_slice(sent);
            let sent = since.windows(text.len()).filter(|part| *part == text.as_bytes()).count();
            held.send_replace((1..*times).contains(&sent));
        }
        cut()
    };
    let back = |_: &[u8]| muted.load(Relaxed) || cut() || number <= *state.unanswered.borrow();
    // The end of one direction ends both, except where the connection is to look alive.
    tokio::select! {
        () = pump(&mut from_client, &mut to_redis, there, &never, &state.requests) => {}
        () = pump(&mut from_redis, &mut to_client, back, &held, &state.answers) => {}
    }
}

async fn pump(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    is_lost: impl Fn(&[u8]) -> bool,
    held: &watch::Sender<bool>,
    way: &Way,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) if is_lost(&buffer[..read]) => {}
            Ok(read) => {
                let _ = held.subscribe().wait_for(|held| !held).await;
                way.pass(read).await;
                if to.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}

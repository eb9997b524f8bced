//! What the operating system tells a server.

use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt as _;
use tokio::signal::unix::{self, SignalKind};

/// What a server that could not start has left to the next one of this process: what it is told in between must not be
/// lost, because no signal does by itself what it does to other programs any more. A std mutex: held to move a value.
static LEFT: Mutex<Option<Signals>> = Mutex::new(None);

pub(super) enum Signal {
    /// Take no more tasks.
    Quiet,
    /// Drain and stop.
    Stop,
}

pub(super) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    /// The terminal was closed. Without a handler the process would end like after a crash.
    hangup: unix::Signal,
    quiet: unix::Signal,
}

impl Signals {
    /// From now on; after a server that could not start, from its beginning on.
    pub(super) fn listen() -> std::io::Result<Self> {
        if let Some(left) = LEFT.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(left);
        }
        // TSTP has no name in tokio. Its number is 20 on Linux, but on mips (24) and on BSDs (18).
        let tstp = if cfg!(any(target_os = "macos", target_os = "freebsd", target_os = "netbsd", target_os = "openbsd"))
        {
            18
        } else if cfg!(any(target_arch = "mips", target_arch = "mips64")) {
            24
        } else {
            20
        };
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hangup: unix::signal(SignalKind::hangup())?,
            quiet: unix::signal(SignalKind::from_raw(tstp))?,
        })
    }

    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.hangup.recv() => Signal::Stop,
            _ = self.quiet.recv() => Signal::Quiet,
        }
    }

    /// Whether one that says stop has come already.
    pub(super) fn has_stop(&mut self) -> bool {
        self.stop().now_or_never().is_some()
    }

    /// For a server that could not start.
    pub(super) fn leave(self) {
        *LEFT.lock().unwrap_or_else(PoisonError::into_inner) = Some(self);
    }

    /// Waits for one that says stop.
    pub(super) async fn stop(&mut self) {
        self.stop_noting(&mut false).await;
    }

    /// The same; whether one has come that says quiet is noted.
    pub(super) async fn stop_noting(&mut self, quiet: &mut bool) {
        while matches!(self.next().await, Signal::Quiet) {
            *quiet = true;
        }
    }
}

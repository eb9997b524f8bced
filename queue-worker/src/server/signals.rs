//! What the operating system tells a server.

use tokio::signal::unix::{self, SignalKind};

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
    pub(super) fn listen() -> std::io::Result<Self> {
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

    /// Waits for one that says stop.
    pub(super) async fn stop(&mut self) {
        while matches!(self.next().await, Signal::Quiet) {}
    }
}

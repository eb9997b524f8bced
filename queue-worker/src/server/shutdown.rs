//! How far a server is on its way to its end.

use tokio_util::sync::CancellationToken;

/// A step on the way. Each includes those before it; there is no way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// No more tasks are taken.
    Quiet,
    /// No more aggregations begin either: the server waits for what it works on.
    Closing,
    /// Handlers and aggregators are told to stop.
    Interrupting,
    /// All reports are written or given up. The other loops end.
    Ended,
}

/// A token for each phase, which triggers when it is reached; see `docs/shutdown.md`.
#[derive(Debug, Clone, Default)]
pub(super) struct Shutdown {
    /// Ends the processor.
    pub(super) quiet: CancellationToken,
    /// Ends the aggregator.
    pub(super) closing: CancellationToken,
    /// Stops running aggregations; handlers have tokens of their own.
    pub(super) interrupting: CancellationToken,
    /// Ends all other loops.
    pub(super) ended: CancellationToken,
}

impl Shutdown {
    /// Goes on to this phase, if it was not reached before.
    pub(super) fn enter(&self, phase: Phase) {
        let phases = [
            (Phase::Quiet, &self.quiet),
            (Phase::Closing, &self.closing),
            (Phase::Interrupting, &self.interrupting),
            (Phase::Ended, &self.ended),
        ];
        phases.into_iter().filter(|(reached, _)| *reached <= phase).for_each(|(_, token)| token.cancel());
    }

    /// Waits until tools have to be told another [status](Self::status).
    pub(super) async fn changed(&self) {
        match self.status() {
            "active" => self.quiet.cancelled().await,
            "stopped" => self.closing.cancelled().await,
            _ => std::future::pending().await,
        }
    }

    /// In asynq's words.
    pub(super) fn status(&self) -> &'static str {
        match (self.quiet.is_cancelled(), self.closing.is_cancelled()) {
            (_, true) => "closed",
            (true, false) => "stopped",
            (false, false) => "active",
        }
    }
}

/// A server that is being started. If its start is given up half-way, all that runs already ends.
pub(super) struct Begun(Option<Shutdown>);

impl Begun {
    pub(super) fn new(shutdown: &Shutdown) -> Self {
        Self(Some(shutdown.clone()))
    }

    pub(super) fn started(mut self) {
        self.0 = None;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.iter().for_each(|shutdown| shutdown.enter(Phase::Ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_includes_those_before_it_and_none_after_it() {
        let shutdown = Shutdown::default();
        let reached = || {
            let Shutdown { quiet, closing, interrupting, ended } = &shutdown;
            [quiet, closing, interrupting, ended].map(CancellationToken::is_cancelled)
        };
        assert_eq!((reached(), shutdown.status()), ([false; 4], "active"));
        shutdown.enter(Phase::Quiet);
        assert_eq!((reached(), shutdown.status()), ([true, false, false, false], "stopped"));
        shutdown.enter(Phase::Interrupting);
        assert_eq!((reached(), shutdown.status()), ([true, true, true, false], "closed"));
        shutdown.enter(Phase::Quiet);
        assert_eq!(reached(), [true, true, true, false], "there is no way back");
        shutdown.enter(Phase::Ended);
        assert_eq!(reached(), [true; 4]);
    }
}

//! The log of a process: a small pipe, which somebody reads into a file, or nobody reads.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;

use crate::Failure;

/// How much a process can write that nobody reads: the least that Linux has.
const PIPE: i32 = 4_096;

/// What copies a log; dropping it changes nothing.
#[derive(Debug, Default)]
pub(crate) struct Log(Arc<AtomicBool>);

impl Log {
    /// Copies a log until its process has ended.
    pub(crate) fn copy(from: Option<ChildStderr>, to: &Path) -> Result<Self, Failure> {
        let mut from = from.ok_or("a process without a log")?;
        #[cfg(target_os = "linux")]
        fcntl(&from, FcntlArg::F_SETPIPE_SZ(PIPE))?;
        let mut to = std::fs::File::create(to)?;
        let stalled = Arc::new(AtomicBool::new(false));
        let log = Self(stalled.clone());
        tokio::spawn(async move {
            let mut buffer = vec![0; 4_096];
            loop {
                while stalled.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                match from.read(&mut buffer).await {
                    Ok(read @ 1..) if to.write_all(&buffer[..read]).is_ok() => {}
                    _ => return,
                }
            }
        });
        Ok(log)
    }

    /// Whether nobody reads it from now on.
    pub(crate) fn stall(&self, stalled: bool) {
        self.0.store(stalled, Ordering::SeqCst);
    }
}

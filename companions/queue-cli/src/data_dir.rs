//! The directory of an embedded Redis that keeps its data.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::error::CliError;

/// The lock on a directory. Two servers on one append-only file would ruin it, and redis-server itself does
/// not look out for that.
///
/// The redis-server inherits the lock, so that it lasts as long as either of us lives: also when this
/// process is killed, and when the server is left running.
#[derive(Debug)]
pub(crate) struct DataLock {
    file: File,
}

const NAME: &str = "queuectl.lock";

impl DataLock {
    /// Locks a directory, making it if need be.
    pub(crate) fn take(directory: &Path) -> Result<Self, CliError> {
        let failed = |error: std::io::Error| {
            CliError::failed(format!("cannot use {} for the embedded Redis: {error}", directory.display()))
        };
        std::fs::create_dir_all(directory).map_err(failed)?;
        let path = directory.join(NAME);
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut url = String::new();
                let _ = file.read_to_string(&mut url);
                return Err(in_use(directory, url.trim()));
            }
            Err(error) => return Err(failed(error.into())),
        }
        // For the redis-server that is started next; see `started`.
        fcntl_setfd(&file, FdFlags::empty()).map_err(|error| failed(error.into()))?;
        Ok(Self { file })
    }

    /// Tells others where the server listens, and keeps the lock from the programs that we start from now on.
    pub(crate) fn started(&mut self, url: &str) {
        let _ = fcntl_setfd(&self.file, FdFlags::CLOEXEC);
        // Only a help for those who find the directory locked.
        let _ =
            self.file.set_len(0).and_then(|()| self.file.rewind()).and_then(|()| self.file.write_all(url.as_bytes()));
    }
}

fn in_use(directory: &Path, url: &str) -> CliError {
    let instead = if url.is_empty() { String::new() } else { format!("; use that one with --redis {url}") };
    CliError::failed(format!("a Redis is running on {} already{instead}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_server_and_tells_the_second_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new");
        let mut lock = DataLock::take(&path).unwrap();
        lock.started("redis+unix:///tmp/x.sock");
        let Err(CliError::Failed(message)) = DataLock::take(&path) else { panic!("locked twice") };
        assert!(message.contains("--redis redis+unix:///tmp/x.sock"), "{message}");
        drop(lock);
        assert!(DataLock::take(&path).is_ok());
    }
}

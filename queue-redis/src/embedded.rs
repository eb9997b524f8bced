//! A private `redis-server`, started by the program and ended with it.
//!
//! For demos and tests: it listens on a Unix socket only, in a directory nobody else uses.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};

use crate::connection::Redis;
use crate::error::Error;
use crate::options::RedisOptions;

/// Why no private server could be started.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no server program.
    #[error(
        "no redis-server or valkey-server found; install one (Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis)"
    )]
    NotInstalled,
    /// A server keeps its data in this directory already.
    #[error("a Redis is running on {} already{}", directory.display(), at(url))]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// Where that server listens; empty while it starts.
        url: String,
    },
    /// A file or process could not be made.
    #[error("start a private redis-server: {0}")]
    Io(#[from] std::io::Error),
    /// The server ended at once or did not answer.
    #[error("the private redis-server did not come up: {output}")]
    NotReady {
        /// What it printed, the last part.
        output: String,
    },
}

queue_core::debug_as_text!(StartError);

fn at(url: &str) -> String {
    if url.is_empty() { String::new() } else { format!("; it listens on {url}") }
}

/// A running private server. Dropping it ends the server; so does the end of this process, however it
/// comes, unless the server was [detached](Self::detach).
#[derive(Debug)]
pub struct RedisServer {
    url: String,
    socket: PathBuf,
    child: Option<Child>,
    // Not left in the child: waiting for it closes its standard input, which is what ends the server.
    lifeline: Option<ChildStdin>,
    // The server's directory, when it is a temporary one; removed after the server has ended.
    directory: Option<TempDir>,
}

/// How long a server may be silent at its start. While it loads what it finds on disk, it says so.
const READY_WITHIN: Duration = Duration::from_secs(15);

/// The file in a directory with data that is locked, and says where the server listens.
const LOCK: &str = "queuectl.lock";

/// The shell waits for its standard input to close, which the end of this process does too, and then
/// ends the server, unless it was told to detach. A server that ends first takes the shell with it. Its
/// directory goes last, for a process that was killed removes nothing. One within an endless script does not
/// hear TERM: KILL follows after 5 s, unless it keeps data, which it may still be writing. A terminal that goes away ends
/// this program, but not the shell, which would leave the server behind.
///
/// Both inherit the file that locks the directory, in the place of their standard error. So the lock lasts as long as the server.
const WATCHDOG: &str = r#"exec 3<&0 4>&2 2>/dev/null
trap '' HUP
"$@" 2>&1 & server=$!
(read -r word; [ "$word" = detach ] || {
  kill "$server"; [ -n "$QUEUE_REDIS_KEEPS" ] || { sleep 5; kill -9 "$server"; }; }) \
  <&3 4>&- >/dev/null 2>&1 & watcher=$!
wait "$server"; status=$?; kill "$watcher" 2>/dev/null
case $QUEUE_REDIS_TEMPORARY in
*/queue-redis-*) [ -e "$QUEUE_REDIS_TEMPORARY/detached" ] || rm -rf -- "$QUEUE_REDIS_TEMPORARY" ;;
esac
exit $status"#;

impl RedisServer {
    /// Starts a server that keeps nothing on disk.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start() -> Result<Self, StartError> {
        Self::start_with(None, &[]).await
    }

    /// Starts a server with further settings (`--name value ...`); with a directory, it keeps its data
    /// there in an append-only file and finds it again the next time. A directory has one server at a time: it is locked
    /// for as long as that lives, also when it was detached.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start_with(data: Option<&Path>, settings: &[&str]) -> Result<Self, StartError> {
        let program = find_program().ok_or(StartError::NotInstalled)?;
        let temporary = tempfile::Builder::new().prefix("queue-redis-").tempdir()?;
        // The path of a socket has to be short, so it never stands in the caller's directory.
        let socket = temporary.path().join("redis.sock");
        let (directory, lock) = match data {
            Some(directory) => {
                std::fs::create_dir_all(directory)?;
                let directory = directory.canonicalize()?;
                let lock = lock(&directory)?.into();
                (directory, lock)
            }
            None => (temporary.path().to_owned(), Stdio::null()),
        };
        let append_only = if data.is_some() { "yes" } else { "no" };
        let mut command = Command::new("sh");
        command.arg("-c").arg(WATCHDOG).arg("redis").arg(program);
        command.arg("--unixsocket").arg(&socket).arg("--dir").arg(&directory);
        command.args(["--port", "0", "--save", "", "--daemonize", "no", "--loglevel", "warning"]);
        command.args(["--appendonly", append_only, "--maxmemory-policy", "noeviction"]).args(settings);
        command.env("QUEUE_REDIS_TEMPORARY", temporary.path());
        command.env("QUEUE_REDIS_KEEPS", if data.is_some() { "data" } else { "" });
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(lock);
        // A Ctrl-C in the terminal is for this program, which ends the server when it is done with it.
        command.process_group(0);
        let mut child = command.spawn()?;
        let lifeline = child.stdin.take();
        let url = format!("redis+unix://{}", socket.display());
        if let Err(failed) = wait_until_ready(&url, &mut child, READY_WITHIN).await {
            // Ends the server, should it still be there, and with it its output.
            drop(lifeline);
            let output = format!("{failed}; {}", last_words(&mut child).await);
            return Err(StartError::NotReady { output });
        }
        if data.is_some() {
            // Only a help for those who find the directory locked.
            let _ = std::fs::write(directory.join(LOCK), &url);
        }
        Ok(Self { url, socket, child: Some(child), lifeline, directory: Some(temporary) })
    }

    /// The URL to connect to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The socket, for `redis-cli -s`.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A new connection to it.
    ///
    /// # Panics
    /// Never: the URL was made here.
    pub fn redis(&self) -> Redis {
        #[expect(clippy::expect_used, reason = "the URL was made here and has been used already")]
        Redis::lazy(&self.url, RedisOptions::default()).expect("a URL made here")
    }

    /// Ends the server and waits until it has ended; with an append-only file, everything is on disk
    /// afterwards.
    pub async fn stop(mut self) {
        drop(self.lifeline.take());
        if let Some(mut child) = self.child.take() {
            let _ = tokio::time::timeout(Duration::from_secs(10), child.wait()).await;
        }
    }

    /// Lets the server live on after this process; returns its directory, which then stays too. To end
    /// it: `redis-cli -s SOCKET shutdown nosave`.
    ///
    /// # Errors
    /// When the server has ended already.
    pub async fn detach(mut self) -> Result<PathBuf, StartError> {
        if let Some(directory) = &self.directory {
            // Here and not by the shell, which may read the word later than the server ends.
            std::fs::write(directory.path().join("detached"), "")?;
        }
        if let Some(lifeline) = &mut self.lifeline {
            lifeline.write_all(b"detach\n").await?;
        }
        Ok(self.directory.take().map(TempDir::keep).unwrap_or_default())
    }
}

/// The server program: what the environment variable `QUEUE_REDIS_SERVER` names, else the first `redis-server`
/// or `valkey-server` on the `PATH`.
pub fn find_program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("QUEUE_REDIS_SERVER").filter(|named| !named.is_empty()) {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&path)
        .flat_map(|directory| ["redis-server", "valkey-server"].map(|name| directory.join(name)));
    candidates.find(|program| program.is_file())
}

/// Two servers on one append-only file would ruin it, and redis-server itself does not look out for that.
fn lock(directory: &Path) -> Result<File, StartError> {
    let path = directory.join(LOCK);
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let url = std::fs::read_to_string(path).unwrap_or_default();
            Err(StartError::InUse { directory: directory.to_owned(), url })
        }
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

async fn wait_until_ready(url: &str, child: &mut Child, silent_for: Duration) -> Result<(), String> {
    let connected = async {
        let options = RedisOptions { connect_timeout: Duration::from_secs(1), ..RedisOptions::default() };
        let redis = Redis::lazy(url, options).map_err(|error| error.to_string())?;
        let mut heard = Instant::now();
        while heard.elapsed() < silent_for {
            match redis.ping().await {
                Ok(()) => return Ok(()),
                // A server that asks for a password is up.
                Err(Error::Refused { code, .. }) if code == "NOAUTH" => return Ok(()),
                Err(Error::Refused { code, .. }) if code == "LOADING" => heard = Instant::now(),
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(format!("it did not answer for {silent_for:?}"))
    };
    tokio::select! {
        ready = connected => ready,
        status = child.wait() => {
            Err(format!("it ended with {}", status.map_or_else(|error| error.to_string(), |status| status.to_string())))
        }
    }
}

/// What the server printed, the beginning of it.
async fn last_words(child: &mut Child) -> String {
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let mut printed = stdout.take(4096);
        let read = printed.read_to_end(&mut output);
        let _ = tokio::time::timeout(Duration::from_secs(2), read).await;
    }
    String::from_utf8_lossy(&output).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was given up after 15 s, whatever there was to load.
    #[tokio::test]
    async fn a_server_is_waited_for_while_it_says_that_it_loads() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("redis.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let loads = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut words = [0; 4096];
                    while let Ok(read @ 1..) = stream.read(&mut words).await {
                        // Each call begins so, on a line of its own.
                        let calls = String::from_utf8_lossy(&words[..read])
                            .lines()
                            .filter(|line| line.starts_with('*'))
                            .count();
                        let answer = "-LOADING Redis is loading the dataset in memory\r\n".repeat(calls);
                        let _ = stream.write_all(answer.as_bytes()).await;
                    }
                });
            }
        });
        let mut child = Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
        let url = format!("redis+unix://{}", socket.display());
        let (brief, long) = (Duration::from_millis(500), Duration::from_secs(3));
        let ready = wait_until_ready(&url, &mut child, brief);
        tokio::pin!(ready);
        let given_up = tokio::time::timeout(long, &mut ready).await;
        assert!(given_up.is_err(), "{given_up:?}");
        loads.abort();
        std::fs::remove_file(socket).unwrap();
        let given_up = tokio::time::timeout(Duration::from_secs(10), ready).await.expect("nobody answers any more");
        assert!(given_up.unwrap_err().contains("did not answer"));
    }
}

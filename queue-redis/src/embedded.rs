//! A private `redis-server`, started by the program and ended with it.
//!
//! For demos and tests: it listens on a Unix socket only, in a directory nobody else uses.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};

use crate::connection::Redis;
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

/// How long a server may take to load what it finds on disk.
const READY_WITHIN: Duration = Duration::from_secs(15);

/// The shell waits for its standard input to close, which the end of this process does too, and then
/// ends the server, unless it was told to detach. A server that ends first takes the shell with it. Its
/// directory goes last, for a process that was killed removes nothing. One within an endless script does not
/// hear TERM: KILL follows after 5 s, unless it keeps data, which it may still be writing.
const WATCHDOG: &str = r#""$@" 2>&1 & server=$!
(read -r word; if [ "$word" = detach ]; then touch "$QUEUE_REDIS_TEMPORARY/detached"; else
  kill "$server"; [ -n "$QUEUE_REDIS_KEEPS" ] || { sleep 5; kill -9 "$server"; }; fi) \
  <&3 >/dev/null 2>&1 & watcher=$!
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
    /// there in an append-only file and finds it again the next time.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start_with(data: Option<&Path>, settings: &[&str]) -> Result<Self, StartError> {
        let program = find_program().ok_or(StartError::NotInstalled)?;
        let temporary = tempfile::Builder::new().prefix("queue-redis-").tempdir()?;
        // The path of a socket has to be short, so it never stands in the caller's directory.
        let socket = temporary.path().join("redis.sock");
        let directory = match data {
            Some(directory) => {
                std::fs::create_dir_all(directory)?;
                directory.canonicalize()?
            }
            None => temporary.path().to_owned(),
        };
        let append_only = if data.is_some() { "yes" } else { "no" };
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("exec 3<&0; {WATCHDOG}")).arg("redis").arg(program);
        command.arg("--unixsocket").arg(&socket).arg("--dir").arg(&directory);
        command.args(["--port", "0", "--save", "", "--daemonize", "no", "--loglevel", "warning"]);
        command.args(["--appendonly", append_only, "--maxmemory-policy", "noeviction"]).args(settings);
        command.env("QUEUE_REDIS_TEMPORARY", temporary.path());
        command.env("QUEUE_REDIS_KEEPS", if data.is_some() { "data" } else { "" });
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A Ctrl-C in the terminal is for this program, which ends the server when it is done with it.
        command.process_group(0);
        let mut child = command.spawn()?;
        let lifeline = child.stdin.take();
        let url = format!("redis+unix://{}", socket.display());
        if let Err(failed) = wait_until_ready(&url, &mut child).await {
            // Ends the server, should it still be there, and with it its output.
            drop(lifeline);
            let output = format!("{failed}; {}", last_words(&mut child).await);
            return Err(StartError::NotReady { output });
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

async fn wait_until_ready(url: &str, child: &mut Child) -> Result<(), String> {
    let connected = async {
        let options = RedisOptions { connect_timeout: Duration::from_secs(1), ..RedisOptions::default() };
        let redis = Redis::lazy(url, options).map_err(|error| error.to_string())?;
        loop {
            match redis.ping().await {
                Ok(()) => return Ok::<(), String>(()),
                // A server that asks for a password is up.
                Err(error) if error.to_string().contains("NOAUTH") => return Ok(()),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::select! {
        ready = connected => ready,
        status = child.wait() => {
            Err(format!("it ended with {}", status.map_or_else(|error| error.to_string(), |status| status.to_string())))
        }
        () = tokio::time::sleep(READY_WITHIN) => Err(format!("it did not answer for {READY_WITHIN:?}")),
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

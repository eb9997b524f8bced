//! A dashboard as a process, and requests to it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::Failure;

/// How long a program may take until it answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// A dashboard and a connection to it.
pub(super) struct Site {
    /// Ends with this.
    process: Child,
    socket: PathBuf,
    connection: SendRequest<Full<Bytes>>,
}

impl Site {
    pub(super) async fn start(program: &Path, arguments: &[&str], socket: PathBuf) -> Result<Self, Failure> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let process = command.kill_on_drop(true).env_remove("QUEUECTL_LOG").spawn();
        let process = process.map_err(|error| format!("{}: {error}", program.display()))?;
        let began = Instant::now();
        let connection = loop {
            match connect(&socket).await {
                Ok(connection) => break connection,
                Err(error) if began.elapsed() > PATIENCE => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        Ok(Self { process, socket, connection })
    }

    /// Sends a request, and answers the head of the answer.
    async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<Response<Incoming>, Failure> {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.header("content-type", "application/json").body(Full::from(body.to_owned()))?;
        if self.connection.ready().await.is_err() {
            self.connection = connect(&self.socket).await?;
        }
        let answer = self.connection.send_request(request).await?;
        if !answer.status().is_success() {
            return Err(format!("{method} {path}: {}", answer.status()).into());
        }
        Ok(answer)
    }

    /// Another connection, behind a request that was given up.
    pub(super) async fn connect_anew(&mut self) -> Result<(), Failure> {
        self.connection = connect(&self.socket).await?;
        Ok(())
    }

    /// What is at this path, and the time until all of it was here.
    pub(super) async fn timed(&mut self, path: &str) -> Result<(Duration, Bytes), Failure> {
        let began = Instant::now();
        let body = self.send("GET", path, "").await?.into_body().collect().await?.to_bytes();
        Ok((began.elapsed(), body))
    }

    pub(super) async fn get(&mut self, path: &str) -> Result<Value, Failure> {
        self.json("GET", path, "").await
    }

    pub(super) async fn json(&mut self, method: &str, path: &str, body: &str) -> Result<Value, Failure> {
        let body = self.send(method, path, body).await?.into_body().collect().await?.to_bytes();
        Ok(serde_json::from_slice(&body)?)
    }
}

/// An event that a stream has got.
pub(super) struct Seen {
    pub(super) id: String,
    pub(super) at: Instant,
}

impl Site {
    /// Opens a stream, which is read until what is answered is dropped.
    pub(super) async fn stream(&self, path: &str) -> Result<Streaming, Failure> {
        self.stream_to(path, mpsc::unbounded_channel().0).await
    }

    /// The same; each event is told.
    pub(super) async fn stream_to(&self, path: &str, to: mpsc::UnboundedSender<Seen>) -> Result<Streaming, Failure> {
        let mut connection = connect(&self.socket).await?;
        let request = Request::builder().uri(path).header("host", "localhost").body(Full::default())?;
        let answer = connection.send_request(request).await?;
        if !answer.status().is_success() {
            return Err(format!("{path}: {}", answer.status()).into());
        }
        let mut body = answer.into_body();
        let reading = tokio::spawn(async move {
            while let Some(Ok(frame)) = body.frame().await {
                // An event is written at once, and its name is where it begins.
                let data = frame.into_data().unwrap_or_default();
                let head = data.strip_prefix(b"id: ").and_then(|rest| rest.split(|byte| *byte == b'\n').next());
                if let Some(id) = head {
                    let _ = to.send(Seen { id: String::from_utf8_lossy(id).into_owned(), at: Instant::now() });
                }
            }
            drop(connection);
        });
        Ok(Streaming(reading))
    }

    /// The memory of the process, in KiB.
    pub(super) fn resident_kib(&self) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id().unwrap_or_default()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

/// A stream that is open.
pub(super) struct Streaming(JoinHandle<()>);

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn connect(socket: &Path) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let (sender, connection) = handshake(TokioIo::new(UnixStream::connect(socket).await?)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

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

use crate::Failure;

/// How long a program may take until it answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// A dashboard and a connection to it.
pub(super) struct Site {
    /// Ends with this.
    _process: Child,
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
        Ok(Self { _process: process, socket, connection })
    }

    /// Sends a request, and answers the head of the answer.
    pub(super) async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<Response<Incoming>, Failure> {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.body(Full::from(body.to_owned()))?;
        if self.connection.ready().await.is_err() {
            self.connection = connect(&self.socket).await?;
        }
        let answer = self.connection.send_request(request).await?;
        if !answer.status().is_success() {
            return Err(format!("{method} {path}: {}", answer.status()).into());
        }
        Ok(answer)
    }

    /// What is at this path, and the time until all of it was here.
    pub(super) async fn timed(&mut self, path: &str) -> Result<(Duration, Bytes), Failure> {
        let began = Instant::now();
        let body = self.send("GET", path, "").await?.into_body().collect().await?.to_bytes();
        Ok((began.elapsed(), body))
    }

    pub(super) async fn get(&mut self, path: &str) -> Result<Value, Failure> {
        Ok(serde_json::from_slice(&self.timed(path).await?.1)?)
    }
}

async fn connect(socket: &Path) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let (sender, connection) = handshake(TokioIo::new(UnixStream::connect(socket).await?)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

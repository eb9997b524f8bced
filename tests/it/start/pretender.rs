//! Something that answers like a Redis of a certain version, and knows nothing else.

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Serves connections until it is dropped.
pub(super) struct Pretender {
    port: u16,
    serving: tokio::task::JoinHandle<()>,
}

impl Pretender {
    pub(super) async fn start(version: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, version));
            }
        });
        Self { port, serving }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Pretender {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(stream: TcpStream, version: &str) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    while let Some(words) = command(&mut read).await {
        let answer = match words[0].to_ascii_uppercase().as_str() {
            "HELLO" => {
                let fields = ["server", "redis", "version", version, "mode", "standalone", "role", "master"];
                let fields: String = fields.iter().map(|field| bulk(field)).collect();
                format!("*8\r\n{fields}")
            }
            "INFO" => bulk("maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"),
            "SCRIPT" => bulk("0123456789012345678901234567890123456789"),
            "EVALSHA" => "*0\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        };
        if write.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

async fn command(read: &mut BufReader<tokio::net::tcp::OwnedReadHalf>) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..number(read).await? {
        let mut word = vec![0; number(read).await? + 2];
        read.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8(word).ok()?);
    }
    Some(words).filter(|words| !words.is_empty())
}

async fn number(read: &mut BufReader<tokio::net::tcp::OwnedReadHalf>) -> Option<usize> {
    let mut line = String::new();
    read.read_line(&mut line).await.ok()?;
    line.get(1..)?.trim_end().parse().ok()
}

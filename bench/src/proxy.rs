//! A connection as if Redis were further away: what comes in goes out half a millisecond later, either way.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

use crate::Failure;

const ONE_WAY: Duration = Duration::from_micros(500);

/// Listens on a port of its own until the process ends; returns the port.
pub(crate) fn start(redis: u16) -> Result<u16, Failure> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    // A thread of its own, so that it is not late because of something else.
    std::thread::Builder::new().name("proxy".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(serve(listener, redis)),
            Err(error) => eprintln!("the proxy cannot start: {error}"),
        }
    })?;
    Ok(port)
}

async fn serve(listener: std::net::TcpListener, redis: u16) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(("127.0.0.1", redis)).await else { continue };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        tokio::spawn(carry(from_client, to_server));
        tokio::spawn(carry(from_server, to_client));
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut under_way: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut open = true;
    let mut buffer = vec![0; 64 * 1024];
    while open || !under_way.is_empty() {
        let next = under_way.front().map(|(at, _)| *at);
        tokio::select! {
            read = from.read(&mut buffer), if open => match read {
                Ok(0) | Err(_) => open = false,
                Ok(count) => under_way.push_back((Instant::now() + ONE_WAY, buffer[..count].to_vec())),
            },
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                while under_way.front().is_some_and(|(at, _)| *at <= Instant::now()) {
                    let Some((_, bytes)) = under_way.pop_front() else { break };
                    if to.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use queue_core::TaskMessage;
use queue_redis::InProcess;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// Replies made of the fuzzer's bytes. When they are used up, the connection refuses, so that every call ends.
#[derive(Debug, Default)]
pub(super) struct Answers {
    // A std mutex: held to take some bytes.
    bytes: Arc<Mutex<VecDeque<u8>>>,
}

impl Answers {
    pub(super) fn set(&self, bytes: &[u8]) {
        let mut left = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        left.clear();
        left.extend(bytes);
    }
}

impl InProcess for Answers {
    fn open(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let bytes = self.bytes.clone();
        tokio::spawn(async move { serve(ours, &bytes).await });
        theirs
    }
}

async fn serve(mut stream: DuplexStream, bytes: &Mutex<VecDeque<u8>>) {
    let mut unread = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut unread).await {
        let mut said = Vec::new();
        while let Some((name, length)) = command(&unread) {
            unread.drain(..length);
            match &name.to_ascii_uppercase()[..] {
                // Said while a connection begins.
                b"SCRIPT" | b"CLIENT" | b"HELLO" | b"SELECT" => said.extend(b"+OK\r\n"),
                _ => reply(&mut bytes.lock().unwrap_or_else(PoisonError::into_inner), 0, &mut said),
            }
        }
        if stream.write_all(&said).await.is_err() {
            return;
        }
    }
}

/// The name of the first command in the buffer, and the length of the command.
fn command(buffer: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (words, mut at) = number(buffer, 0)?;
    let mut name = None;
    for _ in 0..words {
        let (length, start) = number(buffer, at)?;
        at = start + length + 2;
        if buffer.len() < at {
            return None;
        }
        name.get_or_insert_with(|| buffer[start..start + length].to_vec());
    }
    Some((name?, at))
}

/// The number in a line like `*3` or `$12`, and where the next line begins.
fn number(buffer: &[u8], at: usize) -> Option<(usize, usize)> {
    let line = buffer.get(at + 1..)?;
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    Some((std::str::from_utf8(&line[..end]).ok()?.parse().ok()?, at + end + 3))
}

/// Words that Redis might say where a script looks for them.
const WORDS: [&str; 12] = [
    "",
    "0",
    "1",
    "-1",
    "1700000000",
    "1.5e+300",
    "inf",
    "active",
    "asynq:{q}:g:a:b",
    "q",
    "id",
    "9223372036854775807",
];

fn reply(bytes: &mut VecDeque<u8>, depth: usize, said: &mut Vec<u8>) {
    let mut text = String::new();
    let Some(kind) = bytes.pop_front() else {
        said.extend(b"-ERR nothing more to say\r\n");
        return;
    };
    let argument = bytes.pop_front().unwrap_or_default();
    match kind % 10 {
        0 | 1 if depth < 3 => {
            let _ = write!(text, "*{}\r\n", argument % 12);
            said.extend(text.as_bytes());
            (0..argument % 12).for_each(|_| reply(bytes, depth + 1, said));
            return;
        }
        2 => _ = write!(text, ":{}\r\n", i64::from(argument) - 3),
        3 => {
            let extreme = [i64::MIN, i64::MAX, i64::MIN + 1, i64::from(u32::MAX), 100, 101][usize::from(argument) % 6];
            let _ = write!(text, ":{extreme}\r\n");
        }
        4 => text.push_str("$-1\r\n"),
        5 => text
            .push_str(["-WRONGTYPE Operation against a key\r\n", "-ERR it does not go\r\n"][usize::from(argument) % 2]),
        6 => text.push_str(["+OK\r\n", "+QUEUED\r\n", "+\r\n"][usize::from(argument) % 3]),
        7 => return bulk(WORDS[usize::from(argument) % WORDS.len()].as_bytes(), said),
        8 => {
            let payload: Vec<u8> = bytes.drain(..usize::from(argument).min(bytes.len())).collect();
            let message = TaskMessage {
                r#type: "t".to_owned(),
                id: "id".to_owned(),
                queue: "q".to_owned(),
                retry: i32::from(argument) - 100,
                payload: payload.into(),
                ..TaskMessage::default()
            };
            return bulk(&message.to_bytes(), said);
        }
        _ => {
            let any: Vec<u8> = bytes.drain(..usize::from(argument).min(bytes.len())).collect();
            return bulk(&any, said);
        }
    }
    said.extend(text.as_bytes());
}

fn bulk(bytes: &[u8], said: &mut Vec<u8>) {
    said.extend(format!("${}\r\n", bytes.len()).as_bytes());
    said.extend(bytes);
    said.extend(b"\r\n");
}

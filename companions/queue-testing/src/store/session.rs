//! One connection: what it says, and the state it has.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::unbounded_channel;

use super::Inner;
use super::data::Data;
use super::engine::Engine;
use super::reply::{Answer, Refusal, Reply};
use super::wire;

/// Serves a connection in the background until the other side closes it.
pub(crate) fn serve<S>(store: Arc<Inner>, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (out, mut written) = unbounded_channel::<Vec<u8>>();
    let id = store.lock().data().clients.connect(out);
    tokio::spawn(async move {
        while let Some(bytes) = written.recv().await {
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = writer.shutdown().await;
    });
    tokio::spawn(async move {
        let mut session = Session { id, queued: None };
        let mut unread = Vec::new();
        while let Ok(1..) = reader.read_buf(&mut unread).await {
            if !session.consume(&store, &mut unread) {
                break;
            }
        }
        // Its sender goes with it, and so the writer ends.
        store.lock().data().clients.disconnect(id);
    });
}

struct Session {
    id: u64,
    /// The commands after a `MULTI`.
    queued: Option<Vec<Vec<Vec<u8>>>>,
}

impl Session {
    /// Does what is asked, as far as it has arrived; returns whether to go on.
    fn consume(&mut self, store: &Inner, unread: &mut Vec<u8>) -> bool {
        let mut at = 0;
        loop {
            match wire::parse(&unread[at..]) {
                Ok(Some((words, length))) => {
                    at += length;
                    if !words.is_empty() {
                        self.command(&mut store.lock(), &words);
                    }
                }
                Ok(None) => break,
                Err(wire::Malformed) => return false,
            }
        }
        unread.drain(..at);
        true
    }

    fn command(&mut self, engine: &mut Engine, words: &[Vec<u8>]) {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
        let reply = match (name.as_str(), &mut self.queued) {
            ("EXEC", Some(_)) => {
                let queued = self.queued.take().unwrap_or_default();
                Some(Reply::Array(queued.iter().filter_map(|words| self.perform(engine, words)).collect()))
            }
            ("DISCARD", Some(_)) => {
                self.queued = None;
                Some(Reply::OK)
            }
            (_, Some(queued)) => {
                queued.push(words.to_vec());
                Some(Reply::Status("QUEUED"))
            }
            ("MULTI", None) => {
                self.queued = Some(Vec::new());
                Some(Reply::OK)
            }
            _ => self.perform(engine, words),
        };
        let mut data = engine.data();
        if let (Some(reply), Some(client)) = (reply, data.clients.get(self.id)) {
            client.say(&reply);
        }
        // After the reply: who looks at a key and changes it in one breath hears of it afterwards.
        data.tell_changes();
    }

    /// What concerns this connection alone is done here, the rest by the engine. `None` when everything
    /// has been said already.
    fn perform(&mut self, engine: &mut Engine, words: &[Vec<u8>]) -> Option<Reply> {
        let (name, args) = words.split_first()?;
        let reply = match String::from_utf8_lossy(name).to_ascii_uppercase().as_str() {
            "PING" => Ok(self.pong(&mut engine.data(), args)),
            "HELLO" => self.hello(&mut engine.data(), args),
            "CLIENT" => self.client(&mut engine.data(), args),
            "SELECT" if args == [b"0"] => Ok(Reply::OK),
            "SELECT" => Err(Refusal("ERR DB index is out of range".to_owned())),
            "WATCH" => Err(Refusal("ERR the in-process store has no WATCH".to_owned())),
            "UNWATCH" | "RESET" | "AUTH" => Ok(Reply::OK),
            "SUBSCRIBE" => return self.subscribe(&mut engine.data(), args, true),
            "UNSUBSCRIBE" => return self.subscribe(&mut engine.data(), args, false),
            _ => {
                let answer = engine.execute(words);
                if let (Some(keys), Some(client)) = (super::looks_at(words), engine.data().clients.get(self.id)) {
                    client.looks_at(keys.iter());
                }
                answer
            }
        };
        Some(reply.into())
    }

    /// A connection that has subscribed hears nothing but arrays, before RESP3.
    fn pong(&self, data: &mut Data, args: &[Vec<u8>]) -> Reply {
        let text = args.first().cloned();
        let listens = data.clients.get(self.id).is_some_and(|client| !client.resp3 && !client.channels.is_empty());
        match text {
            text if listens => Reply::bulks([b"pong".to_vec(), text.unwrap_or_default()]),
            Some(text) => Reply::Bulk(text),
            None => Reply::Status("PONG"),
        }
    }

    fn hello(&self, data: &mut Data, args: &[Vec<u8>]) -> Answer {
        let resp3 = match args.first().map(Vec::as_slice) {
            None | Some(b"2") => false,
            Some(b"3") => true,
            Some(_) => return Err(Refusal("NOPROTO unsupported protocol version".to_owned())),
        };
        if let Some(client) = data.clients.get(self.id) {
            client.resp3 = resp3;
        }
        let text = |text: &str| Reply::text(text);
        Ok(Reply::Map(vec![
            (text("server"), text("redis")),
            (text("version"), text("7.0.15")),
            (text("proto"), Reply::Integer(if resp3 { 3 } else { 2 })),
            (text("mode"), text("standalone")),
            (text("role"), text("master")),
            (text("modules"), Reply::Array(Vec::new())),
        ]))
    }

    fn client(&self, data: &mut Data, args: &[Vec<u8>]) -> Answer {
        let words: Vec<String> = args.iter().map(|word| String::from_utf8_lossy(word).to_ascii_uppercase()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let client = data.clients.get(self.id).ok_or_else(|| Refusal("ERR the connection is closed".to_owned()))?;
        match words.as_slice() {
            ["ID"] => Ok(Reply::count(usize::try_from(self.id).unwrap_or(usize::MAX))),
            ["SETINFO", ..] | ["NO-EVICT", _] | ["NO-TOUCH", _] => Ok(Reply::OK),
            ["SETNAME", _] => {
                client.name.clone_from(&args[1]);
                Ok(Reply::OK)
            }
            ["GETNAME"] => Ok(Reply::text(client.name.clone())),
            ["TRACKING", "ON"] if client.resp3 => {
                client.track(true);
                Ok(Reply::OK)
            }
            ["TRACKING", "OFF"] => {
                client.track(false);
                Ok(Reply::OK)
            }
            _ => Err(Refusal(format!("ERR the in-process store does not know CLIENT {}", words.join(" ")))),
        }
    }

    fn subscribe(&self, data: &mut Data, channels: &[Vec<u8>], on: bool) -> Option<Reply> {
        let client = data.clients.get(self.id)?;
        let all: Vec<Vec<u8>> = client.channels.iter().cloned().collect();
        let channels = if channels.is_empty() && !on { &all } else { channels };
        for channel in channels {
            if on {
                client.channels.insert(channel.clone());
            } else {
                client.channels.remove(channel);
            }
            let what = Reply::text(if on { "subscribe" } else { "unsubscribe" });
            let count = Reply::count(client.channels.len());
            client.say(&Reply::Push(vec![what, Reply::text(channel.clone()), count]));
        }
        None
    }
}

//! The connections: what they subscribed to, and which keys they looked at.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::mpsc::UnboundedSender;

use super::reply::Reply;

/// What is known of one connection.
#[derive(Debug)]
pub(crate) struct Client {
    // Unbounded, as what is said unasked must never hold up the one who causes it.
    out: UnboundedSender<Vec<u8>>,
    pub(crate) resp3: bool,
    pub(crate) channels: BTreeSet<Vec<u8>>,
    pub(crate) name: Vec<u8>,
    tracks: bool,
    looked_at: BTreeSet<Vec<u8>>,
}

impl Client {
    pub(crate) fn say(&self, reply: &Reply) {
        let mut bytes = Vec::new();
        reply.encode(self.resp3, &mut bytes);
        // Nobody reads any more once the connection is closed.
        let _ = self.out.send(bytes);
    }

    /// Begins or ends to be told about changes of the keys it looks at.
    pub(crate) fn track(&mut self, on: bool) {
        self.tracks = on;
        self.looked_at.clear();
    }

    /// Remembers the keys of a command that reads.
    pub(crate) fn looks_at<'a>(&mut self, keys: impl Iterator<Item = &'a Vec<u8>>) {
        if self.tracks {
            self.looked_at.extend(keys.cloned());
        }
    }
}

/// All connections of a store, by number.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    last: u64,
    by_id: BTreeMap<u64, Client>,
    /// Counts invalidations, so that another client hears of each first. On one thread the first to hear
    /// would always be the first to act, and two servers would never share their work.
    turns: usize,
}

impl Clients {
    pub(crate) fn connect(&mut self, out: UnboundedSender<Vec<u8>>) -> u64 {
        self.last += 1;
        let client = Client {
            out,
            resp3: false,
            channels: BTreeSet::new(),
            name: Vec::new(),
            tracks: false,
            looked_at: BTreeSet::new(),
        };
        self.by_id.insert(self.last, client);
        self.last
    }

    pub(crate) fn disconnect(&mut self, id: u64) {
        self.by_id.remove(&id);
    }

    pub(crate) fn get(&mut self, id: u64) -> Option<&mut Client> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Says a message to all who subscribed to the channel; returns how many there are.
    pub(crate) fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        let push = Reply::Push(vec![Reply::text("message"), Reply::text(channel), Reply::text(message)]);
        let hear = self.by_id.values().filter(|client| client.channels.contains(channel));
        hear.inspect(|client| client.say(&push)).count()
    }

    /// Tells each client which of these keys it had looked at; each look is good for one message.
    pub(crate) fn invalidate<'a>(&mut self, keys: impl Iterator<Item = &'a Vec<u8>> + Clone) {
        let mut looking: Vec<&mut Client> =
            self.by_id.values_mut().filter(|client| !client.looked_at.is_empty()).collect();
        if looking.is_empty() {
            return;
        }
        self.turns = self.turns.wrapping_add(1);
        let first = self.turns % looking.len();
        looking.rotate_left(first);
        for client in looking {
            for key in keys.clone() {
                if client.looked_at.remove(key) {
                    let keys = Reply::Array(vec![Reply::text(key.clone())]);
                    client.say(&Reply::Push(vec![Reply::text("invalidate"), keys]));
                }
            }
        }
    }

    /// Tells each client that every key it had looked at has changed.
    pub(crate) fn invalidate_all(&mut self) {
        let keys: BTreeSet<Vec<u8>> = self.by_id.values().flat_map(|client| client.looked_at.iter().cloned()).collect();
        self.invalidate(keys.iter());
    }
}

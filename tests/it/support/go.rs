//! What Go asynq's scripts write, command by command: section 3 of the protocol. Nothing of ours is used,
//! so that these stand for a Go server on the same queue.

use queue_core::TaskMessage;

use super::Fixture;

/// A Go server that works on the queue of the tests.
pub(crate) struct Go<'a>(pub(crate) &'a Fixture);

fn key(rest: &str) -> String {
    format!("asynq:{{q}}:{rest}")
}

impl Go<'_> {
    async fn run(&self, words: &[&str]) {
        let _: redis::Value = self.0.cmd(words).await;
    }

    /// RETRY, as Go's recoverer and processor do it, due at `at`. Returns the message it stored.
    pub(crate) async fn retry(&self, message: &TaskMessage, error: &str, now: i64, at: i64) -> TaskMessage {
        let mut message = message.clone();
        message.retried += 1;
        message.error_msg = error.to_owned();
        message.last_failed_at = now;
        let id = message.id.as_str();
        self.run(&["LREM", &key("active"), "0", id]).await;
        self.run(&["ZREM", &key("lease"), id]).await;
        self.run(&["ZADD", &key("retry"), &at.to_string(), id]).await;
        let task = key(&format!("t:{id}")).into_bytes();
        let set: [&[u8]; 6] = [b"HSET", &task, b"msg", &message.to_bytes(), b"state", b"retry"];
        let _: redis::Value = self.0.cmd(&set).await;
        message
    }

    /// FORWARD of one task in the retry set.
    pub(crate) async fn forward(&self, id: &str) {
        self.run(&["LPUSH", &key("pending"), id]).await;
        self.run(&["ZREM", &key("retry"), id]).await;
        self.run(&["HSET", &key(&format!("t:{id}")), "state", "pending", "pending_since", "4000000000000000000"]).await;
    }

    /// DEQUEUE; it leaves a field `owner` as it is.
    pub(crate) async fn dequeue(&self, expires: i64) -> String {
        let id: String = self.0.cmd(&["RPOPLPUSH", &key("pending"), &key("active")]).await;
        self.run(&["HSET", &key(&format!("t:{id}")), "state", "active"]).await;
        self.run(&["HDEL", &key(&format!("t:{id}")), "pending_since"]).await;
        self.run(&["ZADD", &key("lease"), &expires.to_string(), &id]).await;
        id
    }
}

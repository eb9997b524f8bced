//! The table of the Lua scripts, and how they are called.
//!
//! Scripts are embedded at build time and called by their SHA-1. Every new connection loads them all in
//! one round trip; a script that Redis has forgotten since (`SCRIPT FLUSH`, a restart) is loaded again
//! and the call repeated, which is safe because a call that failed with `NOSCRIPT` did nothing.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};

/// One atomic transition: the name of its file, and its text with the library snippets it uses.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    source: &'static str,
    script: LazyLock<redis::Script>,
    guarded: LazyLock<redis::Script>,
}

/// How the scripts of a server are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// As they are.
    Plain,
    /// For a node of a cluster: the last key of every call is a guard, which the script does not see.
    ///
    /// While a slot moves from one node to another, its keys are on either. A script that ran there would be stopped
    /// by Redis at the first key that is not there, half-way. Redis runs nothing that names several keys
    /// of which one is missing on a node that gives the slot away or takes it over. A key that never exists sees
    /// to it that no script runs there before all keys of the slot have arrived.
    Guarded,
}

/// Takes the guard off the keys, before anything counts them.
const TAKE_GUARD_OFF: &str = "KEYS[#KEYS] = nil\n";

impl Script {
    fn in_dialect(&self, dialect: Dialect) -> &redis::Script {
        match dialect {
            Dialect::Plain => &self.script,
            Dialect::Guarded => &self.guarded,
        }
    }

    /// The text to load.
    fn text(&self, dialect: Dialect) -> Cow<'static, str> {
        match dialect {
            Dialect::Plain => Cow::Borrowed(self.source),
            Dialect::Guarded => Cow::Owned(format!("{TAKE_GUARD_OFF}{}", self.source)),
        }
    }

    /// The same call with a guard; `None` where it is no call with keys.
    pub(crate) fn guard(&self, call: &Cmd) -> Option<Cmd> {
        let words: Vec<&[u8]> = call.args_iter().filter_map(word).collect();
        let [_, _, count, rest @ ..] = &words[..] else { return None };
        let count: usize = std::str::from_utf8(count).ok()?.parse().ok()?;
        let (keys, arguments) = rest.split_at_checked(count)?;
        let mut guarded = redis::cmd("EVALSHA");
        guarded.arg(self.in_dialect(Dialect::Guarded).get_hash()).arg(count + 1);
        guarded.arg(keys).arg(guard_beside(keys.first()?)).arg(arguments);
        Some(guarded)
    }

    /// The beginning of a call; the keys (as many as announced) and then the arguments follow.
    pub(crate) fn call(&self, keys: usize) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(self.script.get_hash()).arg(keys);
        cmd
    }

    /// Sends a call, loading the script first where Redis has forgotten it.
    pub(crate) async fn send<C: ConnectionLike>(
        &self,
        connection: &mut C,
        call: &Cmd,
        dialect: Dialect,
    ) -> RedisResult<Value> {
        match call.query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let _: String =
                    redis::cmd("SCRIPT").arg("LOAD").arg(&*self.text(dialect)).query_async(connection).await?;
                call.query_async(connection).await
            }
            reply => reply,
        }
    }
}

/// A key that never exists, in the slot of this one. Where the key's braces make no tag, the key itself stands in:
/// that is no guard, but such a queue has no slot of its own anyway.
fn guard_beside(key: &[u8]) -> Vec<u8> {
    let tag_end = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let close = key[open + 1..].iter().position(|byte| *byte == b'}')?;
        (close > 0).then_some(open + 1 + close + 1)
    });
    match tag_end {
        Some(end) => [&key[..end], b":x:guard"].concat(),
        None if key.contains(&b'}') => key.to_vec(),
        None => [b"{", key, b"}:x:guard"].concat(),
    }
}

pub(crate) fn word(word: redis::Arg<&[u8]>) -> Option<&[u8]> {
    match word {
        redis::Arg::Simple(bytes) => Some(bytes),
        _ => None,
    }
}

/// Loads all scripts in one round trip.
pub(crate) async fn load_all<C: ConnectionLike>(connection: &mut C, dialect: Dialect) -> RedisResult<()> {
    let mut pipe = redis::pipe();
    for script in ALL {
        pipe.cmd("SCRIPT").arg("LOAD").arg(&*script.text(dialect)).ignore();
    }
    pipe.query_async(connection).await
}

macro_rules! scripts {
    ($($constant:ident = $name:literal $([$($lib:literal),*])?;)*) => {
        $(pub(crate) static $constant: Script = Script {
            name: $name,
            source: concat!(
                $($(include_str!(concat!("../lua/lib/", $lib, ".lua")),)*)?
                include_str!(concat!("../lua/", $name, ".lua")),
            ),
            script: LazyLock::new(|| redis::Script::new($constant.source)),
            guarded: LazyLock::new(|| redis::Script::new(&$constant.text(Dialect::Guarded))),
        };)*
        static ALL: &[&Script] = &[$(&$constant),*];
    };
}

scripts! {
    ENQUEUE = "enqueue" ["admit", "admit_all"];
    SCHEDULE = "schedule" ["admit", "admit_all"];
    ADD_TO_GROUP = "add_to_group" ["admit"];
    DEQUEUE = "dequeue" ["write", "stray", "release", "hand_out"];
    DEQUEUE_MATCHING = "dequeue_matching" ["write", "hand_out"];
    DONE = "done" ["leases", "owns", "release", "unlist_one", "unlist", "count"];
    COMPLETE = "complete" ["leases", "owns", "release", "unlist", "count"];
    RETRY = "retry" ["write", "owns", "unlist_one", "count", "count_failures"];
    ARCHIVE = "archive"
        ["write", "owns", "unlist_one", "stray", "release", "forget", "trim", "count", "count_failures"];
    TRIM_ARCHIVED = "trim_archived" ["stray", "release", "forget", "trim"];
    RUN_TASKS = "run_tasks" ["write", "stray", "seek"];
    ARCHIVE_TASKS = "archive_tasks" ["write", "stray", "release", "forget", "trim", "seek", "pluck"];
    DELETE_TASKS = "delete_tasks" ["stray", "release", "forget", "seek", "pluck"];
    BEGIN_REMOVAL = "begin_removal" ["write"];
    SWEEP = "sweep" ["stray", "release", "forget", "is_empty"];
    FINISH_REMOVAL = "finish_removal" ["is_empty"];
    UPDATE_PAYLOAD = "update_payload" ["stray"];
    REQUEUE = "requeue" ["write", "owns", "unlist_one"];
    REQUEUE_RUN = "requeue_run" ["write", "stray"];
    FORWARD = "forward" ["write", "stray"];
    EXTEND_LEASE = "extend_lease" ["write", "leases", "owns"];
    LIST_EXPIRED = "list_expired" ["stray"];
    RECOVER = "recover"
        ["leases", "owns", "unlist_near", "stray", "release", "forget", "trim", "count", "count_failures"];
    DELETE_EXPIRED_COMPLETED = "delete_expired_completed";
    WRITE_RESULT = "write_result" ["write", "owns"];
    RESTORE = "restore" ["admit"];
    RESTORE_QUEUE = "restore_queue";
    LIST_SERVER = "list_server";
    WRITE_SERVER_STATE = "write_server_state";
    LIST_READY_GROUPS = "list_ready_groups" ["ready_at"];
    STAGE = "stage" ["write", "ready_at"];
    READ_SET = "read_set";
    AGGREGATE = "aggregate" ["write", "holds", "admit", "release", "delete_task"];
    DELETE_AGGREGATED = "delete_aggregated" ["release", "delete_task"];
    ARCHIVE_STAGED = "archive_staged" ["write", "holds", "count", "count_failures"];
    EXTEND_SET = "extend_set" ["write", "holds"];
    RECLAIM = "reclaim" ["write"];
    LIST_GROUPS_AGAIN = "list_groups_again" ["write"];
    ACQUIRE = "acquire";
    RELEASE = "release";
    CLEAR_SERVER_STATE = "clear_server_state";
    REGISTER_ENTRY = "register_entry";
    RELEASE_ENTRY = "release_entry";
    PAUSE_ENTRY = "pause_entry";
    ENQUEUE_TICK = "enqueue_tick" ["admit"];
    EXAMINE_TASKS = "examine_tasks" ["stray", "whereabouts"];
    MEND_TASK = "mend_task" ["write", "stray", "whereabouts"];
    REMOVE_KEY = "remove_key" ["stray"];
    PUT_BACK_ENTRY = "put_back_entry";
}

#[cfg(test)]
mod tests;

//! The table of the Lua scripts, and how they are called.
//!
//! Scripts are embedded at build time and called by their SHA-1. Every new connection loads them all in
//! one round trip; a script that Redis has forgotten since (`SCRIPT FLUSH`, a restart) is loaded again
//! and the call repeated, which is safe because a call that failed with `NOSCRIPT` did nothing.

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};

/// One atomic transition: the name of its file, and its text with the library snippets it uses.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    source: &'static str,
    script: LazyLock<redis::Script>,
}

impl Script {
    /// The beginning of a call; the keys (as many as announced) and then the arguments follow.
    pub(crate) fn call(&self, keys: usize) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(self.script.get_hash()).arg(keys);
        cmd
    }

    /// Sends a call, loading the script first where Redis has forgotten it.
    pub(crate) async fn send<C: ConnectionLike>(&self, connection: &mut C, call: &Cmd) -> RedisResult<Value> {
        match call.query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let _: String = redis::cmd("SCRIPT").arg("LOAD").arg(self.source).query_async(connection).await?;
                call.query_async(connection).await
            }
            reply => reply,
        }
    }
}

/// Loads all scripts in one round trip.
pub(crate) async fn load_all<C: ConnectionLike>(connection: &mut C) -> RedisResult<()> {
    let mut pipe = redis::pipe();
    for script in ALL {
        pipe.cmd("SCRIPT").arg("LOAD").arg(script.source).ignore();
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
        };)*
        static ALL: &[&Script] = &[$(&$constant),*];
    };
}

scripts! {
    ENQUEUE = "enqueue" ["admit", "admit_all"];
    SCHEDULE = "schedule" ["admit", "admit_all"];
    ADD_TO_GROUP = "add_to_group" ["admit"];
    DEQUEUE = "dequeue" ["stray", "release", "hand_out"];
    DEQUEUE_MATCHING = "dequeue_matching" ["hand_out"];
    DONE = "done" ["owns", "release", "unlist_one", "unlist", "count"];
    COMPLETE = "complete" ["owns", "release", "unlist", "count"];
    RETRY = "retry" ["owns", "unlist_one", "count", "count_failure"];
    ARCHIVE = "archive" ["owns", "unlist_one", "stray", "release", "forget", "trim", "count", "count_failure"];
    TRIM_ARCHIVED = "trim_archived" ["stray", "release", "forget", "trim"];
    RUN_TASKS = "run_tasks" ["stray", "seek"];
    ARCHIVE_TASKS = "archive_tasks" ["stray", "release", "forget", "trim", "seek", "pluck"];
    DELETE_TASKS = "delete_tasks" ["stray", "release", "forget", "seek", "pluck"];
    BEGIN_REMOVAL = "begin_removal";
    SWEEP = "sweep" ["stray", "release", "forget", "is_empty"];
    FINISH_REMOVAL = "finish_removal" ["is_empty"];
    UPDATE_PAYLOAD = "update_payload" ["stray"];
    REQUEUE = "requeue" ["owns", "unlist_one"];
    REQUEUE_RUN = "requeue_run" ["stray"];
    FORWARD = "forward" ["stray"];
    EXTEND_LEASE = "extend_lease" ["owns"];
    LIST_EXPIRED = "list_expired" ["stray"];
    DELETE_EXPIRED_COMPLETED = "delete_expired_completed";
    WRITE_RESULT = "write_result" ["owns"];
    RESTORE = "restore" ["admit"];
    RESTORE_QUEUE = "restore_queue";
    WRITE_SERVER_STATE = "write_server_state";
    LIST_READY_GROUPS = "list_ready_groups" ["ready_at"];
    STAGE = "stage" ["ready_at"];
    READ_SET = "read_set";
    AGGREGATE = "aggregate" ["holds", "admit", "release", "delete_task"];
    DELETE_AGGREGATED = "delete_aggregated" ["release", "delete_task"];
    ARCHIVE_STAGED = "archive_staged" ["holds", "count", "count_failure"];
    EXTEND_SET = "extend_set" ["holds"];
    RECLAIM = "reclaim";
    LIST_GROUPS_AGAIN = "list_groups_again";
    ACQUIRE = "acquire";
    RELEASE = "release";
    CLEAR_SERVER_STATE = "clear_server_state";
    REGISTER_ENTRY = "register_entry";
    RELEASE_ENTRY = "release_entry";
    PAUSE_ENTRY = "pause_entry";
    ENQUEUE_TICK = "enqueue_tick" ["admit"];
}

#[cfg(test)]
mod tests;

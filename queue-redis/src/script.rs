//! The table of the Lua scripts, and how they are called.
//!
//! Scripts are embedded at build time, joined with the snippets that their headers name, and called by their SHA-1.
//! A script that Redis does not have (it is new, or empty since `SCRIPT FLUSH` or a restart) is loaded when it is called,
//! and the call repeated, which is safe because a call that failed with `NOSCRIPT` did nothing. Before a large call it is loaded at once.

mod words;

use std::collections::BTreeSet;
use std::sync::{LazyLock, MutexGuard};

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};

pub(crate) use words::Word;

/// One atomic transition: the name of its file, and the text in it.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    file: &'static str,
    hash: LazyLock<String>,
    guarded_hash: LazyLock<String>,
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

/// A connection that remembers what was loaded on it.
pub(crate) trait Loads: ConnectionLike {
    /// The names of these scripts. The server may have forgotten them, but has not been started anew since.
    fn loaded(&self) -> MutexGuard<'_, BTreeSet<&'static str>>;
}

/// How often a script is loaded for a call before that fails.
const LOADS: usize = 3;

/// A call of more bytes is sent only where its script was loaded on the same connection before: Redis reads all of it before it says that it does not have the
/// script. That costs a round trip and some kilobytes, once for each connection and script. A smaller call costs less than that when it is sent twice.
const LARGE: usize = 64 * 1024;

/// Takes the guard off the keys, before anything counts them.
const TAKE_GUARD_OFF: &str = "KEYS[#KEYS] = nil\n";

impl Script {
    fn hash(&self, dialect: Dialect) -> String {
        redis::Script::new(&self.text(dialect)).get_hash().to_owned()
    }

    /// The text to load: the script with the snippets that it needs, without their comments and indentation.
    fn text(&self, dialect: Dialect) -> String {
        let mut text = match dialect {
            Dialect::Plain => String::new(),
            Dialect::Guarded => TAKE_GUARD_OFF.to_owned(),
        };
        let joined = self.joined();
        let code = joined.split_inclusive('\n').filter(|line| !line.trim_start().starts_with("--"));
        text.extend(code.map(str::trim_start));
        text
    }

    fn joined(&self) -> String {
        let mut joined = String::new();
        join(&mut joined, self.file, &mut Vec::new());
        joined
    }

    /// The same call with a guard; `None` where it is no call with keys.
    pub(crate) fn guard(&self, call: &Cmd) -> Option<Cmd> {
        let words: Vec<&[u8]> = call.args_iter().filter_map(word).collect();
        let [_, _, count, rest @ ..] = &words[..] else { return None };
        let count: usize = std::str::from_utf8(count).ok()?.parse().ok()?;
        let (keys, arguments) = rest.split_at_checked(count)?;
        let mut guarded = redis::cmd("EVALSHA");
        guarded.arg(&*self.guarded_hash).arg(count + 1);
        guarded.arg(keys).arg(guard_beside(keys.first()?)).arg(arguments);
        Some(guarded)
    }

    /// The beginning of a call; the keys (as many as announced) and then the arguments follow.
    pub(crate) fn call(&self, keys: usize) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&*self.hash).arg(keys);
        cmd
    }

    /// Sends a call, loading the script first where Redis does not have it.
    pub(crate) async fn send<C: Loads>(&self, connection: &mut C, call: &Cmd, dialect: Dialect) -> RedisResult<Value> {
        if is_large(call) && !connection.loaded().contains(self.name) {
            self.load(connection, dialect).await?;
        }
        let mut reply = call.query_async(connection).await;
        // Somebody may have Redis forget it again in between.
        for _ in 0..LOADS {
            match &reply {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    self.load(connection, dialect).await?;
                    reply = call.query_async(connection).await;
                }
                _ => break,
            }
        }
        reply
    }

    async fn load<C: Loads>(&self, connection: &mut C, dialect: Dialect) -> RedisResult<()> {
        redis::cmd("SCRIPT").arg("LOAD").arg(self.text(dialect)).exec_async(connection).await?;
        connection.loaded().insert(self.name);
        Ok(())
    }
}

fn is_large(call: &Cmd) -> bool {
    call.args_iter().filter_map(word).map(<[u8]>::len).sum::<usize>() > LARGE
}

/// The snippets that a line says are needed from there on.
fn needs(line: &'static str) -> Option<impl Iterator<Item = &'static str>> {
    line.trim_start().strip_prefix("-- needs:").map(str::split_whitespace)
}

/// Adds a text, and before each line that says what is needed those snippets that are not there yet. What a block needs
/// is defined for this block only, and costs nothing where Redis does not come to it.
fn join(joined: &mut String, text: &'static str, known: &mut Vec<&'static str>) {
    for line in text.split_inclusive('\n') {
        let before = known.len();
        for name in needs(line).into_iter().flatten() {
            // A test holds that there is one for every name.
            let snippet = SNIPPETS.iter().find(|(snippet, _)| *snippet == name && !known.contains(snippet));
            if let Some((name, snippet)) = snippet {
                known.push(name);
                join(joined, snippet, known);
            }
        }
        if line.starts_with(' ') {
            known.truncate(before);
        }
        joined.push_str(line);
    }
}

/// A key that never exists, in the slot of this one, and named like ours, so that whoever may use ours may name it.
/// Where the key's braces make no tag and would end another, the key itself stands in: that is no guard, but such a queue
/// has no slot of its own anyway.
fn guard_beside(key: &[u8]) -> Vec<u8> {
    let tag_end = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let close = key[open + 1..].iter().position(|byte| *byte == b'}')?;
        (close > 0).then_some(open + 1 + close + 1)
    });
    match tag_end {
        Some(end) => [&key[..end], b":x:guard"].concat(),
        None if key.contains(&b'}') => key.to_vec(),
        None => [b"asynq:x:guard{", key, b"}"].concat(),
    }
}

pub(crate) fn word(word: redis::Arg<&[u8]>) -> Option<&[u8]> {
    match word {
        redis::Arg::Simple(bytes) => Some(bytes),
        _ => None,
    }
}

/// Loads the script that most programs call first, to learn whether the connection is of use. Redis hangs up on one without a
/// password that sends much at once, as any call may, and what it said of the password is lost.
pub(crate) async fn try_out<C: Loads>(connection: &mut C, dialect: Dialect) -> RedisResult<()> {
    ENQUEUE.load(connection, dialect).await
}

/// A snippet of `lua/lib`: its name and its text.
type Snippet = (&'static str, &'static str);

macro_rules! snippets {
    ($($name:ident)*) => {
        const SNIPPETS: &[Snippet] =
            &[$((stringify!($name), include_str!(concat!("../lua/lib/", stringify!($name), ".lua"))),)*];
    };
}

macro_rules! scripts {
    ($($constant:ident = $name:literal;)*) => {
        $(pub(crate) static $constant: Script = Script {
            name: $name,
            file: include_str!(concat!("../lua/", $name, ".lua")),
            hash: LazyLock::new(|| $constant.hash(Dialect::Plain)),
            guarded_hash: LazyLock::new(|| $constant.hash(Dialect::Guarded)),
        };)*
        #[cfg(test)]
        static ALL: &[&Script] = &[$(&$constant),*];
    };
}

snippets! {
    bin_task can_store can_tell choose_type delete_task examine_task find_pending find_task finish first_ms flow_claim flow_count flow_fate flow_load flow_may_grow flow_move
    flow_reserve_numbers flow_rules flow_runs flow_save flow_set flow_tolerate flow_unlink flow_walk holds holds_lock is_empty is_finished is_wrong_type kept_fields lanes_of leave_active leave_set lock_of make_active make_pending
    message_field nth owns read_rules ready_at release_lock remove_active remove_pending set_of share_of store store_all tell trim varint window_of write
}

scripts! {
    ENQUEUE = "enqueue";
    ENQUEUE_FRONT = "enqueue_front";
    SCHEDULE = "schedule";
    ADD_TO_GROUP = "add_to_group";
    UNLOCK = "unlock";
    PUBLISH = "publish";
    START_FOLLOWERS = "start_followers";
    DEQUEUE = "dequeue";
    DEQUEUE_LANES = "dequeue_lanes";
    FREE_SLOTS = "free_slots";
    SET_LIMITS = "set_limits";
    REMOVE_LIMITS = "remove_limits";
    MEND_LANES = "mend_lanes";
    DONE = "done";
    COMPLETE = "complete";
    RETRY = "retry";
    ARCHIVE = "archive";
    TRIM_ARCHIVED = "trim_archived";
    RUN_TASKS = "run_tasks";
    ARCHIVE_TASKS = "archive_tasks";
    DELETE_TASKS = "delete_tasks";
    UNDELETE_TASKS = "undelete_tasks";
    BEGIN_REMOVAL = "begin_removal";
    SWEEP = "sweep";
    FINISH_REMOVAL = "finish_removal";
    UPDATE_PAYLOAD = "update_payload";
    REQUEUE = "requeue";
    REQUEUE_RUN = "requeue_run";
    FORWARD = "forward";
    EXTEND_LEASE = "extend_lease";
    LIST_EXPIRED = "list_expired";
    RECOVER = "recover";
    DELETE_EXPIRED_COMPLETED = "delete_expired_completed";
    MOVE_TASK = "move_task";
    LIST_FALLBACKS = "list_fallbacks";
    WRITE_FIELDS = "write_fields";
    RESTORE = "restore";
    RESTORE_QUEUE = "restore_queue";
    LIST_SERVER = "list_server";
    WRITE_SERVER_STATE = "write_server_state";
    LIST_READY_GROUPS = "list_ready_groups";
    STAGE = "stage";
    READ_SET = "read_set";
    READ_TASKS = "read_tasks";
    AGGREGATE = "aggregate";
    DELETE_AGGREGATED = "delete_aggregated";
    ARCHIVE_STAGED = "archive_staged";
    EXTEND_SET = "extend_set";
    RECLAIM = "reclaim";
    LIST_GROUPS_AGAIN = "list_groups_again";
    ACQUIRE = "acquire";
    RELEASE = "release";
    SPEND = "spend";
    CLEAR_SERVER_STATE = "clear_server_state";
    REGISTER_ENTRY = "register_entry";
    RELEASE_ENTRY = "release_entry";
    PAUSE_ENTRY = "pause_entry";
    ENQUEUE_TICK = "enqueue_tick";
    EXAMINE_TASKS = "examine_tasks";
    MEND_TASK = "mend_task";
    REMOVE_KEY = "remove_key";
    UNDO_ENTRY = "undo_entry";
    LEAD = "lead";
    TAKE_DUTIES = "take_duties";
    PUT_OFF_DUTY = "put_off_duty";
    FORGET_CANCEL = "forget_cancel";
    STORE_ONCE = "store_once";
    TRIM_OUTCOMES = "trim_outcomes";
    WRITE_OPERATION = "write_operation";
    FLOW_NODES = "flow_nodes";
    FLOW_OPEN = "flow_open";
    FLOW_RESERVE = "flow_reserve";
    FLOW_MARK = "flow_mark";
    FLOW_RECORD = "flow_record";
    FLOW_CARRIED = "flow_carried";
    FLOW_SIGNAL = "flow_signal";
    FLOW_JOIN = "flow_join";
    FLOW_RERUN = "flow_rerun";
    FLOW_TEND = "flow_tend";
    FLOW_FORGET = "flow_forget";
}

#[cfg(test)]
mod tests;

//! Margins, intervals and bounds: the numbers by which more than one part goes, or which users are told.
//!
//! Each stands here once. Crates read it here; tests compare the scripts and the documents with it
//! ([`table`] is printed in `docs/numbers.md`). What only one file goes by, and nobody is told, stands in that file.

use std::time::Duration;

macro_rules! limits {
    ($($(#[doc = $reason:literal])+ $name:ident: $type:ty = $value:expr;)+) => {
        $($(#[doc = $reason])+ pub const $name: $type = $value;)+

        /// All of them: name, value and reason.
        pub fn table() -> Vec<(&'static str, String, String)> {
            vec![$((stringify!($name), format!("{:?}", $name), concat!($($reason),+).trim().to_owned())),+]
        }
    };
}

const MIB: usize = 1024 * 1024;
const DAY_SECS: i64 = 24 * 60 * 60;

limits! {
    /// Seconds that a task is leased for unless the server is told otherwise, as in asynq.
    LEASE_SECS: i64 = 30;
    /// The longest pause between two renewals of a lease, as in asynq: of a lease of 30 s five may fail.
    LEASE_RENEWAL: Duration = Duration::from_secs(5);
    /// Seconds after the end of a lease before anybody takes the task over, as in asynq. They cover clocks that differ
    /// between hosts.
    RECOVERY_MARGIN_SECS: i64 = 30;
    /// The same for a task that no server says it works on. A server that has the task says so with each heartbeat.
    SILENT_MARGIN_SECS: i64 = 7;
    /// How long nothing is recovered or reclaimed after Redis was away: leases and deadlines have passed meanwhile, and
    /// whoever is alive renews his within this time.
    RENEWED_WITHIN: Duration = Duration::from_secs(12);
    /// How long nothing of others is judged by the time after the clock has leapt: everybody asks Redis within a
    /// heartbeat, and renews leases within another 5 s, aggregations within another 10 s.
    CLOCK_SETTLES: Duration = Duration::from_secs(20);

    /// The priority of tasks without one; they are in the queue of the plain name.
    MIDDLE_PRIORITY: u8 = 5;
    /// The highest priority; the lowest is 0.
    HIGHEST_PRIORITY: u8 = 9;
    /// Queues that a server joins at the most while it runs.
    MAX_JOINED: usize = 1_000;
    /// How often a server looks which queues there are to join although Redis tells it of new ones.
    JOIN_INTERVAL: Duration = Duration::from_secs(60);

    /// How often a loop looks for changes of what operators, listeners and duties want, where Redis does not tell it of them.
    WATCH_POLL: Duration = Duration::from_secs(15);
    /// How often it looks where Redis does: nothing has to be looked for.
    WATCH_REST: Duration = Duration::from_secs(24 * 60 * 60);

    /// How often the leader looks whether queues for certain servers have any.
    TARGET_INTERVAL: Duration = Duration::from_secs(60);
    /// The same while one of them has none.
    TARGET_INTERVAL_GONE: Duration = Duration::from_secs(15);
    /// Seconds it is remembered since when a queue has none, after the last look.
    TARGET_GONE_TTL_SECS: i64 = 5 * 60;
    /// Seconds after which such a queue is removed when it is empty.
    TARGET_KEPT_SECS: i64 = 60 * 60;

    /// Limits that a queue has at the most: each take reads all of them.
    MAX_LIMITS: usize = 8;
    /// Tasks that one take gives at the most from a queue with limits. A call of ten took Redis about 0.2 ms.
    LANE_BATCH: usize = 10;
    /// Pending tasks that one take looks at in a queue with limits; those without room, or not at turn, are parked.
    LANE_WINDOW: usize = 20;
    /// The largest weight of a key of a fair limit; the smallest is 1.
    MAX_WEIGHT: u32 = 1_000;
    /// How many times as long as a call took the server waits that parks what is pending beside the takes.
    LANE_SORT_PAUSE: u32 = 4;
    /// From here on, the score of a lane in `x:due` is the millisecond at which it is looked at; below, it is its turn.
    LANE_FIRST_MS: u64 = 1 << 40;
    /// Bytes of a key in the name of its lane; of a longer one the name has the beginning and the SHA-1.
    MAX_LANE_KEY_BYTES: usize = 96;
    /// Milliseconds after which a full lane is looked at again if nobody says that it has room.
    LANE_LOOK_MS: u64 = 2_000;
    /// Milliseconds after which any lane is looked at again, whatever shuts it: whoever opens it may be killed before the lane is told.
    LANE_FARTHEST_MS: u64 = 300_000;
    /// How long a slot may be left of a run that has ended: its server gives it back behind its report.
    SLOT_FREED_WITHIN: Duration = Duration::from_secs(1);
    /// Seconds after which a parked task becomes pending for servers that know nothing of limits, unless its limit says
    /// otherwise; by a tenth more or less.
    LANE_FALLBACK_SECS: u64 = 3_600;

    /// How often a server tells what it is and works on, as in asynq.
    HEARTBEAT: Duration = Duration::from_secs(5);
    /// Seconds a server is listed after its last heartbeat: two of them. A pending task that was not taken in this time
    /// has a reason to wait.
    SERVER_TTL_SECS: i64 = 10;
    /// Seconds what a server of ours says beyond asynq's format is kept after it was written; every 12 hours it is written
    /// again. It counts only while the server is listed.
    SERVER_ENTRY_TTL_SECS: i64 = DAY_SECS;
    /// Seconds after its start in which a server that has said nothing beyond asynq's format is not taken for one that has
    /// nothing to say.
    ENTRY_WRITTEN_WITHIN_SECS: i64 = 2;
    /// Seconds an order to one server is kept for it to be seen. The server goes by it until it ends.
    WANT_TTL_SECS: i64 = 60 * 60;
    /// The most tasks that a server runs at once.
    MAX_CONCURRENCY: usize = 100_000;
    /// Seconds by which the clock of a scheduler may be ahead of Redis'. Beyond that its calls are refused: it would
    /// deal with ticks to come.
    SCHEDULER_AHEAD_SECS: i64 = 60;
    /// How often a scheduler tells about its entries.
    SCHEDULER_HEARTBEAT: Duration = Duration::from_secs(10);
    /// Seconds a scheduler's entries are shown after its last heartbeat: two of them.
    ENTRY_SHOWN_SECS: i64 = 20;
    /// Seconds an entry, its pause and its last tick are remembered after the last scheduler carried it: a year.
    ENTRY_TTL_SECS: i64 = 366 * DAY_SECS;
    /// Seconds the history of an entry is kept after its last event: 30 days. asynq never lets it go.
    HISTORY_TTL_SECS: i64 = 30 * DAY_SECS;
    /// Events kept of an entry, as in asynq.
    HISTORY_EVENTS: usize = 1_000;

    /// The longest pause between two looks for due tasks, as in asynq.
    FORWARD_INTERVAL: Duration = Duration::from_secs(5);
    /// The longest pause between two looks at leases while there are any, and for lost sets. asynq: 60 s.
    RECOVER_INTERVAL: Duration = Duration::from_secs(5);
    /// The same while there are none: a task that is taken now cannot be lost for longer than this.
    IDLE_INTERVAL: Duration = Duration::from_secs(15);
    /// How often completed tasks are looked at whose retention has ended; asynq: 8 s. Every fourth time archived ones
    /// are, too.
    CLEAN_UP_INTERVAL: Duration = Duration::from_secs(15);
    /// The longest pause between two looks at groups, as in asynq; a shorter grace period shortens it. A group whose
    /// aggregation failed is tried again after it.
    GROUP_INTERVAL: Duration = Duration::from_secs(7);
    /// Seconds after which an aggregation counts as lost, as in asynq.
    AGGREGATION_SECS: i64 = 120;
    /// How often the deadline of a running aggregation is moved.
    AGGREGATION_RENEWAL: Duration = Duration::from_secs(10);
    /// How long a queue counts as listed after this process listed it. asynq never lists it again, so that a queue that
    /// somebody removed stays unseen for the life of the process.
    QUEUE_LISTED_FOR: Duration = Duration::from_secs(60);

    /// How long a task without a retention is kept after its success when its client waits for it.
    WAITED_FOR_RETENTION: Duration = Duration::from_secs(60);

    /// The most tasks one call of a script takes, so that no call keeps others waiting for long.
    MAX_BATCH: usize = 100;
    /// How many tasks the client and the server send or take in one call, where they have a choice. That is enough for
    /// nearly all that batches save, and Redis is back for others after 50 to 130 µs.
    SHORT_BATCH: usize = 25;
    /// The same for tasks that go into a sorted set one by one as they come, scheduled or completed: such a one takes
    /// twice as long, and three times while Redis' table of the set grows.
    SET_BATCH: usize = 15;
    /// Tasks that an operator's command changes or imports in one call. A hundred keep Redis busy for 1.3 ms, and others
    /// are to wait no longer than 1 ms.
    CHANGE_BATCH: usize = 50;
    /// The most bytes of messages that travel in one call. A call that is larger than Redis' limit for one
    /// (`client-query-buffer-limit`, 1 GB by default) costs the connection, and with it every task in it.
    MAX_BATCH_BYTES: usize = 4 * MIB;
    /// A take asks for no more tasks once their messages have so many bytes: its answer is on its way for as long as
    /// they take, and with it what else is waited for on the same connection.
    MAX_TAKE_BYTES: usize = MIB;
    /// The most tasks that are aggregated at once, also where no `max_size` is set.
    MAX_SET: usize = 10_000;
    /// The most bytes of payload and headers that a client sends in one task, unless told otherwise. Go has no limit.
    /// Each heartbeat of a Go server writes the payloads of its running tasks again, and Redis itself refuses values
    /// beyond 512 MB (`proto-max-bulk-len`).
    MAX_TASK_BYTES: usize = 16 * MIB;
    /// The most bytes of a result that a server keeps, unless told otherwise. Whoever looks at the task reads all of it.
    MAX_RESULT_BYTES: usize = 16 * MIB;

    /// The most numbers of members that one reservation of a batch gives out.
    FLOW_MAX_RESERVATION: u32 = 10_000;
    /// The most nodes of a workflow. They are stored with it, each with its message.
    FLOW_MAX_NODES: usize = 100_000;
    /// The most nodes that run again at once. One call changes all of them, and Redis does nothing else meanwhile.
    FLOW_MAX_RERUN: usize = 10_000;
    /// The most bytes that a signal can say, as JSON.
    FLOW_MAX_SIGNAL_BYTES: usize = 16 * 1024;
    /// The most bytes of the description, the tags and the metadata of a batch together.
    FLOW_MAX_ABOUT_BYTES: usize = 16 * 1024;
    /// The most nodes that one node waits for. Whenever one of them ends, Redis looks at all of them.
    FLOW_MAX_PARENTS: usize = 1_000;
    /// The most outcomes that one call writes into the ledgers of batches.
    FLOW_MAX_RECORD: usize = 100;
    /// The most trees of batches that one call writes into; on a cluster it is one.
    FLOW_TREES: usize = 8;
    /// Without an outcome for so long a batch stands still, and its members are looked for; the pause between two looks
    /// doubles up to an hour.
    FLOW_STANDS_STILL_AFTER: Duration = Duration::from_secs(30);
    /// A batch that is not committed, and to which nobody has added for so long, is abandoned.
    FLOW_ABANDONED_AFTER: Duration = Duration::from_secs(30 * 60);
    /// How long a batch is kept when it is over and all went well, unless it says otherwise.
    FLOW_LINGER: Duration = Duration::from_secs(60 * 60);
    /// The same where something died or was cancelled: as long as asynq keeps archived tasks.
    FLOW_LINGER_AFTER_DEATH: Duration = Duration::from_secs(90 * 24 * 60 * 60);
    /// An outcome that its teller has not recorded for so long is recorded by the leader.
    FLOW_RECORD_FOR_OTHERS_AFTER: Duration = Duration::from_secs(15);
    /// Seconds after which an outcome that nobody has recorded is a fault: the leader had its time, and twice more.
    FLOW_UNRECORDED_SECS: i64 = 60;
    /// How many keys of tasks that were stored once a queue remembers for a day; above that, those older than an hour go.
    MAX_STORED_ONCE: u32 = 100_000;
    /// For how long it remembers them.
    STORED_ONCE_FOR: Duration = Duration::from_secs(86_400);
    /// And at least, where there are too many.
    STORED_ONCE_AT_LEAST: Duration = Duration::from_secs(3_600);
    /// How long a row of an outbox may be stored after it was locked, by Redis' clock.
    OUTBOX_CLAIM: Duration = Duration::from_secs(30);
    /// How long a queue remembers at least a row of an outbox that is gone: calls of others that had locked it may be on their way, and nodes
    /// of a cluster may have different clocks.
    OUTBOX_CONFIRMED_FOR: Duration = Duration::from_secs(120);
    /// How long what is to be done for a batch stays claimed; `lua/lib/flow_claim.lua` says the same.
    FLOW_CLAIM: Duration = Duration::from_secs(10);
    /// How long what was claimed may be stored in its queue, whose node of a cluster may have another clock: half of the hour for
    /// which a queue remembers at least what it has stored. Clocks may differ by so much.
    FLOW_STORED_WITHIN: Duration = Duration::from_secs(30 * 60);
    /// The most servers of one broadcast. Each has a line in the ledger of its batch, which each outcome reads.
    BROADCAST_MAX_SERVERS: usize = 500;
    /// The shortest pause between two writes of a task's progress; what comes in between waits.
    PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
    /// The most bytes of the note beside a task's progress. Longer ones are cut.
    MAX_NOTE_BYTES: usize = 512;
    /// The most bytes of a checkpoint as JSON. It is state of a task, not a place for data: it lies in Redis' memory, and every
    /// export carries it.
    MAX_CURSOR_BYTES: usize = 16 * 1024;
    /// The most lines of the log of a task; of more, the last ones are kept.
    MAX_LOG_LINES: usize = 200;
    /// The most bytes of the log of a task, about. While a task logs, all of it is written again once a second.
    MAX_LOG_BYTES: usize = 16 * 1024;
    /// The most bytes of one line of it. Longer ones are cut.
    MAX_LOG_LINE_BYTES: usize = 1_024;

    /// How long a listener is told what happens after it last said that it listens; also how long one that was away may stay
    /// away without missing anything.
    HEARD_FOR: Duration = Duration::from_secs(30);
    /// How often a listener says so.
    LISTENER_RENEWAL: Duration = Duration::from_secs(10);
    /// How often a program that enqueues asks who listens to events; it does not ask while it enqueues nothing.
    AUDIENCE_POLL: Duration = Duration::from_secs(10);
    /// How long events gather in a process before they are written.
    EVENTS_GATHER: Duration = Duration::from_millis(100);
    /// The most events in one entry of a stream.
    EVENTS_PER_ENTRY: usize = 50;
    /// The most bytes of events in one entry.
    EVENT_ENTRY_BYTES: usize = 10 * 1024;
    /// How many entries a stream of events keeps, about: with the bytes above, 4 MB.
    EVENT_ENTRIES: usize = 400;
    /// Seconds a stream of events is kept after the last one.
    EVENTS_TTL_SECS: i64 = 60 * 60;
    /// The most events of one process in a second; what fails, and all else that is no routine, has as much again.
    EVENTS_PER_SECOND: u32 = 1_000;
    /// The most bytes of events that wait in a process to be written.
    EVENT_BACKLOG_BYTES: usize = MIB;

    /// The most ids in one list of a bin: Redis frees such a list in one go when it expires.
    BIN_PIECE: usize = 1_000;
    /// Seconds that a bin keeps a task which was deleted, and up to an hour more, so that not all expire at once.
    BIN_KEPT_SECS: i64 = DAY_SECS;
    /// The hour by which the tasks of a bin expire one after another.
    BIN_SPREAD_SECS: i64 = 3_600;

    /// For how long a process has an operation that it carries out, unless it says so again. Then another one may go on with it.
    OPERATION_LEASE: Duration = Duration::from_secs(30);
    /// Seconds an operation is kept after its end, or after somebody has done something for it: 7 days.
    OPERATION_KEPT_SECS: i64 = 7 * DAY_SECS;
    /// Operations that one process carries out at once.
    OPERATIONS_AT_ONCE: usize = 2;
    /// Tasks that an operation may name one by one.
    OPERATION_IDS: usize = 1_000;

    /// How many archived tasks a queue keeps. asynq's nominal 10,000 are 9,999 in effect; so are ours.
    ARCHIVE_MAX: u32 = 9_999;
    /// Seconds an archived task is kept: 90 days, as in asynq.
    ARCHIVE_MAX_AGE_SECS: i64 = 90 * DAY_SECS;
    /// Seconds a counter of a day lives: 90 days, as in asynq.
    STATS_TTL_SECS: i64 = 90 * DAY_SECS;
    /// The last second of the year 9999; later ones Redis would print with an exponent, which Go cannot read.
    LAST_SECOND: i64 = 253_402_300_799;
}

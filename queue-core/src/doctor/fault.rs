//! What can be wrong, in words.

crate::words! {
    /// How bad it is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Severity {
        /// Good to know; nothing is wrong.
        Note: "note",
        /// Something is left over, or will go wrong one day.
        Warning: "warning",
        /// Tasks are stuck or lost, or servers stumble.
        Error: "error",
    }
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident $word:literal $severity:ident $text:literal, $advice:literal;)*) => {
        /// What can be wrong; `docs/doctor.md` has the same list.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// In words joined by hyphens, as JSON has it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            /// What it means, in a sentence without the names.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What to do, and what a repair does.
            pub fn advice(self) -> &'static str {
                match self { $(Self::$name => $advice,)* }
            }
        }
    };
}

faults! {
    /// An id is listed, and there is no task of that name.
    NoTask "no-task" Error "an id is listed and has no task",
        "the repair takes the id out of the lists; Go servers keep such an id active for ever";
    /// A task's hash has no message.
    NoMessage "no-message" Error "a task has no message, so that nobody can work it",
        "the repair deletes the hash and takes its id out of the lists";
    /// A message cannot be read.
    Unreadable "unreadable" Error "the message of a task cannot be read, or is that of another task",
        "the repair moves it to the archive as it is, where it stops no server";
    /// The same, in the archive, where it does no harm.
    UnreadableArchived "unreadable-archived" Note "an archived task cannot be read",
        "look at it with redis-cli, or delete it with `queuectl task delete`";
    /// An id stands in more than one place.
    ManyPlaces "many-places" Error "a task stands in more than one place, and may run twice",
        "the repair keeps the place that its state names, else the one nearest to a worker";
    /// A task is in no list.
    NoPlace "no-place" Error "a task is in no list, so that it never runs and never goes",
        "the repair puts it back where its state says: pending at the front, scheduled and retry due at once";
    /// The state differs from the list.
    WrongState "wrong-state" Error "a task is called by another state than that of its list",
        "the repair writes the state of the list";
    /// The group differs from the set.
    WrongGroup "wrong-group" Error "an aggregating task is not called by the group in which it waits",
        "the repair writes the group in which it waits";
    /// A lease without a run.
    StrayLease "stray-lease" Warning "a task has a lease and is not active",
        "the repair removes the lease";
    /// A run without a lease.
    NoLease "no-lease" Error "an active task has no lease, so that nobody takes it over when its worker is gone",
        "the repair gives it a lease of 30 s: if no worker renews that, the task is recovered";
    /// A score is no whole second.
    OddScore "odd-score" Error "a time is no whole Unix second, so that Go's tools cannot read the list",
        "the repair rounds it up; one beyond the year 9999 is taken for smaller units";
    /// The hash expires.
    Expires "expires" Error "a task will vanish, because its key expires",
        "the repair takes the expiry away";
    /// A key has another type than its name says.
    WrongType "wrong-type" Error "a key is of another type than its name says, so that servers stumble over it",
        "the repair copies it to the dump file and deletes it; tasks that it hid are put back then";
    /// A counter is no number.
    BadCounter "bad-counter" Error "a counter is no number, so that Go's servers cannot finish tasks",
        "the repair copies it to the dump file and deletes it; counting starts again";
    /// A lock names a task that is gone.
    DeadLock "dead-lock" Warning "a uniqueness lock is held by a task that is gone or finished, and keeps twins out until it ends",
        "the repair copies it to the dump file and deletes it";
    /// A lock names a task that knows nothing of it.
    ForeignLock "foreign-lock" Warning "a uniqueness lock names a task that took another one or none, and will not release it",
        "the repair copies it to the dump file and deletes it";
    /// A task names a lock of another queue.
    LockElsewhere "lock-elsewhere" Warning "a task names a uniqueness lock of another queue, which nobody frees when the task ends",
        "the lock ends by itself; in a cluster Go's servers cannot finish such a task: enqueue it anew, and delete this one";
    /// A group is not listed.
    UnlistedGroup "unlisted-group" Error "a group with tasks is not listed, so that nobody aggregates it",
        "the repair lists it";
    /// A listed group has no tasks.
    EmptyGroup "empty-group" Warning "a group is listed and has no tasks; where that is so of all groups of a queue, Go's tools show a size below zero",
        "the repair takes it off the list";
    /// A set taken out of a group is not listed.
    UnlistedSet "unlisted-set" Error "tasks were taken out of their group for an aggregation of which nobody knows",
        "the repair lists them as lost, and a server puts them back into their group";
    /// An aggregation is over and nobody has put its tasks back.
    LostAggregation "lost-aggregation" Error "an aggregation has not ended in its time, and no server has put its tasks back",
        "the repair puts the tasks back into their group; start a server for the queue";
    /// A listed set has no tasks.
    EmptySet "empty-set" Warning "an aggregation is listed and has no tasks",
        "the repair takes it off the list";
    /// A queue with tasks is not listed.
    UnlistedQueue "unlisted-queue" Error "a queue with tasks is not listed, so that no tool shows it",
        "the repair lists it";
    /// A listed queue has nothing.
    EmptyQueue "empty-queue" Note "a queue is listed, and Redis holds nothing of it",
        "`queuectl queue remove` takes it off the list, if it is not needed";
    /// Outcomes that nobody records.
    UnrecordedOutcome "unrecorded-outcomes" Warning "members of batches have ended, and nobody records it, so that the batches wait",
        "start a server of ours: the one of them that leads records it within seconds";
    /// A tree that nobody looks after.
    UnlistedBatch "unlisted-batch" Error "a batch is not listed, or nobody will look after it: tools do not show it, and what it waits for may be missed",
        "the repair lists it, and has the leader look at it";
    /// A listed tree, or a child, without a ledger.
    LostBatch "lost-batch" Error "the ledger of a batch is gone: what its tasks tell is dropped, and its callbacks do not come",
        "the repair unlists it, or has the batch that waits for this child count it as removed; make it anew";
    /// Keys of a tree whose root is gone.
    StrayLedger "stray-ledger" Warning "a key of a batch is left over, whose ledger is gone",
        "the repair copies it to the dump file and deletes it";
    /// Counters that are not what the states say.
    BatchCount "batch-count" Error "a batch counts its members otherwise than their states say, so that it may end too early or never",
        "the repair counts them anew; so does the leader, when nothing has moved for 30 s";
    /// Members that should have tasks.
    MissingMember "missing-member" Warning "members of a batch count as sent, and there are no such tasks",
        "the repair counts them as removed, unless they have told their end; so does the leader, when nothing has moved for 30 s";
    /// What follows from the ledger is not carried out.
    UndoneBatch "undone-batch" Warning "something is to be done for a batch, a callback to be enqueued, say, and nobody does it",
        "start a server of ours; the repair has the leader look at it at once";
    /// Nodes are missing in parts.
    BrokenWorkflow "broken-workflow" Error "parts of a workflow are gone, so that nodes cannot run",
        "`queuectl workflow cancel` ends it; make it anew";
    /// A slot without a lease.
    StaleSlot "stale-slot" Warning "a slot of a limit is held by a task that is over",
        "the repair gives it back; a take that finds the lane full does the same";
    /// An entry of a lane whose task does not wait there.
    StaleWait "stale-wait" Note "a lane names a task that does not wait in it any more",
        "nothing is wrong: the next take from the lane drops it, and so does the repair";
    /// A parked task that no take would find.
    ParkedNoLane "parked-no-lane" Error "a task waits for room under a limit in no lane that is looked at",
        "the repair puts it into its lane; else it becomes pending when its fallback has passed";
    /// Tasks wait for limits that are gone.
    LostLimits "lost-limits" Error "tasks wait for room under limits that are gone, and nothing lets them go on before their fallback",
        "`queuectl limit off` lets them go; then set the limits anew";
    /// Limits that cannot be read.
    UnreadableRules "unreadable-rules" Error "the limits of a queue cannot be read, and servers take nothing that might have to wait",
        "`queuectl limit off --queue QUEUE` removes them and lets all tasks run; then set them anew";
    /// A server takes tasks without asking for limits.
    UnawareServer "unaware-server" Warning "a server takes tasks from a queue with limits and knows nothing of them",
        "serve this queue by servers of this project's release alone";
    /// Tasks wait and nobody serves them.
    Unserved "unserved" Note "tasks wait, and no server that is alive serves their queue",
        "start a server for it, or `queuectl worker`";
    /// A mailbox with several servers.
    SharedName "shared-name" Note "a mailbox is served by several servers of one name, which count as one",
        "give each server a name of its own if a task is meant for one of them";
    /// Workers take tasks that they have no handler for.
    Unhandled "unhandled" Warning "tasks go round, because the workers that take them have no handler for their type",
        "start a worker of this queue that has one; `queuectl task ls --queue QUEUE --state retry --error 'handler not found'` shows the tasks";
    /// A server is listed as alive and says nothing.
    SilentServer "silent-server" Warning "a server is listed as alive, and has told nothing about itself",
        "the repair takes it off the list; a server that lives is back with its next heartbeat";
    /// Servers that are gone are still listed.
    ExpiredServers "expired-servers" Note "servers or schedulers that are gone are still listed",
        "nothing is wrong: whoever lists them next removes them, and so does the repair";
    /// The tasks of a server are listed, and the server is not.
    OrphanWorkers "orphan-workers" Warning "running tasks are told of a server that is not listed",
        "the repair takes them off the list; a server that lives is back with its next heartbeat";
    /// A scheduler that is gone will always be shown.
    EndlessScheduler "endless-scheduler" Warning "the entries of a scheduler that is gone never expire",
        "the repair copies them to the dump file and deletes them";
    /// An entry that Go's tools choke on.
    BadEntry "bad-entry" Error "a periodic entry has an option without a bracket, on which Go's tools panic",
        "mend the program that registers the entry";
    /// An entry whose ticks to come count as dealt with.
    TicksAhead "ticks-ahead" Warning "the ticks of a periodic entry count as dealt with up to a time to come, and enqueue nothing until then",
        "a clock was wrong: stop its schedulers, forget the entry with `queuectl cron remove`, and start them again";
    /// Redis may delete tasks.
    Eviction "eviction" Error "Redis may delete tasks when its memory is full",
        "set maxmemory-policy to noeviction";
    /// The same, while there is no limit.
    EvictionWithoutLimit "eviction-without-limit" Warning "Redis would delete tasks if its memory were limited",
        "set maxmemory-policy to noeviction before maxmemory is set";
    /// The same of what expires.
    EvictionOfNotes "eviction-of-notes" Warning "Redis deletes what expires when its memory is full: locks of unique tasks, counters, heartbeats, the bin, operations, pauses and counts of runs of periodic entries",
        "set maxmemory-policy to noeviction";
    /// Memory is used up.
    MemoryFull "memory-full" Warning "Redis is out of memory: tasks are worked and finished, but no new ones are taken in",
        "raise maxmemory, or delete tasks";
    /// Memory is nearly used up.
    MemoryNear "memory-near" Warning "Redis has used nine tenths of the memory it may use, and refuses new tasks when it is full",
        "raise maxmemory, or delete tasks";
    /// Redis has cut off clients to save memory.
    CutClients "cut-clients" Note "Redis has cut off clients since it was started, because all of them together took more memory than maxmemory-clients",
        "raise maxmemory-clients, or set it to 0; large tasks are taken one by one meanwhile";
    /// Redis is too old.
    OldRedis "old-redis" Error "Redis is older than 6.2, where tasks cannot be archived",
        "update Redis";
    /// Redis only reads.
    Replica "replica" Error "this Redis is a replica, and takes no tasks",
        "connect to its master";
    /// It is a Sentinel.
    Sentinel "sentinel" Error "this is a Sentinel, which holds no data",
        "write redis-sentinel://host:port,host:port/0?master=NAME, with the name that it has for its master";
    /// A cluster where one Redis was expected, or the other way round.
    Topology "topology" Error "the address is one of another kind of Redis",
        "give the address of the cluster as redis+cluster://host:port,host:port, that of a single Redis as redis://host:port";
    /// The user lacks rights.
    Rights "rights" Error "the ACL user may not do what is needed",
        "give it the rights that docs/deployment.md lists for this role, for the keys asynq:*";
    /// Redis reads its data.
    Loading "loading" Error "Redis is still reading its data from the disk",
        "start again when it is done";
    /// Nothing is on disk.
    NotPersistent "not-persistent" Note "Redis writes no append-only file: tasks of the last seconds or minutes are lost when it crashes",
        "set appendonly to yes if they matter";
    /// Redis cannot write to its disk.
    WriteFailing "write-failing" Error "Redis failed to write to its disk",
        "look at its log and its disk; by default it refuses new tasks in this state";
    /// Redis does not tell its settings.
    Unasked "unasked" Note "Redis does not tell its settings, so not all of them were checked",
        "allow HELLO and INFO to this user; needed are Redis 6.2 or newer, and the maxmemory-policy noeviction";
}

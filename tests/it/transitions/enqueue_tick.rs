//! `enqueue_tick`: the claim of a tick and its task, in one step.

use std::time::Duration;

use queue_core::{RawTask, TaskOptions};
use queue_redis::broker::{Overlap, Tick, TickReply, TickVerdict, Why};

use crate::support::{Fixture, NOW_NS, QUEUE, is_wrong_type};

/// Long past by the clock of Redis, which has a say here.
const T: i64 = 1_700_000_000;

struct Periodic<'a> {
    fixture: &'a Fixture,
    task: RawTask,
    overlap: Overlap,
    max_runs: u64,
}

impl<'a> Periodic<'a> {
    fn new(fixture: &'a Fixture) -> Self {
        Self { fixture, task: RawTask::new("job").queue(QUEUE), overlap: Overlap::Allow, max_runs: 0 }
    }

    async fn try_tick(&self, why: Why, at: i64) -> Result<TickReply, queue_redis::Error> {
        let task = self.fixture.compose(self.task.clone().with(TaskOptions::new().task_id(format!("e:{at}"))));
        let tick = Tick { entry: "e", why, at, task: &task, overlap: self.overlap, max_runs: self.max_runs };
        self.fixture.broker.enqueue_tick(tick, NOW_NS).await
    }

    async fn ask(&self, why: Why, at: i64) -> TickVerdict {
        self.try_tick(why, at).await.unwrap().verdict
    }

    async fn tick(&self, at: i64) -> TickVerdict {
        self.ask(Why::Tick, at).await
    }
}

#[tokio::test]
async fn a_tick_is_claimed_and_its_task_stored_in_one_step() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    let reply = Periodic::new(&fixture).try_tick(Why::Tick, T).await.unwrap();
    assert_eq!((reply.verdict, reply.upto, &*reply.last_id), (TickVerdict::Enqueued, T, "e:1700000000"));
    assert_eq!(reply.last_ns, NOW_NS);
    let after = fixture.keyspace().await;
    after.assert_changes_since(
        &before,
        r#"
        + {q}:pending: [e:1700000000]
        + {q}:t:e:1700000000 msg: type=job id=e:1700000000 queue=q retry=25 timeout=1800
        + {q}:t:e:1700000000 pending_since: 4000000000000000000
        + {q}:t:e:1700000000 state: pending
        + {q}:x:cron-history:e: [{"outcome":"enqueued","why":"tick","tick":1700000000,"from":1700000000,"at_ns":4000000000000000000,"task":"e:1700000000"}]
        + {q}:x:cron-history:e expires: @MONTH@
        + {q}:x:cron:e expires: @MONTH@
        + {q}:x:cron:e last_id: e:1700000000
        + {q}:x:cron:e last_ns: 4000000000000000000
        + {q}:x:cron:e last_tick: 1700000000
        + {q}:x:cron:e runs: 1
        + {q}:x:cron:e upto: 1700000000
        "#
        .replace("@MONTH@", after.get("{q}:x:cron-history:e expires").unwrap())
        .as_str(),
    );
    let left: i64 = fixture.cmd(&["TTL", "asynq:{q}:x:cron-history:e"]).await;
    assert!((30 * 86_400 - 60..=30 * 86_400).contains(&left), "{left}");
}

#[tokio::test]
async fn a_claimed_tick_and_those_before_it_are_refused() {
    let fixture = Fixture::start().await;
    let entry = Periodic::new(&fixture);
    assert_eq!(entry.tick(T).await, TickVerdict::Enqueued);
    // Its task has come and gone.
    fixture.run("DEL asynq:{q}:t:e:1700000000 asynq:{q}:pending").await;
    let before = fixture.keyspace().await;
    for at in [T, T - 60] {
        let reply = entry.try_tick(Why::Tick, at).await.unwrap();
        assert_eq!((reply.verdict, reply.upto, &*reply.last_id), (TickVerdict::Claimed, T, "e:1700000000"));
    }
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert_eq!(entry.tick(T + 60).await, TickVerdict::Enqueued);
}

#[tokio::test]
async fn a_claim_that_a_failover_lost_is_found_again_by_the_task_id() {
    let fixture = Fixture::start().await;
    let entry = Periodic::new(&fixture);
    entry.tick(T).await;
    fixture.run("DEL asynq:{q}:x:cron:e").await;
    let before = fixture.keyspace().await;
    assert_eq!(entry.tick(T).await, TickVerdict::Exists);
    let after = fixture.keyspace().await;
    let ends = after.get("{q}:x:cron:e expires").unwrap();
    after.assert_changes_since(
        &before,
        &format!(
            "+ {{q}}:x:cron:e expires: {ends}
             + {{q}}:x:cron:e last_id: e:1700000000
             + {{q}}:x:cron:e upto: 1700000000"
        ),
    );
}

#[tokio::test]
async fn a_paused_entry_enqueues_nothing_and_misses_nothing() {
    let fixture = Fixture::start().await;
    let entry = Periodic::new(&fixture);
    fixture.run("HSET asynq:{q}:x:cron:e paused 5 upto 6").await;
    let before = fixture.keyspace().await;
    assert_eq!(entry.tick(T).await, TickVerdict::Paused);
    fixture.keyspace().await.assert_changes_since(&before, "- {q}:x:cron:e upto: 6\n+ {q}:x:cron:e upto: 1700000000");
    assert_eq!(entry.ask(Why::Manual, T + 1).await, TickVerdict::Enqueued, "somebody may still want a run");
    assert_eq!(entry.tick(T + 60).await, TickVerdict::Paused);
}

#[tokio::test]
async fn ticks_that_are_let_go_leave_one_line() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    assert_eq!(Periodic::new(&fixture).ask(Why::LetGo { from: T - 600 }, T).await, TickVerdict::LetGo);
    let after = fixture.keyspace().await;
    let expires = after.get("{q}:x:cron-history:e expires").unwrap();
    after.assert_changes_since(
        &before,
        &format!(
            r#"
            + {{q}}:x:cron-history:e: [{{"outcome":"missed","why":"let-go","tick":1700000000,"from":1699999400,"at_ns":4000000000000000000,"task":"e:1700000000"}}]
            + {{q}}:x:cron-history:e expires: {expires}
            + {{q}}:x:cron:e expires: {expires}
            + {{q}}:x:cron:e upto: 1700000000
            "#
        ),
    );
}

/// Moves the only task of the queue to a state, as far as the script looks.
async fn state(fixture: &Fixture, id: &str, state: &str) {
    fixture.run(&format!("HSET asynq:{{q}}:t:{id} state {state}")).await;
}

#[tokio::test]
async fn an_unfinished_run_lets_the_next_tick_be_left_out() {
    let fixture = Fixture::start().await;
    let entry = Periodic { overlap: Overlap::Skip, ..Periodic::new(&fixture) };
    assert_eq!(entry.tick(T).await, TickVerdict::Enqueued);
    for (n, word) in (1..).zip(["pending", "active", "scheduled", "retry", "aggregating"]) {
        state(&fixture, "e:1700000000", word).await;
        let before = fixture.keyspace().await;
        assert_eq!(entry.tick(T + n).await, TickVerdict::Unfinished, "{word}");
        let changes = fixture.keyspace().await.changes_since(&before);
        assert!(changes.contains(&format!("+ {{q}}:x:cron:e upto: {}", T + n)), "{changes}");
        assert!(!changes.contains(":t:") && !changes.contains("runs"), "{changes}");
    }
    assert_eq!(entry.ask(Why::Manual, T + 10).await, TickVerdict::Unfinished);
    assert_eq!(entry.ask(Why::Forced, T + 11).await, TickVerdict::Enqueued);
    // A failed run does not block those to come, as it does with a fixed task id in asynq (issue 842).
    for (n, word) in [(20, "archived"), (21, "completed")] {
        let last: String = fixture.cmd(&["HGET", "asynq:{q}:x:cron:e", "last_id"]).await;
        state(&fixture, &last, word).await;
        assert_eq!(entry.tick(T + n).await, TickVerdict::Enqueued, "{word}");
    }
    fixture.run("DEL asynq:{q}:t:e:1700000021").await;
    assert_eq!(entry.tick(T + 22).await, TickVerdict::Enqueued, "the task is gone");
}

#[tokio::test]
async fn one_tick_waits_for_the_end_of_the_run_before() {
    let fixture = Fixture::start().await;
    let entry = Periodic { overlap: Overlap::Queue, ..Periodic::new(&fixture) };
    assert_eq!(entry.ask(Why::Waiting, T).await, TickVerdict::Claimed, "nothing waits");
    entry.tick(T).await;
    assert_eq!(entry.tick(T + 1).await, TickVerdict::Waiting);
    assert_eq!(entry.tick(T + 2).await, TickVerdict::Waiting, "the later one takes its place");
    let before = fixture.keyspace().await;
    assert_eq!(before.get("{q}:x:cron:e waiting"), Some("1700000002"));
    assert_eq!(entry.ask(Why::Waiting, T + 2).await, TickVerdict::Waiting);
    assert_eq!(entry.ask(Why::Waiting, T + 1).await, TickVerdict::Claimed);
    assert_eq!(entry.tick(T + 2).await, TickVerdict::Claimed);
    fixture.keyspace().await.assert_unchanged_since(&before);
    state(&fixture, "e:1700000000", "completed").await;
    fixture.run("HSET asynq:{q}:x:cron:e paused 5").await;
    assert_eq!(entry.ask(Why::Waiting, T + 2).await, TickVerdict::Waiting, "until it is resumed");
    fixture.run("HDEL asynq:{q}:x:cron:e paused").await;
    assert_eq!(entry.ask(Why::Waiting, T + 2).await, TickVerdict::Enqueued);
    assert_eq!(entry.ask(Why::Waiting, T + 2).await, TickVerdict::Claimed);
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}:pending"), Some("[e:1700000002 e:1700000000]"));
    assert_eq!((after.get("{q}:x:cron:e waiting"), after.get("{q}:x:cron:e runs")), (None, Some("2")));
    let history = after.get("{q}:x:cron-history:e").unwrap();
    assert!(history.contains(r#""outcome":"unfinished","why":"tick","tick":1700000001"#), "{history}");
    // A tick that finds the run before finished makes up for one that still waits.
    assert_eq!(entry.tick(T + 3).await, TickVerdict::Waiting);
    state(&fixture, "e:1700000002", "archived").await;
    assert_eq!(entry.tick(T + 4).await, TickVerdict::Enqueued);
    assert_eq!(entry.ask(Why::Waiting, T + 3).await, TickVerdict::Claimed);
}

#[tokio::test]
async fn an_entry_has_as_many_runs_as_it_may() {
    let fixture = Fixture::start().await;
    let entry = Periodic { max_runs: 2, ..Periodic::new(&fixture) };
    assert_eq!(entry.tick(T).await, TickVerdict::Enqueued);
    assert_eq!(entry.ask(Why::Manual, T + 1).await, TickVerdict::Enqueued);
    let before = fixture.keyspace().await;
    assert_eq!(entry.ask(Why::Forced, T + 2).await, TickVerdict::Exhausted);
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert_eq!(entry.tick(T + 60).await, TickVerdict::Exhausted);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:x:cron:e upto: 1700000000
         + {q}:x:cron:e upto: 1700000060",
    );
}

#[tokio::test]
async fn a_run_by_hand_that_is_asked_for_again_happens_once_although_it_is_over() {
    let fixture = Fixture::start().await;
    let entry = Periodic { max_runs: 1, ..Periodic::new(&fixture) };
    assert_eq!(entry.ask(Why::Manual, T).await, TickVerdict::Enqueued);
    fixture.run("DEL asynq:{q}:pending").await;
    fixture.run(&format!("DEL asynq:{{q}}:t:e:{T}")).await;
    let before = fixture.keyspace().await;
    assert_eq!(entry.ask(Why::Manual, T).await, TickVerdict::Exists);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn a_unique_task_takes_its_lock_and_respects_that_of_others() {
    let fixture = Fixture::start().await;
    let task = RawTask::new("job").queue(QUEUE).unique(Duration::from_secs(3_600));
    let entry = Periodic { task, ..Periodic::new(&fixture) };
    assert_eq!(entry.tick(T).await, TickVerdict::Enqueued);
    assert_eq!(fixture.keyspace().await.get("{q}:unique:job:"), Some("e:1700000000"));
    let before = fixture.keyspace().await;
    assert_eq!(entry.tick(T + 60).await, TickVerdict::Locked);
    let changes = fixture.keyspace().await.changes_since(&before);
    assert!(changes.contains("+ {q}:x:cron:e upto: 1700000060") && changes.contains("\"locked\""), "{changes}");
    assert!(!changes.contains(":t:") && !changes.contains("unique"), "{changes}");
}

#[tokio::test]
async fn tasks_go_where_their_options_say() {
    let fixture = Fixture::start().await;
    let later = RawTask::new("job").queue(QUEUE).process_in(Duration::from_secs(60)).group("g");
    assert_eq!(Periodic { task: later, ..Periodic::new(&fixture) }.tick(T).await, TickVerdict::Enqueued);
    assert_eq!(fixture.keyspace().await.get("{q}:groups g"), None, "no task has joined it");
    let grouped = RawTask::new("job").queue(QUEUE).group("g");
    assert_eq!(Periodic { task: grouped, ..Periodic::new(&fixture) }.tick(T + 1).await, TickVerdict::Enqueued);
    let found = fixture.keyspace().await;
    assert_eq!(found.get("{q}:scheduled e:1700000000"), Some("score 4000000060"));
    assert_eq!(found.get("{q}:g:g e:1700000001"), Some("score 4000000000"));
    assert_eq!(found.get("{q}:groups g"), Some("member"));
    for (id, state, group) in [("e:1700000000", "scheduled", "x_group"), ("e:1700000001", "aggregating", "group")] {
        assert_eq!(found.get(&format!("{{q}}:t:{id} state")), Some(state));
        assert_eq!(found.get(&format!("{{q}}:t:{id} {group}")), Some("g"));
        assert_eq!(found.get(&format!("{{q}}:t:{id} pending_since")), None);
    }
    assert_eq!(found.get("{q}:pending"), None);
}

#[tokio::test]
async fn a_clock_that_is_ahead_cannot_claim_the_future() {
    let fixture = Fixture::start().await;
    let now: (i64, i64) = fixture.cmd(&["TIME"]).await;
    let before = fixture.keyspace().await;
    assert_eq!(Periodic::new(&fixture).tick(now.0 + 3_600).await, TickVerdict::Ahead);
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert_eq!(Periodic::new(&fixture).tick(now.0 + 30).await, TickVerdict::Enqueued, "clocks differ a little");
}

#[tokio::test]
async fn a_key_of_another_type_changes_nothing_or_is_left_alone() {
    let fixture = Fixture::start().await;
    let entry = Periodic::new(&fixture);
    for key in ["asynq:{q}:x:cron:e", "asynq:{q}:pending"] {
        let before = fixture.keyspace().await;
        let refused = fixture.with_stray(key, || entry.try_tick(Why::Tick, T)).await.unwrap_err();
        assert!(is_wrong_type(&refused), "{refused}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
    // The history only tells.
    let verdict = fixture.with_stray("asynq:{q}:x:cron-history:e", || entry.tick(T)).await;
    assert_eq!(verdict, TickVerdict::Enqueued);
}

#[tokio::test]
async fn the_history_keeps_a_thousand_lines() {
    let fixture = Fixture::start().await;
    let fill = "for n = 1, 1200 do redis.call('RPUSH', KEYS[1], n) end";
    let _: redis::Value = fixture.cmd(&["EVAL", fill, "1", "asynq:{q}:x:cron-history:e"]).await;
    Periodic::new(&fixture).tick(T).await;
    let length: i64 = fixture.cmd(&["LLEN", "asynq:{q}:x:cron-history:e"]).await;
    assert_eq!(length, 1_000);
}

//! Changes of many tasks that outlive their process, and what they have deleted.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use queue_admin::{
    Actor, Admin, Error, Filter, Inspector, Operation, OperationSpec, OperationState, OperationVerb, Pace, Progress,
    Role, Work,
};
use queue_core::TaskState;
use queue_core::limits::BIN_PIECE;

use super::{at, start};
use crate::support::{Fixture, Keyspace, NOW, QUEUE, job};

const STATES: [TaskState; 6] = [
    TaskState::Retry,
    TaskState::Archived,
    TaskState::Completed,
    TaskState::Scheduled,
    TaskState::Aggregating,
    TaskState::Pending,
];

pub(super) fn admin(inspector: &Inspector, role: Role) -> Admin {
    Admin::new(inspector.clone(), Actor { name: "ada".to_owned(), role, via: "test", address: None })
}

fn all() -> Filter {
    STATES.into_iter().fold(Filter::new(), Filter::state)
}

fn delete_all() -> OperationSpec {
    OperationSpec::new(Work::Delete, QUEUE, &all())
}

/// Three tasks in each state, with locks; one of them is parked in a lane.
async fn furnish(fixture: &Fixture) {
    for state in STATES {
        for n in 0..3 {
            let task = job(&format!("{state}-{n}")).payload(format!("{state} {n}"));
            fixture.put_in(state, task.unique(Duration::from_secs(600))).await;
        }
    }
    let _: i64 = fixture.cmd(&["HSET", "asynq:{q}:t:scheduled-1", "x_waits", "lane:key 17"]).await;
    let _: i64 = fixture.cmd(&["ZADD", "asynq:{q}:x:waiting", "0", "lane:key 17 scheduled-1"]).await;
    fixture.run("ZADD asynq:{q}:x:due 17 lane:key").await;
}

/// The key space without what is said of operations, and without their bins where those are empty.
async fn tasks_of(fixture: &Fixture) -> Keyspace {
    fixture.keyspace().await.without("x:audit").without("x:op").without_relative_ttls()
}

pub(super) async fn begin(admin: &Admin, spec: OperationSpec) -> Operation {
    admin.start_operation(spec, None).await.unwrap()
}

pub(super) async fn finish(inspector: &Inspector, id: &str) -> Operation {
    inspector.run_operation(id, Pace::Full, |_| {}).await.unwrap()
}

/// Something that dies when it was polled so often. Tells whether it had ended before.
struct Dying<F>(Pin<Box<F>>, usize);

impl<F: Future> Future for Dying<F> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        if self.1 == 0 {
            return Poll::Ready(false);
        }
        self.1 -= 1;
        self.0.as_mut().poll(context).map(|_| true)
    }
}

#[tokio::test]
async fn what_an_operation_has_deleted_comes_back_as_it_was() {
    let (fixture, inspector) = start().await;
    furnish(&fixture).await;
    let before = tasks_of(&fixture).await;
    let ada = admin(&inspector, Role::Admin);
    let deleted = finish(&inspector, &begin(&ada, delete_all()).await.id).await;
    assert_eq!((deleted.state, deleted.changed, deleted.skipped), (OperationState::Done, 18, 0));
    assert_eq!((deleted.looked_at, deleted.of, deleted.matched), (18, 18, 18));
    let info = inspector.queue(QUEUE).await.unwrap();
    assert!(STATES.iter().all(|state| info.count(*state) == 0), "{info:?}");
    let locks: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:unique:*"]).await;
    assert!(locks.is_empty(), "{locks:?}");
    // Newer ones, however many, hide no bin.
    let newer = "for n = 1, 600 do redis.call('ZADD', KEYS[1], '9e15', 'newer-' .. n) end";
    fixture.cmd::<()>(&["EVAL", newer, "1", "asynq:x:ops"]).await;
    let bins = inspector.bins().await.unwrap();
    assert_eq!((bins.len(), bins[0].left(), bins[0].tasks[QUEUE]), (1, 18, 18));
    let binned = inspector.binned_tasks(&deleted.id, &Filter::new(), None, 100, usize::MAX).await.unwrap();
    assert_eq!((binned.tasks.len(), binned.searched.complete, binned.next), (18, true, None));
    assert!(binned.tasks.iter().any(|task| task.id == "retry-1" && task.state == TaskState::Retry));

    let restored = finish(&inspector, &begin(&ada, OperationSpec::restore(&deleted.id)).await.id).await;
    assert_eq!((restored.state, restored.changed, restored.skipped), (OperationState::Done, 18, 0));
    tasks_of(&fixture).await.assert_unchanged_since(&before);
    assert!(inspector.bins().await.unwrap().is_empty());
    let nothing = ada.start_operation(OperationSpec::restore(&restored.id), None).await.unwrap_err();
    assert!(matches!(nothing, Error::BinNotFound(_)), "{nothing}");
}

/// With 25 in a call that moves tasks to the bin or back, one call of a thousand held Redis up for 1.4 to 2.0 ms.
#[tokio::test]
async fn tasks_go_into_the_bin_and_back_in_short_calls() {
    let (fixture, inspector) = start().await;
    fixture.put((0..120).map(|n| job(&format!("t{n}")).process_in(Duration::from_secs(3_600)))).await;
    // It notes the commands within scripts, too, and by itself keeps the last 128.
    fixture.run("CONFIG SET slowlog-max-len 10000").await;
    fixture.run("CONFIG SET slowlog-log-slower-than 0").await;
    let ada = admin(&inspector, Role::Admin);
    let mut spec = delete_all();
    // Before the ids: the command, the script, how many keys, seven keys and eight arguments, or three and six.
    for before in [18, 12] {
        fixture.run("SLOWLOG RESET").await;
        let operation = finish(&inspector, &begin(&ada, spec).await.id).await;
        assert_eq!(operation.changed, 120);
        spec = OperationSpec::restore(&operation.id);
        type Noted = (u64, u64, u64, Vec<Vec<u8>>, String, String);
        let noted: Vec<Noted> = fixture.cmd(&["SLOWLOG", "GET", "-1"]).await;
        let calls = noted.iter().filter(|noted| noted.3[0] == b"EVALSHA");
        let words: Vec<usize> = calls
            .map(|call| {
                // Redis notes 32 words at the most, the last of which then says how many there are more.
                let last = String::from_utf8_lossy(&call.3[call.3.len() - 1]);
                let more = last.strip_prefix("... (").and_then(|rest| rest.split(' ').next()?.parse().ok());
                more.map_or(call.3.len(), |more: usize| call.3.len() - 1 + more)
            })
            .collect();
        assert_eq!(words.iter().max(), Some(&(before + 10)), "{words:?}");
    }
}

/// The same as of all other actions: who did it, and what came of it.
#[tokio::test]
async fn what_is_done_is_written_down_of_operations_too() {
    let (fixture, inspector) = start().await;
    furnish(&fixture).await;
    let ada = admin(&inspector, Role::Admin);
    let deleted = finish(&inspector, &begin(&ada, delete_all()).await.id).await;
    finish(&inspector, &begin(&ada, OperationSpec::restore(&deleted.id)).await.id).await;
    let audit = inspector.audit(None, 10).await.unwrap().entries;
    let told: Vec<_> =
        audit.iter().map(|entry| (entry.action.as_str(), entry.changed, entry.outcome.as_str())).collect();
    assert_eq!(told, [("bin.restore", Some(18), "done"), ("tasks.delete", Some(18), "done")]);
}

#[tokio::test]
async fn a_dry_run_writes_nothing_and_a_bound_stops_an_operation() {
    let (fixture, inspector) = start().await;
    furnish(&fixture).await;
    let before = fixture.keyspace().await;
    assert_eq!(inspector.dry_run(&delete_all()).await.unwrap()[QUEUE], 18);
    let ids: Vec<String> = fixture.cmd(&["ZRANGE", "asynq:{q}:archived", "0", "1"]).await;
    let named = |work| OperationSpec::of_ids(work, QUEUE, [&ids[..], &ids[..], &["gone".to_owned()]].concat());
    assert_eq!(inspector.dry_run(&named(Work::Delete)).await.unwrap()[QUEUE], 2);
    fixture.keyspace().await.assert_unchanged_since(&before);
    let ada = admin(&inspector, Role::Admin);
    let bounded = OperationSpec { at_most: Some(7), ..delete_all() };
    let stopped = finish(&inspector, &begin(&ada, bounded).await.id).await;
    assert_eq!((stopped.state, stopped.changed), (OperationState::Stopped, 7));
    assert!(stopped.error.unwrap().starts_with("limit-reached"));
    assert_eq!(inspector.bin(&stopped.id).await.unwrap().left(), 7);
    let exact = OperationSpec { at_most: Some(11), ..delete_all() };
    assert_eq!(finish(&inspector, &begin(&ada, exact).await.id).await.state, OperationState::Done);
}

#[tokio::test]
async fn a_process_that_dies_at_any_step_leaves_each_task_in_one_place_and_another_one_goes_on() {
    let mut steps = 1;
    loop {
        let (fixture, inspector) = start().await;
        furnish(&fixture).await;
        let before = tasks_of(&fixture).await;
        let ada = admin(&inspector, Role::Admin);
        let mut has_ended = true;
        let id = begin(&ada, delete_all()).await.id;
        for restoring in [false, true] {
            let id = if restoring { begin(&ada, OperationSpec::restore(&id)).await.id } else { id.clone() };
            has_ended &= Dying(Box::pin(inspector.run_operation(&id, Pace::Full, |_| {})), steps).await;
            // What is on its way to Redis arrives.
            let _: String = fixture.cmd(&["PING"]).await;
            let now = inspector.operation(&id).await.unwrap();
            // It may have died before anything of it was written.
            let expected = if now.state == OperationState::Queued { OperationState::Done } else { now.state };
            assert_eq!(finish(&inspector, &id).await.state, expected, "another one has it: nothing is done");
            for state in STATES {
                for n in 0..3 {
                    let keys: Vec<String> = fixture.cmd(&["KEYS", &format!("asynq:{{q}}:*t:{state}-{n}")]).await;
                    assert_eq!(keys.len(), 1, "{steps} {restoring} {keys:?}");
                }
            }
            // Half a minute later.
            fixture.run(&format!("DEL asynq:x:op:{{{id}}}:lease")).await;
            let done = finish(&inspector, &id).await;
            assert_eq!((done.state, done.error), (OperationState::Done, None), "{steps} {restoring}");
        }
        tasks_of(&fixture).await.assert_unchanged_since(&before);
        if has_ended {
            assert!(steps > 5, "it was killed {steps} times only");
            return;
        }
        steps += 1;
    }
}

#[tokio::test]
async fn an_operation_pauses_goes_on_and_ends_when_somebody_wants_it() {
    let (fixture, inspector) = start().await;
    fixture.put((0..300).map(|n| job(&format!("t{n}")))).await;
    let ada = admin(&inspector, Role::Admin);
    let id = begin(&ada, delete_all()).await.id;
    // Nobody has it yet.
    let paused = ada.steer_operation(&id, OperationVerb::Pause).await.unwrap();
    assert_eq!(paused.state, OperationState::Paused);
    assert!(inspector.open_operations().await.unwrap().is_empty());
    assert_eq!(ada.steer_operation(&id, OperationVerb::Resume).await.unwrap().state, OperationState::Queued);
    assert_eq!(inspector.open_operations().await.unwrap()[0].id, id);
    // While somebody has it, he hears of it after the page at hand.
    let pages = AtomicUsize::new(0);
    let (sender, mut pause) = tokio::sync::mpsc::unbounded_channel();
    let told = |_| {
        if pages.fetch_add(1, Ordering::Relaxed) == 0 {
            sender.send(()).unwrap();
        }
    };
    let steer = async {
        pause.recv().await.unwrap();
        ada.steer_operation(&id, OperationVerb::Pause).await.unwrap()
    };
    let (done, _) = tokio::join!(inspector.run_operation(&id, Pace::Gentle, told), steer);
    let done = done.unwrap();
    assert_eq!(done.state, OperationState::Paused);
    assert!((1..300).contains(&done.changed), "{done:?}");
    assert_eq!(inspector.queue(QUEUE).await.unwrap().count(TaskState::Pending), 300 - done.changed);
    let cancelled = ada.steer_operation(&id, OperationVerb::Cancel).await.unwrap();
    assert_eq!((cancelled.state, cancelled.changed), (OperationState::Cancelled, done.changed));
    assert!(cancelled.ended_at.is_some());
    let over = ada.steer_operation(&id, OperationVerb::Resume).await.unwrap_err();
    assert!(matches!(over, Error::OperationOver { state: "cancelled", .. }), "{over}");
    assert_eq!(finish(&inspector, &id).await, cancelled, "what is over stays as it is");
    // What it had deleted can be restored.
    let restored = finish(&inspector, &begin(&ada, OperationSpec::restore(&id)).await.id).await;
    assert_eq!(restored.changed, done.changed);
}

#[tokio::test]
async fn more_than_the_archive_keeps_is_not_archived_in_two_goes_either() {
    let (fixture, inspector) = start().await;
    let fill = "for n = 1, 10050 do
        redis.call('ZADD', 'asynq:{q}:retry', n, 't' .. n)
        redis.call('HSET', 'asynq:{q}:t:t' .. n, 'msg', 'm', 'state', 'retry')
    end";
    let _: redis::Value = fixture.cmd(&["EVAL", fill, "0"]).await;
    let ada = admin(&inspector, Role::Admin);
    let all = Filter::new().state(TaskState::Retry);
    let id = begin(&ada, OperationSpec::new(Work::Archive, QUEUE, &all)).await.id;
    let (sender, mut pause) = tokio::sync::mpsc::unbounded_channel();
    let told = |progress: queue_admin::Progress| {
        if progress.so_far.changed > 6_000 {
            let _ = sender.send(());
        }
    };
    let steer = async {
        pause.recv().await.unwrap();
        ada.steer_operation(&id, OperationVerb::Pause).await.unwrap()
    };
    let (done, _) = tokio::join!(inspector.run_operation(&id, Pace::Full, told), steer);
    assert_eq!(done.unwrap().state, OperationState::Paused);
    ada.steer_operation(&id, OperationVerb::Resume).await.unwrap();
    let done = finish(&inspector, &id).await;
    let info = inspector.queue(QUEUE).await.unwrap();
    assert_eq!((done.state, done.trimmed, info.retry, info.archived), (OperationState::Stopped, 0, 51, 9_999));
}

/// On a cluster the operation is on another node than its bin.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_bin_is_found_although_a_failover_has_lost_the_note_of_its_list() {
    let (fixture, inspector) = start().await;
    furnish(&fixture).await;
    let id = begin(&admin(&inspector, Role::Admin), delete_all()).await.id;
    let (redis, mut forget) = (fixture.redis(), redis::cmd("HDEL"));
    forget.arg(format!("asynq:x:op:{{{id}}}")).arg("piece:q");
    let lose = |_: Progress| {
        let lost = redis.query::<()>("HDEL", &forget);
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(lost)).unwrap();
    };
    inspector.run_operation(&id, Pace::Full, lose).await.unwrap();
    assert_eq!(inspector.bin(&id).await.unwrap().left(), 18);
}

#[tokio::test]
async fn what_cannot_come_back_stays_in_the_bin_until_that_is_emptied() {
    let (fixture, inspector) = start().await;
    fixture.put((0..120).map(|n| job(&format!("t{n}")))).await;
    let ada = admin(&inspector, Role::Admin);
    let id = begin(&ada, delete_all()).await.id;
    let live = ada.start_operation(OperationSpec::restore(&id), None).await.unwrap_err();
    assert!(matches!(live, Error::OperationLive(_)), "{live}");
    finish(&inspector, &id).await;
    fixture.put((0..70).map(|n| job(&format!("t{n}")))).await;
    let restored = finish(&inspector, &begin(&ada, OperationSpec::restore(&id)).await.id).await;
    assert_eq!((restored.state, restored.changed, restored.skipped), (OperationState::Done, 50, 70));
    assert_eq!(inspector.bin(&id).await.unwrap().left(), 70);
    assert_eq!(ada.empty_bin(&id).await.unwrap(), 70);
    let bins: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:x:bin:*"]).await;
    assert_eq!(bins, Vec::<String>::new());
    assert!(matches!(inspector.bin(&id).await.unwrap_err(), Error::BinNotFound(_)));
    assert_eq!(inspector.queue(QUEUE).await.unwrap().count(TaskState::Pending), 120);
}

#[tokio::test]
async fn a_bin_of_many_tasks_has_many_lists_and_goes_with_its_queue() {
    let (fixture, inspector) = start().await;
    let count = 2 * BIN_PIECE + 100;
    fixture.put((0..count).map(|n| job(&format!("t{n}")))).await;
    let ids: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    let ada = admin(&inspector, Role::Admin);
    let id = begin(&ada, delete_all()).await.id;
    finish(&inspector, &id).await;
    let mut lengths = Vec::new();
    for piece in 0..4 {
        lengths.push(fixture.cmd::<usize>(&["LLEN", &format!("asynq:{{q}}:x:bin:{id}:{piece}")]).await);
    }
    assert_eq!(lengths, [BIN_PIECE, BIN_PIECE, 100, 0]);
    let of_dry_run = inspector.dry_run(&OperationSpec::restore(&id)).await.unwrap();
    assert_eq!(of_dry_run[QUEUE], count as u64);
    finish(&inspector, &begin(&ada, OperationSpec::restore(&id)).await.id).await;
    let again: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    assert!(again == ids, "the order is another one");
    finish(&inspector, &begin(&ada, delete_all()).await.id).await;
    inspector.remove_queue(QUEUE, false).await.unwrap();
    let left: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:*"]).await;
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn a_bin_is_gone_through_page_by_page_and_searched_and_single_tasks_come_back() {
    let (fixture, inspector) = start().await;
    fixture.broker.publish_queue("other").await.unwrap();
    let count = BIN_PIECE + 150;
    fixture.put((0..count).map(|n| job(&format!("t{n}")).payload(format!(r#"{{"n":{}}}"#, n % 10)))).await;
    fixture.put([job("t7").queue("other").payload(r#"{"n":7}"#)]).await;
    let ada = admin(&inspector, Role::Admin);
    let queues = vec!["other".to_owned(), QUEUE.to_owned()];
    let id = begin(&ada, OperationSpec { queues, ..delete_all() }).await.id;
    finish(&inspector, &id).await;
    let pages = async |filter: &Filter, limit: usize, look_at: usize| {
        let (mut ids, mut cursor, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = inspector.binned_tasks(&id, filter, cursor.as_ref(), limit, look_at).await.unwrap();
            assert!(page.tasks.len() <= limit);
            ids.extend(page.tasks.into_iter().map(|task| format!("{} {}", task.queue, task.id)));
            pages += 1;
            assert!(pages <= 100, "it goes round and round");
            cursor = page.next;
            assert_eq!(page.searched.complete, cursor.is_none());
            if cursor.is_none() {
                assert_eq!((page.searched.looked_at, page.searched.of), (count as u64 + 1, count as u64 + 1));
                return (ids, pages);
            }
        }
    };
    let (all, _) = pages(&Filter::new(), 200, usize::MAX).await;
    let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
    assert_eq!((all.len(), distinct.len(), all[0].as_str()), (count + 1, count + 1, "other t7"));
    // As it is deleted: the newest first.
    assert_eq!((all[1].as_str(), all[count].as_str()), (&*format!("q t{}", count - 1), "q t0"));
    let sevens = Filter::new().payload("n", "7");
    let (found, looks) = pages(&sevens, 50, 100).await;
    assert_eq!((found.len(), looks), (count / 10 + 1, count.div_ceil(100)));
    let cursor = inspector.binned_tasks(&id, &sevens, None, 1, usize::MAX).await.unwrap().next;
    let wrong = inspector.binned_tasks(&id, &Filter::new(), cursor.as_ref(), 1, usize::MAX).await.unwrap_err();
    assert!(matches!(wrong, Error::BadCursor(_)), "{wrong}");

    // One that is there, one that was never, one in another list; another task has the id of the last.
    fixture.put([job("t5")]).await;
    let some = ["t1", "nobody", "t1140", "t5"].map(str::to_owned).to_vec();
    for queue in ["", "elsewhere"] {
        let spec =
            OperationSpec { queues: vec![queue.to_owned()], ..OperationSpec::restore_ids(&id, QUEUE, some.clone()) };
        assert!(ada.start_operation(spec, None).await.is_err(), "{queue}");
    }
    let unnamed = OperationSpec { queues: Vec::new(), ..OperationSpec::restore_ids(&id, QUEUE, some.clone()) };
    assert!(matches!(ada.start_operation(unnamed, None).await.unwrap_err(), Error::OperationInvalid(_)));
    let restore = OperationSpec::restore_ids(&id, QUEUE, some);
    assert_eq!(inspector.dry_run(&restore).await.unwrap()[QUEUE], 3);
    let restored = finish(&inspector, &begin(&ada, restore).await.id).await;
    assert_eq!((restored.state, restored.changed, restored.skipped), (OperationState::Done, 2, 1));
    let mut pending: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    pending.sort();
    assert_eq!(pending, ["t1", "t1140", "t5"]);
    assert_eq!(inspector.bin(&id).await.unwrap().left(), count as u64 - 1);
    let rest = finish(&inspector, &begin(&ada, OperationSpec::restore(&id)).await.id).await;
    assert_eq!((rest.changed, rest.skipped), (count as u64 - 2, 1));
}

#[tokio::test]
async fn tasks_are_named_by_their_ids_and_other_actions_work_too() {
    let (fixture, inspector) = start().await;
    furnish(&fixture).await;
    let ada = admin(&inspector, Role::Admin);
    let ids = ["retry-0", "archived-0", "nobody"].map(str::to_owned).to_vec();
    let run = begin(&ada, OperationSpec::of_ids(Work::Run, QUEUE, ids.clone())).await;
    let run = finish(&inspector, &run.id).await;
    assert_eq!((run.state, run.changed, run.skipped), (OperationState::Done, 2, 1));
    let deleted = begin(&ada, OperationSpec::of_ids(Work::Delete, QUEUE, ids)).await;
    let deleted = finish(&inspector, &deleted.id).await;
    assert_eq!((deleted.changed, inspector.bin(&deleted.id).await.unwrap().left()), (2, 2));
    let archive =
        begin(&ada, OperationSpec::new(Work::Archive, QUEUE, &Filter::new().state(TaskState::Scheduled))).await;
    assert_eq!(finish(&inspector, &archive.id).await.changed, 3);
    let gone = OperationSpec { bin: false, ..delete_all() };
    let gone = finish(&inspector, &begin(&ada, gone).await.id).await;
    assert_eq!((gone.state, gone.changed), (OperationState::Done, 16));
    assert!(matches!(inspector.bin(&gone.id).await.unwrap_err(), Error::BinNotFound(_)));
}

#[tokio::test]
async fn an_operation_is_asked_for_once_by_a_key_and_refused_where_it_makes_no_sense() {
    let (fixture, inspector) = start().await;
    furnish(&fixture).await;
    let ada = admin(&inspector, Role::Admin);
    let first = ada.start_operation(delete_all(), Some("k")).await.unwrap();
    // Whoever wrote it may have died before it was listed.
    fixture.run("DEL asynq:x:ops").await;
    assert_eq!(ada.start_operation(delete_all(), Some("k")).await.unwrap(), first);
    assert_eq!(fixture.cmd::<Vec<String>>(&["ZRANGE", "asynq:x:ops", "0", "-1"]).await, [first.id.as_str()]);
    let other = OperationSpec { bin: false, ..delete_all() };
    assert!(matches!(ada.start_operation(other, Some("k")).await.unwrap_err(), Error::KeyReused));
    let before = fixture.keyspace().await;
    let invalid = [
        OperationSpec { filter: None, ..delete_all() },
        OperationSpec { filter: Some("type:x".to_owned()), ..delete_all() },
        OperationSpec { ids: vec!["a".to_owned()], ..delete_all() },
        OperationSpec { queues: Vec::new(), ..delete_all() },
        OperationSpec { operation: None, ..OperationSpec::restore("x") },
        OperationSpec { filter: Some("type:x".to_owned()), ..OperationSpec::restore("x") },
        OperationSpec { at_most: Some(1), ..OperationSpec::restore("x") },
        OperationSpec { queues: vec![QUEUE.to_owned()], ..OperationSpec::restore("x") },
        OperationSpec::of_ids(Work::Run, QUEUE, vec!["a".to_owned(); 1_001]),
    ];
    for spec in invalid {
        let error = ada.start_operation(spec.clone(), None).await.unwrap_err();
        assert!(matches!(error, Error::OperationInvalid(_)), "{spec:?}: {error}");
    }
    let active = OperationSpec { filter: Some("state:active".to_owned()), ..delete_all() };
    assert!(matches!(ada.start_operation(active, None).await.unwrap_err(), Error::StateRefused { .. }));
    let elsewhere = OperationSpec { queues: vec!["none".to_owned()], ..delete_all() };
    assert!(matches!(ada.start_operation(elsewhere, None).await.unwrap_err(), Error::QueueNotFound(_)));
    let operator = admin(&inspector, Role::Operator);
    assert!(matches!(operator.start_operation(delete_all(), None).await.unwrap_err(), Error::Forbidden { .. }));
    assert!(matches!(
        operator.steer_operation(&first.id, OperationVerb::Cancel).await.unwrap_err(),
        Error::Forbidden { .. }
    ));
    assert!(matches!(operator.empty_bin(&first.id).await.unwrap_err(), Error::Forbidden { .. }));
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert!(matches!(inspector.operation("none").await.unwrap_err(), Error::OperationNotFound(_)));
}

#[tokio::test]
async fn a_key_that_is_used_twice_at_once_is_used_once() {
    let (fixture, inspector) = start().await;
    furnish(&fixture).await;
    let ada = admin(&inspector, Role::Admin);
    let other = OperationSpec { bin: false, ..delete_all() };
    for n in 0..10 {
        let key = format!("same-{n}");
        let same = || ada.start_operation(delete_all(), Some(&key));
        let (first, second) = tokio::join!(same(), same());
        assert_eq!(first.unwrap().id, second.unwrap().id);
        let key = format!("other-{n}");
        let both =
            tokio::join!(ada.start_operation(delete_all(), Some(&key)), ada.start_operation(other.clone(), Some(&key)));
        let (done, refused) = match both {
            (Ok(done), Err(refused)) => (done.spec == delete_all(), refused),
            (Err(refused), Ok(done)) => (done.spec == other, refused),
            both => panic!("{both:?}"),
        };
        assert!(done && matches!(refused, Error::KeyReused), "{refused}");
    }
}

#[tokio::test]
async fn an_open_operation_is_found_behind_many_younger_ones() {
    let (fixture, inspector) = start().await;
    furnish(&fixture).await;
    let id = begin(&admin(&inspector, Role::Admin), delete_all()).await.id;
    for n in 0..600 {
        let over = format!("over-{n}");
        let _: i64 = fixture.cmd(&["HSET", &format!("asynq:x:op:{{{over}}}"), "state", "done"]).await;
        let _: i64 = fixture.cmd(&["ZADD", "asynq:x:ops", "9999999999999", &over]).await;
    }
    let open: Vec<String> = inspector.open_operations().await.unwrap().into_iter().map(|open| open.id).collect();
    assert_eq!(open, [id]);
}

#[tokio::test]
async fn an_operation_interrupts_no_task_of_another_queue() {
    let (fixture, inspector) = start().await;
    fixture.put([job("mine")]).await;
    fixture.take().await;
    fixture.put([job("waits")]).await;
    fixture.broker.publish_queue("other").await.unwrap();
    fixture.run("CONFIG SET slowlog-max-len 10000").await;
    fixture.run("CONFIG SET slowlog-log-slower-than 0").await;
    let ada = admin(&inspector, Role::Admin);
    for (queue, expected) in [("other", &[][..]), (QUEUE, &["mine"])] {
        fixture.run("SLOWLOG RESET").await;
        let ids = ["mine", "waits", "nobody"].map(str::to_owned).to_vec();
        finish(&inspector, &begin(&ada, OperationSpec::of_ids(Work::Interrupt, queue, ids)).await.id).await;
        type Noted = (u64, u64, u64, Vec<String>, String, String);
        let noted: Vec<Noted> = fixture.cmd(&["SLOWLOG", "GET", "-1"]).await;
        let told: Vec<&str> = noted
            .iter()
            .filter(|noted| noted.3.starts_with(&["PUBLISH".to_owned(), "asynq:cancel".to_owned()]))
            .map(|noted| &noted.3[2][..])
            .collect();
        assert_eq!(told, expected, "{queue}");
    }
}

/// They were deleted by the next task that died, though all of them were told to be restored.
#[tokio::test]
async fn what_was_archived_stays_in_the_bin_when_the_archive_is_full_and_the_rest_comes_back() {
    let (fixture, inspector) = start().await;
    for n in 0..30 {
        let state = if n % 3 == 0 { TaskState::Scheduled } else { TaskState::Archived };
        fixture.put_in(state, job(&format!("t{n}"))).await;
    }
    let ada = admin(&inspector, Role::Admin);
    let all = Filter::new().state(TaskState::Archived).state(TaskState::Scheduled);
    let id = begin(&ada, OperationSpec::new(Work::Delete, QUEUE, &all)).await.id;
    assert_eq!(finish(&inspector, &id).await.changed, 30);
    fixture.fill_archive(9_993).await;
    let done = finish(&inspector, &begin(&ada, OperationSpec::restore(&id)).await.id).await;
    assert_eq!((done.state, done.changed, done.skipped), (OperationState::Stopped, 16, 14));
    let told = done.error.unwrap();
    assert!(told.starts_with("the archive of queue \"q\" keeps 9999 tasks, and has so many"), "{told}");
    assert_eq!(inspector.bin(&id).await.unwrap().left(), 14);
    // One more that dies makes room for itself alone.
    fixture.put([job("dies")]).await;
    inspector.archive_task(QUEUE, "dies").await.unwrap();
    let info = inspector.queue(QUEUE).await.unwrap();
    assert_eq!((info.archived, info.scheduled), (9_999, 10));
    fixture.run("DEL asynq:{q}:archived").await;
    let done = finish(&inspector, &begin(&ada, OperationSpec::restore(&id)).await.id).await;
    assert_eq!((done.state, done.changed, done.error), (OperationState::Done, 14, None));
}

/// They are back, or were never there, and do not stay in the bin.
#[tokio::test]
async fn of_two_who_restore_and_of_one_who_goes_on_the_numbers_are_right() {
    let (fixture, inspector) = start().await;
    fixture.put((0..300).map(|n| job(&format!("t{n}")))).await;
    let ada = admin(&inspector, Role::Admin);
    let id = begin(&ada, delete_all()).await.id;
    finish(&inspector, &id).await;
    let (one, two) =
        (begin(&ada, OperationSpec::restore(&id)).await.id, begin(&ada, OperationSpec::restore(&id)).await.id);
    let (one, two) = tokio::join!(finish(&inspector, &one), finish(&inspector, &two));
    assert_eq!((one.changed + two.changed, one.skipped, two.skipped), (300, 0, 0));
    // Another goes on with one that cannot bring all back.
    let id = begin(&ada, delete_all()).await.id;
    finish(&inspector, &id).await;
    fixture.put((0..300).step_by(3).map(|n| job(&format!("t{n}")))).await;
    let restore = begin(&ada, OperationSpec::restore(&id)).await.id;
    let (sender, mut skipped) = tokio::sync::mpsc::unbounded_channel();
    let told = |progress: queue_admin::Progress| {
        if progress.so_far.skipped > 0 {
            let _ = sender.send(());
        }
    };
    tokio::select! {
        biased;
        _ = skipped.recv() => {}
        done = inspector.run_operation(&restore, Pace::Full, told) => panic!("it has not died: {done:?}"),
    }
    let _: String = fixture.cmd(&["PING"]).await;
    fixture.run(&format!("DEL asynq:x:op:{{{restore}}}:lease")).await;
    let done = finish(&inspector, &restore).await;
    assert_eq!((done.state, done.skipped, done.matched), (OperationState::Done, 100, done.changed + 100));
}

#[tokio::test]
async fn who_dies_before_it_hears_of_a_wish_leaves_the_operation_as_it_was_wished() {
    for (verb, state) in
        [(OperationVerb::Cancel, OperationState::Cancelled), (OperationVerb::Pause, OperationState::Paused)]
    {
        let (fixture, inspector) = start().await;
        fixture.put((0..300).map(|n| job(&format!("t{n}")))).await;
        let ada = admin(&inspector, Role::Admin);
        let id = begin(&ada, delete_all()).await.id;
        Dying(Box::pin(inspector.run_operation(&id, Pace::Full, |_| {})), 10).await;
        let _: String = fixture.cmd(&["PING"]).await;
        assert_eq!(ada.steer_operation(&id, verb).await.unwrap().state, OperationState::Running);
        assert_eq!(inspector.operation(&id).await.unwrap().state, OperationState::Running, "it may live");
        fixture.run(&format!("DEL asynq:x:op:{{{id}}}:lease")).await;
        assert_eq!(inspector.operation(&id).await.unwrap().state, state);
        assert!(inspector.open_operations().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn operations_that_are_forgotten_leave_the_list_though_nobody_looks_at_it() {
    let (fixture, inspector) = start().await;
    let ada = admin(&inspector, Role::Admin);
    for n in 0..30 {
        let _: i64 = fixture.cmd(&["ZADD", "asynq:x:ops", &n.to_string(), &format!("old{n}")]).await;
    }
    let mut ids = [begin(&ada, delete_all()).await.id, begin(&ada, delete_all()).await.id];
    let mut listed: Vec<String> = fixture.cmd(&["ZRANGE", "asynq:x:ops", "0", "-1"]).await;
    ids.sort();
    listed.sort();
    assert_eq!(listed, ids);
}

#[tokio::test]
async fn an_operation_is_kept_for_a_week_and_then_no_longer_listed() {
    let (fixture, inspector) = start().await;
    let ada = admin(&inspector, Role::Admin);
    let id = begin(&ada, delete_all()).await.id;
    finish(&inspector, &id).await;
    let ttl: i64 = fixture.cmd(&["TTL", &format!("asynq:x:op:{{{id}}}")]).await;
    assert!((604_700..=604_800).contains(&ttl), "{ttl}");
    assert_eq!(at(&fixture, NOW + 5).operations(10).await.unwrap().len(), 1);
    fixture.run(&format!("DEL asynq:x:op:{{{id}}}")).await;
    assert!(inspector.operations(10).await.unwrap().is_empty());
    assert_eq!(fixture.cmd::<i64>(&["EXISTS", "asynq:x:ops"]).await, 0);
}

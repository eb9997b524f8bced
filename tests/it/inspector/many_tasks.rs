//! Finding, counting and changing many tasks.

use std::time::Duration;

use queue_admin::{Changed, Error, Filter, Inspector, Page, Progress};
use queue_core::TaskState;

use super::{at, start};
use crate::support::{Fixture, GROUP, NOW, QUEUE, job};

const STATES: [TaskState; 6] = [
    TaskState::Pending,
    TaskState::Scheduled,
    TaskState::Retry,
    TaskState::Archived,
    TaskState::Completed,
    TaskState::Aggregating,
];

/// Tasks `<state>-0` and so on, five in each state; number 3 of each has a payload and a header of its own.
async fn five_in_each_state(fixture: &Fixture) {
    for state in [TaskState::Active].into_iter().chain(STATES.into_iter().rev()) {
        for n in 0..5 {
            let mut task = job(&format!("{state}-{n}")).payload(format!(r#"{{"n":{n}}}"#));
            if n == 3 {
                task = task.header("odd", "yes");
            }
            fixture.put_in(state, task).await;
        }
    }
}

async fn ids(inspector: &Inspector, filter: &Filter, page: Page) -> Vec<String> {
    inspector.find(QUEUE, filter, page).await.unwrap().into_iter().map(|task| task.id).collect()
}

fn counts(changed: Changed) -> (u64, u64, u64) {
    (changed.matched, changed.changed, changed.skipped)
}

#[tokio::test]
async fn tasks_are_found_and_counted_in_all_states_or_in_those_named() {
    let (fixture, inspector) = start().await;
    five_in_each_state(&fixture).await;
    let all = Page { skip: 0, size: 100 };
    assert_eq!(inspector.count(QUEUE, &Filter::new()).await.unwrap(), 35);
    assert_eq!(ids(&inspector, &Filter::new(), all).await.len(), 35);
    let some = Filter::new().state(TaskState::Retry).state(TaskState::Pending).payload("n", "3");
    assert_eq!(inspector.count(QUEUE, &some).await.unwrap(), 2);
    assert_eq!(ids(&inspector, &some, all).await, ["pending-3", "retry-3"]);
    assert_eq!(ids(&inspector, &Filter::new().header_is("odd", "yes"), all).await.len(), 7);
    let group = Filter::new().group(GROUP).task_type("j*");
    assert_eq!(inspector.count(QUEUE, &group).await.unwrap(), 5);
    let failed = Filter::new().error_contains("oo");
    assert_eq!(inspector.count(QUEUE, &failed).await.unwrap(), 10, "retry and archived");
    let named = Filter::new().id("completed-1").id("active-1").id("nobody");
    assert_eq!(inspector.count(QUEUE, &named).await.unwrap(), 2);
    assert!(matches!(inspector.count("none", &named).await, Err(Error::QueueNotFound(_))));
    assert!(matches!(inspector.find("none", &named, all).await, Err(Error::QueueNotFound(_))));
}

#[tokio::test]
async fn pages_count_those_that_match_oldest_first() {
    let (fixture, inspector) = start().await;
    fixture.put((0..250).map(|n| job(&format!("t{n}")).payload(format!(r#"{{"even":{}}}"#, n % 2 == 0)))).await;
    let even = Filter::new().payload("even", "true");
    assert_eq!(ids(&inspector, &even, Page { skip: 0, size: 3 }).await, ["t0", "t2", "t4"]);
    assert_eq!(ids(&inspector, &even, Page { skip: 60, size: 3 }).await, ["t120", "t122", "t124"]);
    assert_eq!(ids(&inspector, &even, Page { skip: 123, size: 9 }).await, ["t246", "t248"]);
    assert!(ids(&inspector, &even, Page { skip: 125, size: 9 }).await.is_empty());
    assert!(ids(&inspector, &even, Page { skip: 0, size: 0 }).await.is_empty());
}

#[tokio::test]
async fn older_than_counts_from_when_the_task_came_into_its_state() {
    let (fixture, inspector) = start().await;
    five_in_each_state(&fixture).await;
    let old = Filter::new().older_than(Duration::from_secs(10));
    assert_eq!(inspector.count(QUEUE, &old).await.unwrap(), 0);
    // No server says when an active task was started; the scheduled ones are an hour ahead.
    assert_eq!(at(&fixture, NOW + 11).count(QUEUE, &old).await.unwrap(), 25);
    assert_eq!(at(&fixture, NOW + 3611).count(QUEUE, &old).await.unwrap(), 30);
}

#[tokio::test]
async fn delete_all_deletes_everything_but_what_is_active_with_locks() {
    let (fixture, inspector) = start().await;
    let empty = fixture.keyspace().await;
    five_in_each_state(&fixture).await;
    fixture.put_in(TaskState::Scheduled, job("locked").unique(Duration::from_secs(600))).await;
    let mut told: Vec<Progress> = Vec::new();
    let changed = inspector.delete_all(QUEUE, &Filter::new(), |progress| told.push(progress)).await.unwrap();
    assert_eq!(counts(changed), (31, 31, 0));
    assert_eq!(told.last().map(|progress| (progress.looked_at, progress.of, progress.so_far)), Some((31, 31, changed)));
    fixture.forget_counters().await;
    let after = fixture.keyspace().await;
    assert!(!after.changes_since(&empty).lines().any(|line| !line.contains("active")), "{after}");
    assert_eq!(inspector.count(QUEUE, &Filter::new()).await.unwrap(), 5);
}

#[tokio::test]
async fn run_all_and_archive_all_go_through_the_states_that_make_sense_unless_one_is_named() {
    for (run, matched, left) in [(true, 20, TaskState::Completed), (false, 20, TaskState::Completed)] {
        let (fixture, inspector) = start().await;
        five_in_each_state(&fixture).await;
        let bulk = async |filter: &Filter| {
            if run {
                inspector.run_all(QUEUE, filter, |_| {}).await
            } else {
                inspector.archive_all(QUEUE, filter, |_| {}).await
            }
        };
        assert_eq!(counts(bulk(&Filter::new()).await.unwrap()), (matched, matched, 0));
        let info = inspector.queue(QUEUE).await.unwrap();
        assert_eq!((info.count(left), info.active), (5, 5), "{info:?}");
        assert_eq!(if run { info.pending } else { info.archived }, 25);
        let named = Filter::new().state(TaskState::Completed).payload("n", "1");
        assert_eq!(counts(bulk(&named).await.unwrap()), (1, 1, 0));
        let refused = bulk(&Filter::new().state(TaskState::Active)).await.unwrap_err();
        assert!(matches!(refused, Error::StateRefused { state: TaskState::Active, .. }), "{refused}");
    }
}

#[tokio::test]
async fn run_all_keeps_the_order_of_the_set() {
    let (fixture, inspector) = start().await;
    for n in 0..250_u64 {
        fixture.put([job(&format!("t{n}")).process_in(Duration::from_secs(1000 - n))]).await;
    }
    let changed = inspector.run_all(QUEUE, &Filter::new(), |_| {}).await.unwrap();
    assert_eq!(counts(changed), (250, 250, 0));
    let pending: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    let expected: Vec<String> = (0..250).map(|n| format!("t{n}")).collect();
    assert_eq!(pending, expected, "the one that was due first, t249, is next");
}

#[tokio::test]
async fn bulk_changes_of_pending_tasks_keep_the_order_of_the_others() {
    for archive in [true, false] {
        let (fixture, inspector) = start().await;
        fixture.put((0..1_000).map(|n| job(&format!("t{n}")).payload(format!(r#"{{"r":{}}}"#, n * 7 % 10)))).await;
        let filter = Filter::new().state(TaskState::Pending).payload("r", "3");
        let changed = if archive {
            inspector.archive_all(QUEUE, &filter, |_| {}).await.unwrap()
        } else {
            inspector.delete_all(QUEUE, &filter, |_| {}).await.unwrap()
        };
        assert_eq!(counts(changed), (100, 100, 0));
        let left: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
        let expected: Vec<String> = (0..1_000).rev().filter(|n| n * 7 % 10 != 3).map(|n| format!("t{n}")).collect();
        assert_eq!(left, expected);
        let archived: u64 = fixture.cmd(&["ZCARD", "asynq:{q}:archived"]).await;
        assert_eq!(archived, if archive { 100 } else { 0 });
    }
}

#[tokio::test]
async fn ids_without_tasks_go_with_delete_all_and_are_skipped_by_the_others() {
    let (fixture, inspector) = start().await;
    let ghosts = async || {
        fixture.run("ZADD asynq:{q}:retry 1 ghost").await;
        fixture.run("LPUSH asynq:{q}:pending ghost2").await;
    };
    ghosts().await;
    assert_eq!(counts(inspector.run_all(QUEUE, &Filter::new(), |_| {}).await.unwrap()), (1, 0, 1));
    assert_eq!(counts(inspector.archive_all(QUEUE, &Filter::new(), |_| {}).await.unwrap()), (2, 0, 2));
    let readable = Filter::new().task_type("*");
    assert_eq!(counts(inspector.delete_all(QUEUE, &readable, |_| {}).await.unwrap()), (0, 0, 0));
    assert_eq!(counts(inspector.delete_all(QUEUE, &Filter::new(), |_| {}).await.unwrap()), (2, 2, 0));
    assert_eq!(inspector.count(QUEUE, &Filter::new()).await.unwrap(), 0);
}

/// asynq keeps 9,999 and leaves the hashes of the others behind, in no list (W17).
#[tokio::test]
async fn archive_all_of_more_than_the_archive_keeps_loses_none_of_them() {
    let (fixture, inspector) = start().await;
    let fill = "for n = 1, 10050 do
        redis.call('ZADD', 'asynq:{q}:retry', n, 't' .. n)
        redis.call('HSET', 'asynq:{q}:t:t' .. n, 'msg', 'm', 'state', 'retry')
    end
    for n = 1, 20 do
        redis.call('ZADD', 'asynq:{q}:archived', n, 'old' .. n)
        redis.call('HSET', 'asynq:{q}:t:old' .. n, 'msg', 'm', 'state', 'archived')
    end";
    let _: redis::Value = fixture.cmd(&["EVAL", fill, "0"]).await;
    let mut last = Progress::default();
    let error = inspector.archive_all(QUEUE, &Filter::new(), |progress| last = progress).await.unwrap_err();
    assert!(matches!(error, Error::ArchiveFull { archived: 9_999, .. }), "{error}");
    let info = inspector.queue(QUEUE).await.unwrap();
    assert_eq!((info.retry, info.archived), (51, 9_999));
    assert_eq!(last.so_far.trimmed, 20, "what was there before is past its time");
    assert_eq!(fixture.cmd::<usize>(&["DBSIZE"]).await, 10_050 + 3, "tasks, two sets, the list of queues");
}

/// Otherwise a queue whose tasks fail at once could be run for ever.
#[tokio::test]
async fn run_all_runs_a_task_once_that_comes_back_meanwhile() {
    let (fixture, inspector) = start().await;
    for n in 0..500_u64 {
        fixture.put([job(&format!("t{n}")).process_in(Duration::from_secs(n))]).await;
    }
    let work = tokio::spawn(async move { inspector.run_all(QUEUE, &Filter::new(), |_| {}).await });
    // Each task that was run fails at once, and is due again later than everything else.
    let fail_all = "for _, id in ipairs(redis.call('LRANGE', 'asynq:{q}:pending', 0, -1)) do
        redis.call('ZADD', 'asynq:{q}:scheduled', 5000000000, id)
        redis.call('HSET', 'asynq:{q}:t:' .. id, 'state', 'scheduled')
    end
    return redis.call('DEL', 'asynq:{q}:pending')";
    while !work.is_finished() {
        let _: i64 = fixture.cmd(&["EVAL", fail_all, "0"]).await;
    }
    assert_eq!(counts(work.await.unwrap().unwrap()), (500, 500, 0));
}

#[tokio::test]
async fn interrupt_all_without_a_server_says_that_nobody_heard() {
    let (fixture, inspector) = start().await;
    five_in_each_state(&fixture).await;
    let changed = inspector.interrupt_all(QUEUE, &Filter::new().payload("n", "3"), |_| {}).await.unwrap();
    assert_eq!(counts(changed), (1, 0, 1));
    let refused = inspector.interrupt_all(QUEUE, &Filter::new().state(TaskState::Retry), |_| {}).await.unwrap_err();
    assert_eq!(refused.to_string(), "tasks that are retry cannot be interrupted; archive or delete them");
}

/// Somebody whose call is cut off anywhere leaves each task as it was or changed, and the next call does the
/// rest.
#[tokio::test]
async fn a_bulk_change_that_is_cut_off_is_finished_by_the_next() {
    let (fixture, inspector) = start().await;
    fixture.put((0..600).map(|n| job(&format!("t{n}")))).await;
    for n in 0..600 {
        fixture.put([job(&format!("s{n}")).process_in(Duration::from_secs(n))]).await;
    }
    let mut changed = 0;
    for cut in 1..4 {
        let (sender, mut pages) = tokio::sync::mpsc::unbounded_channel();
        let work = tokio::spawn({
            let inspector = inspector.clone();
            async move {
                inspector
                    .archive_all(QUEUE, &Filter::new(), |progress| {
                        let _ = sender.send(progress.so_far.changed);
                    })
                    .await
            }
        });
        for _ in 0..cut {
            changed = pages.recv().await.unwrap();
        }
        work.abort();
        assert!(work.await.is_err());
        let info = inspector.queue(QUEUE).await.unwrap();
        assert_eq!(info.size(), 1_200);
        assert!(info.archived >= changed);
    }
    let info = inspector.queue(QUEUE).await.unwrap();
    let rest = inspector.archive_all(QUEUE, &Filter::new(), |_| {}).await.unwrap();
    assert_eq!(counts(rest), (1_200 - info.archived, 1_200 - info.archived, 0));
    assert_eq!(inspector.queue(QUEUE).await.unwrap().archived, 1_200);
}

/// While workers take from the tail and clients push at the head, each task is deleted or taken, and none is
/// missed that was there all the time.
#[tokio::test]
async fn a_bulk_change_of_a_list_in_motion_misses_none_and_loses_none() {
    let (fixture, inspector) = start().await;
    fixture.put((0..3_000).map(|n| job(&format!("t{n}")))).await;
    let work = tokio::spawn({
        let inspector = inspector.clone();
        async move { inspector.delete_all(QUEUE, &Filter::new().state(TaskState::Pending).task_type("job"), |_| {}).await }
    });
    let (mut taken, mut added) = (0, 0);
    while !work.is_finished() {
        fixture
            .put((added..added + 20).map(|n| queue_core::RawTask::new("new").queue(QUEUE).task_id(format!("n{n}"))))
            .await;
        added += 20;
        if let queue_redis::broker::Dequeued::Tasks(tasks) = fixture.dequeue(10).await {
            taken += tasks.len() as u64;
        }
    }
    let changed = work.await.unwrap().unwrap();
    let info = inspector.queue(QUEUE).await.unwrap();
    assert_eq!(info.active, taken);
    assert_eq!(info.size() + changed.changed, 3_000 + added, "{changed:?}");
    let left = Filter::new().state(TaskState::Pending).task_type("job");
    assert_eq!(inspector.count(QUEUE, &left).await.unwrap(), 0, "{changed:?}");
    let order: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    let numbers: Vec<u64> = order.iter().rev().map(|id| id[1..].parse().unwrap()).collect();
    assert!(numbers.is_sorted(), "the order of what was not touched has changed");
}

/// While others take out tasks that are none of ours, in front of where we are, none of ours is missed.
#[tokio::test]
async fn a_bulk_change_of_a_set_in_motion_misses_none() {
    let (fixture, inspector) = start().await;
    for n in 0..2_000_u64 {
        let payload = format!(r#"{{"ours":{}}}"#, n % 2 == 0);
        fixture.put([job(&format!("t{n}")).payload(payload).process_in(Duration::from_secs(n / 50 + 1))]).await;
    }
    let ours = Filter::new().state(TaskState::Scheduled).payload("ours", "true");
    let work = tokio::spawn({
        let (inspector, ours) = (inspector.clone(), ours.clone());
        async move { inspector.archive_all(QUEUE, &ours, |_| {}).await }
    });
    let take_others = "for _, id in ipairs(redis.call('ZRANGE', 'asynq:{q}:scheduled', 0, 60)) do
        if tonumber(string.sub(id, 2)) % 2 == 1 then
            redis.call('ZREM', 'asynq:{q}:scheduled', id)
            redis.call('HSET', 'asynq:{q}:t:' .. id, 'state', 'pending')
            redis.call('LPUSH', 'asynq:{q}:pending', id)
        end
    end";
    while !work.is_finished() {
        let _: redis::Value = fixture.cmd(&["EVAL", take_others, "0"]).await;
    }
    assert_eq!(counts(work.await.unwrap().unwrap()), (1_000, 1_000, 0));
    assert_eq!(inspector.count(QUEUE, &ours).await.unwrap(), 0);
    assert_eq!(inspector.queue(QUEUE).await.unwrap().size(), 2_000);
}

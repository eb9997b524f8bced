//! Removing a queue, whole.

use std::time::Duration;

use queue_admin::{Error, Inspector};
use queue_core::TaskState;

use super::start;
use crate::support::{Fixture, GROUP, NOW, QUEUE, eventually, job};

/// A scheduler has told at this second that it carries a periodic entry.
async fn carried(fixture: &Fixture, entry: &str, at: i64) {
    fixture.cmd::<()>(&["ZADD", "asynq:x:cron", &at.to_string(), entry]).await;
}

/// Everything that a queue can have: tasks in all states but active, locks, groups, a lost aggregation,
/// counters, a pause, and what is left over of tasks that are gone.
async fn fill(fixture: &Fixture) -> u64 {
    let lock = Duration::from_secs(600);
    let states =
        [TaskState::Archived, TaskState::Completed, TaskState::Retry, TaskState::Scheduled, TaskState::Aggregating];
    for state in states.into_iter().chain([TaskState::Pending]) {
        for n in 0..120 {
            fixture.put_in(state, job(&format!("{state}-{n}")).payload(format!("{state}{n}")).unique(lock)).await;
        }
    }
    fixture.put([job("staged").group("h")]).await;
    fixture.run("RENAME asynq:{q}:g:h asynq:{q}:g:h:set").await;
    fixture.run("SREM asynq:{q}:groups h").await;
    fixture.run(&format!("ZADD asynq:{{q}}:aggregation_sets {} asynq:{{q}}:g:h:set", NOW - 1)).await;
    fixture.put([job("unlisted").group("i")]).await;
    fixture.run("SREM asynq:{q}:groups i").await;
    fixture.run("SADD asynq:{q}:groups nobody").await;
    fixture.put_in(TaskState::Scheduled, job("orphan").payload("o").unique(lock)).await;
    fixture.run("ZREM asynq:{q}:scheduled orphan").await;
    fixture.run("SET asynq:{q}:unique:job:leaked gone EX 600").await;
    fixture.run("SET asynq:{q}:paused 1").await;
    fixture.run("SADD asynq:{q}:x:own a").await;
    fixture.run("SET asynq:{q}:x:rules [{\"name\":\"q\",\"max\":1}]").await;
    fixture.run("HSET asynq:{q}:x:cron:e spec @daily").await;
    carried(fixture, "e q", NOW - 21).await;
    fixture.run("ZADD asynq:{q}:retry 1 ghost").await;
    fixture.run("ZADD asynq:{q}:lease 1 nobody").await;
    // Another queue whose name looks like a pattern of ours, and one of which ours begins.
    fixture.run("SET asynq:{q}}:paused 1").await;
    fixture.run("SET asynq:{qq}:paused 1").await;
    // All tasks, the one in the lost set, and the id without one. The unlisted and the orphan are leftovers.
    6 * 120 + 2
}

#[tokio::test]
async fn remove_queue_by_force_leaves_nothing_of_it_and_all_of_the_others() {
    let fixture = Fixture::start().await;
    let inspector = Inspector::new(fixture.redis());
    fixture.run("SET asynq:{q}}:paused 1").await;
    fixture.run("SET asynq:{qq}:paused 1").await;
    fixture.run("SADD asynq:queues other").await;
    let before = fixture.keyspace().await;
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    let tasks = fill(&fixture).await;
    let refused = inspector.remove_queue(QUEUE, false).await.unwrap_err();
    assert!(matches!(refused, Error::QueueNotEmpty { .. }), "{refused}");
    let inspector = super::at(&fixture, NOW);
    assert_eq!(inspector.remove_queue(QUEUE, true).await.unwrap(), tasks);
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert!(matches!(inspector.remove_queue(QUEUE, true).await, Err(Error::QueueNotFound(_))));
}

/// Its scheduler would write it anew, with all runs to come and without its pause.
#[tokio::test]
async fn a_periodic_entry_that_a_scheduler_carries_outlives_its_queue() {
    let fixture = Fixture::start().await;
    let inspector = super::at(&fixture, NOW);
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    fixture.run("HSET asynq:{q}:x:cron:e spec @daily paused 1").await;
    fixture.run("HSET asynq:{q}:x:cron:f spec @daily").await;
    for (entry, at) in [("e q", NOW - 9), ("f q", NOW - 100), ("f other", NOW)] {
        carried(&fixture, entry, at).await;
    }
    inspector.remove_queue(QUEUE, true).await.unwrap();
    assert_eq!(
        fixture.keyspace().await.to_string(),
        "x:cron e q: score 3999999991
x:cron f other: score 4000000000
{q}:x:cron:e paused: 1
{q}:x:cron:e spec: @daily
"
    );
}

#[tokio::test]
async fn remove_queue_without_force_refuses_any_task_and_changes_nothing() {
    let states = TaskState::ALL.into_iter();
    for state in states {
        let (fixture, inspector) = start().await;
        fixture.put_in(state, job("a")).await;
        let before = fixture.keyspace().await;
        let error = inspector.remove_queue(QUEUE, false).await.unwrap_err();
        assert!(matches!(error, Error::QueueNotEmpty { tasks: 1, .. }), "{state}: {error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
    let (fixture, inspector) = start().await;
    fixture.put([job("a").group(GROUP)]).await;
    fixture.run("SREM asynq:{q}:groups g").await;
    let before = fixture.keyspace().await;
    let error = inspector.remove_queue(QUEUE, false).await.unwrap_err();
    assert!(matches!(error, Error::QueueNotEmpty { tasks: 1, .. }), "unlisted: {error}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn remove_queue_of_an_empty_queue_takes_its_leftovers_along() {
    let (fixture, inspector) = start().await;
    let task = fixture.active(job("done").unique(Duration::from_secs(600))).await;
    fixture.broker.done(QUEUE, &[crate::support::report(&task)], NOW).await.unwrap();
    fixture.put_in(TaskState::Scheduled, job("orphan").unique(Duration::from_secs(600))).await;
    fixture.run("DEL asynq:{q}:scheduled").await;
    inspector.pause(QUEUE).await.unwrap();
    assert_eq!(inspector.remove_queue(QUEUE, false).await.unwrap(), 0);
    assert_eq!(fixture.keyspace().await.to_string(), "");
}

#[tokio::test]
async fn remove_queue_by_force_refuses_active_tasks_and_those_being_aggregated_and_changes_nothing() {
    let (fixture, inspector) = start().await;
    fixture.put_in(TaskState::Active, job("a")).await;
    fixture.put_in(TaskState::Pending, job("b")).await;
    let before = fixture.keyspace().await;
    let error = inspector.remove_queue(QUEUE, true).await.unwrap_err();
    assert!(matches!(error, Error::QueueActive { active: 1, .. }), "{error}");
    fixture.keyspace().await.assert_unchanged_since(&before);

    let (fixture, inspector) = start().await;
    fixture.put([job("c").group(GROUP)]).await;
    fixture.run("RENAME asynq:{q}:g:g asynq:{q}:g:g:set").await;
    fixture.run(&format!("ZADD asynq:{{q}}:aggregation_sets {} asynq:{{q}}:g:g:set", NOW + 1)).await;
    let before = fixture.keyspace().await;
    let error = inspector.remove_queue(QUEUE, true).await.unwrap_err();
    assert!(matches!(error, Error::QueueActive { active: 1, .. }), "{error}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn a_removal_that_is_cut_off_says_so_hands_out_no_task_and_is_finished_by_the_next() {
    let (fixture, inspector) = start().await;
    fill(&fixture).await;
    fixture.run("DEL asynq:{q}:paused").await;
    // As far as the first step, and as far as some of the second.
    assert_eq!(fixture.broker.begin_removal(QUEUE, NOW).await.unwrap(), 0);
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}:x:removing"), Some("4000000000"));
    assert_eq!(after.get("queues q"), Some("member"));
    assert!(matches!(fixture.dequeue(1).await, queue_redis::broker::Dequeued::Paused));
    for steps in [1, 5, 20] {
        let removal = inspector.remove_queue(QUEUE, true);
        let mut removal = std::pin::pin!(removal);
        for _ in 0..steps {
            if tokio::time::timeout(Duration::from_millis(1), &mut removal).await.is_ok() {
                break;
            }
        }
    }
    match inspector.remove_queue(QUEUE, true).await {
        Ok(_) | Err(Error::QueueNotFound(_)) => {}
        Err(error) => panic!("{error}"),
    }
    let left = fixture.keyspace().await.to_string();
    assert_eq!(left, "{qq}:paused: 1\n{q}}:paused: 1\n");
}

/// Whoever enqueues during a removal loses nothing: the task is deleted with the others or is there, in a queue
/// that is listed.
#[tokio::test]
async fn tasks_that_come_in_during_a_removal_are_deleted_whole_or_stay_whole() {
    let (fixture, inspector) = start().await;
    fixture.put((0..500).map(|n| job(&format!("t{n}")))).await;
    let removal = tokio::spawn({
        let inspector = inspector.clone();
        async move { inspector.remove_queue(QUEUE, true).await }
    });
    let mut added = 0;
    while !removal.is_finished() {
        fixture.broker.publish_queue(QUEUE).await.unwrap();
        fixture.put([job(&format!("n{added}"))]).await;
        added += 1;
    }
    match removal.await.unwrap() {
        Ok(_) | Err(Error::QueueNotEmpty { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    let after = fixture.keyspace().await;
    let pending: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    for n in 0..added {
        let id = format!("n{n}");
        let paths = after.paths_with(&id);
        assert_eq!(!paths.is_empty(), pending.contains(&id), "{paths:?}");
        assert!(paths.is_empty() || paths.contains(&format!("{{q}}:t:{id} msg")), "{paths:?}");
    }
    if !pending.is_empty() {
        assert_eq!(after.get("queues q"), Some("member"));
    }
}

/// It advised what was done.
#[tokio::test]
async fn a_removal_by_force_into_which_tasks_come_says_so() {
    // Once in a while, it finds a moment in which the queue is empty.
    for attempt in 0..20 {
        let (fixture, inspector) = start().await;
        fixture.put((0..100).map(|n| job(&format!("t{n}")))).await;
        let removal = tokio::spawn(async move { inspector.remove_queue(QUEUE, true).await });
        let mut added = 0;
        while !removal.is_finished() {
            fixture.broker.publish_queue(QUEUE).await.unwrap();
            fixture.put((0..50).map(|n| job(&format!("n{added}-{n}")))).await;
            added += 1;
        }
        if let Err(error) = removal.await.unwrap() {
            let told = error.to_string();
            assert!(told.ends_with("see that nothing comes in any more, and remove it again"), "{attempt}: {told}");
            return;
        }
    }
    panic!("no removal has failed");
}

/// What is in a bin is found by its lists alone. They went as they were found, and who kept the queue could not restore what was left.
#[tokio::test]
async fn a_removal_that_is_cut_off_leaves_no_task_in_a_bin_that_is_not_listed() {
    let (fixture, inspector) = start().await;
    let fill = "for op = 1, 9 do for n = 1, 200 do
        redis.call('HSET', 'asynq:{q}:x:bin:' .. op .. ':t:' .. n, 'msg', 'm', 'state', 'pending')
        redis.call('RPUSH', 'asynq:{q}:x:bin:' .. op .. ':0', n)
    end end";
    fixture.cmd::<()>(&["EVAL", fill, "0"]).await;
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    let count = async |what: String| fixture.cmd::<Vec<String>>(&["KEYS", &what]).await.len();
    let (mut cut_off, mut patience) = (0, Duration::from_millis(1));
    while tokio::time::timeout(patience, inspector.remove_queue(QUEUE, true)).await.is_err() {
        patience += Duration::from_millis(1);
        // Behind the call that was on its way.
        let _: String = fixture.cmd(&["PING"]).await;
        for op in 1..=9 {
            let tasks = count(format!("asynq:{{q}}:x:bin:{op}:t:*")).await;
            cut_off += usize::from((1..200).contains(&tasks));
            let lists = count(format!("asynq:{{q}}:x:bin:{op}:0")).await;
            assert!(tasks == 0 || lists == 1, "{tasks} tasks of bin {op} are not listed");
        }
    }
    assert!(cut_off > 0, "it was never cut off half-way");
    assert_eq!(fixture.keyspace().await.to_string(), "");
}

/// So many keys of others that a search through all of them takes a while.
async fn fill_with_others(fixture: &Fixture) {
    let fill = "for n = 1, 300000 do redis.call('SET', 'filler:' .. n, '') end";
    fixture.cmd::<()>(&["EVAL", fill, "0"]).await;
}

/// Which entries a scheduler carries was asked once, when the first was found, and those of a scheduler that came after that were deleted.
#[tokio::test]
async fn periodic_entries_of_a_scheduler_that_starts_during_a_removal_stay() {
    let (fixture, inspector) = start().await;
    fill_with_others(&fixture).await;
    let names: Vec<String> = (0..200).map(|n| format!("e{n}")).collect();
    let carried_at = |at: i64| {
        let entries = names.iter().flat_map(|name| [at.to_string(), format!("{name} {QUEUE}")]);
        ["ZADD", "asynq:x:cron"].map(str::to_owned).into_iter().chain(entries).collect::<Vec<_>>()
    };
    let count = names.iter().map(|name| format!("asynq:{{q}}:x:cron:{name}"));
    let count: Vec<String> = std::iter::once("EXISTS".to_owned()).chain(count).collect();
    let entries = async || fixture.cmd::<usize>(&count).await;
    // On a busy machine, the removal may be over before it was noticed to have begun.
    for _ in 0..20 {
        for name in &names {
            fixture.run(&format!("HSET asynq:{{q}}:x:cron:{name} spec @daily paused 1")).await;
        }
        fixture.cmd::<()>(&carried_at(NOW - 60)).await;
        let inspector = inspector.clone();
        let removal = tokio::spawn(async move { inspector.remove_queue(QUEUE, true).await });
        eventually("the first are deleted", async || entries().await < 200).await;
        fixture.cmd::<()>(&carried_at(NOW)).await;
        let there = entries().await;
        removal.await.unwrap().unwrap();
        if there > 20 {
            // A step may have asked before they were carried, and deleted after we looked.
            let left = entries().await;
            assert!(left + 5 >= there, "{left} of {there}");
            return;
        }
    }
    panic!("the removal was always faster");
}

/// Whether the queue had a family was asked once, before its keys were searched for, and the locks of a queue that came after that were deleted.
#[tokio::test]
async fn tasks_of_another_priority_that_come_in_during_a_removal_keep_their_locks() {
    let (fixture, inspector) = start().await;
    fixture.put([job("a")]).await;
    fill_with_others(&fixture).await;
    let removal = tokio::spawn(async move { inspector.remove_queue(QUEUE, true).await });
    eventually("its task is deleted", async || fixture.cmd::<i64>(&["EXISTS", "asynq:{q}:t:a"]).await == 0).await;
    // The search for keys has begun by then.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut added = 0;
    while !removal.is_finished() || added == 0 {
        let task = job(&format!("n{added}")).payload(format!("{added}")).priority(9).unique(Duration::from_secs(3600));
        fixture.client().enqueue(task).await.unwrap();
        added += 1;
    }
    assert_eq!(removal.await.unwrap().unwrap(), 1);
    let locks: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:unique:*"]).await;
    assert_eq!(locks.len(), added);
}

/// The entry was gone by then, and nothing took it off the list any more.
#[tokio::test]
async fn a_removal_that_is_refused_half_way_leaves_no_periodic_entry_on_the_list_when_it_is_finished() {
    let fixture = Fixture::start().await;
    let inspector = fixture.inspector();
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    fixture.run("HSET asynq:{q}:x:cron:e spec @daily").await;
    // No scheduler has carried it for long.
    let _: i64 = fixture.cmd(&["ZADD", "asynq:x:cron", "1", "e q"]).await;
    fixture.run("ACL SETUSER default -zrem").await;
    let error = inspector.remove_queue(QUEUE, true).await.unwrap_err();
    assert!(error.to_string().contains("refused ZREM"), "{error}");
    fixture.run("ACL SETUSER default +zrem").await;
    assert_eq!(inspector.remove_queue(QUEUE, true).await.unwrap(), 0);
    assert_eq!(fixture.keyspace().await.to_string(), "");
}

#[tokio::test]
async fn a_queue_that_cannot_be_counted_is_not_stopped_for_its_removal() {
    let (fixture, inspector) = start().await;
    fixture.put([job("a")]).await;
    fixture.run("SET asynq:{q}:scheduled text").await;
    let before = fixture.keyspace().await;
    let error = inspector.remove_queue(QUEUE, true).await.unwrap_err();
    assert!(error.to_string().contains("asynq:{q}:scheduled"), "{error}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn whoever_resumes_a_queue_gives_its_removal_up() {
    let (fixture, inspector) = start().await;
    fixture.put([job("a")]).await;
    assert_eq!(fixture.broker.begin_removal(QUEUE, NOW).await.unwrap(), 0);
    assert!(inspector.unpause(QUEUE).await.unwrap());
    assert!(!inspector.unpause(QUEUE).await.unwrap());
    assert_eq!(fixture.keyspace().await.get("{q}:x:removing"), None);
}

//! What a repair does besides mending: it is whole or not at all, and it prefers who has waited.

use std::time::Duration;

use queue_core::RawTask;
use queue_redis::Fault;

use super::{examine, fix, problems, start};
use crate::support::{QUEUE, is_wrong_type, job};

/// With each page that was repaired, the list became shorter in front of what was not read yet: a third of it was passed over, and nothing said so.
#[tokio::test]
async fn a_list_of_which_nearly_all_is_damaged_is_repaired_at_once() {
    for (others, sound) in [(10, 0), (9, 1), (1, 1), (4, 0)] {
        let (fixture, inspector) = start().await;
        for n in 0..1_500 / (others + sound) {
            let mut ids: Vec<String> = (0..others).map(|other| format!("gone-{n}-{other}")).collect();
            if sound > 0 {
                fixture.put([job(&format!("sound-{n}"))]).await;
            } else if others < 10 {
                // The same task again and again.
                fixture.put([job(&format!("twice-{n}"))]).await;
                ids.fill(format!("twice-{n}"));
            }
            ids.splice(0..0, ["LPUSH".to_owned(), "asynq:{q}:pending".to_owned()]);
            fixture.cmd::<()>(&ids).await;
        }
        let told = problems(&inspector).await.len();
        let (mended, _) = fix(&inspector).await;
        assert_eq!(mended.len(), told, "{others} of {}", others + sound);
        assert_eq!(problems(&inspector).await, [""; 0], "{others} of {}", others + sound);
    }
}

/// Its place is a stream. The stray lease could be taken away all the same, which would be half of a repair.
#[tokio::test]
async fn a_repair_that_cannot_be_made_changes_nothing() {
    let (fixture, inspector) = start().await;
    for command in ["DEL @retry", "XADD @retry 1-1 field value", "ZADD @lease 5 retry"] {
        fixture.run(&command.replace('@', "asynq:{q}:")).await;
    }
    let before = fixture.keyspace().await;
    let told = examine(&inspector).await;
    let found = told.iter().find(|found| found.fault == Fault::NoPlace).unwrap();
    let error = inspector.doctor().mend(found, &[]).await.unwrap_err();
    assert!(is_wrong_type(&error), "{error}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn a_lock_whose_task_has_come_meanwhile_stays() {
    let (fixture, inspector) = start().await;
    fixture.run("SET asynq:{q}:unique:job:x gone EX 600").await;
    let told = examine(&inspector).await;
    let found = told.iter().find(|found| found.fault == Fault::DeadLock).unwrap();
    let copies = inspector.doctor().copies(found).await.unwrap();
    fixture.put([job("gone")]).await;
    assert!(!inspector.doctor().mend(found, &copies).await.unwrap());
    assert_eq!(fixture.cmd::<String>(&["GET", "asynq:{q}:unique:job:x"]).await, "gone");
}

/// Go's clients make locks of a mailbox itself, and a task that is moved keeps what it has.
#[tokio::test]
async fn a_lock_of_a_mailbox_whose_task_was_moved_out_of_it_stays() {
    let (fixture, inspector) = start().await;
    let lock = "asynq:{q}@web-1}:unique:job:y";
    fixture.put([job("moved")]).await;
    for command in [
        "SADD asynq:queues q}@web-1".to_owned(),
        format!("SET {lock} moved EX 600"),
        format!("HSET asynq:{{q}}:t:moved unique_key {lock}"),
    ] {
        fixture.run(&command).await;
    }
    fix(&inspector).await;
    assert_eq!(fixture.cmd::<Option<String>>(&["GET", lock]).await.as_deref(), Some("moved"));
    fixture.run("HDEL asynq:{q}:t:moved unique_key").await;
    fix(&inspector).await;
    assert_eq!(fixture.cmd::<Option<String>>(&["GET", lock]).await, None, "that task has no such lock");
}

#[tokio::test]
async fn repair_puts_lost_tasks_in_front_and_keeps_the_better_place_of_two() {
    let (fixture, inspector) = start().await;
    fixture.put(["waits", "lost"].map(job)).await;
    fixture.run("LREM asynq:{q}:pending 0 lost").await;
    fixture.run("LPUSH asynq:{q}:pending pending").await;
    fix(&inspector).await;
    // The last is taken first.
    let order: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    assert_eq!(order, ["waits", "pending", "lost"]);
}

/// The lock lies in the base queue, and which queues there are was read when the examination began.
#[tokio::test]
async fn a_lock_is_not_dead_whenever_the_queue_of_its_task_has_come() {
    let unique = || RawTask::new("invoice").queue(QUEUE).unique(Duration::from_secs(600));
    let mut before = 0;
    loop {
        let (fixture, inspector) = start().await;
        let (doctor, client) = (inspector.doctor(), fixture.client());
        let mut examination = doctor.examine();
        let mut steps = 0;
        while let Some(found) = examination.next().await.unwrap() {
            let dead: Vec<_> = found.iter().filter(|found| found.fault == Fault::DeadLock).collect();
            assert!(dead.is_empty(), "enqueued before step {before}: {dead:?}");
            steps += 1;
            if steps == before {
                client.enqueue(unique().priority(9)).await.unwrap();
                client.enqueue(unique().payload("2").only("web-1")).await.unwrap();
            }
        }
        if steps < before {
            assert!(before > 10, "{before} steps");
            return;
        }
        before += 1;
    }
}

#[tokio::test]
async fn a_dead_lock_is_left_alone_if_its_task_is_there_by_then_whatever_the_queue() {
    let (fixture, inspector) = start().await;
    fixture.enqueue([job("other").priority(9)]).await;
    fixture.run("SET asynq:{q}:unique:job:x late EX 600").await;
    let found = examine(&inspector).await.into_iter().find(|found| found.fault == Fault::DeadLock).unwrap();
    let copies = inspector.doctor().copies(&found).await.unwrap();
    fixture.enqueue([job("late").priority(9)]).await;
    assert!(!inspector.doctor().mend(&found, &copies).await.unwrap());
    fixture.run("DEL asynq:{q}p9}:t:late").await;
    assert!(inspector.doctor().mend(&found, &copies).await.unwrap());
    assert_eq!(fixture.cmd::<u64>(&["EXISTS", "asynq:{q}:unique:job:x"]).await, 0);
}

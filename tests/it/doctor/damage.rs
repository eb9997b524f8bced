//! One kind of damage after the other.

use std::collections::BTreeSet;

use queue_core::TaskMessage;
use queue_core::wire::SchedulerEntry;
use queue_redis::Fault;

use super::{examine, fix, problems, start};
use crate::support::{Fixture, NOW, QUEUE, job};

/// A damage: what makes it (commands; `@` stands for `asynq:{q}:`), what is found, and what is different from the
/// sound state after the repair.
struct Damage {
    commands: &'static [&'static str],
    found: &'static [&'static str],
    mended: &'static [&'static str],
}

const fn damage(
    commands: &'static [&'static str],
    found: &'static [&'static str],
    mended: &'static [&'static str],
) -> Damage {
    Damage { commands, found, mended }
}

/// All faults of tasks, keys, locks, groups, queues and servers that can be mended.
const DAMAGES: &[Damage] = &[
    damage(&["ZADD @retry 5 ghost"], &["no-task ghost"], &[]),
    damage(&["LPUSH @pending ghost", "RPUSH @pending ghost"], &["no-task ghost"], &[]),
    damage(&["LPUSH @active ghost", "ZADD @lease 5 ghost"], &["no-task ghost"], &[]),
    damage(&["ZADD @lease 5 ghost"], &["no-task ghost"], &[]),
    damage(&["ZADD @g:g 5 ghost"], &["no-task ghost"], &[]),
    damage(&["HSET @t:stub result x"], &["no-message stub"], &[]),
    damage(&["HSET @t:stub state active", "LPUSH @active stub"], &["no-message stub"], &[]),
    damage(
        &["HSET @t:scheduled msg spoiled"],
        &["unreadable scheduled"],
        &[
            "+ {q}:archived scheduled: score 4000000000",
            "- {q}:scheduled scheduled: score 4000003600",
            "- {q}:t:scheduled msg: type=job id=scheduled queue=q retry=25 timeout=1800",
            "+ {q}:t:scheduled msg: unreadable spoiled",
            "- {q}:t:scheduled state: scheduled",
            "+ {q}:t:scheduled state: archived",
        ],
    ),
    damage(&["LPUSH @pending retry"], &["many-places retry"], &[]),
    damage(&["LPUSH @pending pending", "RPUSH @pending pending"], &["many-places pending"], &[]),
    damage(&["ZADD @archived 5 scheduled", "ZADD @completed 5 scheduled"], &["many-places scheduled"], &[]),
    damage(&["ZADD @g:g 5 active"], &["many-places active"], &[]),
    damage(&["ZADD @g:h 5 aggregating", "SADD @groups h"], &["many-places aggregating"], &[]),
    damage(&["LREM @pending 0 pending"], &["no-place pending"], &[]),
    damage(&["LREM @pending 0 pending", "HDEL @t:pending pending_since"], &["no-place pending"], &[]),
    damage(&["LREM @active 0 active"], &["no-place active"], &[]),
    damage(&["LREM @active 0 active", "ZREM @lease active"], &["no-place active"], &[]),
    damage(
        &["ZREM @scheduled scheduled"],
        &["no-place scheduled"],
        &["- {q}:scheduled scheduled: score 4000003600", "+ {q}:scheduled scheduled: score 4000000000"],
    ),
    damage(
        &["ZREM @retry retry"],
        &["no-place retry"],
        &["- {q}:retry retry: score 4000003600", "+ {q}:retry retry: score 4000000000"],
    ),
    damage(&["ZREM @archived archived"], &["no-place archived"], &[]),
    damage(&["ZREM @completed completed"], &["no-place completed"], &[]),
    damage(&["ZREM @g:g aggregating", "SREM @groups g"], &["no-place aggregating"], &[]),
    damage(&["HSET @t:retry state pending"], &["wrong-state retry"], &[]),
    damage(&["HDEL @t:archived state"], &["wrong-state archived"], &[]),
    damage(&["HSET @t:active state completed"], &["wrong-state active"], &[]),
    damage(&["HDEL @t:aggregating group"], &["wrong-group aggregating"], &[]),
    damage(&["HSET @t:aggregating group h"], &["wrong-group aggregating"], &[]),
    damage(&["ZADD @lease 5 pending"], &["stray-lease pending"], &[]),
    damage(&["ZREM @lease active"], &["no-lease active"], &[]),
    damage(&["ZADD @retry 4000003599.5 retry"], &["odd-score retry"], &[]),
    damage(&["ZADD @scheduled 4000003600000000000 scheduled"], &["odd-score scheduled"], &[]),
    damage(&["EXPIRE @t:retry 1000"], &["expires retry"], &[]),
    damage(
        &["DEL @pending", "XADD @pending 1-1 field value"],
        &["wrong-type asynq:{q}:pending", "no-place pending"],
        &[],
    ),
    damage(&["DEL @lease", "SET @lease x"], &["wrong-type asynq:{q}:lease", "no-lease active"], &[]),
    damage(
        &["DEL @t:scheduled", "SET @t:scheduled x"],
        &["wrong-type asynq:{q}:t:scheduled"],
        &[
            "- {q}:scheduled scheduled: score 4000003600",
            "- {q}:t:scheduled msg: type=job id=scheduled queue=q retry=25 timeout=1800",
            "- {q}:t:scheduled state: scheduled",
        ],
    ),
    damage(&["DEL asynq:queues", "SET asynq:queues x"], &["wrong-type asynq:queues", "unlisted-queue q"], &[]),
    damage(&["SET @failed many"], &["bad-counter asynq:{q}:failed"], &["- {q}:failed: 1"]),
    damage(&["SET @unique:job:x gone EX 600"], &["dead-lock asynq:{q}:unique:job:x"], &[]),
    damage(&["SET @unique:job:x completed EX 600"], &["dead-lock asynq:{q}:unique:job:x"], &[]),
    damage(&["SET @unique:job:x retry EX 600"], &["foreign-lock asynq:{q}:unique:job:x"], &[]),
    damage(&["SREM @groups g"], &["unlisted-group g"], &[]),
    damage(&["SADD @groups none"], &["empty-group none"], &[]),
    damage(
        &["RENAME @g:g @g:g:set", "SREM @groups g"],
        &["unlisted-set asynq:{q}:g:g:set"],
        &[
            "+ {q}:aggregation_sets asynq:{q}:g:g:set: score 4000000000",
            "- {q}:g:g aggregating: score 4000000000",
            "+ {q}:g:g:set aggregating: score 4000000000",
            "- {q}:groups g: member",
        ],
    ),
    damage(
        &["RENAME @g:g @g:g:set", "SREM @groups g", "ZADD @aggregation_sets 3999999000 @g:g:set"],
        &["lost-aggregation asynq:{q}:g:g:set"],
        &[],
    ),
    damage(&["ZADD @aggregation_sets 4000000100 @g:g:none"], &["empty-set asynq:{q}:g:g:none"], &[]),
    damage(&["SREM asynq:queues q"], &["unlisted-queue q"], &[]),
    damage(&["ZADD asynq:servers 4000000010 asynq:servers:{h:1:u}"], &["silent-server asynq:servers:{h:1:u}"], &[]),
    damage(&["ZADD asynq:workers 4000000010 asynq:workers:{h:1:u}"], &["orphan-workers asynq:workers:{h:1:u}"], &[]),
    damage(
        &["RPUSH asynq:schedulers:{h:1:u} x", "ZADD asynq:schedulers 5 asynq:schedulers:{h:1:u}"],
        &["endless-scheduler asynq:schedulers:{h:1:u}"],
        &[],
    ),
    // Notes: found, mended, and no reason to fail.
    damage(&["ZADD asynq:servers 5 asynq:servers:{h:1:u}"], &[], &[]),
];

#[tokio::test]
async fn each_damage_is_found_left_alone_and_mended() {
    let mut seen = BTreeSet::new();
    for Damage { commands, found, mended } in DAMAGES {
        let (fixture, inspector) = start().await;
        assert_eq!(problems(&inspector).await, [""; 0], "before any damage");
        let sound = fixture.keyspace().await;
        for command in *commands {
            fixture.run(&command.replace('@', "asynq:{q}:")).await;
        }
        let damaged = fixture.keyspace().await;
        let told = examine(&inspector).await;
        seen.extend(told.iter().map(|found| found.fault.as_str()));
        let mut problems = problems(&inspector).await;
        problems.sort();
        let mut expected = found.to_vec();
        expected.sort_unstable();
        assert_eq!(problems, expected, "{commands:?}");
        fixture.keyspace().await.assert_unchanged_since(&damaged);
        fix(&inspector).await;
        let after = fixture.keyspace().await;
        let changes = after.changes_since(&sound);
        assert_eq!(changes.lines().collect::<Vec<_>>(), *mended, "{commands:?}");
        assert_eq!(super::problems(&inspector).await, [""; 0], "{commands:?} once more");
        let (again, _) = fix(&inspector).await;
        assert_eq!(again, [], "{commands:?}: a repair that is made twice");
        fixture.keyspace().await.assert_unchanged_since(&after);
    }
    // Settings of Redis, and what cannot be mended, have tests of their own.
    let others = [
        Fault::UnreadableArchived,
        Fault::LockElsewhere,
        Fault::UnrecordedOutcome,
        // Of limits: `lanes/doctor.rs`.
        Fault::StaleSlot,
        Fault::StaleWait,
        Fault::ParkedNoLane,
        Fault::UnreadableRules,
        Fault::LostLimits,
        Fault::UnawareServer,
        Fault::EmptyQueue,
        // Of batches: `flows/tampered.rs`.
        Fault::UnlistedBatch,
        Fault::LostBatch,
        Fault::StrayLedger,
        Fault::BatchCount,
        Fault::MissingMember,
        Fault::UndoneBatch,
        Fault::BrokenWorkflow,
        // Of targets: `server/targets.rs`.
        Fault::SharedName,
        Fault::Unhandled,
        Fault::BadEntry,
        Fault::TicksAhead,
        Fault::Eviction,
        Fault::EvictionWithoutLimit,
        Fault::EvictionOfNotes,
        Fault::MemoryNear,
        Fault::MemoryFull,
        Fault::CutClients,
        Fault::OldRedis,
        Fault::Replica,
        Fault::NotPersistent,
        Fault::WriteFailing,
        Fault::Unasked,
        // Found by programs that start.
        Fault::Sentinel,
        Fault::Topology,
        Fault::Rights,
        Fault::Loading,
    ];
    let missing: Vec<_> = Fault::ALL.iter().filter(|fault| !seen.contains(fault.as_str())).collect();
    let missing: Vec<_> = missing.into_iter().filter(|fault| !others.contains(fault)).collect();
    assert!(missing.is_empty(), "no damage leads to {missing:?}");
}

/// Lets a task look as if the worker that took it last had no handler for its type.
async fn unhandle(fixture: &Fixture, id: &str) {
    let hash = format!("asynq:{{q}}:t:{id}").into_bytes();
    let raw: Vec<u8> = fixture.cmd(&[b"HGET".to_vec(), hash.clone(), b"msg".to_vec()]).await;
    let message = TaskMessage::from_bytes(raw.into()).unwrap();
    let message = TaskMessage { error_msg: format!("handler not found for task {:?}", message.r#type), ..message };
    let _: i64 = fixture.cmd(&[b"HSET".to_vec(), hash, b"msg".to_vec(), message.to_bytes().to_vec()]).await;
}

#[tokio::test]
async fn doctor_says_what_it_cannot_mend_and_leaves_it() {
    let (fixture, inspector) = start().await;
    fixture.run("HSET asynq:{q}:t:archived msg spoiled").await;
    fixture.run("SADD asynq:queues nothing").await;
    unhandle(&fixture, "retry").await;
    let entry = SchedulerEntry { id: "e".into(), enqueue_options: vec!["Queue".into()], ..Default::default() };
    let raw = prost::Message::encode_to_vec(&entry);
    let _: i64 = fixture.cmd(&[b"RPUSH".to_vec(), b"asynq:schedulers:{h:1:u}".to_vec(), raw]).await;
    fixture.run(&format!("ZADD asynq:schedulers {} asynq:schedulers:{{h:1:u}}", NOW + 10)).await;
    for (entry, ahead) in [("early", 3_600), ("usual", 60)] {
        let _: i64 = fixture.cmd(&["ZADD", "asynq:x:cron", "5", &format!("{entry} q")]).await;
        fixture.run(&format!("HSET asynq:{{q}}:x:cron:{entry} upto {}", NOW + ahead)).await;
    }
    let long_ago = "1.0 ok flow:gone:0:1";
    let _: i64 = fixture.cmd(&["RPUSH", "asynq:{q}:x:outcomes:somebody", long_ago]).await;
    fixture.run("SADD asynq:{q}:x:outcome-lists asynq:{q}:x:outcomes:somebody").await;
    let before = fixture.keyspace().await;
    let told = examine(&inspector).await;
    for (fault, subject) in [
        (Fault::UnrecordedOutcome, "q"),
        (Fault::UnreadableArchived, "archived"),
        (Fault::EmptyQueue, "nothing"),
        (Fault::BadEntry, "e"),
        (Fault::TicksAhead, "early"),
        (Fault::Unserved, "q"),
        (Fault::Unhandled, "job"),
    ] {
        let found = told.iter().find(|found| found.fault == fault).unwrap_or_else(|| panic!("no {fault:?}: {told:?}"));
        assert_eq!((found.subject.as_str(), found.is_mendable()), (subject, false));
    }
    assert_eq!(told.iter().filter(|found| found.fault == Fault::TicksAhead).count(), 1, "{told:?}");
    assert_eq!(fix(&inspector).await, (vec![], vec![]));
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn a_repair_of_what_has_moved_on_changes_nothing() {
    for Damage { commands, found, .. } in DAMAGES.iter().filter(|damage| !damage.found.is_empty()) {
        let (fixture, inspector) = start().await;
        for command in *commands {
            fixture.run(&command.replace('@', "asynq:{q}:")).await;
        }
        for finding in examine(&inspector).await.iter().filter(|finding| finding.is_mendable()) {
            let task = [Fault::NoTask, Fault::NoMessage, Fault::Unreadable, Fault::ManyPlaces, Fault::NoPlace];
            let more = [Fault::WrongState, Fault::WrongGroup, Fault::StrayLease, Fault::NoLease, Fault::OddScore];
            if !task.contains(&finding.fault) && !more.contains(&finding.fault) {
                continue;
            }
            let copies = inspector.doctor().copies(finding).await.unwrap();
            let task = format!("asynq:{{q}}:t:{}", finding.subject);
            fixture.run(&format!("DEL {task}")).await;
            fixture.run(&format!("HSET {task} msg another state pending")).await;
            let before = fixture.keyspace().await;
            assert!(!inspector.doctor().mend(finding, &copies).await.unwrap(), "{found:?}");
            fixture.keyspace().await.assert_unchanged_since(&before);
        }
    }
}

#[tokio::test]
async fn more_than_a_page_of_everything_is_found_once() {
    let (fixture, inspector) = start().await;
    let tasks = (0..250).map(|n| job(&format!("lost-{n}")));
    fixture.put(tasks).await;
    fixture.run("DEL asynq:{q}:pending").await;
    for n in 0..250 {
        fixture.run(&format!("ZADD asynq:{{q}}:scheduled {} ghost-{n}", NOW + n)).await;
        fixture.run(&format!("LPUSH asynq:{{q}}:active twice-{n}")).await;
        fixture.run(&format!("RPUSH asynq:{{q}}:active twice-{n}")).await;
    }
    let mut found = problems(&inspector).await;
    assert_eq!(found.len(), 251 + 250 + 250);
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 251 + 250 + 250);
    fix(&inspector).await;
    assert_eq!(problems(&inspector).await, [""; 0]);
    assert_eq!(fixture.cmd::<i64>(&["LLEN", "asynq:{q}:pending"]).await, 251);
}

#[tokio::test]
async fn only_the_queues_that_are_named_are_looked_at() {
    let (fixture, inspector) = start().await;
    fixture.run("ZADD asynq:{q}:retry 5 ghost").await;
    fixture.run("ZADD asynq:{other}:retry 5 ghost").await;
    fixture.run("SADD asynq:queues other").await;
    let mut examination = inspector.doctor().examine().queues(["other"]);
    let mut queues = Vec::new();
    while let Some(findings) = examination.next().await.unwrap() {
        queues.extend(findings.into_iter().filter_map(|found| found.queue));
    }
    queues.dedup();
    assert_eq!(queues, ["other"]);
}

/// How often a list was searched for a task.
async fn searches(fixture: &Fixture) -> usize {
    let stats: String = fixture.cmd(&["INFO", "commandstats"]).await;
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_lpos:calls=")?.split(',').next());
    calls.unwrap_or("0").parse().unwrap()
}

#[tokio::test]
async fn a_list_that_stands_twice_in_itself_is_found_and_one_that_grows_is_not() {
    let (fixture, inspector) = start().await;
    fixture.put((0..300).map(|n| job(&format!("{n}")))).await;
    let twice: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    // While it is looked at, as many come to the head as there are on a page, and more.
    for pushed in [1_usize, 99, 100, 101, 250] {
        fixture.run("CONFIG RESETSTAT").await;
        let mut examination = inspector.doctor().examine();
        let (mut problems, mut grown) = (Vec::new(), 0);
        while let Some(findings) = examination.next().await.unwrap() {
            problems.extend(findings.into_iter().filter(|found| found.fault.severity() > queue_redis::Severity::Note));
            if grown < 4 && examination.tasks() > 100 {
                let new = (0..pushed).map(|n| job(&format!("{pushed}-{grown}-{n}")));
                fixture.put(new).await;
                grown += 1;
            }
        }
        assert!(problems.is_empty(), "{pushed}: {problems:?}");
        // What was read twice is known; only what has come to the head behind us is searched for, in two lists.
        if pushed <= 100 {
            assert_eq!(searches(&fixture).await, 2 * grown * pushed, "{pushed}");
        }
    }
    // What is taken out of the part that was read moves the others towards the head.
    fixture.run("CONFIG RESETSTAT").await;
    let mut examination = inspector.doctor().examine();
    while examination.tasks() <= 100 {
        assert!(examination.next().await.unwrap().is_some());
    }
    for id in fixture.cmd::<Vec<String>>(&["LRANGE", "asynq:{q}:pending", "0", "49"]).await {
        inspector.delete_task(QUEUE, &id).await.unwrap();
    }
    while examination.next().await.unwrap().is_some() {}
    assert_eq!(searches(&fixture).await, 0);
    let mut double = vec!["RPUSH".to_owned(), "asynq:{q}:pending".to_owned()];
    double.extend(twice);
    let _: i64 = fixture.cmd(&double).await;
    let found = problems(&inspector).await;
    assert_eq!(found.len(), 301, "{found:?}");
    assert!(found.iter().all(|found| found.starts_with("many-places ")), "{found:?}");
}

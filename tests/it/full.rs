//! A Redis that is out of memory: nothing new is taken in, and all that is there is worked to its end, which is
//! what makes room again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use queue_admin::{Filter, Inspector};
use queue_core::limit::{Limit, LimitKey};
use queue_core::wire::ServerInfo;
use queue_core::{Clock as _, RawTask, SystemClock, TaskMessage, TaskState};
use queue_redis::check::{Fault, Role, Severity};
use queue_redis::{
    Client, EnqueueError, Error,
    broker::{Aggregated, Completion, Dequeued, EnqueueVerdict, Matching, Seen, Taken, Verdict},
};
use queue_worker::{Failure, Group, Job, RetryPolicy, Router, Server};
use tokio::sync::Semaphore;

use crate::support::{Events, Fixture, NOW, NOW_NS, QUEUE, READY, RULES, eventually, job, report, with};

const SECOND: Duration = Duration::from_secs(1);

async fn fill(fixture: &Fixture) {
    fixture.run("CONFIG SET maxmemory 1").await;
}

async fn make_room(fixture: &Fixture) {
    fixture.run("CONFIG SET maxmemory 0").await;
}

fn is_refused<T: std::fmt::Debug>(reply: Result<T, Error>) -> bool {
    matches!(&reply, Err(Error::Refused { code, .. }) if code == "OOM") || panic!("{reply:?}")
}

/// Does something twice: with room, and without. Both leave the same.
async fn needs_no_memory<T>(prepare: impl AsyncFn(&Fixture) -> T, act: impl AsyncFn(&Fixture, T)) {
    let mut left = Vec::new();
    for is_full in [false, true] {
        let fixture = Fixture::start().await;
        let prepared = prepare(&fixture).await;
        if is_full {
            fill(&fixture).await;
        }
        act(&fixture, prepared).await;
        left.push(fixture.keyspace().await.to_string());
        make_room(&fixture).await;
        // The next one comes in again.
        fixture.put([job("next")]).await;
    }
    assert_eq!(left[0], left[1]);
}

#[tokio::test]
async fn a_full_redis_refuses_new_tasks() {
    let fixture = Fixture::start().await;
    fill(&fixture).await;
    let later = fixture.compose(job("b").process_in(SECOND));
    let grouped = fixture.compose(job("c").group("g"));
    assert!(is_refused(fixture.broker.enqueue(QUEUE, &[fixture.compose(job("a"))], NOW_NS).await));
    assert!(is_refused(fixture.broker.schedule(QUEUE, &[later]).await));
    assert!(is_refused(fixture.broker.add_to_group(&grouped, NOW).await));
    assert_eq!(fixture.keyspace().await.to_string(), "");
}

#[tokio::test]
async fn dequeue_needs_no_memory() {
    for count in [1, 2] {
        needs_no_memory(
            async |fixture| fixture.put(["a", "b", "c"].map(job)).await,
            async |fixture, ()| {
                let Dequeued::Tasks(taken) = fixture.dequeue(count).await else { panic!("paused") };
                assert_eq!(taken.len(), count);
            },
        )
        .await;
    }
}

#[tokio::test]
async fn dequeue_of_certain_types_needs_no_memory() {
    let wanted = Matching { types: vec!["job".into()], ids: vec!["a".into(), "b".into()], ..Matching::default() };
    needs_no_memory(
        async |fixture| fixture.put([RawTask { task_type: "other".into(), ..job("a") }, job("b")]).await,
        async |fixture, ()| {
            let taken =
                fixture.broker.dequeue_matching(&QUEUE.into(), 5, &"run".into(), NOW + 30, &wanted).await.unwrap();
            let (Dequeued::Tasks(taken), _) = taken else { panic!("{taken:?}") };
            assert!(matches!(&taken[..], [Taken::Task(delivery)] if delivery.run.id == "b"), "{taken:?}");
        },
    )
    .await;
}

#[tokio::test]
async fn extend_lease_needs_no_memory() {
    needs_no_memory(
        async |fixture| fixture.active(job("a")).await.run,
        async |fixture, run| {
            let mut connection = fixture.redis().pooled().await.unwrap();
            let verdicts = fixture.broker.extend_lease(&mut connection, QUEUE, &[run], NOW + 60).await.unwrap();
            assert_eq!(verdicts, [Verdict::Applied]);
        },
    )
    .await;
}

#[tokio::test]
async fn done_needs_no_memory() {
    for count in [1, 2] {
        needs_no_memory(
            async |fixture| fixture.active_batch((0..count).map(|n| job(&n.to_string()))).await,
            async |fixture, tasks| {
                let reports: Vec<_> = tasks.iter().map(report).collect();
                let verdicts = fixture.broker.done(QUEUE, &reports, NOW).await.unwrap();
                assert_eq!(verdicts, vec![Verdict::Applied; count]);
            },
        )
        .await;
    }
}

#[tokio::test]
async fn complete_needs_no_memory() {
    needs_no_memory(
        async |fixture| fixture.active(job("a").retention(60 * SECOND)).await,
        async |fixture, task| {
            let message = TaskMessage { completed_at: NOW, ..task.message.clone() };
            let completion =
                Completion { report: report(&task), message, expires_at: NOW + 60, result: Some("done".into()) };
            assert_eq!(fixture.broker.complete(QUEUE, &[completion], NOW).await.unwrap(), [Verdict::Applied]);
        },
    )
    .await;
}

#[tokio::test]
async fn retry_archive_and_requeue_need_no_memory() {
    let active = async |fixture: &Fixture| fixture.active(job("a")).await;
    needs_no_memory(active, async |fixture, task| {
        let message = TaskMessage { error_msg: "no".into(), retried: 1, ..task.message.clone() };
        let verdict = fixture.broker.retry(&report(&task), &message.to_bytes(), NOW + 9, true, NOW).await.unwrap();
        assert_eq!(verdict, Verdict::Applied);
    })
    .await;
    needs_no_memory(active, async |fixture, task| {
        let message = TaskMessage { error_msg: "no".into(), ..task.message.clone() };
        let verdict = fixture.broker.archive(&report(&task), &message.to_bytes(), NOW).await.unwrap();
        assert_eq!(verdict, Verdict::Applied);
    })
    .await;
    needs_no_memory(active, async |fixture, task| {
        assert_eq!(fixture.broker.requeue(&report(&task), NOW_NS).await.unwrap(), Verdict::Applied);
    })
    .await;
    needs_no_memory(active, async |fixture, _| {
        assert_eq!(fixture.broker.requeue_run(QUEUE, "run-1", NOW + 30, NOW_NS).await.unwrap(), 1);
    })
    .await;
    needs_no_memory(active, async |fixture, task| {
        assert_eq!(fixture.broker.write_result(&task.run, b"so far").await.unwrap(), Verdict::Applied);
    })
    .await;
}

/// Into a group it looked like a group of another type.
#[tokio::test]
async fn forward_needs_no_memory() {
    for groups in [["", ""], ["g", "g"], ["", "g"], ["g", ""]] {
        needs_no_memory(
            async |fixture| {
                for (id, group) in ["a", "b"].into_iter().zip(groups) {
                    let task = job(id).process_in(5 * SECOND);
                    fixture.put([if group.is_empty() { task } else { task.group(group) }]).await;
                }
            },
            async |fixture, ()| {
                let due = NOW_NS + 5_000_000_000;
                assert_eq!(fixture.broker.forward(QUEUE, TaskState::Scheduled, due, 0).await.unwrap().moved, 2);
            },
        )
        .await;
    }
}

#[tokio::test]
async fn list_expired_drops_an_id_without_a_task() {
    needs_no_memory(
        async |fixture| {
            fixture.active(job("a")).await;
            fixture.run("DEL asynq:{q}:t:a").await;
        },
        async |fixture, ()| {
            assert_eq!(fixture.broker.list_expired(QUEUE, NOW + 30, 0).await.unwrap().ghosts, ["a"]);
        },
    )
    .await;
}

#[tokio::test]
async fn groups_become_tasks_without_memory() {
    let member = |id: &str| job(id).group("g");
    needs_no_memory(
        async |fixture| fixture.put(["a", "b"].map(member)).await,
        async |fixture, ()| {
            let mut set = fixture.stage("g", "s1", RULES, READY).await.unwrap();
            assert!(fixture.broker.extend_set(&set, READY + 300).await.unwrap());
            let tasks = fixture.broker.read_set(&mut set).await.unwrap().unwrap();
            let digest = fixture.compose(RawTask::new("digest").queue(QUEUE).task_id("sum"));
            let done = fixture.broker.aggregate(&set, &tasks, Some(&digest), NOW_NS).await.unwrap();
            assert_eq!(done, Aggregated::Done);
        },
    )
    .await;
    needs_no_memory(
        async |fixture| drop(fixture.staged(["a", "b"].map(member)).await),
        async |fixture, ()| {
            assert_eq!(fixture.broker.reclaim(QUEUE, "g", "s1", None).await.unwrap(), 2);
        },
    )
    .await;
    needs_no_memory(
        async |fixture| {
            fixture.put(["a"].map(member)).await;
            fixture.run("DEL asynq:{q}:groups").await;
        },
        async |fixture, ()| {
            assert_eq!(fixture.broker.list_groups_again(QUEUE, &["g".to_owned()]).await.unwrap(), [1, 0]);
        },
    )
    .await;
}

#[tokio::test]
async fn lanes_without_room_are_looked_at_without_memory() {
    let limits = [("all", LimitKey::Queue), ("type", LimitKey::Type)];
    for limit in limits.map(|(name, key)| Limit::new(name, key).concurrency(1)) {
        let fixture = Fixture::start().await;
        fixture.broker.publish_queue(QUEUE).await.unwrap();
        fixture.inspector().set_limit(QUEUE, limit).await.unwrap();
        fixture.broker.learn_limits(QUEUE, true);
        fixture.put(["a", "b"].map(job)).await;
        fixture.dequeue(10).await;
        // Somebody has the lanes looked at, in which nothing can start.
        fixture.broker.look_at_lanes(QUEUE).await.unwrap();
        fill(&fixture).await;
        let Dequeued::Limited { tasks, look_at_ms, .. } = fixture.dequeue(10).await else { panic!("limits") };
        assert!(tasks.is_empty() && look_at_ms.is_some_and(|at| at > 0), "{look_at_ms:?}");
        make_room(&fixture).await;
    }
}

/// More than a hundred go another way.
#[tokio::test]
async fn a_large_set_is_aggregated_without_memory() {
    needs_no_memory(
        async |fixture| {
            fixture.put_many(0..101).await;
            let mut set = fixture.stage("g", "s1", RULES, READY).await.unwrap();
            let mut tasks = Vec::new();
            while tasks.len() < 101 {
                tasks.extend(fixture.broker.read_set(&mut set).await.unwrap().unwrap());
            }
            (set, tasks)
        },
        async |fixture, (set, tasks)| {
            let digest = fixture.compose(RawTask::new("digest").queue(QUEUE).task_id("sum"));
            let done = fixture.broker.aggregate(&set, &tasks, Some(&digest), NOW_NS).await.unwrap();
            assert_eq!(done, Aggregated::Done);
            while fixture.broker.delete_aggregated(QUEUE).await.unwrap() > 0 {}
        },
    )
    .await;
}

#[tokio::test]
async fn tasks_are_run_and_archived_by_hand() {
    for state in TaskState::ALL.into_iter().filter(|state| *state != TaskState::Active) {
        needs_no_memory(
            async |fixture| fixture.put_in(state, job("a")).await,
            async |fixture, ()| {
                fixture.broker.archive_tasks(QUEUE, Seen::Anywhere, &["a"], NOW).await.unwrap();
                fixture.broker.run_tasks(QUEUE, Seen::Anywhere, &["a"], NOW_NS).await.unwrap();
            },
        )
        .await;
    }
}

/// Deleting is what helps, so Redis has to let it happen.
#[tokio::test]
async fn tasks_in_every_state_are_deleted() {
    let fixture = Fixture::start().await;
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    for state in TaskState::ALL.into_iter().filter(|state| *state != TaskState::Active && *state != TaskState::Pending)
    {
        fixture.put_in(state, job(&format!("{state}"))).await;
    }
    fixture.put(["a", "b", "c"].map(job)).await;
    fill(&fixture).await;
    let inspector = Inspector::new(fixture.redis());
    inspector.delete_task(QUEUE, "b").await.unwrap();
    let changed = inspector.delete_all(QUEUE, &Filter::new(), |_| {}).await.unwrap();
    assert_eq!((changed.changed, changed.skipped), (7, 0));
    assert_eq!(fixture.broker.begin_removal(QUEUE, NOW).await.unwrap(), 0);
    assert!(fixture.broker.finish_removal(QUEUE).await.unwrap());
    make_room(&fixture).await;
}

/// What is read at one moment was read in transactions, for which a full Redis takes no commands: just then nobody could look.
#[tokio::test]
async fn the_doctor_looks_at_all_there_is_and_says_why_a_task_waits() {
    let (fixture, inspector) = crate::doctor::start().await;
    fixture.put([job("behind")]).await;
    for command in [
        "LPUSH @pending gone",
        "SADD @groups empty",
        "SET @unique:job:x gone EX 600",
        "ZADD @aggregation_sets 5 @g:g:set",
    ] {
        fixture.run(&command.replace('@', "asynq:{q}:")).await;
    }
    for (key, entry) in [("slots", "limit:k gone"), ("waiting", "limit:k 5 gone")] {
        fixture.cmd::<()>(&["ZADD", &format!("asynq:{{q}}:x:{key}"), "0", entry]).await;
    }
    let look = async || {
        let found = crate::doctor::examine(&inspector).await.into_iter();
        let found = found.filter(|found| found.queue.is_some());
        let found: Vec<String> = found.map(|found| format!("{:?} {}", found.fault, found.subject)).collect();
        (found, inspector.explain(QUEUE, "pending").await.unwrap())
    };
    let with_room = look().await;
    assert!(with_room.0.len() > 5, "{with_room:?}");
    fill(&fixture).await;
    assert_eq!(look().await, with_room);
    crate::doctor::fix(&inspector).await;
    let left = look().await.0;
    // To list what is not listed needs memory.
    assert!(left.iter().all(|found| found.starts_with("Un")), "{left:?}");
    make_room(&fixture).await;
}

#[tokio::test]
async fn servers_are_listed_busy_or_idle() {
    let server = ServerInfo { host: "host".into(), pid: 7, server_id: "uuid".into(), ..ServerInfo::default() };
    let fixture = Fixture::start().await;
    fill(&fixture).await;
    let mut connection = fixture.redis().pooled().await.unwrap();
    let inspector = Inspector::new(fixture.redis());
    let now = SystemClock.now_secs();
    fixture.broker.write_server_state(&mut connection, &server, &[], now).await.unwrap();
    assert_eq!(inspector.servers().await.unwrap().len(), 1);
    fixture.run("DEL asynq:servers asynq:servers:{host:7:uuid}").await;
    fixture.broker.renew_server_state(&mut connection, &server, now).await.unwrap();
    assert_eq!(inspector.servers().await.unwrap().len(), 1);
    assert!(!fixture.broker.claim_upkeep(QUEUE, "uuid", SECOND).await.unwrap(), "nobody had it");
    assert!(fixture.broker.lead("uuid", SECOND).await.unwrap());
    make_room(&fixture).await;
    fixture.broker.ask_for_duty("duty", "subject", 5).await.unwrap();
    fill(&fixture).await;
    let held = fixture.broker.take_duties(5, 7, 1).await.unwrap();
    assert!(fixture.broker.put_off_duty(&held[0], Some(8)).await.unwrap());
    make_room(&fixture).await;
    assert!(fixture.broker.claim_upkeep(QUEUE, "uuid", 60 * SECOND).await.unwrap());
    fill(&fixture).await;
    assert!(fixture.broker.claim_upkeep(QUEUE, "uuid", 60 * SECOND).await.unwrap(), "it keeps what it has");
}

/// Its handler was killed when the lease could not be renewed, nothing pending was handed out, and no server started.
#[tokio::test]
async fn a_worker_starts_and_works_all_there_is() {
    let fixture = Fixture::start().await;
    let (events, client) = (Events::default(), Client::new(fixture.redis()));
    client.enqueue(job("long").retention(60 * SECOND)).await.unwrap();
    client.enqueue(job("fails")).await.unwrap();
    client.enqueue(job("due").process_in(2 * SECOND)).await.unwrap();
    fill(&fixture).await;
    let checked = fixture.redis().check(Role::Worker).await.unwrap();
    let found: Vec<_> = checked.findings.iter().map(|finding| (finding.severity, finding.fault)).collect();
    assert_eq!(found, [(Severity::Warning, Fault::MemoryFull)], "{checked:?}");

    let (door, health) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let work = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Semaphore>), job: Job| {
        events.tell(job.id());
        match job.id() {
            "long" => {
                job.write_result("half").await.unwrap();
                door.acquire().await.unwrap().forget();
                Ok(Bytes::from("whole"))
            }
            "fails" if job.retried() == 0 => Err("no".into()),
            _ => Ok::<_, Failure>(Bytes::from("whole")),
        }
    });
    let told = health.clone();
    let server = Server::new(fixture.another_redis(), Router::new(()).route("job", work))
        .queues([(QUEUE, 1)])
        .concurrency(3)
        .lease(5 * SECOND)
        .retry_policy(RetryPolicy::Fixed(SECOND))
        .health_check(SECOND / 10, move |health| told.lock().unwrap().push(health.map_err(ToString::to_string)));
    let server = server.start().await.unwrap();
    let refused = client.enqueue(job("new")).await.unwrap_err();
    let EnqueueError::Redis(Error::Refused { code, .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!(code, "OOM");
    assert!(refused.to_string().contains("raise maxmemory"), "{refused}");
    let mut ran = events.wait(4).await;
    ran.sort();
    assert_eq!(ran, ["due", "fails", "fails", "long"]);

    // Its lease goes on.
    let lease = async || fixture.cmd::<i64>(&["ZSCORE", "asynq:{q}:lease", "long"]).await;
    let first = lease().await;
    eventually("the lease is renewed", async || lease().await > first + 5).await;
    let inspector = Inspector::new(fixture.redis());
    assert_eq!(inspector.servers().await.unwrap().len(), 1);
    door.add_permits(1);
    eventually("the long task is completed", async || {
        inspector.task(QUEUE, "long").await.unwrap().state == TaskState::Completed
    })
    .await;
    let result = inspector.task(QUEUE, "long").await.unwrap().result;
    assert!(result.is_some_and(|result| result.starts_with(b"whole")), "its result is stored");
    let health = health.lock().unwrap().clone();
    assert!(health.iter().all(Result::is_ok), "{health:?}");
    server.shutdown().await;
    make_room(&fixture).await;
    let verdict = fixture.broker.enqueue(QUEUE, &[fixture.compose(job("new"))], NOW_NS).await.unwrap();
    assert_eq!(verdict, [EnqueueVerdict::Stored]);
}

/// A server lists its queue first, each minute, and on a new connection, for which there is no memory.
#[tokio::test]
async fn a_server_aggregates_groups_without_memory() {
    let fixture = Fixture::start().await;
    let join =
        async |Group(group): Group, _: Vec<RawTask>| RawTask::new("digest").task_id(group).process_in(60 * SECOND);
    let router = Router::new(()).aggregate(join).fallback(async |_: Job| {});
    fixture.enqueue([job("a").group("g")]).await;
    fill(&fixture).await;
    let server = fixture.server(router).group_grace_period(SECOND).start().await.unwrap();
    fixture.in_state("g", TaskState::Scheduled).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_queue_that_was_listed_counts_as_listed_without_memory() {
    let fixture = Fixture::start().await;
    fixture.broker.list_queue(QUEUE).await.unwrap();
    fill(&fixture).await;
    fixture.run("CLIENT KILL TYPE normal").await;
    eventually("there is another connection", async || fixture.redis().ping().await.is_ok()).await;
    fixture.broker.list_queue(QUEUE).await.unwrap();
    assert!(is_refused(fixture.broker.list_queue("new").await));
}

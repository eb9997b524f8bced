//! Workers that are killed in the middle of something; others take over.

use std::time::Duration;

use prost::Message as _;
use queue_core::wire::WorkerInfo;
use queue_core::{Clock as _, RawTask, SystemClock, TaskState};
use queue_worker::{Failure, Handle, Job, RetryPolicy, Router};

use crate::support::{Events, Fixture, WorkerProcess, eventually, job, with};

const HOUR: Duration = Duration::from_secs(3_600);

fn hang(id: &str) -> RawTask {
    RawTask { task_type: "hang".into(), ..job(id) }
}

/// A server that tells the id and the retries of whatever comes, and retries at once.
async fn rescuer(fixture: &Fixture, events: &Events) -> Handle {
    let tell = with(events, async |events: Events, job: Job| events.tell(format!("{} {}", job.id(), job.retried())));
    let router = Router::new(()).fallback(tell);
    fixture.server(router).retry_policy(RetryPolicy::Fixed(Duration::ZERO)).start().await.unwrap()
}

/// Starts tasks in a worker process, and kills it when all run.
async fn killed_with(fixture: &Fixture, ids: &[&str]) {
    let mut worker = WorkerProcess::start(fixture.url(), ids.len()).await;
    for id in ids {
        worker.told(&format!("start {id}")).await;
    }
    worker.kill();
    for id in ids {
        assert_eq!(fixture.in_state(id, TaskState::Active).await.retried, 0);
    }
}

#[tokio::test]
async fn a_task_of_a_killed_worker_runs_again_and_keeps_its_lock_until_then() {
    let fixture = Fixture::start().await;
    fixture.enqueue([hang("a").unique(HOUR)]).await;
    killed_with(&fixture, &["a"]).await;
    assert_eq!(fixture.keyspace().await.get("{q}:unique:hang:"), Some("a"));
    fixture.expire_leases().await;
    let events = Events::default();
    let server = rescuer(&fixture, &events).await;
    assert_eq!(events.wait(1).await, ["a 0"]);
    fixture.gone("a").await;
    server.shutdown().await;
    assert_eq!(fixture.keyspace().await.paths_with("a"), Vec::<String>::new());
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (2, 1));
}

#[tokio::test]
async fn a_running_server_recovers_and_archives_what_has_no_retries_left() {
    let fixture = Fixture::start().await;
    fixture.enqueue([hang("a"), hang("last").max_retry(0)]).await;
    killed_with(&fixture, &["a", "last"]).await;
    let events = Events::default();
    let server = rescuer(&fixture, &events).await;
    fixture.enqueue([job("other")]).await;
    assert_eq!(events.wait(1).await, ["other 0"]);
    assert_eq!(fixture.in_state("a", TaskState::Active).await.retried, 0, "its lease still holds");
    fixture.expire_leases().await;
    assert_eq!(events.wait(2).await[1], "a 0");
    let last = fixture.in_state("last", TaskState::Archived).await;
    assert_eq!((last.retried, last.last_error.as_deref()), (0, Some("asynq: task lease expired")));
    server.shutdown().await;
}

#[tokio::test]
async fn a_worker_killed_while_it_shuts_down_loses_nothing() {
    let fixture = Fixture::start().await;
    fixture.enqueue([hang("a")]).await;
    let mut worker = WorkerProcess::start(fixture.url(), 1).await;
    worker.told("start a").await;
    worker.signal("-TERM");
    eventually("the worker shuts down", async || {
        fixture.inspector().servers().await.unwrap().iter().any(|server| server.status == "closed")
    })
    .await;
    fixture.enqueue([job("b")]).await;
    worker.kill();
    fixture.expire_leases().await;
    let events = Events::default();
    let server = rescuer(&fixture, &events).await;
    let mut ran = events.wait(2).await;
    ran.sort();
    assert_eq!(ran, ["a 0", "b 0"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_second_signal_ends_a_shutdown_and_puts_the_tasks_back() {
    let fixture = Fixture::start().await;
    fixture.enqueue([hang("a")]).await;
    let mut worker = WorkerProcess::start(fixture.url(), 1).await;
    worker.told("start a").await;
    worker.signal("-TERM");
    eventually("the worker shuts down", async || {
        fixture.inspector().servers().await.unwrap().iter().any(|server| server.status == "closed")
    })
    .await;
    worker.signal("-INT");
    assert!(worker.ended().await);
    let info = fixture.in_state("a", TaskState::Pending).await;
    assert_eq!((info.retried, info.last_error), (0, None));
    assert_eq!(fixture.inspector().servers().await.unwrap(), []);
}

#[tokio::test]
async fn a_stopped_worker_finishes_what_it_has_and_takes_no_more() {
    let fixture = Fixture::start().await;
    let sleep = RawTask { task_type: "sleep".into(), ..job("a").payload("300") };
    fixture.enqueue([sleep]).await;
    let mut worker = WorkerProcess::start(fixture.url(), 1).await;
    worker.told("start a").await;
    worker.signal("-TSTP");
    eventually("the worker takes no more", async || {
        fixture.inspector().servers().await.unwrap().iter().any(|server| server.status == "stopped")
    })
    .await;
    fixture.enqueue([hang("b")]).await;
    worker.told("end a").await;
    fixture.gone("a").await;
    worker.signal("-TERM");
    assert!(worker.ended().await);
    fixture.in_state("b", TaskState::Pending).await;
}

#[tokio::test]
async fn a_busy_worker_that_is_killed_loses_none_of_many_tasks() {
    let fixture = Fixture::start().await;
    let tasks = (0..200).map(|n| RawTask { task_type: "sleep".into(), ..job(&n.to_string()).payload("5") });
    fixture.enqueue(tasks).await;
    let mut worker = WorkerProcess::start(fixture.url(), 10).await;
    worker.events.wait(150).await;
    worker.kill();
    let left: usize = fixture.cmd(&["LLEN", "asynq:{q}:pending"]).await;
    assert!(left > 0, "the worker was killed too late");
    fixture.expire_leases().await;
    let events = Events::default();
    let server = rescuer(&fixture, &events).await;
    eventually("all tasks have ended", async || {
        let hashes: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:t:*"]).await;
        hashes.is_empty()
    })
    .await;
    server.shutdown().await;
    let (first, second) = (worker.events.all(), events.all());
    for n in 0..200 {
        let started = first.contains(&format!("start {n}"));
        let again = second.iter().any(|told| told.starts_with(&format!("{n} ")));
        assert!(started || again, "task {n} never ran");
    }
    let left = fixture.keyspace().await;
    assert!(left.get("{q}:active").is_none() && left.paths_with("lease").is_empty(), "{left}");
}

/// A crash of a worker is no failure of the task, but some tasks kill their workers.
#[tokio::test]
async fn a_task_that_kills_its_workers_ends_in_the_archive_with_their_names() {
    let fixture = Fixture::start().await;
    fixture.enqueue([hang("poison").unique(HOUR)]).await;
    let mut pids = Vec::new();
    let mut rescuer = None;
    for crash in 1..=3 {
        let mut worker = WorkerProcess::start(fixture.url(), 1).await;
        worker.told("start poison").await;
        pids.push(worker.id());
        worker.kill();
        let events = Events::default();
        // It does not know the type, so that the next worker gets the task.
        let router =
            Router::new(()).route("job", with(&events, async |events: Events, job: Job| events.tell(job.id())));
        let server = fixture.server(router).unhandled(queue_worker::Unhandled::Leave).max_crashes(2);
        let server = server.retry_policy(RetryPolicy::Fixed(Duration::ZERO)).start().await.unwrap();
        fixture.expire_leases().await;
        if crash < 3 {
            let info = fixture.in_state("poison", TaskState::Pending).await;
            assert_eq!((info.retried, info.last_error.as_deref()), (0, Some("asynq: task lease expired")));
            let crashes: String = fixture.cmd(&["HGET", "asynq:{q}:t:poison", "x_crashes"]).await;
            assert!(crashes.starts_with(&format!("{crash} ")), "{crashes}");
            server.shutdown().await;
        } else {
            rescuer = Some(server);
        }
    }
    let info = fixture.in_state("poison", TaskState::Archived).await;
    let story = info.last_error.unwrap();
    assert!(story.starts_with("asynq: task lease expired; given up after 3 crashes"), "{story}");
    for pid in pids {
        assert!(story.contains(&format!(":{pid}:")), "{pid} had it: {story}");
    }
    rescuer.unwrap().shutdown().await;
    // Run by hand, it may crash as often again.
    assert_eq!(fixture.keyspace().await.get("{q}:t:poison x_crashes"), None);
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (3, 3));
}

#[tokio::test]
async fn an_attempt_that_ends_properly_makes_crashes_forgotten() {
    let fixture = Fixture::start().await;
    fixture.enqueue([hang("a"), hang("b"), hang("c").retention(HOUR)]).await;
    killed_with(&fixture, &["a", "b", "c"]).await;
    fixture.expire_leases().await;
    let events = Events::default();
    let end = with(&events, async |events: Events, job: Job| {
        events.tell(job.id());
        match job.id() {
            "a" => Err(Failure::from("boom")),
            "b" => Err(Failure::snooze(HOUR, "later")),
            _ => Ok(()),
        }
    });
    let server = fixture.server(Router::new(()).fallback(end)).start().await.unwrap();
    events.wait(3).await;
    let a = fixture.in_state("a", TaskState::Retry).await;
    assert_eq!((a.retried, a.last_error.as_deref()), (1, Some("boom")));
    fixture.in_state("c", TaskState::Completed).await;
    server.shutdown().await;
    let after = fixture.keyspace().await;
    for id in ["a", "b", "c"] {
        assert_eq!(after.get(&format!("{{q}}:t:{id} x_crashes")), None, "{after}");
    }
}

/// It took 30 s more, whatever the lease.
#[tokio::test]
async fn a_task_of_a_killed_worker_runs_elsewhere_soon_after_a_short_lease_has_ended() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue([hang("a")]).await;
    let mut worker = WorkerProcess::start_with(fixture.url(), 1, &["--lease-secs", "5"]).await;
    worker.told("start a").await;
    let server = rescuer(&fixture, &events).await;
    worker.kill();
    // Within the patience of the suite, which is shorter than the margin for wrong clocks and a lease.
    assert_eq!(events.wait(1).await, ["a 0"]);
    fixture.gone("a").await;
    server.shutdown().await;
}

/// Its clock may be slow; it is not dead.
#[tokio::test]
async fn a_task_that_a_server_says_it_works_on_is_left_to_it_for_the_whole_margin() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("shown"), job("silent"), job("elsewhere")]).await;
    let ended = (SystemClock.now_secs() - 10).to_string();
    for id in ["shown", "silent", "elsewhere"] {
        fixture.run("RPOPLPUSH asynq:{q}:pending asynq:{q}:active").await;
        fixture.run(&format!("HSET asynq:{{q}}:t:{id} state active")).await;
        fixture.run(&format!("ZADD asynq:{{q}}:lease {ended} {id}")).await;
    }
    for (id, queue) in [("shown", "q"), ("elsewhere", "another")] {
        let told = WorkerInfo { task_id: id.into(), queue: queue.into(), ..WorkerInfo::default() }.encode_to_vec();
        let set: [&[u8]; 4] = [b"HSET", b"asynq:workers:{go:1:x}", id.as_bytes(), &told];
        let _: i64 = fixture.cmd(&set).await;
    }
    fixture.run("ZADD asynq:workers 4000000000 asynq:workers:{go:1:x}").await;
    let events = Events::default();
    let server = rescuer(&fixture, &events).await;
    let mut ran = events.wait(2).await;
    ran.sort();
    assert_eq!(ran, ["elsewhere 0", "silent 0"]);
    fixture.in_state("shown", TaskState::Active).await;
    fixture.run("DEL asynq:workers:{go:1:x}").await;
    assert_eq!(events.wait(3).await[2], "shown 0", "it has gone silent too");
    server.shutdown().await;
}

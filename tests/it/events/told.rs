use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use queue_admin::{Actor, Admin, Cancellation, Inspector, Role};
use queue_core::RawTask;
use queue_redis::events::{Events as Listen, Kind};
use queue_worker::{Event, Failure, Job, Router};

use super::{GATHERED, calls, kinds, listen, next, up_to};
use crate::support::{Events, Fixture, NOW_NS, QUEUE, eventually, job, report};

fn of(task_type: &str) -> RawTask {
    RawTask { task_type: task_type.to_owned(), ..job(task_type) }
}

fn router() -> Router<()> {
    Router::new(())
        .route("done", async |_: Job| {})
        .route("fail", async |_: Job| Err::<(), Failure>("boom".into()))
        .route("archive", async |_: Job| Err::<(), Failure>(Failure::archive("no use")))
        .route("revoke", async |_: Job| Err::<(), Failure>(Failure::revoke("old")))
        .route("snooze", async |_: Job| Err::<(), Failure>(Failure::snooze(Duration::from_secs(60), "busy")))
        .route("tell", async |job: Job| {
            job.progress(30, "page 3");
            Err::<(), Failure>("no page 4".into())
        })
        .route("hang", async |_: Job| std::future::pending::<()>().await)
}

#[tokio::test]
async fn each_end_of_an_attempt_is_told_with_what_belongs_to_it() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    let server = fixture.server(router()).concurrency(1).start().await.unwrap();
    let started = next(&mut events).await.event;
    assert_eq!((started.kind, started.count), (Kind::ServerStarted, Some(1)));
    assert!(started.server.unwrap().ends_with(server.server_id()));
    for (task_type, end) in [
        ("done", Kind::Succeeded),
        ("fail", Kind::Failed),
        ("archive", Kind::Archived),
        ("revoke", Kind::Revoked),
        ("snooze", Kind::Snoozed),
    ] {
        fixture.enqueue([of(task_type)]).await;
        let told = up_to(&mut events, end).await;
        assert_eq!(kinds(&told), [Kind::Started, end], "{told:?}");
        for event in &told {
            let names = (event.queue.as_deref(), event.id.as_deref(), event.task_type.as_deref());
            assert_eq!(names, (Some(QUEUE), Some(task_type), Some(task_type)));
            assert_eq!(event.attempt, Some(1));
            assert!(event.at.0 > 0 && event.server.is_some());
        }
        assert!(told[1].took_ms.is_some());
        assert_eq!(told[1].retry_at.is_some(), ["fail", "snooze"].contains(&task_type));
        let error = [("fail", "boom"), ("archive", "no use"), ("revoke", "old"), ("snooze", "busy")];
        let error = error.iter().find(|(of, _)| *of == task_type).map(|(_, error)| *error);
        assert_eq!(told[1].error.as_deref(), error);
    }
    fixture.enqueue([of("tell")]).await;
    let told = up_to(&mut events, Kind::Failed).await;
    let progress = told.iter().find(|event| event.kind == Kind::Progress).unwrap_or_else(|| panic!("{told:?}"));
    assert_eq!((progress.percent, progress.note.as_deref()), (Some(30), Some("page 3")));
    server.shutdown().await;
    assert_eq!(kinds(&up_to(&mut events, Kind::ServerStopped).await), [Kind::ServerStopped]);
}

#[tokio::test]
async fn what_operators_do_is_told_from_the_audit() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    let actor = Actor { name: "ann".to_owned(), role: Role::Admin, via: "cli", address: None };
    let admin = Admin::new(Inspector::new(fixture.redis()), actor);
    admin.pause(QUEUE, true).await.unwrap();
    let event = next(&mut events).await.event;
    let told = (event.kind, event.queue.as_deref(), event.action.as_deref(), event.by.as_deref());
    assert_eq!(told, (Kind::Operator, Some(QUEUE), Some("queue.pause"), Some("ann")));
    admin.pause(QUEUE, false).await.unwrap();
    // How the first one ended is no event.
    assert_eq!(next(&mut events).await.event.action.as_deref(), Some("queue.resume"));
    let entries: u64 = fixture.cmd(&["XLEN", "asynq:x:audit"]).await;
    assert_eq!(entries, 4);
}

#[tokio::test]
async fn a_task_that_is_canceled_for_good_is_told_as_canceled() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    let server = fixture.server(router()).start().await.unwrap();
    fixture.enqueue([of("hang")]).await;
    up_to(&mut events, Kind::Started).await;
    Inspector::new(fixture.redis()).cancel_for_good(QUEUE, "hang", "ann").await.unwrap();
    let told = up_to(&mut events, Kind::Cancelled).await;
    assert_eq!(told.last().unwrap().error.as_deref(), Some("canceled by ann"));
    server.shutdown().await;
}

/// As Go leaves it: its worker was told to stop, and it waits for a retry.
#[tokio::test]
async fn a_task_that_the_leader_cancels_is_told_with_who_wanted_that() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    let task = fixture.active(of("done")).await;
    let answer = Inspector::new(fixture.redis()).cancel_for_good(QUEUE, "done", "ann").await.unwrap();
    assert_eq!(answer, Cancellation::Recorded);
    // Nobody serves its queue.
    let server = fixture.server(router()).queues([("other", 1)]).start().await.unwrap();
    fixture.broker.requeue(&report(&task), NOW_NS).await.unwrap();
    let told = up_to(&mut events, Kind::Cancelled).await;
    let last = told.last().unwrap();
    let (id, by) = (last.id.as_deref(), last.by.as_deref());
    assert_eq!((id, last.task_type.as_deref(), by), (Some("done"), Some("done"), Some("ann")));
    server.shutdown().await;
}

#[tokio::test]
async fn filters_leave_out_what_does_not_fit_and_it_is_not_even_written() {
    let fixture = Fixture::start().await;
    let mut events =
        Listen::of(&fixture.redis()).queue(QUEUE).kinds([Kind::Failed]).task_type("fail").stream().await.unwrap();
    let server = fixture.server(router()).start().await.unwrap();
    fixture.enqueue([of("done"), of("archive"), of("fail")]).await;
    assert_eq!(next(&mut events).await.event.id.as_deref(), Some("fail"));
    let entries: Vec<(String, Vec<String>)> = fixture.cmd(&["XRANGE", "asynq:{q}:x:events", "-", "+"]).await;
    let lines: Vec<&str> = entries.iter().flat_map(|(_, fields)| fields[5].lines()).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let ttl: i64 = fixture.cmd(&["TTL", "asynq:{q}:x:events"]).await;
    assert!((1..=3_600).contains(&ttl), "{ttl}");
    server.shutdown().await;
}

#[tokio::test]
async fn nothing_is_written_while_nobody_listens() {
    let fixture = Fixture::start().await;
    let server = fixture.server(router()).start().await.unwrap();
    // After its start it looks again, as soon as it listens.
    eventually("it has looked at what it watches", async || {
        let before = calls(&fixture, "hgetall").await;
        tokio::time::sleep(GATHERED).await;
        calls(&fixture, "hgetall").await == before
    })
    .await;
    let before = calls(&fixture, "hgetall").await;
    fixture.enqueue(["done", "fail", "archive", "tell"].map(of)).await;
    eventually("all have ended", async || {
        let left: i64 = fixture.cmd(&["LLEN", "asynq:{q}:active"]).await;
        let waiting: i64 = fixture.cmd(&["LLEN", "asynq:{q}:pending"]).await;
        left + waiting == 0
    })
    .await;
    tokio::time::sleep(GATHERED).await;
    assert_eq!(calls(&fixture, "xadd").await, 0);
    assert_eq!(calls(&fixture, "hgetall").await, before, "nobody asks whether somebody listens");
    assert_eq!(fixture.cmd::<u64>(&["EXISTS", "asynq:x:watchers", "asynq:x:events", "asynq:{q}:x:events"]).await, 0);
    server.shutdown().await;
    assert_eq!(calls(&fixture, "xadd").await, 0);
}

#[tokio::test]
async fn a_server_that_runs_already_hears_of_a_listener_and_that_it_is_over() {
    let fixture = Fixture::start().await;
    let server = fixture.server(router()).start().await.unwrap();
    let mut events = listen(&fixture).await;
    let number = AtomicU64::new(0);
    let work = async || {
        let id = number.fetch_add(1, Ordering::Relaxed).to_string();
        fixture.enqueue([RawTask { task_type: "done".into(), ..job(&id) }]).await;
        tokio::time::sleep(GATHERED).await;
    };
    // The server is told of it, by its own connection.
    eventually("it is told", async || {
        work().await;
        fixture.cmd::<u64>(&["EXISTS", "asynq:{q}:x:events"]).await == 1
    })
    .await;
    assert_eq!(next(&mut events).await.event.kind, Kind::Started);
    drop(events);
    fixture.run("DEL asynq:x:watchers").await;
    eventually("nothing is written any more", async || {
        let before = calls(&fixture, "xadd").await;
        work().await;
        calls(&fixture, "xadd").await == before
    })
    .await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_task_of_a_silent_server_is_told_as_lost() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    fixture.active(job("gone").max_retry(3)).await;
    fixture.run("ZADD asynq:{q}:lease 1 gone").await;
    let server = fixture.server(router()).start().await.unwrap();
    let told = up_to(&mut events, Kind::Lost).await;
    let lost = told.last().unwrap();
    assert_eq!((lost.id.as_deref(), lost.task_type.as_deref()), (Some("gone"), Some("job")));
    assert!(lost.retry_at.is_some());
    server.shutdown().await;
}

#[tokio::test]
async fn scheduled_tasks_that_became_pending_are_told_as_a_number() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    fixture.put((0..3).map(|n| job(&n.to_string()).process_in(Duration::from_secs(1)))).await;
    fixture.run("ZADD asynq:{q}:scheduled 1 0 1 1 1 2").await;
    let server = fixture.server(router()).start().await.unwrap();
    let told = up_to(&mut events, Kind::Forwarded).await;
    let forwarded = told.last().unwrap();
    assert_eq!((forwarded.queue.as_deref(), forwarded.count), (Some(QUEUE), Some(3)));
    server.shutdown().await;
}

#[tokio::test]
async fn a_key_of_another_type_is_no_trouble_of_a_server() {
    let fixture = Fixture::start().await;
    fixture.run("SET asynq:x:watchers text").await;
    let troubles = Events::<String>::default();
    let told = troubles.clone();
    let server = fixture.server(router()).observe(move |event| {
        if let Event::RedisAway { error, .. } = event {
            told.tell(error.to_string());
        }
    });
    let server = server.start().await.unwrap();
    fixture.enqueue([of("done")]).await;
    fixture.gone("done").await;
    server.shutdown().await;
    assert!(troubles.all().is_empty(), "{:?}", troubles.all());
}

/// News do not hold up a report, and a server whose user may not write them works as ever.
#[tokio::test]
async fn a_server_that_may_not_tell_works_all_the_same() {
    let fixture = Fixture::start().await;
    let events = listen(&fixture).await;
    fixture.run("ACL SETUSER dumb on >pw ~* &* +@all -xadd").await;
    let url = format!("{}?user=dumb&pass=pw", fixture.url());
    let redis = queue_redis::Redis::lazy(&url, queue_redis::RedisOptions::default()).unwrap();
    let server = queue_worker::Server::new(redis, router()).queues([(QUEUE, 1)]).start().await.unwrap();
    // A client would tell that they are enqueued, a tenth of a second later.
    fixture.put([of("done"), of("archive")]).await;
    eventually("both are reported", async || {
        let archived: i64 = fixture.cmd(&["ZCARD", "asynq:{q}:archived"]).await;
        let there: i64 = fixture.cmd(&["EXISTS", "asynq:{q}:t:done"]).await;
        archived == 1 && there == 0
    })
    .await;
    server.shutdown().await;
    drop(events);
    assert_eq!(fixture.cmd::<u64>(&["EXISTS", "asynq:{q}:x:events"]).await, 0);
}

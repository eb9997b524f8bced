//! Uniqueness locks that end in other ways than asynq's, or are named otherwise.

use std::sync::Arc;
use std::time::Duration;

use queue_admin::Inspector;
use queue_core::crash::Crashes;
use queue_core::{OptionError, RawTask, Step, TaskMessage, TaskState, UniqueUntil};
use queue_redis::broker::Recovery;
use queue_redis::{Client, EnqueueError, Outgoing};
use queue_scheduler::{Entry, Scheduler};
use queue_worker::{Failure, Job, RetryPolicy, Router, Server, Unhandled};
use tokio::sync::Semaphore;

use crate::doctor::problems;
use crate::support::{Fixture, NOW, QUEUE, eventually, job, report, with};

const HOUR: Duration = Duration::from_secs(3_600);

fn unique(payload: &str, until: UniqueUntil) -> RawTask {
    RawTask::new("job").queue(QUEUE).payload(payload.to_owned()).unique(HOUR).unique_until(until)
}

async fn is_refused(client: &Client, task: RawTask) -> bool {
    match client.enqueue(task).await {
        Ok(_) => false,
        Err(EnqueueError::DuplicateTask { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

/// A server whose handler fails as the payload says, when it is let go.
async fn server(fixture: &Fixture, go: &Arc<Semaphore>) -> queue_worker::Handle {
    let work = with(go, async |go: Arc<Semaphore>, job: Job| {
        go.acquire().await.unwrap().forget();
        match &job.payload()[..] {
            b"archive" => Err(Failure::archive("no")),
            b"retry" => Err("not yet".into()),
            _ => Ok(()),
        }
    });
    let server = Server::new(fixture.another_redis(), Router::new(()).route("job", work));
    server.queues([(QUEUE, 1)]).retry_policy(RetryPolicy::Fixed(HOUR)).start().await.unwrap()
}

#[tokio::test]
async fn a_lock_until_start_is_free_while_the_task_runs_and_asynqs_is_not() {
    for (until, refuses) in [(UniqueUntil::Start, false), (UniqueUntil::Success, true), (UniqueUntil::Finish, true)] {
        let fixture = Fixture::start().await;
        let client = Client::new(fixture.redis());
        client.enqueue(unique("p", until)).await.unwrap();
        assert!(is_refused(&client, unique("p", until)).await, "{until:?}: it waits");
        let go = Arc::new(Semaphore::new(0));
        let server = server(&fixture, &go).await;
        let active = async || fixture.cmd::<usize>(&["LLEN", "asynq:{q}:active"]).await;
        eventually("it runs", async || active().await == 1).await;
        if until == UniqueUntil::Start {
            let locks = async || fixture.cmd::<Vec<String>>(&["KEYS", "*unique*"]).await;
            eventually("its lock is free", async || locks().await.is_empty()).await;
        }
        assert_eq!(is_refused(&client, unique("p", until)).await, refuses, "{until:?}: it runs");
        if !refuses {
            // The second one has the lock now, and the end of the first leaves it alone.
            eventually("both run", async || active().await == 2).await;
        }
        go.add_permits(2);
        let done = if refuses { 1 } else { 2 };
        eventually("they are done", async || fixture.count("processed").await == done).await;
        assert!(!is_refused(&client, unique("p", until)).await, "{until:?}: they are done");
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_lock_until_start_is_not_free_before_a_handler_is_called() {
    for (archives, refuses) in [(false, true), (true, false)] {
        let fixture = Fixture::start().await;
        let client = Client::new(fixture.redis());
        client.enqueue(unique("p", UniqueUntil::Start)).await.unwrap();
        let server = Server::new(fixture.another_redis(), Router::new(())).queues([(QUEUE, 1)]);
        let unhandled = if archives { Unhandled::Archive } else { Unhandled::Fail };
        let server = server.unhandled(unhandled).retry_policy(RetryPolicy::Fixed(HOUR)).start().await.unwrap();
        eventually("it has failed", async || fixture.count("failed").await == 1).await;
        assert_eq!(is_refused(&client, unique("p", UniqueUntil::Start)).await, refuses, "archived: {archives}");
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_lock_until_finish_is_free_when_the_task_is_archived_and_not_while_it_waits_for_a_retry() {
    for (until, refuses) in [(UniqueUntil::Finish, false), (UniqueUntil::Success, true)] {
        let fixture = Fixture::start().await;
        let client = Client::new(fixture.redis());
        for payload in ["archive", "retry"] {
            client.enqueue(unique(payload, until)).await.unwrap();
        }
        let server = server(&fixture, &Arc::new(Semaphore::new(2))).await;
        eventually("both have failed", async || fixture.count("failed").await == 2).await;
        server.shutdown().await;
        assert_eq!(is_refused(&client, unique("archive", until)).await, refuses, "{until:?}");
        assert!(is_refused(&client, unique("retry", until)).await, "{until:?}");
    }
}

#[tokio::test]
async fn a_lock_until_finish_is_free_when_a_recoverer_archives_the_task() {
    for (until, left) in [(UniqueUntil::Start, 0), (UniqueUntil::Finish, 0), (UniqueUntil::Success, 1)] {
        let fixture = Fixture::start().await;
        let delivery = fixture.active(job("a").unique(HOUR).unique_until(until)).await;
        let lease = fixture.broker.list_expired(QUEUE, NOW + 30, 0).await.unwrap().leases.remove(0);
        let message = TaskMessage { error_msg: "silent".into(), ..delivery.message };
        let recovery = Recovery::new(lease, Step::Archive { message }, Crashes::default(), NOW);
        fixture.broker.recover(QUEUE, &[recovery], 0, NOW).await.unwrap();
        assert_eq!(fixture.broker.state_of(QUEUE, "a").await.unwrap(), Some(TaskState::Archived));
        assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "*unique*"]).await.len(), left, "{until:?}");
    }
}

/// The holder that a refusal names.
async fn refused_for(client: &Client, task: RawTask) -> Option<String> {
    match client.enqueue(task).await {
        Err(EnqueueError::DuplicateTask { holder, .. }) => holder,
        other => panic!("{other:?}"),
    }
}

/// Whatever becomes of the task, by whoever: its end, its deletion, a worker's start; and after its time another one comes.
#[tokio::test]
async fn a_window_is_open_for_its_time_whatever_becomes_of_the_task() {
    let fixture = Fixture::start().await;
    let client = Client::new(fixture.redis());
    let inspector = Inspector::new(fixture.redis());
    let window = |id: &str| unique("p", UniqueUntil::Window).task_id(id);
    client.enqueue(window("a")).await.unwrap();
    assert_eq!(refused_for(&client, window("b")).await.as_deref(), Some("a"));
    // One without a window meets the same lock.
    assert_eq!(refused_for(&client, unique("p", UniqueUntil::Success)).await.as_deref(), Some("a"));
    let delivery = fixture.take().await;
    assert!(!fixture.broker.unlock(&delivery.message).await.unwrap());
    fixture.broker.done(QUEUE, &[report(&delivery)], NOW).await.unwrap();
    assert_eq!(refused_for(&client, window("b")).await.as_deref(), Some("a"));
    // The same one again, as when an answer was lost: it was stored already.
    assert_eq!(refused_for(&client, window("a")).await.as_deref(), Some("a"));
    // For the doctor, too, that is as it should be.
    assert_eq!(problems(&inspector).await, Vec::<String>::new());
    let lock = "asynq:{q}:unique:job:83878c91171338902e0fe0fb97a8c47a";
    assert!((3_590..=3_600).contains(&fixture.cmd::<i64>(&["TTL", lock]).await));
    let _: i64 = fixture.cmd(&["DEL", lock]).await;
    client.enqueue(window("b")).await.unwrap();
    inspector.delete_task(QUEUE, "b").await.unwrap();
    assert_eq!(refused_for(&client, window("c")).await.as_deref(), Some("b"));
}

/// Run by hand, as its scheduler has registered it.
#[tokio::test]
async fn a_periodic_task_may_have_a_window() {
    let fixture = Fixture::start().await;
    let scheduler = Scheduler::builder(fixture.redis()).build();
    scheduler.register(Entry::new("@every 1h", unique("p", UniqueUntil::Window)).name("e")).unwrap();
    scheduler.start().await.unwrap();
    let inspector = Inspector::new(fixture.redis());
    let id = inspector.run_cron("e", false).await.unwrap();
    inspector.delete_task(QUEUE, &id).await.unwrap();
    let refused = inspector.run_cron("e", true).await.unwrap_err();
    assert!(refused.to_string().contains("uniqueness lock"), "{refused}");
    scheduler.shutdown().await;
}

#[tokio::test]
async fn unlock_frees_only_the_lock_of_the_task_itself_and_of_its_queue() {
    let fixture = Fixture::start().await;
    let message = fixture.compose(job("a").unique(HOUR)).message;
    let lock = "asynq:{q}:unique:job:";
    assert!(!fixture.broker.unlock(&message).await.unwrap());
    fixture.run(&format!("SET {lock} b")).await;
    assert!(!fixture.broker.unlock(&message).await.unwrap());
    fixture.run(&format!("SET {lock} a")).await;
    let elsewhere = TaskMessage { queue: "other".into(), ..message.clone() };
    assert!(!fixture.broker.unlock(&elsewhere).await.unwrap());
    assert!(fixture.broker.unlock(&message).await.unwrap());
    assert_eq!(fixture.cmd::<i64>(&["EXISTS", lock]).await, 0);
}

#[tokio::test]
async fn a_lock_with_a_key_of_its_own_is_for_all_payloads_and_no_interceptor_renames_it() {
    let fixture = Fixture::start().await;
    let client = Client::new(fixture.redis());
    let client = client.intercept(|task: &mut Outgoing<'_>| task.set_lock_payload(b"secret"));
    let of = |task_type: &str, payload: &str, key: &str| {
        RawTask::new(task_type).queue(QUEUE).payload(payload.to_owned()).unique(HOUR).unique_key(key)
    };
    assert!(!is_refused(&client, of("job", "1", "user:7")).await);
    assert!(is_refused(&client, of("job", "2", "user:7")).await);
    assert!(!is_refused(&client, of("job", "1", "user:8")).await);
    assert!(!is_refused(&client, of("other", "1", "user:7")).await);
    // A Go client that hashes a payload of these bytes meets the same lock.
    let lock = queue_core::keys::QueueKeys::new(QUEUE).unique("job", Some(b"user:7"));
    assert_eq!(fixture.cmd::<i64>(&["EXISTS", &lock]).await, 1);
    for (task, option) in [
        (RawTask::new("job").unique_key("k"), "unique_key"),
        (RawTask::new("job").unique_until(UniqueUntil::Start), "unique_until"),
    ] {
        let error = client.enqueue(task).await.unwrap_err();
        assert!(matches!(error, EnqueueError::Option(OptionError::NeedsUnique { option: found }) if found == option));
    }
}

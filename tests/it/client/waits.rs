//! Callers that wait for the ends of their tasks.

use std::time::Duration;

use queue_admin::{Inspector, Waited};
use queue_core::{RawTask, TaskState};
use queue_redis::broker::{Canceled, Change, Seen};
use queue_redis::{Client, Finished, Redis, RedisOptions, TaskHandle, WaitError};
use queue_worker::{Failure, Job, Output, Router};

use crate::support::{Events, Fixture, PATIENCE, Proxy, eventually, job, plain_connection, with};

const HOUR: Duration = Duration::from_secs(3_600);
const BRIEF: Duration = Duration::from_millis(50);

fn of_type(task_type: &str) -> RawTask {
    RawTask { task_type: task_type.to_owned(), ..job(task_type) }
}

/// A server whose handlers end in all ways.
fn all_ways() -> Router<()> {
    Router::new(())
        .route("good", async |_: Job| Output(7))
        .route("nothing", async |_: Job| {})
        .route("bad", async |_: Job| Err::<(), _>(Failure::archive("no use")))
        .route("revoked", async |_: Job| Err::<(), _>(Failure::revoke("not wanted")))
}

#[tokio::test]
async fn each_end_is_told_to_whoever_waits() {
    let fixture = Fixture::start().await;
    let client = fixture.client();
    let server = fixture.server(all_ways()).start().await.unwrap();
    let wait = async |task_type| client.enqueue_to_wait(of_type(task_type)).await.unwrap();
    assert_eq!(wait("good").await.result::<u32>(PATIENCE).await.unwrap(), 7);
    wait("nothing").await.result::<()>(PATIENCE).await.unwrap();
    let Finished::Archived(task) = client.enqueue_and_wait(of_type("bad"), PATIENCE).await.unwrap() else { panic!() };
    assert_eq!(task.last_error.as_deref(), Some("no use"));
    assert_eq!(client.enqueue_and_wait(of_type("revoked"), PATIENCE).await.unwrap(), Finished::Gone);
    // Those that are over.
    let again = |id: &str| client.handle("q", id);
    let error = again("bad").result::<u32>(PATIENCE).await.unwrap_err();
    assert!(matches!(&error, WaitError::Archived { error, .. } if error == "no use"), "{error}");
    assert!(matches!(again("revoked").result::<u32>(PATIENCE).await, Err(WaitError::Gone { .. })));
    let error = again("good").result::<String>(PATIENCE).await.unwrap_err();
    assert!(matches!(error, WaitError::Unreadable { .. }), "{error}");
    let error = client.enqueue_and_wait(of_type("bad"), PATIENCE).await.unwrap_err();
    assert!(matches!(error, WaitError::Enqueue(_)), "{error}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_task_without_a_retention_is_kept_for_a_minute_if_it_is_waited_for() {
    let fixture = Fixture::start().await;
    let client = fixture.client();
    let handle = client.enqueue_to_wait(job("a")).await.unwrap();
    assert_eq!(handle.enqueued().unwrap().retention, Duration::from_secs(60));
    let handle = client.enqueue_to_wait(job("b").retention(HOUR)).await.unwrap();
    assert_eq!(handle.enqueued().unwrap().retention, HOUR);
    let error = handle.wait(BRIEF).await.unwrap_err();
    assert!(matches!(&error, WaitError::TimedOut { id, .. } if id == "b"), "{error}");
    assert_eq!(handle.look().await.unwrap().unwrap().state, Some(TaskState::Pending));
}

/// Whoever changes it: these changes are no script of ours.
#[tokio::test]
async fn a_change_by_anybody_ends_a_wait() {
    let fixture = Fixture::start().await;
    let handle = fixture.client().enqueue_to_wait(job("a:b")).await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.wait(PATIENCE).await.unwrap() }
    });
    assert!(handle.wait(BRIEF).await.is_err());
    fixture.run("HSET asynq:{q}:t:a:b state active").await;
    assert!(handle.wait(BRIEF).await.is_err());
    fixture.run("DEL asynq:{q}:t:a:b").await;
    assert_eq!(waiting.await.unwrap(), Finished::Gone);
}

/// A wait for the earlier task of this id is still under way when the later one is enqueued.
#[tokio::test]
async fn an_id_that_is_used_again_is_another_task() {
    let fixture = Fixture::start().await;
    let client = fixture.client();
    for _ in 0..20 {
        let first = client.enqueue_to_wait(job("a")).await.unwrap();
        let _waiting = tokio::spawn(async move { first.wait(PATIENCE).await });
        fixture.run("DEL asynq:{q}:t:a").await;
        fixture.run("DEL asynq:{q}:pending").await;
        let second = client.enqueue_to_wait(job("a")).await.unwrap();
        let waited = second.wait(Duration::from_millis(5)).await;
        assert!(matches!(waited, Err(WaitError::TimedOut { .. })), "{waited:?}");
        fixture.run("DEL asynq:{q}:t:a").await;
    }
}

/// How many connections have client tracking.
async fn listening(raw: &mut redis::aio::MultiplexedConnection) -> usize {
    let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(raw).await.unwrap();
    let tracks =
        |line: &&str| line.split(' ').any(|word| word.strip_prefix("flags=").is_some_and(|it| it.contains('t')));
    clients.lines().filter(tracks).count()
}

#[tokio::test]
async fn any_number_of_waits_share_one_connection() {
    const MANY: usize = 1_200;
    let fixture = Fixture::start().await;
    let client = fixture.client();
    let mut raw = plain_connection(fixture.url()).await;
    fixture.enqueue((0..MANY).map(|n| job(&n.to_string()).retention(HOUR))).await;
    let waits: Vec<_> = (0..MANY)
        .map(|n| {
            let handle = client.clone().handle("q", n.to_string());
            tokio::spawn(async move { handle.wait(PATIENCE).await.unwrap() })
        })
        .collect();
    eventually("somebody listens", async || listening(&mut raw.clone()).await > 0).await;
    assert_eq!(listening(&mut raw).await, 1);
    let server = fixture.server(Router::new(()).route("job", async |_: Job| {})).start().await.unwrap();
    for wait in waits {
        let ended = wait.await.unwrap();
        assert!(matches!(&ended, Finished::Completed(_)), "{ended:?}");
    }
    server.shutdown().await;
}

/// What is told while the connection is cut is not heard, and looked for afterwards.
#[tokio::test]
async fn waits_survive_a_connection_that_is_cut() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::start(fixture.socket()).await;
    let brief = Duration::from_millis(500);
    let options = RedisOptions { connect_timeout: brief, response_timeout: brief, ..RedisOptions::default() };
    let client = Client::new(Redis::lazy(&proxy.url(), options).unwrap());
    let handle = client.enqueue_to_wait(job("a")).await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.wait(PATIENCE).await.unwrap() }
    });
    assert!(handle.wait(BRIEF).await.is_err());
    proxy.cut_silently();
    fixture.run("HSET asynq:{q}:t:a state completed result 5").await;
    let Finished::Completed(task) = waiting.await.unwrap() else { panic!() };
    assert_eq!(task.result.as_deref(), Some(&b"5"[..]));
}

#[tokio::test]
async fn the_end_of_a_task_is_told_although_the_time_was_too_short_to_hear_of_it() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a"), job("b"), job("c")]).await;
    fixture.run("HSET asynq:{q}:t:a state completed").await;
    fixture.run("HSET asynq:{q}:t:b state archived").await;
    let proxy = Proxy::start(fixture.socket()).await;
    proxy.lose_answers_to(Some("TRACKING"));
    let inspector = Inspector::new(Redis::lazy(&proxy.url(), RedisOptions::default()).unwrap());
    for (id, outcome) in [("a", Waited::Completed), ("b", Waited::Archived), ("c", Waited::Timeout)] {
        let (told, task) = inspector.wait("q", id, None, Some(BRIEF)).await.unwrap();
        assert_eq!((told, task.unwrap().id), (outcome, id.to_owned()));
    }
}

#[tokio::test]
async fn without_client_tracking_tasks_are_looked_at_again_and_again() {
    let fixture = Fixture::start().await;
    let mut raw = plain_connection(fixture.url()).await;
    let no_tracking =
        redis::cmd("ACL").arg("SETUSER").arg("default").arg(&["-client", "+client|list", "+client|kill"]).to_owned();
    no_tracking.exec_async(&mut raw).await.unwrap();
    let handle = fixture.client().enqueue_to_wait(job("a")).await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.wait(PATIENCE).await.unwrap() }
    });
    assert!(handle.wait(BRIEF).await.is_err());
    assert_eq!(listening(&mut raw).await, 0);
    fixture.run("DEL asynq:{q}:t:a").await;
    assert_eq!(waiting.await.unwrap(), Finished::Gone);
}

#[tokio::test]
async fn what_redis_refuses_ends_a_wait() {
    let fixture = Fixture::start().await;
    fixture.run("SET asynq:{q}:t:a text").await;
    let handle = fixture.client().handle("q", "a");
    let error = handle.wait(PATIENCE).await.unwrap_err();
    assert!(matches!(error, WaitError::Redis(_)), "{error}");
}

/// The runtime of whoever listened is gone, and with it the connection.
#[test]
fn waits_in_another_runtime_begin_anew() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let fixture = second.block_on(Fixture::start());
    let client = Client::new(second.block_on(async { fixture.another_redis() }));
    let handle = second.block_on(client.enqueue_to_wait(job("a"))).unwrap();
    first.block_on(async { assert!(handle.wait(BRIEF).await.is_err()) });
    let waiting = second.spawn(async move { handle.wait(PATIENCE).await.unwrap() });
    first.shutdown_timeout(Duration::from_secs(1));
    second.block_on(async {
        fixture.run("DEL asynq:{q}:t:a").await;
        assert_eq!(waiting.await.unwrap(), Finished::Gone);
    });
}

async fn canceled(handle: &TaskHandle) -> Canceled {
    handle.cancel("the shop").await.unwrap()
}

#[tokio::test]
async fn a_task_is_canceled_for_good_in_whatever_state_it_is() {
    let fixture = Fixture::start().await;
    let (client, events) = (fixture.client(), Events::default());
    let handle = client.enqueue_to_wait(job("pending")).await.unwrap();
    assert_eq!(canceled(&handle).await, Canceled::Archived(Change::Applied));
    assert!(matches!(handle.wait(PATIENCE).await.unwrap(), Finished::Archived(_)));
    assert_eq!(canceled(&handle).await, Canceled::Archived(Change::AlreadyThere));
    assert_eq!(canceled(&client.handle("q", "nobody")).await, Canceled::Archived(Change::Gone));
    // It was put into the archive, and its batch told that it had died.
    fixture.put_in(TaskState::Completed, job("completed")).await;
    assert_eq!(canceled(&client.handle("q", "completed")).await, Canceled::Archived(Change::MovedOn));
    let spared = fixture.broker.delete_tasks("q", Seen::Uncompleted, &["completed"]).await.unwrap();
    assert_eq!(spared, [Change::MovedOn]);
    fixture.in_state("completed", TaskState::Completed).await;
    let hang = with(&events, async |events: Events, job: Job| {
        events.tell(job.id());
        job.cancellation().cancelled().await;
        Err::<(), Failure>("interrupted".into())
    });
    let server = fixture.server(Router::new(()).route("job", hang)).start().await.unwrap();
    let handle = client.enqueue_to_wait(job("active")).await.unwrap();
    events.wait(1).await;
    assert_eq!(canceled(&handle).await, Canceled::Asked(1));
    let Finished::Archived(task) = handle.wait(PATIENCE).await.unwrap() else { panic!() };
    assert_eq!(task.last_error.as_deref(), Some("canceled by the shop"));
    server.shutdown().await;
}

/// It was not looked at again after the first error.
#[tokio::test]
async fn a_change_is_told_although_redis_has_refused_to_tell_of_one_before() {
    let fixture = Fixture::start().await;
    let handle = fixture.client().enqueue_to_wait(job("a")).await.unwrap();
    let mut changes = handle.changes();
    assert_eq!(changes.next().await.unwrap().unwrap().state, Some(TaskState::Pending));
    fixture.run("ACL SETUSER default -hmget").await;
    fixture.run("HSET asynq:{q}:t:a x 1").await;
    let error = changes.next().await.unwrap_err();
    assert!(error.to_string().contains("hmget"), "{error}");
    fixture.run("ACL SETUSER default +hmget").await;
    fixture.run("HSET asynq:{q}:t:a state completed").await;
    let told = async {
        loop {
            if let Ok(Some(look)) = changes.next().await {
                return look.state;
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, told).await.expect("it is told"), Some(TaskState::Completed));
}

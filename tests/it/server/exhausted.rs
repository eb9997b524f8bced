//! What follows when a server archives a task, whoever dies meanwhile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_core::crash::Crashes;
use queue_core::exhausted::{Exhausted, FollowUp};
use queue_core::limit::{Limit, LimitKey};
use queue_core::{Clock as _, RawTask, RetryPolicy, Step, SystemClock, TaskMessage, TaskState};
use queue_redis::Client;
use queue_redis::broker::{Recovery, Report, Verdict};
use queue_redis::flow::Flows;
use queue_worker::{Failure, Job, Router, Server};

use crate::support::{Events, Fixture, QUEUE, eventually, job, report, with};

const OPS: &str = "ops";

fn fragile(id: &str) -> RawTask {
    job(id).on_exhausted("alert").on_exhausted_queue(OPS)
}

/// What a follow-up tells of the task that it follows.
fn told(payload: &[u8]) -> String {
    let Exhausted { queue, id, task_type, error, .. } = serde_json::from_slice(payload).unwrap();
    format!("{task_type} {id} of {queue}: {error}")
}

/// A handler that fails for good, and one for alerts, which tells whose it is.
fn router(events: &Events) -> Router {
    let tell = async |events: Events, job: Job| events.tell(told(job.payload()));
    Router::new(()).route("job", async |_: Job| Err::<(), Failure>("boom".into())).route("alert", with(events, tell))
}

/// The tasks that wait in a queue.
async fn waiting(fixture: &Fixture, queue: &str) -> Vec<TaskMessage> {
    let ids: Vec<String> = fixture.cmd(&["LRANGE", &format!("asynq:{{{queue}}}:pending"), "0", "-1"]).await;
    let mut tasks = Vec::new();
    for id in ids {
        let raw: Vec<u8> = fixture.cmd(&["HGET", &format!("asynq:{{{queue}}}:t:{id}"), "msg"]).await;
        tasks.push(TaskMessage::from_bytes(raw.into()).unwrap());
    }
    tasks
}

async fn nothing_is_left_to_be_told(fixture: &Fixture) -> bool {
    fixture.keyspace().await.paths_with("outcome").is_empty()
}

#[tokio::test]
async fn a_task_that_is_archived_is_followed_once_each_time() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let server = fixture.server(router(&events)).queues([(QUEUE, 1), (OPS, 1)]).start().await.unwrap();
    let twice = fragile("a").max_retry(1).backoff(RetryPolicy::Fixed(Duration::ZERO));
    fixture.enqueue([twice, job("plain").max_retry(0)]).await;
    assert_eq!(events.wait(1).await, ["job a of q: boom"]);
    fixture.in_state("plain", TaskState::Archived).await;
    fixture.inspector().run_task(QUEUE, "a").await.unwrap();
    assert_eq!(events.wait(2).await, ["job a of q: boom"; 2]);
    eventually("nothing is left to be told", async || nothing_is_left_to_be_told(&fixture).await).await;
    server.shutdown().await;
    assert_eq!(events.count(), 2);
}

/// Given back before, it was still in use: the next task of the lane waited for the next look, two seconds later.
#[tokio::test]
async fn the_slot_of_a_task_that_is_followed_is_given_back_behind_its_report() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    fixture.inspector().set_limit(QUEUE, Limit::new("one", LimitKey::Type).concurrency(1)).await.unwrap();
    let redis = fixture.another_redis();
    let calls: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let seen = calls.clone();
    redis.on_call(move |call| seen.lock().unwrap().push(call.operation));
    let server = Server::new(redis, router(&events)).queues([(QUEUE, 1)]).start().await.unwrap();
    fixture.enqueue([fragile("a").max_retry(0)]).await;
    let order = || {
        let calls = calls.lock().unwrap();
        calls.iter().copied().filter(|call| ["archive", "free_slots"].contains(call)).collect::<Vec<_>>()
    };
    eventually("the slot is given back", async || order().contains(&"free_slots")).await;
    server.shutdown().await;
    assert_eq!(order(), ["archive", "free_slots"]);
}

#[tokio::test]
async fn what_somebody_cancels_or_archives_is_not_followed() {
    let (fixture, hooked) = (Fixture::start().await, Events::<String>::default());
    let hang = async |job: Job| {
        job.cancellation().cancelled().await;
        Err::<(), Failure>("stopped".into())
    };
    let router = Router::new(()).route("job", hang);
    let hook = hooked.clone();
    let server = fixture.server(router).on_exhausted(move |task| hook.tell(&*task.id)).start().await.unwrap();
    fixture.enqueue([fragile("runs"), fragile("waits").process_in(Duration::from_secs(600))]).await;
    fixture.in_state("runs", TaskState::Active).await;
    for id in ["runs", "waits"] {
        fixture.inspector().cancel_for_good(QUEUE, id, "me").await.unwrap();
        fixture.in_state(id, TaskState::Archived).await;
    }
    server.shutdown().await;
    assert_eq!(waiting(&fixture, OPS).await, []);
    assert!(nothing_is_left_to_be_told(&fixture).await);
    assert_eq!(hooked.count(), 0);
}

/// A task with a follow-up in hand, and the report that archives it, by a process that records nothing.
async fn to_be_archived(fixture: &Fixture) -> (Report, TaskMessage) {
    fixture.enqueue([fragile("a")]).await;
    let delivery = fixture.take().await;
    let message = TaskMessage { error_msg: "boom".to_owned(), ..delivery.message.clone() };
    let follow_up = FollowUp::of(&message, SystemClock.now_secs()).map(Box::new);
    assert!(follow_up.is_some());
    (Report { follow_up, ..report(&delivery) }, message)
}

fn long_ago() -> i64 {
    SystemClock.now_secs() - 60
}

/// Looks after the queue as the leader does.
async fn tend(fixture: &Fixture) {
    Flows::new(fixture.broker.clone(), Arc::new(SystemClock)).tend_queue(QUEUE).await.unwrap();
}

/// Between any two of these steps a process may be killed.
#[tokio::test]
async fn a_process_that_dies_half_way_neither_loses_nor_doubles_what_follows() {
    let fixture = Fixture::start().await;
    let (report, message) = to_be_archived(&fixture).await;
    let is_asked = async || fixture.cmd::<Option<f64>>(&["ZSCORE", "asynq:x:duties", "members q"]).await.is_some();
    assert!(!is_asked().await);
    assert_eq!(fixture.broker.archive(&report, &message.to_bytes(), long_ago()).await.unwrap(), Verdict::Applied);
    assert!(is_asked().await, "the leader looks after the queue");
    assert_eq!(waiting(&fixture, OPS).await, []);
    // The answer was lost, and the report is sent again.
    let again = fixture.broker.archive(&report, &message.to_bytes(), long_ago()).await.unwrap();
    assert_eq!(again, Verdict::AlreadyApplied);
    let lists: Vec<String> = fixture.cmd(&["SMEMBERS", "asynq:{q}:x:outcome-lists"]).await;
    let entries: Vec<String> = fixture.cmd(&["LRANGE", &lists[0], "0", "-1"]).await;
    assert_eq!((lists.len(), entries.len()), (1, 1));
    tend(&fixture).await;
    let stored = waiting(&fixture, OPS).await;
    assert_eq!((stored.len(), &*stored[0].r#type), (1, "alert"));
    assert_eq!(told(&stored[0].payload), "job a of q: boom");
    assert!(nothing_is_left_to_be_told(&fixture).await);
    let queues: Vec<String> = fixture.cmd(&["SMEMBERS", "asynq:queues"]).await;
    assert!(queues.contains(&OPS.to_owned()), "{queues:?}");
    // Whoever stored it died before it was struck off; the second time it has run and is gone.
    for left in [1, 0] {
        let _: i64 = fixture.cmd(&["RPUSH", &lists[0], &entries[0]]).await;
        let _: i64 = fixture.cmd(&["SADD", "asynq:{q}:x:outcome-lists", &lists[0]]).await;
        tend(&fixture).await;
        assert_eq!(waiting(&fixture, OPS).await.len(), left);
        assert!(nothing_is_left_to_be_told(&fixture).await);
        fixture.run(&format!("DEL asynq:{{ops}}:t:{} asynq:{{ops}}:pending", stored[0].id)).await;
    }
}

#[tokio::test]
async fn nothing_follows_a_report_that_is_refused() {
    let fixture = Fixture::start().await;
    let (report, message) = to_be_archived(&fixture).await;
    fixture.run("DEL asynq:{q}:lease").await;
    assert_eq!(fixture.broker.archive(&report, &message.to_bytes(), long_ago()).await.unwrap(), Verdict::Lost);
    tend(&fixture).await;
    assert_eq!(waiting(&fixture, OPS).await, []);
    assert!(nothing_is_left_to_be_told(&fixture).await);
}

#[tokio::test]
async fn a_recoverer_says_what_follows_each_of_many_tasks() {
    let fixture = Fixture::start().await;
    fixture.enqueue([fragile("a"), job("b"), fragile("c"), fragile("again")]).await;
    for _ in 0..4 {
        fixture.take().await;
    }
    let leases = fixture.broker.list_expired(QUEUE, i64::MAX >> 10, 0).await.unwrap().leases;
    assert_eq!(leases.len(), 4);
    let recoveries = leases.into_iter().map(|lease| {
        let message = lease.message.clone().unwrap();
        let step = match &*message.id {
            "again" => Step::Retry { message, at: long_ago(), is_failure: true },
            _ => Step::Archive { message },
        };
        Recovery::new(lease, step, Crashes::default(), long_ago())
    });
    let recoveries: Vec<_> = recoveries.collect();
    let verdicts = fixture.broker.recover(QUEUE, &recoveries, 0, long_ago()).await.unwrap();
    assert_eq!(verdicts, [Verdict::Applied; 4]);
    tend(&fixture).await;
    let mut followed: Vec<String> = waiting(&fixture, OPS).await.iter().map(|task| told(&task.payload)).collect();
    followed.sort();
    assert_eq!(followed, ["job a of q: ", "job c of q: "]);
}

#[tokio::test]
async fn a_task_that_loses_its_worker_for_the_last_time_is_followed_and_told_to_the_hook() {
    let (fixture, events, hooked) = (Fixture::start().await, Events::default(), Events::<String>::default());
    fixture.enqueue([fragile("a").max_crashes(0)]).await;
    fixture.take().await;
    fixture.expire_leases().await;
    let hook = hooked.clone();
    let hook = move |task: &Exhausted| hook.tell(format!("{}: {}", task.id, task.error));
    let server = fixture.server(router(&events)).queues([(QUEUE, 1), (OPS, 1)]).on_exhausted(hook);
    let server = server.start().await.unwrap();
    let expected = "task lease expired; given up after 1 crashes";
    let told = events.wait(1).await;
    assert!(told[0].starts_with("job a of q: ") && told[0].contains(expected), "{told:?}");
    let told = hooked.wait(1).await;
    assert!(told[0].starts_with("a: ") && told[0].contains(expected), "{told:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn the_hook_hears_of_what_is_given_up_only_and_may_panic() {
    let (fixture, hooked) = (Fixture::start().await, Events::<String>::default());
    let hook = hooked.clone();
    let hook = move |task: &Exhausted| {
        hook.tell(format!(
            "{} {} of {}: {}, {} retries",
            task.task_type, task.id, task.queue, task.error, task.retried
        ));
        assert_ne!(task.id, "panics", "oh");
    };
    let router = router(&Events::default())
        .route("ok", async |_: Job| {})
        .route("no", async |_: Job| Err::<(), Failure>(Failure::archive("no use")));
    let server = fixture.server(router).concurrency(1).on_exhausted(hook).start().await.unwrap();
    let of = |task_type: &str| RawTask { task_type: task_type.to_owned(), ..job(task_type) };
    fixture.enqueue([job("again"), of("ok"), job("panics").max_retry(0), of("no")]).await;
    fixture.in_state("no", TaskState::Archived).await;
    fixture.in_state("panics", TaskState::Archived).await;
    fixture.in_state("again", TaskState::Retry).await;
    server.shutdown().await;
    assert_eq!(hooked.all(), ["job panics of q: boom, 0 retries", "no no of q: no use, 0 retries"]);
}

/// It tells its batch, and is followed.
#[tokio::test]
async fn a_member_of_a_batch_may_be_followed_too() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let server = fixture.server(router(&events)).queues([(QUEUE, 1), (OPS, 1)]).start().await.unwrap();
    let member = RawTask::new("job").queue(QUEUE).max_retry(0).on_exhausted("alert");
    let batch = Client::new(fixture.redis()).batch().add_all([member]).await.unwrap();
    let told = events.wait(1).await;
    assert!(told[0].starts_with("job flow:"), "{told:?}");
    assert_eq!(batch.wait(Duration::from_secs(60)).await.unwrap().dead, 1);
    server.shutdown().await;
}

/// The follow-up stays where it is written down, and does not keep outcomes of batches from being recorded.
#[tokio::test]
async fn a_follow_up_that_redis_refuses_waits_and_holds_up_nothing() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    fixture.run("SET asynq:{ops}:pending stray").await;
    let server = fixture.server(router(&events)).start().await.unwrap();
    fixture.enqueue([fragile("a").max_retry(0)]).await;
    fixture.in_state("a", TaskState::Archived).await;
    let member = RawTask::new("job").queue(QUEUE).max_retry(0);
    let batch = fixture.client().batch().add_all([member]).await.unwrap();
    assert_eq!(batch.wait(Duration::from_secs(60)).await.unwrap().dead, 1);
    server.shutdown().await;
    let lists: Vec<String> = fixture.cmd(&["SMEMBERS", "asynq:{q}:x:outcome-lists"]).await;
    let entries: Vec<String> = fixture.cmd(&["LRANGE", &lists[0], "0", "-1"]).await;
    assert_eq!(entries.len(), 1);
    // As if it had been written down a minute ago.
    let old = entries[0].split_once(' ').map(|(_, told)| format!("{}.0 {told}", long_ago())).unwrap();
    let _: () = fixture.cmd(&["LSET", &lists[0], "0", &old]).await;
    let _: i64 = fixture.cmd(&["RPUSH", &lists[0], &old.replace(OPS, "fine")]).await;
    for _ in 0..2 {
        tend(&fixture).await;
        assert_eq!(waiting(&fixture, "fine").await.len(), 1);
        let left: Vec<String> = fixture.cmd(&["LRANGE", &lists[0], "0", "-1"]).await;
        assert_eq!(left.join("\n"), old);
    }
    fixture.run("DEL asynq:{ops}:pending").await;
    tend(&fixture).await;
    assert_eq!(waiting(&fixture, OPS).await.len(), 1);
    assert!(nothing_is_left_to_be_told(&fixture).await);
}

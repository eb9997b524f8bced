//! Whoever performs a transition may die right after it. For each: the step is taken by hand, nobody
//! goes on, and a server that starts afterwards brings the task to its proper end.

use std::sync::Arc;
use std::time::Duration;

use queue_core::outcome::{Failure, Outcome, Step, next_step};
use queue_core::{Clock as _, RawTask, RetryPolicy, SystemClock, TaskState};
use queue_redis::broker::{Completion, Delivery, Dequeued, Taken, Verdict};
use queue_worker::{Handle, Job, Output, Router};

use crate::support::{Events, Fixture, QUEUE, eventually, job, recovered, report, with};

const HOUR: Duration = Duration::from_secs(3_600);
const AT_ONCE: RetryPolicy = RetryPolicy::Fixed(Duration::ZERO);

/// A server that tells id and retries of each task; the result is `again`.
async fn serve(fixture: &Fixture, events: &Events) -> Handle {
    let work = with(events, async |events: Events, job: Job| {
        events.tell(format!("{} {}", job.id(), job.retried()));
        Output("again")
    });
    fixture.server(Router::new(()).route("job", work)).retry_policy(AT_ONCE).start().await.unwrap()
}

async fn take(fixture: &Fixture) -> Delivery {
    let token: Arc<str> = "abandoned".into();
    let expires = SystemClock.now_secs() + 30;
    match fixture.broker.dequeue(&QUEUE.into(), 1, &token, expires).await.unwrap() {
        Dequeued::Tasks(mut tasks) => match tasks.pop() {
            Some(Taken::Task(delivery)) => delivery,
            other => panic!("took {other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

async fn taken(fixture: &Fixture, task: RawTask) -> Delivery {
    fixture.enqueue([task]).await;
    take(fixture).await
}

/// Ends a run as a server does.
async fn end(fixture: &Fixture, delivery: &Delivery, outcome: Outcome) -> Verdict {
    let (broker, now) = (&fixture.broker, SystemClock.now_secs());
    let report = report(delivery);
    match next_step(&delivery.message, outcome, now, &AT_ONCE) {
        Step::Done => broker.done(QUEUE, &[report], now).await.unwrap()[0],
        Step::Revoke => broker.revoke(&report, now).await.unwrap(),
        Step::Complete { message, expires_at, result } => {
            broker.complete(QUEUE, &[Completion { report, message, expires_at, result }], now).await.unwrap()[0]
        }
        Step::Retry { message, at, is_failure } => {
            broker.retry(&report, &message.to_bytes(), at, is_failure, now).await.unwrap()
        }
        Step::Archive { message } => broker.archive(&report, &message.to_bytes(), now).await.unwrap(),
        Step::Requeue => broker.requeue(&report, SystemClock.now_ns()).await.unwrap(),
    }
}

fn failed() -> Outcome {
    Outcome::Failed("boom".into())
}

/// Starts a server, waits for one run and the task's end, and checks that nothing else is left.
async fn runs_to_its_end(fixture: &Fixture, run: &str) {
    let events = Events::default();
    let server = serve(fixture, &events).await;
    assert_eq!(events.wait(1).await, [run]);
    fixture.gone("a").await;
    server.shutdown().await;
    assert_eq!(events.all(), [run]);
    let left = fixture.keyspace().await;
    assert_eq!(left.paths_with("a"), Vec::<String>::new(), "{left}");
}

/// Starts a server, waits until it has forwarded, recovered and deleted something else, and checks that
/// it left the task alone.
async fn stays_as_it_is(fixture: &Fixture) {
    let before = fixture.keyspace().await.about("a");
    taken(fixture, job("lost")).await;
    fixture.expire_leases().await;
    fixture.enqueue([job("due").process_in(Duration::from_millis(1))]).await;
    fixture.run("HSET asynq:{q}:t:old msg m state completed").await;
    fixture.run("ZADD asynq:{q}:completed 1 old").await;
    let events = Events::default();
    let server = serve(fixture, &events).await;
    let mut ran = events.wait(2).await;
    ran.sort();
    assert_eq!(ran, ["due 0", "lost 0"]);
    fixture.gone("old").await;
    server.shutdown().await;
    fixture.keyspace().await.about("a").assert_unchanged_since(&before);
}

#[tokio::test]
async fn a_server_goes_on_after_enqueue() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a").unique(HOUR)]).await;
    runs_to_its_end(&fixture, "a 0").await;
}

#[tokio::test]
async fn a_server_goes_on_after_schedule() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a").unique(HOUR).process_in(Duration::from_secs(1))]).await;
    runs_to_its_end(&fixture, "a 0").await;
}

#[tokio::test]
async fn a_server_goes_on_after_add_to_group() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a").unique(HOUR).group("g")]).await;
    // It waits for an aggregator, and no server without one touches it.
    stays_as_it_is(&fixture).await;
}

#[tokio::test]
async fn a_server_goes_on_after_dequeue() {
    let fixture = Fixture::start().await;
    taken(&fixture, job("a").unique(HOUR)).await;
    fixture.expire_leases().await;
    runs_to_its_end(&fixture, "a 0").await;
}

#[tokio::test]
async fn a_server_goes_on_after_dequeue_matching() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a").unique(HOUR)]).await;
    let matching =
        queue_redis::broker::Matching { types: vec!["job".into()], ids: vec!["a".into()], ..Default::default() };
    let expires = SystemClock.now_secs() + 30;
    fixture.broker.dequeue_matching(&QUEUE.into(), 1, &"abandoned".into(), expires, &matching).await.unwrap();
    fixture.expire_leases().await;
    runs_to_its_end(&fixture, "a 0").await;
}

#[tokio::test]
async fn a_server_goes_on_after_extend_lease() {
    let fixture = Fixture::start().await;
    let task = taken(&fixture, job("a").unique(HOUR)).await;
    let mut connection = fixture.redis().pooled().await.unwrap();
    let expires = SystemClock.now_secs() + 60;
    assert_eq!(
        fixture.broker.extend_lease(&mut connection, QUEUE, &[task.run], expires).await.unwrap(),
        [Verdict::Applied]
    );
    fixture.expire_leases().await;
    runs_to_its_end(&fixture, "a 0").await;
}

#[tokio::test]
async fn a_server_goes_on_after_write_result() {
    let fixture = Fixture::start().await;
    let task = taken(&fixture, job("a").retention(HOUR)).await;
    assert_eq!(fixture.broker.write_result(&task.run, b"half").await.unwrap(), Verdict::Applied);
    fixture.expire_leases().await;
    let server = serve(&fixture, &Events::default()).await;
    let info = fixture.in_state("a", TaskState::Completed).await;
    assert_eq!(info.result.as_deref(), Some(&b"\"again\""[..]));
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_goes_on_after_retry() {
    let fixture = Fixture::start().await;
    let task = taken(&fixture, job("a").unique(HOUR)).await;
    assert_eq!(end(&fixture, &task, failed()).await, Verdict::Applied);
    runs_to_its_end(&fixture, "a 1").await;
}

#[tokio::test]
async fn a_server_goes_on_after_snooze() {
    let fixture = Fixture::start().await;
    let task = taken(&fixture, job("a").unique(HOUR)).await;
    let snooze = Outcome::Failed(Failure::snooze(Duration::ZERO, "busy"));
    assert_eq!(end(&fixture, &task, snooze).await, Verdict::Applied);
    runs_to_its_end(&fixture, "a 0").await;
}

#[tokio::test]
async fn a_server_goes_on_after_forward() {
    let fixture = Fixture::start().await;
    let task = taken(&fixture, job("a").unique(HOUR)).await;
    end(&fixture, &task, failed()).await;
    assert_eq!(fixture.broker.forward(QUEUE, TaskState::Retry, SystemClock.now_ns(), 0).await.unwrap().moved, 1);
    runs_to_its_end(&fixture, "a 1").await;
}

#[tokio::test]
async fn a_server_goes_on_after_requeue() {
    let fixture = Fixture::start().await;
    let task = taken(&fixture, job("a").unique(HOUR)).await;
    assert_eq!(end(&fixture, &task, Outcome::Aborted).await, Verdict::Applied);
    runs_to_its_end(&fixture, "a 0").await;
}

#[tokio::test]
async fn a_server_goes_on_after_requeue_run() {
    let fixture = Fixture::start().await;
    let task = taken(&fixture, job("a").unique(HOUR)).await;
    assert_eq!(
        fixture.broker.requeue_run(QUEUE, "abandoned", task.run.leased_until(), SystemClock.now_ns()).await.unwrap(),
        1
    );
    runs_to_its_end(&fixture, "a 0").await;
}

#[tokio::test]
async fn a_server_goes_on_after_list_expired() {
    let fixture = Fixture::start().await;
    taken(&fixture, job("a").unique(HOUR)).await;
    fixture.expire_leases().await;
    let expired = fixture.broker.list_expired(QUEUE, SystemClock.now_secs(), 0).await.unwrap().leases;
    assert_eq!(expired.len(), 1);
    runs_to_its_end(&fixture, "a 0").await;
    // Had the first recoverer only been slow, it would come too late now.
    let message = expired[0].message.clone().unwrap();
    assert_eq!(recovered(&fixture.broker, &expired[0], message, Some(1), 1).await, Verdict::Gone);
}

#[tokio::test]
async fn a_server_goes_on_after_archive() {
    let fixture = Fixture::start().await;
    let task = taken(&fixture, job("a").max_retry(0)).await;
    assert_eq!(end(&fixture, &task, failed()).await, Verdict::Applied);
    stays_as_it_is(&fixture).await;
}

#[tokio::test]
async fn a_server_goes_on_after_complete() {
    let fixture = Fixture::start().await;
    let task = taken(&fixture, job("a").retention(Duration::from_secs(1))).await;
    assert_eq!(end(&fixture, &task, Outcome::Done(Some("r".into()))).await, Verdict::Applied);
    // So that the first look of the server finds it expired.
    eventually("the retention has ended", async || {
        let expires: i64 = fixture.cmd(&["ZSCORE", "asynq:{q}:completed", "a"]).await;
        SystemClock.now_secs() >= expires
    })
    .await;
    let server = serve(&fixture, &Events::default()).await;
    fixture.gone("a").await;
    server.shutdown().await;
    assert_eq!(fixture.keyspace().await.paths_with("a"), Vec::<String>::new());
}

#[tokio::test]
async fn a_server_goes_on_after_done() {
    let fixture = Fixture::start().await;
    let task = taken(&fixture, job("a").unique(HOUR)).await;
    assert_eq!(end(&fixture, &task, Outcome::Done(None)).await, Verdict::Applied);
    stays_as_it_is(&fixture).await;
}

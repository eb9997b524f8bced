//! The loops that hear what others want, and tell what happens.

use queue_core::event::Wanted;
use queue_core::registry::{Mode, Order};
use queue_redis::broker::Ordered;

use super::super::telling::now;
use super::*;

impl Parts {
    async fn order(&self, server: &str, order: &Order, revision: &str) {
        self.broker.order(Ordered::Server(server), Some(order), revision, "ann", NOW * 1_000).await.unwrap();
    }

    /// Somebody listens for so long.
    async fn listen(&self, span: Duration) {
        let mut wanted = Wanted::default();
        wanted.until = NOW * 1_000 + span.as_millis() as i64;
        self.cmd::<()>(&format!("HSET asynq:x:watchers ann {}", wanted.to_json())).await;
    }
}

#[tokio::test]
async fn canceler_stops_what_is_to_end_and_remembers_it_for_those_that_come() {
    let parts = Parts::new().await;
    let job = parts.job().await;
    let mut watcher = parts.cancel_watcher();
    watcher.run_once().await.unwrap();
    assert_eq!((job.cancel_reason(), watcher.cancels.by(&job)), (None, None));
    parts.broker.request_cancel("q", "a", "ann", NOW * 1_000).await.unwrap();
    watcher.run_once().await.unwrap();
    assert_eq!(job.cancel_reason(), Some(CancelReason::Canceled));
    assert_eq!(watcher.cancels.by(&job).as_deref(), Some("ann"));
}

#[tokio::test]
async fn subscriber_hears_cancelations_and_changes() {
    let parts = Parts::new().await;
    let job = parts.job().await;
    let mut subscriber = parts.subscriber();
    subscriber.run_once().await.unwrap();
    assert!(parts.wakeups.watch().is_some());
    assert!(parts.wakeups.work.take().everywhere, "nobody listened before");
    let listening = tokio::spawn(async move { subscriber.wait(Duration::ZERO).await });
    assert_eq!(parts.broker.cancel("a").await.unwrap(), 1);
    job.cancellation().cancelled().await;
    assert_eq!(job.cancel_reason(), Some(CancelReason::Canceled));
    parts.cmd::<u64>("CLIENT KILL TYPE pubsub").await;
    listening.await.unwrap();
    assert!(parts.wakeups.watch().is_none(), "nobody listens any more");
}

#[tokio::test]
async fn steering_goes_by_what_operators_want_and_says_so() {
    let parts = Parts::new().await;
    let (shared, _) = shared(&parts);
    let stop = CancellationToken::new();
    let mut steering = Steering::new(shared.clone(), parts.heartbeater(), stop.clone());
    steering.run_once().await.unwrap();
    let server = parts.identity.name();
    let entry = parts.broker.server_entry(&server).await.unwrap().unwrap();
    assert!(entry.applied.is_empty() && !parts.queues.are_held());

    let quiet = Order { mode: Some(Mode::Quiet), concurrency: Some(2), ..Order::default() };
    parts.order(&server, &quiet, "1").await;
    steering.run_once().await.unwrap();
    assert_eq!((parts.queues.are_held(), shared.slots.total(), stop.is_cancelled()), (true, 2, false));
    assert_eq!(parts.broker.server_entry(&server).await.unwrap().unwrap().applied, BTreeSet::from(["1".to_owned()]));

    parts.order(&server, &Order { mode: Some(Mode::Stop), ..Order::default() }, "2").await;
    steering.run_once().await.unwrap();
    assert!(stop.is_cancelled());
}

#[tokio::test]
async fn joiner_takes_from_a_queue_of_the_family_once_it_is_listed() {
    let parts = Parts::new().await;
    let joins = Joins { priorities: Some(Priorities::Weighted), ..Joins::default() };
    let queues = Arc::new(Queues::joining(&[("q".to_owned(), 1)], false, &BTreeMap::new(), joins));
    let mut joiner = parts.joiner(&queues);
    parts.enqueue(RawTask::new("job").priority(9)).await;
    assert_eq!(queues.count(), 1);
    joiner.run_once().await.unwrap();
    assert!(queues.names().map(|name| &**name).eq(["q", "q}p9"]));
    parts.enqueue(RawTask::new("job").priority(9)).await;
    joiner.run_once().await.unwrap();
    assert_eq!(queues.count(), 2);
}

#[tokio::test]
async fn audience_knows_who_listens_and_until_when() {
    let parts = Parts::new().await;
    let mut audience = parts.audience();
    audience.run_once().await.unwrap();
    assert!(!parts.broker.feed().is_heard());
    parts.listen(Duration::from_secs(5)).await;
    assert_eq!(audience.run_once().await.unwrap(), Duration::from_secs(5), "it looks again when they are gone");
    assert!(parts.broker.feed().is_heard());
    parts.pass(5);
    audience.run_once().await.unwrap();
    assert!(!parts.broker.feed().is_heard());
}

#[tokio::test]
async fn teller_writes_what_has_gathered_and_nothing_else() {
    let parts = Parts::new().await;
    let (mut audience, mut teller) = (parts.audience(), parts.teller());
    let tell = || parts.broker.feed().tell(|| queue_core::event::Event::new(Kind::ServerStarted, now(&parts.time)));
    tell();
    teller.run_once().await.unwrap();
    assert_eq!(parts.cmd::<u64>("XLEN asynq:x:events").await, 0, "nobody listens");
    parts.listen(Duration::from_secs(5)).await;
    audience.run_once().await.unwrap();
    tell();
    assert_eq!(parts.cmd::<u64>("XLEN asynq:x:events").await, 0);
    teller.run_once().await.unwrap();
    teller.run_once().await.unwrap();
    assert_eq!(parts.cmd::<u64>("XLEN asynq:x:events").await, 1);
}

/// Its token is made by the first who asks for it, which may be after that.
#[tokio::test]
async fn a_job_that_was_canceled_before_anybody_listened_is_canceled() {
    let parts = Parts::new().await;
    let job = parts.job().await;
    let other = job.clone();
    job.cancel(CancelReason::Canceled);
    assert!(job.cancellation().is_cancelled());
    assert!(other.cancellation().is_cancelled(), "it is the same for all");
}

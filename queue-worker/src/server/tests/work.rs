//! The loops that take, run and report.

use super::super::adaptive::Sign;
use super::*;

#[tokio::test]
async fn aggregator_starts_an_aggregation_for_a_group_that_is_quiet() {
    let parts = Parts::with(digesting()).await;
    for _ in 0..2 {
        parts.enqueue(RawTask::new("note").group("g")).await;
    }
    let mut aggregator = parts.aggregator();
    aggregator.run_once().await.unwrap();
    assert_eq!(parts.handlers.len(), 0);
    parts.pass(61);
    // What is ready, and when, was learned by the first look.
    aggregator.run_once().await.unwrap();
    parts.handlers.close();
    parts.handlers.wait().await;
    let digests = parts.inspector().tasks("q", TaskState::Pending, Page::default()).await.unwrap();
    assert_eq!((digests.len(), &*digests[0].task_type, &digests[0].payload[..]), (1, "digest", &b"2"[..]));
}

/// Three tasks of a server whose handlers have ended, nothing of which is written; and how often they ran.
async fn worked() -> (Parts, AckWriter, usize) {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let work = move |_: Job| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {}
    };
    let parts = Parts::with(Router::new(()).route("job", work)).await;
    for _ in 0..3 {
        parts.enqueue(RawTask::new("job")).await;
    }
    let (shared, writer) = shared(&parts);
    Processor { shared }.run_once().await.unwrap();
    parts.handlers.close();
    parts.handlers.wait().await;
    (parts, writer, ran.load(Ordering::SeqCst))
}

#[tokio::test]
async fn processor_starts_what_there_is() {
    let (parts, _, ran) = worked().await;
    assert_eq!((ran, parts.count(TaskState::Active).await), (3, 3), "nothing is written yet");
}

#[tokio::test]
async fn acks_writes_what_came_of_it() {
    let (parts, mut writer, _) = worked().await;
    writer.run_once().await.unwrap();
    assert_eq!((parts.count(TaskState::Active).await, parts.running.len()), (0, 0));
}

#[tokio::test]
async fn adapter_lets_more_run_when_all_slots_were_in_hand() {
    let parts = Parts::new().await;
    let (shared, _) = shared(&parts);
    shared.resize(2);
    let adaptive = shared.adaptive.as_ref().unwrap();
    let mut adapter = Adapter { shared: shared.clone() };
    adapter.run_once().await.unwrap();
    assert_eq!(shared.slots.total(), 2, "nothing has ended");
    (0..100).for_each(|_| adaptive.ended("job", Duration::from_millis(1), Sign::Succeeded, 2, 2));
    adapter.run_once().await.unwrap();
    assert_eq!(shared.slots.total(), 3);
}

#[tokio::test]
async fn recorder_notes_in_the_ledger_what_was_told() {
    let parts = Parts::new().await;
    let mut recorder = Recorder::new(parts.broker.clone(), parts.clock.clone());
    recorder.run_once().await.unwrap();
    let client = Client::with_clock(parts.server.redis(), parts.clock.clone());
    let batch = client.batch().id("b").add_all([RawTask::new("job").queue("q")]).await.unwrap();
    let delivery = parts.take().await;
    let step = queue_core::outcome::next_step(
        &delivery.message,
        queue_core::outcome::Outcome::Done(None),
        NOW,
        &RetryPolicy::Asynq,
    );
    let report = queue_redis::broker::Report::by_owner(delivery.run.clone(), &delivery.message, Default::default());
    parts.broker.apply(&[(&report, &step)], parts.time.now_ns()).await.unwrap();
    assert_eq!(batch.status().await.unwrap().succeeded, 0);
    recorder.run_once().await.unwrap();
    assert_eq!(batch.status().await.unwrap().succeeded, 1);
}

//! What Go's clients write and ours do not.

use queue_core::options::compose;
use queue_core::{Clock as _, RawTask, SystemClock, TaskOptions};
use queue_redis::{
    Redis,
    broker::{Broker, EnqueueVerdict},
};

/// Enqueues a task of a type that our clients refuse, as Go's stores it.
pub(crate) async fn enqueue_as_go(redis: Redis, task_type: &str, task: RawTask) {
    let mut composed = compose(task, TaskOptions::new(), SystemClock.now_ns()).unwrap();
    task_type.clone_into(&mut composed.message.r#type);
    let (broker, queue) = (Broker::new(redis), composed.message.queue.clone());
    broker.publish_queue(&queue).await.unwrap();
    let stored = broker.enqueue(&queue, &[composed], SystemClock.now_ns()).await.unwrap();
    assert_eq!(stored, [EnqueueVerdict::Stored]);
}

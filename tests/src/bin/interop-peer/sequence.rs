//! `interop-peer sequence`: the same steps as in Go, so that the keys can be compared.

use std::time::{Duration, UNIX_EPOCH};

use queue_core::outcome::{Failure, Outcome as Ended};
use queue_core::{Clock as _, RawTask, SystemClock, TaskState};
use queue_redis::EnqueueError;

use crate::Outcome;
use crate::steps::{HOUR, QUEUE, Steps, job};

const LOCK: Duration = Duration::from_secs(30 * 60);

pub(crate) async fn run(name: &str, url: &str) -> Outcome {
    let steps = Steps::on(url).await?;
    match name {
        "enqueue" => enqueue(&steps).await,
        "done" => done(steps).await,
        "complete" => complete(steps).await,
        "retry" => retry(steps).await,
        "archive" => archive(steps).await,
        "forward-scheduled" => forward_scheduled(&steps).await,
        "forward-retry" => forward_retry(steps).await,
        "requeue" => requeue(steps).await,
        "active" => active(steps).await,
        "aggregate" => aggregate(&steps).await,
        "janitor" => janitor(steps).await,
        "inspect" => inspect(&steps).await,
        _ => Err(format!("there is no sequence {name:?}").into()),
    }
}

fn failed(failure: Failure) -> Ended {
    Ended::Failed(failure)
}

async fn enqueue(steps: &Steps) -> Outcome {
    let plain = || job("plain").payload(r#"{"n":1}"#);
    let deadline = UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    let full = job("full").payload("f").max_retry(3).timeout(Duration::from_secs(90)).deadline(deadline);
    steps.put(plain()).await?;
    steps.put(job("bare")).await?;
    steps.put(full.retention(2 * HOUR).header("a", "1")).await?;
    steps.put(job("later").payload("l").process_in(HOUR)).await?;
    steps.put(job("unique").payload("u1").unique(LOCK)).await?;
    steps.put(job("unique-later").payload("u2").unique(LOCK).process_in(HOUR)).await?;
    steps.put(job("grouped").payload("g").group("g")).await?;
    steps.put(job("grouped-unique").payload("u3").group("g").unique(LOCK)).await?;
    steps.put(job("later-grouped").payload("lg").group("g").process_in(HOUR)).await?;
    steps.refused(plain(), |error| matches!(error, EnqueueError::TaskIdConflict { .. })).await?;
    let second = job("second").payload("u1").unique(LOCK);
    steps.refused(second, |error| matches!(error, EnqueueError::DuplicateTask { .. })).await
}

async fn done(mut steps: Steps) -> Outcome {
    steps.put(job("d1").payload("d").unique(LOCK)).await?;
    let taken = steps.take("d1").await?;
    steps.end(taken, Ended::Done(None)).await
}

async fn complete(mut steps: Steps) -> Outcome {
    steps.put(job("c1").payload("c").unique(LOCK).retention(2 * HOUR)).await?;
    let taken = steps.take("c1").await?;
    steps.write_result(&taken, "res").await?;
    steps.end(taken, Ended::Done(None)).await?;
    steps.put(job("c2").retention(2 * HOUR)).await?;
    let taken = steps.take("c2").await?;
    steps.end(taken, Ended::Done(None)).await
}

async fn retry(mut steps: Steps) -> Outcome {
    steps.put(job("r1").payload("r").unique(LOCK).header("a", "1")).await?;
    let taken = steps.take("r1").await?;
    steps.end(taken, failed(Failure::retry_in(HOUR, "boom"))).await?;
    steps.put(job("r2")).await?;
    let taken = steps.take("r2").await?;
    steps.end(taken, failed(Failure::snooze(HOUR, "soft"))).await
}

async fn archive(mut steps: Steps) -> Outcome {
    steps.put(job("a1").payload("a").max_retry(0).unique(LOCK)).await?;
    let taken = steps.take("a1").await?;
    steps.end(taken, failed("boom".into())).await?;
    steps.put(job("a2")).await?;
    let taken = steps.take("a2").await?;
    steps.end(taken, failed(Failure::archive("bad"))).await
}

async fn forward_scheduled(steps: &Steps) -> Outcome {
    steps.pause().await?;
    steps.put(job("f1").payload("f").process_in(Duration::from_secs(1))).await?;
    steps.forward(TaskState::Scheduled).await
}

async fn forward_retry(mut steps: Steps) -> Outcome {
    steps.put(job("f2").payload("f")).await?;
    let taken = steps.take("f2").await?;
    steps.pause().await?;
    steps.end(taken, failed(Failure::retry_in(Duration::ZERO, "again"))).await?;
    steps.forward(TaskState::Retry).await
}

async fn requeue(mut steps: Steps) -> Outcome {
    steps.put(job("q1")).await?;
    steps.put(job("q2")).await?;
    let taken = steps.take("q1").await?;
    steps.end(taken, Ended::Aborted).await
}

async fn active(mut steps: Steps) -> Outcome {
    steps.put(job("x1").payload("x").unique(LOCK)).await?;
    steps.take("x1").await.map(drop)
}

async fn aggregate(steps: &Steps) -> Outcome {
    for n in ["1", "2", "3"] {
        steps.put(job(&format!("g{n}")).payload(n).group("g")).await?;
    }
    steps.aggregate("g", 3, |payloads| RawTask::new("batch").payload(payloads.join(",")).task_id("agg")).await?;
    steps.pause().await
}

async fn janitor(mut steps: Steps) -> Outcome {
    steps.put(job("j1").retention(Duration::from_secs(1))).await?;
    let taken = steps.take("j1").await?;
    steps.end(taken, Ended::Done(None)).await?;
    steps.delete_expired(SystemClock.now_secs() + 1).await
}

async fn inspect(steps: &Steps) -> Outcome {
    steps.put(job("i1").process_in(HOUR)).await?;
    steps.put(job("i2")).await?;
    steps.put(job("i3").payload("i").unique(LOCK).process_in(HOUR)).await?;
    steps.put(job("i4")).await?;
    steps.put(job("i5").group("g")).await?;
    steps.put(job("i6").group("g2")).await?;
    steps.put(job("i7").payload("old").process_in(HOUR)).await?;
    steps.inspector.run_task(QUEUE, "i1").await?;
    steps.inspector.archive_task(QUEUE, "i2").await?;
    steps.inspector.delete_task(QUEUE, "i3").await?;
    steps.inspector.archive_task(QUEUE, "i4").await?;
    steps.inspector.run_task(QUEUE, "i4").await?;
    steps.inspector.run_task(QUEUE, "i5").await?;
    steps.inspector.archive_task(QUEUE, "i6").await?;
    steps.inspector.update_payload(QUEUE, "i7", "new").await?;
    steps.pause().await
}

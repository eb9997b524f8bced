//! One task through its handler.

use std::time::Duration;

use chrono::DateTime;
use queue_core::{Clock as _, RawTask};
use queue_testing::{End, RunInline, run_inline};
use queue_worker::{Failure, Headers, Job, RetryPolicy, Router, State, Task};
use serde::{Deserialize, Serialize};

use crate::Welcome;

#[tokio::test]
async fn a_task_runs_through_its_router() {
    let attempt = run_inline(Welcome { user: 7 }, Welcome::router()).await;
    attempt.assert_succeeded();
    assert_eq!(attempt.json(), "to 7");
    let attempt = run_inline(Welcome { user: 0 }, Welcome::router()).await;
    assert_eq!((attempt.end, attempt.error.as_deref()), (End::Retried, Some("no such user")));
}

#[tokio::test]
async fn extractors_get_what_they_ask_for_and_results_can_be_written() {
    #[derive(Clone)]
    struct Mailer(&'static str);
    let router = Router::new(Mailer("us")).task(
        async |task: Welcome, State(mailer): State<Mailer>, Headers(headers): Headers, job: Job| {
            assert!(job.write_result("half-way").await.unwrap());
            assert_eq!((mailer.0, headers["tenant"].as_str(), job.queue(), job.retried()), ("us", "a", "mail", 2));
            assert_eq!((task.user, job.deadline().timestamp()), (7, 2_000_001_800));
        },
    );
    let task = RawTask::new(Welcome::TYPE).payload(r#"{"user":7}"#).queue("mail").header("tenant", "a");
    let time = DateTime::from_timestamp(2_000_000_000, 0).unwrap();
    RunInline::new(task).retried(2).at(time).run(router).await.assert_succeeded();
}

#[tokio::test]
async fn the_last_attempt_archives() {
    let policy = RetryPolicy::Fixed(Duration::from_secs(60));
    let first = RunInline::new(Welcome { user: 0 }).retry_policy(policy).run(Welcome::router()).await;
    let in_a_minute = queue_core::SystemClock.now() + Duration::from_secs(60);
    assert!((in_a_minute - first.next.unwrap()).num_seconds().abs() < 30, "{first}");
    let last = RunInline::new(Welcome { user: 0 }).retried(2).run(Welcome::router()).await;
    assert_eq!((last.end, last.next), (End::Archived, None));
}

#[tokio::test]
async fn run_inline_ignores_time_group_and_uniqueness() {
    let task = || RawTask::new("t").group("g").unique(Duration::from_secs(60)).process_in(Duration::from_secs(60));
    let router = Router::new(()).route("t", async |_: Job| {});
    for _ in 0..2 {
        run_inline(task(), router.clone()).await.assert_succeeded();
    }
}

#[tokio::test]
async fn a_task_that_nobody_handles_fails() {
    let attempt = run_inline(RawTask::new("unknown"), Welcome::router()).await;
    assert_eq!(attempt.end, End::Retried);
    assert!(attempt.error.unwrap().contains("handler not found"));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_takes_no_time_when_tokios_is_paused() {
    #[derive(Serialize, Deserialize, Task)]
    #[task(type = "slow", timeout = "1h")]
    struct Slow;
    let router = Router::new(()).task(async |_: Slow| -> Result<(), Failure> {
        tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
        Ok(())
    });
    let attempt = run_inline(Slow, router).await;
    assert_eq!(attempt.error.as_deref(), Some("context deadline exceeded"));
}

use std::time::Duration;

use queue_core::{RawTask, TaskState};
use queue_metrics::WorkerMetrics;
use queue_worker::{Failure, Job, Router};

use super::{assert_samples, samples};
use crate::support::{Fixture, QUEUE, eventually, job};

fn of(task_type: &str, id: &str) -> RawTask {
    RawTask { task_type: task_type.to_owned(), ..job(id) }
}

#[tokio::test]
async fn a_workers_metrics_agree_with_what_its_tasks_came_to() {
    let fixture = Fixture::start().await;
    let metrics = WorkerMetrics::new();
    let redis = fixture.redis();
    metrics.watch_calls(&redis);
    fixture.enqueue((0..7).map(|number| of("done", &format!("d{number}")))).await;
    fixture.enqueue([of("fail", "f0"), of("fail", "f1"), of("fail", "f2").max_retry(0), of("nobody", "n0")]).await;
    fixture.enqueue([of("slow", "s0").timeout(Duration::from_secs(1)), of("long", "l0"), of("bad", "b0")]).await;
    fixture.run("HSET asynq:{q}:t:b0 msg rubbish").await;
    fixture.enqueue([of("done", "later").process_in(Duration::from_secs(1))]).await;
    let router = Router::new(())
        .route_exact("done", async |_: Job| {})
        .route_exact("fail", async |_: Job| Err::<(), Failure>("boom".into()))
        .route_exact("slow", async |_: Job| std::future::pending::<()>().await)
        .route_exact("long", async |_: Job| std::future::pending::<()>().await);
    let server = fixture.server(router).observe(metrics.observer()).shutdown_timeout(Duration::ZERO);
    let server = server.concurrency(20).start().await.unwrap();
    fixture.in_state("s0", TaskState::Retry).await;
    fixture.gone("later").await;
    eventually("all but one are reported", async || {
        let now = samples(&metrics.text());
        now["asynq_worker_reports_waiting"] == 0.0 && now["asynq_worker_report_tasks_sum{queue=\"q\"}"] == 13.0
    })
    .await;
    assert_samples(
        &metrics.text(),
        &[
            (r#"asynq_worker_in_flight{queue="q",type="long"}"#, 1.0),
            (r#"asynq_worker_in_flight{queue="q",type="done"}"#, 0.0),
            ("asynq_worker_slots", 20.0),
        ],
    );
    server.shutdown().await;
    let text = metrics.text();
    assert_samples(
        &text,
        &[
            (r#"asynq_worker_attempts_total{outcome="succeeded",queue="q",type="done"}"#, 8.0),
            (r#"asynq_worker_attempts_total{outcome="retried",queue="q",type="done"}"#, 0.0),
            (r#"asynq_worker_attempts_total{outcome="retried",queue="q",type="fail"}"#, 2.0),
            (r#"asynq_worker_attempts_total{outcome="archived",queue="q",type="fail"}"#, 1.0),
            (r#"asynq_worker_attempts_total{outcome="put_back",queue="q",type="nobody"}"#, 1.0),
            (r#"asynq_worker_attempts_total{outcome="retried",queue="q",type="slow"}"#, 1.0),
            (r#"asynq_worker_attempts_total{outcome="aborted",queue="q",type="long"}"#, 1.0),
            (r#"asynq_worker_interruptions_total{queue="q",reason="deadline"}"#, 1.0),
            (r#"asynq_worker_interruptions_total{queue="q",reason="shutdown"}"#, 1.0),
            (r#"asynq_worker_attempt_seconds_count{queue="q",type="done"}"#, 8.0),
            (r#"asynq_worker_attempt_seconds_bucket{queue="q",type="slow",le="0.5"}"#, 0.0),
            (r#"asynq_worker_attempt_seconds_count{queue="q",type="slow"}"#, 1.0),
            (r#"asynq_worker_wait_seconds_count{queue="q",type="done"}"#, 8.0),
            (r#"asynq_worker_start_delay_seconds_count{queue="q"}"#, 14.0),
            (r#"asynq_worker_take_tasks_sum{queue="q"}"#, 15.0),
            (r#"asynq_worker_report_tasks_sum{queue="q"}"#, 14.0),
            (r#"asynq_worker_reports_refused_total{queue="q"}"#, 0.0),
            (r#"asynq_worker_forwarded_total{queue="q"}"#, 1.0),
            (r#"asynq_worker_unreadable_total{queue="q"}"#, 1.0),
            (r#"asynq_worker_in_flight{queue="q",type="long"}"#, 0.0),
            ("asynq_worker_slots", 0.0),
            ("asynq_worker_reports_waiting", 0.0),
        ],
    );
    let samples = samples(&text);
    assert!(samples[r#"asynq_redis_call_seconds_count{operation="dequeue"}"#] >= 1.0);
    assert!(samples[r#"asynq_redis_call_seconds_count{operation="done"}"#] >= 1.0);
    assert!(!text.contains("asynq_redis_call_errors_total"), "{text}");
    // What Redis has counted: the two that were put back do not count.
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (8 + 3 + 1 + 1, 3 + 1 + 1));
}

#[tokio::test]
async fn the_wait_of_a_task_is_the_time_it_was_pending() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a")]).await;
    let long_ago = queue_core::Clock::now_ns(&queue_core::SystemClock) - 100_000_000_000;
    fixture.run(&format!("HSET asynq:{{q}}:t:a pending_since {long_ago}")).await;
    let metrics = WorkerMetrics::new();
    let router = Router::new(()).route("job", async |_: Job| {});
    let server = fixture.server(router).observe(metrics.observer()).start().await.unwrap();
    fixture.gone("a").await;
    server.shutdown().await;
    assert_samples(
        &metrics.text(),
        &[
            (r#"asynq_worker_wait_seconds_bucket{queue="q",type="job",le="60"}"#, 0.0),
            (r#"asynq_worker_wait_seconds_bucket{queue="q",type="job",le="300"}"#, 1.0),
        ],
    );
}

#[tokio::test]
async fn the_series_of_a_queue_that_a_server_has_joined_end_with_it() {
    let fixture = Fixture::start().await;
    let metrics = WorkerMetrics::new();
    let server = queue_worker::Server::new(fixture.redis(), Router::new(()).route("job", async |_: Job| {}));
    let server = server.queue_pattern("tenant:*", 1).observe(metrics.observer()).start().await.unwrap();
    fixture.enqueue(["a", "b"].map(|id| job(id).queue(format!("tenant:{id}")))).await;
    let counts =
        |queue: &str| metrics.text().contains(&format!("asynq_worker_report_tasks_sum{{queue=\"{queue}\"}} 1\n"));
    eventually("both ran", async || counts("tenant:a") && counts("tenant:b")).await;
    fixture.inspector().remove_queue("tenant:a", true).await.unwrap();
    eventually("one is forgotten", async || !metrics.text().contains("tenant:a")).await;
    assert!(counts("tenant:b"));
    fixture.enqueue([job("again").queue("tenant:a")]).await;
    eventually("it counts anew", async || counts("tenant:a")).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_recovery_and_a_lost_lease_count() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a")]).await;
    let metrics = WorkerMetrics::new();
    let router = Router::new(()).route("job", async |_: Job| std::future::pending::<()>().await);
    // With the shortest lease, renewals come soon and see that the task is another's.
    let server = fixture.server(router).observe(metrics.observer()).lease(Duration::from_secs(5));
    let server = server.start().await.unwrap();
    eventually("it runs", async || metrics.text().contains(r#"asynq_worker_in_flight{queue="q",type="job"} 1"#)).await;
    // It would run again at once.
    fixture.inspector().pause(QUEUE).await.unwrap();
    fixture.expire_leases().await;
    fixture.in_state("a", TaskState::Pending).await;
    eventually("the loss is noticed", async || metrics.text().contains(r#"reason="lease_lost"} 1"#)).await;
    server.shutdown().await;
    assert_samples(
        &metrics.text(),
        &[
            (r#"asynq_worker_recovered_total{outcome="retried",queue="q"}"#, 1.0),
            (r#"asynq_worker_attempts_total{outcome="lease_lost",queue="q",type="job"}"#, 1.0),
            ("asynq_worker_reports_waiting", 0.0),
        ],
    );
}

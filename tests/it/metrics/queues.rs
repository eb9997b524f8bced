use std::time::Duration;

use queue_core::limit::{Limit, LimitKey};
use queue_metrics::{QueueMetrics, text};
use queue_worker::{Job, Router};

use super::{assert_samples, samples};
use crate::support::{Events, Fixture, Lines, job, wait_for, with};

async fn scrape(fixture: &Fixture) -> String {
    text(&QueueMetrics::new(fixture.inspector()).gather().await)
}

#[tokio::test]
async fn an_empty_redis_shows_that_it_is_there() {
    let fixture = Fixture::start().await;
    let text = scrape(&fixture).await;
    assert_samples(&text, &[("asynq_redis_up", 1.0), ("asynq_server_slots", 0.0)]);
    assert!(!text.contains("queue="), "{text}");
}

#[tokio::test]
async fn a_scrape_shows_every_state_and_the_servers() {
    let fixture = Fixture::start().await;
    let started = Events::default();
    let work = with(&started, async |started: Events, job: Job| {
        started.tell(job.id());
        std::future::pending::<()>().await;
    });
    fixture.enqueue([job("busy")]).await;
    let server = fixture.server(Router::new(()).route("job", work)).shutdown_timeout(Duration::ZERO);
    let server = server.start().await.unwrap();
    started.wait(1).await;
    fixture.inspector().pause("q").await.unwrap();
    fixture.enqueue(["a", "b", "c"].map(job)).await;
    fixture.enqueue([job("later").process_in(Duration::from_secs(3_600)), job("g").group("g")]).await;
    for counter in ["processed", "failed"] {
        fixture.run(&format!("SET asynq:{{q}}:{counter} 9")).await;
    }
    let text = scrape(&fixture).await;
    assert_samples(
        &text,
        &[
            (r#"asynq_tasks_enqueued_total{queue="q",state="active"}"#, 1.0),
            (r#"asynq_tasks_enqueued_total{queue="q",state="pending"}"#, 3.0),
            (r#"asynq_tasks_enqueued_total{queue="q",state="scheduled"}"#, 1.0),
            (r#"asynq_tasks_enqueued_total{queue="q",state="retry"}"#, 0.0),
            (r#"asynq_tasks_enqueued_total{queue="q",state="archived"}"#, 0.0),
            (r#"asynq_tasks_enqueued_total{queue="q",state="completed"}"#, 0.0),
            (r#"asynq_queue_aggregating_tasks{queue="q"}"#, 1.0),
            (r#"asynq_queue_groups{queue="q"}"#, 1.0),
            (r#"asynq_queue_size{queue="q"}"#, 6.0),
            (r#"asynq_tasks_processed_total{queue="q"}"#, 9.0),
            (r#"asynq_tasks_failed_total{queue="q"}"#, 9.0),
            (r#"asynq_queue_paused_total{queue="q"}"#, 1.0),
            (r#"asynq_queue_up{queue="q"}"#, 1.0),
            (r#"asynq_queue_overdue_seconds{queue="q"}"#, 0.0),
            (r#"asynq_flow_oldest_outcome_seconds{queue="q"}"#, 0.0),
            (r#"asynq_servers{status="active"}"#, 1.0),
            ("asynq_server_slots", 4.0),
        ],
    );
    for line in ["# TYPE asynq_tasks_enqueued_total gauge", "# TYPE asynq_tasks_processed_total counter"] {
        assert!(text.lines().any(|other| other == line), "{line} in:\n{text}");
    }
    assert!(!text.contains(r#"state="aggregating""#), "boards of asynq's exporter add up the states");
    server.shutdown().await;
}

#[tokio::test]
async fn metrics_show_due_tasks_that_are_not_forwarded() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("later").process_in(Duration::from_secs(3_600))]).await;
    let long_ago = queue_core::Clock::now_secs(&queue_core::SystemClock) - 500;
    fixture.run(&format!("ZADD asynq:{{q}}:scheduled XX {long_ago} later")).await;
    let overdue = samples(&scrape(&fixture).await)[r#"asynq_queue_overdue_seconds{queue="q"}"#];
    assert!((500.0..600.0).contains(&overdue), "{overdue}");
}

#[tokio::test]
async fn a_queue_that_cannot_be_asked_takes_only_itself_off() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a"), job("b").queue("other"), job("c").queue("third")]).await;
    fixture.run("DEL asynq:{other}:pending").await;
    fixture.run("SET asynq:{other}:pending text").await;
    let (lines, _guard) = Lines::collect();
    let text = scrape(&fixture).await;
    let complaints: Vec<String> = lines.all().into_iter().filter(|line| line.contains("not all queues")).collect();
    assert!(complaints.len() == 1 && complaints[0].contains(r#"queue "other": "#), "{complaints:?}");
    assert_samples(
        &text,
        &[
            ("asynq_redis_up", 1.0),
            (r#"asynq_queue_up{queue="other"}"#, 0.0),
            (r#"asynq_queue_up{queue="q"}"#, 1.0),
            (r#"asynq_queue_up{queue="third"}"#, 1.0),
            (r#"asynq_tasks_enqueued_total{queue="third",state="pending"}"#, 1.0),
        ],
    );
    assert!(!text.contains(r#"asynq_queue_size{queue="other"}"#), "no made-up numbers: {text}");
}

/// With a thousand queues, and Redis 3 ms away, a scrape took longer than Prometheus waits. What Redis reads at once is a
/// round trip, or 16 KB of a large one.
#[tokio::test]
async fn all_queues_are_read_in_a_few_round_trips() {
    const QUEUES: usize = 60;
    let fixture = Fixture::start().await;
    for queue in (0..QUEUES).map(|n| format!("q{n}")) {
        let later = job("later").process_in(Duration::from_secs(3_600));
        fixture.enqueue([job("a"), later, job("g").group("g")].map(|task| task.queue(&queue))).await;
        let limit = Limit::new("api", LimitKey::Queue).concurrency(5);
        fixture.inspector().set_limit(&queue, limit).await.unwrap();
        let long_ago = queue_core::Clock::now_secs(&queue_core::SystemClock) - 500;
        fixture.run(&format!("SADD asynq:{{{queue}}}:x:outcome-lists asynq:{{{queue}}}:list")).await;
        fixture.run(&format!("RPUSH asynq:{{{queue}}}:list {long_ago}.1")).await;
    }
    let metrics = QueueMetrics::new(fixture.inspector());
    let reads = async || {
        let info: String = fixture.cmd(&["INFO", "stats"]).await;
        let line = info.lines().find_map(|line| line.strip_prefix("total_reads_processed:")).unwrap();
        line.parse::<usize>().unwrap()
    };
    for scrape in ["first", "second"] {
        let before = reads().await;
        let text = text(&metrics.gather().await);
        let count = reads().await - before;
        assert!(count < QUEUES, "{scrape}: {count} reads for {QUEUES} queues");
        let samples = samples(&text);
        for queue in (0..QUEUES).map(|n| format!("q{n}")) {
            assert_eq!(samples[&format!(r#"asynq_queue_size{{queue="{queue}"}}"#)], 3.0);
            assert_eq!(samples[&format!(r#"asynq_lane_running{{limit="api",queue="{queue}"}}"#)], 0.0);
            assert!(samples[&format!(r#"asynq_flow_oldest_outcome_seconds{{queue="{queue}"}}"#)] >= 500.0);
            assert!(samples[&format!(r#"asynq_queue_memory_usage_approx_bytes{{queue="{queue}"}}"#)] > 300.0);
        }
    }
}

#[tokio::test]
async fn memory_is_estimated_rarely_never_or_not_where_redis_refuses() {
    let fixture = Fixture::start().await;
    let tasks =
        |numbers: std::ops::Range<u32>| numbers.map(|number| job(&format!("t{number}")).payload("x".repeat(999)));
    fixture.enqueue(tasks(0..50)).await;
    let name = r#"asynq_queue_memory_usage_approx_bytes{queue="q"}"#;
    let metrics = QueueMetrics::new(fixture.inspector());
    let bytes = async || samples(&text(&metrics.gather().await)).get(name).copied();
    let first = bytes().await.unwrap();
    assert!((50_000.0..200_000.0).contains(&first), "{first}");
    fixture.enqueue(tasks(50..100)).await;
    assert_eq!(bytes().await, Some(first), "it counts for a minute");
    let never = QueueMetrics::with_memory(fixture.inspector(), None);
    assert!(!text(&never.gather().await).contains(name));
    let always = QueueMetrics::with_memory(fixture.inspector(), Some(Duration::ZERO));
    assert!(samples(&text(&always.gather().await))[name] > first);
    fixture.run("ACL SETUSER default -memory").await;
    let refused = scrape(&fixture).await;
    assert_samples(&refused, &[(r#"asynq_queue_size{queue="q"}"#, 100.0), (r#"asynq_queue_up{queue="q"}"#, 1.0)]);
    assert!(!refused.contains(name), "{refused}");
}

#[tokio::test]
async fn from_the_second_scrape_on_rates_and_what_follows_are_shown() {
    let fixture = Fixture::start().await;
    fixture.enqueue(["a", "b", "c"].map(job)).await;
    let metrics = QueueMetrics::new(fixture.inspector());
    let first = text(&metrics.gather().await);
    assert!(!first.contains("asynq_queue_arrival_rate{"), "one look tells no rate");
    fixture.run("INCRBY asynq:{q}:processed 9").await;
    let second = wait_for("a scrape of a later millisecond", async || {
        let text = text(&metrics.gather().await);
        text.contains("asynq_queue_arrival_rate{").then_some(text)
    })
    .await;
    let samples = samples(&second);
    assert_eq!(samples[r#"asynq_queue_drain_seconds{queue="q"}"#], f64::INFINITY, "nobody serves it");
    assert!(samples[r#"asynq_queue_service_rate{queue="q"}"#] > 0.0);
    assert!(!second.contains("asynq_queue_wanted_slots{"), "how long an attempt takes is not known");
}

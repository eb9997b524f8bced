//! `queuectl bench`: that it does the work it counts. How fast, no test can say.

use queue_core::TaskState;
use serde_json::Value;

use crate::support::Bench;

fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap()
}

#[tokio::test]
async fn drain_empties_the_queue_of_tasks_that_others_put_there() {
    let bench = Bench::new().await;
    for id in ["a", "b", "c"] {
        bench.enqueue("of:any:type", id).await;
    }
    let report = bench.run(&["bench", "drain", "--queue", "default", "--json"]).await.json();
    assert_eq!(report["tasks"], 3);
    assert!(number(&report, "seconds") > 0.0 && number(&report, "per_second") > 0.0);
    assert_eq!(bench.task("a").await.state, TaskState::Completed);
    let report = bench.run(&["bench", "drain", "--queue", "default", "--json"]).await.json();
    assert_eq!(report["tasks"], 0, "there is nothing left");
}

#[tokio::test]
async fn enqueue_leaves_as_many_tasks_as_it_says() {
    let bench = Bench::new().await;
    let report = bench.run(&["bench", "enqueue", "--tasks", "25", "--callers", "10", "--json"]).await.json();
    assert_eq!(report["tasks"], 25);
    let report = bench.run(&["bench", "enqueue", "--tasks", "25", "--callers", "2", "--batch", "7", "--json"]).await;
    assert_eq!(report.json()["tasks"], 25);
    assert_eq!(bench.inspector.queue("bench").await.unwrap().pending, 50);
}

#[tokio::test]
async fn the_others_work_all_that_they_enqueue_and_refuse_a_queue_with_tasks() {
    let bench = Bench::new().await;
    let report = bench.run(&["bench", "e2e", "--tasks", "200", "--concurrency", "5", "--json"]).await.json();
    assert_eq!(report["tasks"], 200);
    let report = bench.run(&["bench", "latency", "--rate", "50", "--seconds", "1", "--json"]).await.json();
    assert_eq!(report["n"], 50);
    assert!(number(&report, "p50_ms") <= number(&report, "p99_ms"));
    let report = bench.run(&["bench", "late", "--tasks", "10", "--seconds", "2", "--json"]).await.json();
    assert_eq!(report["n"], 10);
    let info = bench.inspector.queue("bench").await.unwrap();
    assert_eq!((info.pending, info.active, info.processed), (0, 0, 260));

    bench.run(&["bench", "enqueue", "--tasks", "1", "--callers", "1"]).await.ok();
    for command in ["e2e", "latency", "late"] {
        let complaint = bench.run(&["bench", command]).await.failed(1);
        assert!(complaint.contains("has 1 tasks") && complaint.contains("bench drain"), "{complaint}");
    }
}

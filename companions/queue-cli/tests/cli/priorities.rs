//! Priorities: `enqueue --priority`, `worker --priorities`, and how they are shown.

use queue_core::TaskState;
use serde_json::json;

use crate::support::Bench;

#[tokio::test]
async fn tasks_get_priorities_and_workers_serve_them() {
    let bench = Bench::new().await;
    let enqueue = |id, level| ["enqueue", "t", "--queue", "mail", "--task-id", id, "--priority", level, "--json"];
    for (id, level, queue) in [("high", "9", "mail}p9"), ("low", "0", "mail}p0"), ("middle", "5", "mail")] {
        let stored = bench.run(&enqueue(id, level)).await.json();
        assert_eq!(stored["queue"], json!(queue));
    }
    bench.run(&["enqueue", "t", "--queue", "mail-old"]).await.ok();
    let refused = bench.run(&["enqueue", "t", "--queue", "mail}p9"]).await.failed(2);
    assert!(refused.contains("name \"mail\", and give the priority"), "{refused}");
    let refused = bench.run(&enqueue("ten", "10")).await.failed(2);
    assert!(refused.contains("10 is not in 0..=9"), "{refused}");

    let listed = bench.run(&["queue", "ls"]).await.ok();
    let names: Vec<&str> =
        listed.lines().skip(1).map(|line| line.split("  ").find(|part| !part.is_empty()).unwrap()).collect();
    assert_eq!(names, ["mail", "p9", "p0", "mail-old"], "{listed}");

    let _worker = bench.worker(&["--queue", "mail", "--priorities", "strict", "--exec", "t=true"]).await;
    for (queue, id) in [("mail}p9", "high"), ("mail", "middle"), ("mail}p0", "low")] {
        bench.run(&["task", "wait", id, "-q", queue]).await;
        let gone = bench.inspector.task(queue, id).await;
        assert!(gone.is_err() || gone.unwrap().state == TaskState::Completed);
    }
}

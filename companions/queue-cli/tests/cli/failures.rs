//! `queuectl failures`, and the group that is run by its fingerprint.

use queue_core::TaskState;
use queue_worker::{Failure, Job, Router, Server};

use crate::support::Bench;

#[tokio::test]
async fn failures_are_grouped_and_a_group_is_run_as_a_whole() {
    let bench = Bench::new().await;
    assert_eq!(bench.run(&["failures"]).await.ok(), "no task in retry or in the archive has failed\n");
    for n in 0..3 {
        bench.enqueue("t", &format!("locked{n}")).await;
    }
    bench.enqueue("t", "away").await;
    let work = async |job: Job| {
        let error = match job.id().strip_prefix("locked") {
            Some(n) => format!("order {n} is locked"),
            None => "HTTP 503".to_owned(),
        };
        Err::<(), _>(Failure::archive(error))
    };
    let server = Server::new(bench.redis.redis(), Router::new(()).route("t", work)).start().await.unwrap();
    for id in ["locked0", "locked1", "locked2", "away"] {
        bench.wait_for(id, &[TaskState::Archived]).await;
    }
    server.shutdown().await;
    let shown = bench.run(&["failures"]).await.ok();
    let line = shown.lines().nth(1).unwrap();
    assert!(line.trim_start().starts_with("3 ") && line.contains("order <n> is locked"), "{shown}");
    let told = bench.run(&["failures", "--queue", "default", "--size", "1", "--json"]).await.json();
    assert_eq!((&told["groups"], &told["looked_at"]), (&2.into(), &4.into()));
    assert_eq!(told["items"].as_array().unwrap().len(), 1);
    let filter = format!("fingerprint:{}", told["items"][0]["fingerprint"].as_str().unwrap());
    let run = ["task", "run", "-q", "default", "--state", "archived", "--filter", &filter, "--yes"];
    assert_eq!(bench.run(&run).await.ok(), "3 tasks are pending now\n");
    assert_eq!(bench.inspector.queue("default").await.unwrap().count(TaskState::Archived), 1);
    assert!(bench.run(&["failures", "--size", "1"]).await.ok().contains("HTTP 503"));
    bench.run(&["failures", "-q", "none"]).await.failed(3);
}

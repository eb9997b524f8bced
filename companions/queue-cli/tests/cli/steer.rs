//! Orders to servers: `queuectl server quiet`, `resume`, `stop`, `set`, `reset`.

use queue_core::TaskState;
use queue_core::wire::ServerInfo;
use queue_redis::broker::Broker;
use serde_json::json;

use crate::support::Bench;

#[tokio::test]
async fn a_worker_goes_by_orders_and_says_so() {
    let bench = Bench::new().await;
    let worker = [
        "--name",
        "web-1",
        "--label",
        "gpu",
        "--queue",
        "default",
        "--queue",
        "mail=3",
        "--concurrency",
        "7",
        "--exec",
        "*=true",
    ];
    let worker = bench.worker(&worker).await;
    let listed = bench.run(&["server", "ls", "--json"]).await.json();
    assert_eq!((&listed[0]["name"], &listed[0]["labels"]), (&json!("web-1"), &json!(["gpu"])));
    assert_eq!((&listed[0]["takes_orders"], &listed[0]["refused_orders"]), (&json!(true), &json!([])));
    assert!(bench.run(&["server", "ls"]).await.ok().contains("web-1 #gpu"));

    let done = bench.run(&["server", "quiet", "web-1", "--json"]).await.json();
    assert_eq!((&done["outcome"], &done["status"]), (&json!("applied"), &json!("stopped")));
    bench.enqueue("a", "id").await;
    let done = bench.run(&["server", "set", "web-1", "--concurrency", "3", "--queue", "mail=9"]).await.ok();
    assert!(done.contains("stopped, concurrency 3, queues default=1 mail=9"), "{done}");
    assert_eq!(bench.task("id").await.state, TaskState::Pending);
    bench.run(&["server", "resume", "web-1"]).await.ok();
    bench.wait_for("id", &[TaskState::Completed]).await;
    let done = bench.run(&["server", "set", "web-1", "--queue", "mars=1", "--json"]).await;
    assert_eq!(done.failed(4), "queuectl: error: not all of it could be done\n");
    let done = bench.run(&["server", "reset", "web-1", "--json"]).await.json();
    assert_eq!((&done["concurrency"], &done["queues"]), (&json!(7), &json!({"default": 1, "mail": 3})));

    let pid = listed[0]["pid"].to_string();
    let host = listed[0]["host"].as_str().unwrap();
    bench.run(&["server", "stop", &format!("{host}:{pid}")]).await.ok();
    worker.wait_for_line("server stopped").await;
    let actions = bench.run(&["audit", "--json"]).await.json();
    let stop = &actions[0];
    assert_eq!((&stop["action"], &stop["outcome"]), (&json!("server.stop"), &json!("done")));
}

#[tokio::test]
async fn servers_that_take_no_orders_and_names_of_nobody_have_exit_codes() {
    let bench = Bench::new().await;
    let goes = ServerInfo { host: "go".into(), pid: 7, server_id: "uuid".into(), ..ServerInfo::default() };
    let redis = bench.redis.redis();
    let now = queue_core::Clock::now_secs(&queue_core::SystemClock);
    Broker::new(redis.clone()).write_server_state(&mut redis.pooled().await.unwrap(), &goes, &[], now).await.unwrap();
    let error = bench.run(&["server", "quiet", "go:7"]).await.failed(7);
    assert!(error.contains("the server go:7 does not take orders"), "{error}");
    bench.run(&["server", "quiet", "nobody"]).await.failed(3);
    bench.run(&["server", "set", "go:7"]).await.failed(2);
}

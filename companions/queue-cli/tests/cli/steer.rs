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
    let done = bench.run(&["server", "set", "web-1", "--queue", "mars=1"]).await.ok();
    assert!(done.contains("queues default=1 mail=9 mars=1"), "{done}");
    let done = bench.run(&["server", "set", "web-1", "--queue", "mail}p9=1", "--json"]).await;
    assert_eq!(done.failed(4), "queuectl: error: not all of it could be done\n");
    let done = bench.run(&["server", "set", "web-1", "--queue", "mail}p9=1"]).await;
    assert!(done.stdout.contains("\n  refused: queue mail}p9: ") && !done.stdout.contains("before"), "{done:?}");
    let done = bench.run(&["server", "set", "web-1", "--concurrency", "4"]).await.ok();
    assert!(done.contains("concurrency 4") && done.contains("\n  refused before: queue mail}p9: "), "{done}");
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

#[tokio::test]
async fn a_forecast_tells_what_goes_on_and_what_does_not() {
    let bench = Bench::new().await;
    bench.run(&["queue", "forecast", "mars"]).await.failed(3);
    bench.run(&["queue", "forecast", "--over", "0s"]).await.failed(2);
    bench.enqueue("a", "id").await;
    let told = bench.run(&["queue", "forecast", "default", "--over", "100ms", "--json"]).await.json();
    assert_eq!((&told[0]["queue"], &told[0]["waiting"], &told[0]["slots"]), (&json!("default"), &json!(1), &json!(0)));
    assert_eq!((&told[0]["drain"], &told[0]["drain_secs"]), (&json!("never"), &json!(null)));
    let table = bench.run(&["queue", "forecast", "--over", "100ms"]).await.ok();
    assert!(table.contains("never: no slots"), "{table}");
    // Busy, so that the figures are not those of an idle queue.
    let _worker = bench.worker(&["--concurrency", "2", "--exec", "*=sleep 0.3"]).await;
    for number in 0..40 {
        bench.enqueue("a", &number.to_string()).await;
    }
    let told = bench.run(&["queue", "forecast", "default", "--over", "1s", "--json"]).await.json();
    let number = |field: &str| told[0][field].as_f64().unwrap_or_else(|| panic!("{field} in {told}"));
    assert!(number("service_rate") > 0.0 && number("run_secs") > 0.0, "{told}");
    assert!(number("over_secs") >= 0.9 && number("wanted_slots") >= 1.0, "{told}");
}

/// As Go's workers leave it: put back by a worker that was told to stop it.
#[tokio::test]
async fn a_tender_ends_what_is_to_be_canceled_for_good_where_no_server_of_ours_runs() {
    let bench = Bench::new().await;
    bench.enqueue("a", "id").await;
    let broker = Broker::new(bench.redis.redis());
    let in_an_hour = queue_core::Clock::now_secs(&queue_core::SystemClock) + 3_600;
    broker.dequeue(&"default".into(), 1, &"run".into(), in_an_hour).await.unwrap();
    let told = bench.run(&["task", "cancel", "id", "--json"]).await.json();
    assert_eq!(told["outcome"], "recorded");
    for command in
        ["LREM asynq:{default}:active 1 id", "ZREM asynq:{default}:lease id", "LPUSH asynq:{default}:pending id"]
    {
        assert_eq!(bench.ask::<i64>(&command.split(' ').collect::<Vec<_>>()).await, 1, "{command}");
    }
    bench.ask::<i64>(&["HSET", "asynq:{default}:t:id", "state", "pending"]).await;
    let tender = bench.background(&["tend"], "looking after").await;
    bench.wait_for("id", &[TaskState::Archived]).await;
    let (code, _) = tender.stop().await;
    assert_eq!(code, Some(0));
}

//! What pages ask of Redis.

use std::time::Duration;

use serde_json::Value;

use crate::support::{Place, QUEUE, task};

/// Behind the first page too: the place is found by what is read of the page.
#[tokio::test]
async fn a_page_of_tasks_asks_redis_thrice_for_each_task_and_for_three_things_more() {
    let place = Place::start().await;
    place.put((0..120).map(|n| task(&format!("p{n}")))).await;
    place.put((0..120).map(|n| task(&format!("s{n}")).process_in(Duration::from_secs(3_600)))).await;
    let calls = async || -> u64 {
        let text: String = place.command("INFO commandstats").await;
        let counts = text.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
        // What asks, and what makes connections or looks whether they are still there.
        let counts = counts.filter(|(name, _)| !["info", "ping", "auth", "hello", "select"].contains(name));
        let counts = counts.filter(|(name, _)| !name.starts_with("client"));
        counts.filter_map(|(_, rest)| rest.split_once(',')?.0.parse::<u64>().ok()).sum()
    };
    let site = place.open();
    for state in ["pending", "scheduled"] {
        let mut path = format!("/tasks?queue={QUEUE}&state={state}&limit=50");
        let mut left = Vec::new();
        // Connections are made.
        site.get(&path).await;
        for tasks in [50, 50, 20] {
            let before = calls().await;
            let told = site.get(&path).await.json();
            assert_eq!(told["items"].as_array().unwrap().len(), tasks, "{state}: {told}");
            // Two sizes, and what is shown.
            left.push(calls().await - before - 3 * tasks as u64);
            let next = told["next"].as_str().unwrap_or_default();
            assert_eq!(next.is_empty(), tasks == 20, "{state}");
            path = format!("/tasks?queue={QUEUE}&state={state}&limit=50&cursor={next}");
        }
        // Whether the queue is there, how many tasks there are, which of them are on the page.
        assert_eq!(left, [3, 3, 3], "{state}");
    }
}

/// A page of 200 tasks of eight megabytes took Redis 1.4 GB for its answer, and the dashboard as much.
#[tokio::test]
async fn a_page_of_large_tasks_is_read_in_parts() {
    let place = Place::start().await;
    place.put((0..24).map(|n| task(&format!("p{n}")).payload(vec![b'x'; 1 << 20]))).await;
    let result = "x".repeat(1 << 20);
    for n in 0..24 {
        let _: i64 = place.command(&format!("HSET asynq:{{{QUEUE}}}:t:p{n} result {result}")).await;
    }
    let peak = async || -> u64 {
        let text: String = place.command("INFO memory").await;
        text.lines().find_map(|line| line.strip_prefix("used_memory_peak:")?.parse().ok()).unwrap()
    };
    let before = peak().await;
    let told = place.open().get(&format!("/tasks?queue={QUEUE}&limit=50")).await.json();
    let items = told["items"].as_array().unwrap();
    let is_cut = |item: &&Value| item["payload_bytes"] == 1 << 20 && item["result_bytes"] == 1 << 20;
    assert_eq!(items.iter().filter(is_cut).count(), 24);
    let more = peak().await - before;
    assert!(more < 16 << 20, "Redis held {more} bytes more");
}

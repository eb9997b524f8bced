//! What pages ask of Redis.

use std::time::Duration;

use crate::support::{Place, QUEUE, task};

/// Behind the first page too: the place is found by what is read of the page.
#[tokio::test]
async fn a_page_of_tasks_asks_redis_for_each_task_and_for_three_things_more() {
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
            left.push(calls().await - before - tasks as u64);
            let next = told["next"].as_str().unwrap_or_default();
            assert_eq!(next.is_empty(), tasks == 20, "{state}");
            path = format!("/tasks?queue={QUEUE}&state={state}&limit=50&cursor={next}");
        }
        // Whether the queue is there, how many tasks there are, which of them are on the page.
        assert_eq!(left, [3, 3, 3], "{state}");
    }
}

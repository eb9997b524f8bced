//! Callers that meet.

use queue_core::RawTask;
use queue_redis::{Client, EnqueueError};
use tokio::task::JoinSet;

use crate::support::{Fixture, PATIENCE, QUEUE, eventually};

fn task(id: String) -> RawTask {
    RawTask::new("job").queue(QUEUE).task_id(id)
}

async fn stored(fixture: &Fixture) -> usize {
    fixture.cmd::<usize>(&["LLEN", "asynq:{q}:pending"]).await
}

/// How many scripts Redis has run.
async fn scripts(fixture: &Fixture) -> u64 {
    let told = fixture.cmd::<String>(&["INFO", "commandstats"]).await;
    let calls = told.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// Fifty callers, each of whom enqueues twenty tasks, one after another.
async fn fifty_callers_enqueue_twenty_each(fixture: &Fixture) {
    let client = Client::new(fixture.redis());
    let mut callers = JoinSet::new();
    for caller in 0..50 {
        let client = client.clone();
        callers.spawn(async move {
            for n in 0..20 {
                let info = client.enqueue(task(format!("{caller}-{n}"))).await.unwrap();
                assert_eq!(info.id, format!("{caller}-{n}"), "each gets the answer to its own task");
            }
        });
    }
    tokio::time::timeout(PATIENCE, callers.join_all()).await.expect("nobody is left waiting");
    assert_eq!(stored(fixture).await, 1_000);
}

#[tokio::test]
async fn callers_that_meet_share_calls() {
    let fixture = Fixture::start().await;
    let before = scripts(&fixture).await;
    fifty_callers_enqueue_twenty_each(&fixture).await;
    let calls = scripts(&fixture).await - before;
    assert!(calls <= 80, "two waves of twenty-five and a few to begin with: {calls} calls for 1,000 tasks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_on_several_threads_lose_nothing() {
    fifty_callers_enqueue_twenty_each(&Fixture::start().await).await;
}

#[tokio::test]
async fn callers_that_meet_learn_each_what_became_of_their_own_task() {
    let fixture = Fixture::start().await;
    let client = Client::new(fixture.redis());
    client.enqueue(task("taken".to_owned())).await.unwrap();
    let ids = ["a", "taken", "b", "taken", "c"].map(str::to_owned);
    let outcomes = futures_util::future::join_all(ids.map(|id| client.enqueue(task(id)))).await;
    for (outcome, stored) in outcomes.iter().zip([true, false, true, false, true]) {
        assert_eq!(outcome.is_ok(), stored, "{outcome:?}");
        assert!(stored || matches!(outcome, Err(EnqueueError::TaskIdConflict { .. })), "{outcome:?}");
    }
}

/// Whether or not their calls were under way, nobody waits for those who went away.
#[tokio::test]
async fn callers_that_go_away_leave_nobody_waiting() {
    let fixture = Fixture::start().await;
    let client = Client::new(fixture.redis());
    client.enqueue(task("first".to_owned())).await.unwrap();
    fixture.run("CLIENT PAUSE 600000 WRITE").await;
    let mut callers: Vec<_> = (0..20)
        .map(|n| {
            tokio::spawn({
                let client = client.clone();
                async move { client.enqueue(task(n.to_string())).await }
            })
        })
        .collect();
    // All have begun: the first is under way, the others meet.
    tokio::task::yield_now().await;
    for gone in callers.drain(..10) {
        gone.abort();
    }
    fixture.run("CLIENT UNPAUSE").await;
    for caller in callers {
        tokio::time::timeout(PATIENCE, caller).await.expect("nobody is left waiting").unwrap().unwrap();
    }
    client.enqueue(task("last".to_owned())).await.unwrap();
    eventually("what was under way is stored", async || stored(&fixture).await >= 12).await;
}

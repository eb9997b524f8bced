//! Tasks that are enqueued once for each key.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use queue_core::clock::ManualClock;
use queue_core::options::Composed;
use queue_core::{RawTask, UniqueUntil};
use queue_redis::{Client, EnqueueError, EnqueuedOnce, Outgoing};

use crate::support::{Fixture, NOW, QUEUE, job};

const HOUR: Duration = Duration::from_secs(3_600);

/// Tasks of all kinds, by what they are called here.
fn of_all_kinds() -> [(&'static str, RawTask); 7] {
    [
        ("plain", job("plain")),
        ("later", job("later").process_in(HOUR)),
        ("grouped", job("grouped").group("g")),
        ("grouped-later", job("grouped-later").group("h").process_in(HOUR)),
        ("unique", job("unique").unique(HOUR)),
        ("window", job("window").unique_key("w").unique(HOUR).unique_until(UniqueUntil::Window)),
        ("urgent", job("urgent").priority(9)),
    ]
}

fn keyed(client: &Client, tasks: impl IntoIterator<Item = (&'static str, RawTask)>) -> Vec<(String, Composed)> {
    tasks.into_iter().map(|(key, task)| (format!("key:{key}"), client.compose(task).unwrap())).collect()
}

async fn enqueue(client: &Client, tasks: Vec<(String, Composed)>) -> Vec<EnqueuedOnce> {
    let outcomes = client.claim_once(HOUR).await.unwrap().enqueue(tasks).await;
    outcomes.into_iter().map(Result::unwrap).collect()
}

async fn kept(fixture: &Fixture) -> BTreeSet<String> {
    fixture.cmd::<Vec<String>>(&["ZRANGE", "asynq:{q}:x:once", "0", "-1"]).await.into_iter().collect()
}

#[tokio::test]
async fn tasks_of_all_kinds_are_stored_as_enqueue_does() {
    let (as_usual, once) = (Fixture::start().await, Fixture::start().await);
    let clock = Arc::new(ManualClock::at_secs(NOW));
    let client = |fixture: &Fixture| {
        let header = |task: &mut Outgoing<'_>| task.set_header("tenant", "acme");
        Client::with_clock(fixture.redis(), clock.clone()).intercept(header)
    };
    let (usual_client, client) = (client(&as_usual), client(&once));
    for (_, task) in of_all_kinds() {
        usual_client.enqueue(task).await.unwrap();
    }
    assert_eq!(enqueue(&client, keyed(&client, of_all_kinds())).await, [EnqueuedOnce::Now; 7]);
    let facts = async |fixture: &Fixture| fixture.keyspace().await.without_relative_ttls();
    let changes = facts(&once).await.changes_since(&facts(&as_usual).await);
    // Since when they are pending, Redis' clock says.
    let differs = |line: &&str| !line.contains("pending_since") && !line.contains("x:once");
    assert_eq!(changes.lines().filter(differs).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(changes.lines().filter(|line| line.contains("pending_since")).count(), 2 * 4, "{changes}");
}

#[tokio::test]
async fn what_is_asked_for_again_is_done_once_although_the_tasks_are_gone() {
    let fixture = Fixture::start().await;
    let client = Client::new(fixture.redis());
    assert_eq!(enqueue(&client, keyed(&client, of_all_kinds())).await, [EnqueuedOnce::Now; 7]);
    let remembered = kept(&fixture).await;
    assert_eq!(remembered.len(), 6, "the urgent one is in a queue of its own: {remembered:?}");
    for key in fixture.cmd::<Vec<String>>(&["KEYS", "*"]).await {
        if !key.ends_with("}:x:once") {
            fixture.run(&format!("DEL {key}")).await;
        }
    }
    assert_eq!(enqueue(&client, keyed(&client, of_all_kinds())).await, [EnqueuedOnce::Before; 7]);
    let left = fixture.cmd::<Vec<String>>(&["KEYS", "*"]).await;
    assert!(left.iter().all(|key| key.ends_with("}:x:once") || key == "asynq:queues"), "{left:?}");
}

#[tokio::test]
async fn what_is_in_the_way_is_told_and_does_not_hinder_the_others() {
    let fixture = Fixture::start().await;
    let client = Client::new(fixture.redis());
    client.enqueue(job("taken").payload("other")).await.unwrap();
    client.enqueue(job("holder").payload("same").unique(HOUR)).await.unwrap();
    fixture.run("SET asynq:{broken}:pending text").await;
    let tasks = [
        ("1", job("taken")),
        ("2", job("late-comer").payload("same").unique(HOUR)),
        ("3", job("stuck").queue("broken")),
        ("4", job("free")),
        // Another key, and the same id: the row of somebody else.
        ("5", job("free").payload("other")),
    ];
    let claim = client.claim_once(HOUR).await.unwrap();
    let outcomes = claim.enqueue(keyed(&client, tasks)).await;
    assert!(matches!(&outcomes[0], Err(EnqueueError::TaskIdConflict { id, .. }) if id == "taken"), "{outcomes:?}");
    assert!(matches!(&outcomes[1], Err(EnqueueError::DuplicateTask { .. })), "{outcomes:?}");
    assert!(matches!(&outcomes[2], Err(EnqueueError::Redis(error)) if !error.is_outage()), "{outcomes:?}");
    assert!(matches!(&outcomes[3], Ok(EnqueuedOnce::Now)), "{outcomes:?}");
    assert!(matches!(&outcomes[4], Err(EnqueueError::TaskIdConflict { .. })), "{outcomes:?}");
    assert_eq!(kept(&fixture).await, BTreeSet::from(["key:4".to_owned()]), "what was not stored may be tried again");
    assert!(client.compose(job("front").front()).is_err(), "it would stand in front of what came before it");
}

#[tokio::test]
async fn a_call_that_comes_after_its_claim_does_nothing() {
    let fixture = Fixture::start().await;
    let client = Client::new(fixture.redis());
    let claim = client.claim_once(Duration::ZERO).await.unwrap();
    // The next second of Redis' clock.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let outcomes = claim.enqueue(keyed(&client, of_all_kinds())).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(EnqueuedOnce::TooLate))), "{outcomes:?}");
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{*"]).await, [""; 0]);
}

#[tokio::test]
async fn what_is_confirmed_goes_first_and_not_at_once() {
    let fixture = Fixture::start().await;
    let client = Client::new(fixture.redis());
    let claim = client.claim_once(HOUR).await.unwrap();
    claim.enqueue(keyed(&client, [("a", job("a")), ("b", job("b"))])).await;
    let score = async |key: &str| fixture.cmd::<Option<i64>>(&["ZSCORE", "asynq:{q}:x:once", key]).await;
    let stored = score("key:b").await.unwrap();
    claim
        .confirm([(QUEUE.to_owned(), "key:a".to_owned()), (QUEUE.to_owned(), "key:unknown".to_owned())])
        .await
        .unwrap();
    let confirmed = score("key:a").await.unwrap();
    // An hour is the least for which one is remembered where there are too many; of a confirmed one two minutes are left of it.
    assert!((3_600 - 122..=3_600 - 120).contains(&(stored - confirmed)), "{stored} {confirmed}");
    assert_eq!(score("key:b").await, Some(stored));
    assert_eq!(score("key:unknown").await, None, "confirming remembers nothing");
}

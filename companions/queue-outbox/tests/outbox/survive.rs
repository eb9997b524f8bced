//! Nothing is lost and nothing doubled, whatever ends half-way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_core::RawTask;
use queue_outbox::{Relay, RelayError};
use queue_redis::Client;
use queue_worker::{Job, Router, Server};
use tokio_util::sync::CancellationToken;

use crate::{Place, job, until};

/// How often each task has run, by its payload.
type Runs = Arc<Mutex<HashMap<String, u32>>>;

async fn server(place: &Place, runs: &Runs) -> queue_worker::Handle {
    let runs = runs.clone();
    let count = move |job: Job| {
        *runs.lock().unwrap().entry(String::from_utf8_lossy(job.payload()).into_owned()).or_default() += 1;
        async {}
    };
    let router = Router::new(()).route("job", count);
    Server::new(place.redis(), router).queues([("q", 1)]).start().await.unwrap()
}

#[tokio::test]
async fn a_relay_that_ends_between_redis_and_the_database_doubles_nothing() {
    let place = Place::new().await;
    let client = place.database.client().await;
    for n in 0..10 {
        place.write(&client, job(&n.to_string())).await;
    }
    place.say(r#"{"type":"job","queue":"q","payload":"in words"}"#).await;
    // It stores the tasks, and cannot delete the rows.
    let broken = "CREATE FUNCTION break() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$; \
                  CREATE TRIGGER break BEFORE DELETE ON queue_outbox FOR EACH STATEMENT EXECUTE FUNCTION break()";
    client.batch_execute(broken).await.unwrap();
    let error = place.relay().run_once().await.unwrap_err();
    assert!(matches!(&error, RelayError::Database(_)) && error.to_string().contains("broken"), "{error}");
    assert_eq!((place.database.count("true").await, place.pending("q").await.len()), (11, 11));
    // They are worked, and gone, before it comes again.
    let runs = Runs::default();
    let server = server(&place, &runs).await;
    until("all have run", async || runs.lock().unwrap().len() == 11).await;
    until("all are gone", async || {
        place.redis().command::<Vec<String>>("KEYS", "asynq:{q}:t:*").await.unwrap().is_empty()
    })
    .await;
    client.batch_execute("DROP TRIGGER break ON queue_outbox").await.unwrap();
    assert_eq!(place.relayed().await, [11, 0, 0, 0]);
    assert_eq!((place.database.count("true").await, place.pending("q").await.len()), (0, 0));
    server.shutdown().await;
    assert!(runs.lock().unwrap().values().all(|times| *times == 1), "{runs:?}");
}

/// Somebody holds the table so that rows can be looked at and not be locked.
async fn held(place: &Place) -> tokio_postgres::Client {
    let holder = place.database.client().await;
    holder.batch_execute("BEGIN; LOCK TABLE queue_outbox IN EXCLUSIVE MODE").await.unwrap();
    holder
}

/// A relay that stood still after it had locked rows would otherwise have a claim that begins when others may have its locks.
#[tokio::test]
async fn a_claim_begins_before_rows_are_locked() {
    let place = Arc::new(Place::new().await);
    place.say(r#"{"type":"job","queue":"q"}"#).await;
    let holder = held(&place).await;
    let relaying = tokio::spawn({
        let place = place.clone();
        async move { place.relayed().await }
    });
    until("it has asked Redis for its time", async || {
        place.redis().command::<String>("INFO", "commandstats").await.unwrap().contains("cmdstat_time:")
    })
    .await;
    assert!(!relaying.is_finished(), "the row cannot be locked yet");
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(relaying.await.unwrap(), [1, 0, 0, 0]);
}

/// One that is too large for the way to Redis, say.
#[tokio::test]
async fn a_row_that_is_late_again_and_again_holds_up_no_other_one() {
    let place = Place::new().await;
    let client = place.database.client().await;
    let late = place.write(&client, job("late")).await;
    let holder = held(&place).await;
    let relay = place.relay().poll(Duration::from_millis(5)).claim(Duration::from_secs(1));
    let quiet = CancellationToken::new();
    let told = quiet.clone();
    let running = tokio::spawn(async move { relay.run(&told).await });
    until("the claim is over", async || {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
                     AND clock_timestamp() - query_start > interval '2.1 s'";
        client.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) > 0
    })
    .await;
    holder.batch_execute("COMMIT").await.unwrap();
    until("it was too late", async || {
        place.redis().command::<String>("INFO", "commandstats").await.unwrap().contains("cmdstat_evalsha:")
    })
    .await;
    let other = place.write(&client, job("other")).await;
    until("the other one is relayed", async || place.pending("q").await == [&*other]).await;
    quiet.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(place.relayed().await, [1, 0, 0, 0]);
    assert_eq!(place.pending("q").await, [other, late]);
}

#[tokio::test]
async fn a_relay_that_is_to_end_does_not_wait_for_a_database_that_hangs() {
    let place = Place::new().await;
    place.say(r#"{"type":"job","queue":"q"}"#).await;
    let (holder, watcher) = (held(&place).await, place.database.client().await);
    let (relay, quiet) = (place.relay().poll(Duration::from_millis(5)), CancellationToken::new());
    let told = quiet.clone();
    let running = tokio::spawn(async move { relay.run(&told).await });
    until("it waits for the row", async || {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) > 0
    })
    .await;
    quiet.cancel();
    // Less than an answer is waited for.
    tokio::time::timeout(Duration::from_secs(20), running).await.expect("it ends").unwrap().unwrap();
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(place.relayed().await, [1, 0, 0, 0]);
}

/// Relays, writers and a worker, while connections of all kinds are cut and relays are dropped half-way: each task whose transaction was
/// committed runs once, and no other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_committed_task_runs_once_whatever_is_cut() {
    let place = Arc::new(Place::new().await);
    let runs = Runs::default();
    let server = server(&place, &runs).await;
    let end = CancellationToken::new();
    let relays: Vec<_> = (0..3)
        .map(|_| {
            let (place, end) = (place.clone(), end.clone());
            tokio::spawn(async move {
                while !end.is_cancelled() {
                    let client = Client::new(place.redis());
                    let relay = Relay::new(place.address(), client).poll(Duration::from_millis(5));
                    // Dropped, wherever it is.
                    let life = Duration::from_millis(fastrand::u64(1..150));
                    let _ = tokio::time::timeout(life, relay.run(&end)).await;
                }
            })
        })
        .collect();
    let cutter = tokio::spawn({
        let (place, end) = (place.clone(), end.clone());
        async move {
            let client = place.database.client().await;
            while !end.is_cancelled() {
                tokio::time::sleep(Duration::from_millis(fastrand::u64(10..60))).await;
                let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'queue-outbox' \
                           AND datname = current_database() ORDER BY random() LIMIT 1";
                client.query(cut, &[]).await.unwrap();
                if fastrand::u8(..4) == 0 {
                    let _ = place.redis().command::<()>("CLIENT", ("KILL", "TYPE", "normal")).await;
                }
            }
        }
    });
    let mut committed = Vec::new();
    let mut client = place.database.client().await;
    for round in 0..60 {
        let transaction = client.transaction().await.unwrap();
        let payloads: Vec<String> = (0..20).map(|n| format!("{round}-{n}")).collect();
        for (n, payload) in payloads.iter().enumerate() {
            let task = RawTask::new("job").queue("q").payload(payload.clone());
            place.write(&transaction, if n % 5 == 0 { task.process_in(Duration::from_millis(1)) } else { task }).await;
        }
        if round % 3 == 0 {
            transaction.rollback().await.unwrap();
        } else {
            transaction.commit().await.unwrap();
            committed.extend(payloads);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until("the outbox is empty", async || place.database.count("true").await == 0).await;
    end.cancel();
    for task in relays {
        task.await.unwrap();
    }
    cutter.await.unwrap();
    until("all have run", async || runs.lock().unwrap().len() >= committed.len()).await;
    until("no task is left", async || {
        place.redis().command::<Vec<String>>("KEYS", "asynq:{q}:t:*").await.unwrap().is_empty()
    })
    .await;
    server.shutdown().await;
    let runs = runs.lock().unwrap();
    let wrong: Vec<_> = committed.iter().filter(|payload| runs.get(*payload) != Some(&1)).collect();
    assert_eq!((wrong, runs.len()), (Vec::new(), committed.len()));
}

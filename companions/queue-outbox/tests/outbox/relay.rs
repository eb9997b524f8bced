//! What becomes of rows.

use std::time::Duration;

use queue_admin::Inspector;
use queue_core::{RawTask, TaskState};
use queue_redis::Client;
use tokio_util::sync::CancellationToken;

use crate::{Place, job, until};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn tasks_are_enqueued_with_their_transaction_in_order_and_never_without_it() {
    let place = Place::new().await;
    let mut client = place.database.client().await;
    let open = client.transaction().await.unwrap();
    let mut written = Vec::new();
    // More than a pass takes.
    for n in 0..600 {
        written.push(place.write(&open, job(&n.to_string())).await);
    }
    assert_eq!(place.relayed().await, [0; 4], "it is not committed");
    open.commit().await.unwrap();
    let rolled_back = client.transaction().await.unwrap();
    place.write(&rolled_back, job("3")).await;
    rolled_back.rollback().await.unwrap();
    assert_eq!(place.relayed().await, [600, 0, 0, 0]);
    assert_eq!(place.pending("q").await, written);
    assert_eq!((place.relayed().await, place.database.count("true").await), ([0; 4], 0));
}

#[tokio::test]
async fn a_transaction_that_stays_open_holds_up_no_other_one() {
    let place = Place::new().await;
    let (mut slow, quick) = (place.database.client().await, place.database.client().await);
    let open = slow.transaction().await.unwrap();
    let late = place.write(&open, job("late")).await;
    let early = place.write(&quick, job("early")).await;
    assert_eq!(place.relayed().await, [1, 0, 0, 0]);
    open.commit().await.unwrap();
    assert_eq!(place.relayed().await, [1, 0, 0, 0]);
    assert_eq!(place.pending("q").await, [early, late]);
}

#[tokio::test]
async fn all_that_a_task_can_ask_for_comes_with_it() {
    let place = Place::new().await;
    let client = place.database.client().await;
    let group = job("g").group("g").task_id("grouped");
    let later = job("l").process_in(HOUR).retention(HOUR).max_retry(3).task_id("later");
    for task in [group, later, job("u").unique(HOUR).task_id("unique"), job("p").priority(9).task_id("urgent")] {
        place.write(&client, task).await;
    }
    assert_eq!(place.relayed().await, [4, 0, 0, 0]);
    let inspector = Inspector::new(place.redis());
    for (queue, id, state) in [
        ("q", "grouped", TaskState::Aggregating),
        ("q", "later", TaskState::Scheduled),
        ("q", "unique", TaskState::Pending),
        ("q}p9", "urgent", TaskState::Pending),
    ] {
        assert_eq!(inspector.task(queue, id).await.unwrap().state, state, "{id}");
    }
    let later = inspector.task("q", "later").await.unwrap();
    assert_eq!((later.max_retry, later.retention), (3, HOUR));
    assert!(place.client.enqueue(job("u").unique(HOUR)).await.is_err(), "its lock is held");
}

#[tokio::test]
async fn a_row_of_which_the_lock_is_held_goes_and_a_taken_id_is_told() {
    let place = Place::new().await;
    let client = place.database.client().await;
    for _ in 0..3 {
        place.write(&client, job("same").unique(HOUR)).await;
    }
    assert_eq!(place.relayed().await, [1, 2, 0, 0]);
    place.client.enqueue(job("other").task_id("mine")).await.unwrap();
    place.write(&client, job("another").task_id("mine")).await;
    assert_eq!(place.relayed().await, [0, 0, 1, 0]);
    let refused = place.address().refused(10).await.unwrap();
    assert!(refused[0].refusal.contains("\"mine\" is taken"), "{refused:?}");
}

#[tokio::test]
async fn rows_may_be_written_in_words_by_any_program() {
    let place = Place::new().await;
    place.say(r#"{"type":"email:welcome","queue":"mail","payload":{"user": 7.10},"task_id":"mine"}"#).await;
    place.say(r#"{"type":"plain"}"#).await;
    let client = place.database.client().await;
    let built = "INSERT INTO queue_outbox (task) SELECT json_build_object('type', 'bill', 'payload', json_build_object('order', n), 'in', '90m') \
                 FROM generate_series(1, 3) AS n";
    client.batch_execute(built).await.unwrap();
    // Somebody may write what he likes.
    client
        .batch_execute(
            "INSERT INTO queue_outbox (task, created_at) VALUES ('{\"type\":\"t\",\"queue\":\"odd\"}', 'infinity')",
        )
        .await
        .unwrap();
    client
        .batch_execute(
            "UPDATE queue_outbox SET created_at = created_at - interval '1 hour' WHERE task->>'type' = 'bill'",
        )
        .await
        .unwrap();
    let id: String =
        client.query_one("SELECT id::text FROM queue_outbox WHERE task->>'type' = 'plain'", &[]).await.unwrap().get(0);
    assert_eq!(place.relayed().await, [6, 0, 0, 0]);
    let inspector = Inspector::new(place.redis());
    let mail = inspector.task("mail", "mine").await.unwrap();
    assert_eq!((&*mail.task_type, &mail.payload[..]), ("email:welcome", &br#"{"user": 7.10}"#[..]), "to the byte");
    assert_eq!(place.pending("default").await, [id], "a task has the id of its row, unless it has its own");
    let scheduled: Vec<(String, i64)> =
        place.redis().command("ZRANGE", ("asynq:{default}:scheduled", 0, -1, "WITHSCORES")).await.unwrap();
    let (now, _): (i64, i64) = place.redis().query("TIME", &redis::cmd("TIME")).await.unwrap();
    let left: Vec<i64> = scheduled.iter().map(|(_, at)| at - now).collect();
    assert!(
        left.len() == 3 && left.iter().all(|left| (1_700..=1_801).contains(left)),
        "half an hour is left: {left:?}"
    );
}

#[tokio::test]
async fn what_can_never_be_enqueued_stays_with_the_reason_and_holds_up_nothing() {
    let place = Place::new().await;
    for (task, _) in REFUSED {
        place.say(task).await;
    }
    place.say(r#"{"type":"good","queue":"q"}"#).await;
    assert_eq!(place.relayed().await, [1, 0, REFUSED.len(), 0]);
    assert_eq!((place.relayed().await, place.pending("q").await.len()), ([0; 4], 1));
    let waiting = place.address().waiting().await.unwrap();
    assert_eq!((waiting.waiting, waiting.oldest, waiting.refused), (0, None, REFUSED.len() as u64));
    let refused = place.address().refused(10).await.unwrap();
    for (row, (task, why)) in refused.iter().rev().zip(REFUSED) {
        assert!(row.refusal.contains(why), "{task}: {}", row.refusal);
    }
    // Somebody mends one.
    let client = place.database.client().await;
    let (first, second) = (refused[0].seq, refused[1].seq);
    client
        .execute("UPDATE queue_outbox SET task = '{\"type\":\"t\",\"queue\":\"q\"}' WHERE seq = $1", &[&first])
        .await
        .unwrap();
    let address = place.address();
    assert_eq!(address.retry(Some(&[first, -1])).await.unwrap(), 1);
    assert_eq!(place.relayed().await, [1, 0, 0, 0]);
    assert_eq!(address.delete(Some(&[second, first])).await.unwrap(), 1);
    assert_eq!(address.retry(None).await.unwrap(), REFUSED.len() as u64 - 2);
    assert_eq!(place.relayed().await, [0, 0, REFUSED.len() - 2, 0]);
    place.say(r#"{"type":"waits","queue":"q"}"#).await;
    assert_eq!(address.delete(None).await.unwrap(), REFUSED.len() as u64 - 2, "what waits is not deleted");
    assert_eq!(address.waiting().await.unwrap().waiting, 1);
}

const REFUSED: [(&str, &str); 5] = [
    (r#"{"type":"t","quue":"q"}"#, "unknown field `quue`"),
    (r#"{"type":"t","queue":" "}"#, "blank"),
    (r#"{"type":"t","front":true}"#, "leave front out"),
    (r#"{"type":"t","timeout":"soon"}"#, "soon"),
    (r#"{"type":"t","message":"AAAA"}"#, "its message cannot be read"),
];

#[tokio::test]
async fn what_is_written_meanwhile_is_left_for_later_and_reasons_have_a_bound() {
    let place = Place::new().await;
    let client = place.database.client().await;
    // Each row that goes makes another one.
    let again = "CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 INSERT INTO queue_outbox (task) VALUES (OLD.task); RETURN OLD; END $$; \
                 CREATE TRIGGER again AFTER DELETE ON queue_outbox FOR EACH ROW EXECUTE FUNCTION again()";
    client.batch_execute(again).await.unwrap();
    place.say(r#"{"type":"job","queue":"q"}"#).await;
    let long = format!(r#"{{"type":"job","{}":1}}"#, "x".repeat(100_000));
    place.say(&long).await;
    for _ in 0..2 {
        assert_eq!(place.relayed().await[0], 1);
    }
    let refusal = &place.address().refused(1).await.unwrap()[0].refusal;
    assert!(refusal.starts_with("unknown field `xxx") && refusal.len() == 1_000, "{}", refusal.len());
}

#[tokio::test]
async fn what_is_no_task_at_all_fails_where_it_is_written() {
    let place = Place::new().await;
    let client = place.database.client().await;
    for task in ["[1]", "{}", r#"{"type":""}"#, r#"{"type":"","tasks":[]}"#, r#"{"payload":1}"#, "5"] {
        let error =
            client.execute("INSERT INTO queue_outbox (task) VALUES ($1::text::json)", &[&task]).await.unwrap_err();
        let broken = error.as_db_error().unwrap().constraint();
        assert_eq!(broken, Some("queue_outbox_task_has_type_tasks_or_nodes"), "{task}: {error}");
    }
}

#[tokio::test]
async fn a_queue_that_redis_refuses_to_change_holds_up_no_other_one() {
    let place = Place::new().await;
    place.redis().command::<()>("SET", ("asynq:{broken}:pending", "text")).await.unwrap();
    let client = place.database.client().await;
    // More than one pass takes.
    let many = "INSERT INTO queue_outbox (task) SELECT json_build_object('type', 't', 'queue', 'broken') FROM generate_series(1, 600)";
    client.batch_execute(many).await.unwrap();
    let behind = place.write(&client, job("behind")).await;
    assert_eq!(place.relayed().await, [1, 0, 0, 600]);
    assert_eq!(place.pending("q").await, [behind]);
    place.redis().command::<()>("DEL", "asynq:{broken}:pending").await.unwrap();
    assert_eq!(place.relayed().await, [600, 0, 0, 0]);
}

#[tokio::test]
async fn rows_stay_while_redis_is_away_and_large_ones_go_in_parts() {
    let place = Place::new().await;
    let client = place.database.client().await;
    for _ in 0..40 {
        place.write(&client, job(&"x".repeat(400_000))).await;
    }
    // Nobody listens there.
    let nowhere = queue_redis::Redis::lazy("redis://127.0.0.1:1", Default::default()).unwrap();
    let error = queue_outbox::Relay::new(place.address(), Client::new(nowhere)).run_once().await.unwrap_err();
    assert!(matches!(error, queue_outbox::RelayError::Redis(_)), "{error}");
    assert_eq!(place.database.count("refusal IS NULL").await, 40);
    assert_eq!(place.relayed().await, [40, 0, 0, 0]);
}

#[tokio::test]
async fn a_relay_goes_on_until_it_is_told_to_be_quiet() {
    let place = Place::new().await;
    let (client, quiet) = (place.database.client().await, CancellationToken::new());
    let (relay, told) = (place.relay().poll(Duration::from_millis(10)), quiet.clone());
    let running = tokio::spawn(async move { relay.run(&told).await });
    for n in 1..=3 {
        place.write(&client, RawTask::new("job").queue("q")).await;
        until("it is relayed", async || place.pending("q").await.len() >= n).await;
    }
    quiet.cancel();
    running.await.unwrap().unwrap();
    place.write(&client, job("later")).await;
    assert_eq!(place.pending("q").await.len(), 3);
}

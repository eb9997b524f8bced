//! Rows that are batches and workflows.

use std::time::Duration;

use queue_admin::Inspector;
use queue_redis::{BatchState, BatchStatus};

use crate::Place;

const BATCH: &str = r#"{"description":"bills","linger":"1s","on_success":{"type":"billed","queue":"q"},"tasks":[
    {"type":"bill","queue":"q","payload":{"order": 7.10}},{"type":"bill","queue":"other"},{"type":"bill","queue":"q","in":"90m"}]}"#;

impl Place {
    /// The ids of the rows.
    async fn rows(&self) -> Vec<String> {
        let client = self.database.client().await;
        let rows = client.query("SELECT id::text FROM queue_outbox ORDER BY seq", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn batch(&self, id: &str) -> BatchStatus {
        Inspector::new(self.redis()).batch_status(&id.parse().unwrap()).await.unwrap()
    }

    async fn kept(&self) -> usize {
        self.redis().command::<Vec<String>>("KEYS", "*").await.unwrap().len()
    }
}

#[tokio::test]
async fn a_batch_comes_with_its_transaction_once() {
    let place = Place::new().await;
    let client = place.database.client().await;
    place.say(BATCH).await;
    client.batch_execute("UPDATE queue_outbox SET created_at = created_at - interval '1 hour'").await.unwrap();
    let id = place.rows().await.remove(0);
    // It is made, and the row cannot be deleted.
    let broken = "CREATE FUNCTION break() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$; \
                  CREATE TRIGGER break BEFORE DELETE ON queue_outbox FOR EACH STATEMENT EXECUTE FUNCTION break()";
    client.batch_execute(broken).await.unwrap();
    place.relay().run_once().await.unwrap_err();
    let made = place.batch(&id).await;
    assert_eq!((made.state, made.total, made.description.as_deref()), (BatchState::Running, 3, Some("bills")));
    client.batch_execute("DROP TRIGGER break ON queue_outbox").await.unwrap();
    assert_eq!(place.relayed().await, [1, 0, 0, 0]);
    assert_eq!((place.batch(&id).await.total, place.database.count("true").await), (3, 0));
    let (q, other) = (place.pending("q").await, place.pending("other").await);
    assert_eq!((q.len(), other.len()), (1, 1));
    let inspector = Inspector::new(place.redis());
    assert_eq!(&inspector.task("q", &q[0]).await.unwrap().payload[..], br#"{"order": 7.10}"#, "to the byte");
    let scheduled: Vec<(String, i64)> =
        place.redis().command("ZRANGE", ("asynq:{q}:scheduled", 0, -1, "WITHSCORES")).await.unwrap();
    let (now, _): (i64, i64) = place.redis().query("TIME", &redis::cmd("TIME")).await.unwrap();
    assert!((1_700..=1_801).contains(&(scheduled[0].1 - now)), "half an hour is left: {scheduled:?}");
    let linger: i64 = place.redis().command("HGET", (format!("asynq:x:{{{id}}}:0:flow"), "linger")).await.unwrap();
    assert_eq!(linger, 3_600, "its row might come once more");
}

#[tokio::test]
async fn a_workflow_may_be_a_row_and_have_an_id_of_its_own() {
    let place = Place::new().await;
    let text =
        r#"{"id":"release","nodes":[{"name":"build","type":"build"},{"name":"ship","type":"ship","after":["build"]}]}"#;
    place.say(text).await;
    place.say(text).await;
    assert_eq!(place.relayed().await, [2, 0, 0, 0]);
    let made = place.batch("release").await;
    assert_eq!((made.total, made.sent, made.waiting, place.pending("default").await.len()), (2, 1, 1, 1));
}

#[tokio::test]
async fn a_batch_that_cannot_be_is_refused_whole_with_the_reason() {
    let place = Place::new().await;
    // More than is gathered before the first members are enqueued.
    let many = format!(r#"{{"tasks":[{}{{"type":"t","group":"g"}}]}}"#, r#"{"type":"t"},"#.repeat(10_000));
    let wrong = [
        (&*many, "task 10000 cannot belong to a batch"),
        (r#"{"tasks":[{"type":"t"},{"type":"t","task_id":"7"}]}"#, "task 1 cannot belong to a batch"),
        (r#"{"tasks":[{"type":"t"},{"type":"t","quue":"7"}]}"#, "tasks[1]: unknown field `quue`"),
        (r#"{"tasks":[{"type":"t"},{"type":"t","queue":" "}]}"#, "task 1 of the batch was refused"),
        (r#"{"tasks":[{"type":"t"}],"on_success":{"type":"t","in":"1s"}}"#, "a callback is enqueued at once"),
        (r#"{"tasks":[],"nodes":[]}"#, "it has `tasks` and `nodes`"),
        (r#"{"tasks":[],"id":"a b"}"#, "a b"),
        (r#"{"tasks":5}"#, "`tasks` is the number 5"),
        (r#"{"nodes":[{"name":"a","type":"t","after":["a"]}]}"#, "circle"),
    ];
    for (text, _) in wrong {
        place.say(text).await;
    }
    assert_eq!(place.relayed().await, [0, 0, wrong.len(), 0]);
    let refused = place.address().refused(10).await.unwrap();
    for (row, (text, why)) in refused.iter().rev().zip(wrong) {
        assert!(row.refusal.contains(why) && row.task_type.is_empty(), "{text}: {}", row.refusal);
    }
    assert_eq!(place.kept().await, 0, "nothing was stored");
}

#[tokio::test]
async fn a_batch_of_which_redis_refuses_a_queue_is_completed_when_that_is_mended() {
    let place = Place::new().await;
    place.redis().command::<()>("SET", ("asynq:{other}:pending", "text")).await.unwrap();
    place.say(BATCH).await;
    place.say(r#"{"type":"plain","queue":"q"}"#).await;
    let id = place.rows().await.remove(0);
    assert_eq!(place.relayed().await, [1, 0, 0, 1]);
    assert_eq!(place.batch(&id).await.state, BatchState::Open);
    place.redis().command::<()>("DEL", "asynq:{other}:pending").await.unwrap();
    assert_eq!(place.relayed().await, [1, 0, 0, 0]);
    let made = place.batch(&id).await;
    assert_eq!((made.state, made.total, place.pending("other").await.len()), (BatchState::Running, 3, 1));
    assert_eq!(place.pending("q").await.len(), 2);
}

#[tokio::test]
async fn a_large_batch_is_one_row() {
    let place = Place::new().await;
    let client = place.database.client().await;
    let many = "INSERT INTO queue_outbox (task) SELECT json_build_object('tasks', json_agg(json_build_object('type', 't', 'payload', n))) \
                FROM generate_series(1, 25000) AS n";
    client.batch_execute(many).await.unwrap();
    let id = place.rows().await.remove(0);
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), place.relayed()).await.unwrap(), [1, 0, 0, 0]);
    let made = place.batch(&id).await;
    assert_eq!((made.state, made.total), (BatchState::Running, 25_000));
}

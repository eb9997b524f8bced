//! `queuectl outbox`.

use std::time::Duration;

use queue_core::TaskState;

use crate::postgres::OneDatabase;
use crate::support::{Bench, finish, queuectl};

async fn insert(database: &OneDatabase, task: &str) {
    let client = database.client().await;
    client.execute("INSERT INTO queue_outbox (task) VALUES ($1::text::json)", &[&task]).await.unwrap();
}

#[tokio::test]
async fn rows_are_relayed_until_told_to_end_and_refused_ones_can_be_mended() {
    let (bench, database) = (Bench::new().await, OneDatabase::new().await);
    let address = database.address();
    let outbox = async |words: &str| {
        let words: Vec<&str> = words.split(' ').chain(["--database", &address]).collect();
        bench.run(&[&["outbox"], &words[..]].concat()).await
    };
    let told = outbox("relay").await.failed(1);
    assert!(told.contains("there is no table queue_outbox") && told.contains("queuectl outbox init"), "{told}");
    assert!(outbox("init").await.ok().contains("the table queue_outbox is in"));
    assert_eq!(outbox("init --print").await.ok(), queue_outbox::SCHEMA);
    assert_eq!(outbox("ls").await.ok(), "0 rows wait\n");

    insert(&database, r#"{"type":"email:welcome","task_id":"a"}"#).await;
    assert!(outbox("ls").await.ok().starts_with("1 rows wait, the oldest written "));
    assert!(outbox("relay --once").await.ok().starts_with("1 rows relayed, 0 dropped"));
    assert_eq!(bench.wait_for("a", &[TaskState::Pending]).await.task_type, "email:welcome");

    let _: () = bench.ask(&["SET", "asynq:{broken}:pending", "text"]).await;
    insert(&database, r#"{"type":"t","queue":"broken"}"#).await;
    let done = outbox("relay --once").await;
    assert!(done.stdout.starts_with("0 rows relayed") && done.stdout.contains("1 left"), "{done:?}");
    assert!(done.failed(4).contains("rows are left"));
    let _: () = bench.ask(&["DEL", "asynq:{broken}:pending"]).await;

    let relay = bench
        .background(&["outbox", "relay", "--poll", "10ms", "--database", &address], "relaying what is committed")
        .await;
    insert(&database, r#"{"type":"email:welcome","task_id":"b"}"#).await;
    bench.wait_for("b", &[TaskState::Pending]).await;
    insert(&database, r#"{"type":"t","retrention":"1h"}"#).await;
    relay.wait_for_line("a row can never be enqueued").await;
    assert_eq!(relay.stop().await.0, Some(0));

    let shown = outbox("ls").await.ok();
    assert!(shown.contains("1 were refused") && shown.contains("unknown field `retrention`"), "{shown}");
    let told = outbox("ls --json").await.json();
    assert_eq!((&told["waiting"], &told["refused"]), (&0.into(), &1.into()));
    let row = told["rows"][0]["row"].to_string();
    assert!(
        outbox("retry 999999").await.failed(3).contains("0 rows are tried again; 1 of those named are no refused rows")
    );
    assert_eq!(outbox(&format!("retry {row}")).await.ok(), "1 rows are tried again\n");
    assert_eq!(outbox("relay --once --json").await.json()["refused"], 1);
    assert!(outbox("delete --all").await.failed(2).contains("--yes"));
    assert_eq!(outbox("delete --all --yes").await.ok(), "1 rows are deleted\n");
    assert_eq!(outbox("ls").await.ok(), "0 rows wait\n");
}

#[tokio::test]
async fn an_outbox_is_looked_at_without_redis_and_its_password_is_not_shown() {
    let database = OneDatabase::new().await;
    let outbox = async |words: &[&str], url: &str| {
        let mut command = queuectl();
        // Nobody listens there.
        command.args(["--redis", "redis://127.0.0.1:1", "outbox"]).args(words).env("DATABASE_URL", url);
        tokio::time::timeout(Duration::from_secs(60), finish(command, b"")).await.unwrap()
    };
    let address = database.address();
    outbox(&["init"], &address).await.ok();
    assert_eq!(outbox(&["ls"], &address).await.ok(), "0 rows wait\n");
    assert!(outbox(&["relay"], &address).await.failed(1).contains("cannot reach Redis"));
    for url in ["postgres://shop:secret@127.0.0.1:1/shop", "postgres://shop:secret@host:none/shop"] {
        let told = outbox(&["ls"], url).await.failed(1);
        assert!(!told.contains("secret") && told.contains("PostgreSQL"), "{told}");
    }
    let help = outbox(&["ls", "--help"], "postgres://shop:secret@host/shop").await.ok();
    assert!(help.contains("DATABASE_URL") && !help.contains("secret"), "{help}");
    let mut command = queuectl();
    command.args(["outbox", "ls"]).env_remove("DATABASE_URL");
    assert!(finish(command, b"").await.failed(2).contains("--database"));
}

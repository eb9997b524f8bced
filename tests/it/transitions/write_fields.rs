use queue_redis::broker::Verdict::{Applied, Gone, Lost};

use crate::support::{Fixture, job};

#[tokio::test]
async fn write_fields_stores_bytes_and_the_last_write_wins() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let before = fixture.keyspace().await;
    assert_eq!(fixture.broker.write_result(&task.run, b"first").await.unwrap(), Applied);
    assert_eq!(fixture.broker.write_result(&task.run, b"\0\xff").await.unwrap(), Applied);
    fixture.keyspace().await.assert_changes_since(&before, "+ {q}:t:a result: 0x00ff");
    let both: &[(&str, &[u8])] = &[("x_progress", b"5 6 note"), ("x_cursor", b"[7]")];
    assert_eq!(fixture.broker.write_fields(&task.run, both).await.unwrap(), Applied);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:t:a result: 0x00ff
         + {q}:t:a x_cursor: [7]
         + {q}:t:a x_progress: 5 6 note",
    );
}

/// asynq makes a hash with nothing but a result here, which blocks the id (W14).
#[tokio::test]
async fn write_fields_of_what_is_not_the_callers_changes_nothing() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch(["a", "b", "c", "d"].map(job)).await;
    fixture.run("DEL asynq:{q}:t:a").await;
    fixture.run("HSET asynq:{q}:t:b owner other").await;
    fixture.run("ZREM asynq:{q}:lease c").await;
    let before = fixture.keyspace().await;
    for (task, verdict) in tasks.iter().zip([Gone, Lost, Lost]) {
        assert_eq!(fixture.broker.write_result(&task.run, b"late").await.unwrap(), verdict);
    }
    let write = async || fixture.broker.write_result(&tasks[3].run, b"late").await;
    assert_eq!(fixture.with_stray("asynq:{q}:t:d", write).await.unwrap(), Lost);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

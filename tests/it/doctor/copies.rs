//! What a repair deletes can be put back. On a Redis only: the testing kit's store restores no keys.

use queue_redis::Copied;

use super::{fix, problems, start};

#[tokio::test]
async fn undo_restores_what_was_deleted_byte_for_byte() {
    let (fixture, inspector) = start().await;
    for command in [
        "ZADD @retry 5 ghost",
        "RPUSH @pending ghost",
        "HSET @t:stub result x state active",
        "RPUSH @active stub",
        "ZADD @lease 7 stub",
        "DEL @completed",
        "XADD @completed 1-1 field value",
        "SET @unique:job:x gone EX 10000",
        "SET @failed many",
    ] {
        fixture.run(&command.replace('@', "asynq:{q}:")).await;
    }
    let before = fixture.keyspace().await;
    let (_, copies) = fix(&inspector).await;
    assert_eq!(problems(&inspector).await, [""; 0]);
    let mended = fixture.keyspace().await;
    // The place of the stray key was taken again, by the tasks that it hid.
    let is_taken = |copy: &Copied| matches!(copy, Copied::Key { key, .. } if key.ends_with(b":completed"));
    for copy in &copies {
        assert_eq!(inspector.doctor().undo(copy).await.unwrap(), !is_taken(copy), "{copy:?}");
    }
    for copy in &copies {
        assert!(!inspector.doctor().undo(copy).await.unwrap(), "twice: {copy:?}");
    }
    let expected = "
        - {q}:completed: a stream
        + {q}:completed completed: score 4000003600
    ";
    fixture.keyspace().await.assert_changes_since(&before, expected);
    fix(&inspector).await;
    fixture.keyspace().await.assert_unchanged_since(&mended);
}

#[tokio::test]
async fn nothing_is_deleted_without_its_copy() {
    let (fixture, inspector) = start().await;
    for command in ["HSET @t:stub result x", "SET @failed many", "RPUSH @pending retry", "ZADD @retry 5 ghost"] {
        fixture.run(&command.replace('@', "asynq:{q}:")).await;
    }
    let before = fixture.keyspace().await;
    let found: Vec<_> = super::examine(&inspector).await.into_iter().filter(|found| found.deletes()).collect();
    assert_eq!(found.len(), 4);
    for finding in &found {
        assert!(!inspector.doctor().mend(finding, &[]).await.unwrap(), "{finding:?}");
    }
    // A copy of what has changed since is none.
    let copies: Vec<_> = {
        let mut copies = Vec::new();
        for finding in &found {
            copies.push(inspector.doctor().copies(finding).await.unwrap());
        }
        copies
    };
    fixture.keyspace().await.assert_unchanged_since(&before);
    fixture.run("HSET asynq:{q}:t:stub result y").await;
    fixture.run("SET asynq:{q}:failed more").await;
    let before = fixture.keyspace().await;
    for (finding, copies) in found.iter().zip(&copies) {
        if ["stub", "asynq:{q}:failed"].contains(&finding.subject.as_str()) {
            assert!(!inspector.doctor().mend(finding, copies).await.unwrap(), "{finding:?}");
        }
    }
    fixture.keyspace().await.assert_unchanged_since(&before);
}

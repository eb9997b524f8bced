//! The private server: ready whatever it is told to be, and clear about it when it is not.

#![cfg(feature = "embedded")]

use queue_redis::embedded::{RedisServer, StartError};

#[tokio::test]
async fn a_server_with_a_password_is_ready_and_asks_for_it() {
    let server = RedisServer::start_with(None, &["--requirepass", "secret"]).await.unwrap();
    let error = server.redis().ping().await.unwrap_err().to_string();
    assert!(error.contains("NOAUTH") && error.contains("password"), "{error}");
}

#[tokio::test]
async fn a_setting_that_redis_does_not_know_is_told() {
    let error = RedisServer::start_with(None, &["--no-such-setting", "1"]).await.unwrap_err();
    assert!(matches!(&error, StartError::NotReady { output } if output.contains("no-such-setting")), "{error}");
}

#[tokio::test]
async fn an_embedded_server_keeps_its_data_in_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let server = RedisServer::start_with(Some(directory.path()), &[]).await.unwrap();
    let client = queue_redis::Client::new(server.redis());
    let task = client.enqueue(queue_core::RawTask::new("t")).await.unwrap();
    server.stop().await;
    let server = RedisServer::start_with(Some(directory.path()), &[]).await.unwrap();
    let again = queue_core::RawTask::new("t").task_id(&task.id);
    let refused = queue_redis::Client::new(server.redis()).enqueue(again).await;
    assert!(matches!(refused, Err(queue_redis::EnqueueError::TaskIdConflict { .. })), "{refused:?}");
}

//! The private server: ready whatever it is told to be, and clear about it when it is not.

#![cfg(feature = "embedded")]

use queue_redis::embedded::{RedisServer, StartError};

#[tokio::test]
async fn a_server_with_a_password_is_ready_and_asks_for_it() {
    let server = RedisServer::start_with(None, &["--requirepass", "secret"]).await.unwrap();
    let error = server.redis().ping().await.unwrap_err().to_string();
    assert!(error.contains("Authentication required; put the password"), "{error}");
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

/// Each rewrote the other's append-only file, and acknowledged tasks were lost.
#[tokio::test]
async fn a_directory_has_one_server_and_tells_the_second_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new");
    let first = RedisServer::start_with(Some(&path), &[]).await.unwrap();
    let Err(StartError::InUse { url, .. }) = RedisServer::start_with(Some(&path), &[]).await else {
        panic!("two servers")
    };
    assert_eq!(url, first.url());
    let socket = first.socket().to_owned();
    let home = first.detach().await.unwrap();
    let again = RedisServer::start_with(Some(&path), &[]).await;
    assert!(matches!(again, Err(StartError::InUse { .. })), "a detached server is one too: {again:?}");
    let client = redis::Client::open(format!("redis+unix://{}", socket.display())).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let _ = redis::cmd("SHUTDOWN").exec_async(&mut connection).await;
    let free = async {
        loop {
            match RedisServer::start_with(Some(&path), &[]).await {
                Err(StartError::InUse { .. }) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                started => return started,
            }
        }
    };
    let second = tokio::time::timeout(std::time::Duration::from_secs(10), free).await.unwrap().unwrap();
    second.stop().await;
    std::fs::remove_dir_all(home).unwrap();
}

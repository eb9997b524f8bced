//! The private Redis for demos and tests.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use queue_redis::embedded::RedisServer;

use crate::support::{eventually, occupy};

/// Set for the program that the test starts: this one again.
const HOLD: &str = "QUEUE_TESTS_HOLD_A_REDIS";

/// Its directory stayed, and with it everything that was enqueued.
#[tokio::test]
async fn the_private_redis_of_a_program_that_is_killed_leaves_nothing_behind() {
    if std::env::var_os(HOLD).is_some() {
        let redis = RedisServer::start().await.unwrap();
        println!("\nsocket {}", redis.socket().display());
        return std::future::pending().await;
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    let name = "embedded::the_private_redis_of_a_program_that_is_killed_leaves_nothing_behind";
    program.args([name, "--exact", "--nocapture"]).env(HOLD, "1").stdout(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map_while(Result::ok);
    let socket = lines.find_map(|line| line.strip_prefix("socket ").map(PathBuf::from)).unwrap();
    assert!(socket.exists());
    program.kill().unwrap();
    program.wait().unwrap();
    let directory = socket.parent().unwrap();
    eventually("the directory is gone", async || !directory.exists()).await;
}

#[tokio::test]
async fn a_private_redis_that_was_detached_keeps_its_directory() {
    let redis = RedisServer::start().await.unwrap();
    let socket = redis.socket().to_owned();
    let directory = redis.detach().await.unwrap();
    let client = redis::Client::open(format!("redis+unix://{}", socket.display())).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("PING").exec_async(&mut connection).await.unwrap();
    eventually("the watchdog has heard it", async || directory.join("detached").exists()).await;
    // The answer is the end of the connection.
    let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").exec_async(&mut connection).await;
    eventually("it has ended", async || !socket.exists()).await;
    assert!(directory.exists());
    std::fs::remove_dir_all(directory).unwrap();
}

/// The shell that looks after it ended, and the server ran on in a directory that was gone.
#[tokio::test]
async fn a_private_redis_whose_terminal_goes_away_ends_with_its_program_all_the_same() {
    let redis = RedisServer::start().await.unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await.unwrap();
    let process = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().to_owned();
    let group = Command::new("ps").args(["-o", "pgid=", "-p", &process]).output().unwrap();
    let group = String::from_utf8(group.stdout).unwrap();
    let hung_up = Command::new("kill").args(["-HUP", "--", &format!("-{}", group.trim())]).status().unwrap();
    assert!(hung_up.success());
    // What a signal ends, it has ended by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(redis);
    let lives = || Command::new("kill").args(["-0", &process]).stderr(Stdio::null()).status().unwrap().success();
    eventually("it has ended", async || !lives()).await;
}

/// It spun for as long as the machine ran.
#[tokio::test]
async fn a_private_redis_within_a_long_script_is_ended_all_the_same() {
    let redis = RedisServer::start_with(None, &["--lua-time-limit", "10"]).await.unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await.unwrap();
    let process = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().to_owned();
    let script = occupy(redis.url());
    eventually("it is busy", async || {
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let answer = redis::cmd("PING").query_async::<()>(&mut connection).await;
        answer.is_err_and(|error| error.code() == Some("BUSY"))
    })
    .await;
    drop(redis);
    let lives = || Command::new("kill").args(["-0", &process]).stderr(Stdio::null()).status().unwrap().success();
    assert!(lives(), "it cannot have heard that it is to end");
    eventually("it has ended", async || !lives()).await;
    script.abort();
}

//! A process that is told to end while its server cannot start.
//!
//! Signals are the process's, so each case runs in one of its own: the test starts itself again, to run `program` alone.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use queue_redis::{Redis, RedisOptions};
use queue_worker::{Router, Server, ServerError};

const REDIS: &str = "TOLD_TO_END_TEST_REDIS";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What any service is: a server that is started again where it cannot start. It says so, and goes on when it is told.
#[tokio::test]
async fn program() {
    let Ok(url) = std::env::var(REDIS) else { return };
    queue_worker::log_to_stderr(false);
    let options = RedisOptions { connect_timeout: DAY, response_timeout: DAY, ..RedisOptions::default() };
    let redis = Redis::lazy(&url, options).unwrap();
    loop {
        match Server::new(redis.clone(), Router::new(())).run().await {
            Ok(()) => return println!("\nended"),
            Err(ServerError::Redis(_)) => println!("\nfailed"),
            Err(other) => panic!("{other}"),
        }
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
}

struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "program", "--nocapture"])
            .env(REDIS, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn terminate(&self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
    }

    fn start_again(&mut self) {
        // One that has ended does not read any more.
        let _ = self.child.stdin.as_mut().unwrap().write_all(b"\n");
    }

    /// Whether it says next that its server has ended, and not that it could not start.
    fn has_ended(&mut self) -> bool {
        let said = self.lines.find(|line| matches!(line.as_deref(), Ok("ended" | "failed")));
        said.is_some_and(|line| line.unwrap() == "ended")
    }

    /// Whether this start or a later one ends, and the signal was not forgotten: it may be slower than a start that
    /// fails at once, but not than a hundred.
    fn ends_soon(&mut self) -> bool {
        for _ in 0..100 {
            if self.has_ended() {
                return true;
            }
            self.start_again();
        }
        false
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_signal_that_comes_while_a_server_starts_ends_it_at_once() {
    let redis = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut program = Program::start(&format!("redis://{}", redis.local_addr().unwrap()));
    // By now it listens for signals, and to a Redis that does not answer for a day.
    let connection = redis.accept().unwrap();
    program.terminate();
    assert!(program.has_ended());
    drop(connection);
}

#[test]
fn a_signal_that_comes_while_a_start_fails_is_not_forgotten() {
    let redis = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut program = Program::start(&format!("redis://{}", redis.local_addr().unwrap()));
    let connection = redis.accept().unwrap();
    // Stopped, it meets the signal and the end of the connection at the same time, and may see either first.
    assert!(Command::new("kill").arg("-STOP").arg(program.child.id().to_string()).status().unwrap().success());
    program.terminate();
    drop((connection, redis));
    assert!(Command::new("kill").arg("-CONT").arg(program.child.id().to_string()).status().unwrap().success());
    assert!(program.ends_soon());
}

#[test]
fn a_signal_that_comes_between_two_starts_ends_the_second() {
    let redis = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", redis.local_addr().unwrap());
    drop(redis);
    let mut program = Program::start(&url);
    assert!(!program.has_ended(), "nobody listens there");
    program.terminate();
    program.start_again();
    assert!(program.ends_soon());
}

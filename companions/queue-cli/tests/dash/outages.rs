//! Redis goes away, and comes back.

use queue_core::RawTask;
use rustix::process::Signal;

use crate::fleet::Fleet;
use crate::terminal::{self, Terminal};

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_hangs_the_keyboard_works_and_afterwards_all_goes_on() {
    if !terminal::is_there() {
        return;
    }
    let fleet = Fleet::new().await;
    fleet.enqueue("one", RawTask::new("t").queue("mail")).await;
    let terminal = Terminal::start(fleet.url(), (80, 24), "", &[]);
    terminal.wait_for(">mail          RUN        1");
    // Asks for its process before it hangs.
    fleet.signal_redis(Signal::CONT).await;
    fleet.signal_redis(Signal::STOP).await;
    terminal.press(&["?"]);
    terminal.wait_for("each of these asks first");
    terminal.press(&["q", "Enter"]);
    terminal.wait_for("1 queue › mail");
    terminal.wait_for("REDIS IS AWAY");
    terminal.press(&["q"]);
    terminal.wait_for(">mail          RUN        1");
    fleet.signal_redis(Signal::CONT).await;
    terminal.wait_without("REDIS IS AWAY");
    fleet.enqueue("two", RawTask::new("t").queue("mail")).await;
    terminal.wait_for(">mail          RUN        2");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_redis_at_the_same_address_is_found_by_itself() {
    if !terminal::is_there() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("redis.sock");
    let url = format!("redis+unix://{}", socket.display());
    let start = async || {
        let program = if which("redis-server") { "redis-server" } else { "valkey-server" };
        let mut command = tokio::process::Command::new(program);
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).current_dir(directory.path());
        let server = command.stdout(std::process::Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            if let Ok(redis) = queue_redis::Redis::connect(&url).await {
                return (server, queue_redis::Client::new(redis));
            }
            assert!(std::time::Instant::now() < end, "Redis does not start");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let (mut server, client) = start().await;
    client.enqueue(RawTask::new("t").queue("before")).await.unwrap();
    let terminal = Terminal::start(&url, (80, 24), "", &[]);
    terminal.wait_for(">before");
    server.kill().await.unwrap();
    let screen = terminal.wait_for("REDIS IS AWAY (shown: ");
    assert!(screen.iter().any(|line| line.starts_with(">before")), "{screen:#?}");
    let (_server, client) = start().await;
    client.enqueue(RawTask::new("t").queue("after")).await.unwrap();
    terminal.wait_for(">after");
    terminal.wait_without("REDIS IS AWAY");
    terminal.press(&["q"]);
    assert_eq!(terminal.ended(), 0);
}

fn which(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

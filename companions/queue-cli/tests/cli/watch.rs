//! `--watch`, and what a terminal gets.

use queue_redis::embedded::RedisServer;

use crate::support::{Bench, queuectl};
use crate::terminal::Terminal;

#[tokio::test]
async fn json_is_appended_line_by_line() {
    let bench = Bench::new().await;
    bench.enqueue("t", "id").await;
    for arguments in [
        &["queue", "ls", "--watch", "0.1"][..],
        &["stats", "--watch=0.1"],
        &["task", "ls", "-q", "default", "-s", "pending", "--watch", "0.1"],
        &["server", "list", "--watch", "100ms"],
    ] {
        let lines = bench.first_lines(&[arguments, &["--json"]].concat(), 3).await;
        for line in lines {
            serde_json::from_str::<serde_json::Value>(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
    for wrong in ["0", "0.01", "often"] {
        bench.run(&["queue", "ls", &format!("--watch={wrong}")]).await.failed(2);
    }
}

#[tokio::test]
async fn a_terminal_is_overwritten_and_shows_what_changes() {
    let bench = Bench::new().await;
    bench.enqueue("t", "id").await;
    let mut command = queuectl();
    command.args(["queue", "ls", "--watch", "0.1", "--redis", bench.redis.url()]);
    let mut terminal = Terminal::run(command);
    terminal.wait_for("default").await;
    bench.inspector.pause("default").await.unwrap();
    let seen = terminal.wait_for("paused").await;
    assert!(seen.starts_with("\x1b[H") && seen.contains("\x1b[K") && seen.contains("\x1b[J"), "{seen:?}");
    terminal.interrupt().await;
}

#[tokio::test]
async fn watching_goes_on_while_redis_is_away() {
    let redis = RedisServer::start().await.unwrap();
    let mut command = queuectl();
    command.args(["queue", "ls", "--watch", "0.1", "--redis", redis.url()]);
    let mut terminal = Terminal::run(command);
    terminal.wait_for("no queues yet").await;
    redis.stop().await;
    terminal.wait_for("warning: ").await;
    terminal.interrupt().await;
}

#[tokio::test]
async fn colours_are_for_terminals_that_want_them() {
    let bench = Bench::new().await;
    bench.enqueue("t", "id").await;
    bench.inspector.pause("default").await.unwrap();
    let shown = async |variable: Option<(&str, &str)>| {
        let mut command = queuectl();
        command.args(["queue", "ls", "--redis", bench.redis.url()]).env_remove("TERM");
        if let Some((name, value)) = variable {
            command.env(name, value);
        }
        Terminal::run(command).end().await.1
    };
    let coloured = shown(None).await;
    assert!(coloured.contains("\x1b[1mQUEUE") && coloured.contains("\x1b[33mdefault"), "{coloured:?}");
    assert!(shown(Some(("NO_COLOR", ""))).await.contains('\x1b'));
    for plain in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        assert!(!shown(Some(plain)).await.contains('\x1b'), "{plain:?}");
    }
    assert!(!bench.run(&["queue", "ls"]).await.ok().contains('\x1b'));
}

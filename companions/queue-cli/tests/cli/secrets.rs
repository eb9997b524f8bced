//! Passwords never show, whatever goes wrong.

use tokio::process::Command;

use crate::support::{Bench, Done, finish, queuectl};

const SECRET: &str = "s3cr3tpassw0rd";

#[track_caller]
fn keeps_it(done: &Done, what: &str) {
    assert!(!done.stdout.contains(SECRET) && !done.stderr.contains(SECRET), "{what}: {done:?}");
}

/// Every kind of command that uses Redis; those that would go on for ever fail before they begin.
const COMMANDS: [&[&str]; 16] = [
    &["stats"],
    &["queue", "ls"],
    &["queue", "inspect", "default"],
    &["task", "ls", "--queue", "default", "--state", "pending"],
    &["task", "inspect", "--queue", "default", "--id", "x"],
    &["task", "wait", "--queue", "default", "x"],
    &["group", "ls", "--queue", "default"],
    &["server", "ls"],
    &["cron", "ls"],
    &["enqueue", "t"],
    &["worker", "--exec", "t=true"],
    &["exporter"],
    &["export"],
    &["bench", "enqueue", "--tasks", "1"],
    &["--json", "stats"],
    &["dash"],
];

/// URLs at which no Redis is to be had, for one reason or another; `$` stands for the socket of one that
/// wants another password.
const URLS: [&str; 19] = [
    "redis://user:s3cr3tpassw0rd@127.0.0.1:1/0",
    "redis://:s3cr3tpassw0rd@127.0.0.1:1",
    "redis://:s3cr3tpassw0rd@no-such-host.invalid",
    "rediss://user:s3cr3tpassw0rd@127.0.0.1:1",
    "redis+unix:///no/such.sock?pass=s3cr3tpassw0rd",
    "unix:///no/such.sock?user=u&pass=s3cr3tpassw0rd",
    "redis-socket://:s3cr3tpassw0rd@/no/such.sock",
    "redis+unix://$?pass=s3cr3tpassw0rd",
    "redis+unix://$?user=someone&pass=s3cr3tpassw0rd",
    "redis-socket://:s3cr3tpassw0rd@$",
    "redis-sentinel://:s3cr3tpassw0rd@h1:26379,h2:26379/0?master=m",
    "redis-sentinel://h1:26379/0?master=m&sentinel_password=s3cr3tpassw0rd&password=s3cr3tpassw0rd",
    "redis-cluster://:s3cr3tpassw0rd@127.0.0.1:1,127.0.0.1:2",
    "redis://:s3cr3tpassw0rd@[bad",
    "redis://:s3cr3tpassw0rd@h:99999",
    "redis://:s3cr3tpassw0rd@h/notanumber",
    "ftp://:s3cr3tpassw0rd@h",
    "redis://user:s3cr3t%passw0rd:s3cr3tpassw0rd@h",
    "//:s3cr3tpassw0rd@h",
];

/// A Redis that wants a password which is not the secret.
async fn guarded() -> Bench {
    let bench = Bench::new().await;
    bench.ask::<()>(&["CONFIG", "SET", "requirepass", "other"]).await;
    bench
}

fn command(url: &str, by_environment: bool) -> Command {
    let mut command = queuectl();
    command.env("QUEUECTL_LOG", "trace");
    match by_environment {
        true => command.env("REDIS_URL", url),
        false => command.arg("--redis").arg(url),
    };
    command
}

#[tokio::test]
async fn a_password_never_shows_whatever_is_wrong_with_the_url_or_redis() {
    let bench = guarded().await;
    let socket = bench.redis.socket().display().to_string();
    for url in URLS {
        let url = url.replace('$', &socket);
        let mut failed = 0;
        for (number, arguments) in COMMANDS.iter().enumerate() {
            let mut command = command(&url, number % 2 == 0);
            command.args(*arguments);
            let done = finish(command, b"").await;
            keeps_it(&done, &format!("{url} {arguments:?}"));
            assert!(!done.stderr.is_empty(), "{url} {arguments:?}: {done:?}");
            failed += usize::from(done.code != Some(0));
        }
        assert_eq!(failed, COMMANDS.len(), "{url}");
    }
}

#[tokio::test]
async fn a_password_given_by_flags_never_shows() {
    let bench = guarded().await;
    let socket = bench.redis.socket().display().to_string();
    for arguments in [
        vec!["--uri", "127.0.0.1:1", "--password", SECRET, "stats"],
        vec!["--uri", "127.0.0.1:1", "-p", SECRET, "-U", "user", "--tls", "stats"],
        vec!["--uri", "bad host", "-p", SECRET, "stats"],
        vec!["--uri", "redis://:s3cr3tpassw0rd@h:x", "stats"],
        vec!["-p", SECRET, "--insecure", "stats"],
        vec!["-p", SECRET, "--embedded", "stats"],
        vec!["-p", SECRET, "-n", "nonsense", "stats"],
    ] {
        let mut command = queuectl();
        command.env("QUEUECTL_LOG", "trace").args(&arguments);
        let done = finish(command, b"").await;
        keeps_it(&done, &format!("{arguments:?}"));
        assert_ne!(done.code, Some(0), "{arguments:?}");
    }
    let mut command = queuectl();
    command.arg("--redis").arg(format!("redis+unix://{socket}")).args(["-p", SECRET, "stats"]);
    let done = finish(command, b"").await;
    keeps_it(&done, "a wrong password by flag");
    assert_ne!(done.code, Some(0), "{done:?}");
}

/// Whoever starts the program may not know that it takes URLs.
#[tokio::test]
async fn who_gives_no_password_or_a_wrong_one_is_told_where_it_goes() {
    let bench = guarded().await;
    let url = format!("redis+unix://{}", bench.redis.socket().display());
    for more in [&["stats"][..], &["stats", "-p", SECRET]] {
        let mut command = queuectl();
        command.args(["--redis", &url]).args(more);
        let error = finish(command, b"").await.failed(1);
        for place in ["put the password into the URL", "--redis", "REDIS_URL", "--password"] {
            assert!(error.contains(place), "{place} in {error}");
        }
    }
}

/// Help shows where values come from, and some programs show the values too.
#[tokio::test]
async fn help_does_not_show_the_url_from_the_environment() {
    for arguments in [&["--help"][..], &["help", "enqueue"], &["worker", "--help"], &["--nonsense"], &["man"]] {
        let mut command = command("redis://:s3cr3tpassw0rd@h", true);
        command.args(arguments);
        keeps_it(&finish(command, b"").await, &format!("{arguments:?}"));
    }
}

/// With the right password everything works, and still nobody says it.
#[tokio::test]
async fn a_password_that_is_right_never_shows_either() {
    let bench = Bench::new().await;
    bench.client.enqueue(queue_core::RawTask::new("t").task_id("x")).await.unwrap();
    bench.ask::<()>(&["CONFIG", "SET", "requirepass", SECRET]).await;
    let socket = bench.redis.socket().display().to_string();
    for url in [format!("redis+unix://{socket}?pass={SECRET}"), format!("redis-socket://:{SECRET}@{socket}")] {
        for arguments in &COMMANDS[..10] {
            if arguments.contains(&"wait") {
                continue;
            }
            let mut command = command(&url, false);
            command.args(*arguments);
            let done = finish(command, b"").await;
            keeps_it(&done, &format!("{url} {arguments:?}"));
            assert!(!done.stderr.contains("NOAUTH"), "{arguments:?}: {done:?}");
        }
    }
}

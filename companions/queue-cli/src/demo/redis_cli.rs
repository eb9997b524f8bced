//! The same, seen with redis-cli.

use std::fmt::Write as _;

use tokio::process::Command;
use url::Url;

use super::screen::Style;
use super::tasks::{BULK, MAIL, SHOP};
use crate::error::CliError;
use crate::output::Output;
use crate::session::{Session, Store};

/// How redis-cli reaches the Redis of the demo. A password goes into the environment of the ones we run, and
/// is not shown.
#[derive(Debug, PartialEq, Eq)]
struct Access {
    arguments: Vec<String>,
    password: Option<String>,
}

impl Access {
    fn new(url: &str, socket: Option<&str>) -> Option<Self> {
        let pair = |flag: &str, value: &str| [flag.to_owned(), value.to_owned()];
        if let Some(socket) = socket {
            return Some(Self { arguments: pair("-s", socket).into(), password: None });
        }
        let url = Url::parse(url).ok()?;
        let mut arguments = Vec::new();
        match url.scheme() {
            "redis" | "valkey" | "rediss" | "valkeys" => {
                arguments.extend(pair("-h", url.host_str().unwrap_or("127.0.0.1")));
                arguments.extend(pair("-p", &url.port().unwrap_or(6379).to_string()));
            }
            // Other forms are rare; their users know how to reach their Redis.
            _ => return None,
        }
        if url.scheme().ends_with("ss") || url.scheme() == "valkeys" {
            arguments.push("--tls".to_owned());
        }
        let database = url.path().trim_matches('/');
        if !database.is_empty() && database != "0" {
            arguments.extend(pair("-n", database));
        }
        if !url.username().is_empty() {
            arguments.extend(pair("--user", url.username()));
        }
        Some(Self { arguments, password: url.password().map(str::to_owned) })
    }

    async fn run(&self, words: &[String]) -> Option<String> {
        let mut command = Command::new("redis-cli");
        // --no-raw: the form that a terminal would get.
        command.args(&self.arguments).arg("--no-raw").args(words).kill_on_drop(true);
        if let Some(password) = &self.password {
            command.env("REDISCLI_AUTH", password);
        }
        let output = tokio::time::timeout(std::time::Duration::from_secs(5), command.output()).await.ok()?.ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// What to ask Redis, and what the answer means.
fn questions() -> [(&'static str, String); 6] {
    // Keys are quoted, because some shells expand braces. The meaning stands on a line of its own and not in a
    // comment, because zsh does not take comments from a terminal.
    let (shop, mail, bulk) = (format!("asynq:{{{SHOP}}}"), format!("asynq:{{{MAIL}}}"), format!("asynq:{{{BULK}}}"));
    [
        ("Given up on, oldest first", format!("ZRANGE '{shop}:archived' 0 -1")),
        ("A task is a hash, its message is protobuf", format!("HKEYS '{shop}:t:charge-1042'")),
        ("The result it has left", format!("HGET '{shop}:t:charge-1042' result")),
        ("Done without a retention, and gone", format!("EXISTS '{mail}:t:welcome-ada'")),
        ("Still to come, and when (Unix seconds)", format!("ZRANGE '{mail}:scheduled' 0 -1 WITHSCORES")),
        ("Newsletters worked", format!("GET '{bulk}:processed'")),
    ]
}

/// Asks redis-cli and shows commands and answers as they would stand in a terminal.
pub(super) async fn show(session: &Session, style: Style, out: &Output) -> Result<(), CliError> {
    let socket = session.embedded().map(|server| server.socket().display().to_string());
    let Some(access) = Access::new(&session.url, socket.as_deref()) else { return Ok(()) };
    let mut text = format!("\n{}\n\n", style.bold("The same, seen with redis-cli"));
    let _ = writeln!(text, "  $ alias r='redis-cli {}'", access.arguments.join(" "));
    let mut works = true;
    for (means, command) in questions() {
        let _ = writeln!(text, "\n  {}\n  $ r {command}", style.dim(&format!("{means}:")));
        let words = shell_words::split(&command).unwrap_or_default();
        let answer = if works { access.run(&words).await } else { None };
        works = answer.is_some();
        for line in answer.iter().flat_map(|answer| answer.lines()) {
            let _ = writeln!(text, "  {line}");
        }
    }
    if !works {
        let _ = writeln!(text, "\n  There are no answers here because redis-cli is not installed, or cannot connect.");
    }
    out.text(&text)
}

/// Asks the store inside this process the same. Nothing else can: it has no address.
pub(super) fn show_store(store: &Store, style: Style, out: &Output) -> Result<(), CliError> {
    let title = "The same, as the store inside this process answers Redis' commands";
    let mut text = format!("\n{}\n", style.bold(title));
    for (means, command) in questions() {
        let _ = writeln!(text, "\n  {}\n  > {command}", style.dim(&format!("{means}:")));
        let words = shell_words::split(&command).unwrap_or_default();
        for line in store.command(&words).lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    out.text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_among_the_arguments() {
        let access = Access::new("rediss://u:secret@h:6380/3", None).unwrap();
        assert_eq!(access.arguments.join(" "), "-h h -p 6380 --tls -n 3 --user u");
        assert_eq!(access.password.as_deref(), Some("secret"));
        let access = Access::new("redis://h", None).unwrap();
        assert_eq!(access.arguments.join(" "), "-h h -p 6379");
        assert_eq!(Access::new("x", Some("/s")).unwrap().arguments, ["-s", "/s"]);
        assert_eq!(Access::new("redis+unix:///s", None), None);
    }
}

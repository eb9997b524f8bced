//! The ACL users of `docs/deployment.md`: each line suffices for all that its role does, and no right in it can
//! be left out.

mod batches;
mod cluster;
mod events;
mod examiner;
mod inspector;
mod limits;
mod outbox;
mod priorities;
mod producer;
mod publish;
mod reconciler;
mod scheduler;
mod waits;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use queue_redis::{Redis, RedisOptions, Role};
use redis::Value;

use crate::support::Fixture;

const DOCUMENT: &str = include_str!("../../../../docs/deployment.md");

/// The line of the user of this name, word by word, with a password that is none.
fn documented(user: &str) -> Vec<String> {
    let begin = format!("ACL SETUSER {user} ");
    let line = DOCUMENT.lines().find(|line| line.starts_with(&begin)).expect("the document has the line");
    assert!(line.contains(" on >PASSWORD ~asynq:* "), "{line}");
    line.split(' ').map(|word| word.replace("PASSWORD", "secret")).collect()
}

/// The commands that a line allows.
fn rights(line: &[String]) -> Vec<&str> {
    line.iter().filter_map(|word| word.strip_prefix('+')).collect()
}

/// A Redis with the user of this line, and a handle of that user.
async fn with_user(line: &[String]) -> (Fixture, Redis) {
    let fixture = Fixture::start().await;
    let _: Value = fixture.cmd(line).await;
    let url = format!("{}?user={}&pass=secret", fixture.url(), line[2]);
    (fixture, Redis::lazy(&url, RedisOptions::default()).unwrap())
}

/// An entry of the list of what was refused.
type Refusal = BTreeMap<String, Value>;

/// What the user was refused.
async fn refused(fixture: &Fixture, user: &str) -> BTreeSet<String> {
    refused_by(&fixture.cmd::<Vec<Refusal>>(&["ACL", "LOG"]).await, user)
}

/// The same of a list. Redis 6.2 leaves subcommands out of its log, newer ones do not, so that there `client` alone may be the name of the
/// library, as below.
fn refused_by(log: &[Refusal], user: &str) -> BTreeSet<String> {
    objects(log, user).filter(|object| object != "client").collect()
}

/// Without the name of the library, which Redis 7.2 and newer are told: that is no need. Redis 6.2 looks at rights before it looks whether
/// there is such a subcommand.
fn objects(log: &[Refusal], user: &str) -> impl Iterator<Item = String> {
    let text = |entry: &Refusal, field: &str| redis::from_redis_value_ref::<String>(&entry[field]).unwrap_or_default();
    let of_user = log.iter().filter(move |entry| text(entry, "username") == user);
    of_user.map(move |entry| text(entry, "object").to_ascii_lowercase()).filter(|object| object != "client|setinfo")
}

/// Whether the user was refused something for want of a right. Of those to `client`, the log of Redis 6.2 does not say that.
async fn is_needed(fixture: &Fixture, user: &str, right: &str) -> bool {
    let log = fixture.cmd::<Vec<Refusal>>(&["ACL", "LOG"]).await;
    let command = right.split('|').next().unwrap();
    objects(&log, user).any(|object| object == right || object == command)
}

/// Plays as the documented producer with the rights of the line that begins like this besides: they suffice, and each of them is needed.
async fn each_is_needed(begin: &str, play: impl AsyncFn(&Fixture, Redis)) {
    let line = DOCUMENT.lines().find(|line| line.starts_with(begin)).expect("the document has the line");
    let line: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let (fixture, redis) = with_user(&documented("producer")).await;
    let _: Value = fixture.cmd(&line).await;
    play(&fixture, redis).await;
    let all = refused(&fixture, "producer").await;
    assert!(all.iter().all(|command| command == "client"), "the documented user may not {all:?}");
    for right in rights(&line) {
        let (fixture, redis) = with_user(&documented("producer")).await;
        let without: Vec<String> = line.iter().filter(|word| **word != format!("+{right}")).cloned().collect();
        let _: Value = fixture.cmd(&without).await;
        let _ = AssertUnwindSafe(play(&fixture, redis)).catch_unwind().await;
        assert!(refused(&fixture, "producer").await.contains(right), "{right} is not needed");
    }
}

/// Runs all that a role does as the documented user, and once more without each of its rights.
macro_rules! role {
    ($user:ident, $role:expr) => {
        #[tokio::test]
        async fn $user() {
            let line = documented(stringify!($user));
            let (fixture, redis) = with_user(&line).await;
            let checked = redis.check($role).await.unwrap();
            assert!(checked.of(queue_redis::check::Severity::Error).next().is_none(), "{checked:?}");
            $user::play(&fixture, &redis).await;
            let refused = refused(&fixture, stringify!($user)).await;
            // What it may do without, the check says.
            let refused: Vec<_> = refused.iter().filter(|command| *command != "info").collect();
            assert!(refused.is_empty(), "the documented user may not {refused:?}");

            let mut needless = Vec::new();
            for right in rights(&line) {
                let without: Vec<String> = line.iter().filter(|word| **word != format!("+{right}")).cloned().collect();
                let (fixture, redis) = with_user(&without).await;
                // How it fails is up to the command; some are only missed in the numbers.
                let _ = AssertUnwindSafe($user::play(&fixture, &redis)).catch_unwind().await;
                if !is_needed(&fixture, stringify!($user), right).await {
                    needless.push(right);
                }
            }
            assert!(needless.is_empty(), "nothing is refused to {} without {needless:?}", stringify!($user));
        }
    };
}

role!(producer, Role::Producer);
role!(worker, Role::Worker);
role!(scheduler, Role::Scheduler);
role!(inspector, Role::Inspector);

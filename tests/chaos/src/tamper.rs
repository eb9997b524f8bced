//! Does something wrong on purpose, so that a test can see the check find it.

use std::path::Path;

use redis::FromRedisValue;

use crate::Failure;
use crate::fleet::Fleet;
use crate::ledger::{Book, Step};
use crate::name::{Name, Plan};
use crate::node::Redis;

/// What to do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Tamper {
    /// Deletes a task that is kept.
    Lose,
    /// Lets a task wait for ever.
    Stick,
    /// Runs a task that is done once more.
    Repeat,
    /// Has a task that kills its worker look as if it had done so before.
    Budget,
    /// Removes the limits of a queue.
    Unlimit,
    /// Puts a task into a second set.
    Double,
    /// Leaves a hash without a place.
    Orphan,
    /// Leaves a lock behind.
    Lock,
    /// Counts a task that never was.
    Count,
}

/// A number that no task of a run has.
const OWN: u32 = 4_000_000_000;

impl Tamper {
    /// While workers are still there.
    pub(crate) async fn during(self, redis: &Redis, directory: &Path, fleet: &mut Fleet) -> Result<(), Failure> {
        match self {
            Tamper::Stick => {
                let name = Name { plan: Plan::Scheduled, queue: 0, producer: 0, number: OWN };
                let (book, client) = own(redis, directory, fleet).await?;
                book.note(Step::Intent, &[name]);
                client.enqueue(name.task().process_in(std::time::Duration::from_secs(3_600))).await?;
                book.note(Step::Stored, &[name]);
            }
            Tamper::Repeat => {
                let name = Name { plan: Plan::Plain, queue: 0, producer: 0, number: OWN };
                let (book, client) = own(redis, directory, fleet).await?;
                book.note(Step::Intent, &[name]);
                client.enqueue(name.task()).await?;
                book.note(Step::Stored, &[name]);
                client.enqueue(name.task()).await?;
            }
            Tamper::Budget => {
                let name = Name { plan: Plan::Poison, queue: 0, producer: 0, number: OWN + 1 };
                let (book, client) = own(redis, directory, fleet).await?;
                book.note(Step::Intent, &[name]);
                client.enqueue(name.task()).await?;
                book.note(Step::Stored, &[name]);
                redis.ask::<()>(&["HSET", &format!("asynq:{{chaos-0}}:t:{name}"), "x_crashes", "7 1@h:1:u"]).await?;
            }
            Tamper::Unlimit => {
                let of_number = |n| Name { plan: Plan::Limited, queue: 1, producer: 0, number: OWN + n };
                let names: Vec<Name> = (0..20).map(of_number).collect();
                let (book, client) = own(redis, directory, fleet).await?;
                redis.ask::<()>(&["DEL", "asynq:{chaos-1}:x:rules"]).await?;
                book.note(Step::Intent, &names);
                for stored in client.enqueue_many(names.iter().map(|name| name.task())).await {
                    stored?;
                }
                book.note(Step::Stored, &names);
            }
            _ => {}
        }
        Ok(())
    }

    /// When all workers have ended.
    pub(crate) async fn after(self, redis: &Redis) -> Result<(), Failure> {
        let ask = async |words: &str| {
            let words: Vec<&str> = words.split(' ').collect();
            redis.ask::<redis::Value>(&words).await
        };
        let kept = async || {
            let first: Vec<String> =
                FromRedisValue::from_redis_value(ask("ZRANGE asynq:{chaos-0}:completed 0 0").await?)?;
            first.into_iter().next().ok_or_else(|| Failure::from("no task was kept"))
        };
        match self {
            Tamper::Lose => {
                let id = kept().await?;
                ask(&format!("ZREM asynq:{{chaos-0}}:completed {id}")).await?;
                ask(&format!("DEL asynq:{{chaos-0}}:t:{id}")).await?;
            }
            Tamper::Double => {
                let id = kept().await?;
                ask(&format!("ZADD asynq:{{chaos-0}}:archived 7 {id}")).await?;
            }
            Tamper::Orphan => {
                let id = kept().await?;
                ask(&format!("ZREM asynq:{{chaos-0}}:completed {id}")).await?;
            }
            Tamper::Lock => {
                ask("SET asynq:{chaos-0}:unique:chaos:u:0 nobody").await?;
            }
            Tamper::Count => {
                ask("INCR asynq:{chaos-1}:processed").await?;
            }
            Tamper::Stick | Tamper::Repeat | Tamper::Budget | Tamper::Unlimit => {}
        }
        Ok(())
    }
}

/// A client that no fault meets, and the ledger of the first producer, which has ended.
async fn own(redis: &Redis, directory: &Path, fleet: &Fleet) -> Result<(Book, queue_redis::Client), Failure> {
    let number = fleet.processes.first().map_or(0, |process| process.number);
    let book = Book::open(&directory.join(format!("{number}.ledger")))?;
    let port = redis.upstream.load(std::sync::atomic::Ordering::SeqCst);
    Ok((book, queue_redis::Client::connect(&format!("redis://127.0.0.1:{port}")).await?))
}

//! The reconciler of a server whose user has the rights of `docs/deployment.md` and no others.

use std::time::Duration;

use queue_core::{RawTask, TaskState};
use queue_redis::Redis;
use queue_worker::{Event, Handle, Router, Server};

use super::{Refusal, documented, refused, refused_by, with_user};
use crate::support::{Events, Fixture, Lines, QUEUE, eventually};

async fn start(redis: &Redis, events: &Events) -> Handle {
    let events = events.clone();
    let server = Server::new(redis.clone(), Router::new(()).fallback(async |_| ())).queues([(QUEUE, 1)]);
    let server = server.start_check(false).reconcile_interval(Duration::from_secs(1)).observe(move |event| {
        if let Event::Reconciled { fault, .. } = event {
            events.tell(*fault);
        }
    });
    server.start().await.unwrap()
}

/// Tasks of which one is in no list, and one would be forgotten some time, and more of the kind.
pub(super) async fn damage(fixture: &Fixture) {
    let later = |id| RawTask::new("t").queue(QUEUE).task_id(id).process_in(Duration::from_secs(3_600));
    fixture.enqueue(["lost", "expires", "twice"].map(later)).await;
    fixture.enqueue([RawTask::new("t").queue(QUEUE).task_id("grouped").group("g")]).await;
    for command in [
        "ZREM @scheduled lost",
        "HSET @t:lost state archived",
        "EXPIRE @t:expires 1000",
        "ZADD @archived 4102444800 twice",
        "SREM @groups g",
        "SREM asynq:queues q",
    ] {
        fixture.run(&command.replace('@', "asynq:{q}:")).await;
    }
}

#[tokio::test]
async fn a_worker_with_the_documented_rights_of_upkeep_puts_its_queues_in_order_and_is_refused_nothing() {
    let (fixture, redis) = with_user(&documented("worker")).await;
    let more = super::DOCUMENT.lines().find(|line| line.starts_with("ACL SETUSER worker +"));
    fixture.run(more.expect("the document has the line")).await;
    damage(&fixture).await;
    let events = Events::default();
    let server = start(&redis, &events).await;
    let mut told = events.wait(4).await;
    told.sort();
    assert_eq!(told, ["expires", "no-place", "unlisted-group", "unlisted-queue"]);
    fixture.in_state("lost", TaskState::Archived).await;
    server.shutdown().await;
    let mut refused = refused(&fixture, "worker").await;
    refused.remove("info");
    assert!(refused.is_empty(), "the documented user may not {refused:?}");
}

/// How often the user was refused something.
async fn refusals(fixture: &Fixture) -> i64 {
    let log: Vec<Refusal> = fixture.cmd(&["ACL", "LOG"]).await;
    let of_upkeep = log.iter().filter(|entry| !refused_by(std::slice::from_ref(entry), "worker").is_empty());
    of_upkeep.map(|entry| redis::from_redis_value_ref::<i64>(&entry["count"]).unwrap()).sum()
}

#[tokio::test]
async fn a_worker_without_the_rights_of_upkeep_says_so_once_and_not_with_each_round() {
    let (lines, _guard) = Lines::collect();
    let (fixture, redis) = with_user(&documented("worker")).await;
    damage(&fixture).await;
    let server = start(&redis, &Events::default()).await;
    eventually("there were some rounds", async || refusals(&fixture).await > 4).await;
    let said: Vec<_> = lines.all().into_iter().filter(|line| line.starts_with("ERROR")).collect();
    assert!(said.len() == 1 && said[0].contains("putting queues in order"), "{said:#?}");
    server.shutdown().await;
}

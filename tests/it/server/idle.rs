//! What an idle server asks: whether there is anything to look after.

use queue_redis::{Broker, Holding, Redis, RedisOptions};

use crate::support::Fixture;

async fn may_hold(broker: &Broker, holding: Holding) -> bool {
    broker.may_hold(["a", "b"].into_iter(), holding).await.unwrap()
}

#[tokio::test]
async fn one_command_tells_that_no_queue_has_anything_to_look_after() {
    let cases = [
        (Holding::Pending, "RPUSH asynq:{b}:pending id"),
        (Holding::Leases, "ZADD asynq:{b}:lease 1 id"),
        (Holding::Completed, "ZADD asynq:{b}:completed 1 id"),
        (Holding::Archived, "ZADD asynq:{a}:archived 1 id"),
        (Holding::Groups, "SADD asynq:{b}:groups group"),
        (Holding::Aggregations, "ZADD asynq:{a}:aggregation_sets 1 set"),
        (Holding::Aggregations, "SADD asynq:{b}:x:aggregated set"),
    ];
    let fixture = Fixture::start().await;
    for (holding, command) in cases {
        for (other, _) in cases {
            assert!(!may_hold(&fixture.broker, other).await, "{other:?}");
        }
        fixture.run(command).await;
        for (other, _) in cases {
            assert_eq!(may_hold(&fixture.broker, other).await, other == holding, "{other:?} after {command}");
        }
        fixture.run("FLUSHALL").await;
    }
    assert!(!fixture.broker.may_hold(std::iter::empty(), Holding::Pending).await.unwrap(), "no queues");
}

/// Then each queue is asked by itself, and those that may be served are.
#[tokio::test]
async fn a_refused_question_is_no_answer() {
    let fixture = Fixture::start().await;
    fixture.run("ACL SETUSER half on >pw ~asynq:{a}:* +@all").await;
    let url = format!("{}?user=half&pass=pw", fixture.url());
    let broker = Broker::new(Redis::lazy(&url, RedisOptions::default()).unwrap());
    assert!(may_hold(&broker, Holding::Leases).await);
}

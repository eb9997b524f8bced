//! Takes and reports that set out while others are under way.

use std::sync::Arc;

use queue_redis::{Redis, RedisOptions};
use queue_worker::{Handle, Job, Router, Server};
use tokio::sync::Semaphore;

use crate::support::{Events, Fixture, PATIENCE, Proxy, eventually, job, with};

/// A server with four slots and twenty tasks, four of which run until the door lets them out. Redis does what it
/// asks from now on, and does not answer.
async fn with_twenty_tasks_and_no_answers(fixture: &Fixture) -> (Handle, Arc<Semaphore>) {
    let proxy = Proxy::start(fixture.socket()).await;
    let options = RedisOptions { response_timeout: 2 * PATIENCE, ..RedisOptions::default() };
    let (events, door) = (Events::default(), Arc::new(Semaphore::new(0)));
    let work = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Semaphore>), job: Job| {
        events.tell(job.id());
        door.acquire().await.unwrap().forget();
    });
    fixture.enqueue((0..20).map(|n| job(&n.to_string()))).await;
    let server = Server::new(Redis::lazy(&proxy.url(), options).unwrap(), Router::new(()).route("job", work));
    let server = server.queues([("q", 1)]).concurrency(4).start().await.unwrap();
    events.wait(4).await;
    proxy.lose_answers();
    (server, door)
}

async fn pending_and_active(fixture: &Fixture) -> (usize, usize) {
    (fixture.cmd(&["LLEN", "asynq:{q}:pending"]).await, fixture.cmd(&["LLEN", "asynq:{q}:active"]).await)
}

/// Redis and the handlers took turns: with half of the tasks under way, the others waited for the answers.
#[tokio::test]
async fn one_half_of_the_tasks_is_reported_and_replaced_while_the_other_half_is_under_way() {
    let fixture = Fixture::start().await;
    let (_server, door) = with_twenty_tasks_and_no_answers(&fixture).await;
    for left in [14, 12] {
        door.add_permits(2);
        let filled = async || pending_and_active(&fixture).await == (left, 4);
        eventually("two are reported, and their slots are filled", filled).await;
    }
}

#[tokio::test]
async fn a_server_that_was_told_to_be_quiet_takes_nothing_into_the_slots_that_it_waited_for() {
    let fixture = Fixture::start().await;
    let (server, door) = with_twenty_tasks_and_no_answers(&fixture).await;
    door.add_permits(2);
    eventually("a take is under way", async || pending_and_active(&fixture).await == (14, 4)).await;
    server.quiet();
    door.add_permits(2);
    // A take would travel with these reports.
    eventually("the others are reported", async || fixture.count("processed").await == 4).await;
    assert_eq!(pending_and_active(&fixture).await, (14, 2));
}

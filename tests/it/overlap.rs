//! Takes and reports that set out while others are under way.

use std::sync::Arc;

use queue_redis::{Redis, RedisOptions};
use queue_worker::{Handle, Job, Router, Server};
use tokio::sync::Semaphore;

use crate::support::{Events, Fixture, PATIENCE, Proxy, eventually, job, with};

/// A server with five tasks for each of its slots, where tasks run until the door lets them out. Redis does what it
/// asks from now on, and does not answer.
async fn without_answers(fixture: &Fixture, concurrency: usize) -> (Handle, Arc<Semaphore>) {
    fixture.warm().await;
    let proxy = Proxy::start(fixture.socket()).await;
    let options = RedisOptions { response_timeout: 2 * PATIENCE, ..RedisOptions::default() };
    let (events, door) = (Events::default(), Arc::new(Semaphore::new(0)));
    let work = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Semaphore>), job: Job| {
        events.tell(job.id());
        door.acquire().await.unwrap().forget();
    });
    fixture.enqueue((0..5 * concurrency).map(|n| job(&n.to_string()))).await;
    let server = Server::new(Redis::lazy(&proxy.url(), options).unwrap(), Router::new(()).route("job", work));
    let server = server.queues([("q", 1)]).concurrency(concurrency).start().await.unwrap();
    events.wait(concurrency).await;
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
    let (_server, door) = without_answers(&fixture, 4).await;
    for left in [14, 12] {
        door.add_permits(2);
        let filled = async || pending_and_active(&fixture).await == (left, 4);
        eventually("two are reported, and their slots are filled", filled).await;
    }
}

#[tokio::test]
async fn a_server_that_was_told_to_be_quiet_takes_nothing_into_the_slots_that_it_waited_for() {
    let fixture = Fixture::start().await;
    let (server, door) = without_answers(&fixture, 4).await;
    door.add_permits(2);
    eventually("a take is under way", async || pending_and_active(&fixture).await == (14, 4)).await;
    server.quiet();
    door.add_permits(2);
    // A take would travel with these reports.
    eventually("the others are reported", async || fixture.count("processed").await == 4).await;
    assert_eq!(pending_and_active(&fixture).await, (14, 2));
}

/// What a take brings is not renewed before its answer is looked at.
#[tokio::test]
async fn four_calls_are_under_way_at_the_most() {
    let fixture = Fixture::start().await;
    let (_server, door) = without_answers(&fixture, 200).await;
    door.add_permits(200);
    eventually("all that ran are reported", async || fixture.count("processed").await == 200).await;
    eventually("four calls were made", async || pending_and_active(&fixture).await == (700, 100)).await;
    // The server has a turn whenever Redis is asked.
    for _ in 0..50 {
        assert_eq!(pending_and_active(&fixture).await, (700, 100));
    }
}

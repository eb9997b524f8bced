//! What an idle server asks: whether there is anything to look after.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use queue_admin::Inspector;
use queue_core::wire::ServerInfo;
use queue_redis::leader::Duty;
use queue_redis::{
    Error, Redis, RedisOptions,
    broker::{Broker, Holding},
};
use queue_worker::{Job, Router, Server};

use crate::support::{Events, Fixture, eventually, job, with};

async fn which_hold(broker: &Broker, holding: Holding) -> [bool; 2] {
    broker.which_hold(&["a", "b"], holding).await.unwrap().try_into().unwrap()
}

#[tokio::test]
async fn which_queues_have_something_to_look_after_is_told_for_each_kind() {
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
            assert_eq!(which_hold(&fixture.broker, other).await, [false, false], "{other:?}");
        }
        fixture.run(command).await;
        for (other, _) in cases {
            let of_a = other == holding && command.contains("{a}");
            let of_b = other == holding && command.contains("{b}");
            assert_eq!(which_hold(&fixture.broker, other).await, [of_a, of_b], "{other:?} after {command}");
        }
        fixture.run("FLUSHALL").await;
    }
    assert!(fixture.broker.which_hold(&[], Holding::Pending).await.unwrap().is_empty(), "no queues");
}

/// Then each queue is asked by itself, and those that may be served are.
#[tokio::test]
async fn a_refused_question_is_no_answer() {
    let fixture = Fixture::start().await;
    fixture.run("ACL SETUSER half on >pw ~asynq:{a}:* +@all").await;
    let url = format!("{}?user=half&pass=pw", fixture.url());
    let broker = Broker::new(Redis::lazy(&url, RedisOptions::default()).unwrap());
    assert_eq!(which_hold(&broker, Holding::Leases).await, [true, true]);
}

#[tokio::test]
async fn a_server_says_that_it_lives_and_what_it_works_on_before_after_and_while_it_is_idle() {
    let fixture = Fixture::start().await;
    let inspector = Inspector::new(fixture.redis());
    let events = Events::default();
    let hang = with(&events, async |events: Events, job: Job| {
        events.tell(job.id());
        job.cancellation().cancelled().await;
    });
    let server = Server::new(fixture.another_redis(), Router::new(()).route("job", hang)).queues([("q", 1)]);
    let server = server.start().await.unwrap();
    let works_on = async || {
        let servers = inspector.servers().await.unwrap();
        servers.first().map(|server| server.workers.iter().map(|worker| worker.task_id.clone()).collect::<Vec<_>>())
    };
    // The first heartbeat after the start says all there is, the second one only that it lives.
    for _ in 0..2 {
        fixture.run("FLUSHALL").await;
        eventually("it is listed again", async || works_on().await == Some(Vec::new())).await;
    }
    fixture.put([job("a")]).await;
    events.wait(1).await;
    let is_busy = async || {
        let keys: Vec<String> = fixture.cmd(&["KEYS", "asynq:servers:{*"]).await;
        let entry: Vec<u8> = fixture.cmd(&["GET", &keys[0]]).await;
        ServerInfo::from_bytes(&entry).unwrap().active_worker_count == 1
    };
    eventually("a heartbeat says that it has a task", is_busy).await;
    assert_eq!(works_on().await, Some(vec!["a".to_owned()]), "the same one says which");
    fixture.broker.cancel("a").await.unwrap();
    let gone = async || fixture.cmd::<i64>(&["EXISTS", "asynq:{q}:active"]).await == 0;
    eventually("the task has ended", gone).await;
    eventually("it is not listed any more", async || works_on().await == Some(Vec::new())).await;
    server.shutdown().await;
}

#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Duty for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn look<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Duration>, Error>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(None) })
    }
}

#[tokio::test]
async fn servers_elect_nobody_without_a_duty_and_hear_of_one_at_once() {
    let (fixture, count) = (Fixture::start().await, Count::default());
    let redis = fixture.another_redis();
    let calls: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let seen = calls.clone();
    redis.on_call(move |call| seen.lock().unwrap().push(call.operation));
    let duties = ["lead", "take_duties", "put_off_duty"];
    let asked = || calls.lock().unwrap().iter().filter(|call| duties.contains(call)).copied().collect::<Vec<_>>();
    let servers = [redis, fixture.another_redis()]
        .map(|redis| Server::new(redis, Router::new(())).queues([("q", 1)]).duty(count.clone()).start());
    let servers = futures_util::future::try_join_all(servers).await.unwrap();
    // Long enough for a heartbeat, and whatever else an idle server does.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(asked(), [""; 0]);
    assert!(!fixture.cmd::<bool>(&["EXISTS", "asynq:x:leader"]).await);
    let looks = || count.0.load(Ordering::SeqCst);
    for round in 1..=3 {
        fixture.broker.ask_for_duty("count", "s", 0).await.unwrap();
        eventually("the duty is done", async || looks() == round).await;
        eventually("nothing is left", async || fixture.broker.first_duty().await.unwrap().is_none()).await;
    }
    for server in servers {
        server.shutdown().await;
    }
}

//! What a server must not do while Redis is away, or after it has come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use queue_core::{Clock, SystemClock};
use queue_redis::{Client, Redis, RedisOptions};
use queue_worker::{Job, Router, Server};
use tokio::sync::Notify;

use crate::support::{Events, Fixture, Proxy, RedisProcess, eventually, job, with};

fn impatient(url: &str) -> Redis {
    let brief = Duration::from_millis(500);
    let options = RedisOptions { connect_timeout: brief, response_timeout: brief, ..RedisOptions::default() };
    Redis::lazy(url, options).unwrap()
}

/// A clock that is so many seconds slow.
#[derive(Debug, Default)]
struct Slow(AtomicI64);

impl Clock for Slow {
    fn now_ns(&self) -> i64 {
        SystemClock.now_ns() - self.0.load(Ordering::Relaxed) * 1_000_000_000
    }
}

/// All leases have ended during an outage. Their owners are alive, and renew or report when they can; a
/// recoverer that is faster takes their tasks away.
#[tokio::test]
async fn after_an_outage_nothing_is_recovered_before_its_owner_could_renew_its_lease() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::start(fixture.socket()).await;
    // Where there are leases, the recoverer looks every 4 to 6 s.
    fixture.run("HSET asynq:{q}:t:other msg x state active").await;
    fixture.run("ZADD asynq:{q}:lease 4000000000 other").await;
    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let recoverer = Server::new(impatient(&proxy.url()), Router::new(()).route("job", tell))
        .queues([("q", 1), ("other", 1)])
        .poll_interval(Duration::from_millis(100));
    let recoverer = recoverer.start().await.unwrap();
    fixture.enqueue([job("before").queue("other")]).await;
    events.wait(1).await;
    proxy.swallow_everything();
    // So that it has met the outage; nothing tells when.
    tokio::time::sleep(Duration::from_secs(8)).await;

    // An owner that could not renew for two minutes: its clock makes it look like that.
    let (door, clock) = (Arc::new(Notify::new()), Arc::new(Slow(120.into())));
    let hold = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Notify>), job: Job| {
        events.tell(format!("has {}", job.id()));
        door.notified().await;
        events.tell(format!("did {}", job.id()));
    });
    let owner = Server::new(fixture.another_redis(), Router::new(()).route("job", hold)).queues([("q", 1)]);
    let owner = owner.concurrency(1).lease(Duration::from_secs(5)).clock(clock.clone()).start().await.unwrap();
    fixture.enqueue([job("held")]).await;
    assert_eq!(events.wait(2).await[1], "has held");

    fixture.enqueue([job("after").queue("other")]).await;
    proxy.cut_silently();
    assert_eq!(events.wait(3).await[2], "after", "the recoverer works again");
    // Longer than it pauses between attempts while Redis is away: one without patience would recover now.
    tokio::time::sleep(Duration::from_secs(6)).await;
    clock.0.store(0, Ordering::Relaxed);
    let leased = async || fixture.cmd::<Option<i64>>(&["ZSCORE", "asynq:{q}:lease", "held"]).await;
    eventually("the owner has renewed its lease", async || leased().await > Some(SystemClock.now_secs())).await;
    door.notify_one();
    assert_eq!(events.wait(4).await[3], "did held");
    fixture.gone("held").await;
    owner.shutdown().await;
    recoverer.shutdown().await;
    assert_eq!(events.count(), 4, "{:?}", events.all());
}

/// After a failover the listening connection may for a while be one to another server, whose queues are full.
#[tokio::test]
async fn a_listener_that_sees_work_where_there_is_none_does_not_make_the_server_spin() {
    let (here, there) = (RedisProcess::start(&[]).await, RedisProcess::start(&[]).await);
    let full = Client::new(Redis::connect(&there.url()).await.unwrap());
    full.enqueue(job("elsewhere")).await.unwrap();
    let proxy = Proxy::start(&here.socket()).await;
    let server = Server::new(Redis::connect(&proxy.url()).await.unwrap(), Router::new(())).queues([("q", 1)]);
    let server = server.start().await.unwrap();
    let mut raw = redis::Client::open(here.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let subscribed = async |raw: &mut redis::aio::MultiplexedConnection| -> Option<String> {
        let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(raw).await.unwrap();
        let line = clients.lines().find(|line| line.contains(" sub=1 "))?.to_owned();
        Some(line.split(' ').next()?.strip_prefix("id=")?.to_owned())
    };
    let mut ear = None;
    while ear.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        ear = subscribed(&mut raw).await;
    }
    proxy.lead_to(&there.socket());
    redis::cmd("CONFIG").arg("RESETSTAT").exec_async(&mut raw).await.unwrap();
    redis::cmd("CLIENT").arg("KILL").arg("ID").arg(ear).exec_async(&mut raw).await.unwrap();
    let mut other = redis::Client::open(there.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    while subscribed(&mut other).await.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The longer this takes, the more would be asked.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut raw).await.unwrap();
    let asked = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap();
    let asked: u32 = asked.split(',').next().unwrap().parse().unwrap();
    assert!((3..100).contains(&asked), "it asked {asked} times");
    server.shutdown().await;
}

//! What a server must not do while Redis is away, or after it has come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use queue_core::{Clock, SystemClock};
use queue_redis::{Client, Redis, RedisOptions, broker::Verdict};
use queue_worker::{Job, Router, Server};
use tokio::sync::Notify;

use crate::support::{
    Events, Fixture, Go, Hanging, Lines, NOW, PATIENCE, Proxy, RedisProcess, eventually, job, plain_connection, report,
    wait_for, with,
};

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
    for _ in 0..4 {
        if the_owner_keeps_its_task().await {
            return;
        }
    }
    panic!("its task was recovered each time");
}

/// Whether it did. It has 12 s, which a busy machine may spend before it comes to renew anything.
async fn the_owner_keeps_its_task() -> bool {
    let fixture = Fixture::start().await;
    let proxy = Proxy::start(fixture.socket()).await;
    // Where there are leases, the recoverer looks every 4 to 6 s.
    fixture.run("HSET asynq:{q}:t:other msg x state active").await;
    fixture.run("ZADD asynq:{q}:lease 4000000000 other").await;
    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let (lines, _guard) = Lines::collect();
    let (away, missed) = (impatient(&proxy.url()), <Events>::default());
    away.on_call({
        let missed = missed.clone();
        move |call| {
            let looks_at_leases = ["looking for leases", "list_expired"].contains(&call.operation);
            if looks_at_leases && call.error.is_some() {
                missed.tell(call.operation);
            }
        }
    });
    let recoverer = Server::new(away, Router::new(()).route("job", tell))
        .queues([("q", 1), ("other", 1)])
        .poll_interval(Duration::from_millis(100));
    let recoverer = recoverer.start().await.unwrap();
    fixture.enqueue([job("before").queue("other")]).await;
    events.wait(1).await;
    proxy.swallow_everything();
    eventually("it could not look at the leases", async || missed.count() > 0).await;

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

    proxy.cut_silently();
    let again = async || lines.all().iter().any(|line| line.contains("does what it is asked again"));
    eventually("all parts of it work again, the one that recovers too", again).await;
    // One without patience recovers now; with each of these tasks Redis could have answered it.
    for (done, id) in ["after", "after that", "and then"].into_iter().enumerate() {
        fixture.enqueue([job(id).queue("other")]).await;
        assert_eq!(events.wait(3 + done).await[2 + done], id);
    }
    clock.0.store(0, Ordering::Relaxed);
    let leased = async || fixture.cmd::<Option<i64>>(&["ZSCORE", "asynq:{q}:lease", "held"]).await;
    let kept = wait_for("the owner has renewed its lease, or lost it", async || match leased().await {
        None => Some(false),
        Some(ends) => (ends > SystemClock.now_secs()).then_some(true),
    });
    let kept = kept.await;
    if kept {
        door.notify_one();
        assert_eq!(events.wait(6).await[5], "did held");
        fixture.gone("held").await;
    }
    owner.shutdown().await;
    recoverer.shutdown().await;
    assert!(!kept || events.count() == 6, "{:?}", events.all());
    kept
}

/// It looked only after a renewal, which may take for ever.
#[tokio::test]
async fn a_handler_whose_lease_has_long_ended_is_stopped_while_redis_hangs() {
    let fixture = Fixture::start().await;
    let (events, clock) = (Events::default(), Arc::new(Slow(120.into())));
    let listen = with(&events, async |events: Events, job: Job| {
        events.tell(job.id());
        job.cancellation().cancelled().await;
        events.tell(format!("{:?}", job.cancel_reason().unwrap()));
    });
    let day = Duration::from_secs(24 * 60 * 60);
    let options = RedisOptions { connect_timeout: day, response_timeout: day, ..RedisOptions::default() };
    let redis = Redis::lazy(fixture.url(), options).unwrap();
    let server = Server::new(redis, Router::new(()).route("job", listen)).queues([("q", 1)]);
    let server = server.lease(Duration::from_secs(5)).clock(clock.clone()).start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    events.wait(1).await;
    let hanging = Hanging::begin(fixture.url()).await;
    clock.0.store(0, Ordering::Relaxed);
    assert_eq!(events.wait(2).await[1], "LeaseLost");
    drop(hanging);
    server.shutdown().await;
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
    let mut raw = plain_connection(here.url()).await;
    let subscribed = async |raw: &redis::aio::MultiplexedConnection| -> Option<String> {
        let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut raw.clone()).await.unwrap();
        let line = clients.lines().find(|line| line.contains(" sub=1 "))?.to_owned();
        Some(line.split(' ').next()?.strip_prefix("id=")?.to_owned())
    };
    let ear = wait_for("it listens", async || subscribed(&raw).await).await;
    proxy.lead_to(&there.socket());
    redis::cmd("CONFIG").arg("RESETSTAT").exec_async(&mut raw).await.unwrap();
    redis::cmd("CLIENT").arg("KILL").arg("ID").arg(ear).exec_async(&mut raw).await.unwrap();
    let other = plain_connection(there.url()).await;
    wait_for("it listens elsewhere", async || subscribed(&other).await).await;
    let calls = async |command: &str| -> u32 {
        let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut raw.clone()).await.unwrap();
        let prefix = format!("cmdstat_{command}:calls=");
        let calls = stats.lines().find_map(|line| line.strip_prefix(&*prefix)?.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    };
    // A heartbeat every 5 s, of two commands: the longer it goes on, the more would be asked.
    eventually("there were two heartbeats", async || calls("zadd").await >= 4).await;
    let asked = calls("evalsha").await;
    assert!((3..100).contains(&asked), "it asked {asked} times");
    server.shutdown().await;
}

/// Nothing had been done yet, and the attempt failed.
#[tokio::test]
async fn a_cursor_is_read_when_redis_is_back() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::start(fixture.socket()).await;
    let (events, missed, door) = (Events::default(), <Events>::default(), Arc::new(Notify::new()));
    let redis = impatient(&proxy.url());
    redis.on_call({
        let missed = missed.clone();
        move |call| {
            if call.error.is_some() {
                missed.tell(call.operation);
            }
        }
    });
    let read = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Notify>), job: Job| {
        events.tell("begun");
        door.notified().await;
        events.tell(format!("{:?}", job.cursor::<u64>().await));
    });
    let server = Server::new(redis, Router::new(()).route("job", read)).queues([("q", 1)]).start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    events.wait(1).await;
    proxy.swallow_everything();
    door.notify_one();
    eventually("it was not answered", async || missed.count() >= 3).await;
    proxy.cut_silently();
    assert_eq!(events.wait(2).await[1], "Ok(None)");
    server.shutdown().await;
}

/// They were asked one after another, which took longer than any lease.
#[tokio::test]
async fn idle_connections_that_were_cut_without_a_sign_are_given_up_together() {
    let fixture = Fixture::start().await;
    let (proxy, patience) = (Proxy::start(fixture.socket()).await, PATIENCE / 12);
    let options = RedisOptions { response_timeout: patience, pool_size: 16, ..RedisOptions::default() };
    let redis = Redis::lazy(&proxy.url(), options).unwrap();
    let mut used = Vec::new();
    for _ in 0..16 {
        used.push(redis.pooled().await.unwrap());
    }
    drop(used);
    proxy.cut_silently();
    let fresh = tokio::time::timeout(PATIENCE, redis.reserved()).await.expect("they were asked one after another");
    let answer: String = fresh.unwrap().query("PING", &redis::cmd("PING")).await.unwrap();
    assert_eq!(answer, "PONG");
}

/// The report was refused, although nobody else had the task, and its work was done again.
#[tokio::test]
async fn a_late_renewal_without_an_answer_does_not_lose_the_task() {
    let fixture = Fixture::start().await;
    fixture.warm().await;
    let (proxy, day) = (Proxy::start(fixture.socket()).await, Duration::from_secs(24 * 60 * 60));
    let options = RedisOptions { response_timeout: Duration::from_secs(1), connect_timeout: day, ..Default::default() };
    let cut_off = queue_redis::broker::Broker::new(Redis::lazy(&proxy.url(), options).unwrap());
    let task = fixture.active(job("a")).await;
    let mut connection = cut_off.redis().pooled().await.unwrap();
    proxy.lose_answers();
    // Renewals before had not arrived for 40 s.
    let renewed = cut_off.extend_lease(&mut connection, "q", std::slice::from_ref(&task.run), NOW + 30 + 40).await;
    assert!(renewed.unwrap_err().is_ambiguous());
    eventually("it was applied", async || {
        fixture.cmd::<i64>(&["ZSCORE", "asynq:{q}:lease", "a"]).await == NOW + 30 + 40
    })
    .await;
    assert_eq!(fixture.broker.done("q", &[report(&task)], NOW + 41).await.unwrap(), [Verdict::Applied]);
}

/// A Go worker that has recovered the task leaves the token as it was.
#[tokio::test]
async fn a_late_renewal_does_not_reach_into_the_run_of_a_go_worker() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let go = Go(&fixture);
    go.retry(&task.message, "asynq: task lease expired", NOW + 60, NOW + 60).await;
    go.forward("a").await;
    go.dequeue(NOW + 60 + 30).await;
    let before = fixture.keyspace().await;
    let mut connection = fixture.redis().pooled().await.unwrap();
    // As late as an owner sends one at all, and with the very expiry of Go's lease.
    for expires in [NOW + 89, NOW + 90] {
        let runs = std::slice::from_ref(&task.run);
        assert_eq!(fixture.broker.extend_lease(&mut connection, "q", runs, expires).await.unwrap(), [Verdict::Lost]);
        assert_eq!(fixture.broker.done("q", &[report(&task)], NOW + 61).await.unwrap(), [Verdict::Lost]);
    }
    fixture.keyspace().await.assert_unchanged_since(&before);
}

/// It ran a task that another server had recovered and finished long before. `queue-chaos` found it: a worker
/// that was stopped while the answer to its take was under way.
#[tokio::test]
async fn server_requeues_a_task_that_comes_after_its_lease_has_ended() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    // As if the process were stopped between any two looks at its clock.
    let clock = Arc::new(Leaping(SystemClock.now_ns().into()));
    let tell = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let server = Server::new(fixture.another_redis(), Router::new(()).route("job", tell)).queues([("q", 1)]);
    let server = server.lease(Duration::from_secs(5)).clock(clock).start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    // Only what puts a task back in front does this.
    let stats = async || fixture.cmd::<String>(&["INFO", "commandstats"]).await;
    eventually("it was put back", async || stats().await.contains("cmdstat_rpush:")).await;
    server.shutdown().await;
    assert_eq!(events.all(), Vec::<String>::new());
    assert_eq!(fixture.keyspace().await.get("{q}:t:a state"), Some("pending"));
}

/// A clock that is six seconds later with each look at it.
#[derive(Debug)]
struct Leaping(AtomicI64);

impl Clock for Leaping {
    fn now_ns(&self) -> i64 {
        self.0.fetch_add(6_000_000_000, Ordering::Relaxed)
    }
}

/// The report waited for the progress for ten seconds, and the server did not wait for the report: the work was done twice.
#[tokio::test]
async fn a_report_of_a_server_that_ends_does_not_wait_for_what_the_handler_has_said() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), Arc::new(Notify::new()));
    let work = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Notify>), job: Job| {
        events.tell("works");
        door.notified().await;
        job.progress(100, "done");
    });
    let server = fixture.server(Router::new(()).route("job", work)).shutdown_timeout(Duration::ZERO);
    let server = server.cancel_grace(Duration::from_millis(500)).start().await.unwrap();
    fixture.enqueue([job("a").retention(Duration::from_secs(600))]).await;
    events.wait(1).await;
    let hanging = Hanging::begin(fixture.url()).await;
    door.notify_one();
    let shutdown = tokio::spawn(async move { server.shutdown().await });
    tokio::time::sleep(Duration::from_secs(8)).await;
    drop(hanging);
    shutdown.await.unwrap();
    assert_eq!(fixture.cmd::<u64>(&["LLEN", "asynq:{q}:active"]).await, 0);
    assert_eq!(fixture.count("processed").await, 1);
}

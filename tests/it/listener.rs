//! The ear of a server: what happens when nothing arrives there any more, and nobody says so.

use std::time::Duration;

use queue_core::{RawTask, TaskState};
use queue_redis::embedded::RedisServer;
use queue_redis::{Client, Listener, Redis, RedisOptions, Signal, broker::Broker};
use queue_worker::{Handle, Job, Router, Server};

use crate::support::{Events, PATIENCE, Proxy, RedisProcess, eventually, plain_connection, with};

/// Who waits for a poll, fails.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Connections that give up soon, so that the tests need not wait for long.
fn impatient(url: &str) -> Redis {
    let brief = Duration::from_millis(500);
    let options = RedisOptions { connect_timeout: brief, response_timeout: brief, ..RedisOptions::default() };
    Redis::lazy(url, options).unwrap()
}

/// A server with one slot, whose tasks wait until they are canceled, or end at once (type `brief`).
async fn serve(url: &str, events: &Events) -> Handle {
    let hang = with(events, async |events: Events, job: Job| {
        events.tell(job.id());
        job.cancellation().cancelled().await;
        events.tell(format!("{:?}", job.cancel_reason().unwrap()));
    });
    let brief = with(events, async |events: Events, job: Job| events.tell(job.id()));
    let router = Router::new(()).route("job", hang).route("brief", brief);
    let server = Server::new(impatient(url), router).concurrency(1).poll_interval(Duration::from_millis(100));
    server.start().await.unwrap()
}

async fn enqueue(client: &Client, task_type: &str, id: &str) {
    client.enqueue(RawTask::new(task_type).task_id(id)).await.unwrap();
}

/// Cancels until the task has heard it; what was said while nobody listened is lost, as it has to be.
async fn cancel_until_heard(broker: &Broker, id: &str, events: &Events) {
    let before = events.count();
    eventually("the cancelation is heard", async || {
        broker.cancel(id).await.unwrap();
        events.count() > before
    })
    .await;
    assert_eq!(events.all().last().unwrap(), "Canceled");
}

/// With all slots busy, nothing is sent on the listening connection that could fail.
async fn is_replaced_when_cut_silently(redis: &RedisServer) {
    let (proxy, events) = (Proxy::start(redis.socket()).await, Events::default());
    let client = Client::new(redis.redis());
    let server = serve(&proxy.url(), &events).await;
    enqueue(&client, "job", "a").await;
    events.wait(1).await;
    cancel_until_heard(&Broker::new(redis.redis()), "a", &events).await;
    enqueue(&client, "job", "b").await;
    events.wait(3).await;
    proxy.cut_silently();
    cancel_until_heard(&Broker::new(redis.redis()), "b", &events).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_listening_connection_that_is_cut_silently_is_replaced() {
    is_replaced_when_cut_silently(&RedisServer::start().await.unwrap()).await;
}

#[tokio::test]
async fn a_subscription_without_client_tracking_that_is_cut_silently_is_replaced() {
    let redis = RedisServer::start().await.unwrap();
    let mut raw = plain_connection(redis.url()).await;
    // Redis 6.2 does not take away single subcommands.
    let no_tracking =
        redis::cmd("ACL").arg("SETUSER").arg("default").arg(&["-client", "+client|list", "+client|kill"]).to_owned();
    no_tracking.exec_async(&mut raw).await.unwrap();
    is_replaced_when_cut_silently(&redis).await;
}

/// The look at empty queues is answered by nobody: that, too, shows that the connection is of no use.
#[tokio::test]
async fn new_tasks_are_told_again_after_an_idle_server_was_cut_off_silently() {
    let redis = RedisServer::start().await.unwrap();
    let (proxy, events) = (Proxy::start(redis.socket()).await, Events::default());
    let client = Client::new(redis.redis());
    let work = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let server = Server::new(impatient(&proxy.url()), Router::new(()).route("brief", work)).poll_interval(DAY);
    let server = server.start().await.unwrap();
    enqueue(&client, "brief", "a").await;
    events.wait(1).await;
    proxy.cut_silently();
    let before = proxy.accepted();
    eventually("the server has connected again", async || proxy.accepted() > before).await;
    // Well within the interval of the polls.
    enqueue(&client, "brief", "b").await;
    events.wait(2).await;
    server.shutdown().await;
}

/// Somebody who cannot connect for a while must not conclude that this Redis has no client tracking.
#[tokio::test]
async fn an_outage_while_connecting_does_not_end_in_polling() {
    let redis = RedisServer::start().await.unwrap();
    let (proxy, events) = (Proxy::start(redis.socket()).await, Events::default());
    let client = Client::new(redis.redis());
    let work = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let server = Server::new(impatient(&proxy.url()), Router::new(()).route("brief", work)).poll_interval(DAY);
    let server = server.start().await.unwrap();
    enqueue(&client, "brief", "a").await;
    events.wait(1).await;
    // Connections are accepted, and nothing is ever answered on them.
    proxy.swallow_everything();
    let before = proxy.accepted();
    eventually("the server has tried to connect", async || proxy.accepted() > before + 3).await;
    let raw = plain_connection(redis.url()).await;
    let youngest: u64 = redis::cmd("CLIENT").arg("ID").query_async(&mut raw.clone()).await.unwrap();
    proxy.cut_silently();
    eventually("the server listens again, with client tracking", async || {
        let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut raw.clone()).await.unwrap();
        let field = |line: &str, name| line.split(' ').find_map(|word| word.strip_prefix(name)).unwrap().to_owned();
        let listens = |line: &&str| {
            let new = field(line, "id=").parse::<u64>().unwrap() > youngest;
            new && field(line, "flags=").contains('t') && field(line, "sub=") == "1"
        };
        clients.lines().any(|line| listens(&line))
    })
    .await;
    enqueue(&client, "brief", "b").await;
    events.wait(2).await;
    server.shutdown().await;
}

/// After a failover the old master is still there, and still answers those who only read and listen.
#[tokio::test]
async fn an_idle_server_leaves_a_master_that_was_demoted() {
    let (old, new) = (RedisProcess::start(&[]).await, RedisProcess::start(&[]).await);
    let (proxy, events) = (Proxy::start(&old.socket()).await, Events::default());
    let server = serve(&proxy.url(), &events).await;
    let client = Client::new(Redis::connect(&new.url()).await.unwrap());
    enqueue(&client, "brief", "a").await;
    proxy.lead_to(&new.socket());
    // Nothing listens there: the old master never learns what becomes of the new one's data.
    let mut raw = plain_connection(old.url()).await;
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg("1").exec_async(&mut raw).await.unwrap();
    assert_eq!(events.wait(1).await, ["a"]);
    enqueue(&client, "job", "b").await;
    events.wait(2).await;
    cancel_until_heard(&Broker::new(Redis::connect(&new.url()).await.unwrap()), "b", &events).await;
    server.shutdown().await;
}

/// The look asks about all of them by one command.
#[tokio::test]
async fn a_look_at_many_queues_is_told_of_the_first_change_of_any() {
    const QUEUES: [&str; 3] = ["a", "b", "c"];
    let redis = RedisServer::start().await.unwrap();
    let client = Client::new(redis.redis());
    let mut listener = Listener::connect(&redis.redis()).await.unwrap();
    let mut watch = listener.watch().expect("Redis tracks");
    let sets: Vec<(&str, TaskState)> = QUEUES.map(|queue| (queue, TaskState::Scheduled)).into();
    // From the last to the first, so that what changes is not what a look names first.
    for (number, queue) in QUEUES.into_iter().rev().enumerate() {
        let empty = &QUEUES[..QUEUES.len() - number];
        assert!(!watch.have_work(empty).await.unwrap().contains(&true));
        client.enqueue(RawTask::new("job").queue(queue)).await.unwrap();
        let told = tokio::time::timeout(PATIENCE, listener.signal()).await.unwrap();
        assert_eq!(told, Signal::Work(queue.to_owned()));
        let with_work = watch.have_work(empty).await.unwrap();
        assert_eq!(with_work.iter().rposition(|has_work| *has_work), Some(empty.len() - 1));
        assert_eq!(with_work.iter().filter(|has_work| **has_work).count(), 1);

        let due = watch.next_due(&sets).await.unwrap();
        assert_eq!(due.iter().filter(|due| matches!(due, Ok(Some(_)))).count(), number);
        client.enqueue(RawTask::new("job").queue(queue).process_in(Duration::from_secs(60))).await.unwrap();
        // That a list which was looked at has tasks is told as well.
        let told = async { while listener.signal().await != Signal::Schedule(queue.to_owned()) {} };
        tokio::time::timeout(PATIENCE, told).await.expect(queue);
        let due = watch.next_due(&sets).await.unwrap();
        assert_eq!(due.iter().filter(|due| matches!(due, Ok(Some(_)))).count(), number + 1);
    }
}

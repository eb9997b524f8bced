//! On a master with two replicas, watched by three Sentinels.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use queue_admin::Inspector;
use queue_core::RawTask;
use queue_redis::{Client, Listener, Redis, RedisOptions, Signal};
use queue_worker::Server;

use crate::cluster::{Counts, pour};
use crate::support::{Hanging, Watched, eventually};

fn connect(watched: &Watched) -> Redis {
    let brief = Duration::from_secs(1);
    let options = RedisOptions { connect_timeout: brief, response_timeout: brief, ..RedisOptions::default() };
    Redis::lazy(&watched.url(), options).unwrap()
}

#[tokio::test]
async fn a_master_that_dies_under_load_is_left_for_the_one_that_sentinel_names() {
    queue_redis::log_to_stderr(false);
    let mut watched = Watched::start().await;
    let client = Client::new(connect(&watched));
    let counts = Counts::default();
    let server = Server::new(connect(&watched), counts.router()).queues([("q", 1)]).start().await.unwrap();
    let waiting = (0..500).map(|n| RawTask::new("job").queue("kept").task_id(format!("waiting-{n}")));
    assert!(client.enqueue_many(waiting).await.iter().all(Result::is_ok));
    let stop = Arc::new(AtomicBool::new(false));
    let pouring = tokio::spawn(pour(client.clone(), vec!["q".to_owned()], stop.clone()));
    eventually("it works", async || counts.distinct() > 100).await;
    let replicated: i64 = watched.servers[0].cmd(&["WAIT", "2", "10000"]).await;
    assert_eq!(replicated, 2);
    watched.servers[0].kill();
    eventually("Sentinel names another", async || ![0, usize::MAX].contains(&watched.master().await)).await;
    let before = counts.distinct();
    eventually("it goes on with the new one", async || counts.distinct() > before + 100).await;
    stop.store(true, Ordering::Relaxed);
    let poured = pouring.await.unwrap();
    let inspector = Inspector::new(connect(&watched));
    eventually("everything is worked", async || {
        // What the old master answered and did not pass on in time is lost; of what is there nothing is left over.
        inspector.queue("q").await.is_ok_and(|info| info.size() == 0)
    })
    .await;
    let missing = poured.iter().filter(|id| counts.of(id) == 0).count();
    assert!(missing <= 5, "{missing} of {} were lost, more than can be on their way", poured.len());
    assert_eq!(inspector.queue("kept").await.unwrap().size(), 500);
    server.shutdown().await;

    // The old master comes back as a replica, and nobody is misled.
    assert!(watched.servers[0].start_again().await);
    eventually("it is a replica", async || watched.servers[0].is_replica().await).await;
    client.enqueue(RawTask::new("job").queue("kept")).await.unwrap();
    assert_eq!(inspector.queue("kept").await.unwrap().size(), 501);
}

/// The old master cuts its connections when it becomes a replica.
#[tokio::test]
async fn a_planned_failover_is_heard_by_those_who_only_listen() {
    queue_redis::log_to_stderr(false);
    let watched = Watched::start().await;
    let redis = connect(&watched);
    let mut listener = Listener::connect(&redis).await.unwrap();
    watched.sentinels[0].cmd::<()>(&["SENTINEL", "FAILOVER", "mymaster"]).await;
    while listener.signal().await != Signal::Lost {}
    eventually("all Sentinels agree", async || ![0, usize::MAX].contains(&watched.master().await)).await;
    let client = Client::new(redis);
    eventually("the new master serves", async || client.enqueue(RawTask::new("job")).await.is_ok()).await;
    let new = &watched.servers[watched.master().await];
    assert_eq!(new.cmd::<i64>(&["LLEN", "asynq:{default}:pending"]).await, 1);
}

#[tokio::test]
async fn a_client_lists_its_queues_again_at_a_new_master() {
    queue_redis::log_to_stderr(false);
    let watched = Watched::start().await;
    let client = Client::new(connect(&watched));
    client.enqueue(RawTask::new("job")).await.unwrap();
    watched.sentinels[0].cmd::<()>(&["SENTINEL", "FAILOVER", "mymaster"]).await;
    eventually("all Sentinels agree", async || ![0, usize::MAX].contains(&watched.master().await)).await;
    let new = &watched.servers[watched.master().await];
    // As if it had not reached the replica in time.
    eventually("it is master", async || !new.is_replica().await).await;
    new.cmd::<i64>(&["DEL", "asynq:queues", "asynq:{default}:pending"]).await;
    eventually("the new master serves", async || {
        let _ = client.enqueue(RawTask::new("job")).await;
        new.cmd::<i64>(&["LLEN", "asynq:{default}:pending"]).await > 0
    })
    .await;
    assert_eq!(new.cmd::<Vec<String>>(&["SMEMBERS", "asynq:queues"]).await, ["default"]);
}

/// Nobody would wait for its answer to end: only Sentinel says that another is master now.
#[tokio::test]
async fn a_master_that_hangs_is_left_when_sentinel_names_another() {
    queue_redis::log_to_stderr(false);
    let watched = Watched::start().await;
    for sentinel in &watched.sentinels {
        // Until then the listener asks for a sign of life, and waits for it.
        sentinel.cmd::<()>(&["SENTINEL", "SET", "mymaster", "down-after-milliseconds", "7000"]).await;
    }
    let day = Duration::from_secs(24 * 60 * 60);
    let redis = Redis::lazy(&watched.url(), RedisOptions { response_timeout: day, ..RedisOptions::default() }).unwrap();
    let mut listener = Listener::connect(&redis).await.unwrap();
    let client = Client::new(redis);
    client.enqueue(RawTask::new("job")).await.unwrap();
    let _hanging = Hanging::process(watched.servers[0].id());
    let told = tokio::spawn(async move { while listener.signal().await != Signal::Lost {} });
    eventually("the listener is told", async || told.is_finished()).await;
    eventually("the new master serves", async || client.enqueue(RawTask::new("job")).await.is_ok()).await;
}

/// A Sentinel that was cut off has not heard of the failover, and answers as quickly as the others.
#[tokio::test]
async fn of_two_words_of_sentinels_the_younger_is_believed() {
    queue_redis::log_to_stderr(false);
    let (watched, behind) = (Watched::start().await, Watched::start().await);
    watched.sentinels[0].cmd::<()>(&["SENTINEL", "FAILOVER", "mymaster"]).await;
    eventually("all Sentinels agree", async || ![0, usize::MAX].contains(&watched.master().await)).await;
    let ours = watched.url();
    let url =
        behind.url().replace("/0?", &format!(",{}/0?", ours["redis-sentinel://".len()..].split('/').next().unwrap()));
    let client = Client::new(Redis::lazy(&url, RedisOptions::default()).unwrap());
    client.enqueue(RawTask::new("job")).await.unwrap();
    let master = &watched.servers[watched.master().await];
    assert_eq!(master.cmd::<i64>(&["LLEN", "asynq:{default}:pending"]).await, 1);
}

#[tokio::test]
async fn connecting_through_sentinels_says_what_is_wrong() {
    let watched = Watched::start().await;
    let unknown = watched.url().replace("mymaster", "other");
    let error = Redis::connect(&unknown).await.unwrap_err().to_string();
    assert!(error.contains("no Sentinel") && error.contains("master other"), "{error}");
    let options = RedisOptions { connect_timeout: Duration::from_secs(1), ..RedisOptions::default() };
    let nobody = Redis::lazy("redis-sentinel://:secret@127.0.0.1:1/0?master=m&password=secret", options).unwrap();
    let error = nobody.ping().await.unwrap_err();
    assert!(error.is_transient() && !format!("{error} {error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn the_sentinels_and_the_master_have_each_their_password() {
    let watched = Watched::start_with("master-secret", "sentinel-secret").await;
    let hosts = watched.url().replace("redis-sentinel://", "");
    let right = format!("redis-sentinel://:sentinel-secret@{hosts}&password=master-secret");
    let client = Client::connect(&right).await.unwrap();
    client.enqueue(RawTask::new("job")).await.unwrap();
    assert!(Listener::connect(client.redis()).await.unwrap().watch().is_some());
    for wrong in [
        format!("redis-sentinel://{hosts}&password=master-secret"),
        format!("redis-sentinel://:other-secret@{hosts}&password=master-secret"),
        format!("redis-sentinel://:sentinel-secret@{hosts}"),
        format!("redis-sentinel://:sentinel-secret@{hosts}&password=other-secret"),
    ] {
        let error = Redis::connect(&wrong).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("password") && !text.contains("secret"), "{wrong}: {text}");
        assert!(!error.is_transient(), "{wrong}: {text}");
    }
}

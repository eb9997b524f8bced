use std::time::{Duration, UNIX_EPOCH};

use queue_admin::{Filter, Inspector, Page};
use queue_core::queue_name::Family;
use queue_core::{Clock as _, RawTask, SystemClock, TaskState};
use queue_redis::{Client, Listener, Semaphore, Signal, broker::Broker};
use queue_scheduler::{Entry, Scheduler};
use queue_worker::{Group, Job, Router, Server};

use super::{connect, queues};
use crate::support::{Cluster, Events, eventually, with};

const LONG: Duration = Duration::from_secs(5);

fn task(queue: &str, id: &str) -> RawTask {
    RawTask::new("job").queue(queue).task_id(id)
}

/// One cluster for many things: it takes seconds to start.
#[tokio::test]
async fn every_feature_works_on_queues_of_three_masters() {
    queue_redis::log_to_stderr(false);
    every_feature_works(&Cluster::start().await).await;
}

pub(super) async fn every_feature_works(cluster: &Cluster) {
    let names = queues();
    worked_by_one_server(cluster, &names).await;
    inspected(cluster, &names).await;
    aggregated(cluster, &names).await;
    new_work_and_cancelations_are_heard(cluster, &names).await;
    shared_limits_and_schedules(cluster, &names).await;
    targets_and_moves(cluster, &names).await;
    // Whatever there is has a slot, and a queue's keys have one.
    for key in cluster.keys().await {
        assert!(key.starts_with("asynq:"), "{key}");
        assert!(!key.contains("guard"), "{key} is never to exist");
    }
}

async fn worked_by_one_server(cluster: &Cluster, names: &[String; 3]) {
    let client = Client::new(connect(cluster, LONG));
    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let server = Server::new(connect(cluster, LONG), Router::new(()).route("job", tell));
    let server = server.queues(names.iter().map(|name| (name.as_str(), 1))).start().await.unwrap();
    // One batch for all queues.
    let batch = (0..60).map(|n| task(&names[n % 3], &format!("batch-{n}")));
    assert!(client.enqueue_many(batch).await.iter().all(Result::is_ok));
    for name in names {
        client.enqueue(task(name, "one")).await.unwrap();
        client.enqueue(task(name, "later").process_in(Duration::from_secs(1))).await.unwrap();
        let unique = || RawTask::new("job").queue(name.as_str()).payload("same").unique(Duration::from_secs(60));
        client.enqueue(unique().process_in(Duration::from_secs(60))).await.unwrap();
        assert!(client.enqueue(unique()).await.is_err(), "the second is refused");
    }
    events.wait(60 + 3 * 2).await;
    let inspector = Inspector::new(connect(cluster, LONG));
    let servers = inspector.servers().await.unwrap();
    assert_eq!(servers.len(), 1);
    server.shutdown().await;
    assert!(inspector.servers().await.unwrap().is_empty());
    for name in names {
        assert_eq!(inspector.queue(name).await.unwrap().processed, 22, "{name}");
        assert_eq!(
            inspector.delete_all(name, &Filter::new().state(TaskState::Scheduled), |_| {}).await.unwrap().changed,
            1
        );
    }
}

async fn targets_and_moves(cluster: &Cluster, names: &[String; 3]) {
    let (client, inspector) = (Client::new(connect(cluster, LONG)), Inspector::new(connect(cluster, LONG)));
    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| events.tell(job.queue()));
    let server = Server::new(connect(cluster, LONG), Router::new(()).route("job", tell)).name("web-1");
    let server = server.queues(names.iter().map(|name| (name.as_str(), 1))).start().await.unwrap();
    let mut expected = Vec::new();
    for name in names {
        let (high, mailbox) = (format!("{name}}}p9"), format!("{name}}}@web-1"));
        client.enqueue(task(name, "for-web-1").only("web-1")).await.unwrap();
        client.enqueue(task(name, "moved").priority(9)).await.unwrap();
        let to = inspector.move_task(&high, "moved", Some(Family::Mailbox("web-1".into()))).await.unwrap();
        assert_eq!(to, mailbox);
        expected.extend([mailbox.clone(), mailbox]);
    }
    let mut seen = events.wait(6).await;
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
    server.shutdown().await;
}

async fn inspected(cluster: &Cluster, names: &[String; 3]) {
    let (client, inspector) = (Client::new(connect(cluster, LONG)), Inspector::new(connect(cluster, LONG)));
    let mut sorted = names.to_vec();
    sorted.sort();
    assert_eq!(inspector.queues().await.unwrap(), sorted);
    for (number, name) in names.iter().enumerate() {
        let placement = inspector.cluster_placement(name).await.unwrap();
        let port = placement.nodes[0].address.rsplit(':').next().unwrap().parse::<u16>().unwrap();
        assert_eq!(port, cluster.nodes[number].port);
        for n in 0..250 {
            client.enqueue(task(name, &format!("look-{n}")).payload(format!("{{\"n\":{n}}}"))).await.unwrap();
        }
        assert!(inspector.pause(name).await.unwrap());
        assert_eq!(inspector.tasks(name, TaskState::Pending, Page::default()).await.unwrap().len(), 30);
        assert_eq!(inspector.task(name, "look-7").await.unwrap().state, TaskState::Pending);
        let pending = Filter::new().state(TaskState::Pending);
        assert_eq!(inspector.count(name, &pending).await.unwrap(), 250);
        assert_eq!(inspector.archive_all(name, &pending, |_| {}).await.unwrap().changed, 250);
        let archived = Filter::new().state(TaskState::Archived);
        assert_eq!(inspector.run_all(name, &archived, |_| {}).await.unwrap().changed, 250);
        inspector.delete_task(name, "look-7").await.unwrap();
        assert!(inspector.queue_memory(name).await.unwrap().is_some());
        assert_eq!(inspector.history(name, 2).await.unwrap().len(), 2);
        // All of them at once, whatever node has them.
        let board = inspector.board_of(sorted.clone()).await.unwrap();
        let pending = board.rows.iter().find(|row| row.name == *name).map(|row| row.queue.as_ref().unwrap().pending);
        assert_eq!((pending, board.rows.len()), (Some(249), 3));
        let memory = inspector.queues_memory(&sorted).await.unwrap();
        let at = sorted.iter().position(|other| other == name).unwrap();
        assert!(memory.len() == 3 && memory[at] > Some(100 * 249), "{memory:?}");
        assert_eq!(inspector.histories(&sorted, 2).await.unwrap().len(), 3);
        assert!(inspector.unpause(name).await.unwrap());
        assert_eq!(inspector.remove_queue(name, true).await.unwrap(), 249);
    }
    assert!(inspector.queues().await.unwrap().is_empty());
    let of_queues = |key: &String| names.iter().any(|name| key.starts_with(&format!("asynq:{{{name}}}")));
    assert_eq!(cluster.keys().await.into_iter().filter(of_queues).collect::<Vec<_>>(), [""; 0]);
}

async fn aggregated(cluster: &Cluster, names: &[String; 3]) {
    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| {
        events.tell(format!("{}: {}", job.queue(), String::from_utf8_lossy(job.payload())));
    });
    let join = async |_: Group, tasks: Vec<RawTask>| RawTask::new("job").payload(format!("{} tasks", tasks.len()));
    let server = Server::new(connect(cluster, LONG), Router::new(()).aggregate(join).route("job", tell));
    let server = server.queues(names.iter().map(|name| (name.as_str(), 1)));
    let server = server.group_grace_period(Duration::from_secs(60)).group_max_size(4).start().await.unwrap();
    let client = Client::new(connect(cluster, LONG));
    for n in 0..12 {
        client.enqueue(task(&names[n % 3], &format!("grouped-{n}")).group("g")).await.unwrap();
    }
    let mut told = events.wait(3).await;
    told.sort();
    let mut expected = names.clone().map(|name| format!("{name}: 4 tasks"));
    expected.sort();
    assert_eq!(told, expected);
    server.shutdown().await;
}

/// Who waits for a poll, fails.
async fn new_work_and_cancelations_are_heard(cluster: &Cluster, names: &[String; 3]) {
    let redis = connect(cluster, LONG);
    let mut listener = Listener::connect(&redis).await.unwrap();
    let mut watch = listener.watch().expect("these servers have client tracking");
    let client = Client::new(connect(cluster, LONG));
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in names {
        assert!(!watch.have_work(&all).await.unwrap().contains(&true));
        client.enqueue(task(name, "heard")).await.unwrap();
        assert_eq!(listener.signal().await, Signal::Work(name.clone()));
        assert!(watch.have_work(&all).await.unwrap().contains(&true));
        let inspector = Inspector::new(redis.clone());
        assert_eq!(
            inspector.delete_all(name, &Filter::new().state(TaskState::Pending), |_| {}).await.unwrap().changed,
            1
        );
        assert_eq!(listener.signal().await, Signal::Work(name.clone()));
    }
    Broker::new(redis).cancel("somebody").await.unwrap();
    assert_eq!(listener.signal().await, Signal::Cancel("somebody".to_owned()));
    drop(listener);

    let events = Events::default();
    let hang = with(&events, async |events: Events, job: Job| {
        events.tell(job.id());
        job.cancellation().cancelled().await;
        events.tell(format!("{:?}", job.cancel_reason().unwrap()));
    });
    let server = Server::new(connect(cluster, LONG), Router::new(()).route("job", hang));
    let server = server.queues(names.iter().map(|name| (name.as_str(), 1))).start().await.unwrap();
    client.enqueue(task(&names[2], "hangs")).await.unwrap();
    events.wait(1).await;
    let inspector = Inspector::new(connect(cluster, LONG));
    eventually("the cancelation is heard", async || {
        inspector.cancel("hangs").await.unwrap();
        events.count() > 1
    })
    .await;
    assert_eq!(events.all()[1], "Canceled");
    server.shutdown().await;
}

async fn shared_limits_and_schedules(cluster: &Cluster, names: &[String; 3]) {
    for scope in ["a", "b", "c", "d"] {
        let semaphore = Semaphore::new(connect(cluster, LONG), scope, 1);
        let until = UNIX_EPOCH + Duration::from_nanos(SystemClock.now_ns() as u64) + Duration::from_secs(60);
        let held = semaphore.acquire("one", until).await.unwrap().unwrap();
        assert!(semaphore.acquire("two", until).await.unwrap().is_none());
        assert!(held.release().await.unwrap());
    }
    let scheduler = Scheduler::builder(connect(cluster, LONG)).build();
    for (number, name) in names.iter().enumerate() {
        let entry = Entry::new("@every 1s", RawTask::new("tick").queue(name.as_str()));
        scheduler.register(entry.name(format!("entry-{number}"))).unwrap();
    }
    scheduler.start().await.unwrap();
    let inspector = Inspector::new(connect(cluster, LONG));
    eventually("each queue has a tick", async || {
        let mut all = true;
        for name in names {
            all &= inspector.queue(name).await.is_ok_and(|info| info.count(TaskState::Pending) > 0);
        }
        all
    })
    .await;
    assert_eq!(inspector.cron_entries().await.unwrap().len(), 3);
    assert_eq!(inspector.scheduler_entries().await.unwrap().len(), 3);
    scheduler.shutdown().await;
}

#[tokio::test]
async fn nodes_that_the_url_does_not_name_are_given_the_password_too() {
    queue_redis::log_to_stderr(false);
    let cluster = Cluster::start_with("open-sesame").await;
    let one = format!("redis+cluster://:open-sesame@127.0.0.1:{}", cluster.nodes[4].port);
    let client = Client::connect(&one).await.unwrap();
    for name in queues() {
        client.enqueue(task(&name, "a")).await.unwrap();
    }
    let mut listener = Listener::connect(client.redis()).await.unwrap();
    let mut watch = listener.watch().unwrap();
    assert_eq!(watch.have_work(&["none"]).await.unwrap(), [false]);
    client.enqueue(task("none", "a")).await.unwrap();
    assert_eq!(listener.signal().await, Signal::Work("none".to_owned()));
    for (login, told) in [("", "password"), (":wrong-sesame@", "password")] {
        let error = queue_redis::Redis::connect(&cluster.url_with(login)).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(told) && !text.contains("sesame"), "{text}");
    }
}

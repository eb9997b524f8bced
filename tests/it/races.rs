//! Several do the same at the same time.

use std::collections::BTreeSet;
use std::time::Duration;

use queue_core::{TaskMessage, TaskState};
use queue_redis::{
    EnqueueError,
    broker::{Broker, Verdict},
};
use queue_worker::{Job, RetryPolicy, Router};
use tokio::task::JoinSet;

use crate::support::{Events, Fixture, NOW, NOW_NS, QUEUE, eventually, job, recovered, with};

/// A broker with connections of its own, as in another process.
fn stranger(fixture: &Fixture) -> Broker {
    Broker::new(fixture.another_redis())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_run_each_of_2_000_tasks_once() {
    const TASKS: usize = 2_000;
    let fixture = Fixture::start().await;
    let (first, second) = (Events::default(), Events::default());
    let mut servers = Vec::new();
    for events in [&first, &second] {
        let tell = with(events, async |events: Events, job: Job| {
            events.tell(job.id());
            tokio::task::yield_now().await;
        });
        let server = queue_worker::Server::new(stranger(&fixture).redis().clone(), Router::new(()).route("job", tell));
        servers.push(server.queues([(QUEUE, 1)]).concurrency(10).start().await.unwrap());
    }
    fixture.enqueue((0..TASKS).map(|n| job(&n.to_string()))).await;
    eventually("all are done", async || fixture.count("processed").await >= TASKS as u64).await;
    for server in servers {
        server.shutdown().await;
    }
    let mut ran: Vec<usize> = [first.all(), second.all()].concat().iter().map(|id| id.parse().unwrap()).collect();
    ran.sort_unstable();
    assert_eq!(ran, (0..TASKS).collect::<Vec<_>>());
    assert!(first.count() > 0 && second.count() > 0, "one server did everything");
    assert_eq!(fixture.count("processed").await, TASKS as u64);
}

/// Lists what is expired and retries it until nothing is left; returns how many retries were applied.
async fn recover_all(broker: Broker) -> usize {
    let mut applied = 0;
    loop {
        let expired = broker.list_expired(QUEUE, NOW + 30, 0).await.unwrap().leases;
        if expired.is_empty() {
            return applied;
        }
        for lease in expired {
            let message = lease.message.clone().unwrap();
            let failed = TaskMessage { retried: message.retried + 1, last_failed_at: NOW, ..message };
            let verdict = recovered(&broker, &lease, failed, Some(NOW + 60), NOW).await;
            applied += usize::from(verdict == Verdict::Applied);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_recoverers_recover_each_task_once() {
    let fixture = Fixture::start().await;
    for from in [0, 100, 200] {
        fixture.active_batch((from..from + 100).map(|n| job(&n.to_string()))).await;
    }
    let mut recoverers = JoinSet::new();
    for _ in 0..4 {
        recoverers.spawn(recover_all(stranger(&fixture)));
    }
    assert_eq!(recoverers.join_all().await.iter().sum::<usize>(), 300);
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (300, 300));
    let after = fixture.keyspace().await;
    assert_eq!((after.get("{q}:active"), after.paths_with("lease")), (None, vec![]));
    assert_eq!(fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:retry"]).await, 300);
    for n in 0..300 {
        assert!(after.get(&format!("{{q}}:t:{n} msg")).unwrap().contains(" retried=1 "), "{n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_together_recover_each_task_once() {
    let fixture = Fixture::start().await;
    fixture.enqueue((0..50).map(|n| job(&n.to_string()))).await;
    fixture.dequeue(50).await;
    fixture.expire_leases().await;
    let events = <Events<(String, u32)>>::default();
    let mut servers = Vec::new();
    for _ in 0..4 {
        let tell = with(&events, async |events: Events<(String, u32)>, job: Job| {
            events.tell((job.id().to_owned(), job.retried()));
        });
        let server = fixture.server(Router::new(()).route("job", tell));
        servers.push(server.retry_policy(RetryPolicy::Fixed(Duration::ZERO)).start().await.unwrap());
    }
    events.wait(50).await;
    eventually("all are done", async || fixture.count("processed").await >= 100).await;
    for server in servers {
        server.shutdown().await;
    }
    let ran = events.all();
    assert_eq!(ran.len(), 50);
    assert_eq!(ran.into_iter().collect::<BTreeSet<_>>(), (0..50).map(|n: u32| (n.to_string(), 0)).collect());
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (100, 50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_forwarders_forward_each_task_once() {
    let fixture = Fixture::start().await;
    fixture.put((0..500).map(|n| job(&n.to_string()).process_in(Duration::from_secs(1)))).await;
    let mut forwarders = JoinSet::new();
    for _ in 0..4 {
        let broker = stranger(&fixture);
        forwarders.spawn(async move {
            let mut moved = 0;
            loop {
                match broker.forward(QUEUE, TaskState::Scheduled, NOW_NS + 1_000_000_000, 0).await.unwrap().moved {
                    0 => return moved,
                    more => moved += more,
                }
            }
        });
    }
    assert_eq!(forwarders.join_all().await.iter().sum::<u64>(), 500);
    let pending: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    assert_eq!(pending.len(), 500);
    assert_eq!(pending.into_iter().collect::<BTreeSet<_>>().len(), 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_clients_one_stores_an_id_and_one_a_unique_task() {
    let fixture = Fixture::start().await;
    let mut clients = JoinSet::new();
    for n in 0..20 {
        let client = queue_redis::Client::new(stranger(&fixture).redis().clone());
        clients.spawn(async move {
            let same_id = client.enqueue(job("same").payload(n.to_string())).await;
            let unique = job(&format!("unique-{n}")).payload("same").unique(Duration::from_secs(60));
            (same_id, client.enqueue(unique).await)
        });
    }
    let (mut ids, mut uniques) = (0, 0);
    for (same_id, unique) in clients.join_all().await {
        match same_id {
            Ok(_) => ids += 1,
            Err(error) => assert!(matches!(error, EnqueueError::TaskIdConflict { .. }), "{error:?}"),
        }
        match unique {
            Ok(_) => uniques += 1,
            Err(error) => assert!(matches!(error, EnqueueError::DuplicateTask { .. }), "{error:?}"),
        }
    }
    assert_eq!((ids, uniques), (1, 1));
    assert_eq!(fixture.cmd::<usize>(&["LLEN", "asynq:{q}:pending"]).await, 2);
}

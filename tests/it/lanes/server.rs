//! Servers on a queue with limits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_core::TaskState;
use queue_core::limit::{Limit, LimitKey};
use queue_worker::{Failure, Job, Router, Server};

use super::{of, one_of_each_tenant};
use crate::support::{Events, Fixture, QUEUE, eventually, with};

/// Who runs, and who has run.
#[derive(Debug, Default)]
struct Counts {
    /// By tenant.
    running: HashMap<String, usize>,
    /// Of one tenant at once.
    most: usize,
    done: usize,
}

#[derive(Debug, Default, Clone)]
struct Crowd(Arc<Mutex<Counts>>);

impl Crowd {
    async fn work(self, job: Job) {
        let tenant = job.headers()["tenant"].clone();
        {
            let counts = &mut *self.0.lock().unwrap();
            let here = counts.running.entry(tenant.clone()).or_default();
            *here += 1;
            counts.most = counts.most.max(*here);
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
        let counts = &mut *self.0.lock().unwrap();
        *counts.running.get_mut(&tenant).unwrap() -= 1;
        counts.done += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_cap_is_exceeded_and_every_task_ends() {
    let fixture = Fixture::start().await;
    fixture.limit(one_of_each_tenant().concurrency(2)).await;
    let crowd = Crowd::default();
    let mut servers = Vec::new();
    for _ in 0..2 {
        let router = Router::new(()).route("job", with(&crowd, Crowd::work));
        let server = Server::new(fixture.another_redis(), router).queues([(QUEUE, 1)]).concurrency(20);
        servers.push(server.start().await.unwrap());
    }
    fixture.enqueue((0..600).map(|n| of(&format!("t{}", n * n % 7), &n.to_string()))).await;
    eventually("all have run", async || crowd.0.lock().unwrap().done == 600).await;
    assert_eq!(crowd.0.lock().unwrap().most, 2, "the most of one tenant at once");
    for server in servers {
        server.shutdown().await;
    }
    assert_eq!(
        fixture.cmd::<usize>(&["EXISTS", "asynq:{q}:scheduled", "asynq:{q}:pending", "asynq:{q}:x:waiting"]).await,
        0
    );
}

#[tokio::test]
async fn an_idle_server_learns_of_limits_and_of_room() {
    let fixture = Fixture::start().await;
    let ran = Events::default();
    let note = |ran: Events<String>, job: Job| async move { ran.tell(job.id().to_owned()) };
    let server = fixture.server(Router::new(()).route("job", with(&ran, note))).start().await.unwrap();
    fixture.limit(Limit::new("tenant", LimitKey::header("tenant")).rate(1, Duration::from_millis(300))).await;
    fixture.enqueue([of("a", "1"), of("a", "2"), of("a", "3")]).await;
    assert_eq!(ran.wait(3).await.len(), 3);
    // What waits in a lane is found by a server that was not there when it was parked.
    server.shutdown().await;
    fixture.limit(Limit::new("tenant", LimitKey::header("tenant")).rate(1, Duration::from_millis(300))).await;
    fixture.enqueue([of("b", "4"), of("b", "5")]).await;
    assert_eq!(fixture.take_some(10).await.0.len(), 1);
    assert_eq!(fixture.state("5").await, "scheduled");
    let server = fixture.server(Router::new(()).route("job", with(&ran, note))).start().await.unwrap();
    assert_eq!(ran.wait(4).await[3], "5");
    server.shutdown().await;
}

/// As `limit off` leaves it, when nobody looks in between.
#[tokio::test]
async fn a_queue_whose_limits_are_gone_goes_on_at_once() {
    let fixture = Fixture::start().await;
    let ran = Events::default();
    let note = |ran: Events<String>, job: Job| async move { ran.tell(job.id().to_owned()) };
    fixture.limit(Limit::new("all", LimitKey::Queue).rate(1, Duration::from_secs(3_600))).await;
    let server = fixture.server(Router::new(()).route("job", with(&ran, note))).start().await.unwrap();
    fixture.enqueue([of("a", "1"), of("a", "2"), of("a", "3")]).await;
    ran.wait(1).await;
    // It asks for more, and learns that the queue is shut for an hour.
    tokio::time::sleep(Duration::from_millis(500)).await;
    fixture.run("DEL asynq:{q}:x:rules asynq:{q}:x:due asynq:{q}:x:slots asynq:{q}:x:lanes").await;
    ran.wait(3).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_limit_for_all_of_a_queue_holds_over_servers() {
    let fixture = Fixture::start().await;
    fixture.limit(Limit::new("all", LimitKey::Queue).concurrency(1)).await;
    let crowd = Crowd::default();
    let mut servers = Vec::new();
    for _ in 0..2 {
        let router = Router::new(()).route("job", with(&crowd, Crowd::work));
        servers.push(Server::new(fixture.another_redis(), router).queues([(QUEUE, 1)]).start().await.unwrap());
    }
    fixture.enqueue((0..100).map(|n| of("one", &n.to_string()))).await;
    eventually("all have run", async || crowd.0.lock().unwrap().done == 100).await;
    assert_eq!(crowd.0.lock().unwrap().most, 1);
    for server in servers {
        server.shutdown().await;
    }
}

#[tokio::test]
async fn too_many_requests_stop_a_key_and_spend_no_retry() {
    let fixture = Fixture::start().await;
    fixture.limit(Limit::new("tenant", LimitKey::header("tenant")).concurrency(1)).await;
    let refuse = |job: Job| async move {
        match &*job.headers()["tenant"] {
            "busy" => Err(Failure::too_many("tenant", Duration::from_secs(60))),
            _ => Ok(()),
        }
    };
    let server = fixture.server(Router::new(()).route("job", refuse)).start().await.unwrap();
    fixture.enqueue([of("busy", "1")]).await;
    let refused = fixture.in_state("1", TaskState::Retry).await;
    assert_eq!(refused.retried, 0);
    eventually("the key is stopped", async || {
        fixture.cmd::<i64>(&["EXISTS", "asynq:{q}:x:tat:tenant:busy"]).await == 1
    })
    .await;
    fixture.enqueue([of("busy", "2"), of("free", "3")]).await;
    fixture.in_state("2", TaskState::Scheduled).await;
    eventually("the others go on", async || fixture.state("3").await.is_empty()).await;
    let explained = fixture.inspector().explain(QUEUE, "2").await.unwrap();
    assert!(explained.reasons[0].to_string().starts_with("it waits in lane \"tenant:busy\""), "{explained:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn limits_that_somebody_sets_meanwhile_are_not_removed_with_those_before() {
    let fixture = Fixture::start().await;
    let stands = async || fixture.cmd::<Option<String>>(&["GET", "asynq:{q}:x:rules"]).await;
    fixture.run("SET asynq:{q}:x:rules another").await;
    assert!(fixture.broker.remove_limits("q", "none").await.unwrap(), "there is nothing to do");
    assert_eq!(stands().await.as_deref(), Some("another"));
    fixture.run("SET asynq:{q}:x:rules none").await;
    fixture.run("ZADD asynq:{q}:x:waiting 0 somebody").await;
    assert!(!fixture.broker.remove_limits("q", "none").await.unwrap());
    assert_eq!(stands().await.as_deref(), Some("none"));
    fixture.run("DEL asynq:{q}:x:waiting").await;
    assert!(fixture.broker.remove_limits("q", "none").await.unwrap());
    assert_eq!(stands().await, None);
}

//! Roles on a Redis Cluster, with the rights of `docs/deployment.md` for it and no others.

use std::time::{Duration, UNIX_EPOCH};

use queue_admin::{Filter, Inspector};
use queue_core::keys::QueueKeys;
use queue_core::{Clock as _, RawTask, SystemClock, TaskState};
use queue_redis::{Client, Redis, RedisOptions, Semaphore, broker::Broker};
use queue_scheduler::{Entry, Scheduler};
use queue_worker::{Job, Router, Server};

use super::{DOCUMENT, Refusal, documented, refused_by};
use crate::support::{Cluster, Events, job, with};

const ROLES: [&str; 4] = ["producer", "worker", "scheduler", "inspector"];

/// The documented users, without one right.
async fn with_users(cluster: &Cluster, without: &str) {
    let further = DOCUMENT.lines().skip_while(|line| !line.starts_with("On a [Redis Cluster]"));
    for user in ROLES {
        let begin = format!("ACL SETUSER {user} +");
        let more = further.clone().find(|line| line.starts_with(&begin)).expect("the document has the line");
        let more = more.split(' ').map(str::to_owned).collect();
        for line in [documented(user), more] {
            let words: Vec<&str> = line.iter().map(String::as_str).filter(|word| *word != without).collect();
            for node in &cluster.nodes {
                node.cmd::<()>(&words).await;
            }
        }
    }
}

fn connect(cluster: &Cluster, user: &str, patience: Duration) -> Redis {
    let options = RedisOptions { response_timeout: patience, ..cluster.options.clone() };
    Redis::lazy(&cluster.url_with(&format!("{user}:secret@")), options).unwrap()
}

/// What a user was refused by any node but that to look at the memory policy.
async fn refused(cluster: &Cluster, user: &str) -> Vec<String> {
    let mut all = Vec::new();
    for node in &cluster.nodes {
        let log = node.cmd::<Vec<Refusal>>(&["ACL", "LOG"]).await;
        all.extend(refused_by(&log, user).into_iter().filter(|object| object != "info"));
    }
    all
}

#[tokio::test]
async fn the_documented_users_work_on_a_cluster_and_need_each_right_that_it_takes() {
    queue_redis::log_to_stderr(false);
    let cluster = Cluster::start().await;
    with_users(&cluster, "").await;
    let queues = crate::cluster::queues();
    let of = |user| connect(&cluster, user, Duration::from_secs(5));

    let client = Client::new(of("producer"));
    for queue in &queues {
        let minute = Duration::from_secs(60);
        for task in [job("a"), job("later").process_in(minute), job("g").group("g"), job("u").unique(minute)] {
            client.enqueue(task.queue(queue.as_str())).await.unwrap();
        }
    }
    let batch = (0..30).map(|n| job(&format!("b{n}")).queue(queues[n % 3].as_str()));
    assert!(client.enqueue_many(batch).await.iter().all(Result::is_ok));

    let scheduler = Scheduler::builder(of("scheduler")).build();
    for queue in &queues {
        let task = RawTask::new("job").queue(queue.as_str());
        scheduler.register(Entry::new("@every 1s", task).name(format!("every-{queue}"))).unwrap();
    }
    scheduler.start().await.unwrap();

    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| events.tell(job.queue()));
    let server = Server::new(of("worker"), Router::new(()).route("job", tell)).reconcile_interval(Duration::ZERO);
    let server = server.queues(queues.iter().map(|queue| (queue.as_str(), 1))).start().await.unwrap();
    events.wait(3 * 12 + 6).await;
    for scope in ["a", "b", "c"] {
        let until = UNIX_EPOCH + Duration::from_nanos(SystemClock.now_ns() as u64) + Duration::from_secs(60);
        let held = Semaphore::new(of("worker"), scope, 1).acquire("one", until).await.unwrap().unwrap();
        assert!(held.release().await.unwrap());
    }

    let inspector = Inspector::new(of("inspector"));
    assert_eq!(inspector.servers().await.unwrap().len(), 1);
    assert_eq!(inspector.cron_entries().await.unwrap().len(), 3);
    for queue in &queues {
        assert!(inspector.pause(queue).await.unwrap() && inspector.unpause(queue).await.unwrap());
        let later = Filter::new().state(TaskState::Scheduled);
        assert_eq!(inspector.delete_all(queue, &later, |_| {}).await.unwrap().changed, 1);
    }
    scheduler.shutdown().await;
    server.shutdown().await;
    for user in ROLES {
        let refused = refused(&cluster, user).await;
        assert!(refused.is_empty(), "the documented user {user} may not {refused:?}");
    }

    // A key that has gone while its slot moves is asked for where it will be.
    let (from, to) = (&cluster.nodes[0], &cluster.nodes[1]);
    let ids: (String, String) = (from.cmd(&["CLUSTER", "MYID"]).await, to.cmd(&["CLUSTER", "MYID"]).await);
    let moved = (0..).map(|n| format!("m{n}")).find(|name| QueueKeys::new(name).slot() < 5_462).unwrap();
    let slot = QueueKeys::new(&moved).slot().to_string();
    to.cmd::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids.0]).await;
    from.cmd::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids.1]).await;
    let looks = async |user| Broker::new(connect(&cluster, user, Duration::from_millis(300))).has_groups(&moved).await;
    for user in ROLES {
        assert!(!looks(user).await.unwrap(), "{user}");
    }

    for right in ["+asking", "+cluster|slots"] {
        for user in ROLES {
            for node in &cluster.nodes {
                node.cmd::<()>(&["ACL", "DELUSER", user]).await;
                node.cmd::<()>(&["ACL", "LOG", "RESET"]).await;
            }
        }
        with_users(&cluster, right).await;
        for user in ROLES {
            assert!(looks(user).await.is_err(), "{user} needs no {right}");
        }
    }
}

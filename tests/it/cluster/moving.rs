use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use queue_admin::Inspector;
use queue_core::keys::{DUTIES, QueueKeys, slot_of};
use queue_core::{Clock as _, RawTask, SystemClock, TaskState};
use queue_redis::{Client, Error, broker::Broker};

use super::{Counts, connect, pour, queues, serve};
use crate::support::{Cluster, eventually, of_redis};

/// Redis runs a script on what is left of a slot, and stops it at the first key that has gone: half-way.
#[tokio::test]
async fn no_script_runs_while_the_keys_of_its_slot_are_on_two_nodes() {
    queue_redis::log_to_stderr(false);
    let cluster = Cluster::start().await;
    let [queue, _, other] = queues();
    let (keys, slot) = (QueueKeys::new(&queue), QueueKeys::new(&queue).slot().to_string());
    let brief = Duration::from_millis(300);
    let (client, broker) = (Client::new(connect(&cluster, brief)), Broker::new(connect(&cluster, brief)));
    let inspector = Inspector::new(connect(&cluster, brief));
    let put = |id: &str| client.enqueue(RawTask::new("job").queue(queue.as_str()).task_id(id));
    for id in ["active", "pending", "late"] {
        put(id).await.unwrap();
    }
    let now = SystemClock.now_secs();
    let token: Arc<str> = "run".into();
    broker.dequeue(&queue.as_str().into(), 1, &token, now + 30).await.unwrap();
    client
        .enqueue(RawTask::new("job").queue(queue.as_str()).task_id("due").process_in(Duration::from_secs(1)))
        .await
        .unwrap();

    let (from, to) = (&cluster.nodes[0], &cluster.nodes[1]);
    let (from_id, to_id): (String, String) = (from.cmd(&["CLUSTER", "MYID"]).await, to.cmd(&["CLUSTER", "MYID"]).await);
    to.cmd::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
    from.cmd::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
    let move_key = async |key: String| {
        let port = to.port.to_string();
        from.cmd::<String>(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]).await;
    };
    // Somebody waits for a task, armed at the node that it leaves.
    let waiter = Client::new(connect(&cluster, Duration::from_secs(5)));
    let mut changes = waiter.handle(&queue, "pending").changes();
    assert_eq!(changes.next().await.unwrap().unwrap().state, Some(TaskState::Pending));
    // The hashes have gone, the lists are still there.
    for id in ["pending", "due", "active"] {
        move_key(keys.task(id)).await;
    }
    let before =
        (from.cmd::<Vec<String>>(&["KEYS", "*"]).await.len(), to.cmd::<Vec<String>>(&["KEYS", "*"]).await.len());
    let refused = |error: Error| {
        assert!(error.is_transient() && !error.is_ambiguous(), "{error}");
        assert!(error.to_string().contains("moving"), "{error}");
    };
    refused(broker.dequeue(&queue.as_str().into(), 3, &token, now + 30).await.unwrap_err());
    // A take does not wait either, however patient the handle is: there are other queues.
    let patient = Broker::new(connect(&cluster, Duration::from_secs(24 * 60 * 60)));
    let queue_name = queue.as_str().into();
    let take = tokio::time::timeout(Duration::from_secs(30), patient.dequeue(&queue_name, 3, &token, now + 30));
    refused(take.await.expect("an answer").unwrap_err());
    refused(broker.forward(&queue, TaskState::Scheduled, (now + 10) * 1_000_000_000, 0).await.unwrap_err());
    refused(broker.list_expired(&queue, now + 1_000, 0).await.unwrap_err());
    refused(of_redis(inspector.delete_task(&queue, "late").await.unwrap_err()));
    let error = put("new").await.unwrap_err();
    assert!(error.to_string().contains("moving"), "{error}");
    // Commands with one key find it wherever it is.
    assert_eq!(inspector.task(&queue, "late").await.unwrap().state, TaskState::Pending);
    assert_eq!(inspector.task(&queue, "due").await.unwrap().state, TaskState::Scheduled);
    // Other queues are not concerned.
    client.enqueue(RawTask::new("job").queue(other.as_str())).await.unwrap();
    let after =
        (from.cmd::<Vec<String>>(&["KEYS", "*"]).await.len(), to.cmd::<Vec<String>>(&["KEYS", "*"]).await.len());
    assert_eq!(before, after, "nothing was written");

    loop {
        let left: Vec<String> = from.cmd(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await;
        if left.is_empty() {
            break;
        }
        for key in left {
            move_key(key).await;
        }
    }
    for node in [to, from, &cluster.nodes[2]] {
        node.cmd::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
    }
    // Who has not heard of it is told by the node that it asks: in a pipeline, and in a transaction.
    assert_eq!(inspector.queue(&queue).await.unwrap().count(TaskState::Pending), 2);
    broker.record_enqueue_event(&format!("{{{queue}}}"), "id", 0).await.unwrap();
    put("new").await.unwrap();
    let counts = Counts::default();
    let server = serve(connect(&cluster, Duration::from_secs(5)), &counts, std::slice::from_ref(&queue)).await;
    eventually("what waited is worked", async || counts.distinct() == 4).await;
    while let Some(look) = changes.next().await.unwrap() {
        assert!(matches!(look.state, Some(TaskState::Pending | TaskState::Active)), "{look:?}");
    }
    assert_eq!(counts.of("active"), 0, "it has a lease");
    server.shutdown().await;
}

/// Whoever moves a slot tells one node after the other. In between each of the two names the other one.
#[tokio::test]
async fn two_nodes_that_name_each_other_are_asked_until_they_agree() {
    queue_redis::log_to_stderr(false);
    let cluster = Cluster::start().await;
    let [queue, ..] = queues();
    let slot = QueueKeys::new(&queue).slot().to_string();
    let task = || RawTask::new("job").queue(queue.as_str());
    let (brief, patient) = (Duration::from_millis(300), Duration::from_secs(60));
    let [brief, patient] = [brief, patient].map(|patience| Client::new(connect(&cluster, patience)));
    let id: String = cluster.nodes[1].cmd(&["CLUSTER", "MYID"]).await;
    let told = async |node: usize| cluster.nodes[node].cmd::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]).await;
    told(0).await;
    let error = brief.enqueue(task()).await.unwrap_err();
    assert!(error.to_string().contains("the slot is moving"), "{error}");
    let waiting = tokio::spawn({
        let task = task();
        async move { patient.enqueue(task).await }
    });
    // Longer than a call is sent again that has failed at once.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished());
    told(1).await;
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn nothing_is_lost_while_slots_are_resharded_under_load() {
    queue_redis::log_to_stderr(false);
    let cluster = Cluster::start().await;
    // Among the slots that move.
    let early = |prefix: &str| {
        let mut names = (0..).map(|n| format!("{prefix}{n}"));
        names.find(|name| (0..60).contains(&QueueKeys::new(name).slot())).unwrap()
    };
    let [_, second, third] = queues();
    let names = [early("q"), second, third];
    let counts = Counts::default();
    let server = serve(connect(&cluster, Duration::from_secs(5)), &counts, &names).await;
    // A queue that nobody works carries its tasks along.
    let idle = early("idle");
    let client = Client::new(connect(&cluster, Duration::from_secs(5)));
    let waiting = (0..500).map(|n| RawTask::new("job").queue(idle.as_str()).task_id(format!("waiting-{n}")));
    assert!(client.enqueue_many(waiting).await.iter().all(Result::is_ok));

    let stop = Arc::new(AtomicBool::new(false));
    let pouring = tokio::spawn(pour(client.clone(), [names.to_vec(), vec![idle.clone()]].concat(), stop.clone()));
    let mut moved = cluster.reshard(0, 1, 100).await;
    let ended = tokio::time::timeout(Duration::from_secs(300), moved.wait()).await;
    assert!(ended.expect("redis-cli ends").unwrap().success());
    assert_eq!(cluster.master_of(&QueueKeys::new(&names[0]).pending()).await, 1);
    let before = counts.distinct();
    eventually("it goes on with the queue that has moved", async || counts.distinct() > before + 20).await;
    stop.store(true, Ordering::Relaxed);
    let poured = pouring.await.unwrap();
    let worked: Vec<&String> = poured.iter().enumerate().filter(|(n, _)| n % 4 != 3).map(|(_, id)| id).collect();
    eventually("everything is worked", async || counts.distinct() == worked.len()).await;
    for id in worked {
        assert_eq!(counts.of(id), 1, "{id}");
    }
    let inspector = Inspector::new(connect(&cluster, Duration::from_secs(5)));
    let left = inspector.queue(&idle).await.unwrap().count(TaskState::Pending);
    assert_eq!(left as usize, 500 + poured.len() / 4);
    server.shutdown().await;
    for name in &names {
        assert_eq!(inspector.queue(name).await.unwrap().size(), 0, "{name}");
    }
}

/// Redis says no word of a key that does not exist when its slot moves.
#[tokio::test]
async fn an_idle_server_hears_of_a_duty_whose_slot_has_moved_meanwhile() {
    queue_redis::log_to_stderr(false);
    let cluster = Cluster::start().await;
    let counts = Counts::default();
    let server = serve(connect(&cluster, Duration::from_secs(5)), &counts, &queues()).await;
    // It has looked, and rests.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let slot = slot_of(DUTIES.as_bytes());
    let owner = [0..=5461, 5462..=10922, 10923..=16383].iter().position(|slots| slots.contains(&slot)).unwrap();
    let taker = (owner + 1) % 3;
    let id: String = cluster.nodes[taker].cmd(&["CLUSTER", "MYID"]).await;
    for node in [taker, owner, (owner + 2) % 3] {
        cluster.nodes[node].cmd::<()>(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]).await;
    }
    let broker = Broker::new(connect(&cluster, Duration::from_secs(5)));
    broker.ask_for_duty("flow", "nobody", 1).await.unwrap();
    eventually("the leader has looked", async || broker.first_duty().await.unwrap().is_none()).await;
    server.shutdown().await;
}

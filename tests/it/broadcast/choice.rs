//! Who is chosen, and what is refused.

use std::collections::BTreeSet;

use queue_core::RawTask;
use queue_core::broadcast::AudienceError;
use queue_core::wire::ServerInfo;
use queue_core::{Clock as _, SystemClock};
use queue_redis::{BatchError, BatchState, EnqueueError, To, Verdict};

use super::{flush, pretend, pretend_as, vanish};
use crate::support::{Fixture, QUEUE};

/// The tasks that wait in a mailbox.
async fn waiting(fixture: &Fixture, server: &str) -> usize {
    let ids: Vec<String> = fixture.cmd(&["LRANGE", &format!("asynq:{{q}}@{server}}}:pending"), "0", "-1"]).await;
    ids.len()
}

async fn keys(fixture: &Fixture) -> BTreeSet<String> {
    fixture.cmd::<BTreeSet<String>>(&["KEYS", "*"]).await
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_and_leaves_nothing() {
    let fixture = Fixture::start().await;
    let nobody = flush(&fixture).send().await.unwrap_err();
    assert!(matches!(&nobody, BatchError::Audience(AudienceError::Nobody { .. })), "{nobody}");
    assert_eq!(keys(&fixture).await, BTreeSet::new());

    pretend(&fixture, "a").await;
    pretend(&fixture, "b").await;
    let go = ServerInfo { queues: [(QUEUE.to_owned(), 1)].into(), host: "go".to_owned(), ..ServerInfo::default() };
    let mut connection = fixture.redis().pooled().await.unwrap();
    fixture.broker.write_server_state(&mut connection, &go, &[], SystemClock.now_secs()).await.unwrap();
    let before = keys(&fixture).await;
    for (text, refused) in [
        ("no live server is called x, y", flush(&fixture).to(To::servers(["x", "a", "y"]))),
        ("no live server of queue \"q\" can take part", flush(&fixture).to(To::labelled("gpu"))),
        (
            "2 live servers of queue \"q\" can take part, and 3 are wanted; left out: go:0",
            flush(&fixture).to(To::count(3)),
        ),
        ("a quorum of 3 is not to be had of 2 servers", flush(&fixture).quorum(3)),
        ("the quorum is 0", flush(&fixture).quorum(0)),
        ("the count is 0", flush(&fixture).to(To::count(0))),
        ("no live server of queue \"other\"", flush(&fixture).queue("other")),
        ("the id", flush(&fixture).id("no id")),
    ] {
        let error = refused.send().await.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    for unsuitable in [
        RawTask::new("flush").task_id("mine"),
        RawTask::new("flush").group("g"),
        RawTask::new("flush").process_in(std::time::Duration::from_secs(9)),
        RawTask::new("flush").unique(std::time::Duration::from_secs(9)),
    ] {
        let error = fixture.client().broadcast(unsuitable).queue(QUEUE).send().await.unwrap_err();
        assert!(matches!(error, BatchError::Unsuitable { .. }), "{error}");
    }
    let large = RawTask::new("flush").payload(vec![0; 17 * 1024 * 1024]);
    let error = fixture.client().broadcast(large).queue(QUEUE).send().await.unwrap_err();
    assert!(matches!(error, BatchError::Unplaced { source: EnqueueError::TooLarge { .. }, .. }), "{error}");
    let twin = pretend_as(&fixture, "other", "a").await;
    let error = flush(&fixture).send().await.unwrap_err();
    assert!(matches!(&error, BatchError::Audience(AudienceError::SharedName(name)) if name == "a"), "{error}");
    vanish(&fixture, &twin).await;
    fixture.broker.forget_server_entry("other:7:id-of-other").await.unwrap();
    assert_eq!(keys(&fixture).await, before, "none of it was stored");
}

#[tokio::test]
async fn all_live_servers_get_it_and_those_left_out_are_told() {
    let fixture = Fixture::start().await;
    for name in ["b", "a", "c"] {
        pretend(&fixture, name).await;
    }
    let go = ServerInfo { queues: [(QUEUE.to_owned(), 1)].into(), host: "go".to_owned(), ..ServerInfo::default() };
    let mut connection = fixture.redis().pooled().await.unwrap();
    fixture.broker.write_server_state(&mut connection, &go, &[], SystemClock.now_secs()).await.unwrap();
    let sent = flush(&fixture).quorum(2).send().await.unwrap();
    assert_eq!(sent.servers(), ["a", "b", "c"]);
    let left_out: Vec<String> = sent.left_out().iter().map(ToString::to_string).collect();
    assert_eq!(left_out, ["go:0 (it serves no mailboxes, as Go's servers and older ones)"]);
    for name in ["a", "b", "c"] {
        assert_eq!(waiting(&fixture, name).await, 1);
    }
    let status = sent.batch().status().await.unwrap();
    assert_eq!((status.total, status.sent, status.quorum), (3, 3, Some(2)));
    assert_eq!(status.description.as_deref(), Some("broadcast of flush to live"));
    assert_eq!(sent.status().await.unwrap().verdict, Verdict::Open);
    // As a workflow, its nodes have the names of the servers.
    let nodes = fixture.client().flows().nodes(sent.id()).await.unwrap();
    let nodes: Vec<_> = nodes.iter().map(|node| (&*node.name, node.queue.as_deref().unwrap())).collect();
    assert_eq!(nodes, [("a", "q}@a"), ("b", "q}@b"), ("c", "q}@c")]);
    // A name may be longer than that of a node.
    let long = "x".repeat(100);
    pretend(&fixture, &long).await;
    let sent = flush(&fixture).to(To::servers([&*long, "a"])).send().await.unwrap();
    assert_eq!((sent.servers().len(), waiting(&fixture, &long).await, waiting(&fixture, "a").await), (2, 1, 2));
}

#[tokio::test]
async fn an_id_is_one_broadcast_whoever_is_alive_when_it_is_sent_again() {
    let fixture = Fixture::start().await;
    pretend(&fixture, "a").await;
    let b = pretend(&fixture, "b").await;
    let first = flush(&fixture).id("x").send().await.unwrap();
    vanish(&fixture, &b).await;
    pretend(&fixture, "c").await;
    let second = flush(&fixture).id("x").quorum(1).send().await.unwrap();
    assert_eq!((first.servers(), second.servers()), (second.servers(), &["a".to_owned(), "b".to_owned()][..]));
    assert_eq!(second.status().await.unwrap().quorum, 2);
    for (name, tasks) in [("a", 1), ("b", 1), ("c", 0)] {
        assert_eq!(waiting(&fixture, name).await, tasks, "{name}");
    }
    // What was sent half-way has run nowhere, and is completed as it was begun.
    let _: String = fixture.cmd(&["SET", "asynq:x:{half}:0:messages", "no hash"]).await;
    flush(&fixture).id("half").to(To::count(2)).send().await.unwrap_err();
    let half = fixture.client().broadcast_of("half").await.unwrap();
    assert_eq!(half.batch().status().await.unwrap().state, BatchState::Open);
    assert_eq!((waiting(&fixture, "a").await, waiting(&fixture, "c").await), (1, 0));
    let _: i64 = fixture.cmd(&["DEL", "asynq:x:{half}:0:messages"]).await;
    pretend(&fixture, "d").await;
    let whole = flush(&fixture).id("half").send().await.unwrap();
    assert_eq!(whole.servers(), ["a", "c"]);
    assert_eq!(whole.batch().status().await.unwrap().state, BatchState::Running);
    for (name, tasks) in [("a", 2), ("b", 1), ("c", 1), ("d", 0)] {
        assert_eq!(waiting(&fixture, name).await, tasks, "{name}");
    }
    // Another batch has the id.
    fixture.client().batch().id("batch").add_all([RawTask::new("t").queue(QUEUE)]).await.unwrap();
    let error = flush(&fixture).id("batch").send().await.unwrap_err();
    assert!(matches!(error, BatchError::NoBroadcast { .. }), "{error}");
    for (id, text) in [("batch", "batch batch is no broadcast"), ("nobody", "there is no batch nobody")] {
        let error = fixture.client().broadcast_of(id).await.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}

//! Tasks for certain servers: mailboxes, and queues of labels, which servers join.

use std::time::Duration;

use queue_admin::Reason;
use queue_core::{RawTask, TaskOptions};
use queue_redis::{EnqueueError, Fault, Finding};
use queue_worker::{Job, Router, Server};

use crate::support::{Events, Fixture, QUEUE, eventually, job, with};

/// A server that tells its name with the id of each task.
fn server(fixture: &Fixture, events: &Events, name: &'static str) -> Server {
    let tell = with(events, move |events: Events, job: Job| async move {
        events.tell(format!("{name} ran {}", job.id()));
    });
    fixture.server(Router::new(()).route("job", tell)).concurrency(1)
}

/// The queues that servers say they serve.
async fn served(fixture: &Fixture) -> Vec<String> {
    let servers = fixture.inspector().servers().await.unwrap();
    let mut served: Vec<String> = servers.into_iter().flat_map(|server| server.queues.into_keys()).collect();
    served.sort();
    served
}

async fn examine(fixture: &Fixture) -> Vec<Finding> {
    let (mut examination, mut found) = (fixture.inspector().doctor().examine(), Vec::new());
    while let Some(findings) = examination.next().await.unwrap() {
        found.extend(findings);
    }
    found
}

fn sorted(mut told: Vec<String>) -> Vec<String> {
    told.sort();
    told
}

#[tokio::test]
async fn a_target_that_is_spoilt_or_paused_costs_no_other_its_fallback() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let brief = Duration::from_secs(1);
    fixture
        .enqueue([job("x").queue("aa").only("x").fallback(brief), job("p").queue("pp").only("x").fallback(brief)])
        .await;
    fixture.run("SET asynq:{aa}@x}:retry no-set").await;
    fixture.inspector().pause("pp}@x").await.unwrap();
    fixture.enqueue([job("z").queue("zz").only("x").fallback(brief)]).await;
    let server = server(&fixture, &events, "any").queues([("zz", 1), ("pp", 1)]).start().await.unwrap();
    assert_eq!(events.wait(1).await, ["any ran z"]);
    let paused: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{pp}@x}:pending", "0", "-1"]).await;
    assert_eq!(paused, ["p"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_task_is_run_by_a_server_of_its_name_or_with_all_its_labels() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue([job("before").only("web-1")]).await;
    let one = server(&fixture, &events, "web-1").name("web-1").label("gpu").start().await.unwrap();
    let two = server(&fixture, &events, "web-2").name("web-2").label("gpu").label("eu").start().await.unwrap();
    let other = server(&fixture, &events, "other").start().await.unwrap();
    assert_eq!(events.wait(1).await, ["web-1 ran before"]);
    let tasks = [
        job("1").only("web-1"),
        job("2").only("web-2"),
        job("eu").label("eu"),
        job("both").label("gpu").label("eu"),
        // What is due later, too.
        job("later").only("web-2").process_in(Duration::from_millis(10)),
    ];
    fixture.enqueue(tasks).await;
    let expected =
        ["web-1 ran 1", "web-1 ran before", "web-2 ran 2", "web-2 ran both", "web-2 ran eu", "web-2 ran later"];
    assert_eq!(sorted(events.wait(6).await), expected);
    for n in 0..50 {
        fixture.enqueue([job(&format!("g{n}")).label("gpu")]).await;
    }
    let told = events.wait(56).await;
    assert!(
        told[6..].iter().all(|told| told.starts_with("web-1 ran g") || told.starts_with("web-2 ran g")),
        "{told:?}"
    );
    eventually("they say what they serve", async || {
        let expected = [QUEUE, QUEUE, QUEUE, "q}#eu", "q}#eu+gpu", "q}#gpu", "q}#gpu", "q}@web-1", "q}@web-2"];
        served(&fixture).await == expected
    })
    .await;
    for server in [one, two, other] {
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_target_that_nobody_fits_waits_and_explain_and_doctor_say_so() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let started = server(&fixture, &events, "web-1").name("web-1").label("eu").start().await.unwrap();
    fixture.enqueue([job("named").only("web-2"), job("labelled").label("eu").label("gpu"), job("any")]).await;
    assert_eq!(events.wait(1).await, ["web-1 ran any"]);
    let inspector = fixture.inspector();
    for (queue, id, expected) in
        [("q}@web-2", "named", "servers named web-2"), ("q}#eu+gpu", "labelled", "servers labelled eu and gpu")]
    {
        let explained = inspector.explain(queue, id).await.unwrap();
        let [Reason::NoFittingServer { only, others, fallback: None }, ..] = &explained.reasons[..] else {
            panic!("{:?}", explained.reasons)
        };
        assert_eq!(only, expected);
        assert!(others.len() == 1 && others[0].ends_with("(web-1 #eu)"), "{others:?}");
        let unserved = examine(&fixture).await.into_iter().find(|found| found.subject == queue).unwrap();
        assert_eq!(unserved.fault, Fault::Unserved);
        assert_eq!(unserved.detail, format!("1 pending; only {expected} may take them"));
    }
    let on_queue = || TaskOptions::new().queue(QUEUE);
    let fitting = async |options| inspector.servers_for(&options).await.unwrap().len();
    assert_eq!(fitting(on_queue().only("web-1")).await, 1, "although its mailbox was never used");
    assert_eq!(fitting(on_queue().label("eu")).await, 1);
    assert_eq!(fitting(on_queue().only("web-2")).await, 0);
    assert_eq!(fitting(on_queue().queue("other").only("web-1")).await, 0);

    let second = server(&fixture, &events, "web-2").name("web-2").start().await.unwrap();
    assert_eq!(events.wait(2).await[1], "web-2 ran named");
    started.shutdown().await;
    second.shutdown().await;
}

#[tokio::test]
async fn two_servers_of_one_name_share_a_mailbox_and_the_doctor_says_so() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let one = server(&fixture, &events, "web-1").name("web-1").start().await.unwrap();
    let two = server(&fixture, &events, "web-1").name("web-1").start().await.unwrap();
    let is_shared = |found: &Finding| found.fault == Fault::SharedName;
    assert!(!examine(&fixture).await.iter().any(is_shared), "there is no mailbox");
    fixture.enqueue([job("a").only("web-1")]).await;
    events.wait(1).await;
    let found: Vec<_> = examine(&fixture).await.into_iter().filter(is_shared).collect();
    assert!(found.len() == 1 && found[0].subject == "q}@web-1", "{found:?}");
    assert_eq!(found[0].detail.split(", ").count(), 2, "{found:?}");
    one.shutdown().await;
    assert!(!examine(&fixture).await.iter().any(is_shared));
    two.shutdown().await;
}

#[tokio::test]
async fn a_unique_task_is_one_over_its_queue_and_all_targets() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let unique = |id: &str| RawTask::new("job").task_id(id).queue(QUEUE).payload("x").unique(Duration::from_secs(600));
    fixture.enqueue([unique("first").only("web-1")]).await;
    let client = fixture.client();
    for twin in [unique("twin"), unique("twin").only("web-2"), unique("twin").label("gpu"), unique("twin").priority(9)]
    {
        let refused = client.enqueue(twin).await.unwrap_err();
        assert!(matches!(refused, EnqueueError::DuplicateTask { .. }), "{refused}");
    }
    let started = server(&fixture, &events, "web-1").name("web-1").start().await.unwrap();
    events.wait(1).await;
    eventually("its lock is free", async || client.enqueue(unique("next").label("gpu")).await.is_ok()).await;
    started.shutdown().await;
}

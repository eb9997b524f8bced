//! Chains and graphs: what runs when, what is handed on, and what follows when somebody dies.

use queue_core::flow::MemberState;
use queue_core::{Clock as _, RawTask, SystemClock};
use queue_redis::{Batch, BatchError, BatchState, Parents};
use queue_worker::{Failure, Job, Output, Router, State, Task};
use serde::{Deserialize, Serialize};

use super::{Ran, callback, client, count, flow_keys, member, over, router, server, tend, until};
use crate::support::{Fixture, QUEUE, report, with};

/// A node that hands on the sum of what it got and of what it has itself.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "sum", queue = "q", max_retry = 3)]
struct Sum(u64);

/// A node that adds members to the node "filled".
#[derive(Serialize, Deserialize, Task)]
#[task(type = "fill", queue = "q", max_retry = 3)]
struct Fill(u64);

async fn sum(task: Sum, parents: Parents, State(ran): State<Ran>) -> Result<Output<u64>, Failure> {
    let mut sum = task.0;
    for name in parents.names() {
        sum += parents.all::<u64>(name)?.iter().sum::<u64>();
    }
    ran.tell(format!("sum {sum}"));
    Ok(Output(sum))
}

fn sums(ran: &Ran) -> Router<Ran> {
    router(ran).task(sum)
}

fn at(ran: &Ran, what: &str) -> usize {
    ran.all().iter().position(|ran| ran == what).unwrap_or_else(|| panic!("{what} did not run: {:?}", ran.all()))
}

async fn states(fixture: &Fixture, batch: &Batch) -> Vec<(String, MemberState)> {
    let nodes = client(fixture).flows().nodes(batch.id()).await.unwrap();
    let mut nodes: Vec<_> = nodes.into_iter().map(|node| (node.name, node.state)).collect();
    nodes.sort();
    nodes
}

#[tokio::test]
async fn the_steps_of_a_chain_run_one_after_the_other_and_hand_on_results() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, sums(&ran)).start().await.unwrap();
    let chain = client(&fixture).chain().then(Sum(1)).then_all([Sum(10), Sum(20), Sum(30)]).then(Sum(100));
    let chain = chain.on_success(callback("success")).start().await.unwrap();
    let status = over(&chain).await;
    assert_eq!((status.state, status.total, status.succeeded), (BatchState::Succeeded, 3, 3));
    let all = ran.all();
    assert_eq!((&*all[0], &all[4..]), ("sum 1", &["sum 163".to_owned(), "success".to_owned()][..]));
    assert_eq!(count(&ran, "sum 11") + count(&ran, "sum 21") + count(&ran, "sum 31"), 3);
    server.shutdown().await;
    // Results are there until the workflow is forgotten, and no longer.
    let kept: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:t:*"]).await;
    assert_eq!(kept.len(), 4, "{kept:?}");
    let _: i64 = fixture.cmd(&["HSET", &format!("asynq:x:{{{}}}:0:flow", chain.id()), "over", "1"]).await;
    tend(&fixture, &chain).await;
    assert_eq!(flow_keys(&fixture).await, Vec::<String>::new());
    let kept: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:t:*"]).await;
    assert_eq!(kept, Vec::<String>::new());
}

#[tokio::test]
async fn a_node_runs_when_all_that_it_waits_for_have_ended_as_it_wants() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let flow = client(&fixture)
        .workflow()
        .id("release")
        .task("ship", member("ship"))
        .after(["build", "test"])
        .task("build", member("build"))
        .batch("test", [member("unit"), member("browser")])
        .after(["build"])
        .task("blame", member("blame"))
        .after_failure(["ship"])
        .task("tidy", member("tidy"))
        .after_end(["ship", "blame"]);
    let flow = flow.start().await.unwrap();
    let status = over(&flow).await;
    assert_eq!((status.state, status.succeeded, status.skipped), (BatchState::Succeeded, 4, 1));
    assert_eq!(count(&ran, "blame"), 0);
    assert!(at(&ran, "build") < at(&ran, "unit").min(at(&ran, "browser")), "{:?}", ran.all());
    assert!(at(&ran, "ship") > at(&ran, "unit").max(at(&ran, "browser")), "{:?}", ran.all());
    assert_eq!(ran.all().last().unwrap(), "tidy");
    server.shutdown().await;
}

#[tokio::test]
async fn what_needs_a_dead_node_is_skipped_and_runs_when_that_recovers() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let flow = client(&fixture)
        .workflow()
        .task("a", member("die"))
        .task("b", member("b"))
        .after(["a"])
        .batch("c", [member("c")])
        .after(["b"])
        .task("undo", member("undo"))
        .after_failure(["a"])
        .task("end", member("end"))
        .after_end(["c"])
        .on_settled(callback("settled"));
    let flow = flow.start().await.unwrap();
    let status = over(&flow).await;
    assert_eq!((status.state, status.dead, status.skipped, status.succeeded), (BatchState::Dead, 1, 2, 2));
    assert!(count(&ran, "undo") == 1 && count(&ran, "end") == 1, "{:?}", ran.all());
    ran.tell("heal");
    assert_eq!(flow.retry_dead().await.unwrap(), 1);
    let status = until(&flow, "it has recovered", |status| status.state == BatchState::Succeeded).await;
    assert_eq!((status.succeeded, status.skipped, status.generation), (5, 0, 2));
    assert_eq!((count(&ran, "b"), count(&ran, "c"), count(&ran, "end")), (1, 1, 1));
    server.shutdown().await;
}

#[tokio::test]
async fn a_workflow_succeeds_without_nodes_that_may_fail() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let flow = || client(&fixture).workflow().on_success(callback("success")).on_death(callback("death"));
    let made = flow()
        .task("lint", member("die"))
        .may_fail()
        .batch("hints", [member("die"), member("hint")])
        .may_fail()
        .task("build", member("build"))
        .after_end(["lint", "hints"])
        .task("praise", member("praise"))
        .after(["lint"])
        .start()
        .await
        .unwrap();
    let status = over(&made).await;
    assert_eq!((status.state, status.dead, status.succeeded, status.skipped), (BatchState::Succeeded, 2, 1, 1));
    assert_eq!((count(&ran, "build"), count(&ran, "success")), (1, 1));
    assert_eq!((count(&ran, "praise"), count(&ran, "death")), (0, 0));
    let nodes = client(&fixture).flows().nodes(made.id()).await.unwrap();
    let may_fail: Vec<&str> = nodes.iter().filter(|node| node.may_fail).map(|node| &*node.name).collect();
    assert_eq!(may_fail.len(), 2, "{may_fail:?}");

    // A death beside it counts as ever.
    let made = flow().task("lint", member("die")).may_fail().task("build", member("die")).start().await.unwrap();
    assert_eq!(over(&made).await.state, BatchState::Dead);
    assert_eq!((count(&ran, "success"), count(&ran, "death")), (1, 1));
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_that_is_revoked_has_failed() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let revoke = async |_: Ran, _: Job| Err::<(), _>(Failure::revoke("not needed"));
    let server = server(&fixture, router(&ran).route("revoke", with(&ran, revoke))).start().await.unwrap();
    let flow = client(&fixture).workflow().task("a", RawTask::new("revoke").queue(QUEUE));
    let flow = flow.task("b", member("b")).after_failure(["a"]).task("c", member("c")).after(["a"]);
    let status = over(&flow.start().await.unwrap()).await;
    assert_eq!((status.removed, status.succeeded, status.skipped), (1, 1, 1));
    assert_eq!(ran.all(), ["b"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_fills_the_batch_behind_it_once_however_often_it_is_tried() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let fill = async |task: Fill, job: Job, flow: Batch| {
        flow.node("filled").await?.add_all((0..task.0).map(|_| member("ok"))).await?;
        if job.attempt() == 1 { Err(Failure::retry_in(std::time::Duration::ZERO, "again")) } else { Ok(()) }
    };
    let server = server(&fixture, router(&ran).task(fill)).start().await.unwrap();
    let chain = client(&fixture).workflow().task("fill", Fill(40)).batch("filled", Vec::<RawTask>::new());
    let chain = chain.after(["fill"]).task("after", member("after")).after(["filled"]).start().await.unwrap();
    assert_eq!(over(&chain).await.state, BatchState::Succeeded);
    assert_eq!((count(&ran, "ok"), ran.all().last().unwrap().as_str()), (40, "after"));
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_adds_nodes_to_the_batch_behind_it_and_those_after_it_wait_for_them() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let plan = async |_: Fill, job: Job, flow: Batch| {
        let made = flow.node("planned").await?.workflow().id("plan").task("first", member("first"));
        made.task("second", member("second")).after(["first"]).start().await?;
        if job.attempt() == 1 { Err(Failure::retry_in(std::time::Duration::ZERO, "again")) } else { Ok(()) }
    };
    let server = server(&fixture, router(&ran).task(plan)).start().await.unwrap();
    let flow = client(&fixture).workflow().task("plan", Fill(0)).batch("planned", Vec::<RawTask>::new());
    let flow = flow.after(["plan"]).task("after", member("after")).after(["planned"]).start().await.unwrap();
    assert_eq!(over(&flow).await.state, BatchState::Succeeded);
    assert_eq!(ran.all(), ["first", "second", "after"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_workflow_that_cannot_be_is_refused_before_anything_is_sent() {
    let fixture = Fixture::start().await;
    let flow = || client(&fixture).workflow();
    let many = (0..100_001).map(|_| member("ok"));
    let ring = (0..1_000)
        .fold(flow(), |flow, n| flow.task(format!("n{n}"), member("ok")).after([format!("n{}", (n + 1) % 1_000)]));
    let parents = (0..1_001).fold(flow(), |flow, n| flow.task(format!("n{n}"), member("ok")));
    let cases = [
        (flow().task("a", member("ok")).after(["b"]).task("b", member("ok")).after(["a"]), "in a circle: a -> b -> a"),
        (ring, "n8 -> n9 -> (981 others) -> n991 -> "),
        (flow().task("a", member("ok")).after(["a"]), "in a circle: a -> a"),
        (flow().task("a", member("ok")).after(["nobody"]), "node \"a\" waits for \"nobody\", which is no node"),
        (flow().task("a", member("ok")).task("a", member("ok")), "two nodes are named \"a\""),
        (
            flow().task("b", member("ok")).task("a", member("ok")).after(["b"]).after_end(["b"]),
            "\"a\" waits for \"b\" twice",
        ),
        (flow().task("a b", member("ok")), "\"a b\" cannot be the name of a node"),
        (flow().batch("", [member("ok")]), "\"\" cannot be the name of a node"),
        (flow().after(["a"]), "`after` comes behind the node that waits"),
        (flow().batch("many", many), "it has 100001 nodes, and 100000 is the most"),
        (parents.task("all", member("ok")).after((0..1_001).map(|n| format!("n{n}"))), "waits for 1001 nodes"),
        (flow().task("a", member("ok").task_id("mine")), "task a cannot belong to a batch: it has an id of its own"),
        (
            flow().batch("b", [member("ok"), member("ok").group("g")]),
            "task b/1 cannot belong to a batch: it has a group",
        ),
        (
            flow().task("a", member("ok").unique(std::time::Duration::from_secs(9))),
            "task a cannot belong to a batch: it has a delay or a uniqueness lock",
        ),
        (flow().task("a", member("ok").payload(vec![b'x'; 17 << 20])), "node \"a\" was refused: the task has 17825792"),
        (flow().id("a b").task("a", member("ok")), "\"a b\" is not the id of a batch"),
    ];
    for (flow, text) in cases {
        let error = flow.start().await.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_eq!(flow_keys(&fixture).await, Vec::<String>::new());
    let tasks: Vec<String> = fixture.cmd(&["KEYS", "asynq:{*"]).await;
    assert_eq!(tasks, Vec::<String>::new());
}

#[tokio::test]
async fn what_waits_is_cancelled_with_the_workflow_and_what_is_in_it() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let flow = client(&fixture)
        .workflow()
        .task("a", member("a"))
        .batch("b", [member("b"), member("b")])
        .after(["a"])
        .task("c", member("c"))
        .after(["b"])
        .on_settled(callback("settled"));
    let flow = flow.start().await.unwrap();
    assert!(flow.cancel().await.unwrap());
    tend(&fixture, &flow).await;
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let status = over(&flow).await;
    assert_eq!((status.state, status.cancelled, status.live()), (BatchState::Cancelled, 3, 0));
    assert_eq!(ran.all(), ["settled"]);
    server.shutdown().await;
    let left: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:t:*"]).await;
    assert_eq!(left, Vec::<String>::new());
}

/// Two nodes in a line, as they are when their maker died before the commit: nothing is enqueued.
async fn half_made(fixture: &Fixture) -> Batch {
    let flow = two_nodes(fixture).start().await.unwrap();
    let key = |name: &str| format!("asynq:x:{{two}}:0:{name}");
    let _: i64 = fixture.cmd(&["HDEL", &key("flow"), "committed", "c2"]).await;
    let _: i64 = fixture.cmd(&["HSET", &key("flow"), "c1", "2"]).await;
    let _: i64 = fixture.cmd(&["SETRANGE", &key("states"), "0", "\u{11}"]).await;
    let _: i64 = fixture.cmd(&["DEL", &key("messages"), &key("after"), "asynq:{q}:pending", "asynq:{q}:x:once"]).await;
    let tasks: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:t:*"]).await;
    for task in tasks {
        let _: i64 = fixture.cmd(&["DEL", &task]).await;
    }
    flow
}

fn two_nodes(fixture: &Fixture) -> queue_redis::WorkflowBuilder {
    let flow = client(fixture).workflow().id("two").task("a", member("a"));
    flow.task("b", member("b")).after(["a"]).on_settled(callback("settled"))
}

#[tokio::test]
async fn a_workflow_whose_maker_died_is_completed_by_the_next() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let flow = half_made(&fixture).await;
    let other = client(&fixture).workflow().id("two").task("a", member("a")).start().await.unwrap_err();
    assert!(matches!(other, BatchError::Graph { .. }), "{other}");
    assert_eq!(two_nodes(&fixture).start().await.unwrap().id(), flow.id());
    // Once more it is the one that is there.
    two_nodes(&fixture).start().await.unwrap();
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    assert_eq!(over(&flow).await.state, BatchState::Succeeded);
    assert_eq!(ran.all(), ["a", "b", "settled"]);
    server.shutdown().await;
}

/// As if nothing had happened for an hour.
async fn stands_still(fixture: &Fixture, batch: &Batch) {
    let key = format!("asynq:x:{{{}}}:0:flow", batch.id().root());
    let long_ago = (SystemClock.now_secs() - 3_600).to_string();
    let _: i64 = fixture.cmd(&["HSET", &key, "touched", &long_ago, "looked", &long_ago, "adding", "0"]).await;
}

#[tokio::test]
async fn a_workflow_that_nobody_completes_is_abandoned_and_nothing_of_it_runs() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let flow = half_made(&fixture).await;
    stands_still(&fixture, &flow).await;
    tend(&fixture, &flow).await;
    let server = server(&fixture, router(&ran)).start().await.unwrap();
    let status = over(&flow).await;
    assert_eq!((status.state, status.cancelled), (BatchState::Abandoned, 2));
    assert_eq!(ran.all(), ["settled"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_that_nobody_has_enqueued_is_not_missing_and_the_leader_enqueues_it_once() {
    let fixture = Fixture::start().await;
    let flow = two_nodes(&fixture).start().await.unwrap();
    let todo = "asynq:x:{two}:todo";
    // Whoever was to enqueue the first one has claimed it and done nothing.
    let _: i64 = fixture.cmd(&["DEL", "asynq:{q}:pending", "asynq:{q}:x:once"]).await;
    let tasks: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:t:*"]).await;
    let _: i64 = fixture.cmd(&["DEL", &tasks[0]]).await;
    let later = (SystemClock.now_secs() + 60).to_string();
    let _: i64 = fixture.cmd(&["ZADD", todo, &later, "run 0 0"]).await;
    stands_still(&fixture, &flow).await;
    tend(&fixture, &flow).await;
    let status = flow.status().await.unwrap();
    assert_eq!((status.sent, status.removed), (1, 0));
    for _ in 0..2 {
        let _: i64 = fixture.cmd(&["ZADD", todo, "1", "run 0 0"]).await;
        tend(&fixture, &flow).await;
        let pending: i64 = fixture.cmd(&["LLEN", "asynq:{q}:pending"]).await;
        assert_eq!(pending, 1);
    }
    let left: i64 = fixture.cmd(&["EXISTS", todo]).await;
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_look_that_nobody_has_made_is_made_when_the_workflow_stands_still() {
    let fixture = Fixture::start().await;
    let flow = two_nodes(&fixture).start().await.unwrap();
    // The first has succeeded, and what follows from that was lost.
    let delivery = fixture.take().await;
    let long_ago = SystemClock.now_secs() - 3_600;
    fixture.broker.done(QUEUE, &[report(&delivery)], long_ago).await.unwrap();
    tend(&fixture, &flow).await;
    let key = |name: &str| format!("asynq:x:{{two}}:0:{name}");
    let _: i64 = fixture.cmd(&["SETRANGE", &key("states"), "0", "\u{41}"]).await;
    let _: i64 = fixture.cmd(&["HSET", &key("flow"), "c1", "1", "c2", "0"]).await;
    let _: i64 = fixture.cmd(&["DEL", "asynq:{q}:pending", "asynq:{q}:x:once"]).await;
    let tasks: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:t:*:1"]).await;
    let _: i64 = fixture.cmd(&["DEL", &tasks[0]]).await;
    stands_still(&fixture, &flow).await;
    tend(&fixture, &flow).await;
    assert_eq!(states(&fixture, &flow).await[1], ("b".to_owned(), MemberState::Sent));
    let pending: i64 = fixture.cmd(&["LLEN", "asynq:{q}:pending"]).await;
    assert_eq!(pending, 1);
}

#[tokio::test]
async fn what_takes_longer_than_a_call_should_goes_on_in_the_next() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let server = server(&fixture, router(&ran)).concurrency(50).start().await.unwrap();
    let wide = (0..600).fold(client(&fixture).workflow().task("first", member("first")), |flow, n| {
        flow.task(format!("n{n}"), member("n")).after(["first"])
    });
    let wide = wide.task("last", member("last")).after((0..600).map(|n| format!("n{n}")));
    let flow = wide.start().await.unwrap();
    let status = over(&flow).await;
    assert_eq!((status.state, status.succeeded), (BatchState::Succeeded, 602));
    let all = ran.all();
    assert_eq!((all.len(), &*all[0], &*all[601]), (602, "first", "last"));
    server.shutdown().await;
    let todo: i64 = fixture.cmd(&["EXISTS", &format!("asynq:x:{{{}}}:todo", flow.id())]).await;
    assert_eq!(todo, 0);
}

#[tokio::test]
async fn a_result_that_go_has_left_is_kept_for_those_that_wait_for_it() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let chain = client(&fixture).chain().then(Sum(1)).then(Sum(10)).start().await.unwrap();
    let delivery = fixture.take().await;
    // As Go does it: by the retention in the message, and without telling anybody.
    let (now, id) = (SystemClock.now_secs(), &delivery.message.id);
    fixture.run(&format!("LREM asynq:{{q}}:active 0 {id}")).await;
    fixture.run(&format!("ZREM asynq:{{q}}:lease {id}")).await;
    fixture.run(&format!("ZADD asynq:{{q}}:completed {} {id}", now + delivery.message.retention)).await;
    fixture.run(&format!("HSET asynq:{{q}}:t:{id} state completed result 7")).await;
    tend(&fixture, &chain).await;
    // It is no longer where members are collected, and nobody collects it again.
    let score: i64 = fixture.cmd(&["ZSCORE", "asynq:{q}:completed", id]).await;
    assert!((score - now - 90 * 86_400).abs() < 60, "{score}");
    let server = server(&fixture, sums(&ran)).start().await.unwrap();
    assert_eq!(over(&chain).await.state, BatchState::Succeeded);
    assert_eq!(ran.all(), ["sum 17"]);
    server.shutdown().await;
}

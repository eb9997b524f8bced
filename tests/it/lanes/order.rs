//! Strict order: the tasks of a key run one after another, as they became pending, whatever happens to them.

use std::time::Duration;

use queue_core::limit::{LaneChange, Limit, LimitKey};
use queue_core::{TaskMessage, TaskState};
use queue_redis::Fault;
use queue_redis::broker::{Delivery, Freed, Verdict};
use queue_worker::{Failure, Job, RetryPolicy, Router};

use super::{ids, of};
use crate::doctor::{examine, fix};
use crate::support::{Events, Fixture, Go, NOW, QUEUE, WorkerProcess, eventually, job, report, with};

/// One after another of each tenant.
fn in_order() -> Limit {
    Limit::new("tenant", LimitKey::header("tenant")).strict_order()
}

impl Fixture {
    /// A run fails; its lanes are told.
    pub(super) async fn fail(&self, run: &Delivery) {
        let message = TaskMessage { retried: run.message.retried + 1, error_msg: "boom".into(), ..run.message.clone() };
        self.broker.retry(&report(run), &message.to_bytes(), NOW + 3_600, false, NOW).await.unwrap();
        self.free(run).await;
    }

    async fn free(&self, run: &Delivery) {
        let freed = [Freed { run: run.run.clone(), too_many: None, went_well: None }];
        self.broker.free_slots(QUEUE, &freed).await.unwrap();
    }

    /// The time of all retries has come.
    pub(super) async fn forward_retries(&self) {
        self.broker.forward(QUEUE, TaskState::Retry, (NOW + 7_200) * 1_000_000_000, 0).await.unwrap();
    }

    /// What a look at all lanes gives, one task after another, each of which ends well.
    async fn work_all(&self) -> Vec<String> {
        let mut order = Vec::new();
        loop {
            self.look_again().await;
            let (taken, _) = self.take_some(10).await;
            order.extend(ids(&taken));
            self.end(&taken).await;
            if taken.is_empty() {
                return order;
            }
        }
    }

    async fn take_one(&self, id: &str) -> Delivery {
        let (mut taken, _) = self.take_some(10).await;
        assert_eq!(ids(&taken), [id]);
        taken.remove(0)
    }

    async fn holds_all_up(&self, why: &str) {
        self.look_again().await;
        assert!(self.take_ids(10).await.is_empty(), "{why}");
    }
}

#[tokio::test]
async fn the_next_of_a_key_waits_while_the_one_before_it_is_retried_and_others_do_not() {
    let fixture = Fixture::start().await;
    fixture.limit(in_order()).await;
    fixture.put([of("acme", "a1"), of("acme", "a2"), of("beta", "b1"), job("free")]).await;
    let (taken, _) = fixture.take_some(10).await;
    assert_eq!(ids(&taken), ["a1", "b1", "free"]);
    fixture.fail(&taken[0]).await;
    fixture.holds_all_up("a1 is retried").await;
    // Who comes meanwhile stands behind, and a1 passes all of them when it comes again.
    fixture.put([of("acme", "a3")]).await;
    fixture.forward_retries().await;
    fixture.put([of("acme", "a4")]).await;
    fixture.look_again().await;
    let again = fixture.take_one("a1").await;
    fixture.fail(&again).await;
    fixture.inspector().run_task(QUEUE, "a1").await.unwrap();
    let again = fixture.take_one("a1").await;
    fixture.end(&[again]).await;
    assert_eq!(fixture.work_all().await, ["a2", "a3", "a4"]);
}

/// It was deleted while it waited for its retry, and another task got its id.
#[tokio::test]
async fn a_key_does_not_wait_for_a_task_of_another_key_that_has_the_id_of_its_own() {
    let fixture = Fixture::start().await;
    fixture.limit(in_order()).await;
    fixture.put([of("acme", "a1"), of("acme", "a2"), of("beta", "b1")]).await;
    let (taken, _) = fixture.take_some(10).await;
    assert_eq!(ids(&taken), ["a1", "b1"]);
    fixture.fail(&taken[0]).await;
    fixture.holds_all_up("a1 is retried").await;
    fixture.inspector().delete_task(QUEUE, "a1").await.unwrap();
    // Behind b1, which runs.
    fixture.put([of("beta", "a1")]).await;
    fixture.look_again().await;
    assert_eq!(fixture.take_ids(10).await, ["a2"]);
}

#[tokio::test]
async fn one_that_is_put_back_starts_before_the_next() {
    let fixture = Fixture::start().await;
    fixture.limit(in_order()).await;
    fixture.put([of("acme", "a1"), of("acme", "a2")]).await;
    let run = fixture.take_one("a1").await;
    fixture.broker.requeue(&report(&run), crate::support::NOW_NS).await.unwrap();
    fixture.free(&run).await;
    fixture.look_again().await;
    fixture.take_one("a1").await;
}

#[tokio::test]
async fn the_next_starts_when_the_one_before_it_is_over_however_that_came_about() {
    for end in ["done", "archived", "deleted", "archived by a tool", "completed by Go"] {
        let fixture = Fixture::start().await;
        fixture.limit(in_order()).await;
        fixture.put([of("acme", "a1").retention(Duration::from_secs(60)), of("acme", "a2")]).await;
        let run = fixture.take_one("a1").await;
        let message = run.message.to_bytes();
        match end {
            "done" => fixture.end_in_silence(&[run]).await,
            "archived" => {
                let verdict = fixture.broker.archive(&report(&run), &message, NOW).await.unwrap();
                assert_eq!(verdict, Verdict::Applied);
            }
            "deleted" | "archived by a tool" => {
                fixture.fail(&run).await;
                fixture.holds_all_up("a1 is retried").await;
                match end {
                    "deleted" => fixture.inspector().delete_task(QUEUE, "a1").await.unwrap(),
                    _ => fixture.inspector().archive_task(QUEUE, "a1").await.unwrap(),
                }
            }
            _ => {
                fixture.run("ZREM asynq:{q}:lease a1").await;
                fixture.run("LREM asynq:{q}:active 0 a1").await;
                fixture.run("HSET asynq:{q}:t:a1 state completed").await;
                fixture.run("ZADD asynq:{q}:completed 5000000000 a1").await;
            }
        }
        fixture.look_again().await;
        assert_eq!(fixture.take_ids(10).await, ["a2"], "{end}");
        // Run again, it is one like any other.
        if end.starts_with("archived") {
            fixture.inspector().run_task(QUEUE, "a1").await.unwrap();
            fixture.holds_all_up("a2 is at turn").await;
            fixture.run("DEL asynq:{q}:t:a2").await;
            fixture.run("ZREM asynq:{q}:lease a2").await;
            fixture.look_again().await;
            fixture.take_one("a1").await;
        }
    }
}

#[tokio::test]
async fn who_is_run_or_forwarded_while_it_waits_keeps_its_place() {
    let fixture = Fixture::start().await;
    fixture.limit(in_order()).await;
    fixture.put(["a1", "a2", "a3", "a4", "a5"].map(|id| of("acme", id))).await;
    let first = fixture.take_one("a1").await;
    fixture.put((0..15).map(|n| job(&format!("free{n}")))).await;
    let inspector = fixture.inspector();
    inspector.run_task(QUEUE, "a4").await.unwrap();
    inspector.run_task(QUEUE, "a2").await.unwrap();
    inspector.archive_task(QUEUE, "a3").await.unwrap();
    inspector.run_task(QUEUE, "a3").await.unwrap();
    fixture.run("ZADD asynq:{q}:scheduled XX 1 a5").await;
    fixture.broker.forward(QUEUE, TaskState::Scheduled, 2_000_000_000, 0).await.unwrap();
    fixture.end(&[first]).await;
    // One after another, so that the lane is looked at while they stand behind others in the pending list.
    let mut order = Vec::new();
    while order.len() < 19 {
        fixture.look_again().await;
        let (taken, _) = fixture.take_some(1).await;
        order.extend(ids(&taken));
        fixture.end(&taken).await;
    }
    order.retain(|id| id.starts_with('a'));
    assert_eq!(order, ["a2", "a3", "a4", "a5"]);
}

#[tokio::test]
async fn a_task_that_go_has_taken_out_of_the_lane_holds_it_until_it_is_over() {
    let fixture = Fixture::start().await;
    let go = Go(&fixture);
    fixture.limit(in_order()).await;
    fixture.put([of("acme", "a1"), of("acme", "a2"), of("acme", "a3")]).await;
    let first = fixture.take_one("a1").await;
    fixture.inspector().run_task(QUEUE, "a2").await.unwrap();
    assert_eq!(go.dequeue(NOW + 30).await, "a2");
    fixture.end(&[first]).await;
    fixture.holds_all_up("Go works a2").await;
    let message = fixture.compose(of("acme", "a2")).message;
    go.retry(&message, "boom", NOW, NOW + 60).await;
    fixture.holds_all_up("Go retries a2").await;
    go.forward("a2").await;
    let second = fixture.take_one("a2").await;
    fixture.end(&[second]).await;
    assert_eq!(fixture.work_all().await, ["a3"]);
}

#[tokio::test]
async fn who_is_at_turn_and_waits_under_another_limit_is_not_passed() {
    let fixture = Fixture::start().await;
    fixture.limit(Limit::new("type", LimitKey::Type).concurrency(1)).await;
    fixture.limit(in_order()).await;
    let other = |id: &str| queue_core::RawTask { task_type: "other".into(), ..of("acme", id) };
    fixture.put([of("beta", "b1"), of("acme", "a1"), other("a2")]).await;
    let (taken, _) = fixture.take_some(10).await;
    assert_eq!(ids(&taken), ["b1"], "a1 has to wait for its type, and a2 for a1");
    fixture.holds_all_up("the same").await;
    let lanes: Vec<String> = fixture.cmd(&["ZRANGE", "asynq:{q}:x:slots", "0", "-1"]).await;
    assert_eq!(lanes, ["tenant:acme a1", "tenant:beta b1", "type:job b1"]);
    fixture.end(&taken).await;
    let first = fixture.take_one("a1").await;
    fixture.put([of("beta", "b2")]).await;
    fixture.fail(&first).await;
    let second = fixture.take_one("b2").await;
    fixture.forward_retries().await;
    fixture.holds_all_up("a1 waits for its type again").await;
    fixture.end(&[second]).await;
    assert_eq!(fixture.work_all().await, ["a1", "a2"]);
}

#[tokio::test]
async fn one_that_comes_again_to_a_paused_key_is_the_first_of_it() {
    let fixture = Fixture::start().await;
    fixture.limit(in_order()).await;
    let pause = async |paused: bool| {
        let mut change = LaneChange::default();
        change.paused = paused;
        fixture.inspector().change_lane(QUEUE, "tenant", "acme", Some(&change)).await.unwrap();
    };
    fixture.put([of("acme", "a1"), of("acme", "a2")]).await;
    let first = fixture.take_one("a1").await;
    fixture.fail(&first).await;
    pause(true).await;
    fixture.forward_retries().await;
    fixture.holds_all_up("the key is paused").await;
    assert_eq!(fixture.state("a1").await, "scheduled");
    let explained = fixture.inspector().explain(QUEUE, "a1").await.unwrap();
    let said = explained.reasons[0].to_string();
    assert!(said.starts_with(r#"it is at turn in lane "tenant:acme", and waits for room"#), "{said}");
    pause(false).await;
    assert_eq!(fixture.work_all().await, ["a1", "a2"]);
    let mut change = LaneChange::default();
    change.concurrency = Some(2);
    let refused = fixture.inspector().change_lane(QUEUE, "tenant", "acme", Some(&change)).await.unwrap_err();
    assert!(refused.to_string().contains("in strict order"), "{refused}");
}

#[tokio::test]
async fn the_order_is_that_of_the_list_also_after_the_clock_was_set_back() {
    let fixture = Fixture::start().await;
    fixture.limit(in_order()).await;
    // Stored at one time, by ids that sort the other way.
    fixture.put(["z", "y", "x", "w"].map(|id| of("acme", id))).await;
    let first = fixture.take_one("z").await;
    let last: String = fixture.cmd(&["HGET", "asynq:{q}:t:w", "x_waits"]).await;
    let later = "tenant:acme 4000000000000000000";
    fixture.cmd::<()>(&["ZREM", "asynq:{q}:x:waiting", &format!("{last} w")]).await;
    fixture.cmd::<()>(&["ZADD", "asynq:{q}:x:waiting", "0", &format!("{later} w")]).await;
    fixture.cmd::<()>(&["HSET", "asynq:{q}:t:w", "x_waits", later]).await;
    fixture.put(["v", "u"].map(|id| of("acme", id))).await;
    fixture.end(&[first]).await;
    assert_eq!(fixture.work_all().await, ["y", "x", "w", "v", "u"]);
}

#[tokio::test]
async fn the_doctor_leaves_a_slot_to_one_that_is_retried_and_takes_that_of_one_that_is_over() {
    let fixture = Fixture::start().await;
    fixture.limit(in_order()).await;
    fixture.put([of("acme", "a1"), of("acme", "a2"), of("acme", "a3")]).await;
    let run = fixture.take_one("a1").await;
    fixture.fail(&run).await;
    fixture.inspector().run_task(QUEUE, "a2").await.unwrap();
    let faults = async || -> Vec<Fault> {
        let found = examine(&fixture.inspector()).await.into_iter();
        found.map(|found| found.fault).filter(|fault| [Fault::StaleSlot, Fault::StaleWait].contains(fault)).collect()
    };
    assert_eq!(faults().await, []);
    fixture.inspector().archive_task(QUEUE, "a1").await.unwrap();
    assert_eq!(faults().await, [Fault::StaleSlot]);
    assert_eq!(fix(&fixture.inspector()).await.0, [Fault::StaleSlot]);
    assert_eq!(fixture.work_all().await, ["a2", "a3"]);
}

#[tokio::test]
async fn explain_names_who_is_at_turn_and_what_it_does() {
    let fixture = Fixture::start().await;
    fixture.limit(in_order()).await;
    fixture.put([of("acme", "a1"), of("acme", "a2"), of("acme", "a3")]).await;
    let run = fixture.take_one("a1").await;
    let said = async || fixture.inspector().explain(QUEUE, "a3").await.unwrap().reasons[0].to_string();
    let text = said().await;
    assert!(
        text.contains(r#"1 before it; tasks of this lane run in order, and task "a1" is at turn, which is active"#),
        "{text}"
    );
    fixture.fail(&run).await;
    let text = said().await;
    assert!(text.contains(r#"task "a1" is at turn, which is retry"#), "{text}");
}

/// The whole queue in order. A worker dies with its task; the next one starts only after that has run again.
#[tokio::test]
async fn a_task_of_a_killed_worker_runs_again_before_those_behind_it() {
    let fixture = Fixture::start().await;
    fixture.limit(Limit::new("all", LimitKey::Queue).strict_order()).await;
    let hang = queue_core::RawTask { task_type: "hang".into(), ..job("a") };
    fixture.enqueue([hang, job("b"), job("c")]).await;
    let mut worker = WorkerProcess::start(fixture.url(), 4).await;
    worker.told("start a").await;
    worker.kill();
    let events = Events::default();
    // A lost worker costs it nothing, so that it runs again at once; then it fails, and the lane is looked at more than once meanwhile.
    let work = with(&events, async |events: Events, job: Job| {
        events.tell(job.id());
        if job.id() == "a" && job.retried() == 0 { Err::<(), Failure>("once".into()) } else { Ok(()) }
    });
    let server = fixture.server(Router::new(()).fallback(work));
    let server = server.retry_policy(RetryPolicy::Fixed(Duration::from_secs(4))).start().await.unwrap();
    eventually("those behind wait in the lane", async || fixture.state("c").await == "scheduled").await;
    assert_eq!((fixture.state("a").await, fixture.state("b").await), ("active".into(), "scheduled".into()));
    fixture.expire_leases().await;
    assert_eq!(events.wait(1).await, ["a"]);
    fixture.enqueue([job("d")]).await;
    assert_eq!(events.wait(5).await, ["a", "a", "b", "c", "d"]);
    server.shutdown().await;
}

/// Many keys, whose tasks fail now and then, are given back and lose their servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_run_the_tasks_of_each_key_in_their_order() {
    const OF_EACH: usize = 12;
    let fixture = Fixture::start().await;
    fixture.limit(in_order()).await;
    let events = Events::<(String, usize)>::default();
    let work = with(&events, async |events: Events<(String, usize)>, job: Job| {
        let number = job.id().split('-').nth(1).unwrap().parse::<usize>().unwrap();
        events.tell((job.headers()["tenant"].clone(), number));
        if number % 4 == 1 && job.retried() == 0 { Err::<(), Failure>("once".into()) } else { Ok(()) }
    });
    let start = || {
        let server = queue_worker::Server::new(fixture.another_redis(), Router::new(()).route("job", work.clone()));
        server.queues([(QUEUE, 1)]).concurrency(8).retry_policy(RetryPolicy::Fixed(Duration::ZERO)).start()
    };
    let leaving = start().await.unwrap();
    let staying = start().await.unwrap();
    let tenants: Vec<String> = (0..10).map(|n| format!("t{n}")).collect();
    for number in 0..OF_EACH {
        fixture.enqueue(tenants.iter().map(|tenant| of(tenant, &format!("{tenant}-{number}")))).await;
    }
    leaving.shutdown().await;
    eventually("all are done", async || fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}:t:*"]).await.is_empty()).await;
    staying.shutdown().await;
    let all = events.all();
    for tenant in &tenants {
        let mut order: Vec<usize> = all.iter().filter(|(of, _)| of == tenant).map(|(_, number)| *number).collect();
        assert!(order.is_sorted(), "{tenant}: {order:?}");
        order.dedup();
        assert_eq!(order, (0..OF_EACH).collect::<Vec<_>>(), "{tenant}");
    }
}

//! Queues for certain servers while none of these is alive: what the leader does for them.

use std::sync::Arc;
use std::time::Duration;

use queue_core::clock::ManualClock;
use queue_core::limit::{Limit, LimitKey};
use queue_core::{Clock as _, RawTask, TaskState};
use queue_redis::broker::{Dequeued, Taken, Verdict};
use queue_redis::duties;
use queue_redis::leader::Leader;

use crate::support::{Fixture, NOW, QUEUE, job};

const MAILBOX: &str = "q}@web-1";

struct Fleet {
    fixture: Fixture,
    clock: Arc<ManualClock>,
    leader: Leader,
    /// When Redis lets what the server says of itself go.
    served_until: i64,
}

const SERVER: &str = "asynq:servers:{go:1:u}";

impl Fleet {
    async fn start() -> Self {
        let (fixture, clock) = (Fixture::start().await, Arc::new(ManualClock::at_secs(NOW)));
        let known = duties::standard(&fixture.broker, clock.clone());
        let leader = Leader::new(fixture.broker.clone(), clock.clone(), "leader", known.into());
        Self { fixture, clock, leader, served_until: 0 }
    }

    /// Lists the queue of a task and stores it, as a client does.
    async fn put(&self, task: RawTask) {
        self.fixture.broker.publish_queue(&task.options.queue_name()).await.unwrap();
        self.fixture.put([task]).await;
    }

    /// Lets time pass, and the leader do what is due meanwhile.
    async fn pass(&mut self, secs: i64) {
        for _ in 0..secs {
            self.clock.advance(Duration::from_secs(1));
            if self.now() == self.served_until {
                self.fixture.run(&format!("DEL {SERVER}")).await;
            }
            self.leader.do_all().await.unwrap();
        }
    }

    /// A server of Go names the mailbox, until it is silent.
    async fn serve(&mut self, queues: &[&str], until: i64) {
        let queues = queues.iter().map(|queue| ((*queue).to_owned(), 1)).collect();
        let info = queue_core::wire::ServerInfo { queues, ..Default::default() };
        let raw = prost::Message::encode_to_vec(&info);
        self.fixture.cmd::<()>(&[b"SET".to_vec(), SERVER.into(), raw]).await;
        // The clock of its machine is hours behind.
        self.fixture.run(&format!("ZADD asynq:servers {} {SERVER}", until - 10_000)).await;
        self.served_until = until;
    }

    fn now(&self) -> i64 {
        self.clock.now_secs()
    }

    async fn ids(&self, queue: &str) -> Vec<String> {
        self.fixture.cmd(&["LRANGE", &format!("asynq:{{{queue}}}:pending"), "0", "-1"]).await
    }

    async fn is_listed(&self, queue: &str) -> bool {
        self.fixture.cmd(&["SISMEMBER", "asynq:queues", queue]).await
    }
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

#[tokio::test]
async fn a_task_falls_back_when_no_server_that_fits_was_alive_for_its_time() {
    let mut fleet = Fleet::start().await;
    fleet.serve(&[MAILBOX], NOW + 300).await;
    fleet.put(job("ten").only("web-1").fallback(minutes(10))).await;
    fleet.put(job("waits").only("web-1")).await;
    fleet.put(job("five").only("web-1").fallback(minutes(5))).await;
    fleet.put(job("label").label("gpu").fallback(minutes(1))).await;
    fleet.pass(299).await;
    assert_eq!(fleet.ids(MAILBOX).await, ["five", "waits", "ten"], "the server is alive");
    assert_eq!(fleet.ids(QUEUE).await, ["label"]);
    // From here on it is gone; that is seen within a minute.
    fleet.pass(300).await;
    assert_eq!(fleet.ids(MAILBOX).await, ["five", "waits", "ten"]);
    fleet.pass(80).await;
    assert_eq!(fleet.ids(MAILBOX).await, ["waits", "ten"]);
    assert_eq!(fleet.ids(QUEUE).await, ["five", "label"]);
    // It was back for a moment: the time begins anew.
    fleet.serve(&[MAILBOX], fleet.now() + 61).await;
    fleet.pass(600).await;
    assert_eq!(fleet.ids(MAILBOX).await, ["waits", "ten"]);
    fleet.pass(140).await;
    assert_eq!(fleet.ids(MAILBOX).await, ["waits"]);
    assert_eq!(fleet.ids(QUEUE).await, ["ten", "five", "label"]);
    let task = fleet.fixture.inspector().task(QUEUE, "ten").await.unwrap();
    assert_eq!((task.queue.as_str(), task.state), (QUEUE, TaskState::Pending));
    fleet.pass(600).await;
    assert_eq!(fleet.ids(MAILBOX).await, ["waits"]);
}

#[tokio::test]
async fn what_is_due_or_was_in_the_hands_of_the_dead_falls_back_too() {
    let mut fleet = Fleet::start().await;
    let task = |id: &str| job(id).only("web-1").fallback(minutes(2));
    fleet.put(task("later").process_in(minutes(3))).await;
    fleet.put(task("tomorrow").process_in(minutes(24 * 60))).await;
    fleet.put(task("active")).await;
    let expires = fleet.now() + 30;
    let taken = fleet.fixture.broker.dequeue(&MAILBOX.into(), 10, &"host:1:u:1".into(), expires).await.unwrap();
    assert!(matches!(taken, Dequeued::Tasks(tasks) if tasks.len() == 1));
    fleet.pass(300).await;
    let mut ids = fleet.ids(QUEUE).await;
    ids.sort();
    assert_eq!(ids, ["active", "later"]);
    let info = fleet.fixture.inspector().task(MAILBOX, "tomorrow").await.unwrap();
    assert_eq!(info.state, TaskState::Scheduled);
}

#[tokio::test]
async fn what_waits_for_room_under_a_limit_falls_back_too() {
    let mut fleet = Fleet::start().await;
    fleet.serve(&[MAILBOX], NOW + 2).await;
    for id in ["runs", "parked"] {
        fleet.put(job(id).only("web-1").fallback(minutes(1))).await;
    }
    let broker = &fleet.fixture.broker;
    let limit = Limit::new("one", LimitKey::Type).concurrency(1);
    fleet.fixture.inspector().set_limit(MAILBOX, limit).await.unwrap();
    broker.learn_limits(MAILBOX, true);
    let Dequeued::Limited { tasks, .. } =
        broker.dequeue(&MAILBOX.into(), 10, &"host:1:u:1".into(), NOW + 3_600).await.unwrap()
    else {
        panic!("limits")
    };
    assert_eq!(tasks.len(), 1);
    fleet.pass(200).await;
    assert_eq!(fleet.ids(QUEUE).await, ["parked"]);
    let task = fleet.fixture.inspector().task(QUEUE, "parked").await.unwrap();
    assert_eq!((task.queue.as_str(), task.state), (QUEUE, TaskState::Pending));
}

/// The record of what is to be canceled names the queue that it was in.
#[tokio::test]
async fn one_that_is_to_be_canceled_for_good_is_not_given_to_others() {
    let mut fleet = Fleet::start().await;
    fleet.put(job("stop").only("web-1").fallback(minutes(1))).await;
    fleet.pass(59).await;
    let now_ms = fleet.now() * 1_000;
    fleet.fixture.broker.request_cancel(MAILBOX, "stop", "ann", now_ms).await.unwrap();
    // Whoever looks after what is canceled comes later than whoever looks after the mailbox.
    fleet.fixture.run("DEL asynq:x:duties").await;
    fleet.fixture.broker.ask_for_targets().await.unwrap();
    let moved = fleet.fixture.inspector().move_task(MAILBOX, "stop", None).await.unwrap_err();
    assert!(matches!(moved, queue_admin::Error::CancelAsked { .. }), "{moved}");
    fleet.pass(200).await;
    assert_eq!((fleet.ids(QUEUE).await, fleet.ids(MAILBOX).await), (vec![], vec!["stop".to_owned()]));
}

#[tokio::test]
async fn what_the_dead_lose_for_the_last_time_is_followed() {
    let mut fleet = Fleet::start().await;
    fleet.put(job("a").only("web-1").max_crashes(0).on_exhausted("alert").on_exhausted_queue("ops")).await;
    fleet.fixture.broker.dequeue(&MAILBOX.into(), 1, &"host:1:u:1".into(), NOW + 30).await.unwrap();
    fleet.pass(300).await;
    let info = fleet.fixture.inspector().task(MAILBOX, "a").await.unwrap();
    assert_eq!(info.state, TaskState::Archived);
    assert_eq!(fleet.ids("ops").await.len(), 1);
}

#[tokio::test]
async fn all_that_a_dead_server_had_is_taken_at_once() {
    let mut fleet = Fleet::start().await;
    fleet.fixture.broker.publish_queue(MAILBOX).await.unwrap();
    fleet.fixture.put((0..450).map(|n| job(&n.to_string()).only("web-1"))).await;
    for n in 0..5 {
        let owner = format!("host:1:u:{n}").as_str().into();
        fleet.fixture.broker.dequeue(&MAILBOX.into(), 100, &owner, NOW + 30).await.unwrap();
    }
    let active = async |fleet: &Fleet| fleet.fixture.cmd::<u32>(&["LLEN", "asynq:{q}@web-1}:active"]).await;
    assert_eq!(active(&fleet).await, 450);
    for _ in 0..100 {
        fleet.pass(1).await;
        if active(&fleet).await < 450 {
            break;
        }
    }
    fleet.pass(10).await;
    assert_eq!(active(&fleet).await, 0);
}

#[tokio::test]
async fn while_redis_was_away_nobody_could_renew_and_nothing_is_taken_before_all_could() {
    let mut fleet = Fleet::start().await;
    fleet.put(job("a").only("web-1")).await;
    fleet.pass(100).await;
    let owner = "host:1:u:1".into();
    let Dequeued::Tasks(taken) =
        fleet.fixture.broker.dequeue(&MAILBOX.into(), 10, &owner, fleet.now() + 30).await.unwrap()
    else {
        panic!("nothing was taken")
    };
    let state = async |fleet: &Fleet| fleet.fixture.inspector().task(MAILBOX, "a").await.unwrap().state;
    // Nobody looked meanwhile: the lease is over, as all are.
    fleet.clock.advance(minutes(3));
    fleet.pass(1).await;
    assert_eq!(state(&fleet).await, TaskState::Active);
    let mut connection = fleet.fixture.redis().pooled().await.unwrap();
    let [Taken::Task(delivery)] = &taken[..] else { panic!("{taken:?}") };
    let runs = [delivery.run.clone()];
    let renewed = fleet.fixture.broker.extend_lease(&mut connection, MAILBOX, &runs, fleet.now() + 30).await.unwrap();
    assert_eq!(renewed, [Verdict::Applied]);
    fleet.pass(58).await;
    assert_eq!(state(&fleet).await, TaskState::Active);
    // Then it is tried again, and may be due by now.
    fleet.pass(20).await;
    assert_ne!(state(&fleet).await, TaskState::Active);
}

#[tokio::test]
async fn one_whose_id_the_plain_queue_has_waits_and_so_do_members_of_batches() {
    let mut fleet = Fleet::start().await;
    fleet.put(job("a")).await;
    for id in ["a", "b", "flow:k3:0:1"] {
        fleet.put(job(id).only("web-1").fallback(minutes(1))).await;
    }
    fleet.fixture.run("HSET asynq:{q}@web-1}:t:b msg unreadable").await;
    fleet.pass(200).await;
    assert_eq!(fleet.ids(MAILBOX).await, ["flow:k3:0:1", "b", "a"]);
    assert_eq!(fleet.ids(QUEUE).await, ["a"]);
}

#[tokio::test]
async fn an_empty_mailbox_is_removed_after_an_hour_without_its_server_and_nothing_else() {
    let mut fleet = Fleet::start().await;
    for queue in [MAILBOX, "q}@served", "q}#gpu", "q}p9", "q"] {
        fleet.fixture.broker.publish_queue(queue).await.unwrap();
    }
    fleet.put(job("a").only("full")).await;
    fleet.fixture.run("SET asynq:{q}#gpu}:paused 1").await;
    fleet.fixture.broker.publish_queue("q}@told").await.unwrap();
    fleet.fixture.run("SADD asynq:{q}@told}:x:outcome-lists asynq:{q}@told}:x:outcomes:s").await;
    fleet.serve(&["q}@served"], NOW + 100_000).await;
    fleet.pass(3_600).await;
    assert!(fleet.is_listed(MAILBOX).await);
    fleet.pass(100).await;
    assert!(!fleet.is_listed(MAILBOX).await);
    for kept in ["q}@served", "q}#gpu", "q}p9", "q", "q}@full", "q}@told"] {
        assert!(fleet.is_listed(kept).await, "{kept}");
    }
    // A client that still took it for listed has put a task there.
    fleet.fixture.put([job("late").only("web-1")]).await;
    assert!(!fleet.is_listed(MAILBOX).await);
    fleet.pass(120).await;
    assert!(fleet.is_listed(MAILBOX).await);
}

#[tokio::test]
async fn where_there_is_no_target_there_is_no_duty() {
    let mut fleet = Fleet::start().await;
    fleet.put(job("a")).await;
    fleet.put(job("b").priority(9)).await;
    assert_eq!(fleet.fixture.broker.first_duty().await.unwrap(), None);
    fleet.put(job("c").only("web-1")).await;
    assert_eq!(fleet.fixture.broker.first_duty().await.unwrap(), Some(0));
    fleet.pass(1).await;
    assert!(fleet.fixture.broker.first_duty().await.unwrap().is_some());
    fleet.fixture.inspector().remove_queue(MAILBOX, true).await.unwrap();
    fleet.pass(70).await;
    assert_eq!(fleet.fixture.broker.first_duty().await.unwrap(), None);
}

#[tokio::test]
async fn a_long_backlog_is_looked_through_to_its_end() {
    let mut fleet = Fleet::start().await;
    let plain = (0..2_500).map(|n| RawTask::new("job").task_id(n.to_string()).queue(QUEUE).only("web-1"));
    fleet.fixture.enqueue(plain).await;
    for n in 0..250 {
        fleet.fixture.put([job(&format!("f{n}")).only("web-1").fallback(minutes(1))]).await;
    }
    fleet.pass(200).await;
    assert_eq!(fleet.ids(MAILBOX).await.len(), 2_500);
    assert_eq!(fleet.ids(QUEUE).await.len(), 250);
}

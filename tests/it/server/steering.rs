//! What operators want of servers, and what these make of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use queue_admin::{Actor, Admin, Error, Given, Heeded, Role, ServerInfo, ServerVerb};
use queue_core::registry::{ORDERS, Order, honours};
use queue_core::{Clock as _, RawTask, SystemClock, TaskState};
use queue_worker::{Event, Handle, Job, Router, Server};
use tokio::sync::Semaphore;

use crate::support::{Events, Fixture, QUEUE, eventually, job, wait_for, with};

const TENTH: Duration = Duration::from_millis(100);

fn admin(fixture: &Fixture) -> Admin {
    let actor = Actor { name: "ann".to_owned(), role: Role::Admin, via: "test", address: None };
    Admin::new(fixture.inspector(), actor)
}

fn server(fixture: &Fixture, router: Router) -> Server {
    Server::new(fixture.redis(), router).queues([(QUEUE, 2), ("other", 1)]).shutdown_timeout(TENTH)
}

async fn given(admin: &Admin, verb: ServerVerb, whom: &str, set: &Order) -> Given {
    admin.order(verb, whom, set).await.unwrap()
}

/// Gives an order, and waits until all servers have heeded it.
async fn ordered(admin: &Admin, verb: ServerVerb, whom: &str, set: &Order) -> Vec<(ServerInfo, Heeded)> {
    let given = given(admin, verb, whom, set).await;
    wait_for("all servers heed it", async || {
        let heeded = admin.inspector().heeded(&given).await.unwrap();
        heeded.iter().all(|(_, heeded)| *heeded != Heeded::NotYet).then_some(heeded)
    })
    .await
}

async fn order(admin: &Admin, verb: ServerVerb, whom: &str) -> Vec<(ServerInfo, Heeded)> {
    ordered(admin, verb, whom, &Order::default()).await
}

fn applied(heeded: &[(ServerInfo, Heeded)]) -> &ServerInfo {
    let [(server, Heeded::Applied { refused })] = heeded else { panic!("{heeded:?}") };
    assert!(refused.is_empty(), "{refused:?}");
    server
}

#[tokio::test]
async fn an_order_by_name_stays_also_after_one_that_was_taken_back() {
    let fixture = Fixture::start().await;
    let server = server(&fixture, Router::new(())).name("web-1").start().await.unwrap();
    let admin = admin(&fixture);
    let listed = async || !admin.inspector().servers().await.unwrap().is_empty();
    crate::support::eventually("it is listed", listed).await;
    for verb in [ServerVerb::Quiet, ServerVerb::Reset, ServerVerb::Quiet] {
        order(&admin, verb, "web-1").await;
    }
    assert_eq!(fixture.cmd::<i64>(&["TTL", "asynq:x:want-name:web-1"]).await, -1);
    server.shutdown().await;
}

fn slots(concurrency: u32) -> Order {
    Order { concurrency: Some(concurrency), ..Order::default() }
}

fn weights(weights: &[(&str, u32)]) -> Order {
    Order { queues: weights.iter().map(|(queue, weight)| ((*queue).to_owned(), *weight)).collect(), ..Order::default() }
}

/// Handlers that end when they are let, and how many of them run.
#[derive(Debug, Clone)]
struct Gate {
    started: Events,
    door: Arc<Semaphore>,
    running: Arc<AtomicUsize>,
}

impl Gate {
    fn new() -> Self {
        Self { started: Events::default(), door: Arc::new(Semaphore::new(0)), running: Arc::default() }
    }

    fn router(&self) -> Router {
        let work = async |gate: Self, job: Job| {
            gate.running.fetch_add(1, Ordering::SeqCst);
            gate.started.tell(job.id());
            gate.door.acquire().await.unwrap().forget();
            gate.running.fetch_sub(1, Ordering::SeqCst);
        };
        Router::new(()).route("job", with(self, work))
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    async fn run(&self, count: usize) {
        eventually(format!("{count} run"), async || self.running() == count).await;
    }
}

fn numbered(queue: &str, count: usize) -> impl Iterator<Item = RawTask> {
    (0..count).map(move |number| job(&format!("{queue}{number}")).queue(queue))
}

async fn pending(fixture: &Fixture, queue: &str) -> usize {
    fixture.cmd(&["LLEN", &format!("asynq:{{{queue}}}:pending")]).await
}

async fn end(servers: impl IntoIterator<Item = Handle>) {
    for server in servers {
        server.abort().await;
    }
}

#[tokio::test]
async fn a_server_says_what_it_is_and_takes_that_back_when_it_ends() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    let started = server(&fixture, gate.router()).name("web-1").label("gpu").label("eu").start().await.unwrap();
    let admin = admin(&fixture);
    let look = async || admin.inspector().find_servers("web-1").await.unwrap().0.remove(0).entry.unwrap();
    let entry = look().await;
    assert_eq!(entry.labels, ["eu", "gpu"].map(str::to_owned).into());
    assert!(honours(Some(&entry), ORDERS) && entry.prefixes.contains("job"), "{entry:?}");
    let keys: Vec<String> = fixture.cmd(&["KEYS", "asynq:x:servers:*"]).await;
    assert!(fixture.cmd::<i64>(&["TTL", &keys[0]]).await > 80_000);
    started.abort().await;
    assert_eq!(fixture.keyspace().await.to_string(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_become_fewer_and_more_while_tasks_run_and_none_is_lost_or_put_back() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    fixture.enqueue(numbered(QUEUE, 400)).await;
    let started = server(&fixture, gate.router()).name("web-1").concurrency(50).start().await.unwrap();
    gate.run(50).await;
    let admin = admin(&fixture);
    let heeded = ordered(&admin, ServerVerb::Set, "web-1", &slots(5)).await;
    assert_eq!(applied(&heeded).concurrency, 5);
    assert_eq!(gate.running(), 50, "those that run go on");
    gate.door.add_permits(50);
    gate.run(5).await;
    for _ in 0..100 {
        gate.door.add_permits(1);
        tokio::task::yield_now().await;
        assert!(gate.running() <= 5, "{} run", gate.running());
    }
    let heeded = ordered(&admin, ServerVerb::Set, "web-1", &slots(50)).await;
    assert_eq!(applied(&heeded).concurrency, 50);
    gate.run(50).await;
    gate.door.add_permits(400);
    let mut started_ids = gate.started.wait(400).await;
    eventually("all are worked", async || fixture.count("processed").await == 400).await;
    started.shutdown().await;
    started_ids.sort_unstable();
    started_ids.dedup();
    assert_eq!((started_ids.len(), gate.started.count()), (400, 400), "each ran once");
}

/// It holds all slots, waiting for tasks.
#[tokio::test]
async fn an_idle_server_that_was_made_smaller_takes_no_more_than_it_should() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    let started = server(&fixture, gate.router()).name("web-1").concurrency(50).start().await.unwrap();
    let admin = admin(&fixture);
    fixture.enqueue([job("first")]).await;
    gate.run(1).await;
    gate.door.add_permits(1);
    gate.run(0).await;
    ordered(&admin, ServerVerb::Set, "web-1", &slots(3)).await;
    fixture.enqueue(numbered(QUEUE, 20)).await;
    gate.run(3).await;
    assert_eq!((pending(&fixture, QUEUE).await, started.active()), (17, 3));
    end([started]).await;
}

#[tokio::test]
async fn a_quiet_server_takes_nothing_until_it_resumes_and_keeps_what_it_has() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    let started = server(&fixture, gate.router()).name("web-1").concurrency(9).start().await.unwrap();
    fixture.enqueue([job("first")]).await;
    gate.run(1).await;
    let admin = admin(&fixture);
    let heeded = order(&admin, ServerVerb::Quiet, "web-1").await;
    assert_eq!(applied(&heeded).status, "stopped", "asynq's word for it");
    // By which a task leaves the active ones.
    let removed = async || {
        let stats: String = fixture.cmd(&["INFO", "commandstats"]).await;
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_lrem:calls="));
        line.and_then(|line| line.split(',').next()).map(str::to_owned)
    };
    let before = removed().await;
    fixture.enqueue(numbered(QUEUE, 3)).await;
    // It is woken, and looks for work if it takes some.
    let heeded = ordered(&admin, ServerVerb::Set, "web-1", &slots(8)).await;
    assert_eq!((applied(&heeded).concurrency, &*heeded[0].0.status), (8, "stopped"), "orders add up");
    assert_eq!((pending(&fixture, QUEUE).await, gate.running()), (3, 1));
    assert_eq!(removed().await, before, "nothing was taken and requeued either");
    let heeded = order(&admin, ServerVerb::Resume, &started.server_id()[..8]).await;
    assert_eq!(applied(&heeded).status, "active", "the later order counts, though it was given by id");
    gate.run(4).await;
    end([started]).await;
}

#[tokio::test]
async fn orders_by_name_outlive_servers_and_those_by_id_outlive_their_keys() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    let start = async || server(&fixture, gate.router()).name("web-1").concurrency(9).start().await.unwrap();
    let (first, second) = (start().await, start().await);
    let admin = admin(&fixture);
    let heeded = order(&admin, ServerVerb::Quiet, "web-1").await;
    assert_eq!(heeded.len(), 2, "all of the name");
    let heeded = ordered(&admin, ServerVerb::Set, first.server_id(), &slots(3)).await;
    assert_eq!(applied(&heeded).concurrency, 3);
    let key: Vec<String> = fixture.cmd(&["KEYS", "asynq:x:want:*"]).await;
    let ttl: i64 = fixture.cmd(&["TTL", &key[0]]).await;
    assert!((3_000..=3_600).contains(&ttl), "{ttl}");
    fixture.run(&format!("DEL {}", key[0])).await;
    end([second]).await;
    let third = start().await;
    let heeded = order(&admin, ServerVerb::Quiet, "web-1").await;
    let seen: BTreeMap<&str, (i32, &str)> =
        heeded.iter().map(|(server, _)| (&*server.id, (server.concurrency, &*server.status))).collect();
    let expected = [(first.server_id(), (3, "stopped")), (third.server_id(), (9, "stopped"))];
    assert_eq!(seen, expected.into());
    fixture.enqueue([job("a")]).await;
    let heeded = order(&admin, ServerVerb::Reset, "web-1").await;
    assert!(heeded.iter().all(|(server, _)| server.status == "active"), "{heeded:?}");
    gate.run(1).await;
    end([first, third]).await;
    assert!(fixture.cmd::<i64>(&["TTL", "asynq:x:want-name:web-1"]).await > 0, "what was taken back is forgotten");
}

#[tokio::test]
async fn a_second_order_does_not_take_back_one_that_redis_has_forgotten() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    let started = server(&fixture, gate.router()).concurrency(9).start().await.unwrap();
    let admin = admin(&fixture);
    let forget = async || {
        let keys: Vec<String> = fixture.cmd(&["KEYS", "asynq:x:want:*"]).await;
        fixture.run(&format!("DEL {}", keys[0])).await;
    };
    eventually("it is listed", async || !admin.inspector().servers().await.unwrap().is_empty()).await;
    order(&admin, ServerVerb::Quiet, started.server_id()).await;
    forget().await;
    let heeded = ordered(&admin, ServerVerb::Set, started.server_id(), &slots(3)).await;
    assert_eq!((applied(&heeded).concurrency, &*applied(&heeded).status), (3, "stopped"));
    forget().await;
    let heeded = order(&admin, ServerVerb::Reset, started.server_id()).await;
    assert_eq!((applied(&heeded).concurrency, &*applied(&heeded).status), (9, "active"));
    end([started]).await;
}

#[tokio::test]
async fn of_orders_at_one_moment_each_is_heeded() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    let started = server(&fixture, gate.router()).name("web-1").start().await.unwrap();
    let admin = admin(&fixture);
    eventually("it is listed", async || !admin.inspector().servers().await.unwrap().is_empty()).await;
    let orders = (1..9).map(async |tasks| ordered(&admin, ServerVerb::Set, "web-1", &slots(tasks)).await);
    for heeded in futures_util::future::join_all(orders).await {
        applied(&heeded);
    }
    end([started]).await;
}

#[tokio::test]
async fn a_key_of_another_type_takes_away_orders_by_name_and_nothing_else() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    fixture.run("LPUSH asynq:x:want-name:web-1 x").await;
    let started = server(&fixture, gate.router()).name("web-1").start().await.unwrap();
    let admin = admin(&fixture);
    eventually("it is listed", async || !admin.inspector().servers().await.unwrap().is_empty()).await;
    let heeded = ordered(&admin, ServerVerb::Set, started.server_id(), &slots(3)).await;
    let Heeded::Applied { refused } = &heeded[0].1 else { panic!("{heeded:?}") };
    assert_eq!(refused[..], ["the key of the orders by name: it cannot be read"]);
    assert_eq!(heeded[0].0.concurrency, 3);
    let heeded = order(&admin, ServerVerb::Reset, "web-1").await;
    assert_eq!(applied(&heeded).concurrency, 3, "the reset has mended the key");
    end([started]).await;
}

#[tokio::test]
async fn a_server_that_starts_under_the_order_to_be_quiet_takes_nothing() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    fixture.run("HSET asynq:x:want-name:web-1 revision 1 by ann").await;
    let _: i64 = fixture.cmd(&["HSET", "asynq:x:want-name:web-1", "mode", "7 quiet"]).await;
    fixture.enqueue([job("a")]).await;
    let started = server(&fixture, gate.router()).name("web-1").start().await.unwrap();
    let heeded = ordered(&admin(&fixture), ServerVerb::Set, "web-1", &slots(8)).await;
    assert_eq!(applied(&heeded).status, "stopped");
    assert_eq!((pending(&fixture, QUEUE).await, gate.running()), (1, 0));
    end([started]).await;
}

#[tokio::test]
async fn a_server_ends_when_it_is_told_to_stop_and_its_like_may_start() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    let started = server(&fixture, gate.router()).name("web-1").start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    gate.run(1).await;
    let admin = admin(&fixture);
    let given = given(&admin, ServerVerb::Stop, "web-1", &Order::default()).await;
    started.ended().await;
    assert_eq!(admin.inspector().heeded(&given).await.unwrap()[0].1, Heeded::Ended);
    assert_eq!(fixture.in_state("a", TaskState::Pending).await.retried, 0, "requeued, as after TERM");
    let next = server(&fixture, gate.router()).name("web-1").start().await.unwrap();
    gate.run(2).await;
    end([next]).await;
}

#[tokio::test]
async fn a_name_does_not_stop_whoever_starts_under_it() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    let _: i64 = fixture.cmd(&["HSET", "asynq:x:want-name:web-1", "mode", "7 stop"]).await;
    let started = server(&fixture, gate.router()).name("web-1").start().await.unwrap();
    let heeded = ordered(&admin(&fixture), ServerVerb::Set, "web-1", &slots(8)).await;
    let refused = &applied(&heeded).entry.as_ref().unwrap().refused;
    assert!(refused[0].starts_with("stop: not by name"), "{refused:?}");
    fixture.enqueue([job("a")]).await;
    gate.run(1).await;
    end([started]).await;
}

#[tokio::test]
async fn weights_change_and_a_queue_of_weight_zero_is_left_alone() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    let started = server(&fixture, gate.router()).name("web-1").concurrency(9).start().await.unwrap();
    let admin = admin(&fixture);
    let set = weights(&[("other", 0), (QUEUE, 7)]);
    let heeded = ordered(&admin, ServerVerb::Set, "web-1", &set).await;
    assert_eq!(applied(&heeded).queues, BTreeMap::from([(QUEUE.to_owned(), 7)]));
    fixture.enqueue(numbered("other", 3).chain(numbered(QUEUE, 2))).await;
    gate.run(2).await;
    assert_eq!(pending(&fixture, "other").await, 3);
    let set = weights(&[("other", 1), ("other}p9", 1)]);
    let heeded = ordered(&admin, ServerVerb::Set, "web-1", &set).await;
    let Heeded::Applied { refused } = &heeded[0].1 else { panic!("{heeded:?}") };
    assert_eq!(refused[..], ["queue other}p9: it is served with the queue that it belongs to, and by its weight"]);
    gate.run(5).await;
    let set = weights(&[("other", 0), (QUEUE, 0)]);
    let heeded = ordered(&admin, ServerVerb::Set, "web-1", &set).await;
    let Heeded::Applied { refused } = &heeded[0].1 else { panic!("{heeded:?}") };
    assert!(refused.iter().any(|refused| refused.starts_with("weights: all are zero")), "{refused:?}");
    assert_eq!(heeded[0].0.queues.len(), 2);
    end([started]).await;
}

#[tokio::test]
async fn what_an_earlier_order_was_refused_does_not_count_against_the_next() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    let started = server(&fixture, gate.router()).name("web-1").start().await.unwrap();
    let admin = admin(&fixture);
    let zero = weights(&[("other", 0), (QUEUE, 0)]);
    for refused_one in [weights(&[("other}p9", 1)]), zero] {
        let heeded = ordered(&admin, ServerVerb::Set, "web-1", &refused_one).await;
        let Heeded::Applied { refused } = &heeded[0].1 else { panic!("{heeded:?}") };
        assert_eq!(refused.len(), 1, "{refused:?}");
    }
    let heeded = ordered(&admin, ServerVerb::Set, "web-1", &slots(3)).await;
    assert_eq!(applied(&heeded).concurrency, 3);
    assert_eq!(applied(&heeded).entry.as_ref().unwrap().refused.len(), 2, "they stand until they are taken back");
    let heeded = ordered(&admin, ServerVerb::Set, "web-1", &weights(&[("mars", 4)])).await;
    assert_eq!(applied(&heeded).queues["mars"], 4);
    let heeded = ordered(&admin, ServerVerb::Set, "web-1", &weights(&[("other}p9", 1)])).await;
    let Heeded::Applied { refused } = &heeded[0].1 else { panic!("{heeded:?}") };
    assert_eq!(refused.len(), 1, "asked for again, it is refused again: {refused:?}");
    end([started]).await;
}

#[tokio::test]
async fn a_server_serves_a_queue_that_it_was_not_started_for_until_the_order_ends() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    let started = server(&fixture, gate.router()).name("web-1").concurrency(9).start().await.unwrap();
    fixture.enqueue(numbered("mars", 2)).await;
    let admin = admin(&fixture);
    let heeded = ordered(&admin, ServerVerb::Set, "web-1", &weights(&[("mars", 4)])).await;
    let queues = [(QUEUE, 2), ("other", 1), ("mars", 4)].map(|(queue, weight)| (queue.to_owned(), weight));
    assert_eq!(applied(&heeded).queues, BTreeMap::from(queues));
    gate.run(2).await;
    // What is due later is looked after as well.
    fixture.enqueue([job("later").queue("mars").process_in(Duration::from_millis(10))]).await;
    gate.run(3).await;
    let heeded = order(&admin, ServerVerb::Reset, "web-1").await;
    assert!(!applied(&heeded).queues.contains_key("mars"));
    let left = (5..8).map(|number| job(&format!("left{number}")).queue("mars"));
    fixture.enqueue(left.chain(numbered(QUEUE, 1))).await;
    gate.run(4).await;
    assert_eq!(pending(&fixture, "mars").await, 3);
    ordered(&admin, ServerVerb::Set, "web-1", &weights(&[("mars", 1)])).await;
    gate.run(7).await;
    end([started]).await;
    // One that starts under the name goes by the order, too.
    let gate = Gate::new();
    let started = server(&fixture, gate.router()).name("web-1").concurrency(9).start().await.unwrap();
    gate.run(7).await;
    end([started]).await;
}

#[tokio::test]
async fn what_a_signal_made_quiet_no_order_resumes() {
    let (fixture, gate) = (Fixture::start().await, Gate::new());
    let started = server(&fixture, gate.router()).name("web-1").start().await.unwrap();
    started.quiet();
    let heeded = order(&admin(&fixture), ServerVerb::Resume, "web-1").await;
    let Heeded::Applied { refused } = &heeded[0].1 else { panic!("{heeded:?}") };
    assert!(refused[0].starts_with("resume: a signal"), "{refused:?}");
    end([started]).await;
}

#[tokio::test]
async fn orders_that_cannot_be_given_write_nothing() {
    let fixture = Fixture::start().await;
    let goes = queue_core::wire::ServerInfo {
        host: "go".into(),
        pid: 7,
        server_id: "0123456789".into(),
        ..Default::default()
    };
    let mut connection = fixture.redis().pooled().await.unwrap();
    fixture.broker.write_server_state(&mut connection, &goes, &[], SystemClock.now_secs()).await.unwrap();
    let admin = admin(&fixture);
    for whom in ["go:7", "01234567", "go:7:0123456789"] {
        let error = admin.order(ServerVerb::Quiet, whom, &Order::default()).await.unwrap_err();
        assert!(matches!(error, Error::TakesNoOrders { pid: 7, .. }), "{whom}: {error}");
    }
    for (verb, whom) in [(ServerVerb::Quiet, "go"), (ServerVerb::Stop, "0123"), (ServerVerb::Reset, "web-1")] {
        let error = admin.order(verb, whom, &Order::default()).await.unwrap_err();
        assert!(matches!(error, Error::ServerNotFound(_)), "{whom}: {error}");
    }
    let operator = Actor { name: "bob".to_owned(), role: Role::Operator, via: "test", address: None };
    let operator = Admin::new(admin.inspector().clone(), operator);
    let error = operator.order(ServerVerb::Stop, "go:7", &Order::default()).await.unwrap_err();
    assert!(matches!(error, Error::Forbidden { .. }), "{error}");
    assert!(fixture.cmd::<Vec<String>>(&["KEYS", "asynq:x:want*"]).await.is_empty());
}

/// Takes are under way at any of these moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_ordered_while_tasks_run_each_of_them_runs_once() {
    const TASKS: usize = 3_000;
    let (fixture, events) = (Fixture::start().await, Events::default());
    let work = with(&events, async |events: Events, job: Job| {
        events.tell(job.id());
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..3))).await;
    });
    let start = async |name: &str| {
        let router = Router::new(()).route("job", work.clone());
        server(&fixture, router).name(name).concurrency(20).start().await.unwrap()
    };
    let servers = [start("a").await, start("b").await];
    let admin = admin(&fixture);
    fixture.enqueue(numbered(QUEUE, TASKS / 2).chain(numbered("other", TASKS / 2))).await;
    for _ in 0..60 {
        let whom = if fastrand::bool() { "a" } else { "b" };
        match fastrand::u8(0..4) {
            0 => drop(given(&admin, ServerVerb::Quiet, whom, &Order::default()).await),
            1 => drop(given(&admin, ServerVerb::Resume, whom, &Order::default()).await),
            2 => drop(given(&admin, ServerVerb::Set, whom, &slots(fastrand::u32(1..60))).await),
            _ => drop(given(&admin, ServerVerb::Set, whom, &weights(&[("other", fastrand::u32(0..3))])).await),
        }
    }
    for whom in ["a", "b"] {
        let heeded = order(&admin, ServerVerb::Reset, whom).await;
        assert_eq!((applied(&heeded).concurrency, &*applied(&heeded).status), (20, "active"));
    }
    events.wait(TASKS).await;
    for queue in [QUEUE, "other"] {
        let key = format!("asynq:{{{queue}}}:processed");
        eventually("all are done", async || fixture.cmd::<usize>(&["GET", &key]).await == TASKS / 2).await;
    }
    for server in servers {
        server.shutdown().await;
    }
    let mut started = events.all();
    started.sort_unstable();
    started.dedup();
    assert_eq!((started.len(), events.count()), (TASKS, TASKS), "none twice");
}

#[tokio::test]
async fn a_server_that_adapts_stays_within_its_bounds_and_goes_by_orders_while_there_are_any() {
    let (fixture, told) = (Fixture::start().await, Events::<usize>::default());
    let router = Router::new(()).route("job", async |_: Job| tokio::time::sleep(TENTH / 5).await);
    let tell = told.clone();
    let started = server(&fixture, router).name("web-1").adaptive_concurrency(2..=4).observe(move |event| {
        if let Event::ServerResized { concurrency, .. } = event {
            tell.tell(*concurrency);
        }
    });
    let started = started.start().await.unwrap();
    let (admin, client) = (admin(&fixture), fixture.client());
    let shown = admin.inspector().find_servers("web-1").await.unwrap().0.remove(0).concurrency;
    assert_eq!(shown, 2, "it begins with the lower bound");
    let feed = tokio::spawn(async move {
        for _ in 0..10_000 {
            drop(client.enqueue_many((0..100).map(|_| RawTask::new("job").queue(QUEUE))).await);
            tokio::time::sleep(2 * TENTH).await;
        }
    });
    eventually("it grows to the upper bound", async || told.all().contains(&4)).await;
    let heeded = ordered(&admin, ServerVerb::Set, "web-1", &slots(1)).await;
    assert_eq!(applied(&heeded).concurrency, 1, "an order is not bound by the bounds");
    let heeded = order(&admin, ServerVerb::Reset, "web-1").await;
    assert!((2..=4).contains(&applied(&heeded).concurrency), "{heeded:?}");
    feed.abort();
    end([started]).await;
    assert!(told.all().iter().all(|told| (1..=4).contains(told)), "{:?}", told.all());
}

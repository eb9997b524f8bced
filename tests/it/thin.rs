//! Large tasks over a way to Redis that carries little: all of them are worked, and reports do not wait for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_admin::{Direction, Filter, Inspector, Page};
use queue_core::{Clock as _, RawTask, RetryPolicy, SystemClock, TaskState};
use queue_redis::{
    BatchState, Client, Fault, Parents, Redis, RedisOptions,
    broker::{Dequeued, MAX_TAKE_BYTES, Taken},
};
use queue_worker::{Failure, FromJob as _, Group, Job, Output, Router, Server, Unhandled};

use crate::support::{Events, Fixture, NOW, PATIENCE, Proxy, QUEUE, eventually, job, with};

fn large(id: &str, bytes: usize) -> RawTask {
    job(id).payload(vec![b'x'; bytes])
}

fn ids(taken: &[Taken]) -> Vec<&str> {
    let tasks = taken.iter().map(|taken| match taken {
        Taken::Task(delivery) => &*delivery.run.id,
        other => panic!("{other:?}"),
    });
    tasks.collect()
}

#[tokio::test]
async fn a_take_ends_with_the_task_that_fills_its_answer() {
    let fixture = Fixture::start().await;
    let half = MAX_TAKE_BYTES / 2;
    fixture.put([large("a", half), large("b", half), large("c", 10), large("d", 3 * MAX_TAKE_BYTES), job("e")]).await;
    let mut rest = vec![vec!["e"], vec!["c", "d"], vec!["a", "b"]];
    while let Some(expected) = rest.pop() {
        let pending: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
        assert_eq!(pending.len(), expected.len() + rest.iter().map(Vec::len).sum::<usize>());
        let Dequeued::Tasks(taken) = fixture.dequeue(25).await else { panic!("paused") };
        assert_eq!(ids(&taken), expected);
        assert_eq!(Taken::fill_an_answer(&taken), expected != ["e"]);
        for id in expected {
            let lease = fixture.cmd::<i64>(&["ZSCORE", "asynq:{q}:lease", id]).await;
            assert_eq!(lease, NOW + 30);
        }
    }
    let Dequeued::Tasks(taken) = fixture.dequeue(25).await else { panic!("paused") };
    assert!(taken.is_empty() && !Taken::fill_an_answer(&taken));
}

/// A handle behind a way that can be made thin, and how its calls failed.
struct Behind {
    proxy: Proxy,
    redis: Redis,
    failed: Arc<Mutex<BTreeMap<&'static str, usize>>>,
}

impl Behind {
    async fn start(fixture: &Fixture) -> Self {
        Self::start_with(fixture, Duration::from_millis(500)).await
    }

    /// The same that waits so long for an answer.
    async fn start_with(fixture: &Fixture, response_timeout: Duration) -> Self {
        let proxy = Proxy::start(fixture.socket()).await;
        let options = RedisOptions { response_timeout, ..RedisOptions::default() };
        let redis = Redis::lazy(&proxy.url(), options).unwrap();
        let failed: Arc<Mutex<BTreeMap<&'static str, usize>>> = Arc::default();
        let count = failed.clone();
        redis.on_call(move |call| {
            if call.error.is_some() {
                *count.lock().unwrap().entry(call.operation).or_default() += 1;
            }
        });
        Self { proxy, redis, failed }
    }

    fn make_thin(&self) {
        self.proxy.make_thin(1_000_000);
        self.proxy.make_thin_to_redis(1_000_000);
    }

    /// Whether a call of this script was given up.
    fn gave_up(&self, script: &str) -> bool {
        self.failed.lock().unwrap().contains_key(script)
    }
}

/// A server behind a way that carries so many bytes a second, and waits so long for an answer.
async fn serve(
    fixture: &Fixture,
    rate: u64,
    timeout: Duration,
    concurrency: usize,
    events: &Events,
) -> (Proxy, queue_worker::Handle, Arc<Mutex<BTreeMap<&'static str, usize>>>) {
    serve_with(fixture, rate, timeout, concurrency, events, |server| server).await
}

async fn serve_with(
    fixture: &Fixture,
    rate: u64,
    timeout: Duration,
    concurrency: usize,
    events: &Events,
    change: impl FnOnce(Server) -> Server,
) -> (Proxy, queue_worker::Handle, Arc<Mutex<BTreeMap<&'static str, usize>>>) {
    let Behind { proxy, redis, failed } = Behind::start_with(fixture, timeout).await;
    let work = with(events, async |events: Events, job: Job| events.tell(job.id()));
    let server = Server::new(redis, Router::new(()).route("job", work));
    let server = change(server.queues([("q", 1), ("other", 1)]).concurrency(concurrency)).start().await.unwrap();
    proxy.make_thin(rate);
    (proxy, server, failed)
}

/// Another server waits for it in vain, as this one did, and both without patience put it back for each other.
#[tokio::test]
async fn a_task_that_is_too_large_for_a_take_is_waited_for_while_another_server_has_it() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    Client::new(fixture.redis()).enqueue(large("a", 800_000)).await.unwrap();
    let (_proxy, server, _) = serve(&fixture, 1_000_000, Duration::from_millis(500), 10, &events).await;
    let is_active = async || fixture.cmd::<i64>(&["LLEN", "asynq:{q}:active"]).await == 1;
    let (broker, expires, token) = (&fixture.broker, SystemClock.now_secs() + 30, "other".into());
    let mut had = 0;
    'all: loop {
        eventually("the server has it", is_active).await;
        loop {
            match broker.dequeue(&QUEUE.into(), 1, &token, expires).await.unwrap() {
                Dequeued::Tasks(taken) if !taken.is_empty() => break,
                _ if fixture.count("processed").await == 1 => break 'all,
                _ => {}
            }
        }
        had += 1;
        tokio::time::sleep(Duration::from_millis(700)).await;
        broker.requeue_run(QUEUE, &token, expires, SystemClock.now_ns()).await.unwrap();
    }
    server.shutdown().await;
    assert_eq!(had, 1, "the second time the server was patient");
    assert_each_once(&events, 1);
}

/// They were taken one by one with the others, whatever their type; and then those that are too large not at all.
#[tokio::test]
async fn tasks_of_others_are_left_where_they_are_while_large_ones_are_taken_one_by_one() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let client = Client::new(fixture.redis());
    let mine: Vec<String> = (0..3).map(|n| format!("mine-{n}")).collect();
    let theirs: Vec<String> = (0..3).map(|n| format!("theirs-{n}")).collect();
    for (mine, theirs) in mine.iter().zip(&theirs) {
        // One of them takes a second.
        client.enqueue(large(mine, 1_000_000)).await.unwrap();
        client.enqueue(RawTask { task_type: "other".into(), ..job(theirs) }).await.unwrap();
    }
    let timeout = Duration::from_millis(500);
    let (_proxy, server, failed) =
        serve_with(&fixture, 1_000_000, timeout, 10, &events, |server| server.unhandled(Unhandled::Leave)).await;
    eventually("its own are worked", async || fixture.count("processed").await == 3).await;
    assert!(failed.lock().unwrap().contains_key("dequeue"), "a take came too late");
    server.shutdown().await;
    assert_each_once(&events, 3);
    let mut left = fixture.cmd::<Vec<String>>(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    left.reverse();
    assert_eq!(left, theirs);
}

/// Each id once, whatever their order.
fn assert_each_once(events: &Events, tasks: usize) {
    let mut ran = events.all();
    ran.sort();
    ran.dedup();
    assert_eq!((ran.len(), events.count()), (tasks, tasks), "{ran:?}");
}

/// As many as were asked for were taken, timed out and were put back, for ever.
#[tokio::test]
async fn tasks_that_do_not_fit_the_response_timeout_together_are_all_worked() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let client = Client::new(fixture.redis());
    // One of them takes a tenth of a second; all that fit in a take without a bound take two and a half.
    for n in 0..30 {
        client.enqueue(large(&n.to_string(), 300_000)).await.unwrap();
    }
    let (_proxy, server, failed) = serve(&fixture, 3_000_000, Duration::from_secs(2), 25, &events).await;
    eventually("all are worked", async || fixture.count("processed").await == 30).await;
    server.shutdown().await;
    assert_each_once(&events, 30);
    let failed = failed.lock().unwrap().clone();
    assert!(failed.is_empty(), "nothing came too late: {failed:?}");
}

#[tokio::test]
async fn a_task_that_is_larger_than_the_way_carries_within_the_response_timeout_is_worked_and_others_meanwhile() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let client = Client::new(fixture.redis());
    for concurrency in [1, 10] {
        // One of them takes a second and a half.
        for n in 0..3 {
            client.enqueue(large(&format!("{concurrency}-{n}"), 1_500_000)).await.unwrap();
        }
        let (proxy, server, failed) =
            serve(&fixture, 1_000_000, Duration::from_millis(500), concurrency, &events).await;
        let before = events.count();
        eventually("a take was too late", async || failed.lock().unwrap().contains_key("dequeue")).await;
        client.enqueue(job(&format!("{concurrency}-small")).queue("other")).await.unwrap();
        eventually("all are worked", async || events.count() == before + 4).await;
        eventually("and reported", async || fixture.cmd::<u8>(&["EXISTS", "asynq:{q}:active"]).await == 0).await;
        proxy.make_thin(0);
        server.shutdown().await;
    }
    assert_each_once(&events, 8);
    assert_eq!(fixture.count("processed").await, 6);
}

/// The last two of a queue were taken together, put back, and taken together again: in between, nothing was there that could be taken by itself.
#[tokio::test]
async fn the_last_tasks_of_a_queue_that_do_not_fit_the_response_timeout_together_are_worked_one_by_one() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let client = Client::new(fixture.redis());
    // One of them takes a third of a second.
    for id in ["a", "b"] {
        client.enqueue(large(id, 700_000)).await.unwrap();
    }
    let (_proxy, server, failed) = serve(&fixture, 2_000_000, Duration::from_millis(500), 4, &events).await;
    eventually("both are worked", async || fixture.count("processed").await == 2).await;
    server.shutdown().await;
    assert_each_once(&events, 2);
    assert!(failed.lock().unwrap().contains_key("dequeue"), "a take came too late");
}

/// Reading it was given up after one try, and the group given back, again and again.
#[tokio::test]
async fn a_group_whose_tasks_do_not_come_within_the_response_timeout_is_aggregated() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let Behind { proxy, redis, .. } = Behind::start(&fixture).await;
    let join =
        async |_: Group, tasks: Vec<RawTask>| RawTask::new("job").task_id("sum").payload(tasks.len().to_string());
    let router = Router::new(()).aggregate(join);
    let router = router.route("job", with(&events, async |events: Events, job: Job| events.tell(job.id())));
    let server = Server::new(redis, router).queues([("q", 1)]).group_grace_period(Duration::from_secs(1));
    let server = server.start().await.unwrap();
    proxy.make_thin(1_000_000);
    // It takes a second and a half.
    fixture.enqueue([large("a", 1_500_000).group("g")]).await;
    assert_eq!(events.wait(1).await, ["sum"]);
    server.shutdown().await;
}

/// It was said that the task had not ended.
#[tokio::test]
async fn whoever_waits_not_long_enough_for_a_large_result_is_told_so() {
    let fixture = Fixture::start().await;
    let behind = Behind::start(&fixture).await;
    let handle = Client::new(behind.redis.clone()).enqueue_to_wait(job("a")).await.unwrap();
    // It takes three seconds.
    behind.make_thin();
    let router = Router::new(()).route("job", async |_: Job| Output("x".repeat(3_000_000)));
    let server = fixture.server(router).start().await.unwrap();
    eventually("it is done", async || fixture.count("processed").await == 1).await;
    let error = handle.wait(Duration::from_secs(1)).await.unwrap_err();
    assert!(error.to_string().contains("it has ended, and"), "{error}");
    assert_eq!(handle.result::<String>(PATIENCE).await.unwrap().len(), 3_000_000);
    server.shutdown().await;
}

/// It was archived, although its handler had never run.
#[tokio::test]
async fn results_of_parents_that_do_not_come_cost_no_retry() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let Behind { proxy, redis, .. } = Behind::start(&fixture).await;
    let router = Router::new(()).route("make", async |_: Job| Output(1));
    let read = async |events: Events, job: Job| {
        Parents::from_job(&job, &()).await?;
        events.tell("used");
        Ok::<_, Failure>(())
    };
    let router = router.route("use", with(&events, read));
    let server = Server::new(redis, router).queues([("q", 1)]).start().await.unwrap();
    proxy.lose_answers_to(Some("$4\r\nHGET\r\n"));
    let task =
        |task_type| RawTask::new(task_type).queue("q").max_retry(0).backoff(RetryPolicy::Fixed(Duration::from_secs(1)));
    let flow = Client::new(fixture.redis()).workflow().task("a", task("make")).task("b", task("use")).after(["a"]);
    let flow = flow.start().await.unwrap();
    eventually("it has not been read", async || fixture.cmd::<i64>(&["ZCARD", "asynq:{q}:retry"]).await == 1).await;
    proxy.lose_answers_to(None);
    assert_eq!(events.wait(1).await, ["used"]);
    assert_eq!(flow.wait(PATIENCE).await.unwrap().state, BatchState::Succeeded);
    server.shutdown().await;
}

/// Each burst began with a write that had to wait, because the connection's task had done enough: this was taken for a sign of life.
#[tokio::test]
async fn a_redis_that_hangs_is_found_out_while_many_calls_begin() {
    let fixture = Fixture::start().await;
    let Behind { proxy, redis, .. } = Behind::start(&fixture).await;
    redis.ping().await.unwrap();
    proxy.swallow_everything();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        for _ in 0..300 {
            let redis = redis.clone();
            calls.spawn(async move { redis.ping().await });
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
        if calls.try_join_next().is_some_and(|call| call.unwrap().is_err()) {
            return;
        }
    }
    panic!("none was given up");
}

/// Its message goes back with the report, which was given up and sent again for ever.
#[tokio::test]
async fn a_large_task_that_fails_is_reported_and_run_again() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let behind = Behind::start(&fixture).await;
    let fail = async |events: Events, job: Job| {
        events.tell(job.id());
        if events.count() == 1 { Err(Failure::retry_in(Duration::from_secs(1), "once")) } else { Ok(()) }
    };
    let router = Router::new(()).route("job", with(&events, fail));
    let server = Server::new(behind.redis.clone(), router).queues([("q", 1)]).lease(Duration::from_secs(5));
    let server = server.start().await.unwrap();
    behind.make_thin();
    fixture.enqueue([large("a", 1_500_000)]).await;
    assert_eq!(events.wait(2).await, ["a", "a"]);
    server.shutdown().await;
    assert!(!behind.gave_up("retry"), "{:?}", behind.failed.lock().unwrap());
}

#[tokio::test]
async fn a_large_result_is_stored_and_what_is_small_need_not_wait_for_a_longer_time() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let behind = Behind::start(&fixture).await;
    let work = async |events: Events, job: Job| {
        events.tell(job.id());
        Output(if job.id() == "large" { "x".repeat(2_000_000) } else { String::new() })
    };
    let router = Router::new(()).route("job", with(&events, work));
    // While the result is on its way, the lease is renewed more than once.
    let server = Server::new(behind.redis.clone(), router).queues([("q", 1)]).lease(Duration::from_secs(5));
    let server = server.start().await.unwrap();
    behind.make_thin();
    fixture.enqueue([job("large").retention(PATIENCE)]).await;
    events.wait(1).await;
    for id in ["b", "c", "d"] {
        Client::new(behind.redis.clone()).enqueue(job(id)).await.unwrap();
    }
    eventually("all are done", async || fixture.count("processed").await == 4).await;
    server.shutdown().await;
    // A take is given up after the response timeout, whatever it waits for.
    behind.failed.lock().unwrap().remove("dequeue");
    assert_eq!(*behind.failed.lock().unwrap(), BTreeMap::new());
    let result: Vec<u8> = fixture.cmd(&["HGET", "asynq:{q}:t:large", "result"]).await;
    assert_eq!(result.len(), "\"\"".len() + 2_000_000);
}

/// While it was read again and again, nothing was recovered in any queue.
#[tokio::test]
async fn a_large_task_of_a_silent_worker_is_recovered_and_those_of_other_queues_are() {
    let fixture = Fixture::start().await;
    let behind = Behind::start(&fixture).await;
    fixture.put([large("a", 1_500_000), job("a").queue("other")]).await;
    let queues = ["q", "other"];
    for queue in queues {
        fixture.take_from(queue).await;
        fixture.run(&format!("ZADD asynq:{{{queue}}}:lease 1 a")).await;
    }
    let server = Server::new(behind.redis.clone(), Router::new(()).route("job", async |_: Job| ()));
    let server = server.queues(queues.map(|queue| (queue, 1))).start().await.unwrap();
    behind.make_thin();
    for queue in queues {
        let recovered = async || fixture.cmd::<u64>(&["ZCARD", &format!("asynq:{{{queue}}}:retry")]).await == 1;
        eventually("its task waits for another attempt", recovered).await;
    }
    server.shutdown().await;
    assert!(!behind.gave_up("list_expired") && !behind.gave_up("recover"), "{:?}", behind.failed.lock().unwrap());
}

/// It was claimed, did not come in time, and was claimed again for ever.
#[tokio::test]
async fn a_large_callback_is_enqueued() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let behind = Behind::start(&fixture).await;
    let work = with(&events, async |events: Events, job: Job| events.tell(job.task_type()));
    let router = Router::new(()).route("job", work.clone()).route("done", work);
    let server = Server::new(behind.redis.clone(), router).queues([("q", 1)]).start().await.unwrap();
    let client = Client::new(fixture.redis());
    let done = RawTask::new("done").queue("q").payload(vec![b'x'; 1_500_000]);
    let batch = client.batch().on_success(done).open().await.unwrap();
    batch.add_all([RawTask::new("job").queue("q")]).await.unwrap();
    behind.make_thin();
    batch.commit().await.unwrap();
    assert_eq!(events.wait(2).await, ["job", "done"]);
    assert_eq!(batch.wait(PATIENCE).await.unwrap().state, BatchState::Succeeded);
    server.shutdown().await;
    for script in ["flow_record", "flow_tend", "store_once"] {
        assert!(!behind.gave_up(script), "{:?}", behind.failed.lock().unwrap());
    }
}

/// A hundred of them were in memory at once.
#[tokio::test]
async fn doctor_and_filters_read_few_large_tasks_at_a_time() {
    let fixture = Fixture::start().await;
    fixture.broker.publish_queue("q").await.unwrap();
    fixture.put(["a", "b", "c"].map(|id| large(id, 3_000_000))).await;
    // The last one that is met.
    fixture.run("HSET asynq:{q}:t:a state retry").await;
    let redis = fixture.another_redis();
    let reads: Arc<Mutex<usize>> = Arc::default();
    redis.on_call({
        let reads = reads.clone();
        move |call| *reads.lock().unwrap() += usize::from(call.operation == "read_tasks")
    });
    let inspector = Inspector::new(redis);
    let mut examination = inspector.doctor().examine();
    let mut found = Vec::new();
    while let Some(findings) = examination.next().await.unwrap() {
        found.extend(findings);
    }
    let found = found.iter().filter(|found| found.subject == "a").map(|found| found.fault);
    assert_eq!(found.collect::<Vec<_>>(), [Fault::WrongState]);
    assert_eq!(std::mem::take(&mut *reads.lock().unwrap()), 2, "two are more than four megabytes");
    assert_eq!(inspector.count("q", &Filter::new().task_type("job")).await.unwrap(), 3);
    assert_eq!(*reads.lock().unwrap(), 2);
}

/// 200 tasks of eight megabytes were gigabytes, in Redis and here.
#[tokio::test]
async fn lists_and_exports_hand_over_large_tasks_as_they_are_read() {
    let fixture = Fixture::start().await;
    fixture.broker.publish_queue("q").await.unwrap();
    let ids = ["a", "b", "c", "d"];
    fixture.put(ids.map(|id| large(id, 3_000_000))).await;
    let redis = fixture.another_redis();
    let reads: Arc<Mutex<usize>> = Arc::default();
    redis.on_call({
        let reads = reads.clone();
        move |call| *reads.lock().unwrap() += usize::from(call.operation == "reading tasks")
    });
    let inspector = Inspector::new(redis);
    let (page, filter) = (Page::default(), Filter::new().task_type("job"));
    let so_far = |_| *reads.lock().unwrap();
    assert_eq!(inspector.tasks_as("q", TaskState::Pending, page, so_far).await.unwrap(), [1, 2, 3, 4]);
    assert_eq!(inspector.find_as("q", &filter, page, so_far).await.unwrap(), [5, 6, 7, 8]);
    let list = inspector.list_as("q", &filter, Direction::Oldest, None, 9, 9, so_far);
    assert_eq!(list.await.unwrap().tasks, [9, 10, 11, 12]);
    let mut reader = inspector.reader("q", false);
    for id in ids {
        let read = reader.next().await.unwrap();
        assert_eq!(read.iter().map(|task| &task.id[..]).collect::<Vec<_>>(), [id]);
    }
    assert!(reader.next().await.unwrap().is_empty());
    assert_eq!(*reads.lock().unwrap(), 16);
    // Of small ones, one answer is enough.
    fixture.put((0..60).map(|n| large(&n.to_string(), 10))).await;
    let tail = Page { skip: 4, size: 200 };
    assert_eq!(inspector.tasks_as("q", TaskState::Pending, tail, so_far).await.unwrap(), [17; 60]);
}

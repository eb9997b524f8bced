use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use queue_core::wire::{ServerInfo, Timestamp, WorkerInfo};
use queue_core::{Clock as _, SystemClock, TaskMessage, TaskState};
use queue_redis::{
    Listener, Redis, Semaphore,
    broker::{Broker, Completion, Delivery, Dequeued, GroupRules, Matching, Taken},
};
use queue_worker::{Job, Router, Server};

use crate::support::{DEADLINE, Events, Fixture, NOW, NOW_NS, QUEUE, READY, RULES, job, report, with};

const HOUR: Duration = Duration::from_secs(3_600);

pub(super) async fn play(fixture: &Fixture, redis: &Redis) {
    let broker = Broker::new(redis.clone());
    redis.ping().await.unwrap();
    listens(redis).await;
    takes(fixture, &broker).await;
    reports(fixture, &broker).await;
    maintains(fixture, &broker).await;
    aggregates(fixture, &broker).await;
    tells_of_itself(&broker).await;
    let mail = Semaphore::new(redis.clone(), "mail", 1);
    let until = UNIX_EPOCH + Duration::from_secs(u64::try_from(NOW).unwrap());
    let permit = mail.acquire("a", until).await.unwrap().expect("a token is free");
    assert!(mail.acquire("b", until).await.unwrap().is_none());
    assert_eq!(mail.held().await.unwrap(), 1);
    assert!(permit.release().await.unwrap());
    serves(fixture, redis).await;
}

async fn listens(redis: &Redis) {
    let listener = Listener::connect(redis).await.unwrap();
    let mut watch = listener.watch().expect("it has client tracking");
    watch.have_work(&[QUEUE]).await.unwrap();
    watch.waiting(QUEUE, &[(0, 99)]).await.unwrap();
    watch.next_due(&[(QUEUE, TaskState::Retry)]).await.unwrap();
    watch.groups(QUEUE).await.unwrap();
}

async fn take(broker: &Broker, count: usize, token: &str) -> Vec<Delivery> {
    let taken = broker.dequeue(&QUEUE.into(), count, &token.into(), NOW + 30).await.unwrap();
    let Dequeued::Tasks(tasks) = taken else { panic!("{taken:?}") };
    let deliveries = tasks.into_iter().filter_map(|taken| match taken {
        Taken::Task(delivery) => Some(delivery),
        _ => None,
    });
    deliveries.collect()
}

/// One task, and some; and ids without a task among them.
async fn takes(fixture: &Fixture, broker: &Broker) {
    fixture.put([job("a")]).await;
    fixture.run("RPUSH asynq:{q}:pending ghost").await;
    assert_eq!(take(broker, 1, "r0").await.len(), 0);
    assert_eq!(take(broker, 1, "r1").await.len(), 1);
    fixture.put(["b", "c", "d"].map(job)).await;
    fixture.run("RPUSH asynq:{q}:pending ghost").await;
    assert_eq!(take(broker, 2, "r2").await.len(), 1);
    let matching = Matching { types: vec!["job".into()], ids: vec!["d".into()], ..Matching::default() };
    broker.dequeue_matching(&QUEUE.into(), 1, &"r3".into(), NOW + 30, &matching).await.unwrap();
    assert_eq!(broker.requeue_run(QUEUE, "r2", NOW + 30, NOW_NS).await.unwrap(), 1);
}

async fn reports(fixture: &Fixture, broker: &Broker) {
    fixture.run("DEL asynq:{q}:pending asynq:{q}:active asynq:{q}:lease").await;
    fixture.run("SET asynq:{q}:processed 9223372036854775807").await;
    let ids = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
    fixture.put(ids.map(|id| job(id).payload(id).unique(HOUR).retention(HOUR))).await;
    let tasks = take(broker, 9, "r4").await;
    let [one, two, three, four, five, six, seven, ..] = &tasks[..] else { panic!("{tasks:?}") };
    broker.write_result(&one.run, b"half").await.unwrap();
    let mut connection = broker.redis().pooled().await.unwrap();
    broker.extend_lease(&mut connection, QUEUE, &[one.run.clone(), two.run.clone()], NOW + 40).await.unwrap();
    drop(connection);
    broker.done(QUEUE, &[report(one)], NOW).await.unwrap();
    broker.done(QUEUE, &[report(two), report(three)], NOW).await.unwrap();
    let complete = |task: &Delivery| Completion {
        report: report(task),
        message: TaskMessage { completed_at: NOW, ..task.message.clone() },
        expires_at: NOW + 60,
        result: Some("r".into()),
    };
    broker.complete(QUEUE, &[complete(four)], NOW).await.unwrap();
    let failed = |task: &Delivery| TaskMessage { retried: 1, ..task.message.clone() }.to_bytes();
    broker.retry(&report(five), &failed(five), NOW + 60, true, NOW).await.unwrap();
    broker.archive(&report(six), &failed(six), NOW).await.unwrap();
    broker.requeue(&report(seven), NOW_NS).await.unwrap();
}

async fn maintains(fixture: &Fixture, broker: &Broker) {
    broker.next_due(&[(QUEUE, TaskState::Scheduled)]).await.unwrap();
    fixture.put([job("due").process_in(HOUR), job("joins").process_in(HOUR).group("late")]).await;
    fixture.run("ZADD asynq:{q}:scheduled 1 ghost").await;
    broker.forward(QUEUE, TaskState::Scheduled, (NOW + 3_600) * 1_000_000_000, 0).await.unwrap();
    fixture.run("ZADD asynq:{q}:lease 1 ghost").await;
    fixture.run("LPUSH asynq:{q}:active ghost").await;
    broker.list_expired(QUEUE, NOW + 3_600, 0).await.unwrap();
    broker.delete_expired_completed(QUEUE, NOW + 3_600).await.unwrap();
    broker.trim_archived(QUEUE, NOW + 100 * 86_400).await.unwrap();
}

async fn aggregates(fixture: &Fixture, broker: &Broker) {
    fixture.put_many(0..12).await;
    broker.publish_queue(QUEUE).await.unwrap();
    assert!(broker.has_groups(QUEUE).await.unwrap());
    let few = GroupRules { max_size: 5, ..RULES };
    broker.list_ready_groups(QUEUE, few, READY).await.unwrap();
    let stage =
        async |id: &str, rules| broker.stage(&QUEUE.into(), "g", id, rules, READY, DEADLINE).await.unwrap().unwrap();
    let mut set = stage("s1", few).await;
    let members = broker.read_set(&mut set).await.unwrap().unwrap();
    broker.extend_set(&set, DEADLINE + 60).await.unwrap();
    let sum = fixture.compose(job("sum").group("h").unique(HOUR));
    broker.aggregate(&set, &members, Some(&sum), NOW_NS).await.unwrap();
    broker.delete_aggregated(QUEUE).await.unwrap();
    let mut set = stage("s2", few).await;
    let members = broker.read_set(&mut set).await.unwrap().unwrap();
    let archived: Vec<_> = members.iter().map(|member| (member, None)).collect();
    broker.archive_staged(&mut set, &archived[..1], NOW).await.unwrap();
    stage("s3", RULES).await;
    assert_eq!(broker.aggregation_sets(QUEUE).await.unwrap().len(), 2);
    assert!(broker.reclaim(QUEUE, "g", "s3", Some(DEADLINE)).await.unwrap() > 0);
    fixture.run("SREM asynq:{q}:groups g").await;
    broker.list_groups_again(QUEUE, &["g".to_owned()]).await.unwrap();
}

async fn tells_of_itself(broker: &Broker) {
    broker.request_cancel(QUEUE, "gone", "ann", NOW).await.unwrap();
    assert!(!broker.cancel_requests().await.unwrap().is_empty());
    let duties = queue_redis::duties::standard(broker, std::sync::Arc::new(SystemClock));
    queue_redis::leader::Leader::new(broker.clone(), std::sync::Arc::new(SystemClock), "uuid", duties.into())
        .do_all()
        .await
        .unwrap();
    assert!(broker.lead("uuid", HOUR).await.unwrap());
    broker.ask_for_duty("duty", "subject", NOW).await.unwrap();
    assert_eq!(broker.first_duty().await.unwrap(), Some(NOW));
    let held = broker.take_duties(NOW, NOW + 10, 1).await.unwrap();
    assert!(broker.put_off_duty(&held[0], Some(NOW)).await.unwrap());
    let time = Some(Timestamp { seconds: 1, nanos: 0 });
    let server = ServerInfo {
        host: "host".into(),
        pid: 7,
        server_id: "uuid".into(),
        concurrency: 1,
        queues: BTreeMap::new(),
        strict_priority: false,
        status: "active".into(),
        start_time: time,
        active_worker_count: 1,
    };
    let task = WorkerInfo {
        host: "host".into(),
        pid: 7,
        server_id: "uuid".into(),
        task_id: "a".into(),
        task_type: "job".into(),
        task_payload: "p".into(),
        queue: QUEUE.into(),
        start_time: time,
        deadline: time,
    };
    for _ in 0..2 {
        let mut connection = broker.redis().pooled().await.unwrap();
        broker
            .write_server_state(&mut connection, &server, std::slice::from_ref(&task), SystemClock.now_secs())
            .await
            .unwrap();
    }
    let mut connection = broker.redis().pooled().await.unwrap();
    broker.clear_server_state(&mut connection, &server).await.unwrap();
}

/// All parts of a server at once.
async fn serves(fixture: &Fixture, redis: &Redis) {
    let events = Events::default();
    let work = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let server = Server::new(redis.clone(), Router::new(()).route("job", work)).queues([("other", 1)]);
    let server = server.start().await.unwrap();
    let tasks = ["x", "y"].map(|id| job(id).queue("other"));
    fixture.enqueue(tasks).await;
    events.wait(2).await;
    server.shutdown().await;
}

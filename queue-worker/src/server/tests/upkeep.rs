//! The loops that keep queues and the server going.

use super::*;

#[tokio::test]
async fn recoverer_takes_tasks_whose_leases_ended_for_long_enough() {
    for (max_crashes, expected) in [(1, TaskState::Retry), (0, TaskState::Archived)] {
        let parts = Parts::new().await;
        parts.job().await;
        let mut recoverer = parts.recoverer(max_crashes);
        recoverer.run_once().await.unwrap();
        // Redis was not heard for long: servers may not have said what they work on.
        parts.pass(30 + 29);
        recoverer.run_once().await.unwrap();
        assert_eq!(parts.count(TaskState::Active).await, 1);
        parts.pass(1);
        recoverer.run_once().await.unwrap();
        assert_eq!(parts.count(expected).await, 1);
    }
}

#[tokio::test]
async fn recoverer_waits_after_an_outage_before_it_recovers() {
    let parts = Parts::new().await;
    parts.job().await;
    parts.pass(600);
    let mut recoverer = parts.recoverer(1);
    parts.cmd::<()>("REPLICAOF 127.0.0.1 1").await;
    parts.cmd::<()>("CONFIG SET replica-serve-stale-data no").await;
    assert!(recoverer.run_once().await.is_err());
    parts.cmd::<()>("REPLICAOF NO ONE").await;
    assert_eq!(recoverer.run_once().await.unwrap(), Duration::from_secs(12));
    assert_eq!(parts.count(TaskState::Active).await, 1, "whoever is alive has to renew first");
    recoverer.run_once().await.unwrap();
    assert_eq!(parts.count(TaskState::Active).await, 0);
}

#[tokio::test]
async fn forwarder_makes_due_tasks_pending_and_sleeps_until_the_next() {
    let parts = Parts::new().await;
    for delay in [2, 4] {
        parts.enqueue(RawTask::new("job").process_in(Duration::from_secs(delay))).await;
    }
    let mut forwarder = parts.forwarder();
    assert_eq!(forwarder.run_once().await.unwrap(), Duration::from_secs(2));
    assert_eq!(parts.count(TaskState::Pending).await, 0);
    parts.pass(2);
    assert_eq!(forwarder.run_once().await.unwrap(), Duration::from_secs(2));
    assert_eq!((parts.count(TaskState::Pending).await, parts.count(TaskState::Scheduled).await), (1, 1));
}

#[tokio::test]
async fn janitor_deletes_completed_tasks_whose_retention_has_ended() {
    let parts = Parts::new().await;
    parts.enqueue(RawTask::new("job").retention(Duration::from_secs(60))).await;
    let delivery = parts.take().await;
    let report = queue_redis::broker::Report::by_owner(delivery.run.clone(), &delivery.message, Default::default());
    let (policy, outcome) = (RetryPolicy::Asynq, queue_core::outcome::Outcome::Done(None));
    let step = queue_core::outcome::next_step(&delivery.message, outcome, NOW, &policy);
    parts.broker.apply(&[(&report, &step)], parts.time.now_ns()).await.unwrap();
    let mut janitor = parts.janitor();
    janitor.run_once().await.unwrap();
    assert_eq!(parts.count(TaskState::Completed).await, 1);
    parts.pass(61);
    janitor.run_once().await.unwrap();
    assert_eq!(parts.count(TaskState::Completed).await, 0);
}

#[tokio::test]
async fn janitor_trims_the_other_archives_where_one_queue_is_spoilt() {
    let parts = Parts::new().await;
    let mut janitor = parts.janitor();
    janitor.run_once().await.unwrap();
    parts.cmd::<()>("SET asynq:{q}:completed x").await;
    parts.cmd::<i64>("ZADD asynq:{q}:archived 1 a").await;
    for _ in 0..4 {
        assert!(janitor.run_once().await.is_err());
    }
    assert_eq!(parts.cmd::<i64>("ZCARD asynq:{q}:archived").await, 0);
}

#[tokio::test]
async fn heartbeater_tells_what_the_server_is_and_works_on() {
    let parts = Parts::new().await;
    parts.job().await;
    let mut heartbeater = parts.heartbeater();
    for (phase, status) in [(None, "active"), (Some(Phase::Quiet), "stopped"), (Some(Phase::Closing), "closed")] {
        phase.into_iter().for_each(|phase| parts.shutdown.enter(phase));
        heartbeater.run_once().await.unwrap();
        let servers = parts.inspector().servers().await.unwrap();
        assert_eq!((servers.len(), &*servers[0].status, servers[0].workers.len()), (1, status, 1));
    }
    heartbeater.clear().await;
    assert!(parts.inspector().servers().await.unwrap().is_empty());
}

#[tokio::test]
async fn lease_extender_renews_what_is_ours_and_cancels_what_is_not() {
    let parts = Parts::new().await;
    let job = parts.job().await;
    let mut extender = parts.lease_extender();
    parts.pass(10);
    extender.run_once().await.unwrap();
    assert_eq!(parts.cmd::<i64>("ZSCORE asynq:{q}:lease a").await, NOW + 10 + 30);
    assert_eq!(job.cancel_reason(), None);
    parts.cmd::<()>("ZADD asynq:{q}:lease 4100000000 a").await;
    extender.run_once().await.unwrap();
    assert_eq!(job.cancel_reason(), Some(CancelReason::LeaseLost));
}

#[tokio::test]
async fn reconciler_lists_a_queue_that_is_not_listed() {
    let parts = Parts::new().await;
    parts.enqueue(RawTask::new("job")).await;
    parts.cmd::<()>("SREM asynq:queues q").await;
    parts.reconciler().run_once().await.unwrap();
    assert_eq!(parts.cmd::<Vec<String>>("SMEMBERS asynq:queues").await, ["q"]);
}

#[tokio::test]
async fn reclaimer_puts_the_tasks_of_a_lost_aggregation_back() {
    let parts = Parts::new().await;
    parts.enqueue(RawTask::new("note").group("g")).await;
    parts.pass(61);
    let rules = GroupRules::new(Duration::from_secs(60), Duration::ZERO, 0);
    let now = parts.time.now();
    parts.broker.stage(&"q".into(), "g", "set", rules, now, now + 120).await.unwrap().unwrap();
    let mut reclaimer = parts.reclaimer();
    reclaimer.run_once().await.unwrap();
    assert_eq!(parts.cmd::<u64>("ZCARD asynq:{q}:g:g").await, 0);
    parts.pass(120);
    reclaimer.run_once().await.unwrap();
    assert_eq!(parts.cmd::<u64>("ZCARD asynq:{q}:g:g").await, 1);
}

#[tokio::test]
async fn health_check_tells_whether_redis_answers() {
    let parts = Parts::new().await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let mut check = parts.health_check(move |health| tell.lock().unwrap().push(health.is_ok()));
    check.run_once().await.unwrap();
    check.redis = Redis::lazy("redis+unix:///nowhere", queue_redis::RedisOptions::default()).unwrap();
    check.run_once().await.unwrap();
    assert_eq!(*told.lock().unwrap(), [true, false]);
}

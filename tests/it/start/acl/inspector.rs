use std::sync::Arc;
use std::time::Duration;

use queue_admin::{Actor, Admin, Direction, Filter, Inspector, Page, Role, Verb};
use queue_core::clock::ManualClock;
use queue_core::queue_name::Family;
use queue_core::{Clock as _, SystemClock, TaskState};
use queue_redis::{
    Listener, Redis,
    broker::{Bin, Broker, Seen, StoredTask},
};

use crate::support::{Fixture, NOW, QUEUE, job, register};

const HOUR: Duration = Duration::from_secs(3_600);

pub(super) async fn play(fixture: &Fixture, redis: &Redis) {
    redis.ping().await.unwrap();
    let inspector = Inspector::with_clock(redis.clone(), Arc::new(ManualClock::at_secs(NOW)));
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    for state in TaskState::ALL.into_iter().filter(|state| *state != TaskState::Pending).chain([TaskState::Pending]) {
        fixture.put_in(state, job(&state.to_string()).unique(HOUR).payload(state.to_string())).await;
    }
    let mut connection = fixture.redis().pooled().await.unwrap();
    let server = queue_core::wire::ServerInfo { host: "host".into(), server_id: "uuid".into(), ..Default::default() };
    let task = queue_core::wire::WorkerInfo { task_id: "active".into(), ..Default::default() };
    fixture.broker.write_server_state(&mut connection, &server, &[task], NOW).await.unwrap();
    drop(connection);
    looks(&inspector).await;
    let (broker, bin) = (Broker::new(redis.clone()), Bin { operation: "op", piece: 0, keep_secs: 600 });
    broker.bin_tasks(QUEUE, Seen::Anywhere, &["pending"], bin, NOW * 1_000).await.unwrap();
    broker.undelete_tasks(QUEUE, &["pending"], bin, NOW * 1_000).await.unwrap();
    inspector.redis_info().await.unwrap();
    let _ = inspector.cluster_placement(QUEUE).await;
    let mut watch = Listener::connect(redis).await.unwrap().watch().expect("it has client tracking");
    watch.look_at(QUEUE, "pending").await.unwrap();
    let today = queue_core::keys::QueueKeys::new(QUEUE).processed_on(SystemClock.now_secs());
    fixture.run(&format!("SET {today} 1 EX 1000")).await;
    moves(&inspector, redis).await;
    cron(fixture, &inspector).await;
    changes(fixture, &inspector).await;
    removes(fixture, &inspector).await;
    writes_down(&inspector).await;
}

/// The audit.
async fn writes_down(inspector: &Inspector) {
    let actor = Actor { name: "somebody".to_owned(), role: Role::Admin, via: "cli", address: None };
    let admin = Admin::new(inspector.clone(), actor);
    for _ in 0..2 {
        let _ = admin.change_task(Verb::Run, QUEUE, "nobody").await;
    }
    let page = inspector.audit(None, 1).await.unwrap();
    assert_eq!(inspector.audit(page.next.as_deref(), 1).await.unwrap().entries.len(), 1);
}

async fn looks(inspector: &Inspector) {
    let page = || Page::default();
    inspector.queues().await.unwrap();
    inspector.queue(QUEUE).await.unwrap();
    inspector.history(QUEUE, 7).await.unwrap();
    for state in TaskState::ALL.into_iter().filter(|state| *state != TaskState::Aggregating) {
        inspector.tasks(QUEUE, state, page()).await.unwrap();
        inspector.task(QUEUE, &state.to_string()).await.unwrap();
    }
    inspector.groups(QUEUE).await.unwrap();
    inspector.group_tasks(QUEUE, "g", page()).await.unwrap();
    inspector.servers().await.unwrap();
    inspector.scheduler_entries().await.unwrap();
    inspector.count(QUEUE, &Filter::new()).await.unwrap();
    inspector.find(QUEUE, &Filter::new(), page()).await.unwrap();
    for direction in [Direction::Oldest, Direction::Newest] {
        let first = inspector.list(QUEUE, &Filter::new(), direction, None, 1, 1).await.unwrap();
        inspector.list(QUEUE, &Filter::new(), direction, first.next.as_ref(), 9, 9).await.unwrap();
    }
    assert!(inspector.queue_memory(QUEUE).await.unwrap().is_some());
}

/// Export and import.
async fn moves(inspector: &Inspector, redis: &Redis) {
    let mut stored = inspector.stored_queue(QUEUE).await.unwrap();
    inspector.tasks_in_hand(QUEUE).await.unwrap();
    let mut reader = inspector.reader(QUEUE, true);
    let mut tasks: Vec<StoredTask> = Vec::new();
    loop {
        let some = reader.next().await.unwrap();
        if some.is_empty() {
            break;
        }
        tasks.extend(some);
    }
    let broker = Broker::new(redis.clone());
    broker.restore_note(QUEUE, "export").await.unwrap();
    broker.restore(QUEUE, "export", (0, 1), &tasks, NOW * 1_000).await.unwrap();
    // Where there are no counters yet, they get an expiry.
    stored.queue = "copy".to_owned();
    broker.restore_queue("export", &stored).await.unwrap();
    broker.forget_restored(QUEUE, "export").await.unwrap();
}

async fn cron(fixture: &Fixture, inspector: &Inspector) {
    let past = 1_700_000_000;
    register(&fixture.broker, QUEUE, "@daily", "s", true, 0, past).await.unwrap();
    let mut connection = fixture.redis().pooled().await.unwrap();
    let key = "asynq:schedulers:{s}";
    fixture.broker.write_scheduler_entries(&mut connection, key, &[], &[("e", QUEUE)], past).await.unwrap();
    inspector.cron_entries().await.unwrap();
    inspector.cron_history("e", Page::default()).await.unwrap();
    assert!(inspector.pause_cron("e").await.unwrap() && inspector.resume_cron("e").await.unwrap());
    inspector.run_cron("e", false).await.unwrap();
    inspector.remove_cron("e").await.unwrap();
    inspector.enqueue_events("e", Page::default()).await.unwrap();
}

async fn changes(fixture: &Fixture, inspector: &Inspector) {
    // Its worker has let the lease end, and somebody has dropped it.
    fixture.run("ZREM asynq:{q}:lease active").await;
    inspector.delete_task(QUEUE, "active").await.unwrap_err();
    assert!(inspector.pause(QUEUE).await.unwrap() && inspector.unpause(QUEUE).await.unwrap());
    inspector.cancel("active").await.unwrap();
    inspector.update_payload(QUEUE, "scheduled", "new").await.unwrap();
    for (from, to) in [(QUEUE, Some(Family::Level(9))), ("q}p9", None)] {
        inspector.move_task(from, "scheduled", to).await.unwrap();
    }
    inspector.run_task(QUEUE, "scheduled").await.unwrap();
    inspector.archive_task(QUEUE, "scheduled").await.unwrap();
    inspector.archive_task(QUEUE, "aggregating").await.unwrap();
    inspector.run_task(QUEUE, "retry").await.unwrap();
    inspector.delete_task(QUEUE, "pending").await.unwrap();
    // More than one look can show.
    fixture.put((0..250).map(|n| job(&n.to_string()).process_in(HOUR))).await;
    // What was seen last is gone when the look goes on.
    let mut others = redis::Client::open(fixture.url()).unwrap().get_connection().unwrap();
    let mut forget = redis::cmd("ZREMRANGEBYRANK");
    forget.arg("asynq:{q}:scheduled").arg(0).arg(99);
    let none = Filter::new().state(TaskState::Scheduled).task_type("none");
    inspector.archive_all(QUEUE, &none, |_| forget.exec(&mut others).unwrap()).await.unwrap();
    inspector.archive_all(QUEUE, &Filter::new(), |_| {}).await.unwrap();
    inspector.run_all(QUEUE, &Filter::new(), |_| {}).await.unwrap();
    inspector.delete_all(QUEUE, &Filter::new(), |_| {}).await.unwrap();
}

async fn removes(fixture: &Fixture, inspector: &Inspector) {
    fixture.run("DEL asynq:{q}:active asynq:{q}:lease").await;
    fixture.put([job("left").group("g"), job("waiting")]).await;
    inspector.remove_queue(QUEUE, true).await.unwrap();
}

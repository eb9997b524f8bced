use std::sync::Arc;
use std::time::Duration;

use queue_admin::{Filter, Page};
use queue_core::options::compose;
use queue_core::{RawTask, TaskOptions, TaskState};
use queue_redis::{
    Error,
    broker::{
        Bin, Completion, Dequeued, GroupRules, Matching, PayloadChange, Recovery, Report, Seen, Side, StagedSet, Taken,
    },
};

use super::World;

const NOW: i64 = 1_700_000_000;
const QUEUE: &str = "q";

/// Makes the call of this number and does with its answer what a worker or a tool does. Errors are as good as
/// any other answer.
pub(super) async fn make(world: &World, number: u8, seed: u8) {
    let (queue, token) = (Arc::from(QUEUE), Arc::from("token:1"));
    let World { broker, client, .. } = world;
    let _: Result<(), Error> = match number % 37 {
        0 => work(world, broker.clone().timed(seed & 1 == 0).dequeue(&queue, 10, &token, NOW + 30).await).await,
        1 => {
            let matching = Matching { types: vec!["t".to_owned()], ids: vec!["a".into()], ..Matching::default() };
            let taken = broker.dequeue_matching(&queue, 10, &token, NOW + 30, &matching).await;
            work(world, taken.map(|(taken, _)| taken)).await
        }
        2 => broker.requeue_run(QUEUE, &token, NOW, NOW).await.map(drop),
        3 => match broker.list_expired(QUEUE, NOW, 0).await {
            Ok(expired) => {
                let recoveries: Vec<_> = expired.leases.into_iter().map(Recovery::as_it_is).collect();
                broker.recover(QUEUE, &recoveries, 0, NOW).await.map(drop)
            }
            Err(error) => Err(error),
        },
        4 => broker.forward(QUEUE, TaskState::Retry, NOW, 0).await.map(drop),
        5 => broker.next_due(&[(QUEUE, TaskState::Retry), (QUEUE, TaskState::Scheduled)]).await.map(drop),
        6 => broker.delete_expired_completed(QUEUE, NOW).await.map(drop),
        7 => broker.trim_archived(QUEUE, NOW).await.map(drop),
        8 => enqueue(world, RawTask::new("t").task_id("id")).await,
        9 => enqueue(world, RawTask::new("t").unique(Duration::from_secs(9)).process_in(Duration::from_secs(9))).await,
        10 => enqueue(world, RawTask::new("t").group("g")).await,
        11 => {
            client.enqueue_many((0..5).map(|n| RawTask::new("t").task_id(n.to_string()))).await;
            Ok(())
        }
        12 => groups(world, seed).await,
        13 => broker.aggregation_sets(QUEUE).await.map(drop),
        14 => broker.reclaim(QUEUE, "g", "set", Some(NOW)).await.map(drop),
        15 => broker.list_groups_again(QUEUE, &["g".to_owned()]).await.map(drop),
        16 => broker.run_tasks(QUEUE, Seen::Anywhere, &["a", "b"], NOW).await.map(drop),
        17 if seed & 2 == 0 => {
            let bin = Bin::new("op", 0);
            drop(broker.bin_tasks(QUEUE, Seen::PendingAt(3), &["a"], bin, NOW).await);
            drop(broker.write_operation("op", "me", seed & 1 == 0, &[]).await);
            broker.undelete_tasks(QUEUE, &["a", "flow:b:0:1"], bin, NOW).await.map(drop)
        }
        17 => broker.delete_tasks(QUEUE, Seen::PendingAt(3), &["a"]).await.map(drop),
        18 => {
            let change = PayloadChange { id: "a", old: b"old", new: b"new", locks: None };
            broker.update_payload(QUEUE, &change).await.map(drop)
        }
        19 => broker.begin_removal(QUEUE, NOW).await.map(drop),
        20 => broker.finish_removal(QUEUE).await.map(drop),
        number => return look(world, number, seed).await,
    }
    .inspect_err(|error| drop(format!("{error} {error:?}")));
}

/// The same for what operators ask.
async fn look(world: &World, number: u8, seed: u8) {
    let state = TaskState::ALL[usize::from(seed) % TaskState::ALL.len()];
    let inspector = &world.inspector;
    let page = Page { skip: usize::from(seed % 3), size: 7 };
    let _: Result<(), queue_admin::Error> = match number {
        21 => inspector.queues().await.map(drop),
        22 => inspector.queue(QUEUE).await.map(|info| drop((info.size(), format!("{info:?}")))),
        23 => inspector.queue_memory(QUEUE).await.map(drop),
        24 => inspector.tasks(QUEUE, state, page).await.map(drop),
        25 => inspector.task(QUEUE, "id").await.map(drop),
        26 => inspector.groups(QUEUE).await.map(drop),
        27 => inspector.history(QUEUE, usize::from(seed)).await.map(drop),
        28 => inspector.servers().await.map(drop),
        29 => inspector.scheduler_entries().await.map(|entries| entries.iter().for_each(|entry| drop(entry.queue()))),
        30 => inspector.enqueue_events("entry", page).await.map(drop),
        31 => inspector.cron_entries().await.map(drop),
        32 => inspector.cron_history("entry", page).await.map(drop),
        33 => {
            let filter = Filter::new().state(state).payload("a.0", "1").older_than(Duration::from_secs(1));
            match seed % 3 {
                0 => inspector.count(QUEUE, &filter).await.map(drop),
                1 => inspector.find(QUEUE, &filter, page).await.map(drop),
                _ => inspector.delete_all(QUEUE, &filter, |_| ()).await.map(drop),
            }
        }
        34 => match inspector.stored_queue(QUEUE).await {
            Ok(_) => inspector.reader(QUEUE, true).next().await.map(drop),
            Err(error) => Err(error),
        },
        35 => duties(world, seed).await.map_err(queue_admin::Error::from),
        _ => inspector.redis_info().await.map(drop),
    }
    .inspect_err(|error| drop(format!("{error} {error:?}")));
}

/// Reports on what was taken, in one of the ways there are.
async fn work(world: &World, taken: Result<Dequeued, Error>) -> Result<(), Error> {
    let Dequeued::Tasks(tasks) = taken? else { return Ok(()) };
    let broker = &world.broker;
    let Some(first) = tasks.into_iter().next() else { return Ok(()) };
    match first {
        Taken::Ghost(_) => Ok(()),
        Taken::Poisoned(run, raw, reason) => {
            let _ = reason.to_string();
            let report = Report::by_owner(run, &queue_core::TaskMessage::default(), Side::Youngest);
            broker.archive(&report, &raw, NOW).await.map(drop)
        }
        Taken::Task(task) => {
            let mut connection = broker.redis().pooled().await?;
            let _ = broker.extend_lease(&mut connection, QUEUE, std::slice::from_ref(&task.run), NOW + 60).await;
            let report = Report::by_owner(task.run.clone(), &task.message, Side::Youngest);
            let _ = broker.write_result(&task.run, b"result").await;
            match task.message.retry % 4 {
                0 => broker.done(QUEUE, &[report], NOW).await.map(drop),
                1 => broker.retry(&report, &task.message.to_bytes(), NOW + 9, true, NOW).await.map(drop),
                2 => broker.requeue(&report, NOW).await.map(drop),
                _ => {
                    let message = task.message;
                    let completion = Completion { report, message, expires_at: NOW, result: None };
                    broker.complete(QUEUE, &[completion], NOW).await.map(drop)
                }
            }
        }
    }
}

async fn enqueue(world: &World, task: RawTask) -> Result<(), Error> {
    let composed = compose(task.queue(QUEUE), TaskOptions::new(), NOW * 1_000_000_000);
    let Ok(composed) = composed else { return Ok(()) };
    match composed.placement {
        queue_core::options::Placement::Pending => world.broker.enqueue(QUEUE, &[composed], NOW).await.map(drop),
        queue_core::options::Placement::Front => world.broker.enqueue_front(QUEUE, &[composed], NOW).await.map(drop),
        queue_core::options::Placement::Scheduled { .. } => world.broker.schedule(QUEUE, &[composed]).await.map(drop),
        queue_core::options::Placement::Aggregating => world.broker.add_to_group(&composed, NOW).await.map(drop),
    }
}

async fn groups(world: &World, seed: u8) -> Result<(), Error> {
    let broker = &world.broker;
    let rules = GroupRules { grace_secs: 1, max_delay_secs: 0, max_size: usize::from(seed) };
    let ready = broker.list_ready_groups(QUEUE, rules, NOW).await?;
    let Some(group) = ready.ready.into_iter().next() else { return Ok(()) };
    let mut set = StagedSet { queue: QUEUE.into(), group, id: "set".to_owned(), count: usize::from(seed) };
    broker.read_set(&mut set).await?;
    broker.extend_set(&set, NOW).await?;
    broker.delete_aggregated(QUEUE).await.map(drop)
}

async fn duties(world: &World, seed: u8) -> Result<(), Error> {
    let (broker, held) = (&world.broker, NOW + 10);
    broker.first_duty().await?;
    broker.lead("server", Duration::from_secs(3)).await?;
    for duty in broker.take_duties(NOW, held, usize::from(seed)).await? {
        broker.put_off_duty(&duty, None).await?;
    }
    if let Some(request) = broker.cancel_request(QUEUE, "task").await? {
        broker.forget_cancel("task", &request).await?;
    }
    Ok(())
}

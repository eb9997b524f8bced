//! A key of another type in the place of each key there is, and everything that can be done then.

use std::time::Duration;

use queue_admin::{Filter, Inspector, Page};
use queue_core::{RawTask, TaskState};
use queue_redis::{
    Error,
    broker::{Completion, Delivery, GroupRules, HeldDuty, PayloadChange, Report, Seen, Side},
};

use crate::support::{Fixture, GROUP, NOW, NOW_NS, QUEUE, is_wrong_type, job, of_redis};

/// The keys of a queue and those of all, and what each should be.
const KEYS: [(&str, &str); 25] = [
    ("asynq:{q}:pending", "list"),
    ("asynq:{q}:active", "list"),
    ("asynq:{q}:lease", "zset"),
    ("asynq:{q}:scheduled", "zset"),
    ("asynq:{q}:retry", "zset"),
    ("asynq:{q}:archived", "zset"),
    ("asynq:{q}:completed", "zset"),
    ("asynq:{q}:paused", "string"),
    ("asynq:{q}:processed", "string"),
    ("asynq:{q}:failed", "string"),
    ("asynq:{q}:groups", "set"),
    ("asynq:{q}:g:g", "zset"),
    ("asynq:{q}:aggregation_sets", "zset"),
    ("asynq:{q}:unique:job:", "string"),
    ("asynq:{q}:x:aggregated", "set"),
    ("asynq:{q}:x:removing", "string"),
    ("asynq:queues", "set"),
    ("asynq:servers", "zset"),
    ("asynq:workers", "zset"),
    ("asynq:schedulers", "zset"),
    ("asynq:x:cron", "zset"),
    ("asynq:x:leader", "string"),
    ("asynq:x:duties", "zset"),
    ("asynq:x:cancels", "hash"),
    ("asynq:sema:s", "zset"),
];

/// Everything that is done to a queue, by name.
const OPERATIONS: [&str; 48] = [
    "client enqueue",
    "enqueue",
    "enqueue unique",
    "schedule",
    "add to group",
    "dequeue",
    "done",
    "complete",
    "retry",
    "archive",
    "requeue",
    "write result",
    "extend lease",
    "forward scheduled",
    "forward retry",
    "next due",
    "list expired",
    "requeue run",
    "delete expired",
    "trim archived",
    "list ready groups",
    "stage",
    "aggregation sets",
    "delete aggregated",
    "inspect queues",
    "inspect queue",
    "inspect pending",
    "inspect scheduled",
    "inspect archived",
    "inspect aggregating",
    "inspect task",
    "inspect groups",
    "inspect servers",
    "inspect schedulers",
    "inspect cron",
    "run task",
    "archive task",
    "delete task",
    "update payload",
    "pause",
    "count all",
    "semaphore",
    "lead",
    "ask for duty",
    "take duties",
    "put off duty",
    "read cancels",
    "read cancel",
];

async fn act(operation: &str, fixture: &Fixture, active: &Delivery) -> Result<(), Error> {
    let broker = &fixture.broker;
    let inspector = Inspector::new(fixture.redis());
    let report = || Report::by_owner(active.run.clone(), &active.message, Side::Oldest);
    let msg = active.message.to_bytes();
    let page = Page::default();
    match operation {
        "client enqueue" => match fixture.client().enqueue(job("new")).await {
            Err(queue_redis::EnqueueError::Redis(error)) => Err(error),
            other => other.map(drop).map_err(|error| panic!("{error}")),
        },
        "enqueue" => broker.enqueue(QUEUE, &[fixture.compose(job("new"))], NOW_NS).await.map(drop),
        "enqueue unique" => {
            let task = fixture.compose(job("new").unique(Duration::from_secs(60)));
            broker.enqueue(QUEUE, &[task], NOW_NS).await.map(drop)
        }
        "schedule" => {
            let task = fixture.compose(job("new").process_in(Duration::from_secs(60)));
            broker.schedule(QUEUE, &[task]).await.map(drop)
        }
        "add to group" => broker.add_to_group(&fixture.compose(job("new").group(GROUP)), NOW).await.map(drop),
        "dequeue" => broker.dequeue(&QUEUE.into(), 10, &"other:1".into(), NOW + 30).await.map(drop),
        "done" => broker.done(QUEUE, &[report()], NOW).await.map(drop),
        "complete" => {
            let completion =
                Completion { report: report(), message: active.message.clone(), expires_at: NOW + 60, result: None };
            broker.complete(QUEUE, &[completion], NOW).await.map(drop)
        }
        "retry" => broker.retry(&report(), &msg, NOW + 60, true, NOW).await.map(drop),
        "archive" => broker.archive(&report(), &msg, NOW).await.map(drop),
        "requeue" => broker.requeue(&report(), NOW_NS).await.map(drop),
        "write result" => broker.write_result(&active.run, b"result").await.map(drop),
        "extend lease" => {
            let mut connection = broker.redis().pooled().await?;
            broker.extend_lease(&mut connection, QUEUE, std::slice::from_ref(&active.run), NOW + 60).await.map(drop)
        }
        "forward scheduled" => broker.forward(QUEUE, TaskState::Scheduled, NOW_NS * 2, 0).await.map(drop),
        "forward retry" => broker.forward(QUEUE, TaskState::Retry, NOW_NS * 2, 0).await.map(drop),
        "next due" => {
            let sets = [(QUEUE, TaskState::Scheduled), (QUEUE, TaskState::Retry)];
            broker.next_due(&sets).await?.into_iter().try_for_each(|due| due.map(drop))
        }
        "list expired" => broker.list_expired(QUEUE, NOW + 60, 0).await.map(drop),
        "requeue run" => broker.requeue_run(QUEUE, "nobody:1", NOW, NOW_NS).await.map(drop),
        "delete expired" => broker.delete_expired_completed(QUEUE, NOW).await.map(drop),
        "trim archived" => broker.trim_archived(QUEUE, NOW).await.map(drop),
        "list ready groups" => {
            let rules = GroupRules { grace_secs: 60, max_delay_secs: 0, max_size: 0 };
            broker.list_ready_groups(QUEUE, rules, NOW).await.map(drop)
        }
        "stage" => {
            let rules = GroupRules { grace_secs: 1, max_delay_secs: 0, max_size: 0 };
            broker.stage(&QUEUE.into(), GROUP, "s1", rules, NOW + 60, NOW + 120).await.map(drop)
        }
        "aggregation sets" => broker.aggregation_sets(QUEUE).await.map(drop),
        "delete aggregated" => broker.delete_aggregated(QUEUE).await.map(drop),
        "inspect queues" => inspector.queues().await.map(drop).map_err(of_redis),
        "inspect queue" => inspector.queue(QUEUE).await.map(drop).map_err(of_redis),
        "inspect pending" => inspector.tasks(QUEUE, TaskState::Pending, page).await.map(drop).map_err(of_redis),
        "inspect scheduled" => inspector.tasks(QUEUE, TaskState::Scheduled, page).await.map(drop).map_err(of_redis),
        "inspect archived" => inspector.tasks(QUEUE, TaskState::Archived, page).await.map(drop).map_err(of_redis),
        "inspect aggregating" => inspector.tasks(QUEUE, TaskState::Aggregating, page).await.map(drop).map_err(of_redis),
        "inspect task" => inspector.task(QUEUE, "pending").await.map(drop).map_err(of_redis),
        "inspect groups" => inspector.groups(QUEUE).await.map(drop).map_err(of_redis),
        "inspect servers" => inspector.servers().await.map(drop).map_err(of_redis),
        "inspect schedulers" => inspector.scheduler_entries().await.map(drop).map_err(of_redis),
        "inspect cron" => inspector.cron_entries().await.map(drop).map_err(of_redis),
        "run task" => broker.run_tasks(QUEUE, Seen::Anywhere, &["archived"], NOW_NS).await.map(drop),
        "archive task" => broker.archive_tasks(QUEUE, Seen::Anywhere, &["retry"], NOW).await.map(drop),
        "delete task" => broker.delete_tasks(QUEUE, Seen::Anywhere, &["scheduled"]).await.map(drop),
        "update payload" => {
            let change = PayloadChange { id: "pending", old: b"other", new: b"new", locks: None };
            broker.update_payload(QUEUE, &change).await.map(drop)
        }
        "pause" => inspector.pause(QUEUE).await.map(drop).map_err(of_redis),
        "count all" => inspector.count(QUEUE, &Filter::new().task_type("job")).await.map(drop).map_err(of_redis),
        "semaphore" => {
            let semaphore = queue_redis::Semaphore::new(fixture.redis(), "s", 1);
            let until = std::time::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
            semaphore.acquire("holder", until).await.map(|permit| permit.map_or((), std::mem::forget))
        }
        "lead" => broker.lead("server", Duration::from_secs(3)).await.map(drop),
        "ask for duty" => broker.ask_for_duty("duty", "subject", NOW).await,
        "take duties" => broker.take_duties(NOW, NOW + 10, 10).await.map(drop),
        "read cancels" => broker.cancel_requests().await.map(drop),
        "read cancel" => broker.cancel_request(QUEUE, "a").await.map(drop),
        "put off duty" => broker.put_off_duty(&HeldDuty::new("duty subject", NOW + 10), Some(NOW)).await.map(drop),
        other => panic!("{other:?} is not written"),
    }
}

/// A task in each state, the id of which is the name of the state.
async fn fill(fixture: &Fixture) -> Delivery {
    let _: String = fixture.cmd(&["FLUSHALL"]).await;
    fixture.run("SADD asynq:queues q").await;
    for state in
        [TaskState::Retry, TaskState::Archived, TaskState::Completed, TaskState::Scheduled, TaskState::Aggregating]
    {
        fixture.put_in(state, job(state.as_str())).await;
    }
    let active = fixture.active(job("active")).await;
    fixture.put([job("pending")]).await;
    active
}

/// The other queue of the same Redis.
async fn work_another_queue(fixture: &Fixture) {
    let task = fixture.compose(RawTask::new("job").queue("other").task_id("o"));
    fixture.broker.enqueue("other", &[task], NOW_NS).await.unwrap();
    let taken = fixture.broker.dequeue(&"other".into(), 1, &"w:1".into(), NOW + 30).await.unwrap();
    let queue_redis::broker::Dequeued::Tasks(tasks) = taken else { panic!("{taken:?}") };
    let [queue_redis::broker::Taken::Task(delivery)] = &tasks[..] else { panic!("{tasks:?}") };
    let report = Report::by_owner(delivery.run.clone(), &delivery.message, Side::Oldest);
    assert_eq!(fixture.broker.done("other", &[report], NOW).await.unwrap(), [queue_redis::broker::Verdict::Applied]);
}

#[tokio::test]
async fn a_key_of_another_type_is_named_with_its_type_and_nothing_changes() {
    let fixture = Fixture::start().await;
    let mut refused = 0;
    for (key, expected) in KEYS {
        let mut active = fill(&fixture).await;
        let mut refused_here = 0;
        for operation in OPERATIONS {
            let place = format!("{operation} with a stray {key}");
            let outcome = fixture
                .with_stray(key, async || {
                    let before = fixture.keyspace().await;
                    let outcome = act(operation, &fixture, &active).await;
                    if outcome.is_err() {
                        let after = fixture.keyspace().await;
                        let changes = after.changes_since(&before);
                        assert_eq!(changes, "", "{place} was refused and has changed something");
                    }
                    work_another_queue(&fixture).await;
                    outcome
                })
                .await;
            match outcome {
                Ok(()) => active = fill(&fixture).await,
                Err(error) => {
                    let text = error.to_string();
                    assert!(is_wrong_type(&error), "{place}: {text}");
                    let named = format!("{key:?} is a stream and should be a {expected}");
                    assert!(text.contains(&named), "{place}: {text}");
                    assert!(text.ends_with("look at it, then rename or delete it"), "{place}: {text}");
                    refused_here += 1;
                }
            }
        }
        println!("{key}: {refused_here} of {} operations are refused", OPERATIONS.len());
        refused += refused_here;
    }
    assert!(refused > 60, "only {refused} operations met a key of another type");
}

#[tokio::test]
async fn a_stray_task_hash_is_told_apart_from_a_missing_task() {
    let fixture = Fixture::start().await;
    fill(&fixture).await;
    let key = "asynq:{q}:t:pending";
    let found = fixture.with_stray(key, async || Inspector::new(fixture.redis()).task(QUEUE, "pending").await).await;
    let text = found.unwrap_err().to_string();
    assert!(text.contains("\"asynq:{q}:t:pending\" is a stream and should be a hash"), "{text}");
}

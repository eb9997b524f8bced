//! Messages that nobody can read, in each state, and what becomes of them.

use std::time::Duration;

use queue_admin::Page;
use queue_core::{Clock as _, SystemClock, TaskState};
use queue_worker::{Failure, Group, Job, Router};

use crate::support::{Events, Fixture, GROUP, QUEUE, eventually, job, with};

/// A readable message, cut and disfigured in several ways.
fn broken(fixture: &Fixture, id: &str) -> Vec<(&'static str, Vec<u8>)> {
    let whole = fixture.compose(job(id).payload("payload").header("k", "v")).message.to_bytes();
    let mut no_text = whole.to_vec();
    // The first byte of the type, which has to be UTF-8.
    no_text[2] = 0xff;
    let mut endless = whole.to_vec();
    // A payload that says it is 2^63 bytes long.
    endless.extend([0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    vec![
        ("cut", whole[..whole.len() - 1].to_vec()),
        ("half", whole[..whole.len() / 2].to_vec()),
        ("noise", vec![0x9c, 0xff, 0x01, 0x00, 0x80]),
        ("no-text", no_text),
        ("endless", endless),
        // Valid, and no task: everything has its default.
        ("blank", vec![0x28, 0x00]),
        // Groups within groups, which a reader that follows them would do until its stack ends.
        ("deep", vec![0x83; 100_000]),
    ]
}

async fn disfigure(fixture: &Fixture, id: &str, bytes: &[u8]) {
    let key = format!("asynq:{{q}}:t:{id}");
    let words: [&[u8]; 4] = [b"HSET", key.as_bytes(), b"msg", bytes];
    let _: i64 = fixture.cmd(&words).await;
}

async fn stored(fixture: &Fixture, id: &str) -> Vec<u8> {
    fixture.cmd(&["HGET", &format!("asynq:{{q}}:t:{id}"), "msg"]).await
}

/// asynq leaves them active for ever, and its recoverer stops for all queues (W13).
#[tokio::test]
async fn an_unreadable_message_goes_to_the_archive_from_every_state_and_stays_as_it_is() {
    for state in [TaskState::Pending, TaskState::Scheduled, TaskState::Retry, TaskState::Active] {
        let fixture = Fixture::start().await;
        let client = fixture.client();
        let mut expected = Vec::new();
        for (id, bytes) in broken(&fixture, "x") {
            client.enqueue(job(id)).await.unwrap();
            if state != TaskState::Pending {
                let past = (SystemClock.now_secs() - 3_600).to_string();
                fixture.run(&format!("LREM asynq:{{q}}:pending 1 {id}")).await;
                fixture.run(&format!("HSET asynq:{{q}}:t:{id} state {state}")).await;
                let set = if state == TaskState::Active { "lease" } else { state.as_str() };
                fixture.run(&format!("ZADD asynq:{{q}}:{set} {past} {id}")).await;
                if state == TaskState::Active {
                    fixture.run(&format!("LPUSH asynq:{{q}}:active {id}")).await;
                }
            }
            disfigure(&fixture, id, &bytes).await;
            expected.push((id, bytes));
        }
        client.enqueue(job("fine")).await.unwrap();
        let events = Events::default();
        let work = with(&events, async |events: Events, job: Job| events.tell(job.id()));
        let server = fixture.server(Router::new(()).route("job", work)).start().await.unwrap();
        eventually(format!("all that were {state} are archived"), async || {
            fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:archived"]).await == expected.len()
        })
        .await;
        events.wait(1).await;
        server.shutdown().await;
        assert_eq!(events.all(), ["fine"], "no handler saw any of those that were {state}");
        for (id, bytes) in &expected {
            assert_eq!(stored(&fixture, id).await, *bytes, "{id}");
        }
        let left = fixture.keyspace().await;
        assert_eq!((left.get("{q}:active"), left.paths_with("lease")), (None, Vec::new()), "{left}");
    }
}

/// asynq's recoverer stops for all queues of the server when one lease has such a message.
#[tokio::test]
async fn an_unreadable_message_in_a_group_is_archived_and_the_others_are_aggregated() {
    let fixture = Fixture::start().await;
    let unreadable = broken(&fixture, "x");
    for (id, bytes) in &unreadable {
        fixture.client().enqueue(job(id).group(GROUP)).await.unwrap();
        disfigure(&fixture, id, bytes).await;
    }
    fixture.client().enqueue(job("fine").group(GROUP)).await.unwrap();
    let events: Events = Events::default();
    let told = events.clone();
    let router = Router::new(()).aggregate(move |_: Group, tasks: Vec<queue_core::RawTask>| {
        let told = told.clone();
        async move {
            told.tell(format!("{} tasks", tasks.len()));
            Err::<queue_core::RawTask, _>(Failure::revoke("enough"))
        }
    });
    let server = fixture.server(router).group_grace_period(Duration::from_secs(1)).start().await.unwrap();
    assert_eq!(events.wait(1).await, ["1 tasks"]);
    eventually("the others are archived", async || {
        fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:archived"]).await == unreadable.len()
    })
    .await;
    server.shutdown().await;
    for (id, bytes) in unreadable {
        assert_eq!(stored(&fixture, id).await, bytes, "{id}");
    }
}

#[tokio::test]
async fn lists_leave_unreadable_messages_out_and_a_look_at_one_says_why() {
    let fixture = Fixture::start().await;
    let inspector = fixture.inspector();
    for (id, bytes) in broken(&fixture, "x") {
        fixture.client().enqueue(job(id)).await.unwrap();
        disfigure(&fixture, id, &bytes).await;
        let found = inspector.task(QUEUE, id).await;
        match id {
            // It can be read; that it is nobody's is the worker's business.
            "blank" => assert!(found.is_ok(), "{found:?}"),
            id => {
                let error = found.unwrap_err().to_string();
                assert!(
                    error.starts_with(&format!("task {id:?} in queue \"q\" is unreadable: failed to decode")),
                    "{error}"
                );
            }
        }
    }
    fixture.client().enqueue(job("fine")).await.unwrap();
    let listed = inspector.tasks(QUEUE, TaskState::Pending, Page::default()).await.unwrap();
    let ids: Vec<&str> = listed.iter().map(|task| task.id.as_str()).filter(|id| !id.is_empty()).collect();
    assert_eq!(ids, ["fine"]);
    assert_eq!(inspector.queue(QUEUE).await.unwrap().count(TaskState::Pending), 8);
}

/// A hash without a message, as asynq's own leaks leave them.
#[tokio::test]
async fn an_empty_message_is_no_task_and_its_id_is_dropped() {
    let fixture = Fixture::start().await;
    fixture.client().enqueue_many([job("empty"), job("fine")]).await;
    disfigure(&fixture, "empty", b"").await;
    let server = fixture.server(Router::new(()).route("job", async |_: Job| {})).start().await.unwrap();
    fixture.gone("fine").await;
    fixture.gone("empty").await;
    server.shutdown().await;
    let left = fixture.keyspace().await;
    assert_eq!((left.get("{q}:active"), left.get("{q}:pending")), (None, None), "{left}");
}

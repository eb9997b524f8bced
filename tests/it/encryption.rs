//! Encrypted payloads from a client to a handler, by way of Redis.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_core::{Json, RawTask, Task, TaskOptions, TaskState};
use queue_crypt::{Encryption, KeyRing, SealedTask};
use queue_redis::{Batch, BatchState, Client, EnqueueError, Outgoing, To};
use queue_scheduler::{Entry, EntryProblem, Scheduler};
use queue_worker::{Failure, FromJob as _, Group, Job, Router};
use serde::{Deserialize, Serialize};

use crate::support::{Events, Fixture, Lines, PATIENCE, QUEUE, eventually, job, with};

const SECRET: &str = "4242-4242";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Paid {
    card: String,
    user: u64,
}

impl Task for Paid {
    const TYPE: &'static str = "user:paid";
    type Codec = Json;
    fn options() -> TaskOptions {
        TaskOptions::new().queue(QUEUE)
    }
}

fn paid() -> Paid {
    Paid { card: SECRET.to_owned(), user: 7 }
}

fn keys(ids: &[u8]) -> KeyRing {
    KeyRing::new(ids.iter().map(|id| (format!("key-{id}"), [*id; 32]))).unwrap()
}

/// A router that notes what its handler gets.
fn noting(seen: &Arc<Mutex<Vec<Paid>>>, events: &Events) -> Router {
    let (seen, events) = (seen.clone(), events.clone());
    Router::new(()).task(move |task: Paid| {
        seen.lock().unwrap().push(task);
        events.tell("paid");
        std::future::ready(())
    })
}

/// Everything that is in Redis, as text.
async fn everything(fixture: &Fixture) -> String {
    format!("{:?}", fixture.keyspace().await)
}

#[tokio::test]
async fn the_handler_sees_the_payload_and_redis_does_not() {
    for encryption in
        [Encryption::new(keys(&[1])), Encryption::new(keys(&[1])).fields("user:paid", ["card"]).types(["none"])]
    {
        let fixture = Fixture::start().await;
        let client = encryption.client(fixture.client());
        for outcome in client.enqueue_many([paid(), paid()]).await {
            outcome.unwrap();
        }
        client.enqueue(paid()).await.unwrap();
        assert!(!everything(&fixture).await.contains(SECRET));
        let (seen, events) = (Arc::default(), Events::default());
        let server = fixture.server(encryption.router(noting(&seen, &events))).start().await.unwrap();
        events.wait(3).await;
        server.shutdown().await;
        assert_eq!(*seen.lock().unwrap(), [paid(), paid(), paid()]);
    }
}

/// An error of `serde` quotes the value that does not fit.
#[tokio::test]
async fn a_payload_that_does_not_fit_the_type_is_not_quoted_in_its_error() {
    #[derive(Serialize, Deserialize)]
    struct Numbered {
        card: u64,
    }
    impl Task for Numbered {
        const TYPE: &'static str = Paid::TYPE;
        type Codec = Json;
    }
    for encryption in
        [Encryption::new(keys(&[1])), Encryption::new(keys(&[1])).fields("user:paid", ["card"]).types(["none"])]
    {
        let (lines, _guard) = Lines::collect();
        let fixture = Fixture::start().await;
        let id = encryption.client(fixture.client()).enqueue(paid()).await.unwrap().id;
        let router = encryption.router(Router::new(()).task(async |_: Numbered| {}));
        let server = fixture.server(router).start().await.unwrap();
        fixture.in_state(&id, TaskState::Archived).await;
        server.shutdown().await;
        let error = fixture.inspector().task(QUEUE, &id).await.unwrap().last_error.unwrap();
        assert!(error.contains("its data do not fit, at line 1 column"), "{error}");
        assert!(!everything(&fixture).await.contains(SECRET) && !lines.all().concat().contains(SECRET));
    }
}

#[tokio::test]
async fn a_retried_task_stays_encrypted_and_works_at_last() {
    let fixture = Fixture::start().await;
    let encryption = Encryption::new(keys(&[1]));
    let task = encryption.client(fixture.client()).enqueue(paid()).await.unwrap();
    let router = encryption.router(Router::new(()).task(async |task: Paid, job: Job| match job.retried() {
        0 => Err(Failure::retry_in(Duration::from_secs(3_600), format!("user {} is busy", task.user))),
        _ => Ok(()),
    }));
    let server = fixture.server(router).start().await.unwrap();
    let info = fixture.in_state(&task.id, TaskState::Retry).await;
    assert_eq!(info.last_error.as_deref(), Some("user 7 is busy"));
    assert!(!everything(&fixture).await.contains(SECRET));
    fixture.inspector().run_task(QUEUE, &task.id).await.unwrap();
    fixture.gone(&task.id).await;
    server.shutdown().await;
}

#[tokio::test]
async fn keys_rotate_while_tasks_wait() {
    let fixture = Fixture::start().await;
    Encryption::new(keys(&[1])).client(fixture.client()).enqueue(paid()).await.unwrap();
    let rotated = Encryption::new(keys(&[2, 1]));
    let newer = rotated.client(fixture.client()).enqueue(paid()).await.unwrap();
    assert_eq!(newer.headers["x-encrypted-key"], "key-2");
    let (seen, events) = (Arc::default(), Events::default());
    let server = fixture.server(rotated.router(noting(&seen, &events))).start().await.unwrap();
    events.wait(2).await;
    server.shutdown().await;
    assert_eq!(*seen.lock().unwrap(), [paid(), paid()]);
}

#[tokio::test]
async fn a_payload_that_cannot_be_decrypted_is_archived_and_spares_the_others() {
    let fixture = Fixture::start().await;
    let encryption = Encryption::new(keys(&[1]));
    let client = encryption.client(fixture.client());
    let unknown = Encryption::new(keys(&[9])).client(fixture.client()).enqueue(paid()).await.unwrap();
    let tampered = client.enqueue(paid()).await.unwrap();
    // Somebody swaps the payload for that of another task.
    let other = client.enqueue(paid()).await.unwrap();
    fixture.inspector().update_payload(QUEUE, &tampered.id, other.payload.clone()).await.unwrap();
    let plain = fixture.client().enqueue(paid()).await.unwrap();
    let (seen, events) = (Arc::default(), Events::default());
    let server = fixture.server(encryption.clone().required().router(noting(&seen, &events))).start().await.unwrap();
    for (id, reason) in [
        (&unknown.id, "encrypted with the key \"key-9\", which this key ring does not have"),
        (&tampered.id, "not encrypted with the key \"key-1\" for this task, or was changed since"),
        (&plain.id, "the payload is not encrypted, and tasks of this type have to be"),
    ] {
        let info = fixture.in_state(id, TaskState::Archived).await;
        let error = info.last_error.unwrap();
        assert!(error.contains(reason), "{error}");
        assert_eq!(info.retried, 0);
    }
    events.wait(1).await;
    server.shutdown().await;
    assert_eq!(*seen.lock().unwrap(), [paid()], "the one that is as it should be");
    // With the key, the archived task works when it is run again.
    let (seen, events) = (Arc::default(), Events::default());
    fixture.inspector().run_task(QUEUE, &unknown.id).await.unwrap();
    let router = Encryption::new(keys(&[1, 9])).router(noting(&seen, &events));
    let server = fixture.server(router).start().await.unwrap();
    events.wait(1).await;
    server.shutdown().await;
}

#[tokio::test]
async fn plain_tasks_of_a_mixed_fleet_still_work() {
    let fixture = Fixture::start().await;
    let encryption = Encryption::new(keys(&[1]));
    fixture.client().enqueue(paid()).await.unwrap();
    let (seen, events) = (Arc::default(), Events::default());
    let server = fixture.server(encryption.router(noting(&seen, &events))).start().await.unwrap();
    events.wait(1).await;
    server.shutdown().await;
}

#[tokio::test]
async fn unique_tasks_exclude_each_other_and_their_locks_tell_nothing() {
    let fixture = Fixture::start().await;
    let client = Encryption::new(keys(&[1])).client(fixture.client());
    let unique = |n: u8| RawTask::new("t").queue(QUEUE).payload(vec![n]).unique(Duration::from_secs(60));
    client.enqueue(unique(1)).await.unwrap();
    let refused = client.enqueue(unique(1)).await.unwrap_err();
    assert!(matches!(refused, EnqueueError::DuplicateTask { .. }), "{refused}");
    client.enqueue(unique(2)).await.unwrap();
    // Who knows the payload cannot find its lock.
    let plain = queue_core::keys::QueueKeys::new(QUEUE).unique("t", Some(&[1]));
    assert_eq!(fixture.cmd::<i64>(&["EXISTS", &plain]).await, 0);
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}:unique:t:*"]).await.len(), 2);
}

#[tokio::test]
async fn a_payload_without_the_fields_to_encrypt_is_refused_and_nothing_is_sent() {
    let fixture = Fixture::start().await;
    let client = Encryption::new(keys(&[1])).fields("t", ["card"]).client(fixture.client());
    let bad = || RawTask::new("t").queue(QUEUE).payload("no JSON");
    let refused = client.enqueue(bad()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "failed to encode the payload as encrypted payload: the field \"card\" cannot be encrypted: what should hold it is no JSON object"
    );
    let mut outcomes = client.enqueue_many([bad(), bad().payload("{}")]).await.into_iter();
    assert!(matches!(outcomes.next(), Some(Err(EnqueueError::Encode(_)))));
    assert!(matches!(outcomes.next(), Some(Ok(_))));
    assert_eq!(fixture.cmd::<i64>(&["LLEN", "asynq:{q}:pending"]).await, 1);
}

#[tokio::test]
async fn a_follow_up_with_copied_headers_is_encrypted_by_itself() {
    let fixture = Fixture::start().await;
    let encryption = Encryption::new(keys(&[1]));
    let client = encryption.client(fixture.client());
    let first = client.enqueue(paid()).await.unwrap();
    let copied: BTreeMap<String, String> = first.headers;
    let follow_up = copied.into_iter().fold(job("follow-up").payload(SECRET), |task, (k, v)| task.header(k, v));
    client.enqueue(follow_up).await.unwrap();
    assert!(!everything(&fixture).await.contains(SECRET));
}

/// It was archived: its headers said that it was encrypted.
#[tokio::test]
async fn a_follow_up_of_another_type_loses_the_headers_that_were_copied() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let encryption = Encryption::new(keys(&[1])).types(["user:paid"]);
    let client = encryption.client(fixture.client());
    let headers = client.enqueue(paid()).await.unwrap().headers;
    assert!(headers.contains_key("x-encrypted"));
    let copied = |task| headers.iter().fold(task, |task: RawTask, (name, value)| task.header(name, value));
    client.enqueue(copied(job("follow-up")).header("tenant", "acme")).await.unwrap();
    let sealed = encryption.seal(copied(job("sealed")).header("tenant", "acme")).unwrap();
    fixture.client().enqueue(sealed).await.unwrap();
    let tell = async |events: Events, job: Job| events.tell(format!("{:?}", job.headers()));
    let router = encryption.router(Router::new(()).route("job", with(&events, tell)).task(async |_: Paid| ()));
    let server = fixture.server(router).start().await.unwrap();
    assert_eq!(events.wait(2).await, [r#"{"tenant": "acme"}"#; 2]);
    server.shutdown().await;
}

/// The inner one took the decrypted payload for one that somebody had changed.
#[tokio::test]
async fn a_router_that_decrypts_may_be_part_of_another_one() {
    let fixture = Fixture::start().await;
    let encryption = Encryption::new(keys(&[1])).required();
    let (seen, events) = (Arc::default(), Events::default());
    let router = encryption.router(encryption.router(noting(&seen, &events)));
    let server = fixture.server(router).start().await.unwrap();
    encryption.client(fixture.client()).enqueue(paid()).await.unwrap();
    events.wait(1).await;
    server.shutdown().await;
    assert_eq!(*seen.lock().unwrap(), [paid()]);
}

/// Servers write it, and have no key.
#[tokio::test]
async fn the_follow_up_of_an_archived_task_is_worked_by_a_handler_behind_the_encryption() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let encryption = Encryption::new(keys(&[1])).required();
    let router = encryption.router(Router::new(()).task(async |_: Paid| Err::<(), _>(Failure::archive("no"))));
    let router = router.route("alert", with(&events, async |events: Events, job: Job| events.tell(job.task_type())));
    let server = fixture.server(router).start().await.unwrap();
    let alert = TaskOptions::new().on_exhausted("alert");
    encryption.client(fixture.client()).enqueue_with(paid(), alert).await.unwrap();
    assert_eq!(events.wait(1).await, ["alert"]);
    server.shutdown().await;
}

/// Nodes, callbacks and broadcasts have their ids when their turn comes, and other ones when they run again.
#[tokio::test]
async fn what_is_enqueued_without_an_id_is_decrypted_too() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let encryption = Encryption::new(keys(&[1]));
    let note = |events: Events, job: Job| async move { events.tell(std::str::from_utf8(job.payload()).unwrap()) };
    let router = encryption.router(Router::new(()).route("job", with(&events, note)));
    let server = fixture.server(router).name("one").start().await.unwrap();
    let client = encryption.client(fixture.client());
    let secret = |name: &str| RawTask::new("job").queue(QUEUE).payload(format!("{SECRET} {name}"));
    let flow = client.workflow().task("a", secret("a")).task("b", secret("b")).after(["a"]);
    let flow = flow.batch("c", [secret("c")]).after(["b"]).on_success(secret("success")).start().await.unwrap();
    assert_eq!(flow.wait(PATIENCE).await.unwrap().state, BatchState::Succeeded);
    events.wait(4).await;
    flow.rerun("b").await.unwrap();
    events.wait(7).await;
    let listed = async || {
        let servers = fixture.inspector().servers().await.unwrap();
        servers.iter().any(|server| server.entry.is_some())
    };
    eventually("the server is listed", listed).await;
    client.broadcast(secret("all")).to(To::live()).queue(QUEUE).send().await.unwrap();
    let mut ran = events.wait(8).await;
    assert!(!everything(&fixture).await.contains(SECRET));
    server.shutdown().await;
    ran.sort();
    let names = ["a", "all", "b", "b", "c", "c", "success", "success"];
    assert_eq!(ran, names.map(|name| format!("{SECRET} {name}")));
}

#[tokio::test]
async fn a_task_that_is_moved_within_its_family_can_be_decrypted() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let encryption = Encryption::new(keys(&[1]));
    let task = job("a").payload(SECRET).priority(9);
    let task = encryption.client(fixture.client()).enqueue(task).await.unwrap();
    fixture.inspector().move_task(&task.queue, "a", None).await.unwrap();
    let note = |events: Events, job: Job| async move { events.tell(std::str::from_utf8(job.payload()).unwrap()) };
    let router = encryption.router(Router::new(()).route("job", with(&events, note)));
    let server = fixture.server(router).start().await.unwrap();
    assert_eq!(events.wait(1).await, [SECRET]);
    server.shutdown().await;
}

/// They were plain, and archived where encryption is required.
#[tokio::test]
async fn what_a_handler_adds_to_its_batch_is_encrypted() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let encryption = Encryption::new(keys(&[1])).required();
    let load = |job: Job| async move {
        let batch = Batch::from_job(&job, &()).await?;
        batch.add_all([RawTask::new("row").queue(QUEUE).payload(SECRET)]).await?;
        Ok::<(), Failure>(())
    };
    let row = |events: Events, job: Job| async move { events.tell(std::str::from_utf8(job.payload()).unwrap()) };
    let router = encryption.router(Router::new(()).route("load", load).route("row", with(&events, row)));
    let server = fixture.server(router).start().await.unwrap();
    let client = encryption.client(fixture.client());
    let batch = client.batch().add_all([RawTask::new("load").queue(QUEUE).payload("x")]).await.unwrap();
    assert_eq!(batch.wait(PATIENCE).await.unwrap().state, BatchState::Succeeded);
    assert_eq!(events.wait(1).await, [SECRET]);
    server.shutdown().await;
}

/// What was published meanwhile was archived, and the last payload was so never worked.
#[tokio::test]
async fn what_is_published_while_a_worker_has_the_task_follows_and_can_be_decrypted() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let encryption = Encryption::new(keys(&[1]));
    let client = encryption.client(fixture.client());
    let publish = async |text: &'static str| {
        client.publish(RawTask::new("job").queue(QUEUE).payload(text)).key("index:7").coalesce().await.unwrap();
    };
    let note = |events: Events, job: Job| async move {
        let text = String::from_utf8_lossy(job.payload()).into_owned();
        events.tell(&text[..]);
        if text == "first" {
            eventually("the others are published", async || events.all().contains(&"published".to_owned())).await;
        }
    };
    let router = encryption.router(Router::new(()).route("job", with(&events, note)));
    let server = fixture.server(router).start().await.unwrap();
    publish("first").await;
    events.wait(1).await;
    publish("second").await;
    events.tell("published");
    assert_eq!(events.wait(3).await, ["first", "published", "second"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_sealed_task_goes_its_way_through_a_plain_client_and_an_aggregator() {
    let fixture = Fixture::start().await;
    let encryption = Encryption::new(keys(&[1]));
    let client: Client = encryption.client(fixture.client());
    for n in 0..3 {
        client.enqueue(job(&n.to_string()).payload(format!("{SECRET}{n}")).group("g")).await.unwrap();
    }
    let events = Events::default();
    let sealing = encryption.clone();
    let router = Router::new(()).route(
        "digest",
        with(&events, async |events: Events, job: Job| {
            events.tell(std::str::from_utf8(job.payload()).unwrap());
        }),
    );
    let router = encryption.router(router).aggregate(move |_: Group, tasks: Vec<SealedTask>| {
        let sealing = sealing.clone();
        async move {
            let opened: Result<Vec<RawTask>, _> = tasks.iter().map(|task| sealing.open(task)).collect();
            let texts: Vec<Vec<u8>> = opened?.into_iter().map(|task| task.payload.unwrap().to_vec()).collect();
            Ok::<_, Failure>(sealing.seal(RawTask::new("digest").payload(texts.join(&b'+')))?)
        }
    });
    let server = fixture.server(router).group_grace_period(Duration::from_secs(1)).start().await.unwrap();
    events.wait(1).await;
    server.shutdown().await;
    assert_eq!(events.all(), ["4242-42420+4242-42421+4242-42422"]);
}

/// Their ciphertext became part of the digest, where no key opens it, and they were deleted.
#[tokio::test]
async fn an_aggregator_that_knows_nothing_of_encryption_archives_encrypted_tasks() {
    let fixture = Fixture::start().await;
    let encryption = Encryption::new(keys(&[1])).fields("user:paid", ["card"]);
    let client = encryption.client(fixture.client());
    client.enqueue(job("raw").payload(SECRET).group("g")).await.unwrap();
    let paid = client.enqueue_with(paid(), TaskOptions::new().group("paid")).await.unwrap();
    let router = Router::new(())
        .aggregate_in(QUEUE, "g", async |_: Group, tasks: Vec<RawTask>| {
            RawTask::new("digest").payload(format!("{tasks:?}"))
        })
        .aggregate_in(QUEUE, "paid", async |_: Group, _: Vec<Paid>| RawTask::new("digest"));
    let router = encryption.router(router);
    let server = fixture.server(router).group_grace_period(Duration::from_secs(1)).start().await.unwrap();
    for id in ["raw", &paid.id] {
        let error = fixture.in_state(id, TaskState::Archived).await.last_error.unwrap();
        assert!(error.contains("takes Vec<SealedTask>"), "{error}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_sealed_payload_is_sent_as_it_is_and_that_of_a_stranger_is_refused() {
    let fixture = Fixture::start().await;
    let encryption = Encryption::new(keys(&[1]));
    let client = encryption.client(fixture.client());
    let sealed = encryption.seal(job("sealed").payload(SECRET)).unwrap();
    let info = client.enqueue(sealed.clone()).await.unwrap();
    assert_eq!(Some(info.payload), sealed.payload);
    let again = Encryption::new(keys(&[2, 1])).seal(sealed.clone()).unwrap();
    assert_eq!((again.payload, again.options.headers), (sealed.payload, sealed.options.headers));
    let foreign = Encryption::new(keys(&[9])).seal(job("foreign").payload(SECRET)).unwrap();
    assert!(encryption.seal(foreign.clone()).is_err());
    let refused = client.enqueue(foreign).await.unwrap_err().to_string();
    assert!(refused.contains("the task is encrypted already") && refused.contains("key-9"), "{refused}");
    assert_eq!(fixture.cmd::<i64>(&["LLEN", "asynq:{q}:pending"]).await, 1);
}

/// Each scheduler, and each start, had an entry of its own.
#[tokio::test]
async fn a_periodic_entry_with_a_sealed_task_has_a_name() {
    let fixture = Fixture::start().await;
    let sealed = || Encryption::new(keys(&[1])).seal(RawTask::new("job").queue(QUEUE).payload(SECRET)).unwrap();
    let scheduler = Scheduler::builder(fixture.redis()).build();
    let refused = scheduler.register(Entry::new("@daily", sealed())).unwrap_err();
    assert_eq!(refused.problem, EntryProblem::Unnamed);
    assert_eq!(scheduler.register(Entry::new("@daily", sealed()).name("bill")).unwrap(), "bill");
}

#[tokio::test]
async fn only_the_types_that_are_named_are_encrypted() {
    let fixture = Fixture::start().await;
    let client = Encryption::new(keys(&[1])).types(["bill", "user:*"]).client(fixture.client());
    let types = [("bill", true), ("bill:late", false), ("user:paid", true), ("user", false), ("other", false)];
    for (task_type, is_named) in types {
        let info = client.enqueue(RawTask::new(task_type).queue(QUEUE).payload(SECRET)).await.unwrap();
        let (is_plain, is_marked) = (info.payload == SECRET, info.headers.contains_key("x-encrypted"));
        assert_eq!((is_plain, is_marked), (!is_named, is_named), "{task_type}");
    }
}

#[tokio::test]
async fn an_interceptor_that_comes_later_sees_no_secret() {
    let fixture = Fixture::start().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let client = Encryption::new(keys(&[1])).client(fixture.client());
    let client = client.intercept(move |task: &mut Outgoing<'_>| noted.lock().unwrap().extend(task.payload().to_vec()));
    client.enqueue(paid()).await.unwrap();
    assert!(!String::from_utf8_lossy(&seen.lock().unwrap()).contains(SECRET));
    eventually("the task is there", || async { fixture.cmd::<i64>(&["LLEN", "asynq:{q}:pending"]).await == 1 }).await;
}

//! Groups of tasks become one task each.

use std::sync::Arc;
use std::time::Duration;

use queue_core::{Clock as _, RawTask, SystemClock, TaskState};
use queue_redis::{Listener, Signal, broker::Aggregated};
use queue_worker::{Aggregation, Failure, Group, Handle, Job, Router, State, Task};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::support::{Events, Fixture, QUEUE, RULES, eventually, job, with};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "job", queue = "q", group = "typed")]
struct Note {
    text: String,
}

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "digest")]
struct Digest {
    group: String,
    texts: Vec<String>,
}

/// Tells of each aggregate and of each task that runs, and joins payloads.
pub(super) fn joining(events: &Events) -> Router<Events> {
    let join = async |Group(group): Group, tasks: Vec<RawTask>, State(events): State<Events>| {
        let mut texts: Vec<String> =
            tasks.iter().map(|task| String::from_utf8(task.payload.clone().unwrap().to_vec()).unwrap()).collect();
        texts.sort();
        events.tell(format!("{group}: {}", texts.join(",")));
        RawTask::new("digest").payload(texts.join(","))
    };
    let tell = with(events, async |events: Events, job: Job| {
        events.tell(format!("{} {} in {}", job.task_type(), String::from_utf8_lossy(job.payload()), job.queue()));
    });
    Router::new(events.clone()).aggregate(join).fallback(tell)
}

pub(super) fn note(id: &str, group: &str) -> RawTask {
    job(id).payload(id.to_owned()).group(group)
}

pub(super) async fn ended(fixture: &Fixture, server: Handle) -> String {
    server.shutdown().await;
    fixture.keyspace().await.to_string()
}

#[tokio::test]
async fn a_quiet_group_becomes_one_task_in_its_queue() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let server = fixture.server(joining(&events)).group_grace_period(SECOND).start().await.unwrap();
    fixture.enqueue([note("a", "g"), note("b", "g"), note("c", "other").unique(HOUR)]).await;
    let mut told = events.wait(4).await;
    told.sort();
    assert_eq!(told, ["digest a,b in q", "digest c in q", "g: a,b", "other: c"]);
    eventually("both are processed", async || fixture.count("processed").await == 2).await;
    let left = ended(&fixture, server).await;
    assert!(left.lines().all(|line| line.contains("processed") || line.contains("queues")), "{left}");
}

#[tokio::test]
async fn a_typed_aggregator_gets_values_and_returns_one() {
    let fixture = Fixture::start().await;
    let digest = async |Group(group): Group, notes: Vec<Note>, aggregation: Aggregation| {
        assert_eq!((aggregation.group(), aggregation.queue()), (&*group, QUEUE));
        Ok::<_, Failure>(Digest { group, texts: notes.into_iter().map(|note| note.text).collect() })
    };
    let events = Events::default();
    let read = async |digest: Digest, State(events): State<Events>| {
        events.tell(format!("{} {:?}", digest.group, digest.texts));
    };
    let router = Router::new(events.clone()).aggregate(digest).task(read);
    let server = fixture.server(router).group_grace_period(SECOND).start().await.unwrap();
    let client = fixture.client();
    client.enqueue(Note { text: "hello".into() }).await.unwrap();
    assert_eq!(events.wait(1).await, [r#"typed ["hello"]"#]);
    server.shutdown().await;
}

/// Grace and delay are far away, so that only its size can be the reason.
#[tokio::test]
async fn a_full_group_is_aggregated_at_once_and_never_with_more_than_it_may_have() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let server = fixture.server(joining(&events)).group_grace_period(HOUR).group_max_size(2).start().await.unwrap();
    fixture.enqueue(["a", "b", "c", "d", "e"].map(|id| note(id, "g"))).await;
    let told = events.wait(4).await;
    let aggregates: Vec<&String> = told.iter().filter(|told| told.starts_with("g:")).collect();
    assert_eq!(aggregates, ["g: a,b", "g: c,d"]);
    fixture.in_state("e", TaskState::Aggregating).await;
    let left = ended(&fixture, server).await;
    assert!(left.contains("{q}:groups g: member"), "{left}");
}

#[tokio::test]
async fn a_group_that_is_never_quiet_is_aggregated_after_its_longest_delay() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let server = fixture.server(joining(&events)).group_grace_period(HOUR).group_max_delay(SECOND);
    fixture.enqueue([note("a", "g")]).await;
    let server = server.start().await.unwrap();
    assert_eq!(events.wait(2).await, ["g: a", "digest a in q"]);
    server.shutdown().await;
}

/// This is what wakes the look at groups.
#[tokio::test]
async fn a_new_task_in_a_group_that_was_looked_at_is_signalled() {
    let fixture = Fixture::start().await;
    let mut listener = Listener::connect(&fixture.redis()).await.unwrap();
    let mut watch = listener.watch().expect("this Redis can track");
    watch.groups(QUEUE).await.unwrap();
    fixture.enqueue([note("a", "g")]).await;
    assert_eq!(signal(&mut listener).await, Signal::Groups(QUEUE.to_owned()), "there is a new group");
    watch.groups(QUEUE).await.unwrap();
    fixture.enqueue([note("b", "g")]).await;
    assert_eq!(signal(&mut listener).await, Signal::Group(QUEUE.to_owned(), "g".to_owned()), "the group has one more");
}

async fn signal(listener: &mut Listener) -> Signal {
    tokio::time::timeout(Duration::from_secs(30), listener.signal()).await.expect("nothing was signalled")
}

#[tokio::test]
async fn a_slow_aggregation_does_not_hold_up_other_groups_and_keeps_its_tasks() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), Arc::new(Notify::new()));
    let join = async |Group(group): Group, tasks: Vec<RawTask>, State(both): State<(Events, Arc<Notify>)>| {
        both.0.tell(&*group);
        if group == "slow" {
            both.1.notified().await;
        }
        RawTask::new("digest").payload(tasks.len().to_string()).retention(HOUR).task_id(group)
    };
    let router = Router::new((events.clone(), door.clone())).aggregate(join).fallback(async |_: Job| {});
    let server = fixture.server(router).group_grace_period(SECOND).start().await.unwrap();
    fixture.enqueue([note("a", "slow")]).await;
    events.wait(1).await;
    let deadline = async || fixture.broker.aggregation_sets(QUEUE).await.unwrap()[0].deadline;
    let first = deadline().await;
    fixture.enqueue([note("b", "quick")]).await;
    fixture.in_state("quick", TaskState::Completed).await;
    eventually("the deadline is moved", async || deadline().await > first).await;
    door.notify_one();
    fixture.in_state("slow", TaskState::Completed).await;
    server.shutdown().await;
}

/// asynq loses the group of a scheduled task (W21); a task that was run out of its group by hand goes back
/// to it when it fails, and asynq then forgets the group (W20).
#[tokio::test]
async fn scheduled_and_retried_tasks_keep_their_group() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let fail = async |_: Job| Err::<(), Failure>(Failure::retry_in(Duration::ZERO, "not alone"));
    let router = joining(&events).route_exact("job", fail);
    let server = fixture.server(router).group_grace_period(SECOND);
    fixture.enqueue([note("late", "scheduled").process_in(SECOND), note("again", "retried")]).await;
    // As the Inspector of either side runs it.
    fixture.run("ZREM asynq:{q}:g:retried again").await;
    fixture.run("SREM asynq:{q}:groups retried").await;
    fixture.run("HSET asynq:{q}:t:again state pending").await;
    fixture.run("LPUSH asynq:{q}:pending again").await;
    let server = server.start().await.unwrap();
    let mut told = events.wait(4).await;
    told.sort();
    assert_eq!(told, ["digest again in q", "digest late in q", "retried: again", "scheduled: late"]);
    server.shutdown().await;
}

#[tokio::test]
async fn without_an_aggregator_tasks_stay_in_their_groups() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    fixture.enqueue([note("a", "g")]).await;
    let server = fixture.server(Router::new(()).fallback(tell)).group_grace_period(SECOND);
    let before = fixture.keyspace().await;
    let server = server.start().await.unwrap();
    tokio::time::sleep(2 * SECOND).await;
    server.shutdown().await;
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert_eq!(events.count(), 0);
}

#[tokio::test]
async fn tasks_join_a_group_while_it_is_aggregated_and_wait_for_the_next_time() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), Arc::new(Notify::new()));
    let join = async |_: Group, tasks: Vec<RawTask>, State((events, door)): State<(Events, Arc<Notify>)>| {
        events.tell(tasks.len().to_string());
        door.notified().await;
        RawTask::new("digest")
    };
    let router = Router::new((events.clone(), door.clone())).aggregate(join).fallback(async |_: Job| {});
    let server = fixture.server(router).group_grace_period(SECOND).start().await.unwrap();
    fixture.enqueue([note("a", "g"), note("b", "g")]).await;
    events.wait(1).await;
    fixture.enqueue([note("c", "g")]).await;
    door.notify_one();
    events.wait(2).await;
    door.notify_one();
    eventually("both digests ran", async || fixture.count("processed").await == 2).await;
    assert_eq!(events.all(), ["2", "1"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_group_of_many_becomes_one_task() {
    let fixture = Fixture::start().await;
    fixture.enqueue((0..1_234).map(|n| job(&n.to_string()).group("g").payload("x"))).await;
    let count = async |_: Group, tasks: Vec<RawTask>| {
        RawTask::new("digest").payload(tasks.len().to_string()).retention(HOUR).task_id("sum")
    };
    let router = Router::new(()).aggregate(count).fallback(async |_: Job| {});
    let server = fixture.server(router).group_grace_period(SECOND).start().await.unwrap();
    let sum = fixture.in_state("sum", TaskState::Completed).await;
    assert_eq!(&sum.payload[..], b"1234");
    eventually("all are deleted", async || fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}:t:*"]).await.len() == 1)
        .await;
    let left = ended(&fixture, server).await;
    assert!(!left.contains("aggregated") && !left.contains(":g:"), "{left}");
}

#[tokio::test]
async fn any_server_reclaims_a_lost_set_and_its_late_owner_is_refused() {
    let fixture = Fixture::start().await;
    let now = SystemClock.now_secs();
    fixture.enqueue([note("a", "g"), note("b", "g")]).await;
    let mut set = fixture.broker.stage(&QUEUE.into(), "g", "s1", RULES, now + 60, now).await.unwrap().unwrap();
    let tasks = fixture.broker.read_set(&mut set).await.unwrap().unwrap();
    let server = fixture.server(Router::new(())).start().await.unwrap();
    eventually("the group is listed", async || fixture.broker.has_groups(QUEUE).await.unwrap()).await;
    let digest = fixture.compose(RawTask::new("digest").queue(QUEUE));
    let late = fixture.broker.aggregate(&set, &tasks, Some(&digest), SystemClock.now_ns()).await.unwrap();
    assert_eq!(late, Aggregated::Lost);
    let left = ended(&fixture, server).await;
    for fact in ["{q}:groups g: member", "{q}:g:g a: score", "{q}:g:g b: score"] {
        assert!(left.contains(fact), "{left}");
    }
    assert!(!left.contains("s1") && !left.contains("digest"), "{left}");
}

/// W19: Go's reclaiming does not list the group.
#[tokio::test]
async fn reclaimer_lists_a_group_again_that_go_has_reclaimed() {
    let fixture = Fixture::start().await;
    let now = SystemClock.now_secs();
    fixture.enqueue([note("a", "g"), note("b", "seen")]).await;
    for (group, id, deadline) in [("g", "s1", now + 120), ("seen", "s2", now)] {
        fixture.broker.stage(&QUEUE.into(), group, id, RULES, now + 60, deadline).await.unwrap().unwrap();
    }
    let server = fixture.server(Router::new(())).start().await.unwrap();
    // It has been put back by the look that also saw the other set.
    let is_listed = async |group| fixture.cmd::<bool>(&["SISMEMBER", "asynq:{q}:groups", group]).await;
    eventually("the server has looked", async || is_listed("seen").await).await;
    fixture.run("ZREM asynq:{q}:aggregation_sets asynq:{q}:g:g:s1").await;
    fixture.run("RENAME asynq:{q}:g:g:s1 asynq:{q}:g:g").await;
    eventually("the group is listed", async || is_listed("g").await).await;
    server.shutdown().await;
}

#[tokio::test]
async fn each_queue_and_prefix_can_have_its_aggregator_and_other_groups_stay() {
    let fixture = Fixture::start().await;
    let events = <Events>::default();
    let tell = |name: &'static str| {
        move |Group(group): Group, tasks: Vec<RawTask>, State(events): State<Events>| async move {
            events.tell(format!("{name} {group} {}", tasks.len()));
            Err::<RawTask, _>(Failure::revoke("told"))
        }
    };
    let router = Router::new(events.clone())
        .aggregate_in("q", "user:", tell("users"))
        .aggregate_in("q", "user:vip:", tell("important"))
        .aggregate_in("other", "", tell("others"));
    let server = fixture.server(router).queues([("q", 1), ("other", 1), ("third", 1)]).group_grace_period(SECOND);
    fixture.enqueue([note("left", "team:1"), note("third", "user:1").queue("third")]).await;
    let server = server.start().await.unwrap();
    let tasks = [note("a", "user:1"), note("b", "user:1"), note("c", "user:vip:1"), note("d", "team:1").queue("other")];
    fixture.enqueue(tasks).await;
    let mut told = events.wait(3).await;
    told.sort();
    assert_eq!(told, ["important user:vip:1 1", "others team:1 1", "users user:1 2"]);
    eventually("what was told of is gone", async || fixture.broker.aggregation_sets("q").await.unwrap().is_empty())
        .await;
    let left = ended(&fixture, server).await;
    assert!(left.contains("{q}:g:team:1") && left.contains("{third}:g:user:1"), "{left}");
    assert!(!left.contains("{q}:g:user"), "{left}");
}

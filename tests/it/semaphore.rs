//! Semaphores: the same keys as Go's `x/rate`.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use queue_core::{Clock, TaskState};
use queue_redis::{Permit, Semaphore};
use queue_worker::{Failure, Job, Router, State};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::support::{Events, Fixture, Hanging, NOW, eventually, is_wrong_type, job};

/// Stands still, with half a second gone.
#[derive(Debug)]
struct Fixed(i64);

impl Clock for Fixed {
    fn now_ns(&self) -> i64 {
        self.0 * 1_000_000_000 + 500_000_000
    }
}

fn at(secs: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(secs).unwrap())
}

fn semaphore(fixture: &Fixture, tokens: u32, now: i64) -> Semaphore {
    Semaphore::with_clock(fixture.redis(), "mail", tokens, Arc::new(Fixed(now))).correct_clock(false)
}

async fn take(semaphore: &Semaphore, holder: &str, until: i64) -> Option<Permit> {
    semaphore.acquire(holder, at(until)).await.unwrap()
}

/// Who holds tokens, and the second at which they are lost. Their scores are less by a part of a second each.
async fn holders(fixture: &Fixture) -> Vec<(String, i64)> {
    let held: Vec<(String, f64)> = fixture.cmd(&["ZRANGE", "asynq:sema:mail", "0", "-1", "WITHSCORES"]).await;
    assert!(held.iter().all(|(_, score)| score.fract() != 0.0), "{held:?}");
    held.into_iter().map(|(holder, score)| (holder, score.ceil() as i64)).collect()
}

#[tokio::test]
async fn as_many_hold_a_token_as_there_are_and_others_get_none() {
    let fixture = Fixture::start().await;
    let mail = semaphore(&fixture, 2, NOW);
    let a = take(&mail, "a", NOW + 10).await.unwrap();
    let b = mail.acquire("b", at(NOW + 20) + Duration::from_millis(1)).await.unwrap().unwrap();
    let before = fixture.keyspace().await;
    assert_eq!(holders(&fixture).await, [("a".to_owned(), NOW + 10), ("b".to_owned(), NOW + 21)]);
    assert!(take(&mail, "c", NOW + 10).await.is_none());
    assert_eq!(mail.held().await.unwrap(), 2);
    fixture.keyspace().await.assert_unchanged_since(&before);
    assert!(a.release().await.unwrap());
    let c = take(&mail, "c", NOW + 30).await.unwrap();
    assert!(b.release().await.unwrap() && c.release().await.unwrap());
    assert_eq!(fixture.keyspace().await.to_string(), "");
}

#[tokio::test]
async fn a_holder_has_its_token_again_until_the_new_deadline_and_the_late_one_cannot_give_it_back() {
    let fixture = Fixture::start().await;
    // The second on another server, or from another attempt with the same deadline.
    for deadline in [NOW + 20, NOW + 10] {
        let first = take(&semaphore(&fixture, 1, NOW), "a", NOW + 10).await.unwrap();
        let again = take(&semaphore(&fixture, 1, NOW), "a", deadline).await.unwrap();
        assert_eq!(holders(&fixture).await, [("a".to_owned(), deadline)]);
        assert!(!first.release().await.unwrap());
        assert_eq!(holders(&fixture).await, [("a".to_owned(), deadline)]);
        assert!(again.release().await.unwrap());
    }
}

#[tokio::test]
async fn a_token_that_is_taken_again_right_after_its_permit_was_dropped_is_held() {
    let fixture = Fixture::start().await;
    let mail = semaphore(&fixture, 1, NOW);
    for _ in 0..20 {
        drop(take(&mail, "a", NOW + 10).await.unwrap());
        let again = take(&mail, "a", NOW + 10).await.unwrap();
        // What gives the first one back arrives.
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(take(&mail, "b", NOW + 10).await.is_none());
        assert!(again.release().await.unwrap());
    }
}

#[tokio::test]
async fn a_token_with_two_permits_is_given_back_with_the_last_of_them() {
    let fixture = Fixture::start().await;
    let mail = semaphore(&fixture, 1, NOW);
    let outer = take(&mail, "a", NOW + 10).await.unwrap();
    assert!(take(&mail.clone(), "a", NOW + 20).await.unwrap().release().await.unwrap());
    drop(take(&mail, "a", NOW + 15).await.unwrap());
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(holders(&fixture).await, [("a".to_owned(), NOW + 15)]);
    assert!(outer.release().await.unwrap());
    assert_eq!(fixture.keyspace().await.to_string(), "");
}

/// Which the double of a score holds exactly up to the year 2242.
#[tokio::test]
async fn a_token_is_known_by_its_mark_whenever_it_is_lost() {
    let fixture = Fixture::start().await;
    let mail = semaphore(&fixture, 1, NOW);
    for deadline in [NOW + 1, (1 << 33) - 1, 1 << 33, 1 << 40] {
        for _ in 0..100 {
            assert!(take(&mail, "a", deadline).await.unwrap().release().await.unwrap(), "{deadline}");
        }
    }
}

#[tokio::test]
async fn a_token_is_lost_a_second_after_its_deadline() {
    let fixture = Fixture::start().await;
    let gone = take(&semaphore(&fixture, 1, NOW), "gone", NOW + 10).await.unwrap();
    assert!(take(&semaphore(&fixture, 1, NOW + 10), "next", NOW + 60).await.is_none());
    let next = take(&semaphore(&fixture, 1, NOW + 11), "next", NOW + 60).await.unwrap();
    assert!(!gone.release().await.unwrap());
    assert_eq!(holders(&fixture).await, [("next".to_owned(), NOW + 60)]);
    drop(next);
    eventually("the token is given back", async || fixture.cmd::<u64>(&["EXISTS", "asynq:sema:mail"]).await == 0).await;
}

#[tokio::test]
async fn release_by_name_says_whether_there_was_a_token() {
    let fixture = Fixture::start().await;
    let mail = semaphore(&fixture, 1, NOW);
    std::mem::forget(take(&mail, "a", NOW + 10).await.unwrap());
    assert!(mail.release("a").await.unwrap());
    assert!(!mail.release("a").await.unwrap());
}

#[tokio::test]
async fn acquire_fails_where_redis_refuses() {
    let fixture = Fixture::start().await;
    let mail = semaphore(&fixture, 1, NOW);
    let acquire = async || mail.acquire("a", at(NOW + 10)).await;
    assert!(is_wrong_type(&fixture.with_stray("asynq:sema:mail", acquire).await.unwrap_err()));
    assert!(is_wrong_type(&fixture.with_stray("asynq:sema:mail", async || mail.release("a").await).await.unwrap_err()));
}

#[tokio::test]
async fn a_token_whose_answer_never_came_is_given_back() {
    let fixture = Fixture::start().await;
    let mail = semaphore(&fixture, 1, NOW);
    mail.held().await.unwrap();
    let hanging = Hanging::begin(fixture.url()).await;
    let lost = tokio::time::timeout(Duration::from_millis(50), mail.acquire("a", at(NOW + 10))).await;
    assert!(lost.is_err(), "Redis hangs");
    drop(hanging);
    eventually("another can have it", async || {
        take(&mail, "b", NOW + 10).await.is_some_and(|b| {
            std::mem::forget(b);
            true
        })
    })
    .await;
    eventually("the first is gone", async || holders(&fixture).await == [("b".to_owned(), NOW + 10)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_hold_a_token_than_there_are() {
    let fixture = Fixture::start().await;
    let mut holders = JoinSet::new();
    for n in 0..50 {
        let mail = Semaphore::new(fixture.another_redis(), "mail", 7);
        holders.spawn(async move { mail.acquire(&n.to_string(), at(NOW)).await.unwrap() });
    }
    let permits: Vec<Permit> = holders.join_all().await.into_iter().flatten().collect();
    assert_eq!(permits.len(), 7);
    assert_eq!(fixture.cmd::<u64>(&["ZCARD", "asynq:sema:mail"]).await, 7);
}

#[tokio::test]
async fn a_handler_takes_a_token_in_the_name_of_its_task_and_puts_itself_back_without_one() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), Arc::new(Notify::new()));
    let mail = Semaphore::new(fixture.redis(), "mail", 1);
    type App = (Semaphore, Events, Arc<Notify>);
    let send = |(mail, events, door): App| {
        move |job: Job| {
            let (mail, events, door) = (mail.clone(), events.clone(), door.clone());
            async move {
                let Some(_permit) = job.acquire(&mail).await? else {
                    return Err(Failure::snooze(Duration::ZERO, "busy"));
                };
                events.tell(job.id());
                door.notified().await;
                Ok(())
            }
        }
    };
    let router = Router::new(()).route("job", send((mail, events.clone(), door.clone())));
    let server = fixture.server(router).concurrency(2).start().await.unwrap();
    fixture.enqueue([job("a").timeout(Duration::from_secs(100))]).await;
    events.wait(1).await;
    assert!(fixture.keyspace().await.get("sema:mail a").is_some());
    fixture.enqueue([job("b").max_retry(0)]).await;
    let waiting = fixture.in_state("b", TaskState::Retry).await;
    assert_eq!((waiting.retried, waiting.last_error.as_deref()), (0, Some("busy")));
    door.notify_one();
    assert_eq!(events.wait(2).await, ["a", "b"]);
    door.notify_one();
    fixture.gone("b").await;
    eventually("no token is held", async || fixture.cmd::<u64>(&["EXISTS", "asynq:sema:mail"]).await == 0).await;
    assert_eq!(fixture.count("failed").await, 0);
    server.shutdown().await;
}

#[tokio::test]
async fn a_semaphore_is_a_state_like_any_other() {
    async fn handler(job: Task, State(mail): State<Semaphore>, this: Job) -> Result<(), Failure> {
        let _: Task = job;
        this.acquire(&mail).await?.map(drop).ok_or_else(|| "busy".into())
    }
    #[derive(serde::Serialize, serde::Deserialize, queue_worker::Task)]
    #[task(type = "job")]
    struct Task;
    let fixture = Fixture::start().await;
    let mail = Semaphore::new(fixture.redis(), "mail", 1);
    let server = fixture.server(Router::new(mail).task(handler)).start().await.unwrap();
    fixture.enqueue([job("a").payload("null")]).await;
    fixture.gone("a").await;
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (1, 0));
    server.shutdown().await;
}

#[tokio::test]
#[should_panic(expected = "at least one token")]
async fn a_semaphore_without_tokens_makes_no_sense() {
    let fixture = Fixture::start().await;
    Semaphore::new(fixture.redis(), "mail", 0);
}

/// A host an hour fast took the tokens of all others, and one an hour slow lost its own to the next who asked.
#[tokio::test]
async fn a_holder_whose_clock_is_wrong_takes_no_token_away_and_keeps_its_own() {
    let fixture = Fixture::start().await;
    let now = queue_core::SystemClock.now_secs();
    for wrong_by in [3600, -3600] {
        let clock = Arc::new(Fixed(now + wrong_by));
        let right = Semaphore::new(fixture.redis(), "mail", 1);
        let wrong = Semaphore::with_clock(fixture.redis(), "mail", 1, clock);
        let permit = take(&right, "a", now + 60).await.unwrap();
        assert!(take(&wrong, "b", now + wrong_by + 60).await.is_none(), "wrong by {wrong_by} s");
        assert_eq!(wrong.held().await.unwrap(), 1);
        assert!(permit.release().await.unwrap());

        let permit = take(&wrong, "b", now + wrong_by + 60).await.unwrap();
        let expires = holders(&fixture).await[0].1;
        assert!((now + 59..now + 75).contains(&expires), "it lasts {} s, wrong by {wrong_by} s", expires - now);
        assert!(take(&right, "a", now + 60).await.is_none());
        assert!(permit.release().await.unwrap(), "wrong by {wrong_by} s");
    }
}

//! Entries that come, change and go while the scheduler runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_admin::Page;
use queue_core::RawTask;
use queue_scheduler::{BoxError, Entry, EntryProblem, Missed, SchedulerError};

use super::{HOUR, MINUTE, START, Stage, enqueued, entry};
use crate::support::{Events, eventually};

#[tokio::test]
async fn an_entry_can_be_added_replaced_and_taken_away() {
    let stage = Stage::new().await;
    let scheduler = stage.start([]).await;
    assert_eq!(scheduler.register(entry("e", "* * * * *")).unwrap(), "e");
    assert_eq!(scheduler.register(entry("e", "@daily")).unwrap_err().problem, EntryProblem::Duplicate);
    assert_eq!(scheduler.update(entry("other", "@daily")).unwrap_err().problem, EntryProblem::Unknown);
    stage.upto("e", 0).await;
    stage.tick("e", MINUTE).await;
    scheduler.update(entry("e", "*/2 * * * *")).unwrap();
    assert!(scheduler.update(entry("e", "bad")).is_err());
    assert_eq!(scheduler.entries(), ["e"]);
    eventually("Redis knows the new spec", async || {
        stage.fixture.keyspace().await.get("{q}:x:cron:e spec") == Some("CRON_TZ=UTC */2 * * * *")
    })
    .await;
    stage.at(4 * MINUTE);
    stage.upto("e", 4 * MINUTE).await;
    scheduler.unregister("e").unwrap();
    assert_eq!(scheduler.unregister("e").unwrap_err().problem, EntryProblem::Unknown);
    eventually("Redis knows that it is gone", async || {
        stage.fixture.inspector().cron_entries().await.unwrap().is_empty()
    })
    .await;
    stage.at(9 * MINUTE);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(stage.pending().await, ["e+60", "e+240"], "+120 is two minutes late, and let go");
    // It comes back, and has missed nothing.
    scheduler.register(entry("e", "* * * * *").missed(Missed::All(10))).unwrap();
    stage.upto("e", 8 * MINUTE).await;
    stage.tick("e", 10 * MINUTE).await;
    assert_eq!(stage.pending().await[2..], ["e+540", "e+600"], "the present minute, and the next");
    scheduler.shutdown().await;
    assert!(matches!(scheduler.start().await, Err(SchedulerError::Started)));
}

#[tokio::test]
async fn an_entry_that_had_its_runs_and_comes_back_has_them_again() {
    let stage = Stage::new().await;
    let once = || entry("e", "* * * * *").max_runs(1);
    let scheduler = stage.start([once()]).await;
    stage.tick("e", MINUTE).await;
    stage.tick("e", 2 * MINUTE).await;
    assert_eq!(stage.pending().await, ["e+60"]);
    scheduler.unregister("e").unwrap();
    eventually("Redis knows that it is gone", async || {
        stage.fixture.inspector().cron_entries().await.unwrap().is_empty()
    })
    .await;
    scheduler.register(once()).unwrap();
    for tick in 3..=5 {
        stage.tick("e", tick * MINUTE).await;
    }
    assert_eq!(stage.pending().await.len(), 2);
    scheduler.shutdown().await;
}

#[tokio::test]
async fn a_new_payload_does_not_disturb_the_ticks() {
    let stage = Stage::new().await;
    let with = |payload: &str| {
        let task = RawTask::new("job").queue("q").payload(payload.to_owned());
        Entry::new("@hourly", task).name("e").missed(Missed::All(10))
    };
    let scheduler = stage.start([with("old")]).await;
    scheduler.shutdown().await;
    stage.at(2 * HOUR + 600);
    let _scheduler = stage.start([with("new")]).await;
    stage.upto("e", 2 * HOUR).await;
    assert_eq!(stage.pending().await, ["e+3600", "e+7200"], "what was missed is still known");
    let tasks = stage.fixture.inspector().tasks("q", queue_core::TaskState::Pending, Page::default()).await.unwrap();
    assert!(tasks.iter().all(|task| task.payload == "new"));
}

/// It ran once for each tick between its end and the change, as if these had been missed.
#[tokio::test]
async fn an_entry_whose_end_is_put_off_when_it_is_over_has_missed_nothing() {
    let stage = Stage::new().await;
    let until = |secs: i64| {
        let end = std::time::UNIX_EPOCH + Duration::from_secs((START + secs).unsigned_abs());
        entry("e", "* * * * *").missed(Missed::All(10)).ends(end)
    };
    let scheduler = stage.start([until(2 * MINUTE)]).await;
    stage.tick("e", MINUTE).await;
    stage.tick("e", 2 * MINUTE).await;
    stage.at(HOUR);
    scheduler.update(until(2 * HOUR)).unwrap();
    stage.upto("e", HOUR).await;
    stage.tick("e", HOUR + MINUTE).await;
    assert_eq!(stage.pending().await, ["e+60", "e+120", "e+3600", "e+3660"], "the present minute, and the next");
    // One that is not over has missed what came while no scheduler ran.
    scheduler.shutdown().await;
    stage.at(HOUR + 5 * MINUTE);
    let _scheduler = stage.start([until(3 * HOUR)]).await;
    stage.upto("e", HOUR + 5 * MINUTE).await;
    assert_eq!(stage.pending().await[4..], ["e+3720", "e+3780", "e+3840", "e+3900"]);
}

/// A provider whose answer the test sets, and what the scheduler complains about.
type Provided = Arc<Mutex<Result<Vec<Entry>, String>>>;

async fn provided(stage: &Stage, first: Vec<Entry>) -> (queue_scheduler::Scheduler, Provided, Events<String>) {
    let answer: Provided = Arc::new(Mutex::new(Ok(first)));
    let (source, problems) = (answer.clone(), Events::default());
    let complaints: Events<String> = problems.clone();
    let provider = move || {
        let answer = source.lock().unwrap().clone();
        async move { answer.map_err(BoxError::from) }
    };
    let scheduler = stage
        .builder()
        .provider(provider, Duration::from_millis(5))
        .on_problem(move |problem| complaints.tell(problem.to_string()))
        .build();
    scheduler.start().await.unwrap();
    (scheduler, answer, problems)
}

#[tokio::test]
async fn entries_follow_their_provider_and_a_bad_one_leaves_the_others_alone() {
    let stage = Stage::new().await;
    let (scheduler, answer, problems) = provided(&stage, vec![entry("a", "* * * * *"), entry("b", "* * * * *")]).await;
    scheduler.register(entry("by-hand", "@daily")).unwrap();
    assert_eq!(scheduler.entries(), ["a", "b", "by-hand"]);
    // a cannot be read any more and goes on as it was; b changes; c is new, twice; one has the name of another.
    *answer.lock().unwrap() = Ok(vec![
        entry("a", "61 * * * *"),
        entry("b", "*/2 * * * *"),
        entry("c", "* * * * *"),
        entry("c", "@daily"),
        entry("by-hand", "@hourly"),
        Entry::broken("d", "line 7: no spec"),
    ]);
    problems.wait(4).await;
    assert_eq!(scheduler.entries(), ["a", "b", "by-hand", "c"]);
    let mut complaints = problems.all()[..4].to_vec();
    complaints.sort();
    assert_eq!(
        complaints,
        [
            "entry \"a\": spec \"61 * * * *\": minute \"61\": 61 is not in 0-59",
            "entry \"by-hand\": there is another entry of this name",
            "entry \"c\": there is another entry of this name",
            "entry \"d\": line 7: no spec",
        ]
    );
    for name in ["a", "b", "c"] {
        stage.upto(name, 0).await;
    }
    stage.at(MINUTE);
    let mut told = stage.told.wait(2).await;
    told.sort();
    assert_eq!(told, [enqueued("a", MINUTE), enqueued("c", MINUTE)]);
    // A provider that fails changes nothing.
    *answer.lock().unwrap() = Err("no database".to_owned());
    eventually("the failure is told", async || {
        problems.all().contains(&"the provider of entries failed: no database".to_owned())
    })
    .await;
    assert_eq!(scheduler.entries(), ["a", "b", "by-hand", "c"]);
    // One without a name that cannot be read may be any of them.
    *answer.lock().unwrap() = Ok(vec![entry("c", "* * * * *"), Entry::broken("", "line 9: no spec")]);
    eventually("it is told", async || problems.all().iter().any(|problem| problem.contains("line 9"))).await;
    assert_eq!(scheduler.entries(), ["a", "b", "by-hand", "c"]);
    *answer.lock().unwrap() = Ok(vec![entry("c", "* * * * *")]);
    eventually("the entries follow", async || scheduler.entries() == ["by-hand", "c"]).await;
    scheduler.shutdown().await;
}

/// Go registers both, and can never remove the second (W42).
#[tokio::test]
async fn two_entries_without_a_difference_are_one() {
    let stage = Stage::new().await;
    let same = || Entry::new("* * * * *", RawTask::new("job").queue("q"));
    let (scheduler, answer, problems) = provided(&stage, vec![same(), same()]).await;
    assert_eq!(scheduler.entries().len(), 1);
    problems.wait(1).await;
    *answer.lock().unwrap() = Ok(vec![]);
    eventually("it is gone", async || scheduler.entries().is_empty()).await;
}

#[tokio::test]
async fn a_start_fails_when_there_is_no_first_answer_and_can_be_repeated() {
    let stage = Stage::new().await;
    let answers = Arc::new(Mutex::new(vec![true, false]));
    let provider = move || {
        let answer = answers.lock().unwrap().pop().unwrap_or(true);
        async move { if answer { Ok(vec![entry("e", "@daily")]) } else { Err(BoxError::from("no database")) } }
    };
    let scheduler = stage.builder().provider(provider, Duration::from_secs(60)).build();
    assert!(matches!(scheduler.start().await, Err(SchedulerError::Provider(_))));
    scheduler.start().await.unwrap();
    assert_eq!(scheduler.entries(), ["e"]);
}

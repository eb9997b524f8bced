//! The leader, and what it has done.

use queue_redis::leader::Duty;

use super::*;

impl Parts {
    /// A leader of this id that does this duty.
    fn leader(&self, id: &str, duty: &Probe) -> Leader {
        let duties: Arc<[Arc<dyn Duty>]> = Arc::new([Arc::new(duty.clone())]);
        Leader::new(self.broker.clone(), self.clock.clone(), id, duties).looks(Duration::from_secs(8))
    }

    async fn ask(&self, duty: &str, in_seconds: i64) {
        self.broker.ask_for_duty(duty, "s", (NOW + in_seconds) * 1_000).await.unwrap();
    }
}

/// A duty that notes its looks, and answers each with what comes next.
#[derive(Clone, Default)]
struct Probe {
    looks: Arc<AtomicUsize>,
    answers: Arc<Mutex<Vec<Answer>>>,
}

enum Answer {
    Again(u64),
    Panic,
    /// Somebody asks for it while it is looked at.
    Ask(Broker),
    /// For longer than a look may take.
    Stuck(Arc<ManualClock>),
    /// For longer than a duty is held at once.
    Long(Arc<ManualClock>),
}

impl Probe {
    fn looks(&self) -> usize {
        self.looks.load(Ordering::SeqCst)
    }

    fn then(&self, answer: Answer) {
        self.answers.lock().unwrap().insert(0, answer);
    }
}

impl Duty for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn look<'a>(&'a self, subject: &'a str) -> futures_util::future::BoxFuture<'a, Result<Option<Duration>, Error>> {
        assert_eq!(subject, "s");
        self.looks.fetch_add(1, Ordering::SeqCst);
        let answer = self.answers.lock().unwrap().pop();
        Box::pin(async move {
            match answer {
                None => Ok(None),
                Some(Answer::Again(seconds)) => Ok(Some(Duration::from_secs(seconds))),
                Some(Answer::Panic) => panic!("in the duty of a test"),
                Some(Answer::Ask(broker)) => {
                    broker.ask_for_duty("probe", "s", (NOW + 1) * 1_000).await?;
                    Ok(None)
                }
                Some(Answer::Stuck(clock)) => {
                    clock.advance(Duration::from_secs(5));
                    std::future::pending().await
                }
                Some(Answer::Long(clock)) => {
                    clock.advance(Duration::from_secs(5));
                    tokio::time::sleep(Duration::from_secs(6)).await;
                    Ok(None)
                }
            }
        })
    }
}

#[tokio::test]
async fn leader_does_what_is_due_until_nothing_is_left() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let mut leader = parts.leader("one", &probe);
    leader.run_once().await.unwrap();
    assert!(!parts.cmd::<bool>("EXISTS asynq:x:leader").await, "nothing to do, nobody leads");
    parts.ask("probe", 10).await;
    assert_eq!(leader.run_once().await.unwrap(), Duration::from_secs(10));
    assert!(!parts.cmd::<bool>("EXISTS asynq:x:leader").await, "nothing to do yet");
    parts.pass(10);
    probe.then(Answer::Again(7));
    leader.run_once().await.unwrap();
    assert_eq!(parts.cmd::<String>("GET asynq:x:leader").await, "one");
    assert_eq!(leader.run_once().await.unwrap(), Duration::from_secs(7));
    parts.pass(7);
    leader.run_once().await.unwrap();
    leader.run_once().await.unwrap();
    assert_eq!(probe.looks(), 2);
    assert!(!parts.cmd::<bool>("EXISTS asynq:x:duties").await, "it said that nothing is left");
}

#[tokio::test]
async fn leader_looks_again_at_a_duty_that_was_asked_for_while_it_was_done() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let mut leader = parts.leader("one", &probe);
    parts.ask("probe", 0).await;
    probe.then(Answer::Ask(parts.broker.clone()));
    leader.run_once().await.unwrap();
    assert_eq!(leader.run_once().await.unwrap(), Duration::from_secs(1), "it is not forgotten");
    parts.pass(1);
    leader.run_once().await.unwrap();
    assert_eq!(probe.looks(), 2);
}

#[tokio::test]
async fn leader_tries_again_what_panics_and_what_takes_too_long() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let mut leader = parts.leader("one", &probe);
    parts.ask("probe", 0).await;
    for answer in [Answer::Panic, Answer::Stuck(parts.clock.clone())] {
        probe.then(answer);
        leader.run_once().await.unwrap();
        assert_eq!(leader.run_once().await.unwrap(), Duration::from_secs(5));
        parts.pass(5);
    }
    leader.run_once().await.unwrap();
    assert_eq!(probe.looks(), 3);
}

/// One that moves a message of many megabytes, say.
#[tokio::test]
async fn a_look_that_takes_long_comes_to_its_end_and_its_duty_is_held_meanwhile() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let mut leader = parts.leader("one", &probe);
    parts.ask("probe", 0).await;
    probe.then(Answer::Long(parts.clock.clone()));
    let meanwhile = async {
        tokio::time::sleep(Duration::from_millis(5_500)).await;
        parts.broker.first_duty().await.unwrap()
    };
    let (done, held) = tokio::join!(leader.run_once(), meanwhile);
    done.unwrap();
    assert_eq!(held, Some((NOW + 5 + 16) * 1_000), "for 16 s from the last time on");
    assert_eq!(probe.looks(), 1);
    assert!(!parts.cmd::<bool>("EXISTS asynq:x:duties").await, "it is done");
}

/// A duty whose look never ends.
struct Slow;

impl Duty for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn look<'a>(&'a self, _: &'a str) -> futures_util::future::BoxFuture<'a, Result<Option<Duration>, Error>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn what_becomes_due_meanwhile_does_not_wait_for_a_slow_look() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let duties: Arc<[Arc<dyn Duty>]> = Arc::new([Arc::new(Slow), Arc::new(probe.clone())]);
    let mut leader = Leader::new(parts.broker.clone(), parts.clock.clone(), "one", duties);
    parts.ask("slow", 0).await;
    let meanwhile = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        parts.ask("probe", 0).await;
        while probe.looks() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        _ = leader.run_once() => panic!("the slow look has ended first"),
        () = meanwhile => {}
    }
}

/// A duty whose looks take half a second, and how many there are at once.
#[derive(Clone, Default)]
struct Busy {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    looks: Arc<AtomicUsize>,
}

impl Duty for Busy {
    fn name(&self) -> &'static str {
        "busy"
    }

    fn look<'a>(&'a self, _: &'a str) -> futures_util::future::BoxFuture<'a, Result<Option<Duration>, Error>> {
        Box::pin(async {
            self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            self.looks.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.now.fetch_sub(1, Ordering::SeqCst);
            Ok(None)
        })
    }
}

#[tokio::test]
async fn a_duty_that_is_asked_for_during_its_look_is_looked_at_again_and_not_twice_at_once() {
    let (parts, busy) = (Parts::new().await, Busy::default());
    let mut leader = Leader::new(
        parts.broker.clone(),
        parts.clock.clone(),
        "one",
        Arc::new([Arc::new(busy.clone()) as Arc<dyn Duty>]),
    );
    parts.ask("busy", 0).await;
    let asking = async {
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(80)).await;
            parts.ask("busy", 0).await;
        }
    };
    let (done, ()) = tokio::join!(leader.run_once(), asking);
    done.unwrap();
    assert_eq!((busy.most.load(Ordering::SeqCst), busy.looks.load(Ordering::SeqCst)), (1, 2));
    assert!(!parts.cmd::<bool>("EXISTS asynq:x:duties").await, "nothing is left");
}

#[tokio::test]
async fn a_duty_is_due_again_when_its_leader_was_lost_half_way() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let mut leader = parts.leader("one", &probe);
    parts.ask("probe", 0).await;
    probe.then(Answer::Stuck(parts.clock.clone()));
    let lost = tokio::time::timeout(Duration::from_secs(1), leader.run_once()).await;
    assert!(lost.is_err() && probe.looks() == 1);
    // Its claim has run out; nobody else does what it may still be doing.
    parts.cmd::<()>("DEL asynq:x:leader").await;
    let mut other = parts.leader("other", &probe);
    assert_eq!(other.run_once().await.unwrap(), Duration::from_secs(11));
    parts.pass(11);
    other.run_once().await.unwrap();
    assert_eq!(probe.looks(), 2);
}

#[tokio::test]
async fn one_leads_and_the_others_come_when_a_duty_is_late() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let (mut leader, mut other) = (parts.leader("one", &probe), parts.leader("other", &probe));
    parts.ask("probe", 0).await;
    probe.then(Answer::Again(60));
    parts.cmd::<()>("SET asynq:x:leader one EX 3").await;
    let lease = Duration::from_secs(3);
    let patience = lease..=2 * lease;
    assert!(patience.contains(&other.run_once().await.unwrap()), "another one leads");
    leader.run_once().await.unwrap();
    assert_eq!(probe.looks(), 1);
    parts.pass(60);
    parts.cmd::<()>("DEL asynq:x:leader").await;
    assert!(patience.contains(&other.run_once().await.unwrap()), "it leaves the leader some time");
    assert_eq!(probe.looks(), 1);
    parts.pass(6);
    other.run_once().await.unwrap();
    assert_eq!((probe.looks(), &*parts.cmd::<String>("GET asynq:x:leader").await), (2, "other"));
}

#[tokio::test]
async fn a_server_that_does_not_know_a_duty_leaves_the_lead_to_another_one() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let (mut leader, mut other) = (parts.leader("one", &probe), parts.leader("other", &probe));
    parts.ask("unknown", 0).await;
    leader.run_once().await.unwrap();
    parts.cmd::<()>("DEL asynq:x:leader").await;
    parts.ask("probe", 0).await;
    assert!(leader.run_once().await.unwrap() > Duration::from_secs(20));
    other.run_once().await.unwrap();
    assert_eq!(probe.looks(), 1);
    let left = parts.cmd::<Vec<String>>("ZRANGE asynq:x:duties 0 -1").await;
    assert_eq!(left, ["unknown s"], "it waits for one who knows it");
}

/// Go's server has let it be tried again, or nobody heard of it.
#[tokio::test]
async fn leader_archives_a_canceled_task_that_waits_and_forgets_one_that_has_ended() {
    let parts = Parts::new().await;
    parts.job().await;
    let duties = queue_redis::duties::standard(&parts.broker, parts.clock.clone());
    let mut leader = Leader::new(parts.broker.clone(), parts.clock.clone(), "one", duties.into());
    parts.broker.request_cancel("q", "a", "ann", NOW * 1_000).await.unwrap();
    parts.broker.request_cancel("q", "gone", "ann", NOW * 1_000).await.unwrap();
    // Until servers have heard of it, it stays.
    parts.pass(1);
    leader.do_all().await.unwrap();
    let left: Vec<String> = parts.cmd("HKEYS asynq:x:cancels").await;
    assert_eq!(
        (left, parts.count(TaskState::Active).await),
        (vec!["a q".to_owned()], 1),
        "its worker may still end it"
    );
    // As Go leaves it.
    parts.cmd::<()>("LREM asynq:{q}:active 0 a").await;
    parts.cmd::<()>("ZREM asynq:{q}:lease a").await;
    parts.cmd::<()>("HSET asynq:{q}:t:a state retry").await;
    parts.cmd::<()>("ZADD asynq:{q}:retry 4000000060 a").await;
    parts.pass(2);
    leader.do_all().await.unwrap();
    assert_eq!((parts.count(TaskState::Archived).await, parts.count(TaskState::Retry).await), (1, 0));
    assert!(!parts.cmd::<bool>("EXISTS asynq:x:cancels").await);
    assert_eq!(leader.do_all().await.unwrap(), None, "nothing is left to do");
}

use super::*;
use crate::log::tests::lines_of;

const SECOND: i64 = 1_000_000_000;

/// A machine: its clock, and how long it has been awake, both in seconds.
#[derive(Debug, Default)]
struct Machine {
    clock: AtomicI64,
    awake: AtomicI64,
}

impl Clock for Machine {
    fn now_ns(&self) -> i64 {
        self.clock.load(Ordering::SeqCst) * SECOND
    }

    fn steady_ns(&self) -> i64 {
        self.awake.load(Ordering::SeqCst) * SECOND
    }
}

impl Machine {
    fn at(secs: i64) -> Arc<Self> {
        Arc::new(Self { clock: secs.into(), awake: 7.into() })
    }

    fn wait(&self, secs: i64) {
        self.step(secs);
        self.awake.fetch_add(secs, Ordering::SeqCst);
    }

    fn step(&self, secs: i64) {
        self.clock.fetch_add(secs, Ordering::SeqCst);
    }
}

/// Redis says at once what time it is.
fn told(time: &RedisClock, redis: i64) {
    let steady_ns = time.steady_ns();
    time.learn(steady_ns, redis * SECOND, steady_ns);
}

#[test]
fn a_clock_that_is_a_minute_off_is_corrected_and_one_that_is_a_little_off_is_not() {
    for (redis, corrected) in [(160, 160), (40, 40), (101, 100), (99, 100), (102, 102)] {
        let time = RedisClock::new(Machine::at(100));
        assert_eq!(time.now_secs(), 100, "nobody has been asked");
        told(&time, redis);
        assert_eq!(time.now_secs(), corrected, "of {redis}");
        assert_eq!(time.leapt_ago(), None, "a first comparison is no leap");
    }
}

#[test]
fn a_clock_that_is_set_between_two_comparisons_changes_nothing() {
    for by in [3600, -3600] {
        let machine = Machine::at(100);
        let time = RedisClock::new(machine.clone());
        told(&time, 100);
        machine.wait(3);
        assert!(!time.is_doubtful());
        machine.step(by);
        assert_eq!(time.now_secs(), 103, "set by {by} s");
        assert!(time.is_doubtful(), "Redis has to be asked: the machine may have been suspended");
        told(&time, 103);
        machine.wait(4);
        assert_eq!((time.now_secs(), time.leapt_ago()), (107, None));
        assert!(!time.is_doubtful());
        machine.step(-by);
        told(&time, 107);
        assert_eq!((time.now_secs(), time.leapt_ago()), (107, None), "it was set right");
    }
}

#[test]
fn the_time_leaps_after_a_machine_was_suspended_and_when_another_node_has_another_clock() {
    let machine = Machine::at(100);
    let time = RedisClock::new(machine.clone());
    told(&time, 100);
    machine.step(600); // awake for none of these ten minutes
    assert!(time.is_doubtful());
    told(&time, 700);
    assert_eq!((time.now_secs(), time.leapt_ago()), (700, Some(Duration::ZERO)));
    for redis in [4300, 700] {
        machine.wait(5);
        assert_eq!(time.leapt_ago(), Some(Duration::from_secs(5)));
        told(&time, redis);
        assert_eq!((time.now_secs(), time.leapt_ago()), (redis, Some(Duration::ZERO)));
    }
}

#[test]
fn an_answer_that_took_long_is_believed_only_as_far_as_it_contradicts() {
    let machine = Machine::at(100);
    let time = RedisClock::new(machine.clone());
    let ask = |took: i64, redis: i64| {
        let sent_ns = time.steady_ns();
        machine.wait(took);
        time.learn(sent_ns, redis * SECOND, time.steady_ns());
        time.now_secs()
    };
    assert_eq!(ask(6, 100), 106, "it may have been given at any moment of these six seconds");
    assert_eq!(ask(4, 160), 162);
    assert_eq!(ask(4, 163), 166, "what is known already fits this answer");
}

#[test]
fn a_clock_that_is_off_is_told_by_its_side() {
    for (redis, expected) in [(3_700, "behind Redis' by so much"), (40, "ahead of Redis' by so much")] {
        let lines = lines_of(|| told(&RedisClock::new(Machine::at(100)), redis));
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.contains(expected) && !line.contains("=-"), "{line}");
    }
}

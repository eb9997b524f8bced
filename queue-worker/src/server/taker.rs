//! Decides which queues are looked at and which are asked for tasks, by what was told, found and answered.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use queue_core::limits::QUEUE_LISTED_FOR;
use queue_redis::Error;
use queue_redis::broker::{Dequeued, Matched, More, SHORT_BATCH, Taken};

use super::crowd::Crowd;
use super::lanes::Lanes;
use super::limit::Place;
use super::look::{Doubtful, Found, look};
use super::options::Unhandled;
use super::requeue::{Lost, requeue_take};
use super::round::{Round, Share};
use super::shared::Shared;
use super::single_takes;
use super::slots::Slot;
use super::sorter::Sorter;
use super::starts::start;
use super::survey::{Among, Survey};
use crate::events::Event;
use crate::log::{error, info, warn};

/// How long a queue is left alone that Redis refuses to serve, for example because one of its keys has a
/// wrong type.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// How long, at least, a queue is left alone that could not be asked while others could: in a cluster, its master
/// may be down. Where the answer took longer than this to fail to come, for as long as that.
const AWAY_FOR: Duration = Duration::from_millis(500);

/// Free slots that are being filled.
pub(super) struct Filling<'a> {
    slots: Vec<Arc<Slot>>,
    /// The queues that may still have tasks for them.
    round: Round<'a>,
    pub(super) answered: bool,
    /// The queues that could not be asked, why not, and how long it took to know.
    away: Vec<(Arc<str>, Error, Duration)>,
}

/// One call for tasks.
pub(super) struct Take {
    queue: usize,
    pub(super) name: Arc<str>,
    pub(super) count: usize,
    pub(super) token: Arc<str>,
    pub(super) expires: i64,
    /// Of which tasks those of our types are taken ([`Unhandled::Leave`]).
    pub(super) among: Option<Among>,
    /// As many as tasks, where the queue has a limit.
    places: Vec<Place>,
}

/// What was taken. Also, when only certain types are taken, what became of those that were looked at.
pub(super) type Reply = Result<(Dequeued, Vec<Matched>), Error>;

pub(super) struct Taker {
    shared: Arc<Shared>,
    listed: HashMap<Arc<str>, Instant>,
    /// The queues that may have tasks: takes ask these.
    ready: BTreeSet<usize>,
    /// The queues of which it is not known whether they have. A look tells, and has Redis tell of the next change.
    doubtful: BTreeSet<usize>,
    /// When all queues are looked at again.
    sweep: Instant,
    /// Queues that gave as many tasks as they were asked for, the last time.
    plentiful: HashSet<Arc<str>>,
    /// Whether all slots could be filled, the last time.
    pub(super) plenty: bool,
    /// Queues that Redis refuses to serve, and until when they are left alone.
    refused: HashMap<Arc<str>, Instant>,
    /// Rounds of takes, one after another, that gave nothing; where they overlap, they do not count.
    barren: u32,
    crowd: Crowd,
    /// Whether the last look found work: the take that follows changes what was looked at, and Redis tells us so.
    echo: bool,
    /// What is known of tasks that are left to others ([`Unhandled::Leave`]).
    surveys: HashMap<usize, Survey>,
    lanes: Lanes,
    sorter: Sorter,
}

impl Taker {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let (listed, plentiful, refused, surveys, ready) = Default::default();
        let (crowd, echo, plenty, sweep) = (Crowd::default(), false, false, Instant::now());
        let doubtful = (0..shared.queues.count()).collect();
        let lanes = Lanes::default();
        Self {
            shared,
            listed,
            ready,
            doubtful,
            sweep,
            plentiful,
            plenty,
            refused,
            barren: 0,
            crowd,
            echo,
            surveys,
            lanes,
            sorter: Sorter::default(),
        }
    }

    fn leaves(&self) -> bool {
        self.shared.options.unhandled == Unhandled::Leave
    }

    /// Goes by what was told since: `at_once`, queues that have changed are asked for tasks without a look.
    fn hear(&mut self, at_once: bool) {
        let (changes, now) = (self.shared.wakeups.work.take(), Instant::now());
        let interval = |whole: Duration| whole.mul_f64(0.5 + fastrand::f64());
        let longest = match self.shared.wakeups.watch() {
            Some(_) => self.shared.queues.safety_interval(),
            None => self.shared.options.poll_interval,
        };
        if changes.everywhere {
            self.surveys.clear();
        }
        if changes.everywhere || now >= self.sweep {
            self.doubtful.extend(0..self.shared.queues.count());
            self.surveys.values_mut().for_each(|survey| survey.doubt(now));
            self.sweep = now + interval(longest);
        }
        self.sweep = self.sweep.min(now + longest.mul_f64(1.5));
        self.ready.extend(self.lanes.take_due(now));
        for queue in changes.queues {
            if at_once && !self.leaves() && !self.doubtful.contains(&queue) && !self.lanes.is_shut(queue) {
                self.ready.insert(queue);
            } else {
                self.doubtful.insert(queue);
            }
        }
    }

    /// Begins to fill slots from the queues that may have tasks, but those that are left alone.
    pub(super) fn begin<'a>(&mut self, shared: &'a Shared, slots: Vec<Arc<Slot>>) -> Filling<'a> {
        if !self.plenty {
            self.barren = self.barren.saturating_add(1);
        }
        self.hear(true);
        let can_be_asked = |queue: &usize| !self.is_left_alone(*queue) && !self.lanes.is_shut(*queue);
        let open = self.ready.iter().copied().filter(can_be_asked);
        Filling { slots, round: shared.queues.round(open.collect()), answered: false, away: Vec::new() }
    }

    /// The calls that may fill the slots that are still free; none when there is nothing more to be had.
    pub(super) fn next_takes(&mut self, filling: &mut Filling<'_>) -> Vec<Take> {
        let mut takes = Vec::new();
        for Share { queue, count: share, mut places } in filling.round.shares(filling.slots.len()) {
            let name = filling.round.name(queue);
            let among = self.surveys.get(&queue).and_then(|survey| survey.next().cloned());
            let counts: Vec<usize> = if among.is_some() { vec![share] } else { self.split(name, share).collect() };
            for count in counts {
                let places = places.split_off(places.len().saturating_sub(count));
                let token = self.shared.next_token();
                let (expires, among) = (self.shared.lease_expiry(), among.clone());
                takes.push(Take { queue, name: name.clone(), count, token, expires, among, places });
            }
        }
        takes
    }

    /// The queues that are to be looked at now.
    pub(super) fn next_look(&mut self) -> Doubtful {
        let (later, asked): (BTreeSet<usize>, BTreeSet<usize>) =
            self.doubtful.iter().partition(|queue| !self.can_be_looked_at(**queue));
        self.doubtful = later;
        let leaves = self.leaves();
        let surveys = &mut self.surveys;
        let mut ranges = |queue| if leaves { surveys.entry(queue).or_default().ranges() } else { Vec::new() };
        asked.into_iter().map(|queue| (queue, ranges(queue))).collect()
    }

    /// Goes by what a look has found.
    pub(super) fn found(&mut self, found: Found) {
        let Found { asked, is_armed, result, lanes } = found;
        let now_ms = self.shared.now_ns() / 1_000_000;
        for (queue, at_ms) in lanes {
            self.lanes.see(queue, at_ms, now_ms);
        }
        self.lanes.keep(|queue| self.shared.broker.has_limits(self.shared.queues.name(queue)));
        if !is_armed {
            // Nobody will tell.
            self.sweep =
                self.sweep.min(Instant::now() + self.shared.options.poll_interval.mul_f64(0.5 + fastrand::f64()));
        }
        match result {
            Ok(filled) => {
                for (queue, waiting) in filled {
                    let Some(waiting) = waiting else {
                        self.ready.insert(queue);
                        continue;
                    };
                    let survey = self.surveys.entry(queue).or_default();
                    let is_paused = waiting.is_paused;
                    survey.see(waiting);
                    if survey.next().is_some() {
                        self.ready.insert(queue);
                    } else if survey.is_under_way() && !is_paused {
                        self.doubtful.insert(queue);
                    }
                }
            }
            // A take will tell, and wait until Redis is back.
            Err(_) => {
                self.ready.extend(asked.first());
                self.doubtful.extend(asked);
            }
        }
    }

    /// Starts what was taken.
    pub(super) fn answer(&mut self, filling: &mut Filling<'_>, replies: Vec<(Take, Reply)>, took: Duration) {
        let shared = self.shared.clone();
        let Filling { slots, round, answered, away } = filling;
        for (Take { queue, name, count, token, expires, among, mut places }, reply) in replies {
            *answered |= reply.is_ok();
            let (reply, more) = match reply {
                Ok((Dequeued::Limited { tasks, more, look_at_ms, now_ms, is_unsorted }, matched)) => {
                    if is_unsorted && !shared.shutdown.quiet.is_cancelled() {
                        self.sorter.begin(&shared, queue);
                    }
                    (Ok((Dequeued::Tasks(tasks), matched)), Some((more, look_at_ms, now_ms)))
                }
                reply => (reply, None),
            };
            match reply {
                // The take set out before the server was told to take no more.
                Ok((Dequeued::Tasks(tasks), _)) if shared.shutdown.quiet.is_cancelled() || shared.queues.are_held() => {
                    round.close(queue);
                    if !tasks.is_empty() {
                        info!(queue = %name, tasks = tasks.len(), "tasks came too late to be started; they are requeued");
                        let shared = shared.clone();
                        shared
                            .clone()
                            .lookups
                            .spawn(async move { requeue_take(&shared, &name, &token, expires).await });
                    }
                }
                Ok((Dequeued::Tasks(tasks), matched)) => {
                    if self.refused.remove(&name).is_some() {
                        info!(queue = %name, "the queue is served again");
                    }
                    if tasks.len() == count {
                        self.plentiful.insert(name.clone());
                    } else {
                        self.plentiful.remove(&name);
                    }
                    let gave_less = match more {
                        None => tasks.len() < count && !Taken::fill_an_answer(&tasks),
                        Some((More::Now, ..)) => false,
                        Some((more, at_ms, now_ms)) => {
                            self.lanes.wait(queue, more == More::Shut, at_ms, now_ms);
                            true
                        }
                    };
                    if self.is_exhausted(queue, gave_less, &matched) {
                        round.close(queue);
                        self.ready.remove(&queue);
                        // Where all that was found is left to others, nothing has changed since the look.
                        let goes_on = self.surveys.get(&queue).is_none_or(Survey::is_under_way);
                        if goes_on || !tasks.is_empty() {
                            self.doubtful.insert(queue);
                        }
                    }
                    if matched.contains(&Matched::Left) {
                        self.barren = 0;
                    }
                    if !tasks.is_empty() {
                        shared.tell(|| Event::Taken { queue: &name, tasks: tasks.len() });
                        self.barren = 0;
                        self.crowd.found();
                        self.list(&name);
                    }
                    start(&shared, tasks, slots, &mut places);
                }
                Ok((Dequeued::Paused | Dequeued::Limited { .. }, _)) => {
                    round.close(queue);
                    self.ready.remove(&queue);
                    self.doubtful.insert(queue);
                }
                Err(error) => {
                    round.close(queue);
                    if error.is_ambiguous() {
                        single_takes::begin(&shared, Lost { queue: name.clone(), token, expires }, among);
                    } else if !error.is_outage() {
                        self.refuse(name, &error);
                        continue;
                    }
                    away.push((name, error, took));
                }
            }
        }
    }

    /// The slots for which there was nothing. Fails when Redis could not be asked about any queue.
    pub(super) fn end(&mut self, mut filling: Filling<'_>) -> (Vec<Arc<Slot>>, Result<(), Error>) {
        self.plenty = filling.slots.is_empty();
        if filling.answered {
            filling.away.drain(..).for_each(|(name, error, took)| self.leave_alone(name, &error, took));
        }
        (filling.slots, filling.away.pop().map_or(Ok(()), |(_, error, _)| Err(error)))
    }

    /// The calls for so many tasks of one queue. They travel together only if they will hardly find nothing: a lone
    /// task that wakes this server should cost one call.
    fn split(&self, queue: &str, share: usize) -> impl Iterator<Item = usize> + use<> {
        let together = if self.plentiful.contains(queue) { share } else { share.min(SHORT_BATCH) };
        (0..together).step_by(SHORT_BATCH).map(move |begin| SHORT_BATCH.min(together - begin))
    }

    /// Waits until a queue may have a task.
    pub(super) async fn wait_for_work(&mut self) {
        let shared = self.shared.clone();
        loop {
            // What was told before this look, the look sees: most often the echo of our own take.
            self.hear(false);
            let doubtful = self.next_look();
            let has_looked = !doubtful.is_empty();
            let found = look(&shared, doubtful).await;
            self.found(found);
            if self.has_ready() {
                // It says so again and again, and nothing comes: it listens to another server than we
                // take from (after a failover). Then we poll, ever more slowly.
                if self.barren > 2 {
                    let pause = Duration::from_millis(10).saturating_mul(1 << self.barren.min(16));
                    tokio::time::sleep(pause.min(shared.options.poll_interval)).await;
                }
                self.echo = true;
                return;
            }
            if self.has_doubts() {
                continue;
            }
            if has_looked {
                self.crowd.found_nothing();
            }
            let pause = self.sweep.saturating_duration_since(Instant::now());
            let pause = self.next_chance().map_or(pause, |chance| pause.min(chance));
            let pause = self.lanes.next(Instant::now()).map_or(pause, |next| pause.min(next));
            tokio::select! {
                () = shared.wakeups.work.notified() => {}
                () = shared.queues.room.notified() => {
                    // Tasks that are about to end, end now, and one take fills all their places.
                    tokio::task::yield_now().await;
                    continue;
                }
                () = tokio::time::sleep(pause) => continue,
            }
            match self.crowd.told(std::mem::take(&mut self.echo)) {
                None => {
                    self.hear(true);
                    if self.has_ready() {
                        return;
                    }
                }
                // The look afterwards costs less than a take, and asks Redis to tell us again.
                Some(pause) => tokio::time::sleep(pause).await,
            }
        }
    }

    /// Whether one of the queues that may have tasks can be asked for some.
    fn has_ready(&self) -> bool {
        let can_be_asked = |queue: &&usize| !self.is_left_alone(**queue) && !self.lanes.is_shut(**queue);
        self.ready.iter().filter(can_be_asked).any(|queue| self.shared.queues.has_room(*queue))
    }

    /// Whether one of the queues of which nothing is known can be looked at.
    pub(super) fn has_doubts(&self) -> bool {
        self.doubtful.iter().any(|queue| self.can_be_looked_at(*queue))
    }

    /// A look would forget which of the tasks that are left to others a take is asking about.
    fn can_be_looked_at(&self, queue: usize) -> bool {
        !(self.is_left_alone(queue) || self.leaves() && self.ready.contains(&queue))
    }

    fn is_left_alone(&self, queue: usize) -> bool {
        let queues = &self.shared.queues;
        if !queues.is_open(queue) {
            return true;
        }
        let queue = queues.name(queue);
        self.refused.get(queue).is_some_and(|until| Instant::now() < *until)
            || self.shared.acks.trouble.refuses(queue)
            || self.shared.one_by_one.has(queue)
    }

    /// Leaves one queue alone for a while, so that it does not slow down the others.
    fn refuse(&mut self, queue: Arc<str>, error: &Error) {
        let until = Instant::now() + REFUSED_FOR;
        if self.refused.insert(queue.clone(), until).is_none() {
            error!(queue = %queue, %error, "the queue cannot be served; looking at it again every few seconds");
        }
    }

    /// Leaves one queue alone that could not be asked, so that it does not slow down the others.
    fn leave_alone(&mut self, queue: Arc<str>, error: &Error, took: Duration) {
        let until = Instant::now() + took.max(AWAY_FOR);
        if self.refused.insert(queue.clone(), until).is_none() {
            warn!(queue = %queue, %error, "the queue cannot be reached; the others go on");
        }
    }

    /// When the next queue that is left alone is to be looked at again.
    fn next_chance(&self) -> Option<Duration> {
        let now = Instant::now();
        self.refused.values().filter(|until| **until > now).map(|until| *until - now).min()
    }

    /// Whether a queue has no more tasks for us, as far as is known without another look.
    fn is_exhausted(&mut self, queue: usize, gave_less: bool, matched: &[Matched]) -> bool {
        let Some(survey) = self.surveys.get_mut(&queue) else { return gave_less };
        survey.answered(matched);
        survey.next().is_none()
    }

    /// Lists a queue that has tasks, in the background: a client that does not know that somebody has
    /// removed it does not list it again (W27).
    fn list(&mut self, queue: &Arc<str>) {
        let now = Instant::now();
        if self.listed.get(queue).is_some_and(|at| now - *at < QUEUE_LISTED_FOR) {
            return;
        }
        self.listed.insert(queue.clone(), now);
        let (broker, queue) = (self.shared.broker.clone(), queue.clone());
        tokio::spawn(async move {
            if let Err(error) = broker.list_queue(&queue).await {
                warn!(queue = %queue, %error, "could not list the queue; tools may not show it");
            }
        });
    }
}

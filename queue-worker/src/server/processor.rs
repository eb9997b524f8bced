//! Takes tasks whenever a slot is free.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use queue_core::limits::QUEUE_LISTED_FOR;
use queue_redis::service::{Backoff, Outage, Service};
use queue_redis::{
    Error,
    broker::{Dequeued, Holding, IdRange, MAX_BATCH, Matched, Matching, SHORT_BATCH},
};
use queue_redis::{
    Watch,
    broker::{More, Taken, Waiting},
};
use tokio_util::sync::CancellationToken;

use super::crowd::Crowd;
use super::lanes::{self, Lanes};
use super::limit::Place;
use super::options::Unhandled;
use super::queues::{Round, Share};
use super::requeue::{find_lost, requeue_take};
use super::shared::Shared;
use super::single_takes;
use super::slots::Slot;
use super::starts::start;
use super::survey::Survey;
use crate::events::Event;
use crate::log::{error, info, warn};

/// How long a queue is left alone that Redis refuses to serve, for example because one of its keys has a
/// wrong type.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// How long, at least, a queue is left alone that could not be asked while others could: in a cluster, its master
/// may be down. Where the answer took longer than this to fail to come, for as long as that.
const AWAY_FOR: Duration = Duration::from_millis(500);

/// How many takes are under way at once: of the tasks that they bring, none is renewed before it is started.
const MOST_UNDER_WAY: usize = MAX_BATCH / SHORT_BATCH;

/// So many queues are looked into at once; of more, those that have tasks are searched first.
const FEW: usize = 8;

#[derive(Clone)]
pub(super) struct Processor {
    pub(super) shared: Arc<Shared>,
}

impl Service for Processor {
    const NAME: &'static str = "processor";
    const WORK: &'static str = "taking tasks";

    /// Takes as many tasks as there are and slots are free, one take after another, and starts them.
    async fn run_once(&mut self) -> Result<Duration, Error> {
        let shared = &self.shared;
        let mut taker = Taker::new(shared.clone());
        let doubtful = taker.next_look();
        taker.found(look(shared, doubtful).await);
        let mut filling = taker.begin(shared, shared.slots.take(MAX_BATCH).await);
        loop {
            let takes = taker.next_takes(&mut filling);
            if takes.is_empty() {
                break;
            }
            let (asked, replies, took) = ask(shared, filling, takes).await;
            filling = asked;
            taker.answer(&mut filling, replies, took);
        }
        let (slots, result) = taker.end(filling);
        shared.slots.give_back(slots);
        result.map(|()| Duration::ZERO)
    }

    /// Takes tasks until the server is told to be quiet.
    ///
    /// Where there are plenty, takes overlap: while one is under way, another sets out as soon as a
    /// [wave](Shared::wave) of slots is free. Elsewhere there is one at a time, and then the wait for work.
    async fn run(&mut self, quiet: &CancellationToken, outage: &Arc<Outage>) {
        let shared = &self.shared;
        let mut taker = Taker::new(shared.clone());
        let mut backoff = Backoff::new(outage, Self::WORK);
        // Tasks of certain types are looked for in one window after another.
        let overlaps = shared.options.unhandled != Unhandled::Leave;
        // A look beside takes, one at the most. Nobody waits for it who has tasks to start.
        let (mut under_way, mut looks) = (FuturesUnordered::new(), FuturesUnordered::new());
        // Slots for which nothing was found, and why, if something failed; whether they are lent to who takes one by one.
        let (mut spare, mut failure, mut lent) = (Vec::new(), None, false);
        // Takes are never dropped half-way, so being quiet ends this only where nothing is under way.
        while !(quiet.is_cancelled() && under_way.is_empty()) {
            let wave = shared.wave().min(MAX_BATCH);
            let mut filling = if under_way.is_empty() && (lent || !spare.is_empty()) {
                lent = shared.one_by_one.is_needed();
                if lent {
                    shared.slots.give_back(spare.drain(..));
                }
                let pause = match failure.take() {
                    None => {
                        let wait = async {
                            while let Some(found) = looks.next().await {
                                taker.found(found);
                            }
                            taker.wait_for_work().await;
                        };
                        quiet.run_until_cancelled(wait).await
                    }
                    Some(error) => quiet.run_until_cancelled(backoff.failed(&error)).await,
                };
                if pause.is_none() || quiet.is_cancelled() {
                    return;
                }
                lent = false;
                spare.truncate(MAX_BATCH);
                shared.slots.pay(&mut spare);
                shared.slots.take_more(&mut spare, MAX_BATCH);
                taker.begin(shared, std::mem::take(&mut spare))
            } else {
                let (alone, plenty) = (under_way.is_empty(), taker.plenty && overlaps);
                let another = plenty && under_way.len() < MOST_UNDER_WAY && !quiet.is_cancelled();
                let more = spare.is_empty() && (alone || another);
                let free = async {
                    match (alone, plenty) {
                        (false, _) => shared.slots.take_all(wave).await,
                        (true, true) => shared.slots.take(wave).await,
                        (true, false) => shared.slots.take(MAX_BATCH).await,
                    }
                };
                tokio::select! {
                    biased;
                    slots = free, if more => {
                        // It may have been waiting for them since before.
                        if quiet.is_cancelled() {
                            continue;
                        }
                        taker.begin(shared, slots)
                    }
                    Some((mut filling, replies, took)) = under_way.next() => {
                        taker.answer(&mut filling, replies, took);
                        filling
                    }
                    Some(found) = looks.next() => {
                        taker.found(found);
                        continue;
                    }
                    () = quiet.cancelled(), if alone => return,
                }
            };
            // By the time of a machine that was suspended, a lease would have ended already.
            let _ = shared.time.settle(shared.broker.redis()).await;
            let takes = if quiet.is_cancelled() { Vec::new() } else { taker.next_takes(&mut filling) };
            if !takes.is_empty() {
                // They are on their way before the answers of others are looked at.
                under_way.push(set_out(ask(shared, filling, takes)));
                if looks.is_empty() && taker.has_doubts() {
                    looks.push(set_out(look(shared, taker.next_look())));
                }
                continue;
            }
            let answered = filling.answered;
            let (slots, result) = taker.end(filling);
            spare.extend(slots);
            if answered && result.is_ok() {
                backoff.succeeded();
            }
            failure = result.err();
            // What was started ends now, if it is that short, and Redis has its reports while others are started.
            if !under_way.is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Free slots that are being filled.
struct Filling<'a> {
    slots: Vec<Arc<Slot>>,
    /// The queues that may still have tasks for them.
    round: Round<'a>,
    answered: bool,
    /// The queues that could not be asked, why not, and how long it took to know.
    away: Vec<(Arc<str>, Error, Duration)>,
}

/// One call for tasks.
struct Take {
    queue: usize,
    name: Arc<str>,
    count: usize,
    token: Arc<str>,
    expires: i64,
    /// Of which tasks those of our types are taken ([`Unhandled::Leave`]), and whether they are near the young end.
    among: Option<(Vec<Bytes>, bool)>,
    /// As many as tasks, where the queue has a limit.
    places: Vec<Place>,
}

/// What was taken. Also, when only certain types are taken, what became of those that were looked at.
type Reply = Result<(Dequeued, Vec<Matched>), Error>;

/// The queues that are to be looked at, and where only certain types are taken, the parts of their lists.
type Doubtful = Vec<(usize, Vec<IdRange>)>;

/// What a look has found: queues, and what waits in them where that was asked for, else whether something does.
struct Found {
    asked: Vec<usize>,
    /// Whether Redis tells of the next change of these queues.
    is_armed: bool,
    result: Result<Vec<(usize, Option<Waiting>)>, Error>,
    /// When tasks of a queue that has limits may start, in Unix milliseconds.
    lanes: Vec<(usize, Option<i64>)>,
}

async fn ask<'a>(
    shared: &Shared,
    filling: Filling<'a>,
    takes: Vec<Take>,
) -> (Filling<'a>, Vec<(Take, Reply)>, Duration) {
    let asked = Instant::now();
    let replies = join_all(takes.into_iter().map(|take| async move {
        let reply = dequeue(shared, &take).await;
        (take, reply)
    }));
    (filling, replies.await, asked.elapsed())
}

/// Looks which queues have tasks. On the listening connection, which is then told of the next change.
async fn look(shared: &Shared, doubtful: Doubtful) -> Found {
    let asked: Vec<usize> = doubtful.iter().map(|(queue, _)| *queue).collect();
    if asked.is_empty() {
        return Found { asked, is_armed: true, result: Ok(Vec::new()), lanes: Vec::new() };
    }
    lanes::learn(shared).await;
    if let Some(watch) = shared.wakeups.watch()
        && let Ok(lanes) = lanes::look(shared, Some(watch.clone()), &asked).await
        && let Ok(found) = look_through(shared, Some(watch), &doubtful).await
    {
        return Found { asked, is_armed: true, result: Ok(found), lanes };
    }
    // The listening connection is being replaced, or there is none.
    let lanes = lanes::look(shared, None, &asked).await.unwrap_or_default();
    let result = look_through(shared, None, &doubtful).await;
    Found { asked, is_armed: false, result, lanes }
}

async fn look_through(
    shared: &Shared,
    watch: Option<Watch>,
    doubtful: &Doubtful,
) -> Result<Vec<(usize, Option<Waiting>)>, Error> {
    let names: Vec<&str> = doubtful.iter().map(|(queue, _)| &**shared.queues.name(*queue)).collect();
    let leaves = shared.options.unhandled == Unhandled::Leave;
    let filled = match watch.clone() {
        _ if leaves && names.len() <= FEW => vec![true; names.len()],
        Some(mut watch) => watch.have_work(&names).await?,
        None => shared.broker.which_hold(&names, Holding::Pending).await?,
    };
    let filled = doubtful.iter().zip(filled).filter(|(_, filled)| *filled).map(|(doubtful, _)| doubtful);
    if !leaves {
        return Ok(filled.map(|(queue, _)| (*queue, None)).collect());
    }
    let waiting = filled.map(|(queue, ranges)| {
        let (name, watch) = (shared.queues.name(*queue), watch.clone());
        async move {
            let waiting = match watch {
                Some(mut watch) => watch.waiting(name, ranges).await?,
                None => shared.broker.waiting(name, ranges).await?,
            };
            Ok((*queue, Some(waiting)))
        }
    });
    join_all(waiting).await.into_iter().collect()
}

/// The same future, begun now and not when it is first waited for.
fn set_out<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    let mut future = Box::pin(future);
    let at_once = (&mut future).now_or_never();
    async move {
        match at_once {
            Some(output) => output,
            None => future.await,
        }
    }
}

struct Taker {
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
    plenty: bool,
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
}

impl Taker {
    fn new(shared: Arc<Shared>) -> Self {
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
    fn begin<'a>(&mut self, shared: &'a Shared, slots: Vec<Arc<Slot>>) -> Filling<'a> {
        if !self.plenty {
            self.barren = self.barren.saturating_add(1);
        }
        self.hear(true);
        let can_be_asked = |queue: &usize| !self.is_left_alone(*queue) && !self.lanes.is_shut(*queue);
        let open = self.ready.iter().copied().filter(can_be_asked);
        Filling { slots, round: shared.queues.round(open.collect()), answered: false, away: Vec::new() }
    }

    /// The calls that may fill the slots that are still free; none when there is nothing more to be had.
    fn next_takes(&mut self, filling: &mut Filling<'_>) -> Vec<Take> {
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
    fn next_look(&mut self) -> Doubtful {
        let (later, asked): (BTreeSet<usize>, BTreeSet<usize>) =
            self.doubtful.iter().partition(|queue| !self.can_be_looked_at(**queue));
        self.doubtful = later;
        let leaves = self.leaves();
        let surveys = &mut self.surveys;
        let mut ranges = |queue| if leaves { surveys.entry(queue).or_default().ranges() } else { Vec::new() };
        asked.into_iter().map(|queue| (queue, ranges(queue))).collect()
    }

    /// Goes by what a look has found.
    fn found(&mut self, found: Found) {
        let Found { asked, is_armed, result, lanes } = found;
        let now_ms = self.shared.now_ns() / 1_000_000;
        for (queue, at_ms) in lanes {
            self.lanes.see(queue, at_ms, now_ms);
        }
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
    fn answer(&mut self, filling: &mut Filling<'_>, replies: Vec<(Take, Reply)>, took: Duration) {
        let shared = self.shared.clone();
        let Filling { slots, round, answered, away } = filling;
        for (Take { queue, name, count, token, expires, mut places, .. }, reply) in replies {
            *answered |= reply.is_ok();
            let (reply, more) = match reply {
                Ok((Dequeued::Limited { tasks, more, look_at_ms }, matched)) => {
                    (Ok((Dequeued::Tasks(tasks), matched)), Some((more, look_at_ms)))
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
                        Some((More::Now, _)) => false,
                        Some((more, at_ms)) => {
                            self.lanes.wait(queue, more == More::Shut, at_ms, shared.now_ns() / 1_000_000);
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
                        shared.lookups.spawn(find_lost(shared.clone(), name.clone(), token, expires));
                        // That takes tasks of all types.
                        if !self.leaves() {
                            single_takes::begin(&shared, &name);
                        }
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
    fn end(&mut self, mut filling: Filling<'_>) -> (Vec<Arc<Slot>>, Result<(), Error>) {
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
    async fn wait_for_work(&mut self) {
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
    fn has_doubts(&self) -> bool {
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
            if let Err(error) = broker.publish_queue(&queue).await {
                warn!(queue = %queue, %error, "could not list the queue; tools may not show it");
            }
        });
    }
}

async fn dequeue(shared: &Shared, take: &Take) -> Reply {
    let Take { name, count, token, expires, among, .. } = take;
    if shared.options.unhandled != Unhandled::Leave {
        return Ok((shared.broker.dequeue(name, *count, token, *expires).await?, Vec::new()));
    }
    let (ids, are_young) = among.clone().unwrap_or_default();
    let (types, prefixes) = (shared.routes.types(), shared.routes.prefixes());
    let matching = Matching { types, prefixes, ids, are_young };
    shared.broker.dequeue_matching(name, *count, token, *expires, &matching).await
}

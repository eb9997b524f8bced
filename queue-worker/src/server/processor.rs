//! Takes tasks whenever a slot is free.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use queue_core::TaskMessage;
use queue_redis::{Delivery, Dequeued, Error, Holding, MAX_BATCH, Matching, Report, Run, SHORT_BATCH, Side, Taken};

use super::backoff::Backoff;
use super::crowd::Crowd;
use super::limit::Place;
use super::queues::{Round, Share};
use super::slots::Slot;
use super::{Shared, Unhandled, attempt, one_by_one};
use crate::events::Event;
use crate::job::Job;
use crate::log::{error, info, warn};

/// How often queues are looked at although Redis tells about changes: a net below the net.
const SAFETY_POLL: Duration = Duration::from_secs(15);

/// How long a queue counts as listed (rule R7) after this server listed it.
const LISTED_FOR: Duration = Duration::from_secs(60);

/// How long a queue is left alone that Redis refuses to serve, for example because one of its keys has a
/// wrong type.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// How long, at least, a queue is left alone that could not be asked while others could: in a cluster, its master
/// may be down. Where the answer took longer than this to fail to come, for as long as that.
const AWAY_FOR: Duration = Duration::from_millis(500);

/// How many takes are under way at once: of the tasks that they bring, none is renewed before it is started.
const MOST_UNDER_WAY: usize = MAX_BATCH / SHORT_BATCH;

/// When to look again for the tasks of a take whose answer was lost: at once, and later, because the
/// lost call may still be on its way to a server that was slow.
const LOOK_AGAIN: [Duration; 3] = [Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(6)];

/// Takes tasks until the server is told to be quiet.
///
/// Where there are plenty, takes overlap: while one is under way, another sets out as soon as a
/// [wave](Shared::wave) of slots is free. Elsewhere there is one at a time, and then the wait for work.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut taker = Taker::new(shared.clone());
    let mut backoff = Backoff::new(&shared.outage, "taking tasks");
    let wave = shared.wave().min(MAX_BATCH);
    // Tasks of certain types are looked for in one window after another.
    let overlaps = shared.options.unhandled != Unhandled::Leave;
    let mut under_way = FuturesUnordered::new();
    // Slots for which nothing was found, and why, if something failed; whether they are lent to who takes one by one.
    let (mut spare, mut failure, mut lent) = (Vec::new(), None, false);
    // Takes are never dropped half-way, so being quiet ends this only where nothing is under way.
    while !(shared.quiet.is_cancelled() && under_way.is_empty()) {
        let mut filling = if under_way.is_empty() && (lent || !spare.is_empty()) {
            lent = shared.one_by_one.is_needed();
            if lent {
                shared.slots.give_back(spare.drain(..));
            }
            let pause = match failure.take() {
                None => shared.quiet.run_until_cancelled(taker.wait_for_work()).await,
                Some(error) => shared.quiet.run_until_cancelled(backoff.failed(&error)).await,
            };
            if pause.is_none() || shared.quiet.is_cancelled() {
                return;
            }
            lent = false;
            spare.truncate(MAX_BATCH);
            shared.slots.take_more(&mut spare, MAX_BATCH);
            taker.begin(&shared, std::mem::take(&mut spare))
        } else {
            let (alone, plenty) = (under_way.is_empty(), taker.plenty && overlaps);
            let another = plenty && under_way.len() < MOST_UNDER_WAY && !shared.quiet.is_cancelled();
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
                    if shared.quiet.is_cancelled() {
                        continue;
                    }
                    taker.begin(&shared, slots)
                }
                Some((mut filling, replies, took)) = under_way.next() => {
                    taker.answer(&mut filling, replies, took);
                    filling
                }
                () = shared.quiet.cancelled(), if alone => return,
            }
        };
        // By the time of a machine that was suspended, a lease would have ended already.
        let _ = shared.time.settle(shared.broker.redis()).await;
        let takes = if shared.quiet.is_cancelled() { Vec::new() } else { taker.next_takes(&mut filling) };
        if !takes.is_empty() {
            // They are on their way before the answers of others are looked at.
            under_way.push(set_out(ask(&shared, filling, takes)));
            continue;
        }
        let (slots, result) = taker.end(filling);
        spare.extend(slots);
        if result.is_ok() {
            backoff.succeeded();
        }
        failure = result.err();
        // What was started ends now, if it is that short, and Redis has its reports while others are started.
        if !under_way.is_empty() {
            tokio::task::yield_now().await;
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
    /// Where in the queue the look for tasks of our types begins ([`Unhandled::Leave`]).
    skip: usize,
    /// As many as tasks, where the queue has a limit.
    places: Vec<Place>,
}

/// What was taken. Also, when only certain types are taken, how far the next look has to move on to see new tasks:
/// `Some(0)` when the end was reached.
type Reply = Result<(Dequeued, Option<usize>), Error>;

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
    /// Where in each queue the next look for tasks of our types begins ([`Unhandled::Leave`]).
    skips: HashMap<Arc<str>, usize>,
}

impl Taker {
    fn new(shared: Arc<Shared>) -> Self {
        let (listed, plentiful, refused, skips) = Default::default();
        let (crowd, echo, plenty) = (Crowd::default(), false, false);
        Self { shared, listed, plentiful, plenty, refused, barren: 0, crowd, echo, skips }
    }

    /// Begins to fill slots from all queues but those that are left alone.
    fn begin<'a>(&mut self, shared: &'a Shared, slots: Vec<Arc<Slot>>) -> Filling<'a> {
        if !self.plenty {
            self.barren = self.barren.saturating_add(1);
        }
        let mut round = shared.queues.round();
        self.skip_refused(&mut round);
        Filling { slots, round, answered: false, away: Vec::new() }
    }

    /// The calls that may fill the slots that are still free; none when there is nothing more to be had.
    fn next_takes(&mut self, filling: &mut Filling<'_>) -> Vec<Take> {
        let mut takes = Vec::new();
        for Share { queue, count: share, mut places } in filling.round.shares(filling.slots.len()) {
            let name = filling.round.name(queue);
            for count in self.split(name, share) {
                let places = places.split_off(places.len().saturating_sub(count));
                let token = self.shared.next_token();
                let (expires, skip) = (self.shared.lease_expiry(), self.skips.get(name).copied().unwrap_or(0));
                takes.push(Take { queue, name: name.clone(), count, token, expires, skip, places });
            }
        }
        takes
    }

    /// Starts what was taken.
    fn answer(&mut self, filling: &mut Filling<'_>, replies: Vec<(Take, Reply)>, took: Duration) {
        let shared = self.shared.clone();
        let Filling { slots, round, answered, away } = filling;
        for (Take { queue, name, count, token, expires, mut places, .. }, reply) in replies {
            *answered |= reply.is_ok();
            match reply {
                // The take set out before the server was told to take no more.
                Ok((Dequeued::Tasks(tasks), _)) if shared.quiet.is_cancelled() => {
                    round.close(queue);
                    if !tasks.is_empty() {
                        info!(queue = %name, tasks = tasks.len(), "tasks came too late to be started; they are put back");
                        let shared = shared.clone();
                        shared
                            .clone()
                            .lookups
                            .spawn(async move { put_back_take(&shared, &name, &token, expires).await });
                    }
                }
                Ok((Dequeued::Tasks(tasks), more)) => {
                    if self.refused.remove(&name).is_some() {
                        info!(queue = %name, "the queue is served again");
                    }
                    if tasks.len() == count {
                        self.plentiful.insert(name.clone());
                    } else {
                        self.plentiful.remove(&name);
                    }
                    let filled = tasks.len() == count || Taken::fill_an_answer(&tasks);
                    if !filled && !self.look_further(&name, more) {
                        round.close(queue);
                    }
                    if !tasks.is_empty() {
                        shared.tell(|| Event::Taken { queue: &name, tasks: tasks.len() });
                        self.barren = 0;
                        self.crowd.found();
                        self.list(&name);
                    }
                    for taken in tasks {
                        start(&shared, taken, slots, &mut places);
                    }
                }
                Ok((Dequeued::Paused, _)) => round.close(queue),
                Err(error) => {
                    round.close(queue);
                    if error.is_ambiguous() {
                        shared.lookups.spawn(find_lost(shared.clone(), name.clone(), token, expires));
                        // It does not look at types.
                        if shared.options.unhandled != Unhandled::Leave {
                            one_by_one::begin(&shared, &name);
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
        let interval = |whole: Duration| whole.mul_f64(0.5 + fastrand::f64());
        loop {
            let names = shared.queues.with_room().filter(|name| !self.is_refused(name)).map(|name| &**name);
            let pause = match shared.watch() {
                None => interval(shared.options.poll_interval),
                Some(mut watch) => {
                    // What was told before this look, the look sees: most often the echo of our own take.
                    let _ = shared.work.notified().now_or_never();
                    match watch.has_work(names).await {
                        // Tasks of types nobody here handles stay in their queue, so that there always is "work".
                        Ok(true) if shared.options.unhandled != Unhandled::Leave => {
                            // It says so again and again, and nothing comes: it listens to another server than we
                            // take from (after a failover). Then we poll, ever more slowly.
                            if self.barren > 2 {
                                let pause = Duration::from_millis(10).saturating_mul(1 << self.barren.min(16));
                                tokio::time::sleep(pause.min(shared.options.poll_interval)).await;
                            }
                            self.echo = true;
                            return;
                        }
                        Ok(has_work) => {
                            if !has_work {
                                self.crowd.found_nothing();
                            }
                            interval(SAFETY_POLL)
                        }
                        // The listening connection is being replaced; until then we poll.
                        Err(_) => interval(shared.options.poll_interval),
                    }
                }
            };
            let pause = self.next_chance().map_or(pause, |chance| pause.min(chance));
            tokio::select! {
                () = shared.work.notified() => {}
                () = shared.queues.room.notified() => {
                    // Tasks that are about to end, end now, and one take fills all their places.
                    tokio::task::yield_now().await;
                    return;
                }
                () = tokio::time::sleep(pause) => match shared.may_hold(Holding::Pending).await {
                    Ok(false) => continue,
                    _ => return,
                },
            }
            match self.crowd.told(std::mem::take(&mut self.echo)) {
                None => return,
                // The look afterwards costs less than a take, and asks Redis to tell us again.
                Some(pause) => tokio::time::sleep(pause).await,
            }
        }
    }

    fn is_refused(&self, queue: &str) -> bool {
        self.refused.get(queue).is_some_and(|until| Instant::now() < *until)
            || self.shared.acks.trouble.refuses(queue)
            || self.shared.one_by_one.has(queue)
    }

    /// Leaves out the queues that are being left alone.
    fn skip_refused(&self, round: &mut Round<'_>) {
        for (number, name) in self.shared.queues.names().enumerate() {
            if self.is_refused(name) {
                round.close(number);
            }
        }
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

    /// Moves the window in which tasks of our types are looked for; whether it is worth another look now.
    fn look_further(&mut self, queue: &Arc<str>, more: Option<usize>) -> bool {
        match more {
            None => false,
            Some(0) => {
                self.skips.insert(queue.clone(), 0);
                false
            }
            Some(step) => {
                *self.skips.entry(queue.clone()).or_default() += step;
                true
            }
        }
    }

    /// Lists a queue that has tasks, in the background: a client that does not know that somebody has
    /// removed it does not list it again (W27).
    fn list(&mut self, queue: &Arc<str>) {
        let now = Instant::now();
        if self.listed.get(queue).is_some_and(|at| now - *at < LISTED_FOR) {
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
    let Take { name, count, token, expires, skip, .. } = take;
    if shared.options.unhandled != Unhandled::Leave {
        return Ok((shared.broker.dequeue(name, *count, token, *expires).await?, None));
    }
    let matching =
        Matching { kinds: shared.routes.kinds(), prefixes: shared.routes.prefixes(), skip: *skip, window: MAX_BATCH };
    let (dequeued, seen) = shared.broker.dequeue_matching(name, *count, token, *expires, &matching).await?;
    let taken = if let Dequeued::Tasks(tasks) = &dequeued { tasks.len() } else { 0 };
    let step = if seen < matching.window { 0 } else { seen - taken };
    Ok((dequeued, Some(step)))
}

pub(super) fn start(shared: &Arc<Shared>, taken: Taken, slots: &mut Vec<Arc<Slot>>, places: &mut Vec<Place>) {
    match taken {
        // The answer was a long time under way, or this process was stopped: somebody else may have the task.
        Taken::Task(delivery) if delivery.run.leased_until() <= shared.now() => {
            warn!(task = delivery.run.id, queue = %delivery.run.queue, "a task came after its lease had ended; not started");
            shared.lookups.spawn(put_back(shared.clone(), delivery));
        }
        Taken::Task(delivery) => {
            let Some(slot) = slots.pop() else { return };
            let slot = Slot::with(slot, places.pop());
            let (now_ns, limit) = (shared.now_ns(), shared.options.max_result_bytes);
            let work = (&shared.options.work, &shared.routes);
            let job = Job::new(delivery, now_ns, shared.broker.clone(), Arc::downgrade(&slot), limit, work);
            let ticket = shared.running.insert(job.clone());
            shared.handlers.spawn(attempt::run(shared.clone(), job, ticket, slot));
        }
        Taken::Poisoned(run, raw, reason) => {
            shared.tell(|| Event::Unreadable { queue: &run.queue });
            error!(task = run.id, queue = %run.queue, %reason, "task cannot be read; it goes to the archive as it is");
            shared.lookups.spawn(archive_as_it_is(shared.clone(), run, raw));
        }
        Taken::Ghost(id) => warn!(task = id, "an id without a task was dropped from the queue"),
    }
}

async fn archive_as_it_is(shared: Arc<Shared>, run: Run, raw: Bytes) {
    let report = Report::by_owner(run, &TaskMessage::default(), Side::Youngest);
    // Failing that, the recoverer archives it when its lease has ended.
    if let Err(error) = shared.broker.archive(&report, &raw, shared.now()).await {
        error!(task = report.run.id, %error, "could not archive the task");
    }
}

/// Puts back a task that is still ours, although it should not be started any more.
async fn put_back(shared: Arc<Shared>, delivery: Delivery) {
    let report = Report::by_owner(delivery.run, &delivery.message, Side::Oldest);
    // Failing that, somebody recovers it: its lease has ended.
    if let Err(error) = shared.broker.requeue(&report, shared.now_ns()).await {
        warn!(task = report.run.id, %error, "could not put the task back");
    }
}

/// Puts back what a take may have taken whose answer was lost.
pub(super) async fn find_lost(shared: Arc<Shared>, queue: Arc<str>, token: Arc<str>, expires: i64) {
    for pause in LOOK_AGAIN {
        tokio::time::sleep(pause).await;
        match put_back_take(&shared, &queue, &token, expires).await {
            Some(0) => {}
            Some(tasks) => warn!(queue = %queue, tasks, "tasks were put back whose take was not answered"),
            None => return,
        }
    }
}

/// Puts back all that a take has taken, in front and in its order; returns how many tasks. `None` where Redis refuses:
/// what was taken comes back when its leases end.
async fn put_back_take(shared: &Shared, queue: &str, token: &str, expires: i64) -> Option<u64> {
    let mut backoff = Backoff::new(&shared.outage, "putting back what a take has taken");
    loop {
        match shared.broker.requeue_run(queue, token, expires, shared.now_ns()).await {
            Ok(tasks) => {
                backoff.succeeded();
                return Some(tasks);
            }
            Err(error) if error.is_outage() => backoff.failed(&error).await,
            Err(error) => {
                warn!(queue, %error, "could not put back what a take may have taken; it comes back when its leases end");
                return None;
            }
        }
    }
}

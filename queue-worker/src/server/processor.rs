//! Takes tasks whenever a slot is free.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use queue_redis::Error;
use queue_redis::broker::{MAX_BATCH, SHORT_BATCH};
use queue_redis::service::{Backoff, Outage, Service};
use tokio_util::sync::CancellationToken;

use super::look::look;
use super::options::Unhandled;
use super::shared::Shared;
use super::taker::{Filling, Reply, Take, Taker};

/// How many takes are under way at once: of the tasks that they bring, none is renewed before it is started.
const MOST_UNDER_WAY: usize = MAX_BATCH / SHORT_BATCH;

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

async fn dequeue(shared: &Shared, take: &Take) -> Reply {
    let Take { name, count, token, expires, among, .. } = take;
    match shared.matching(among.clone()) {
        None => Ok((shared.broker.dequeue(name, *count, token, *expires).await?, Vec::new())),
        Some(matching) => shared.broker.dequeue_matching(name, *count, token, *expires, &matching).await,
    }
}

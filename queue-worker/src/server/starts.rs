//! Starts the attempts of a take.
//!
//! A task of the runtime for each attempt costs more than a handler of a few microseconds, most of it where another
//! thread is woken to run it. So while the handlers end soon and without waiting, the attempts of a take run one after
//! another, in one task of the runtime. An attempt that waits goes on in a task of its own, and after one that
//! waited, or took long, each has its own again, so that they use all threads.
//!
//! A handler that blocks its thread without warning holds up what else its take has brought, once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::future::poll_fn;
use queue_redis::broker::{Delivery, Taken};
use tokio::task::coop::has_budget_remaining;

use super::acks::Ack;
use super::attempt;
use super::limit::Place;
use super::pace::Pace;
use super::requeue::{archive_as_it_is, requeue};
use super::shared::Shared;
use super::slots::Slot;
use crate::events::Event;
use crate::job::Job;
use crate::log::{error, warn};
use crate::panic;

/// How long attempts run one after another before all else has its turn: the connection that writes the last reports,
/// the loops that take the next tasks, and what the attempts have woken on their thread.
const TURN: Duration = Duration::from_micros(50);

/// An attempt that may be polled; its report, unless others have the task by now.
type Attempt = Pin<Box<dyn Future<Output = Option<Ack>> + Send>>;

/// Starts what was taken, each task in a slot and, where the queue has a limit, in a place.
pub(super) fn start(shared: &Arc<Shared>, taken: Vec<Taken>, slots: &mut Vec<Arc<Slot>>, places: &mut Vec<Place>) {
    let mut attempts = Vec::with_capacity(taken.len());
    for taken in taken {
        match taken {
            // The answer was a long time under way, or this process was stopped: somebody else may have the task.
            Taken::Task(delivery) if delivery.run.leased_until() <= shared.now() => {
                warn!(task = delivery.run.id, queue = %delivery.run.queue, "a task came after its lease had ended; not started");
                shared.lookups.spawn(requeue(shared.clone(), delivery));
            }
            Taken::Task(delivery) => {
                let Some(slot) = slots.pop() else { continue };
                attempts.push(attempt(shared, delivery, Slot::with(slot, places.pop())));
            }
            Taken::Poisoned(run, raw, reason) => {
                shared.tell(|| Event::Unreadable { queue: &run.queue });
                error!(task = run.id, queue = %run.queue, %reason, "task cannot be read; it goes to the archive as it is");
                shared.lookups.spawn(archive_as_it_is(shared.clone(), run, raw));
            }
            Taken::Ghost(id) => warn!(task = id, "an id without a task was dropped from the queue"),
        }
    }
    if attempts.len() > 1 && shared.pace.is_short() {
        shared.handlers.spawn(together(shared.clone(), attempts));
    } else {
        attempts.into_iter().for_each(|attempt| drop(shared.handlers.spawn(alone(shared.clone(), attempt))));
    }
}

fn attempt(shared: &Arc<Shared>, delivery: Delivery, slot: Arc<Slot>) -> Attempt {
    let (now_ns, limit) = (shared.now_ns(), shared.options.max_result_bytes);
    let (routes, message) = (&shared.routes, &delivery.message);
    let work = (routes.timeout(message), routes.undecodable(message));
    let job = Job::new(delivery, now_ns, shared.broker.clone(), Arc::downgrade(&slot) as _, limit, work);
    let ticket = shared.running.insert(job.clone());
    Box::pin(attempt::run(shared.clone(), job, ticket, slot))
}

/// Polls an attempt for the first time, and learns from it.
fn begin(pace: &Pace, attempt: &mut Attempt, context: &mut Context<'_>) -> Poll<Option<Ack>> {
    let began = Instant::now();
    let polled = attempt.as_mut().poll(context);
    pace.learn(polled.is_ready(), began.elapsed());
    polled
}

async fn alone(shared: Arc<Shared>, mut attempt: Attempt) {
    let mut is_first = true;
    let ended = poll_fn(|context| {
        if std::mem::replace(&mut is_first, false) {
            begin(&shared.pace, &mut attempt, context)
        } else {
            attempt.as_mut().poll(context)
        }
    });
    shared.acks.send(ended.await);
}

async fn together(shared: Arc<Shared>, attempts: Vec<Attempt>) {
    // Sent at the end: whoever writes them would be woken on this thread, and wait for the next attempt there.
    let mut ended = Vec::with_capacity(attempts.len());
    let mut turn = Instant::now();
    for mut attempt in attempts {
        if !has_budget_remaining() || turn.elapsed() >= TURN {
            tokio::task::yield_now().await;
            turn = Instant::now();
        }
        if !shared.pace.is_short() {
            shared.handlers.spawn(alone(shared.clone(), attempt));
            continue;
        }
        // What it waits for, it asks again as soon as it has a task of its own.
        let mut context = Context::from_waker(Waker::noop());
        match panic::catch(|| begin(&shared.pace, &mut attempt, &mut context)) {
            Ok(Poll::Ready(ack)) => ended.extend(ack),
            Ok(Poll::Pending) => drop(shared.handlers.spawn(go_on(shared.clone(), attempt))),
            // Its report goes out when it is dropped.
            Err(_) => drop(panic::discard(attempt)),
        }
    }
    shared.acks.send(ended);
}

async fn go_on(shared: Arc<Shared>, attempt: Attempt) {
    shared.acks.send(attempt.await);
}

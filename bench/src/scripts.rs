//! How long a script holds Redis up.
//!
//! The same calls are made in the same order in several rounds, each on an empty Redis, one after another. What a
//! call's script takes shows in every round; another process on Redis' core, or the machine below, does not meet the
//! same call in each. So of every call the shortest time counts, and of these the longest.

use std::sync::Arc;
use std::time::Duration;

use queue_core::{RawTask, SystemClock, TaskOptions, TaskState, clock::Clock as _};
use queue_redis::{
    Client,
    broker::{Broker, Completion, Delivery, Dequeued, MAX_BATCH, Report, Run, SET_BATCH, SHORT_BATCH, Side, Taken},
};

use crate::server::Server;
use crate::sizes::Size;
use crate::{Args, Failure};

const QUEUE: &str = "bench";
const ROUNDS: usize = 9;

/// Tasks of a round that are enqueued; as many are scheduled. All of them, half of them and a fifth make whole calls.
const TASKS: usize = 99_000;

/// Tasks of another queue. Redis' table of keys and that of a set grow when they have doubled; in a Redis that has nothing
/// but this queue, both at once.
const OTHERS: usize = 1_000;

/// How often the leases of a hundred tasks are renewed.
const RENEWALS: usize = 50;

/// Calls of scripts below this are not noted. With nothing left out, Redis notes each command within a script too,
/// which takes longer than the command.
const NOTED_FROM_MICROS: u64 = 15;

/// What the calls are made through.
struct Caller {
    server: Server,
    broker: Broker,
    client: Client,
    takes: u64,
    /// The scripts of this round and how many tasks each call had, first call first.
    made: Vec<(&'static str, usize)>,
}

pub(crate) async fn measure(args: &Args) -> Result<Size, Failure> {
    let server = Server::start(false, &[]).await?;
    let client = Client::connect(&server.url()).await?;
    let broker = Broker::new(client.redis().clone());
    let mut caller = Caller { server, broker, client, takes: 0, made: Vec::new() };
    let tasks = if args.quick { TASKS / 5 } else { TASKS };
    // One round more, which does not count: it loads the scripts.
    let mut shortest = vec![u64::MAX; caller.round(tasks).await?.len()];
    let mut longest_of_all = 0;
    for _ in 0..ROUNDS {
        let micros = caller.round(tasks).await?;
        longest_of_all = micros.iter().copied().fold(longest_of_all, u64::max);
        shortest.iter_mut().zip(micros).for_each(|(shortest, micros)| *shortest = micros.min(*shortest));
    }
    let growth = caller.growth(tasks).await?;
    caller.server.stop().await;
    let longest = shortest.iter().max().copied().unwrap_or(0);
    let mut scripts: Vec<(&str, usize)> = Vec::new();
    caller.made.iter().for_each(|script| {
        if !scripts.contains(script) {
            scripts.push(*script)
        }
    });
    let lines = scripts.into_iter().map(|script| {
        let of_script = caller.made.iter().zip(&shortest).filter(|(made, _)| **made == script);
        let mut micros: Vec<u64> = of_script.map(|(_, micros)| *micros).collect();
        micros.sort_unstable();
        let (name, tasks) = script;
        format!("{name} of {tasks}: {}, {}", micros[micros.len() / 2], micros[micros.len() - 1])
    });
    let lines: Vec<String> = lines.collect();
    Ok(Size {
        name: "how long a script holds Redis up",
        value: format!(
            "{longest} µs at most, of each call the shortest of {ROUNDS} rounds ({longest_of_all} µs the longest of all \
             rounds); a lone HSET or ZADD without a script, when its table grows, {growth} µs. Median and longest of {}",
            lines.join("; ")
        ),
        must: "≤ 250 µs",
        goal: "≤ 120 µs",
    })
}

impl Caller {
    /// How long each call of a round took, in microseconds.
    async fn round(&mut self, tasks: usize) -> Result<Vec<u64>, Failure> {
        self.server.flush().await?;
        self.server.watch_slow_calls(NOTED_FROM_MICROS).await?;
        self.made.clear();
        self.enqueue("enqueue", SHORT_BATCH, OTHERS, TaskOptions::new().queue("other")).await?;
        self.enqueue("enqueue", SHORT_BATCH, tasks, TaskOptions::new()).await?;
        let mut left = tasks;
        while left > tasks / 2 {
            let reports = self.take(SHORT_BATCH).await?.into_iter().map(report).collect();
            self.report_done(reports).await?;
            left -= SHORT_BATCH;
        }
        while left > 0 {
            let mut completions = Vec::new();
            while completions.len() < 3 * SHORT_BATCH {
                completions.extend(self.take(SHORT_BATCH).await?.into_iter().map(completion));
            }
            left -= completions.len();
            for batch in completions.chunks(SET_BATCH) {
                self.made.push(("complete", batch.len()));
                self.broker.complete(QUEUE, batch, SystemClock.now_secs()).await?;
            }
        }
        for _ in 0..tasks / 2 / SHORT_BATCH {
            self.made.push(("delete_expired_completed", SHORT_BATCH));
            self.broker.delete_expired_completed(QUEUE, SystemClock.now_secs() + 3_600).await?;
        }
        self.enqueue("schedule", SET_BATCH, tasks, TaskOptions::new().process_in(Duration::from_secs(600))).await?;
        let later = SystemClock.now_ns() + 3_600 * 1_000_000_000;
        for _ in 0..tasks / SHORT_BATCH {
            self.made.push(("forward", SHORT_BATCH));
            self.broker.forward(QUEUE, TaskState::Scheduled, later, 0).await?;
        }
        self.renew_leases().await?;
        let mut micros = self.server.slow_calls("EVALSHA").await?;
        micros.reverse();
        if micros.len() != self.made.len() {
            return Err(format!("{} calls of scripts were made, {} noted", self.made.len(), micros.len()).into());
        }
        Ok(micros)
    }

    /// How long Redis is held up by a single command when one of its tables has to grow, in microseconds.
    async fn growth(&mut self, tasks: usize) -> Result<u64, Failure> {
        let mut shortest = u64::MAX;
        for _ in 0..ROUNDS {
            self.server.flush().await?;
            self.server.watch_slow_calls(NOTED_FROM_MICROS).await?;
            self.server.write_plainly(QUEUE, tasks).await?;
            let mut longest = 0;
            for command in ["HSET", "ZADD"] {
                longest = self.server.slow_calls(command).await?.into_iter().fold(longest, u64::max);
            }
            shortest = shortest.min(longest);
        }
        Ok(shortest)
    }

    async fn enqueue(
        &mut self,
        script: &'static str,
        at_once: usize,
        tasks: usize,
        options: TaskOptions,
    ) -> Result<(), Failure> {
        let task = RawTask::new("bench:noop").payload(vec![b'x'; 200]).queue(QUEUE).with(options);
        for _ in 0..tasks / at_once {
            self.made.push((script, at_once));
            for outcome in self.client.enqueue_many(vec![task.clone(); at_once]).await {
                outcome?;
            }
        }
        Ok(())
    }

    async fn take(&mut self, count: usize) -> Result<Vec<Delivery>, Failure> {
        self.takes += 1;
        let (queue, token): (Arc<str>, Arc<str>) = (QUEUE.into(), format!("bench:{}", self.takes).into());
        let expires = SystemClock.now_secs() + 30;
        let Dequeued::Tasks(tasks) = self.broker.dequeue(&queue, count, &token, expires).await? else {
            return Err("the queue is paused".into());
        };
        self.made.push(("dequeue", tasks.len()));
        let delivery = |taken: Taken| match taken {
            Taken::Task(delivery) => Ok(delivery),
            other => Err(format!("not a task: {other:?}").into()),
        };
        tasks.into_iter().map(delivery).collect()
    }

    async fn report_done(&mut self, reports: Vec<Report>) -> Result<(), Failure> {
        self.made.push(("done", reports.len()));
        self.broker.done(QUEUE, &reports, SystemClock.now_secs()).await?;
        Ok(())
    }

    /// A hundred tasks in hand, over and over, whose leases are renewed.
    async fn renew_leases(&mut self) -> Result<(), Failure> {
        let mut connection = self.broker.redis().pooled().await?;
        for _ in 0..RENEWALS {
            let mut reports: Vec<Report> = Vec::new();
            while reports.len() < MAX_BATCH {
                reports.extend(self.take(SHORT_BATCH).await?.into_iter().map(report));
            }
            for batch in reports.chunks(SHORT_BATCH) {
                let runs: Vec<Run> = batch.iter().map(|report| report.run.clone()).collect();
                self.made.push(("extend_lease", runs.len()));
                self.broker.extend_lease(&mut connection, QUEUE, &runs, SystemClock.now_secs() + 35).await?;
            }
            for batch in reports.chunks(SHORT_BATCH) {
                self.report_done(batch.to_vec()).await?;
            }
        }
        Ok(())
    }
}

fn report(delivery: Delivery) -> Report {
    Report::by_owner(delivery.run, &delivery.message, Side::Oldest)
}

fn completion(delivery: Delivery) -> Completion {
    let message = delivery.message.clone();
    Completion { message, expires_at: SystemClock.now_secs() + 600, result: None, report: report(delivery) }
}

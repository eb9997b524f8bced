//! Limits of a queue: what a take gives, what waits, and what becomes of it.

mod adaptive;
mod bars;
mod breaker;
mod doctor;
mod fair;
mod model;
mod order;
mod server;
mod stranded;
mod takes;

use queue_core::limit::{Limit, LimitKey};
use queue_redis::broker::{Delivery, Dequeued, Freed, More, Taken};

use crate::support::{Fixture, NOW, QUEUE, report};

/// One of a tenant at once.
fn one_of_each_tenant() -> Limit {
    Limit::new("tenant", LimitKey::header("tenant")).concurrency(1)
}

/// A task of a tenant.
fn of(tenant: &str, id: &str) -> queue_core::RawTask {
    crate::support::job(id).header("tenant", tenant)
}

impl Fixture {
    async fn limit(&self, limit: Limit) {
        self.broker.publish_queue(QUEUE).await.unwrap();
        self.inspector().set_limit(QUEUE, limit).await.unwrap();
    }

    /// What a take of so many gives, and whether there is more.
    async fn take_some(&self, count: usize) -> (Vec<Delivery>, More) {
        let Dequeued::Limited { tasks, more, .. } = self.dequeue(count).await else { panic!("no limits") };
        let taken = tasks.into_iter().map(|taken| match taken {
            Taken::Task(delivery) => delivery,
            other => panic!("took {other:?}"),
        });
        (taken.collect(), more)
    }

    /// The ids of them.
    async fn take_ids(&self, count: usize) -> Vec<String> {
        ids(&self.take_some(count).await.0)
    }

    /// Ends runs with success; says so to their lanes.
    async fn end(&self, runs: &[Delivery]) {
        if runs.is_empty() {
            return;
        }
        self.end_in_silence(runs).await;
        let freed: Vec<Freed> =
            runs.iter().map(|delivery| Freed { run: delivery.run.clone(), too_many: None, went_well: None }).collect();
        self.broker.free_slots(QUEUE, &freed).await.unwrap();
    }

    async fn end_in_silence(&self, runs: &[Delivery]) {
        let reports: Vec<_> = runs.iter().map(report).collect();
        self.broker.done(QUEUE, &reports.iter().collect::<Vec<_>>(), NOW).await.unwrap();
    }

    /// As if the time had come to look at all lanes.
    async fn look_again(&self) {
        self.broker.look_at_lanes(QUEUE).await.unwrap();
    }

    async fn state(&self, id: &str) -> String {
        self.cmd::<Option<String>>(&["HGET", &format!("asynq:{{q}}:t:{id}"), "state"]).await.unwrap_or_default()
    }
}

fn ids(taken: &[Delivery]) -> Vec<String> {
    taken.iter().map(|delivery| delivery.run.id.clone()).collect()
}

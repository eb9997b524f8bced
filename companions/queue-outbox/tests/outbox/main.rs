//! The outbox in a real PostgreSQL, and its relay to a real Redis.

mod addresses;
mod flows;
mod postgres;
mod relay;
mod survive;

use std::time::Duration;

use queue_core::RawTask;
use queue_outbox::{Database, Outbox, Passed, Relay};
use queue_redis::embedded::RedisServer;
use queue_redis::{Client, Redis};
use tokio_postgres::GenericClient;

use self::postgres::OneDatabase;

/// A database with an outbox, and a Redis.
struct Place {
    database: OneDatabase,
    redis: RedisServer,
    client: Client,
    outbox: Outbox,
}

impl Place {
    async fn new() -> Self {
        Self::within(OneDatabase::new().await).await
    }

    async fn within(database: OneDatabase) -> Self {
        let redis = RedisServer::start().await.unwrap();
        let address = Database::new(&database.address()).unwrap();
        address.init().await.unwrap();
        address.init().await.unwrap();
        let client = Client::new(redis.redis());
        Self { database, redis, outbox: Outbox::new(client.clone()), client }
    }

    fn address(&self) -> Database {
        Database::new(&self.database.address()).unwrap()
    }

    fn relay(&self) -> Relay {
        Relay::new(self.address(), self.client.clone())
    }

    /// Relays what waits, and says of how many rows what became.
    async fn relayed(&self) -> [usize; 4] {
        let Passed { relayed, duplicates, refused, left, .. } = self.relay().run_once().await.unwrap();
        [relayed, duplicates, refused, left]
    }

    async fn write(&self, transaction: &impl GenericClient, task: RawTask) -> String {
        let row = self.outbox.row(task).unwrap();
        row.insert(transaction).await.unwrap();
        row.task_id().to_owned()
    }

    /// Writes a row in words.
    async fn say(&self, task: &str) {
        let client = self.database.client().await;
        client.execute("INSERT INTO queue_outbox (task) VALUES ($1::text::json)", &[&task]).await.unwrap();
    }

    fn redis(&self) -> Redis {
        self.redis.redis()
    }

    async fn pending(&self, queue: &str) -> Vec<String> {
        let mut ids: Vec<String> =
            self.redis().command("LRANGE", (format!("asynq:{{{queue}}}:pending"), 0, -1)).await.unwrap();
        ids.reverse();
        ids
    }
}

fn job(payload: &str) -> RawTask {
    RawTask::new("job").queue("q").payload(payload.to_owned())
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    tokio::time::timeout(Duration::from_secs(60), async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{what}"));
}

//! What the programs of this folder have in common.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What stands behind the name of a program: a word that says what it is to do, and `NAME=VALUE`.
pub struct Said {
    /// The first argument.
    pub mode: Option<String>,
    values: HashMap<String, String>,
}

impl Said {
    pub fn read() -> Self {
        let pair = |it: String| it.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { mode: std::env::args().nth(1), values: std::env::args().skip(1).filter_map(pair).collect() }
    }

    pub fn number(&self, name: &str, default: u64) -> u64 {
        self.values.get(name).and_then(|it| it.parse().ok()).unwrap_or(default)
    }

    /// The address of Redis.
    pub fn redis(&self) -> &str {
        self.values.get("redis").map_or("redis://127.0.0.1:6379", String::as_str)
    }
}

/// Tells when so many tasks have been worked.
#[derive(Clone)]
pub struct Goal(Arc<(AtomicU64, Notify)>);

impl Goal {
    pub fn of(tasks: u64) -> Self {
        Self(Arc::new((AtomicU64::new(tasks), Notify::new())))
    }

    pub fn worked(&self) {
        if self.0.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.1.notify_one();
        }
    }

    /// Works one task, which waits so long.
    pub async fn work(self, wait: Duration) {
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        self.worked();
    }

    /// Waits until all are worked.
    pub async fn reached(&self) {
        self.0.1.notified().await;
    }
}

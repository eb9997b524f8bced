//! Orders to workers, given as operators give them.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use queue_admin::{Actor, Admin, Inspector, Role, ServerVerb};
use queue_core::registry::Order;
use queue_redis::Redis;

use crate::Failure;

/// How often it is tried to take an order back: longer than any fault of Redis lasts.
const TRIES: usize = 120;

/// An order.
#[derive(Debug)]
pub(crate) struct Given {
    verb: ServerVerb,
    order: Order,
}

impl Given {
    /// To be quiet, or to run one to eight tasks at once.
    pub(crate) fn draw(target: usize) -> Self {
        let slots = u32::try_from(target % 9).unwrap_or(0);
        match slots {
            0 => Self { verb: ServerVerb::Quiet, order: Order::default() },
            slots => Self { verb: ServerVerb::Set, order: Order { concurrency: Some(slots), ..Order::default() } },
        }
    }
}

/// Gives an order to the worker of this process; whether there is one.
pub(crate) async fn order(upstream: &AtomicU16, pid: u32, given: &Given) -> Result<bool, Failure> {
    let redis = Redis::connect(&format!("redis://127.0.0.1:{}", upstream.load(Ordering::SeqCst))).await?;
    let actor = Actor { name: "chaos".to_owned(), role: Role::Admin, via: "test", address: None };
    let admin = Admin::new(Inspector::new(redis), actor);
    let servers = admin.inspector().servers().await?;
    let mut known = false;
    for server in servers.iter().filter(|server| u32::try_from(server.pid) == Ok(pid)) {
        admin.order(given.verb, &server.id, &given.order).await?;
        known = true;
    }
    Ok(known)
}

/// Lets the worker go by its own configuration again.
pub(crate) async fn take_back(upstream: &AtomicU16, pid: u32) {
    let reset = Given { verb: ServerVerb::Reset, order: Order::default() };
    for _ in 0..TRIES {
        match order(upstream, pid, &reset).await {
            Ok(_) => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
        }
    }
    eprintln!("an order to process {pid} cannot be taken back");
}

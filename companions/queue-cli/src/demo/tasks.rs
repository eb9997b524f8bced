//! The tasks of the demo and their handlers: an evening in a small shop.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use queue_worker::{Failure, Job, Output, Router, State, Task};
use serde::{Deserialize, Serialize};

/// Where orders are worked.
pub(super) const SHOP: &str = "demo-shop";
/// Where mail goes.
pub(super) const MAIL: &str = "demo-mail";
/// Where mail for everybody goes, so that it does not hold up the rest.
pub(super) const BULK: &str = "demo-bulk";
/// All of them with their weights.
pub(super) const QUEUES: [(&str, u32); 3] = [(SHOP, 6), (MAIL, 3), (BULK, 1)];

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "email:welcome", queue = "demo-mail", timeout = "10s")]
pub(super) struct Welcome {
    pub(super) to: String,
}

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "email:reminder", queue = "demo-mail", timeout = "10s")]
pub(super) struct Reminder {
    pub(super) cart: u32,
}

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "email:newsletter", queue = "demo-bulk", timeout = "10s")]
pub(super) struct Newsletter {
    pub(super) reader: u32,
}

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "payment:charge", queue = "demo-shop", max_retry = 5, timeout = "10s", retention = "1h")]
pub(super) struct Charge {
    pub(super) order: u32,
    pub(super) cents: u64,
}

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "invoice:print", queue = "demo-shop", max_retry = 2, timeout = "10s")]
pub(super) struct Invoice {
    pub(super) order: u32,
}

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "report:sales", codec = "msgpack", queue = "demo-shop", retention = "1h")]
pub(super) struct Sales {
    pub(super) month: String,
    pub(super) sold: Vec<(String, u32)>,
}

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "stock:sync", queue = "demo-shop", unique = "1m", retention = "1h")]
pub(super) struct StockSync {
    pub(super) warehouse: String,
}

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "address:verify", queue = "demo-shop", max_retry = 5)]
pub(super) struct Address {
    pub(super) street: String,
}

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "parcel:book", queue = "demo-shop", max_retry = 5, retention = "1h")]
pub(super) struct Parcel {
    pub(super) order: u32,
}

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "video:encode", codec = "msgpack", queue = "demo-shop", timeout = "1s", retention = "1h")]
pub(super) struct Video {
    pub(super) file: String,
    pub(super) heights: Vec<u16>,
}

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "image:resize", codec = "msgpack", queue = "demo-shop", retention = "1h")]
pub(super) struct Image {
    pub(super) file: String,
    pub(super) width: u32,
}

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "order:import", queue = "demo-shop")]
pub(super) struct Import {
    pub(super) orders: Vec<u32>,
}

/// What the handlers share: how often each task was tried. Redis forgets a task that is done; this is how
/// the demo still knows.
#[derive(Debug, Clone, Default)]
pub(super) struct Shop {
    // A std mutex: held for a look at the map.
    tries: Arc<Mutex<HashMap<String, u32>>>,
}

impl Shop {
    /// How often the task with this id, or of this type, was handed to its handler.
    pub(super) fn tries(&self, id_or_type: &str) -> u32 {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner).get(id_or_type).copied().unwrap_or(0)
    }

    /// Counts an attempt; returns which it is, beginning with 1.
    fn attempt(&self, job: &Job) -> u32 {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        *tries.entry(job.task_type().to_owned()).or_default() += 1;
        let tries = tries.entry(job.id().to_owned()).or_default();
        *tries += 1;
        *tries
    }
}

/// The panic that is part of the demo.
pub(super) const PANIC: &str = "height is 0";

/// What one would write in a program of one's own, but for the sleeping.
pub(super) fn router(shop: Shop) -> Router<Shop> {
    Router::new(shop)
        .task(welcome)
        .task(remind)
        .task(newsletter)
        .task(charge)
        .task(print_invoice)
        .task(report)
        .task(sync_stock)
        .task(verify)
        .task(book_parcel)
        .task(encode)
        .task(resize)
        .task(import)
}

async fn work(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

async fn welcome(_: Welcome, State(shop): State<Shop>, job: Job) {
    shop.attempt(&job);
    work(400).await;
}

async fn remind(_: Reminder, State(shop): State<Shop>, job: Job) {
    shop.attempt(&job);
    work(300).await;
}

async fn newsletter(_: Newsletter, State(shop): State<Shop>, job: Job) {
    shop.attempt(&job);
    work(20).await;
}

#[derive(Debug, Serialize)]
struct Receipt {
    receipt: String,
    cents: u64,
}

async fn charge(task: Charge, State(shop): State<Shop>, job: Job) -> Result<Output<Receipt>, Failure> {
    let attempt = shop.attempt(&job);
    work(500).await;
    match attempt {
        1 => Err("bank: connection reset".into()),
        2 => Err("bank: 502 bad gateway".into()),
        _ => Ok(Output(Receipt { receipt: format!("R-{}", task.order), cents: task.cents })),
    }
}

async fn print_invoice(task: Invoice, State(shop): State<Shop>, job: Job) -> Result<(), Failure> {
    shop.attempt(&job);
    work(300).await;
    Err(format!("printer: no paper for order {}", task.order).into())
}

async fn report(task: Sales, State(shop): State<Shop>, job: Job) -> Output<serde_json::Value> {
    shop.attempt(&job);
    work(600).await;
    let total: u32 = task.sold.iter().map(|(_, sold)| sold).sum();
    Output(serde_json::json!({ "month": task.month, "sold": total }))
}

async fn sync_stock(task: StockSync, State(shop): State<Shop>, job: Job) -> Output<String> {
    shop.attempt(&job);
    work(800).await;
    Output(format!("{} in sync", task.warehouse))
}

async fn verify(task: Address, State(shop): State<Shop>, job: Job) -> Result<(), Failure> {
    shop.attempt(&job);
    work(300).await;
    // To ask again would give the same answer.
    Err(Failure::archive(format!("no such street: {}", task.street)))
}

async fn book_parcel(task: Parcel, State(shop): State<Shop>, job: Job) -> Result<Output<String>, Failure> {
    let attempt = shop.attempt(&job);
    work(300).await;
    if attempt == 1 {
        // Not the task's fault, so it costs no retry.
        return Err(Failure::snooze(Duration::from_secs(1), "carrier: too many requests"));
    }
    Ok(Output(format!("parcel for {} booked", task.order)))
}

async fn encode(task: Video, State(shop): State<Shop>, job: Job) -> Output<String> {
    // The first attempt hangs, and the timeout ends it.
    work(if shop.attempt(&job) == 1 { 60_000 } else { 400 }).await;
    Output(format!("{} in {} sizes", task.file, task.heights.len()))
}

async fn resize(task: Image, State(shop): State<Shop>, job: Job) -> Output<String> {
    let attempt = shop.attempt(&job);
    work(300).await;
    assert!(attempt > 1, "{PANIC}");
    Output(format!("{} at {} px", task.file, task.width))
}

async fn import(_: Import, State(shop): State<Shop>, job: Job) {
    // Not reached: the payload cannot be decoded.
    shop.attempt(&job);
}

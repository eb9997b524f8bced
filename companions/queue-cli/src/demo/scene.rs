//! What is enqueued, and where each task should end.

use std::time::Duration;

use queue_core::{RawTask, TaskOptions, TaskState};
use queue_redis::{Client, EnqueueError};

use super::tasks::{
    Address, BULK, Charge, Image, Invoice, MAIL, Newsletter, Parcel, Reminder, SHOP, Sales, StockSync, Video, Welcome,
};
use crate::error::CliError;

/// How many newsletters there are.
pub(super) const NEWSLETTERS: u32 = 500;

/// Where a task ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Worked, and deleted because it has no retention.
    Done,
    /// Not enqueued: another task is the same.
    Refused,
    /// Still there, in this state.
    In(TaskState),
}

/// A task of the demo.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    /// Task id; for a batch, its name.
    pub(super) id: &'static str,
    pub(super) queue: &'static str,
    pub(super) task_type: &'static str,
    /// What it shows, for people.
    pub(super) shows: &'static str,
    /// How many tasks it stands for.
    pub(super) tasks: u32,
    pub(super) end: End,
    /// How often its handler runs.
    pub(super) tries: u32,
    /// How often it counts as failed.
    pub(super) failed: u32,
    /// What stands in its result, or in its last error if it has none.
    pub(super) proof: &'static str,
    /// Whether it was enqueued, or refused, as it should be.
    pub(super) refused: bool,
}

impl Scene {
    fn new(id: &'static str, queue: &'static str, task_type: &'static str, shows: &'static str, end: End) -> Self {
        Self { id, queue, task_type, shows, tasks: 1, end, tries: 1, failed: 0, proof: "", refused: false }
    }

    fn tries(mut self, tries: u32, failed: u32) -> Self {
        (self.tries, self.failed) = (tries, failed);
        self
    }

    fn proof(mut self, proof: &'static str) -> Self {
        self.proof = proof;
        self
    }

    /// How many attempts Redis counts as finished.
    pub(super) fn processed(&self) -> u32 {
        let succeeds = matches!(self.end, End::Done | End::In(TaskState::Completed));
        self.failed + if succeeds { self.tasks } else { 0 }
    }
}

/// Enqueues everything.
pub(super) async fn enqueue(client: &Client) -> Result<Vec<Scene>, CliError> {
    let mut scenes = Vec::new();
    let completed = End::In(TaskState::Completed);
    let archived = End::In(TaskState::Archived);
    let id = |id: &str| TaskOptions::new().task_id(id);

    client.enqueue_with(Welcome { to: "ada@example.com".to_owned() }, id("welcome-ada")).await?;
    scenes.push(Scene::new("welcome-ada", MAIL, "email:welcome", "worked at once, and gone", End::Done));

    client.enqueue_with(Reminder { cart: 42 }, id("reminder-42").process_in(Duration::from_secs(3))).await?;
    scenes.push(Scene::new("reminder-42", MAIL, "email:reminder", "starts in 3 s, then worked", End::Done));

    client.enqueue_with(Reminder { cart: 43 }, id("reminder-43").process_in(Duration::from_secs(24 * 60 * 60))).await?;
    let tomorrow = Scene::new(
        "reminder-43",
        MAIL,
        "email:reminder",
        "starts tomorrow, so it waits",
        End::In(TaskState::Scheduled),
    );
    scenes.push(tomorrow.tries(0, 0));

    client.enqueue_with(Charge { order: 1042, cents: 4_990 }, id("charge-1042")).await?;
    let charge = Scene::new("charge-1042", SHOP, "payment:charge", "fails twice, then recovers", completed);
    scenes.push(charge.tries(3, 2).proof("\"receipt\":\"R-1042\""));

    client.enqueue_with(Invoice { order: 1043 }, id("invoice-1043")).await?;
    let invoice = Scene::new("invoice-1043", SHOP, "invoice:print", "fails until its retries are used up", archived);
    scenes.push(invoice.tries(3, 3).proof("no paper for order 1043"));

    client.enqueue_with(Address { street: "Nowhere Lane".to_owned() }, id("address-7")).await?;
    let address = Scene::new("address-7", SHOP, "address:verify", "fails for good: archived at once", archived);
    scenes.push(address.tries(1, 1).proof("no such street: Nowhere Lane"));

    client.enqueue_with(Parcel { order: 1042 }, id("parcel-1042")).await?;
    let parcel = Scene::new("parcel-1042", SHOP, "parcel:book", "snoozed once, at no cost of a retry", completed);
    scenes.push(parcel.tries(2, 0).proof("parcel for 1042 booked"));

    let sold = vec![("lamp".to_owned(), 31), ("chair".to_owned(), 11)];
    client.enqueue_with(Sales { month: "2026-11".to_owned(), sold }, id("report-2026-11")).await?;
    let report = Scene::new("report-2026-11", SHOP, "report:sales", "MessagePack in, result kept for 1 h", completed);
    scenes.push(report.proof("\"sold\":42"));

    client.enqueue_with(Video { file: "tour.mp4".to_owned(), heights: vec![480, 720, 1080] }, id("video-3")).await?;
    let video = Scene::new("video-3", SHOP, "video:encode", "hangs once: ended by its 1 s timeout", completed);
    scenes.push(video.tries(2, 1).proof("tour.mp4 in 3 sizes"));

    client.enqueue_with(Image { file: "lamp.png".to_owned(), width: 640 }, id("image-5")).await?;
    let image = Scene::new("image-5", SHOP, "image:resize", "panics once: a failure like any other", completed);
    scenes.push(image.tries(2, 1).proof("lamp.png at 640 px"));

    // What a buggy producer might send.
    let broken = RawTask::new("order:import").payload(r#"{"orders":[1,2"#).queue(SHOP).task_id("import-9");
    client.enqueue(broken).await?;
    let import = Scene::new("import-9", SHOP, "order:import", "payload is broken: not even tried", archived);
    scenes.push(import.tries(0, 1).proof("failed to decode the payload"));

    let north = || StockSync { warehouse: "north".to_owned() };
    client.enqueue_with(north(), id("stock-north")).await?;
    let stock = Scene::new("stock-north", SHOP, "stock:sync", "unique: locks its type and payload", completed);
    scenes.push(stock.proof("north in sync"));

    let second = client.enqueue_with(north(), id("stock-north-2")).await;
    let mut duplicate =
        Scene::new("stock-north-2", SHOP, "stock:sync", "the same task again", End::Refused).tries(0, 0);
    duplicate.refused = match second {
        Err(EnqueueError::DuplicateTask { .. }) => true,
        Err(error) => return Err(error.into()),
        Ok(_) => false,
    };
    scenes.push(duplicate);

    let newsletters = (0..NEWSLETTERS).map(|reader| Newsletter { reader });
    for outcome in client.enqueue_many(newsletters).await {
        outcome?;
    }
    let mut batch = Scene::new("500 newsletters", BULK, "email:newsletter", "enqueued at once, in batches", End::Done);
    (batch.tasks, batch.tries) = (NEWSLETTERS, NEWSLETTERS);
    scenes.push(batch);

    Ok(scenes)
}

//! Where the tasks are, read from Redis.

use chrono::{DateTime, Utc};
use queue_admin::payload::preview;
use queue_admin::{Error, Inspector};
use queue_core::TaskState;

use super::scene::{End, Scene};
use super::tasks::Shop;

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Not in Redis.
    Absent,
    /// In this state.
    In(TaskState),
    /// A batch: this many are still there.
    Left(u64),
}

/// What is known of a task at one moment.
#[derive(Debug, Clone)]
pub(super) struct Sight {
    pub(super) scene: Scene,
    pub(super) place: Place,
    /// When it is tried next.
    pub(super) due: Option<DateTime<Utc>>,
    /// Retries that Redis has counted, if it still has the task.
    pub(super) retried: Option<i32>,
    /// Attempts that the handler has counted.
    pub(super) tries: u32,
    /// Its result, or else its last error.
    pub(super) proof: String,
}

impl Sight {
    /// Looks at one task.
    pub(super) async fn take(inspector: &Inspector, shop: &Shop, scene: &Scene) -> Result<Self, Error> {
        let mut sight = Self {
            scene: scene.clone(),
            place: Place::Absent,
            due: None,
            retried: None,
            tries: shop.tries(if scene.tasks > 1 { scene.task_type } else { scene.id }),
            proof: String::new(),
        };
        if scene.tasks > 1 {
            let left = inspector.queue(scene.queue).await?.size();
            sight.place = if left == 0 { Place::Absent } else { Place::Left(left) };
            return Ok(sight);
        }
        match inspector.task(scene.queue, scene.id).await {
            Ok(task) => {
                sight.place = Place::In(task.state);
                sight.due =
                    task.next_process_at.filter(|_| matches!(task.state, TaskState::Scheduled | TaskState::Retry));
                sight.retried = Some(task.retried);
                sight.proof = match &task.result {
                    Some(result) => preview(result, 200),
                    None => task.last_error.unwrap_or_default(),
                };
            }
            Err(Error::TaskNotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(sight)
    }

    /// Whether the task is where it should end. It may still be on its way.
    pub(super) fn has_ended(&self) -> bool {
        match self.scene.end {
            // One that was never there and one that is gone look the same in Redis; the handler knows.
            End::Done => self.place == Place::Absent && self.tries >= self.scene.tries,
            End::Refused => self.place == Place::Absent,
            End::In(state) => self.place == Place::In(state),
        }
    }

    /// Whether everything about the task is as it should be in the end.
    pub(super) fn is_right(&self) -> bool {
        let scene = &self.scene;
        // A task that fails for the last time is archived without another retry being counted.
        let retried = match scene.end {
            End::In(TaskState::Archived) => scene.failed.saturating_sub(1),
            _ => scene.failed,
        };
        self.has_ended()
            && self.tries == scene.tries
            && self.retried.is_none_or(|counted| u32::try_from(counted) == Ok(retried))
            && self.proof.contains(scene.proof)
            && scene.refused == (scene.end == End::Refused)
    }

    /// Its place in a word or two.
    pub(super) fn place(&self) -> String {
        match self.place {
            Place::In(state) => state.to_string(),
            Place::Left(left) => format!("{left} left"),
            Place::Absent if self.scene.refused => "refused".to_owned(),
            Place::Absent => "done".to_owned(),
        }
    }
}

/// Looks at all tasks.
pub(super) async fn look(inspector: &Inspector, shop: &Shop, scenes: &[Scene]) -> Result<Vec<Sight>, Error> {
    let mut sights = Vec::with_capacity(scenes.len());
    for scene in scenes {
        sights.push(Sight::take(inspector, shop, scene).await?);
    }
    Ok(sights)
}

/// Tasks finished and failed ever, of all queues of the demo.
pub(super) async fn counters(inspector: &Inspector, queues: &[&str]) -> Result<(u64, u64), Error> {
    let mut counters = (0, 0);
    for queue in queues {
        match inspector.queue(queue).await {
            Ok(queue) => counters = (counters.0 + queue.processed_total, counters.1 + queue.failed_total),
            Err(Error::QueueNotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(counters)
}

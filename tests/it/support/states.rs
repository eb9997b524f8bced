//! Tasks in each state, brought there by the transitions that lead to it.

use std::time::Duration;

use queue_core::{RawTask, TaskMessage, TaskState};
use queue_redis::broker::{Completion, Dequeued, Taken, Verdict};

use super::fixture::{Fixture, NOW, NOW_NS, QUEUE, report};

/// The group of the tasks that are aggregating.
pub(crate) const GROUP: &str = "g";

impl Fixture {
    /// Puts `old1`, `old2` and so on, so many, into the archive, a second before [`NOW`].
    pub(crate) async fn fill_archive(&self, count: u32) {
        let fill = "for n = 1, ARGV[1] do
            redis.call('ZADD', 'asynq:{q}:archived', ARGV[2], 'old' .. n)
            redis.call('HSET', 'asynq:{q}:t:old' .. n, 'msg', 'm', 'state', 'archived')
        end";
        let _: redis::Value = self.cmd(&["EVAL", fill, "0", &count.to_string(), &(NOW - 1).to_string()]).await;
    }

    /// Brings a new task into a state, at [`NOW`]; nothing may be pending before. The times in its state are
    /// an hour ahead.
    pub(crate) async fn put_in(&self, state: TaskState, task: RawTask) {
        let hour = Duration::from_secs(3600);
        match state {
            TaskState::Pending => return self.put([task]).await,
            TaskState::Scheduled => return self.put([task.process_in(hour)]).await,
            TaskState::Aggregating => return self.put([task.group(GROUP)]).await,
            TaskState::Active | TaskState::Retry | TaskState::Archived | TaskState::Completed => {}
        }
        let delivery = self.active(task.retention(hour)).await;
        let failed = TaskMessage { error_msg: "boom".into(), last_failed_at: NOW, ..delivery.message.clone() };
        let verdict = match state {
            TaskState::Retry => {
                let message = TaskMessage { retried: 1, ..failed };
                self.broker.retry(&report(&delivery), &message.to_bytes(), NOW + 3600, false, NOW).await.unwrap()
            }
            TaskState::Archived => self.broker.archive(&report(&delivery), &failed.to_bytes(), NOW).await.unwrap(),
            TaskState::Completed => {
                let message = TaskMessage { completed_at: NOW, ..delivery.message.clone() };
                let completion =
                    Completion { report: report(&delivery), message, expires_at: NOW + 3600, result: None };
                self.broker.complete(QUEUE, &[completion], NOW).await.unwrap()[0]
            }
            _ => return,
        };
        assert_eq!(verdict, Verdict::Applied);
    }

    /// Redis has the scripts of takes, renewals and reports from now on: an answer that is lost is the one to a call.
    pub(crate) async fn warm(&self) {
        const WARM: &str = "warm";
        let tasks = ["a", "b"].map(|id| self.compose(RawTask::new("job").queue(WARM).task_id(id)));
        self.broker.enqueue(WARM, &tasks, NOW_NS).await.unwrap();
        let taken = self.broker.dequeue(&WARM.into(), 2, &"w:1".into(), NOW + 30).await.unwrap();
        let Dequeued::Tasks(taken) = taken else { panic!("{taken:?}") };
        let [Taken::Task(first), Taken::Task(second)] = &taken[..] else { panic!("{taken:?}") };
        let mut connection = self.redis().pooled().await.unwrap();
        self.broker.extend_lease(&mut connection, WARM, std::slice::from_ref(&first.run), NOW + 60).await.unwrap();
        self.broker.retry(&report(first), &first.message.to_bytes(), NOW + 60, true, NOW).await.unwrap();
        self.broker.done(WARM, &[report(second)], NOW).await.unwrap();
        self.run("SREM asynq:queues warm").await;
        let keys: Vec<String> = self.cmd(&["KEYS", "asynq:{warm}:*"]).await;
        let _: u64 = self.cmd(&[&["DEL".to_owned()], &keys[..]].concat()).await;
    }

    /// Deletes the counters, which have nothing to do with what is tested.
    pub(crate) async fn forget_counters(&self) {
        let counters: Vec<String> = self.cmd(&["KEYS", "asynq:{q}:[pf][ra]*[ed]*"]).await;
        for counter in counters {
            if counter.starts_with("asynq:{q}:processed") || counter.starts_with("asynq:{q}:failed") {
                let _: i64 = self.cmd(&["DEL", &counter]).await;
            }
        }
    }
}

/// Lines of changes in the order of their paths, as [`super::Keyspace`] has them.
pub(crate) fn by_path(lines: &str) -> String {
    let mut lines: Vec<&str> = lines.lines().map(str::trim).collect();
    lines.sort_by_key(|line| line[2..].split(": ").next().unwrap_or_default());
    lines.join("\n")
}

//! Looks at queues from which their future is told.

use std::collections::BTreeMap;

use queue_core::forecast::Look;

use super::Inspector;
use crate::error::Error;
use crate::{QueueInfo, ServerInfo};

impl Inspector {
    /// A look at every queue, for [`forecast`](queue_core::forecast::forecast). A queue that cannot be read is left out.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn looks(&self) -> Result<BTreeMap<String, Look>, Error> {
        let board = self.board().await?;
        let servers = self.servers().await?;
        let rows = board.rows.into_iter().filter_map(|row| Some((row.overdue, row.queue.ok()?)));
        Ok(rows.map(|(overdue, queue)| (queue.name.clone(), queue.look(overdue, &servers))).collect())
    }
}

impl QueueInfo {
    /// The same as a look, with so many tasks whose time is over and that are not pending yet, and these servers.
    pub fn look(&self, overdue: u64, servers: &[ServerInfo]) -> Look {
        let serving: Vec<&ServerInfo> = servers
            .iter()
            .filter(|server| server.status == "active" && server.queues.contains_key(&self.name))
            .collect();
        let slots = |server: &ServerInfo| u64::from(server.concurrency.unsigned_abs());
        let all = serving.iter().map(|server| slots(server)).fold(0, u64::saturating_add);
        // What is busy, they said with their last heartbeats, which may be 5 s old.
        let busy = |server: &ServerInfo| server.workers.len() as u64;
        let free = serving.iter().map(|server| slots(server).saturating_sub(busy(server))).fold(0, u64::saturating_add);
        Look {
            at_ms: self.timestamp.timestamp_millis(),
            waiting: self.pending.saturating_add(overdue),
            active: self.active,
            processed: self.processed_total,
            slots: self.active.saturating_add(free.min(all.saturating_sub(self.active))),
            is_paused: self.paused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkerInfo;

    #[test]
    fn a_queue_has_its_active_tasks_and_the_free_slots_of_those_who_serve_it() {
        let server = |queue: &str, status: &str, busy: usize| {
            let mut server = ServerInfo { concurrency: 10, status: status.to_owned(), ..ServerInfo::default() };
            server.queues.insert(queue.to_owned(), 1);
            server.workers = vec![WorkerInfo::default(); busy];
            server
        };
        let servers = [server("mail", "active", 4), server("mail", "stopped", 0), server("other", "active", 0)];
        let queue = QueueInfo { name: "mail".to_owned(), active: 3, pending: 5, ..QueueInfo::default() };
        let look = queue.look(2, &servers);
        assert_eq!((look.slots, look.active, look.waiting), (9, 3, 7));
        assert_eq!(queue.look(0, &[server("mail", "active", 11)]).slots, 3, "its heartbeat is older than the count");
        assert_eq!(
            queue.look(0, &[server("mail", "active", 0)]).slots,
            10,
            "and here it is from before the three began"
        );
    }
}

//! Members of flows tell how they ended, and tasks that are archived what follows them: in the script that ends the run, to a
//! list of this process (`lua/lib/tell.lua`).
//! From there the outcomes go into the ledgers of their flows, see [`Recorder`](crate::flow::Recorder).

use queue_core::exhausted::FollowUp;
use queue_core::flow::{self, MemberOutcome};
use queue_core::keys::QueueKeys;
use redis::{Cmd, RedisResult};

use super::duties::MEMBERS;
use super::{Broker, Verdict};
use crate::error::Error;
use crate::teller::Told;

/// What a call has to bring with it so that the members in it can tell how they ended.
#[derive(Debug, Default)]
pub(super) struct Telling {
    /// The list, the set of such lists, and the beginning of the entry; `None` if the call has no member in it, and nothing
    /// follows.
    entry: Option<(String, String, String)>,
    /// The entry of what follows a lone task that is archived.
    follow_up: Option<String>,
}

impl Telling {
    /// How many keys it brings.
    pub(super) fn keys(&self) -> usize {
        if self.entry.is_some() { 2 } else { 0 }
    }

    pub(super) fn with_keys(&self, call: &mut Cmd) {
        if let Some((list, lists, _)) = &self.entry {
            call.arg(list).arg(lists);
        }
    }

    pub(super) fn with_entry(&self, call: &mut Cmd) {
        let entry = self.entry.as_ref().map_or("", |(.., entry)| entry);
        match &self.follow_up {
            None => call.arg(entry),
            Some(follow_up) => call.arg(format!("{entry}\n{follow_up}")),
        };
    }
}

impl Broker {
    /// What a call on these runs of a queue has to bring, if they end in this way.
    pub(super) fn telling<'a>(
        &self,
        queue: &str,
        mut ids: impl Iterator<Item = &'a [u8]>,
        outcome: MemberOutcome,
        now: i64,
    ) -> Telling {
        if !ids.any(flow::is_member) {
            return Telling::default();
        }
        let (who, count, keys) = (self.teller.who(), self.teller.next_entry(), QueueKeys::new(queue));
        let entry = format!("{now}.{count} {}", outcome.as_str());
        Telling { entry: Some((keys.outcomes(who), keys.outcome_lists(), entry)), follow_up: None }
    }

    /// The same of a lone task that is archived, and what follows it. The leader looks after the queue from now on, so that it
    /// is stored whatever becomes of this process.
    pub(super) async fn telling_of_last(
        &self,
        queue: &str,
        id: &[u8],
        follow_up: Option<&FollowUp>,
        now: i64,
    ) -> Result<Telling, Error> {
        let mut telling = self.telling(queue, std::iter::once(id), MemberOutcome::Dead, now);
        let Some(follow_up) = follow_up else { return Ok(telling) };
        self.ask_for_duty(MEMBERS, queue, now.saturating_mul(1_000)).await?;
        let (who, keys) = (self.teller.who(), QueueKeys::new(queue));
        telling.entry.get_or_insert_with(|| (keys.outcomes(who), keys.outcome_lists(), String::new()));
        telling.follow_up = Some(follow_up.to_entry(&format!("{now}.{}", self.teller.next_entry())));
        Ok(telling)
    }

    /// Tells the recorder of this process what the call has done; without one, the leader finds the list.
    pub(super) fn told<'a>(&self, queue: &str, telling: Telling, ended: impl Iterator<Item = (&'a [u8], Verdict)>) {
        let Some((list, _, mut entry)) = telling.entry.filter(|_| self.teller.is_recorded()) else { return };
        let applied = ended.filter(|(_, verdict)| *verdict == Verdict::Applied);
        let (mut any, mut follow_up) = (false, telling.follow_up);
        for (id, _) in applied {
            if let Some(entry) = follow_up.take() {
                self.teller.pass_on(Told { queue: queue.to_owned(), list: list.clone(), entry });
            }
            if !flow::is_member(id) {
                continue;
            }
            any = true;
            entry.push(' ');
            entry.push_str(&String::from_utf8_lossy(id));
        }
        if any {
            self.teller.pass_on(Told { queue: queue.to_owned(), list, entry });
        }
    }
}

impl Broker {
    /// The Unix second of the oldest outcome that somebody has told and nobody has recorded; `None` if there is none. Some seconds
    /// are usual while a server that has died has its outcomes recorded by the leader.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn oldest_outcome(&self, queue: &str) -> Result<Option<i64>, Error> {
        let lists = QueueKeys::new(queue).outcome_lists();
        let redis = &self.redis;
        let lists: Vec<String> = redis.command("SMEMBERS", lists).await?;
        let mut look = redis::pipe();
        for list in &lists {
            look.cmd("LRANGE").arg(list).arg(0).arg(0);
        }
        if lists.is_empty() {
            return Ok(None);
        }
        let entries: Vec<Vec<String>> = redis.pipeline("LRANGE", &look).await?;
        Ok(entries.iter().flatten().filter_map(|entry| told_at(entry)).min())
    }

    /// The same of several queues, in two round trips. What Redis refuses to tell of one costs no other.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn oldest_outcomes(&self, queues: &[String]) -> Result<Vec<Result<Option<i64>, Error>>, Error> {
        let mut look = redis::pipe();
        for queue in queues {
            look.cmd("SMEMBERS").arg(QueueKeys::new(queue).outcome_lists());
        }
        if queues.is_empty() {
            return Ok(Vec::new());
        }
        look.ignore_errors();
        let mut connection = self.redis.pooled().await?;
        let lists: Vec<RedisResult<Vec<String>>> = connection.pipeline("SMEMBERS", &look).await?;
        let mut look = redis::pipe();
        for list in lists.iter().flatten().flatten() {
            look.cmd("LRANGE").arg(list).arg(0).arg(0);
        }
        look.ignore_errors();
        let mut entries: Vec<RedisResult<Vec<String>>> = Vec::new();
        if !look.is_empty() {
            entries = connection.pipeline("LRANGE", &look).await?;
        }
        let (refused, mut entries) = (|error| Error::unexpected("looking for outcomes", &error), entries.into_iter());
        let oldest = lists.into_iter().map(|lists| {
            let lists = lists.map_err(refused)?.len();
            let first: RedisResult<Vec<Vec<String>>> = entries.by_ref().take(lists).collect();
            Ok(first.map_err(refused)?.iter().flatten().filter_map(|entry| told_at(entry)).min())
        });
        Ok(oldest.collect())
    }
}

/// The Unix second at which an entry was written, by its stamp.
pub(crate) fn told_at(entry: &str) -> Option<i64> {
    entry.split(['.', ' ']).next()?.parse().ok()
}

//! Going through the lists and sets of a queue, and its groups.

use std::collections::HashSet;

use bytes::Bytes;
use queue_core::doctor::{Entry, Fault, Finding, Repair, Suspect, Whereabouts, judge};
use queue_core::keys::QueueKeys;
use queue_core::limits::AGGREGATION_SECS;
use queue_core::outcome::NO_HANDLER;
use queue_core::{Clock as _, TaskMessage, TaskState};

use super::lanes::parked_in_no_lane;
use super::{Examination, Holder, Step, Trail, mark};
use crate::broker::{ListedSet, MAX_BATCH};
use crate::connection::Connection;
use crate::error::Error;

/// The message, the state and the group of a task.
type Fields = (Option<Vec<u8>>, Option<Vec<u8>>, Option<Vec<u8>>);

/// How many types without a handler are told of.
const MAX_TYPES: usize = 1_000;

impl Holder {
    fn key(&self, keys: &QueueKeys) -> Bytes {
        match self {
            Self::State(state) => keys.container(*state).unwrap_or_default().into(),
            Self::Lease => keys.lease().into(),
            Self::Group(name, _) => [keys.group_prefix().as_bytes(), name].concat().into(),
        }
    }
}

impl Examination {
    /// Reads a page of a list or set. What is not as it should be is looked at again.
    pub(super) async fn walk(
        &mut self,
        connection: &mut Connection,
        queue: String,
        holder: Holder,
        at: u64,
        mut trail: Trail,
    ) -> Result<Vec<Finding>, Error> {
        let keys = QueueKeys::new(&queue);
        let key = holder.key(&keys);
        let is_list = matches!(holder, Holder::State(TaskState::Pending | TaskState::Active));
        let (next, entries) = if is_list {
            let (next, ids) = self.page(connection, &queue, &key, at, &mut trail).await?;
            (next, ids.into_iter().map(|id| (id, String::new())).collect())
        } else {
            connection.command::<(u64, Vec<(Vec<u8>, String)>)>("ZSCAN", (&key[..], at, "COUNT", MAX_BATCH)).await?
        };
        let (mut suspects, mut left) = (Vec::new(), &entries[..]);
        while !left.is_empty() {
            let (read, found) = self.suspects(connection, &queue, &keys, &holder, &key, left).await?;
            suspects.extend(found);
            left = &left[read..];
        }
        if next != 0 {
            // What is suspected may be gone when the next page is read, repaired by our caller.
            let stays = |id: &&Vec<u8>| !suspects.iter().any(|suspect| suspect.id == **id);
            if let Some((last, _)) = entries.last() {
                trail.last = entries.iter().rev().map(|(id, _)| id).find(stays).unwrap_or(last).clone();
            }
            let (queue, holder) = (queue.clone(), holder.clone());
            self.steps.push_front(Step::Walk { queue, holder, at: next, trail });
        }
        let mut findings = self.confirm(&queue, suspects).await?;
        if let (true, Some(Step::Walk { trail, .. })) = (next != 0, self.steps.front_mut()) {
            let told: HashSet<&str> = findings.iter().map(|finding| &*finding.subject).collect();
            trail.told = entries.iter().filter(|(id, _)| told.contains(&*String::from_utf8_lossy(id))).count() as u64;
        }
        if let Holder::State(TaskState::Scheduled) = holder {
            findings.extend(parked_in_no_lane(connection, &queue, entries.iter().map(|(id, _)| &id[..])).await?);
        }
        Ok(findings)
    }

    /// The ids of a list that come after those that were read, and where to go on; 0 at the end.
    ///
    /// From the head: what is pushed meanwhile moves the others towards us, what is taken out in front of us away.
    /// So a page begins a page early, and what comes after the last id that we know is new. What our caller may have taken out of
    /// the page before moves both ends: else a list in which all is damaged would run away from us.
    async fn page(
        &self,
        connection: &mut Connection,
        queue: &str,
        key: &[u8],
        at: u64,
        trail: &mut Trail,
    ) -> Result<(u64, Vec<Vec<u8>>), Error> {
        let (size, told) = (MAX_BATCH as u64, std::mem::take(&mut trail.told));
        // If nothing was taken out, the last id that we know is in the page all the same.
        let (from, until) = (at.saturating_sub(size + told), at + size.saturating_sub(told));
        let mut page = redis::pipe();
        page.cmd("LRANGE").arg(key).arg(0).arg(0);
        page.cmd("LRANGE").arg(key).arg(from).arg(until - 1);
        let (head, mut ids): (Vec<Vec<u8>>, Vec<Vec<u8>>) = connection.read_at_once("LRANGE", &page).await?;
        let next = if ids.len() as u64 == until - from { until } else { 0 };
        let head = head.into_iter().next().unwrap_or_default();
        let has_grown = at > 0 && trail.head != head;
        trail.head = head;
        let is_seen = |id: &Vec<u8>| self.seen.contains(&mark(queue, &id[..]));
        match ids.iter().position(|id| *id == trail.last) {
            _ if at == 0 => {}
            Some(last) => drop(ids.drain(..=last)),
            // More than a page was pushed: these are ids that we know, further away from the head.
            None if has_grown && ids.iter().all(is_seen) => ids.clear(),
            None => {}
        }
        Ok((next, ids))
    }

    /// Reads the first of these entries; returns how many, and which of them are not as they should be.
    async fn suspects(
        &mut self,
        connection: &mut Connection,
        queue: &str,
        keys: &QueueKeys,
        holder: &Holder,
        key: &Bytes,
        entries: &[(Vec<u8>, String)],
    ) -> Result<(usize, Vec<Suspect>), Error> {
        let ids = entries.iter().map(|(id, _)| &id[..]);
        let fields: Vec<Option<Fields>> =
            connection.read_tasks(&keys.task_prefix(), ids, &["msg", "state", "group"]).await?;
        let entries = &entries[..fields.len()];
        let mut look = redis::pipe();
        for (id, _) in entries {
            let task = [keys.task_prefix().as_bytes(), id].concat();
            look.cmd("PTTL").arg(&task).cmd("ZSCORE").arg(keys.lease()).arg(id);
        }
        look.ignore_errors();
        let replies: Vec<redis::RedisResult<redis::Value>> = connection.pipeline("reading tasks", &look).await?;
        let now = self.doctor.clock.now_secs();
        let mut suspects = Vec::new();
        for (((id, score), fields), reply) in entries.iter().zip(fields).zip(replies.chunks_exact(2)) {
            let mark = mark(queue, &id[..]);
            let is_lease = matches!(holder, Holder::Lease);
            let is_new = if is_lease { self.seen.contains(&mark) } else { self.seen.insert(mark) };
            self.tasks += u64::from(is_new && !is_lease);
            let seen = whereabouts(fields, reply, holder, key, score);
            if let (Holder::State(TaskState::Retry), true, Some(seen)) = (holder, is_new && !self.only_harmless, &seen)
            {
                self.note_unhandled(queue, &seen.message);
            }
            // A task that is not active has no lease, and one that is was seen among the active.
            let is_sound = match (holder, &seen) {
                (Holder::Lease, Some(seen)) => seen.state == "active",
                (_, Some(seen)) => judge(queue, id, seen, now).is_none(),
                (_, None) => false,
            };
            if let Holder::Group(name, _) = holder
                && seen.is_none_or(|seen| seen.group != *name)
            {
                self.strays.entry(mark).or_default().push(name.clone());
            }
            if !is_new || !is_sound {
                let groups = self.strays.get(&mark).cloned().unwrap_or_default();
                suspects.push(Suspect { id: Bytes::copy_from_slice(id), groups });
            }
        }
        Ok((entries.len(), suspects))
    }

    fn note_unhandled(&mut self, queue: &str, message: &Bytes) {
        let decoded = TaskMessage::from_bytes(message.clone()).ok();
        let Some(message) = decoded.filter(|message| message.error_msg.starts_with(NO_HANDLER)) else { return };
        let of = (queue.to_owned(), message.r#type);
        if self.unhandled.len() < MAX_TYPES || self.unhandled.contains_key(&of) {
            *self.unhandled.entry(of).or_default() += 1;
        }
    }

    /// What all retries of all queues have told of tasks without a handler.
    pub(super) fn unhandled(&mut self) -> Vec<Finding> {
        let types = std::mem::take(&mut self.unhandled).into_iter();
        let finding = |((queue, kind), tasks): ((String, String), u64)| {
            let tasks = if tasks == 1 { "1 task".to_owned() } else { format!("{tasks} tasks") };
            Finding::new(Fault::Unhandled, Some(&queue), kind.as_bytes()).detail(tasks)
        };
        types.map(finding).collect()
    }

    /// Which groups there are, and whether they are listed.
    pub(super) async fn groups(&mut self, connection: &mut Connection, queue: &str) -> Result<Vec<Finding>, Error> {
        let mut names = self.facts.get_mut(queue).map(|facts| std::mem::take(&mut facts.groups)).unwrap_or_default();
        // A scan may name a key twice, and one that begins anew does.
        names.sort_unstable();
        names.dedup();
        let keys = QueueKeys::new(queue);
        let mut findings = Vec::new();
        for names in names.chunks(MAX_BATCH) {
            for name in names {
                let key: Bytes = [keys.group_prefix().as_bytes(), name].concat().into();
                let mut look = redis::pipe();
                look.cmd("SISMEMBER").arg(keys.groups()).arg(&name[..]);
                look.cmd("ZSCORE").arg(keys.aggregation_sets()).arg(&key[..]);
                look.cmd("ZRANGE").arg(&key[..]).arg(0).arg(0);
                type Found = (bool, Option<f64>, Vec<Vec<u8>>);
                let (listed, deadline, first): Found = connection.read_at_once("looking at a group", &look).await?;
                let mut is_set = deadline.is_some();
                if let (false, None, Some(first)) = (listed, deadline, first.first()) {
                    let found = unlisted(connection, &keys, queue, name, &key, first).await?;
                    is_set = found.fault == Fault::UnlistedSet;
                    findings.push(found);
                }
                let holder = Holder::Group(name.clone(), is_set);
                self.steps.push_front(Step::Walk { queue: queue.to_owned(), holder, at: 0, trail: Trail::default() });
            }
        }
        let sets = self.doctor.broker().aggregation_sets(queue).await?;
        for set in &sets {
            // Whoever puts the tasks back makes a group that was not there when names were read.
            let holder = Holder::Group(Bytes::from(set.group.clone()), false);
            let (queue, trail) = (queue.to_owned(), Trail::default());
            self.steps.push_front(Step::Walk { queue, holder, at: 0, trail });
        }
        findings.extend(self.lost_sets(connection, &keys, queue, sets).await?);
        Ok(findings)
    }

    /// Groups that are listed and have no tasks.
    pub(super) async fn listed_groups(
        &mut self,
        connection: &mut Connection,
        queue: String,
        cursor: u64,
    ) -> Result<Vec<Finding>, Error> {
        let keys = QueueKeys::new(&queue);
        let (next, names): (u64, Vec<Vec<u8>>) =
            connection.command("SSCAN", (keys.groups(), cursor, "COUNT", MAX_BATCH)).await?;
        let mut findings = Vec::new();
        for names in names.chunks(MAX_BATCH) {
            // At one moment: a group that is emptied is taken off the list.
            let mut look = redis::pipe();
            for name in names {
                look.cmd("SISMEMBER").arg(keys.groups()).arg(name);
                look.cmd("EXISTS").arg([keys.group_prefix().as_bytes(), name].concat());
            }
            let is: Vec<bool> = connection.read_at_once("looking at groups", &look).await?;
            for (name, _) in names.iter().zip(is.chunks_exact(2)).filter(|(_, is)| is[0] && !is[1]) {
                let found = Finding::new(Fault::EmptyGroup, Some(&queue), name);
                findings.push(match std::str::from_utf8(name) {
                    Ok(group) => found.repair(Repair::ListGroup { queue: queue.clone(), group: group.to_owned() }),
                    // That of no task's group.
                    Err(_) => found,
                });
            }
        }
        if next != 0 {
            self.steps.push_front(Step::ListedGroups { queue, cursor: next });
        }
        Ok(findings)
    }

    /// Sets that are listed as being aggregated.
    async fn lost_sets(
        &self,
        connection: &mut Connection,
        keys: &QueueKeys,
        queue: &str,
        sets: Vec<ListedSet>,
    ) -> Result<Vec<Finding>, Error> {
        let now = self.doctor.clock.now_secs();
        let mut findings = Vec::new();
        for set in sets {
            let key = keys.aggregation_set(&set.group, &set.id);
            let mut look = redis::pipe();
            look.cmd("ZSCORE").arg(keys.aggregation_sets()).arg(&key).cmd("ZCARD").arg(&key);
            let (deadline, tasks): (Option<f64>, u64) = connection.read_at_once("looking at a set", &look).await?;
            let Some(deadline) = deadline else { continue };
            let repair = |only_expired| Repair::Reclaim {
                queue: queue.to_owned(),
                group: set.group.clone(),
                set: set.id.clone(),
                only_expired,
            };
            if tasks == 0 {
                let found = Finding::new(Fault::EmptySet, Some(queue), key.as_bytes());
                findings.push(found.repair(repair(false)));
            } else if (deadline as i64) < now - AGGREGATION_SECS {
                let found = Finding::new(Fault::LostAggregation, Some(queue), key.as_bytes());
                findings.push(found.detail(format!("{tasks} tasks")).repair(repair(true)));
            }
        }
        Ok(findings)
    }
}

/// A group, or a set taken out of one; its first task knows.
async fn unlisted(
    connection: &mut Connection,
    keys: &QueueKeys,
    queue: &str,
    name: &Bytes,
    key: &Bytes,
    first: &[u8],
) -> Result<Finding, Error> {
    let task = [keys.task_prefix().as_bytes(), first].concat();
    let mut look = redis::pipe();
    look.cmd("HMGET").arg(task).arg("group").arg("msg").ignore_errors();
    type Fields = (Option<Vec<u8>>, Option<Vec<u8>>);
    let fields: Vec<redis::RedisResult<Fields>> = connection.pipeline("reading a task", &look).await?;
    let (group, message) = fields.into_iter().flatten().next().unwrap_or_default();
    let message = message.and_then(|raw| TaskMessage::from_bytes(raw.into()).ok());
    let group = group.or_else(|| message.map(|message| message.group_key.into_bytes())).unwrap_or_default();
    let set_id = name.strip_prefix(&group[..]).and_then(|rest| rest.strip_prefix(b":"));
    if !group.is_empty() && set_id.is_some_and(|id| !id.is_empty() && !id.contains(&b':')) {
        let repair = Repair::ListSet { queue: queue.to_owned(), key: key.clone() };
        return Ok(Finding::new(Fault::UnlistedSet, Some(queue), key).repair(repair));
    }
    let found = Finding::new(Fault::UnlistedGroup, Some(queue), name);
    Ok(match std::str::from_utf8(name) {
        Ok(group) => found.repair(Repair::ListGroup { queue: queue.to_owned(), group: group.to_owned() }),
        Err(_) => found,
    })
}

/// What a page tells about one of its tasks; `None` where its key has another type.
fn whereabouts(
    fields: Option<Fields>,
    reply: &[redis::RedisResult<redis::Value>],
    holder: &Holder,
    key: &Bytes,
    score: &str,
) -> Option<Whereabouts> {
    let [Ok(ttl_ms), lease] = reply else { return None };
    let (message, state, group) = fields?;
    let ttl_ms: i64 = redis::from_redis_value(ttl_ms.clone()).ok()?;
    let lease = lease.as_ref().ok().and_then(|lease| redis::from_redis_value::<Option<String>>(lease.clone()).ok());
    let is_staged = matches!(holder, Holder::Group(_, true));
    Some(Whereabouts {
        digest: Bytes::new(),
        key_type: if ttl_ms == -2 { "none" } else { "hash" }.to_owned(),
        message: message.unwrap_or_default().into(),
        state: String::from_utf8(state.unwrap_or_default()).ok()?,
        group: group.unwrap_or_default().into(),
        expires: ttl_ms >= 0,
        pending_since: String::new(),
        lease: lease.flatten().unwrap_or_default(),
        is_remains: false,
        entries: vec![Entry { key: key.clone(), score: score.to_owned(), is_staged }],
    })
}

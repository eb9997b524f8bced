//! Limits: whether they can be read, who honours them, slots that nobody gives back, and tasks that wait in no lane.

use std::collections::BTreeMap;

use bytes::Bytes;
use queue_core::Clock as _;
use queue_core::doctor::{Fault, Finding, LaneEntries, Repair};
use queue_core::keys::QueueKeys;
use queue_core::limit::Limits;
use queue_core::limits::SLOT_FREED_WITHIN;
use queue_core::registry::LIMITS;
use tokio::time::Instant;

use super::names::Name;
use super::{Examination, Step};
use crate::broker::MAX_BATCH;
use crate::connection::Connection;
use crate::error::Error;

/// So many tasks of a lane are named; the others are counted.
const NAMED: usize = 3;

/// A set with the entries of all lanes of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneSet {
    /// `<lane> <id>` of those who run.
    Slots,
    /// `<lane> <since> <id>` of those who wait.
    Waiting,
}

impl LaneSet {
    pub(super) fn of(family: &str) -> Option<Self> {
        match family {
            "x:slots" => Some(Self::Slots),
            "x:waiting" => Some(Self::Waiting),
            _ => None,
        }
    }

    fn key(self, keys: &QueueKeys) -> String {
        match self {
            Self::Slots => keys.lane_slots(),
            Self::Waiting => keys.lanes_waiting(),
        }
    }
}

/// What stands before the first blank, and before the last of so many; the id is what is left.
fn split(entry: &[u8], blanks: usize) -> Option<(&[u8], &[u8], &[u8])> {
    let mut at = entry.iter().enumerate().filter(|(_, byte)| **byte == b' ').map(|(at, _)| at);
    let first = at.next()?;
    let last = if blanks > 1 { at.nth(blanks - 2)? } else { first };
    Some((&entry[..first], &entry[..last], &entry[last + 1..]))
}

impl Examination {
    /// What the name of a key of ours tells about limits.
    pub(super) fn note_limits(&mut self, name: &Name) {
        let (set, are_limits) = (LaneSet::of(name.family.name), name.family.name == "x:rules");
        if set.is_none() && !are_limits {
            return;
        }
        let facts = self.facts.entry(name.queue.clone()).or_default();
        facts.has_limits |= are_limits;
        // A scan may name a key twice.
        facts.lanes.extend(set.filter(|set| !facts.lanes.contains(set)));
    }

    /// Limits that cannot be read, and servers that know nothing of them.
    pub(super) async fn limits(&self, connection: &mut Connection) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        for (queue, facts) in &self.facts {
            if facts.has_limits || !facts.lanes.contains(&LaneSet::Waiting) {
                continue;
            }
            let keys = QueueKeys::new(queue);
            let mut look = redis::pipe();
            look.cmd("EXISTS").arg(keys.rules()).cmd("ZCARD").arg(keys.lanes_waiting());
            match connection.read_at_once("looking at lanes", &look).await {
                Ok((false, waiting @ 1_u64..)) => {
                    let found = Finding::new(Fault::LostLimits, Some(queue), keys.rules().as_bytes());
                    findings.push(found.detail(format!("{waiting} tasks")));
                }
                Ok(_) => {}
                // That is a finding of its own.
                Err(error) if error.is_wrong_type() => {}
                Err(error) => return Err(error),
            }
        }
        let limited: Vec<&String> = self.facts.iter().filter(|(_, facts)| facts.has_limits).map(|(q, _)| q).collect();
        if limited.is_empty() {
            return Ok(findings);
        }
        let broker = self.doctor.broker();
        let unaware = broker.unaware_servers(LIMITS, self.doctor.clock.now_secs()).await?;
        for queue in limited {
            let keys = QueueKeys::new(queue);
            let text: Option<Vec<u8>> = connection.command("GET", keys.rules()).await?;
            let Some(text) = text else { continue };
            if let Err(error) = Limits::read(&String::from_utf8_lossy(&text)) {
                let found = Finding::new(Fault::UnreadableRules, Some(queue), keys.rules().as_bytes());
                findings.push(found.detail(error.to_string()));
            }
            let servers = unaware.get(queue).into_iter().flatten();
            findings.extend(servers.map(|server| Finding::new(Fault::UnawareServer, Some(queue), server.as_bytes())));
        }
        Ok(findings)
    }

    /// The next entries of the lanes of a queue.
    pub(super) async fn lanes(
        &mut self,
        connection: &mut Connection,
        queue: String,
        set: LaneSet,
        cursor: u64,
    ) -> Result<Vec<Finding>, Error> {
        let (next, page): (u64, Vec<(Vec<u8>, String)>) =
            connection.command("ZSCAN", (set.key(&QueueKeys::new(&queue)), cursor, "COUNT", MAX_BATCH)).await?;
        let page: Vec<Bytes> = page.into_iter().map(|(entry, _)| entry.into()).collect();
        let mut findings = Vec::new();
        for page in page.chunks(MAX_BATCH) {
            match set {
                LaneSet::Waiting => findings.extend(stale_waits(connection, &queue, page).await?),
                LaneSet::Slots => {
                    let slots = without_lease(connection, &queue, page).await?;
                    if !slots.is_empty() {
                        let not_before = Instant::now() + SLOT_FREED_WITHIN;
                        self.steps.push_front(Step::SlotsAgain { queue: queue.clone(), slots, not_before });
                    }
                }
            }
        }
        if next != 0 {
            self.steps.push_front(Step::Lanes { queue, set, cursor: next });
        }
        Ok(findings)
    }
}

/// Whether nobody is going to work on a task of this state unless somebody asks for it.
fn is_over(state: Option<&[u8]>) -> bool {
    matches!(state, None | Some(b"archived" | b"completed"))
}

/// What these commands answer. Where a key of another type stands in the place of a task, there is no task.
async fn look_past(connection: &mut Connection, mut look: redis::Pipeline) -> Result<Vec<redis::Value>, Error> {
    look.ignore_errors();
    let found: Vec<redis::RedisResult<redis::Value>> = connection.read_at_once("looking at lanes", &look).await?;
    Ok(found.into_iter().map(|found| found.unwrap_or(redis::Value::Nil)).collect())
}

/// Slots whose tasks have no lease and are over. In a strict lane, a task keeps its slot until then.
async fn without_lease(connection: &mut Connection, queue: &str, slots: &[Bytes]) -> Result<Vec<Bytes>, Error> {
    let keys = QueueKeys::new(queue);
    let mut look = redis::pipe();
    // At one moment: a run begins and ends with both.
    for slot in slots {
        let id = split(slot, 1).map_or(&b""[..], |(_, _, id)| id);
        look.cmd("ZSCORE").arg(keys.lane_slots()).arg(&slot[..]).cmd("ZSCORE").arg(keys.lease()).arg(id);
        look.cmd("HGET").arg([keys.task_prefix().as_bytes(), id].concat()).arg("state");
    }
    let found = look_past(connection, look).await?;
    let read = |found| redis::from_redis_value::<Option<Vec<u8>>>(found).ok().flatten();
    let found: Vec<Option<Vec<u8>>> = found.into_iter().map(read).collect();
    let is_stale = |found: &[Option<Vec<u8>>]| matches!(found, [Some(_), None, state] if is_over(state.as_deref()));
    let found = slots.iter().zip(found.chunks_exact(3)).filter(|(_, found)| is_stale(found));
    Ok(found.map(|(slot, _)| slot.clone()).collect())
}

/// Of slots that had no lease a while ago, those that have none and are still there.
pub(super) async fn stale_slots(
    connection: &mut Connection,
    queue: &str,
    slots: &[Bytes],
) -> Result<Vec<Finding>, Error> {
    let stale = without_lease(connection, queue, slots).await?;
    Ok(by_lane(Fault::StaleSlot, queue, &stale, 1, LaneEntries::Slots))
}

/// Entries of lanes whose tasks do not wait there.
async fn stale_waits(connection: &mut Connection, queue: &str, waits: &[Bytes]) -> Result<Vec<Finding>, Error> {
    let keys = QueueKeys::new(queue);
    let mut look = redis::pipe();
    for entry in waits {
        let id = split(entry, 2).map_or(&b""[..], |(_, _, id)| id);
        look.cmd("ZSCORE").arg(keys.lanes_waiting()).arg(&entry[..]);
        look.cmd("HMGET").arg([keys.task_prefix().as_bytes(), id].concat()).arg("state").arg("x_waits");
    }
    let found = look_past(connection, look).await?;
    let mut stale = Vec::new();
    for (entry, found) in waits.iter().zip(found.chunks_exact(2)) {
        let fields: (Option<Vec<u8>>, Option<Vec<u8>>) = redis::from_redis_value(found[1].clone()).unwrap_or_default();
        let wait = split(entry, 2).map(|(_, wait, _)| wait.to_vec());
        // Who was run by somebody comes back to its place.
        let waits = !is_over(fields.0.as_deref()) && fields.1.is_some() && fields.1 == wait;
        if found[0] != redis::Value::Nil && !waits {
            stale.push(entry.clone());
        }
    }
    Ok(by_lane(Fault::StaleWait, queue, &stale, 2, LaneEntries::Waiting))
}

/// One finding for each lane.
fn by_lane(
    fault: Fault,
    queue: &str,
    entries: &[Bytes],
    blanks: usize,
    of: fn(Vec<Bytes>) -> LaneEntries,
) -> Vec<Finding> {
    let mut lanes: BTreeMap<&[u8], Vec<(&[u8], Bytes)>> = BTreeMap::new();
    for entry in entries {
        let (lane, _, id) = split(entry, blanks).unwrap_or((entry, entry, b""));
        lanes.entry(lane).or_default().push((id, entry.clone()));
    }
    let findings = lanes.into_iter().map(|(lane, mut found)| {
        // A scan gives them in no order.
        found.sort_unstable();
        let names: Vec<_> = found.iter().take(NAMED).map(|(id, _)| String::from_utf8_lossy(id).into_owned()).collect();
        let others = found.len() - names.len();
        let and = if others > 0 { format!(" and {others} more") } else { String::new() };
        let detail = format!("of task {}{and}", names.join(", "));
        let entries = of(found.into_iter().map(|(_, entry)| entry).collect());
        Finding::new(fault, Some(queue), lane).detail(detail).repair(Repair::Lanes { queue: queue.to_owned(), entries })
    });
    findings.collect()
}

/// Of scheduled tasks, those that say that they wait in a lane, and no take would find them there.
pub(super) async fn parked_in_no_lane<'a>(
    connection: &mut Connection,
    queue: &str,
    ids: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Finding>, Error> {
    let keys = QueueKeys::new(queue);
    let task = |id: &[u8]| [keys.task_prefix().as_bytes(), id].concat();
    let ids: Vec<&[u8]> = ids.collect();
    let mut look = redis::pipe();
    for id in &ids {
        look.cmd("HGET").arg(task(id)).arg("x_waits");
    }
    look.ignore_errors();
    let waits: Vec<redis::RedisResult<Option<Vec<u8>>>> =
        if ids.is_empty() { Vec::new() } else { connection.pipeline("reading tasks", &look).await? };
    let waits = waits.into_iter().map(|waits| waits.ok().flatten());
    let parked: Vec<(&[u8], Vec<u8>)> = ids.iter().zip(waits).filter_map(|(id, waits)| Some((*id, waits?))).collect();
    let mut findings = Vec::new();
    for parked in parked.chunks(MAX_BATCH) {
        let mut look = redis::pipe();
        let entry = |id: &[u8], waits: &[u8]| [waits, b" ", id].concat();
        for (id, waits) in parked {
            let lane = split(waits, 1).map_or(&waits[..], |(lane, _, _)| lane);
            look.cmd("ZSCORE").arg(keys.scheduled()).arg(id).cmd("HGET").arg(task(id)).arg("x_waits");
            look.cmd("ZSCORE").arg(keys.lanes_waiting()).arg(entry(id, waits));
            look.cmd("ZSCORE").arg(keys.lanes_due()).arg(lane);
        }
        let found: Vec<Option<Vec<u8>>> = connection.read_at_once("looking at lanes", &look).await?;
        for ((id, waits), found) in parked.iter().zip(found.chunks_exact(4)) {
            let is_parked = found[0].is_some() && found[1].as_deref() == Some(&waits[..]);
            if is_parked && (found[2].is_none() || found[3].is_none()) {
                let entries = LaneEntries::Waiting(vec![entry(id, waits).into()]);
                let lane =
                    String::from_utf8_lossy(split(waits, 1).map_or(&waits[..], |(lane, _, _)| lane)).into_owned();
                let found = Finding::new(Fault::ParkedNoLane, Some(queue), id).detail(format!("lane {lane:?}"));
                findings.push(found.repair(Repair::Lanes { queue: queue.to_owned(), entries }));
            }
        }
    }
    Ok(findings)
}

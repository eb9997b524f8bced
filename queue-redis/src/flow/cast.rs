//! What the leader does for broadcasts in which others may have a part than those that were chosen: servers that come later, and
//! those that do the part of a server that is lost.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use queue_core::TaskMessage;
use queue_core::broadcast::{Candidate, Plan};
use queue_core::flow::{FlowId, MemberId, MemberState, Part};

use super::Flows;
use super::broadcast::node_name;
use super::status::{Ledger, flow_key};
use crate::broker::{Change, Joining, Seen};
use crate::error::Error;
use crate::leader::Duty;
use crate::log::info;
use crate::script::Word;

/// The duty of looking after such a broadcast; its subject is the name of its root.
pub(crate) const CAST: &str = "broadcast";

/// How often one is looked at.
const LOOKS: Duration = Duration::from_secs(2);
/// How many servers join in one look.
const AT_ONCE: usize = 20;
/// If there was no look for so long, nobody knows whether a server was away all the time.
const BLIND_SECS: i64 = 10;

/// Since which Unix second servers of a broadcast are gone, and when that was seen last.
type Gone = HashMap<(String, u32), (i64, i64)>;

/// Looks after broadcasts that others may join.
#[derive(Debug)]
pub struct TendCast {
    flows: Flows,
    /// A std mutex: held to read or write it.
    gone: Mutex<Gone>,
}

impl TendCast {
    /// Looks by these means.
    pub fn new(flows: Flows) -> Self {
        Self { flows, gone: Mutex::default() }
    }
}

impl Duty for TendCast {
    fn name(&self) -> &'static str {
        CAST
    }

    fn look<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Option<Duration>, Error>> {
        async move {
            let goes_on = match FlowId::root_named(subject) {
                Ok(id) => self.tend(&id).await?,
                Err(_) => false,
            };
            if !goes_on {
                self.gone.lock().unwrap_or_else(PoisonError::into_inner).retain(|(root, _), _| root != subject);
            }
            Ok(goes_on.then_some(LOOKS))
        }
        .boxed()
    }
}

impl TendCast {
    /// Whether there will be more to do.
    async fn tend(&self, id: &FlowId) -> Result<bool, Error> {
        let flows = &self.flows;
        let Some((mut ledger, mut plan)) = read(flows, id).await? else { return Ok(false) };
        let born = flows.born(id.root()).await?;
        let left = take_from_the_lost(flows, id, born, &ledger, &plan).await?;
        if ledger.is_closed() {
            return Ok(left);
        }
        let servers = flows.broker.live_servers().await?;
        let alive: HashSet<String> = servers.iter().filter_map(|(_, entry)| entry.as_ref()?.name.clone()).collect();
        let of = |(info, entry): &(_, Option<_>)| Candidate::new(info, entry.as_ref(), &plan.queue, &plan.r#type);
        let candidates: Vec<Candidate> = servers.iter().map(of).collect();
        for _ in 0..AT_ONCE {
            let Some(joiner) = plan.others(candidates.clone()).into_iter().next() else { break };
            let is_late = plan.until.is_some() && ledger.state(0).is_live();
            let lost = if is_late { None } else { self.lost(id, &ledger, &plan, &alive) };
            let Some(behalf) = lost.map(|number| (number, true)).or(is_late.then_some((0, false))) else { break };
            let word = join(flows, id, born, &ledger, &plan, &joiner.server, behalf).await?;
            // Else somebody else has done it, or it has ended: then it is read anew.
            if word == Word::Beyond {
                break;
            }
            let Some(now) = read(flows, id).await? else { break };
            (ledger, plan) = now;
        }
        // Who is gone is noted, also where there is nobody yet to do its part.
        self.lost(id, &ledger, &plan, &alive);
        let may_join = plan.until.is_some() && ledger.state(0).is_live() || plan.replace_after.is_some();
        Ok(left || may_join || !ledger.is_committed())
    }

    /// A member whose server has been gone for so long that another may do its part.
    fn lost(&self, id: &FlowId, ledger: &Ledger, plan: &Plan, alive: &HashSet<String>) -> Option<u32> {
        let after = i64::try_from(plan.replace_after?).unwrap_or(i64::MAX);
        let (now, mut gone) = (self.flows.clock.now_secs(), self.gone.lock().unwrap_or_else(PoisonError::into_inner));
        let mut lost = None;
        for (number, server) in plan.members() {
            let key = (id.root().to_owned(), number);
            if !ledger.state(number).is_live() || alive.contains(server) {
                gone.remove(&key);
                continue;
            }
            let (since, seen) = gone.entry(key).or_insert((now, now));
            if now - *seen > BLIND_SECS {
                *since = now;
            }
            *seen = now;
            if now - *since >= after {
                lost = lost.or(Some(number));
            }
        }
        lost
    }
}

async fn read(flows: &Flows, id: &FlowId) -> Result<Option<(Ledger, Plan)>, Error> {
    let ledger = flows.ledger(id).await?;
    Ok(ledger.and_then(|ledger| ledger.plan().map(|plan| (ledger, plan))))
}

/// Gives a server a part.
async fn join(
    flows: &Flows,
    id: &FlowId,
    born: Option<i64>,
    ledger: &Ledger,
    plan: &Plan,
    server: &str,
    behalf: (u32, bool),
) -> Result<Word, Error> {
    let raw: Option<Vec<u8>> =
        flows.broker.redis().command("HGET", ([&flow_key(id), "messages"].concat(), plan.first())).await?;
    // As it is written for a server that was chosen; without it, the broadcast is still being made.
    let Some(mut message) = raw.and_then(|raw| TaskMessage::from_bytes(raw.into()).ok()) else {
        return Ok(Word::Beyond);
    };
    let number = ledger.next();
    let queue = plan.mailbox(server);
    message.id = MemberId { flow: id.clone(), born, part: Part::Member(number, 1) }.to_string();
    message.queue.clone_from(&queue);
    flows.list_queue(&queue, flows.clock.now_ns()).await?;
    let name = node_name(server);
    let joining = Joining { server, queue: &queue, number, message: message.to_bytes(), name, behalf };
    let (word, claimed) = flows.broker.flow_join((id.root(), id.number()), &joining).await?;
    flows.carry_out(id.root(), born, claimed).await?;
    if word == Word::Applied {
        let (number, is_lost) = behalf;
        let lost = plan.members().find(|(of, _)| *of == number).map(|(_, lost)| lost).filter(|_| is_lost);
        info!(broadcast = %id, server, instead_of = lost, "a server has a part in a broadcast that has begun");
    }
    Ok(word)
}

/// Deletes the tasks of those whose parts others do; whether there may be some left.
async fn take_from_the_lost(
    flows: &Flows,
    id: &FlowId,
    born: Option<i64>,
    ledger: &Ledger,
    plan: &Plan,
) -> Result<bool, Error> {
    let mut left = false;
    for number in plan.lost.iter().copied().filter(|number| ledger.state(*number) == MemberState::Removed) {
        let task = MemberId { flow: id.clone(), born, part: ledger.part(number) }.to_string();
        let changes = flows.broker.delete_tasks(ledger.queue_of(number), Seen::Anywhere, &[&task]).await?;
        // One that runs is recovered by the leader if its server is gone, and comes to its end if not.
        left |= changes.first() == Some(&Change::Active);
    }
    Ok(left)
}

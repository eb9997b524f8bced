//! Redis, servers, schedulers, and the list of queues.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use queue_core::Clock as _;
use queue_core::clock::UnixSecond;
use queue_core::doctor::{Fault, Finding, Repair, judge_info};
use queue_core::keys::{CRON_ENTRIES, QUEUES, QueueKeys, SCHEDULERS, SERVER_ENTRY, SERVERS, WORKERS, shared_families};
use queue_core::limits::FLOW_UNRECORDED_SECS;
use queue_core::queue_name::{Family, QueueName};
use queue_core::registry::ServerEntry;
use queue_core::wire::{SchedulerEntry, ServerInfo};

use super::keys::wrong_type;
use super::{Examination, Round, Step};
use crate::connection::Connection;
use crate::error::Error;

/// How many servers, schedulers or entries are looked at. A fleet that is larger is looked at in part.
const MOST: i64 = 1_000;
/// By how much ticks may be dealt with before their time: a scheduler's clock and that of the entry's node may each be ahead by a minute.
const AHEAD_SECS: i64 = 120;

/// The queues in the list of queues.
pub(super) async fn list_of_queues(connection: &mut Connection) -> Result<HashSet<String>, Error> {
    let names: Vec<Vec<u8>> = connection.command("SMEMBERS", QUEUES).await?;
    Ok(names.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect())
}

impl Examination {
    pub(super) async fn settings(&self) -> Result<Vec<Finding>, Error> {
        match self.doctor.redis.info().await {
            Ok(info) => Ok(judge_info(&info)),
            Err(error) if error.is_transient() => Err(error),
            Err(error) => Ok(vec![Finding::new(Fault::Unasked, None, b"INFO").detail(error.to_string())]),
        }
    }

    /// The types of the keys that all queues share.
    pub(super) async fn globals(&self, connection: &mut Connection) -> Result<Vec<Finding>, Error> {
        let single = || shared_families().iter().filter(|family| family.is_single());
        let mut look = redis::pipe();
        for family in single() {
            look.cmd("TYPE").arg(family.name);
        }
        let types: Vec<String> = connection.pipeline("TYPE", &look).await?;
        let wrong = single().zip(types).filter(|(family, found)| found != "none" && found != family.key_type.as_str());
        Ok(wrong.map(|(family, found)| wrong_type(None, family.name.as_bytes(), &found, family)).collect())
    }

    pub(super) async fn list_queues(&mut self, connection: &mut Connection) -> Result<Vec<Finding>, Error> {
        self.nodes = self.doctor.redis.key_on_each_node().await?;
        for node in &self.nodes {
            self.steps.push_front(Step::of_node(Round::Names, node.clone()));
        }
        self.listed = list_of_queues(connection).await?;
        Ok(Vec::new())
    }

    pub(super) async fn servers(&self, connection: &mut Connection) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        let mut told = HashSet::new();
        for (set, fault) in [(SERVERS, Fault::SilentServer), (WORKERS, Fault::OrphanWorkers)] {
            findings.extend(self.expired(connection, set).await?);
            for member in self.alive(connection, set).await? {
                // A server's entries have the same name after the first part.
                let name = member.splitn(3, |byte| *byte == b':').nth(2).unwrap_or_default().to_vec();
                let is_told = if set == SERVERS {
                    let is_told = self.exists(connection, &member).await?;
                    is_told.then(|| told.insert(name));
                    is_told
                } else {
                    told.contains(&name) || self.exists(connection, &[b"asynq:servers:", &name[..]].concat()).await?
                };
                if !is_told {
                    let repair = Repair::Unlist { set, member: Bytes::copy_from_slice(&member) };
                    findings.push(Finding::new(fault, None, &member).repair(repair));
                }
            }
        }
        Ok(findings)
    }

    pub(super) async fn schedulers(&self, connection: &mut Connection) -> Result<Vec<Finding>, Error> {
        let mut findings = self.expired(connection, SCHEDULERS).await?;
        // One that is alive may have nothing to tell: of an entry that several carry, one tells.
        for member in self.alive(connection, SCHEDULERS).await? {
            let entries: Vec<Vec<u8>> = connection.command("LRANGE", (&member[..], 0, MOST - 1)).await?;
            for entry in entries.iter().filter_map(|raw| SchedulerEntry::from_bytes(raw).ok()) {
                if let Some(option) = entry.enqueue_options.iter().find(|option| !option.contains('(')) {
                    let found = Finding::new(Fault::BadEntry, None, entry.id.as_bytes());
                    findings.push(found.detail(format!("the option is {option:?}")));
                }
            }
        }
        if !self.only_harmless {
            findings.extend(self.ticks(connection).await?);
        }
        Ok(findings)
    }

    /// Entries whose ticks to come count as dealt with.
    async fn ticks(&self, connection: &mut Connection) -> Result<Vec<Finding>, Error> {
        let listed: Vec<Vec<u8>> = connection.command("ZREVRANGE", (CRON_ENTRIES, 0, MOST - 1)).await?;
        let entries = listed.iter().filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once(' '));
        let entries: Vec<(&str, &str)> = entries.collect();
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let mut look = redis::pipe();
        for (name, queue) in &entries {
            look.cmd("HGET").arg(QueueKeys::new(queue).cron_entry(name)).arg("upto");
        }
        look.ignore_errors();
        let found: Vec<redis::RedisResult<Option<i64>>> =
            connection.pipeline("looking at periodic entries", &look).await?;
        let latest = self.doctor.clock.now_secs() + AHEAD_SECS;
        let ahead = entries.into_iter().zip(found).filter_map(|((name, queue), upto)| {
            let upto = upto.ok().flatten().filter(|upto| *upto > latest)?;
            let found = Finding::new(Fault::TicksAhead, Some(queue), name.as_bytes());
            Some(found.detail(format!("until {}", UnixSecond(upto))))
        });
        Ok(ahead.collect())
    }

    /// Members that expired some seconds ago, of which nobody has taken notice.
    async fn expired(&self, connection: &mut Connection, set: &'static str) -> Result<Vec<Finding>, Error> {
        let before = self.doctor.clock.now_secs() - 1;
        let expired: u64 = connection.command("ZCOUNT", (set, "-inf", before)).await?;
        if expired == 0 {
            return Ok(Vec::new());
        }
        let found = Finding::new(Fault::ExpiredServers, None, set.as_bytes()).detail(format!("{expired} entries"));
        let mut findings = vec![found.repair(Repair::Purge { set, before })];
        if set == SCHEDULERS {
            let members: Vec<Vec<u8>> =
                connection.command("ZRANGEBYSCORE", (set, "-inf", before, "LIMIT", 0, MOST)).await?;
            for member in members {
                let ttl_ms: i64 = connection.command("PTTL", &member).await?;
                if ttl_ms == -1 {
                    let repair = Repair::Key { key: Bytes::copy_from_slice(&member), holders: Vec::new() };
                    findings.push(Finding::new(Fault::EndlessScheduler, None, &member).repair(repair));
                }
            }
        }
        Ok(findings)
    }

    /// Members that are alive, and will be for two seconds: a key and its entry do not end at the same moment.
    async fn alive(&self, connection: &mut Connection, set: &str) -> Result<Vec<Vec<u8>>, Error> {
        connection.command("ZRANGEBYSCORE", (set, self.doctor.clock.now_secs() + 2, "+inf", "LIMIT", 0, MOST)).await
    }

    async fn exists(&self, connection: &mut Connection, key: &[u8]) -> Result<bool, Error> {
        connection.command("EXISTS", key).await
    }

    /// The queues that servers which are alive serve. A server whose entry cannot be read serves none.
    async fn served(&self, connection: &mut Connection) -> Result<HashSet<String>, Error> {
        let mut served = HashSet::new();
        for member in self.alive(connection, SERVERS).await? {
            match connection.command::<Option<Vec<u8>>>("GET", &member).await {
                Err(error) if error.is_transient() => return Err(error),
                raw => {
                    let info = raw.ok().flatten().and_then(|raw| ServerInfo::from_bytes(&raw).ok());
                    served.extend(info.into_iter().flat_map(|info| info.queues.into_keys()));
                }
            }
        }
        Ok(served)
    }

    /// Mailboxes that several servers serve.
    async fn mailboxes(&self, connection: &mut Connection) -> Result<Vec<Finding>, Error> {
        let of = |queue: &str| match QueueName::parse(queue).family {
            Some(Family::Mailbox(name)) => Some(name),
            _ => None,
        };
        let mailboxes = self.listed.iter().filter(|queue| self.is_meant(queue));
        let mailboxes: Vec<(&String, String)> = mailboxes.filter_map(|queue| Some((queue, of(queue)?))).collect();
        let mut named: HashMap<String, Vec<String>> = HashMap::new();
        for member in if mailboxes.is_empty() { Vec::new() } else { self.alive(connection, SERVERS).await? } {
            let end = member.get(SERVERS.len() + 1..).unwrap_or_default();
            let json: Option<Vec<u8>> = connection.command("GET", [SERVER_ENTRY.as_bytes(), end].concat()).await?;
            if let Some(name) = json.and_then(|json| ServerEntry::parse(&json)).and_then(|entry| entry.name) {
                named.entry(name).or_default().push(String::from_utf8_lossy(end).trim_matches(['{', '}']).to_owned());
            }
        }
        let shared = mailboxes.into_iter().filter_map(|(queue, name)| {
            let servers = named.get(&name).filter(|servers| servers.len() > 1)?;
            let found = Finding::new(Fault::SharedName, Some(queue), queue.as_bytes());
            Some(found.detail(servers.join(", ")))
        });
        Ok(shared.collect())
    }

    /// What is said of queues as such, now that the names of all keys are known.
    pub(super) async fn listing(&mut self, connection: &mut Connection) -> Result<Vec<Finding>, Error> {
        let served = if self.only_harmless { HashSet::new() } else { self.served(connection).await? };
        let mut findings = Vec::new();
        for (queue, facts) in &self.facts {
            let keys = QueueKeys::new(queue);
            if facts.has_tasks && !self.listed.contains(queue) {
                // One that is being removed is not lost.
                let mut look = redis::pipe();
                look.cmd("EXISTS").arg(keys.removing());
                look.cmd("SISMEMBER").arg(QUEUES).arg(queue).ignore_errors();
                let found: Vec<redis::RedisResult<bool>> = connection.pipeline("looking at a queue", &look).await?;
                if !found.into_iter().any(|is_so| is_so.unwrap_or(false)) {
                    let repair = Repair::ListQueue { queue: queue.clone() };
                    findings.push(Finding::new(Fault::UnlistedQueue, Some(queue), queue.as_bytes()).repair(repair));
                }
            }
            if self.only_harmless || served.contains(queue) {
                continue;
            }
            let mut look = redis::pipe();
            look.cmd("LLEN").arg(keys.pending()).cmd("ZCARD").arg(keys.scheduled());
            look.cmd("ZCARD").arg(keys.retry()).ignore_errors();
            let found: Vec<redis::RedisResult<u64>> = connection.pipeline("looking at a queue", &look).await?;
            // Not those that are listed: a group may be listed while nothing is in it.
            let counts = found.into_iter().map(|count| count.unwrap_or(0)).chain([facts.groups.len() as u64]);
            let named = ["pending", "scheduled", "to be retried", "groups"].into_iter().zip(counts);
            let waiting: Vec<String> =
                named.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}")).collect();
            if !waiting.is_empty() {
                let found = Finding::new(Fault::Unserved, Some(queue), queue.as_bytes());
                let target = QueueName::parse(queue).family.filter(Family::is_target);
                let only = target.map_or(String::new(), |target| format!("; only {} may take them", target.whom()));
                findings.push(found.detail(waiting.join(", ") + &only));
            }
        }
        for queue in self.listed.iter().filter(|queue| !self.only_harmless && self.is_meant(queue)) {
            let oldest = self.doctor.broker().oldest_outcome(queue).await?;
            let age = oldest.map_or(0, |at| self.doctor.clock.now_secs() - at);
            if age >= FLOW_UNRECORDED_SECS {
                let found = Finding::new(Fault::UnrecordedOutcome, Some(queue), queue.as_bytes());
                findings.push(found.detail(format!("the oldest is {age} s old")));
            }
        }
        if !self.only_harmless {
            findings.extend(self.limits(connection).await?);
            findings.extend(self.mailboxes(connection).await?);
        }
        let is_bare = |queue: &&String| self.is_meant(queue) && !self.facts.contains_key(*queue);
        for queue in self.listed.iter().filter(|queue| !self.only_harmless && is_bare(queue)) {
            let processed = QueueKeys::new(queue).processed_total();
            if self.doctor.broker().is_bare(queue).await? && !self.exists(connection, processed.as_bytes()).await? {
                findings.push(Finding::new(Fault::EmptyQueue, Some(queue), queue.as_bytes()));
            }
        }
        findings.sort_by(|a, b| a.queue.cmp(&b.queue));
        Ok(findings)
    }
}

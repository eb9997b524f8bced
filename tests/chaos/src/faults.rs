//! Does what the plan says, and notes when it did what to whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::sync::Mutex;

use crate::Failure;
use crate::export;
use crate::fleet::{Fleet, Role};
use crate::happened::Happened;
use crate::ledger::now_ns;
use crate::name::QUEUES;
use crate::net::{Link, Loss};
use crate::node::Redis;
use crate::plan::{Fault, Kind};
use crate::poison::Poisoner;
use crate::steer;

/// How long a process is stopped so that others have its tasks when it comes back: its lease, and the time
/// until somebody has looked. Where only Go is left to look, that takes longer.
fn takeover(role: Role) -> Duration {
    match role {
        Role::Worker { lease_secs, .. } => Duration::from_secs(lease_secs + 20),
        _ => Duration::from_secs(75),
    }
}

/// By how much a clock is stepped: by more than results are kept.
const STEP_SECS: i64 = 7 * 3_600;

/// Bytes a second on a thin link.
const THIN: u64 = 400_000;

/// At least so many workers are left alone.
const WORKING: usize = 2;

/// What it takes to break things; shared with what is healed later.
pub(crate) struct Hand {
    pub(crate) fleet: Arc<Mutex<Fleet>>,
    pub(crate) happened: Arc<std::sync::Mutex<Vec<Happened>>>,
    pub(crate) later: tokio::task::JoinSet<()>,
    /// By the kernel; those that a link which is down never carries are not known.
    pub(crate) packets_lost: Arc<AtomicU64>,
    /// Enqueues what kills its workers.
    poisoner: Poisoner,
    /// Tasks that an export has twice.
    pub(crate) exports: std::sync::Mutex<Vec<String>>,
}

impl Hand {
    pub(crate) fn new(fleet: Fleet, poisoner: Poisoner) -> Self {
        let (fleet, later) = (Arc::new(Mutex::new(fleet)), tokio::task::JoinSet::new());
        Self {
            fleet,
            happened: Arc::default(),
            later,
            packets_lost: Arc::default(),
            poisoner,
            exports: Default::default(),
        }
    }

    fn note(&self, kind: Kind, process: Option<u16>, from: u64) {
        let happened = Happened { kind, process, from, to: now_ns() };
        self.happened.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(happened);
    }

    pub(crate) fn count(&self) -> usize {
        self.happened.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len()
    }

    /// Breaks something. What lasts for long goes on in the background.
    pub(crate) async fn do_it(&mut self, fault: &Fault, redis: &mut Redis) -> Result<(), Failure> {
        while self.later.try_join_next().is_some() {}
        let from = now_ns();
        match fault.kind {
            Kind::ScriptFlush => redis.ask::<()>(&["SCRIPT", "FLUSH"]).await?,
            Kind::ClientKill => {
                for kind in ["normal", "pubsub"] {
                    let _: u64 = redis.ask(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).await?;
                }
            }
            Kind::OutOfMemory => redis.out_of_memory(fault.lasts).await?,
            Kind::DiskFull => redis.disk_full(fault.lasts).await?,
            Kind::NoReplicas => redis.no_replicas(fault.lasts).await?,
            Kind::Demote => redis.demote(fault.lasts, fault.target.is_multiple_of(2)).await?,
            Kind::Busy => redis.busy(fault.lasts).await?,
            Kind::Password => redis.change_password(fault.lasts).await?,
            Kind::MaxClients => redis.crowd_out(fault.lasts).await?,
            Kind::FullMemory => redis.out_of_memory(fault.lasts).await?,
            Kind::Export => self.export(redis, fault.target).await?,
            // The fault is the death of a worker, which is noted when it is seen.
            Kind::Poison => return self.poisoner.enqueue(redis, fault.target).await,
            Kind::Steer => return self.steer(fault, redis.upstream.clone(), from).await,
            Kind::CrashRedis => redis.crash(fault.lasts).await?,
            Kind::FailOver => {
                if !redis.fail_over().await? {
                    return Ok(());
                }
            }
            _ => return self.break_process(fault, from).await,
        }
        self.note(fault.kind, None, from);
        Ok(())
    }

    /// Pauses a queue, and reads it as an export does, for longer than groups wait to be aggregated.
    async fn export(&self, redis: &Redis, target: usize) -> Result<(), Failure> {
        let twice = export::tasks_twice(redis, QUEUES[target % 4]).await?;
        self.exports.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(twice);
        Ok(())
    }

    /// Waits until a process can be broken, so that enough others are at work.
    async fn target(&mut self, fault: &Fault) -> (usize, u16) {
        loop {
            let fleet = self.fleet.lock().await;
            let producers = match fault.kind {
                Kind::KillProducer => true,
                Kind::Cut
                | Kind::Delay
                | Kind::LoseAnswers
                | Kind::ThinLink
                | Kind::LosePackets
                | Kind::LosePacketsOneWay
                | Kind::LinkDown => fault.target.is_multiple_of(4),
                _ => false,
            };
            let mut slots = fleet.of(producers);
            if matches!(fault.kind, Kind::StepClock | Kind::StallLog | Kind::Steer) {
                slots.retain(|slot| matches!(fleet.slots[*slot].role, Role::Worker { .. }));
            }
            let free = slots.iter().filter(|slot| fleet.slots[**slot].busy_until <= now_ns()).count();
            let enough = free > if producers || fault.kind == Kind::Cut { 0 } else { WORKING };
            if enough && let Some(slot) = fleet.pick(&slots, fault.target / 4) {
                return (slot, fleet.slots[slot].process);
            }
            drop(fleet);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn break_process(&mut self, fault: &Fault, from: u64) -> Result<(), Failure> {
        let (slot, process) = self.target(fault).await;
        let mut fleet = self.fleet.lock().await;
        let proxy = fleet.slots[slot].proxy.clone();
        let role = fleet.slots[slot].role;
        let lasts = if fault.kind == Kind::Zombie { takeover(role) } else { fault.lasts };
        match fault.kind {
            Kind::Cut => {
                drop(fleet);
                let cut = proxy.cut_next_answer(fault.byte, Duration::from_secs(3)).await;
                if cut.is_some() {
                    self.note(fault.kind, Some(process), from);
                }
                return Ok(());
            }
            Kind::LoseAnswers => {
                proxy.lose_answers();
                drop(fleet);
                // Until the calls under way have timed out, and the connections were given up.
                let wait = Duration::from_secs(12);
                self.fleet.lock().await.busy(slot, wait);
                self.after(wait, fault.kind, slot, process, from, |_, _, _| {});
                return Ok(());
            }
            Kind::KillWorker | Kind::KillProducer => {
                fleet.kill(slot).await?;
                fleet.busy(slot, lasts + Duration::from_millis(500));
                drop(fleet);
                self.note(fault.kind, Some(process), from);
                self.restart(slot, process, lasts);
                return Ok(());
            }
            Kind::TermWorker => {
                fleet.signal(slot, process, Signal::SIGTERM);
                fleet.busy(slot, Duration::from_secs(60));
                drop(fleet);
                self.wait_and_restart(fault.kind, slot, process, from);
                return Ok(());
            }
            Kind::Pause | Kind::Zombie => {
                fleet.signal(slot, process, Signal::SIGSTOP);
                fleet.busy(slot, lasts);
                drop(fleet);
                self.after(lasts, fault.kind, slot, process, from, |fleet, slot, process| {
                    fleet.signal(slot, process, Signal::SIGCONT);
                });
            }
            Kind::Delay => {
                let total = Duration::from_secs(4).max(lasts);
                proxy.delay(lasts);
                fleet.busy(slot, total);
                drop(fleet);
                self.after(total, fault.kind, slot, process, from, |fleet, slot, _| {
                    fleet.slots[slot].proxy.delay(Duration::ZERO);
                });
            }
            Kind::ThinLink => {
                proxy.narrow(THIN);
                fleet.busy(slot, lasts);
                drop(fleet);
                self.after(lasts, fault.kind, slot, process, from, |fleet, slot, _| fleet.slots[slot].proxy.narrow(0));
            }
            Kind::StepClock => {
                let step = if (fault.target / 4).is_multiple_of(2) { STEP_SECS } else { -STEP_SECS };
                fleet.step_clock(process, step)?;
                fleet.busy(slot, lasts);
                drop(fleet);
                self.after(lasts, fault.kind, slot, process, from, |fleet, _, process| {
                    if let Err(error) = fleet.step_clock(process, 0) {
                        eprintln!("a clock cannot be set right: {error}");
                    }
                });
            }
            Kind::StallLog => {
                fleet.slots[slot].log.stall(true);
                fleet.busy(slot, lasts);
                drop(fleet);
                self.after(lasts, fault.kind, slot, process, from, |fleet, slot, _| {
                    fleet.slots[slot].log.stall(false);
                });
            }
            Kind::Partition => {
                proxy.partition();
                fleet.busy(slot, lasts);
                drop(fleet);
                self.after(lasts, fault.kind, slot, process, from, |fleet, slot, _| fleet.slots[slot].proxy.heal());
            }
            Kind::LosePackets | Kind::LosePacketsOneWay | Kind::LinkDown => {
                let link = fleet.slots[slot].link.clone().ok_or("there are no namespaces")?;
                // A kernel sends what was lost again after ever longer pauses, at the most as long as the loss.
                fleet.busy(slot, lasts * 2);
                drop(fleet);
                match fault.kind {
                    Kind::LinkDown => link.down().await?,
                    Kind::LosePackets => link.lose(Loss::All).await?,
                    _ if (fault.target / 4).is_multiple_of(2) => link.lose(Loss::Requests).await?,
                    _ => link.lose(Loss::Answers).await?,
                }
                self.part(&link, fault, process, from);
            }
            _ => return Err(format!("{:?} meets no process", fault.kind).into()),
        }
        Ok(())
    }

    /// Tells a worker to run fewer tasks, or none, as an operator does, and takes that back later.
    async fn steer(&mut self, fault: &Fault, upstream: Arc<AtomicU16>, from: u64) -> Result<(), Failure> {
        let (slot, process) = self.target(fault).await;
        let mut fleet = self.fleet.lock().await;
        let pid = fleet.processes[usize::from(process)].pid;
        fleet.busy(slot, fault.lasts);
        drop(fleet);
        let (happened, lasts) = (self.happened.clone(), fault.lasts);
        let given = steer::Given::draw(fault.target / 4);
        self.later.spawn(async move {
            // Redis may refuse it at this very moment, as it would an operator: then nothing has happened.
            if !steer::order(&upstream, pid, &given).await.is_ok_and(|found| found) {
                return;
            }
            tokio::time::sleep(lasts).await;
            steer::take_back(&upstream, pid).await;
            let ended = Happened { kind: Kind::Steer, process: Some(process), from, to: now_ns() };
            happened.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(ended);
        });
        Ok(())
    }

    /// Heals a link later.
    fn part(&mut self, link: &Arc<Link>, fault: &Fault, process: u16, from: u64) {
        let (happened, link, kind, lasts) = (self.happened.clone(), link.clone(), fault.kind, fault.lasts);
        let lost = self.packets_lost.clone();
        self.later.spawn(async move {
            tokio::time::sleep(lasts).await;
            match link.heal().await {
                // Nobody has met the fault.
                Ok(0) if kind != Kind::LinkDown => return,
                Ok(packets) => drop(lost.fetch_add(packets, Ordering::SeqCst)),
                Err(error) => eprintln!("a link cannot be healed: {error}"),
            }
            tokio::time::sleep(lasts).await;
            let ended = Happened { kind, process: Some(process), from, to: now_ns() };
            happened.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(ended);
        });
    }

    /// Ends a fault later.
    fn after(
        &mut self,
        lasts: Duration,
        kind: Kind,
        slot: usize,
        process: u16,
        from: u64,
        heal: impl FnOnce(&mut Fleet, usize, u16) + Send + 'static,
    ) {
        let (fleet, happened) = (self.fleet.clone(), self.happened.clone());
        self.later.spawn(async move {
            tokio::time::sleep(lasts).await;
            heal(&mut *fleet.lock().await, slot, process);
            let ended = Happened { kind, process: Some(process), from, to: now_ns() };
            happened.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(ended);
        });
    }

    fn restart(&mut self, slot: usize, process: u16, after: Duration) {
        let fleet = self.fleet.clone();
        self.later.spawn(async move {
            tokio::time::sleep(after).await;
            if let Err(error) = fleet.lock().await.replace(slot, process) {
                eprintln!("cannot start a process again: {error}");
            }
        });
    }

    /// Waits until a process that was told to end has ended, and starts another one.
    fn wait_and_restart(&mut self, kind: Kind, slot: usize, process: u16, from: u64) {
        let (fleet, happened) = (self.fleet.clone(), self.happened.clone());
        self.later.spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let mut fleet = fleet.lock().await;
                if fleet.slots[slot].process == process && !fleet.has_ended(slot) {
                    continue;
                }
                let ended = Happened { kind, process: Some(process), from, to: now_ns() };
                happened.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(ended);
                if fleet.slots[slot].process == process {
                    fleet.slots[slot].busy_until = 0;
                }
                if let Err(error) = fleet.replace(slot, process) {
                    eprintln!("cannot start a process again: {error}");
                }
                return;
            }
        });
    }
}

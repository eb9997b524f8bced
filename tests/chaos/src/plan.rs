//! The plan of a run: which faults come, drawn from a seed, so that a run can be repeated.

use std::fmt;
use std::time::Duration;

/// What can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    KillWorker,
    KillProducer,
    TermWorker,
    Pause,
    Zombie,
    StepClock,
    StallLog,
    Steer,
    Cut,
    Delay,
    LoseAnswers,
    ThinLink,
    Partition,
    LosePackets,
    LosePacketsOneWay,
    LinkDown,
    Poison,
    ScriptFlush,
    ClientKill,
    OutOfMemory,
    FullMemory,
    DiskFull,
    NoReplicas,
    Demote,
    Busy,
    Password,
    MaxClients,
    Export,
    CrashRedis,
    FailOver,
}

impl Kind {
    pub(crate) const ALL: [Kind; 30] = [
        Kind::KillWorker,
        Kind::KillProducer,
        Kind::TermWorker,
        Kind::Pause,
        Kind::Zombie,
        Kind::StepClock,
        Kind::StallLog,
        Kind::Steer,
        Kind::Cut,
        Kind::Delay,
        Kind::LoseAnswers,
        Kind::ThinLink,
        Kind::Partition,
        Kind::LosePackets,
        Kind::LosePacketsOneWay,
        Kind::LinkDown,
        Kind::Poison,
        Kind::ScriptFlush,
        Kind::ClientKill,
        Kind::OutOfMemory,
        Kind::FullMemory,
        Kind::DiskFull,
        Kind::NoReplicas,
        Kind::Demote,
        Kind::Busy,
        Kind::Password,
        Kind::MaxClients,
        Kind::Export,
        Kind::CrashRedis,
        Kind::FailOver,
    ];

    /// How many of a hundred faults. The short ones come often.
    fn share(self) -> u32 {
        match self {
            Kind::KillWorker => 9,
            Kind::KillProducer => 4,
            Kind::TermWorker => 3,
            Kind::Pause => 4,
            Kind::Zombie => 3,
            Kind::StepClock => 3,
            Kind::StallLog => 2,
            Kind::Steer => 2,
            Kind::Cut => 17,
            Kind::Delay => 4,
            Kind::LoseAnswers => 4,
            Kind::ThinLink => 3,
            Kind::Partition => 2,
            Kind::LosePackets => 3,
            Kind::LosePacketsOneWay => 3,
            Kind::LinkDown => 2,
            Kind::Poison => 2,
            Kind::ScriptFlush => 4,
            Kind::ClientKill => 4,
            Kind::OutOfMemory => 2,
            Kind::FullMemory => 1,
            Kind::DiskFull => 2,
            Kind::NoReplicas => 2,
            Kind::Demote => 2,
            Kind::Busy => 2,
            Kind::Password => 2,
            Kind::MaxClients => 2,
            Kind::Export => 2,
            Kind::CrashRedis => 3,
            Kind::FailOver => 2,
        }
    }

    /// What it is called in a report.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Kind::KillWorker => "kill -9 of a worker",
            Kind::KillProducer => "kill -9 of a producer",
            Kind::TermWorker => "SIGTERM of a worker, and a new one",
            Kind::Pause => "SIGSTOP for less than a lease",
            Kind::Zombie => "SIGSTOP until others have taken over, then SIGCONT",
            Kind::StepClock => "the clock of a worker steps by seven hours, and back",
            Kind::StallLog => "nobody reads the log of a worker",
            Kind::Steer => "a worker is told to run fewer tasks, or none, and then as before",
            Kind::Cut => "connection cut inside an answer",
            Kind::Delay => "answers delayed",
            Kind::LoseAnswers => "answers lost after Redis did what was asked",
            Kind::ThinLink => "a thin link: all answers share 400 KB/s",
            Kind::Partition => "partition: a proxy passes nothing, either way",
            Kind::LosePackets => "partition: the kernel loses all packets",
            Kind::LosePacketsOneWay => "partition: the kernel loses all packets one way",
            Kind::LinkDown => "partition: the link is down",
            Kind::Poison => "a task that kills whoever runs it",
            Kind::ScriptFlush => "SCRIPT FLUSH",
            Kind::ClientKill => "CLIENT KILL of all connections",
            Kind::OutOfMemory => "out of memory (OOM)",
            Kind::FullMemory => "out of memory for longer than a lease",
            Kind::DiskFull => "snapshot fails, changes refused (MISCONF)",
            Kind::NoReplicas => "replicas missing, changes refused (NOREPLICAS)",
            Kind::Demote => "Redis demoted for a while (READONLY, MASTERDOWN)",
            Kind::Busy => "an endless script of somebody else (BUSY)",
            Kind::Password => "another password (NOAUTH)",
            Kind::MaxClients => "as many clients as there may be",
            Kind::Export => "a paused queue read for an export, beside aggregators",
            Kind::CrashRedis => "kill -9 of Redis, restart from its append-only file",
            Kind::FailOver => "failover to a replica",
        }
    }

    /// Whether it is made of the links between network namespaces.
    pub(crate) fn needs_namespaces(self) -> bool {
        matches!(self, Kind::LosePackets | Kind::LosePacketsOneWay | Kind::LinkDown)
    }
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// How long nothing new is broken before it.
    pub(crate) pause: Duration,
    /// Which process it meets, of those there are.
    pub(crate) target: usize,
    /// How long it lasts; what that means depends on the kind.
    pub(crate) lasts: Duration,
    /// Where an answer is cut.
    pub(crate) byte: usize,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (target {}, {:?}", self.kind.text(), self.target, self.lasts)?;
        if self.kind == Kind::Cut { write!(f, ", byte {})", self.byte) } else { f.write_str(")") }
    }
}

/// The faults of a seed, without end.
#[derive(Debug)]
pub(crate) struct Plan {
    random: fastrand::Rng,
    mean_pause: Duration,
    namespaces: bool,
    cuts: usize,
    /// The first faults are one of each kind, in an order of the seed, so that short runs have them all.
    first: Vec<Kind>,
}

impl Plan {
    /// Without namespaces, a partition by the kernel becomes one by a proxy.
    pub(crate) fn new(seed: u64, mean_pause: Duration, namespaces: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut first = Kind::ALL.to_vec();
        random.shuffle(&mut first);
        // What takes longest to be over comes first: they are taken from the end.
        first.sort_by_key(|kind| matches!(kind, Kind::Zombie | Kind::Poison));
        first.retain(|kind| namespaces || !kind.needs_namespaces());
        Self { random, mean_pause, namespaces, cuts: 0, first }
    }

    fn kind(&mut self) -> Kind {
        if let Some(kind) = self.first.pop() {
            return kind;
        }
        let mut left = self.random.u32(0..100);
        for kind in Kind::ALL {
            if left < kind.share() {
                return if self.namespaces || !kind.needs_namespaces() { kind } else { Kind::Partition };
            }
            left -= kind.share();
        }
        Kind::Cut
    }
}

impl Iterator for Plan {
    type Item = Fault;

    fn next(&mut self) -> Option<Fault> {
        let kind = self.kind();
        let (least, most) = match kind {
            Kind::Pause => (500, 3_500),
            Kind::Zombie => (0, 0),
            Kind::Delay => (50, 7_000),
            Kind::Partition | Kind::LosePackets | Kind::LosePacketsOneWay | Kind::LinkDown => (1_000, 20_000),
            Kind::CrashRedis => (0, 2_500),
            Kind::StepClock | Kind::ThinLink => (3_000, 15_000),
            Kind::Steer => (1_000, 8_000),
            Kind::StallLog => (8_000, 15_000),
            // A lease of 5 s, and the 7 s after which others take over.
            Kind::FullMemory => (13_000, 16_000),
            Kind::OutOfMemory | Kind::DiskFull | Kind::NoReplicas => (300, 2_500),
            Kind::Demote | Kind::Busy | Kind::Password | Kind::MaxClients => (300, 2_500),
            _ => (100, 1_500),
        };
        let lasts = Duration::from_millis(self.random.u64(least..=most));
        let target = self.random.usize(0..1_000);
        let pause = self.mean_pause.mul_f64(2.0 * self.random.f64());
        if kind == Kind::Cut {
            self.cuts += 1;
        }
        // Byte by byte; a longer answer is met further behind, where longer answers are cut too.
        Some(Fault { kind, pause, target, lasts, byte: self.cuts.saturating_sub(1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(seed: u64, namespaces: bool) -> Vec<Fault> {
        Plan::new(seed, Duration::from_secs(1), namespaces).take(2_000).collect()
    }

    #[test]
    fn a_seed_gives_the_same_faults_again_and_another_one_others() {
        assert_eq!(faults(5, true), faults(5, true));
        assert_ne!(faults(5, true), faults(6, true));
    }

    #[test]
    fn the_first_faults_are_of_all_kinds_and_cuts_go_byte_by_byte() {
        let faults = faults(9, true);
        let kinds: std::collections::BTreeSet<Kind> =
            faults[..Kind::ALL.len()].iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds.len(), Kind::ALL.len());
        assert_eq!(Kind::ALL.iter().map(|kind| kind.share()).sum::<u32>(), 100);
        let cuts: Vec<usize> = faults.iter().filter(|fault| fault.kind == Kind::Cut).map(|fault| fault.byte).collect();
        assert!(cuts.len() > 300 && cuts.iter().enumerate().all(|(n, byte)| n == *byte));
    }

    #[test]
    fn without_namespaces_the_proxies_part_who_would_be_parted_by_the_kernel() {
        let kinds: std::collections::BTreeSet<Kind> = faults(9, false).iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds.len(), Kind::ALL.len() - 3);
        assert!(kinds.contains(&Kind::Partition) && !kinds.iter().any(|kind| kind.needs_namespaces()));
    }
}

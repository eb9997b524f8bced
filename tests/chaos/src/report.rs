//! What is told of a run, in Markdown.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::check::Tally;
use crate::findings::Findings;
use crate::happened::Happened;
use crate::history::History;
use crate::listen::Heard;
use crate::name::Plan;
use crate::plan::Kind;
use crate::snapshot::Snapshot;

pub(crate) struct Report<'a> {
    pub(crate) seed: u64,
    pub(crate) mixed: bool,
    /// How processes reach Redis.
    pub(crate) network: String,
    pub(crate) packets_lost: u64,
    pub(crate) rate: u32,
    pub(crate) skew_secs: i64,
    pub(crate) redis: String,
    pub(crate) lasted: Duration,
    /// How long it took until all was done, after the last fault.
    pub(crate) drained: Option<Duration>,
    pub(crate) processes: usize,
    pub(crate) happened: &'a [Happened],
    pub(crate) history: &'a History,
    pub(crate) tally: &'a Tally,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) findings: &'a Findings,
    pub(crate) heard: &'a Heard,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tally, history, .. } = self;
        let fleet = if self.mixed { "workers of ours and of Go asynq" } else { "workers of ours" };
        let total: u64 = tally.tasks.values().sum();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        writeln!(f, "# Faults, counted\n")?;
        writeln!(f, "| | |\n| --- | --- |")?;
        writeln!(f, "| seed | {} |", self.seed)?;
        writeln!(
            f,
            "| fleet | {fleet}; {} processes one after another; clocks set by ±{} s every 10 s |",
            self.processes, self.skew_secs
        )?;
        writeln!(f, "| network | {} |", self.network)?;
        let arch = std::env::consts::ARCH;
        writeln!(
            f,
            "| machine | {cores} cores, {arch}, {}; Redis {}, appendfsync always |",
            std::env::consts::OS,
            self.redis
        )?;
        writeln!(f, "| lasted | {:.0} s at {} tasks/s; {} |", self.lasted.as_secs_f64(), self.rate, self.ending())?;
        writeln!(f, "| faults | {} |", self.happened.len())?;
        writeln!(f, "| tasks | {total} |")?;
        writeln!(f, "| findings | {} |\n", if self.findings.is_empty() { "none" } else { "see the end" })?;

        writeln!(f, "| fault | times |\n| --- | --- |")?;
        let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
        self.happened.iter().for_each(|fault| *kinds.entry(fault.kind).or_default() += 1);
        for kind in Kind::ALL {
            writeln!(f, "| {} | {} |", kind.text(), kinds.get(&kind).unwrap_or(&0))?;
        }
        writeln!(f, "\n| tasks | number |\n| --- | --- |")?;
        for plan in Plan::ALL {
            writeln!(f, "| {} | {} |", plan.text(), tally.tasks.get(&plan).unwrap_or(&0))?;
        }
        writeln!(f, "\n| what became of them | number |\n| --- | --- |")?;
        let rows = [
            ("enqueued and acknowledged", tally.acknowledged),
            ("refused because their lock or id was taken", tally.duplicates),
            ("refused because Redis could not, or would not", tally.refused),
            ("enqueued, and nobody knows", tally.unknown),
            ("of these stored all the same", tally.unknown_stored),
            ("runs of handlers", tally.starts),
            ("runs of a task that had begun before, a planned retry left out", tally.again.values().sum()),
            ("of these after a run that had succeeded", tally.done_again),
            ("tasks taken over from silent workers (ours told)", history.told.recovered),
            ("late reports refused", history.told.refused),
            ("tasks that kill their workers, archived when their crash budget was spent", tally.poison_given_up),
            ("the same, archived by Go when their retries were", tally.poison_by_go),
            ("other tasks archived because worker after worker died with them", tally.given_up),
            ("members archived because Redis refused what they add as often as they might try", tally.spent),
            ("tasks archived because their producer had cancelled them", tally.cancelled),
            ("of these while nobody worked on them: no start afterwards", tally.cancelled_at_once),
            ("events that a listener heard", self.heard.events),
            ("events that processes counted and did not tell", self.heard.dropped),
            ("gaps that the listener was told of", self.heard.gaps),
            ("packets that the kernel lost on purpose", self.packets_lost),
            ("times that a task was parked under a limit", self.snapshot.parked),
            ("parts of servers in broadcasts that succeeded", tally.parts),
            ("batches", tally.batches),
            ("of these with a death", tally.batches_dead),
            ("keys left in Redis, each accounted for", self.snapshot.keys as u64),
        ];
        for (what, number) in rows {
            writeln!(f, "| {what} | {number} |")?;
        }
        writeln!(f, "\n| why a task ran again | times |\n| --- | --- |")?;
        for (excuse, times) in &tally.again {
            writeln!(f, "| {excuse} | {times} |")?;
        }
        writeln!(
            f,
            "\n| from kill -9 of its worker to a start elsewhere, wait in the queue included | tasks | median | longest |"
        )?;
        writeln!(f, "| --- | --- | --- | --- |")?;
        for (lease, seconds) in &tally.takeover {
            let mut seconds = seconds.clone();
            seconds.sort_by(f64::total_cmp);
            let (median, longest) = (seconds[seconds.len() / 2], seconds[seconds.len() - 1]);
            writeln!(f, "| {lease} | {} | {median:.1} s | {longest:.1} s |", seconds.len())?;
        }
        if !self.findings.is_empty() {
            writeln!(f, "\n## Findings\n\n{}", self.findings)?;
        }
        Ok(())
    }
}

impl Report<'_> {
    fn ending(&self) -> String {
        match self.drained {
            Some(took) => format!("all was done {:.0} s after the last fault was over", took.as_secs_f64()),
            None => "something was still on its way when patience ended".to_owned(),
        }
    }
}

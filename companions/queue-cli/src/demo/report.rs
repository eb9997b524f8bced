//! What became of each task.

use std::fmt::Write as _;
use std::time::Duration;

use queue_admin::payload::shorten;
use serde::Serialize;

use super::scene::End;
use super::screen::Style;
use super::watch::Sight;
use crate::error::CliError;
use crate::output::Output;

/// How the demo ended.
#[derive(Debug)]
pub(super) struct Report {
    /// What the tasks were in.
    pub(super) store: &'static str,
    pub(super) sights: Vec<Sight>,
    pub(super) elapsed: Duration,
    /// What Redis counted in this demo: processed and failed.
    pub(super) counted: (u64, u64),
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    task: &'a str,
    queue: &'a str,
    r#type: &'a str,
    shows: &'a str,
    expected: String,
    found: String,
    tries: u32,
    expected_tries: u32,
    proof: &'a str,
    ok: bool,
}

#[derive(Debug, Serialize)]
struct Summary<'a> {
    ok: bool,
    elapsed_ms: u128,
    processed: u64,
    failed: u64,
    expected_processed: u64,
    expected_failed: u64,
    tasks: Vec<Row<'a>>,
}

fn expected(end: End) -> String {
    match end {
        End::Done => "done".to_owned(),
        End::Refused => "refused".to_owned(),
        End::In(state) => state.to_string(),
    }
}

impl Report {
    /// What Redis should have counted.
    fn expected_counters(&self) -> (u64, u64) {
        let sum = |count: &dyn Fn(&Sight) -> u32| self.sights.iter().map(|sight| u64::from(count(sight))).sum();
        (sum(&|sight| sight.scene.processed()), sum(&|sight| sight.scene.failed))
    }

    /// Whether every task ended where it should, and Redis counted what it should.
    pub(super) fn is_right(&self) -> bool {
        self.sights.iter().all(Sight::is_right) && self.counted == self.expected_counters()
    }

    pub(super) fn show(&self, style: Style, out: &Output) -> Result<(), CliError> {
        if out.json {
            return out.value(&self.summary());
        }
        // Wider than this, the eye does not find the way back to the next line.
        let width = out.terminal.map_or(80, |(width, _)| usize::from(width).clamp(80, 120));
        let mut text = format!("\n{}\n\n", style.bold(&format!("What became of each task, read from {}", self.store)));
        let title =
            format!("  {:<16} {:<9}  {:<10} {:>5}    RESULT OR LAST ERROR", "TASK", "EXPECTED", "FOUND", "TRIES");
        let _ = writeln!(text, "{}", style.dim(&title));
        for sight in &self.sights {
            let right = sight.is_right();
            let mark = if right { style.good("✓") } else { style.bad("✗") };
            let found = format!("{:<10}", sight.place());
            let line = format!(
                "  {:<16} {:<9}  {} {:>5}  {mark} {}",
                sight.scene.id,
                expected(sight.scene.end),
                if right { found } else { style.bad(&found) },
                sight.tries,
                shorten(&sight.proof, width - 51),
            );
            let _ = writeln!(text, "{}", line.trim_end());
            if !right {
                let _ = writeln!(text, "    expected {} tries and {:?}", sight.scene.tries, sight.scene.proof);
            }
        }
        let right = self.sights.iter().filter(|sight| sight.is_right()).count();
        let verdict = format!(
            "{right} of {} ended where they should, in {:.1} s.",
            self.sights.len(),
            self.elapsed.as_secs_f64()
        );
        let verdict = if self.is_right() { style.good(&verdict) } else { style.bad(&verdict) };
        let (processed, failed) = self.counted;
        let counted = format!("{} has counted {processed} attempts, of which {failed} failed.", self.store);
        let _ = writeln!(text, "\n  {verdict}\n  {}{}", counted[..1].to_uppercase(), &counted[1..]);
        if self.counted != self.expected_counters() {
            let (processed, failed) = self.expected_counters();
            let _ = writeln!(text, "  {}", style.bad(&format!("It should have counted {processed}, {failed} failed.")));
        }
        out.text(&text)
    }

    fn summary(&self) -> Summary<'_> {
        let (expected_processed, expected_failed) = self.expected_counters();
        Summary {
            ok: self.is_right(),
            elapsed_ms: self.elapsed.as_millis(),
            processed: self.counted.0,
            failed: self.counted.1,
            expected_processed,
            expected_failed,
            tasks: self
                .sights
                .iter()
                .map(|sight| Row {
                    task: sight.scene.id,
                    queue: sight.scene.queue,
                    r#type: sight.scene.task_type,
                    shows: sight.scene.shows,
                    expected: expected(sight.scene.end),
                    found: sight.place(),
                    tries: sight.tries,
                    expected_tries: sight.scene.tries,
                    proof: &sight.proof,
                    ok: sight.is_right(),
                })
                .collect(),
        }
    }
}

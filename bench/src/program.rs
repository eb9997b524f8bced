//! One run of one side, with what it used.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use crate::Failure;

/// Longer than the slowest run of Go takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a run printed and used.
pub(crate) struct Run {
    pub(crate) report: Value,
    /// Seconds of CPU of all its processes.
    pub(crate) cpu: f64,
    /// Most memory that one process had, in MB.
    pub(crate) peak_mb: f64,
}

/// Starts a program with these arguments, divided by blanks.
pub(crate) fn spawn(program: &Path, arguments: &str) -> Result<Child, Failure> {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    Ok(command.kill_on_drop(true).env_remove("QUEUECTL_LOG").spawn()?)
}

/// Runs so many processes at once; the first report stands for all, with the tasks of all per second of the
/// slowest.
pub(crate) async fn run(program: &Path, arguments: &str, processes: usize) -> Result<Run, Failure> {
    let before = children_cpu()?;
    let runs = (0..processes).map(|_| one(program, arguments)).collect::<Vec<_>>();
    let mut reports = Vec::new();
    let mut peak_mb = 0_f64;
    for run in runs.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
        let run = tokio::time::timeout(PATIENCE, run).await;
        let (report, peak) = run.map_err(|_| format!("{} {arguments} did not end", program.display()))???;
        peak_mb = peak_mb.max(peak);
        reports.push(report);
    }
    let cpu = children_cpu()? - before;
    let mut report = reports.first().cloned().ok_or("no process ran")?;
    if processes > 1 {
        let sum: f64 = reports.iter().filter_map(|report| report["tasks"].as_f64()).sum();
        let slowest = reports.iter().filter_map(|report| report["seconds"].as_f64()).fold(0.0, f64::max);
        report["per_second"] = (sum / slowest).into();
    }
    Ok(Run { report, cpu, peak_mb })
}

fn one(program: &Path, arguments: &str) -> impl Future<Output = Result<(Value, f64), Failure>> + Send + use<> {
    let child = spawn(program, arguments);
    let command = format!("{} {arguments}", program.display());
    async move {
        let mut child = child?;
        let pid = child.id().unwrap_or_default();
        let mut stdout = child.stdout.take().ok_or("no standard output")?;
        let mut printed = String::new();
        let mut peak = 0.0;
        let mut reading = std::pin::pin!(stdout.read_to_string(&mut printed));
        loop {
            tokio::select! {
                read = &mut reading => {
                    read?;
                    break;
                }
                () = tokio::time::sleep(Duration::from_millis(20)) => peak = peak_mb(pid).unwrap_or(peak),
            }
        }
        let status = child.wait().await?;
        if !status.success() {
            return Err(format!("{command}: {status}").into());
        }
        let report = serde_json::from_str(printed.trim()).map_err(|error| format!("{command}: {error}: {printed}"))?;
        Ok((report, peak))
    }
}

/// The most memory the process has had so far.
fn peak_mb(pid: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse::<f64>().ok().map(|kib| kib * 1_024.0 / 1e6)
}

/// Seconds of CPU of all processes that have ended; Redis is still running.
fn children_cpu() -> Result<f64, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6)
}

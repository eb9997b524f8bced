//! The dashboard (`queuectl web`) and asynqmon, one beside the other on one private Redis with the same tasks.
//!
//! * [`site`]: one of them as a process, and requests to it.
//! * [`fill`]: a queue with very many tasks.
//! * [`cost`]: what an answer costs Redis.
//! * [`pages`]: a page of tasks at any depth.
//! * [`overview`]: the overview of a hundred queues, asked for and streamed.
//! * [`beside`]: what workers notice of dashboards.
//! * [`bin`]: very many tasks deleted, and brought back.

mod beside;
mod bin;
mod cost;
mod fill;
mod overview;
mod pages;
mod site;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use tempfile::TempDir;

use crate::Failure;
use crate::server::Server;
use site::Site;

/// Measure the dashboard, and asynqmon beside it, on one private Redis
#[derive(Debug, Args)]
pub(crate) struct Web {
    /// The queuectl to measure, built with --release
    #[arg(long)]
    queuectl: PathBuf,
    /// The program built from tests/interop/oldgo, which has asynqmon in it
    #[arg(long)]
    asynqmon: PathBuf,
    /// Tasks of a full queue
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    tasks: u64,
    /// Only parts whose name contains this: pages, overview, drains, search, bin
    #[arg(long, default_value = "")]
    only: String,
    /// Directory for web.md and web.json
    #[arg(long)]
    out: Option<PathBuf>,
}

/// A line of the report.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    ours: String,
    /// Empty where there is nothing like it.
    asynqmon: String,
    /// What was wanted beforehand, if anything.
    wanted: &'static str,
}

/// A Redis that both dashboards look at.
struct Place<'a> {
    args: &'a Web,
    server: Server,
    /// The sockets of both.
    folder: TempDir,
}

impl<'a> Place<'a> {
    async fn start(args: &'a Web) -> Result<Self, Failure> {
        Ok(Self {
            args,
            server: Server::start(false, &["--enable-debug-command", "local"]).await?,
            folder: tempfile::tempdir()?,
        })
    }

    async fn ours(&self) -> Result<Site, Failure> {
        let socket = self.folder.path().join("web.sock");
        let (redis, address) =
            (format!("redis+unix://{}", self.server.socket()?.display()), format!("unix:{}", socket.display()));
        Site::start(&self.args.queuectl, &["web", "--redis", &redis, "--addr", &address], socket).await
    }

    async fn asynqmon(&self) -> Result<Site, Failure> {
        let socket = self.folder.path().join("asynqmon.sock");
        let (redis, listen) = (self.server.socket()?.display().to_string(), socket.display().to_string());
        Site::start(&self.args.asynqmon, &["asynqmon", &redis, &listen, ""], socket).await
    }
}

pub(crate) async fn run(args: &Web) -> Result<(), Failure> {
    let mut rows = Vec::new();
    if "pages".contains(&args.only) {
        rows.extend(pages::measure(args).await?);
    }
    if "overview".contains(&args.only) {
        rows.extend(overview::measure(args).await?);
    }
    if "drains".contains(&args.only) {
        rows.extend(beside::drains(args).await?);
    }
    if "search".contains(&args.only) {
        rows.extend(beside::search(args).await?);
    }
    if "bin".contains(&args.only) {
        rows.extend(bin::measure(args).await?);
    }
    let text = document(args, &rows).await?;
    println!("{text}");
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out)?;
        std::fs::write(out.join("web.md"), text)?;
        std::fs::write(out.join("web.json"), serde_json::to_string_pretty(&rows)? + "\n")?;
    }
    Ok(())
}

async fn document(args: &Web, rows: &[Row]) -> Result<String, Failure> {
    let redis = Server::start(false, &[]).await?.version().await?;
    let (cores, tasks) = (std::thread::available_parallelism()?, args.tasks);
    let mut text = format!(
        "Redis {redis}, {cores} cores that all share, Unix sockets; a full queue has {tasks} tasks of some 200 bytes of payload.\n\n\
         | what | queuectl web | asynqmon 0.7.2 | wanted |\n| --- | --- | --- | --- |\n"
    );
    for Row { what, ours, asynqmon, wanted } in rows {
        writeln!(text, "| {what} | {ours} | {asynqmon} | {wanted} |")?;
    }
    Ok(text)
}

/// The value below which so large a part of these lies.
fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * part) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

//! `queuectl demo`: the life of a task, shown on a Redis of its own, and checked.

mod redis_cli;
mod report;
mod scene;
mod screen;
mod tasks;
mod watch;

use std::time::{Duration, Instant};

use clap::Args;
use queue_admin::{Error, Inspector};
use queue_core::{Clock as _, SystemClock};
use queue_worker::{Handle, RetryPolicy, Server};

use self::report::Report;
use self::screen::{Screen, Style};
use self::tasks::Shop;
use crate::command::{Command, Place, Running};
use crate::error::CliError;
use crate::global::Global;
use crate::interrupt;
use crate::logging::LogFormat;
use crate::output::Output;
use crate::session::Session;

/// How to show it.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Leave the embedded Redis running, for a look with redis-cli
    #[arg(long)]
    keep: bool,

    /// Run on a store inside this process; needs no redis-server
    #[arg(long, conflicts_with = "keep", hide = cfg!(not(feature = "memory")))]
    memory: bool,
}

/// When the demo gives up waiting for a task. It takes about 5 s.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often Redis is looked at.
const LOOK: Duration = Duration::from_millis(100);

impl Command for DemoArgs {
    fn check(&self, global: &Global) -> Result<(), CliError> {
        global.check_keep(self.keep)?;
        global.check_memory(self.memory)
    }

    /// What becomes of its tasks, it shows itself.
    fn log(&self, _: bool) -> (&'static str, LogFormat) {
        ("error,queue_worker::server::attempt=off", LogFormat::Text)
    }

    fn place(&self) -> Place {
        if self.memory { Place::Memory } else { Place::OwnRedis }
    }

    fn keeps_redis(&self) -> bool {
        self.keep
    }

    fn handles_signals(&self) -> bool {
        true
    }

    fn run<'a>(self: Box<Self>, session: &'a Session, out: &'a Output) -> Running<'a> {
        Box::pin(run(self, session, out))
    }
}

/// Shows the demo. A signal ends it, and its server with it.
async fn run(args: Box<DemoArgs>, session: &Session, out: &Output) -> Result<(), CliError> {
    let mut server = None;
    let outcome = interrupt::guard(play(&args, session, out, &mut server)).await;
    if let Some(server) = server {
        // Nothing to do if it has been shut down already.
        server.abort().await;
    }
    outcome
}

async fn play(args: &DemoArgs, session: &Session, out: &Output, running: &mut Option<Handle>) -> Result<(), CliError> {
    let inspector = session.inspector();
    let queues = tasks::QUEUES.map(|(name, _)| name);
    refuse_used_queues(&inspector, &queues).await?;
    let before = watch::counters(&inspector, &queues).await?;
    let style = Style::new(out);
    if !out.json {
        let redis = if session.memory().is_some() { "" } else { "Redis at " };
        out.line(&format!("{} on {redis}{}\n", style.bold("queuectl demo"), session.redis().target()))?;
    }

    quieten_the_planned_panic();
    let started = Instant::now();
    let scenes = scene::enqueue(&session.client()).await?;
    let shop = Shop::default();
    let mut screen = Screen::new(out, scenes.len());
    screen.show(&watch::look(&inspector, &shop, &scenes).await?, SystemClock.now(), started.elapsed())?;
    let server = Server::new(session.redis().clone(), tasks::router(shop.clone()))
        .queues(tasks::QUEUES)
        .concurrency(20)
        // asynq's own first delay is 15 to 44 s: right for a mail server that is down, long for a demo.
        .retry_policy(RetryPolicy::Fixed(Duration::from_secs(1)))
        .cancel_grace(Duration::from_millis(100))
        .start()
        .await?;
    *running = Some(server.clone());
    loop {
        tokio::time::sleep(LOOK).await;
        let sights = watch::look(&inspector, &shop, &scenes).await?;
        screen.show(&sights, SystemClock.now(), started.elapsed())?;
        if sights.iter().all(watch::Sight::has_ended) || started.elapsed() > PATIENCE {
            break;
        }
    }
    let elapsed = started.elapsed();
    server.shutdown().await;

    // Once more, now that nothing can change any more.
    let sights = watch::look(&inspector, &shop, &scenes).await?;
    let after = watch::counters(&inspector, &queues).await?;
    let store = if session.memory().is_some() { "the store" } else { "Redis" };
    let report = Report { store, sights, elapsed, counted: (after.0 - before.0, after.1 - before.1) };
    report.show(style, out)?;
    if !out.json {
        match session.memory() {
            Some(store) => redis_cli::show_store(store, style, out)?,
            None => redis_cli::show(session, style, out).await?,
        }
        tell_what_now(args.keep, session, style, out)?;
    }
    if report.is_right() {
        return Ok(());
    }
    Err(CliError::failed("the demo did not go as it should; `queuectl demo --keep` leaves its Redis for a look"))
}

/// On somebody's Redis the demo must not take tasks that are not its own, nor be disturbed by its last run.
async fn refuse_used_queues(inspector: &Inspector, queues: &[&str]) -> Result<(), CliError> {
    for queue in queues {
        match inspector.queue(queue).await {
            Err(Error::QueueNotFound(_)) => {}
            Err(error) => return Err(error.into()),
            Ok(found) if found.size() == 0 => {}
            Ok(found) => {
                return Err(CliError::failed(format!(
                    "there are {} tasks in queue {queue:?}, which the demo would use; run it without --redis, on a Redis of its own",
                    found.size()
                )));
            }
        }
    }
    Ok(())
}

/// One handler panics on purpose; its message would stand in the middle of the table.
fn quieten_the_planned_panic() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload().downcast_ref::<&str>() != Some(&tasks::PANIC)
            && panic.payload().downcast_ref::<String>().map(String::as_str) != Some(tasks::PANIC)
        {
            previous(panic);
        }
    }));
}

fn tell_what_now(keep: bool, session: &Session, style: Style, out: &Output) -> Result<(), CliError> {
    let Some(server) = session.embedded() else { return Ok(()) };
    if !keep {
        let hint = "This Redis ends now. To have it left running and paste the commands:";
        return out.text(&format!("\n{hint}\n  queuectl demo --keep\n"));
    }
    let (url, socket) = (server.url(), server.socket());
    let directory = socket.parent().unwrap_or(socket);
    out.text(&format!(
        "\n{}\n\n  export REDIS_URL={url}\n  queuectl queue ls\n  queuectl task ls --queue {shop} --state archived\n  \
         queuectl task inspect --queue {shop} --id report-2026-11\n\nStop it with\n\n  redis-cli -s {socket} shutdown nosave; rm -r {directory}\n",
        style.bold("This Redis is left running"),
        shop = tasks::SHOP,
        socket = socket.display(),
        directory = directory.display(),
    ))
}

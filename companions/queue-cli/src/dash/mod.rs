//! `queuectl dash`: queues, tasks, servers, periodic entries and batches in a terminal, as they are now.
//!
//! * [`model`], [`screen`], [`list`], [`samples`]: what is known.
//! * [`update`], [`ask`] and [`hear`]: what keys and answers from Redis do to that. No I/O.
//! * [`view`]: the picture of it. No I/O either.
//! * [`fetch`] and [`flows`]: the only places that talk to Redis; [`terminal`]: the only one that talks to the terminal.
//!
//! All of it is one task of the runtime, so that a panic anywhere ends the program with the terminal given back.

mod action;
mod ask;
mod fetch;
mod flows;
mod hear;
mod list;
mod model;
mod readable;
mod samples;
mod screen;
mod terminal;
#[cfg(test)]
mod tests;
mod text;
mod update;
mod view;

use std::io::{self, IsTerminal as _};
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use crossterm::event::{Event, EventStream};
use futures_util::StreamExt as _;
use queue_core::{Clock as _, SystemClock};
use tokio::sync::{Notify, mpsc, watch};

use self::model::Model;
use self::terminal::Taken;
use self::update::Effect;
use crate::command::{Command, Running};
use crate::error::CliError;
use crate::global::Global;
use crate::logging::LogFormat;
use crate::output::Output;
use crate::session::Session;
use crate::when;

/// The shortest time between two looks: four a second is as live as it gets for eyes.
const MIN_REFRESH: Duration = Duration::from_millis(250);

/// How to look.
#[derive(Debug, Args)]
pub(crate) struct DashArgs {
    /// Time between two looks at Redis, 250ms at the least
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = when::duration)]
    refresh: Duration,

    /// Refuse to change anything
    #[arg(long)]
    read_only: bool,
}

impl Command for DashArgs {
    /// Whether this can work here.
    fn check(&self, global: &Global) -> Result<(), CliError> {
        if self.refresh < MIN_REFRESH {
            return Err(CliError::Usage("--refresh must be 250ms or more".to_owned()));
        }
        if global.json {
            return Err(CliError::Usage("--json is not for the dashboard; `queuectl stats --json` is".to_owned()));
        }
        if !io::stdout().is_terminal() {
            return Err(CliError::failed("the dashboard needs a terminal; `queuectl stats` does not"));
        }
        Ok(())
    }

    /// A line among the cells of the screen would stay there.
    fn log(&self, _: bool) -> (&'static str, LogFormat) {
        (if io::stderr().is_terminal() { "off" } else { "warn" }, LogFormat::Text)
    }

    fn run<'a>(self: Box<Self>, session: &'a Session, _: &'a Output) -> Running<'a> {
        Box::pin(run(*self, session))
    }
}

async fn run(args: DashArgs, session: &Session) -> Result<(), CliError> {
    let mut terminal = Taken::take().map_err(broken)?;
    let mut model = Model::new(session.redis().target(), terminal.size().map_err(broken)?, SystemClock.now());
    model.read_only = args.read_only;
    model.colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (wanted, wishes) = watch::channel(model.wanted());
    let (answer, answers) = mpsc::channel(16);
    let (action, actions) = mpsc::unbounded_channel();
    let changed = Rc::new(Notify::new());
    let reader = fetch::Reader {
        inspector: session.inspector(),
        flows: session.client().flows(),
        refresh: args.refresh,
        wanted: wishes,
        changed: changed.clone(),
        answers: answer.clone(),
    };
    let acting = fetch::act(session.admin("dash"), actions, changed, answer);
    tokio::select! {
        outcome = interact(&mut model, &mut terminal, &wanted, &action, answers) => outcome.map_err(broken),
        () = async { tokio::join!(reader.run(), acting); } => Ok(()),
    }
}

fn broken(error: io::Error) -> CliError {
    CliError::failed(format!("cannot use the terminal: {error}"))
}

/// Shows the model, waits for something to happen, and begins again.
async fn interact(
    model: &mut Model,
    terminal: &mut Taken,
    wanted: &watch::Sender<screen::Wanted>,
    actions: &mpsc::UnboundedSender<action::Action>,
    mut answers: mpsc::Receiver<model::Answer>,
) -> io::Result<()> {
    let mut keyboard = EventStream::new();
    // Ages are shown to the second.
    let mut second = tokio::time::interval(Duration::from_secs(1));
    while !model.over {
        let wish = model.wanted();
        wanted.send_if_modified(|current| {
            let differs = *current != wish;
            *current = wish;
            differs
        });
        terminal.draw(|frame| view::draw(frame, model))?;
        tokio::select! {
            event = keyboard.next() => {
                let event = event.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))?;
                match handle(model, &event) {
                    Some(Effect::Redraw) => terminal.clear()?,
                    // Its receiver lives as long as this.
                    Some(Effect::Act(action)) => drop(actions.send(action)),
                    None => {}
                }
            }
            Some(answer) = answers.recv() => hear::hear(model, answer),
            _ = second.tick() => {}
        }
        model.now = SystemClock.now();
        #[cfg(debug_assertions)]
        fail_if_told(model)?;
    }
    Ok(())
}

/// Fails once something is on the screen, if a test wants that: nothing else makes this fail when it is wanted.
#[cfg(debug_assertions)]
fn fail_if_told(model: &Model) -> io::Result<()> {
    match std::env::var("QUEUECTL_DASH_FAILS") {
        Ok(how) if model.read_at.is_some() && how == "panic" => panic!("the dashboard was told to panic"),
        Ok(how) if model.read_at.is_some() && how == "error" => Err(io::Error::other("told to fail")),
        _ => Ok(()),
    }
}

fn handle(model: &mut Model, event: &Event) -> Option<Effect> {
    match event {
        Event::Key(key) => return update::press(model, *key),
        Event::Resize(columns, lines) => update::resize(model, (*columns, *lines)),
        Event::Paste(text) => update::paste(model, text),
        _ => {}
    }
    None
}
